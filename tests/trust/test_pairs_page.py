"""docs/PAIRS.md is what the marks on the tests say, and no pair of features is left out."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from support.trust.features import CANNOT_MEET, FEATURES
from support.trust.pairs import PAGE, empty, excused_in_vain, page


@pytest.mark.slow
def test_the_matrix_is_that_of_the_marks_and_has_no_empty_cell() -> None:
    """In a process of its own, which collects the marked files whatever is collected here."""
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(["tests", *sys.path])}
    command = [sys.executable, "-m", "support.trust.pairs", "--print"]
    done = subprocess.run(command, cwd=PAGE.parent.parent, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert PAGE.read_text() == done.stdout, "docs/PAIRS.md is not what the marks say; renew it: ./dev pairs"


def test_each_file_that_the_matrix_names_is_there() -> None:
    named = set(re.findall(r"`([^`]+\.py)::", PAGE.read_text()))
    assert named
    assert [name for name in sorted(named) if not (PAGE.parent.parent / name).is_file()] == []


def test_a_pair_that_nothing_covers_is_found() -> None:
    pairs = {(first, second): {"tests/x.py::test"} for first in FEATURES for second in FEATURES}
    assert empty(pairs) == []
    del pairs["roll", "crash"]
    assert empty(pairs) == [("roll", "crash")]
    assert "**nothing**" in page(pairs)


def test_a_reason_not_to_meet_does_not_outlive_the_test_that_refutes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CANNOT_MEET, ("roll", "crash"), "a reason")
    assert ("roll", "crash") not in empty({})
    assert "a reason" in page({})
    assert excused_in_vain({}) == []
    assert excused_in_vain({("roll", "crash"): {"tests/x.py::test"}}) == [("roll", "crash")]
