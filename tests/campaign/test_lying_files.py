"""Files whose checksums are right and whose content lies: a right answer or an error of pylog, within limits of memory and time.

A share of the campaign `./dev torture lying`; a failure names the seed of its case.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from functools import partial
from typing import Any

import pytest

import pylog
from support import cli
from support.campaign import lying
from support.campaign.lying import COMMANDS
from support.campaign.lying_files import BROKERS, KINDS, Hole, Lie, batches_of, lay, liar_of, lies, specimen, values_of
from support.campaign.processes import new_seed

CASES = 60  # of three lying files each, about; the campaign has more


def shown(found: list[dict[str, object]]) -> str:
    return "\n".join(json.dumps(each, indent=1).replace("\\n", "\n") for each in found)


@pytest.mark.slow
def test_files_that_lie_give_right_answers_or_errors_of_pylog() -> None:
    first = new_seed() % 1_000_000 * 1000
    found = lying.in_process(first, CASES, short=True)
    assert not found, f"again: python -m support.campaign.lying {first} {CASES} --short\n{shown(found)}"


@pytest.mark.slow
def test_all_calls_on_some_files_that_lie_give_right_answers_or_errors_of_pylog() -> None:
    first = new_seed() % 1_000_000 * 1000
    found = lying.in_process(first, 10)
    assert not found, f"again: python -m support.campaign.lying {first} 10\n{shown(found)}"


@pytest.mark.damaged("files lie")
def test_a_case_that_ends_its_process_is_a_finding_and_the_next_ones_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[int] = []
    monkeypatch.setattr(lying, "warmed", list)
    monkeypatch.setattr(lying, "lay", lambda *given: None)
    monkeypatch.setattr(lying, "_limit", lambda: None)
    monkeypatch.setattr(
        lying, "some_calls_of", lambda seed, *given: (lambda root: os.abort() if seed == 3 else run.append(seed),)
    )
    (found,) = lying.cases(1, 5, short=True)
    assert found["seed"] == 3
    assert "ended with" in found["error"]


@pytest.mark.parametrize("calls", [lying.calls_of, lying.some_calls_of])
def test_each_call_is_made_by_some_case(calls, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Of the short cases too: a thousand of them make each call."""
    made: Counter[int] = Counter()

    class Store:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(pylog, "open", lambda *given, **options: Store())
    monkeypatch.setattr(pylog, "read_table", lambda *given: None)
    monkeypatch.setattr(lying, "_reads", lambda store: [partial(made.update, [number]) for number in range(24)])
    monkeypatch.setattr(lying, "_changes", lambda store: [partial(made.update, [100 + number]) for number in range(26)])
    monkeypatch.setattr(lying, "command", lambda *given: made.update([1000]))
    for seed in range(1000):
        for call in calls(seed, Lie({"x": b""}, []), []):
            call(tmp_path)
    assert set(made) == {*range(24), *range(100, 126), 1000}


@pytest.mark.slow
def test_kernels_that_check_each_access_find_none_beyond_its_array() -> None:
    first = new_seed() % 1_000_000 * 1000
    found = lying.in_process(first, 10, checked=True)
    assert not found, f"again: NUMBA_BOUNDSCHECK=1 python -m support.campaign.lying {first} 10\n{shown(found)}"


def test_every_kind_of_file_has_a_liar() -> None:
    """A new kind of file in the store joins here."""
    matched = {next(pattern for pattern, _ in KINDS if re.fullmatch(pattern, path)) for path in specimen() | BROKERS}
    assert matched == {pattern for pattern, _ in KINDS}
    assert all(liar_of(path) for path in specimen() | BROKERS)


def test_each_command_takes_its_words_and_finds_the_honest_store_sound(tmp_path) -> None:
    """Else commands are refused before they read a file, or files that lie are never reached."""
    lay(tmp_path / "store", specimen(), Lie({}, []))
    with pylog.open(tmp_path / "store", "r") as store:
        assert {name: len(list(store.log(name).records())) for name in ("t", "old", "x")} == {"t": 124, "old": 16, "x": 6}
    for words in COMMANDS:
        outcome = cli.call(*(word.replace("{}", str(tmp_path / "store")) for word in words))
        assert outcome.code == 0 or (outcome.code == 1 and words[0] in ("compare", "graduate")), (words, outcome)


def test_lies_keep_checksums_right() -> None:
    """Else the checksum is all that is ever looked at."""
    whole: Counter[bool] = Counter()
    for seed in range(300):
        files, lie = lies(seed)
        for path, content in lie.changed.items():
            if path.endswith(".log") and isinstance(content, bytes) and path in files:
                whole[sum(map(len, batches_of(content))) >= len(content) - 64] += 1
            assert isinstance(content, bytes | Hole | None)
    assert whole[True] > 5 * whole[False]


@pytest.mark.parametrize("wrong", [lambda root: 1 // 0, lambda root: lying.check_outcome(None)], ids=["a number", "a command"])
def test_a_call_that_ends_in_anything_but_an_error_of_pylog_is_a_finding(wrong, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(lying, "calls_of", lambda *given: (wrong,))
    monkeypatch.setattr(lying, "_limit", lambda: None)
    lying.run_case(5, tmp_path, [])
    assert json.loads(capsys.readouterr().out)["seed"] == 5


def test_other_records_are_a_finding_where_only_derived_files_lie(tmp_path) -> None:
    lay(tmp_path / "store", specimen(), Lie({}, []))
    lie = Lie({f"t-0/{0:020}.index": b"x" * 8}, [])
    lying.same_records(lie, values_of(tmp_path / "store"))(tmp_path / "store")
    with pytest.raises(AssertionError, match="other records"):
        lying.same_records(lie, [])(tmp_path / "store")
