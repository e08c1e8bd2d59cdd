"""A mark for a pair of features names two features that exist, or collection ends with an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.trust.features import RULES, FeatureError, covers, pair_of, pairs_of
from support.trust.run_mutants import ROOT


def test_a_pair_is_the_same_in_either_order() -> None:
    assert pair_of("Spark", "roll") == pair_of("roll", "Spark") == ("roll", "Spark")


@pytest.mark.parametrize("names", [("roll", "rolls"), ("roll",), ("roll", "roll"), ("roll", "crash", "close"), ()])
def test_a_pair_of_anything_but_two_features_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(FeatureError):
        pair_of(*names)


@pytest.mark.parametrize("names", [("roll", "rolls"), ("roll",), ("roll", "crash", "roll"), ("roll", "crash", "crash"), ()])
def test_a_mark_of_anything_but_different_features_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(FeatureError):
        pairs_of(*names)


def test_a_rule_is_noted_with_its_pairs() -> None:
    class Machine:
        @covers(("Spark", "roll"))
        def step(self) -> int:
            return 1

    name = f"{__name__}:{Machine.step.__qualname__}"
    assert RULES.pop(name) == {("roll", "Spark")}
    assert Machine().step() == 1


@pytest.mark.slow
def test_a_test_with_an_unknown_feature_ends_the_collection_and_names_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_odd.py").write_text("import pytest\n@pytest.mark.pair('roll', 'rolls')\ndef test_odd(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml"]
    given = [f"--rootdir={ROOT}", f"--confcutdir={ROOT}", "-p", "conftest", tmp_path]
    done = subprocess.run([*command, *given], cwd=ROOT / "tests", capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "test_odd" in done.stderr
    assert "no feature 'rolls'" in done.stderr
