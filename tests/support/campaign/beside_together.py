"""The rows of `beside_calls`, called by threads at once next to each change of a log, by this process and another one.

An exception passes if the change explains it and the docstring of the method or its class names it. For the suite, and for
`./dev torture calls`.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pylog
from pylog import Durability
from support.campaign.beside import CELL_SECONDS, CHANGES, KEPT, hurried
from support.campaign.beside_calls import AMONG_THEMSELVES, CALLS, LONGEST_SECONDS, Call, Caller, documented
from support.campaign.beside_changes import FREE, SIZE, Changer, Eras, check_value, new_value
from support.faults.neighbours import Neighbour, NeighbourError

THREADS: Final = 3
LONGEST_TURN_SECONDS: Final = 0.5  # of one row, while it waits for a change beside it
PATIENCE: Final = 60.0  # seconds for the slowest of three threads

# What a call may raise next to a change, if its docstring names it.
PASSING: Final[dict[str, tuple[type[Exception], ...]]] = {
    "close": (pylog.ClosedError,),
    "delete_topic": (pylog.UnknownTopicOrPartitionError, pylog.OffsetOutOfRangeError),
    "truncate": (pylog.OffsetOutOfRangeError,),
    "delete_records": (pylog.OffsetOutOfRangeError,),
    "tick": (pylog.OffsetOutOfRangeError,),
}


def call_beside(directory: Path, seed: int, *, elsewhere: bool, only: str, seconds: float = CELL_SECONDS) -> dict[str, Any]:
    """Calls each row in some threads at once, next to a change.

    Args:
        directory: an empty one.
        seed: of what is chosen.
        elsewhere: the change is made by another process.
        only: the change, by its name in `CHANGES`.
        seconds: how long each row is called; each thread calls it once at least.

    Returns:
        How many calls and changes there were, and what was wrong, as texts.
    """
    (directory / "eras").write_bytes(bytes(SIZE))
    eras = Eras(directory / "eras", 0)
    store = pylog.open(directory / "store", durability=Durability.OS)
    store.create_topic("t", **FREE)
    changer = Changer(store, eras, only, seed)
    store.log("t").append_many([(b"k%d" % each, new_value()) for each in range(KEPT)])
    wrong: list[str] = []
    try:
        _warm_up(changer, eras)
        if elsewhere:
            with Neighbour() as other:
                code = "import sys; sys.path.append(tests); from support.campaign.beside_changes import change"
                other.run(code, **_given(directory, seed, only))
                other.begin("change(path, eras, seed, only)")
                calls = _call_in_threads(changer, eras, seed, seconds, wrong, elsewhere=True)
                try:
                    steps, slowest = other.answer()
                except NeighbourError as error:
                    error.add_note(f"in the other process, which made changes of the kind {only}")
                    raise
        else:
            calls = _call_in_threads(changer, eras, seed, seconds, wrong, elsewhere=False)
            steps, slowest = changer.steps, changer.slowest
        if slowest > LONGEST_SECONDS:
            wrong.append(f"{only} took {slowest:.1f} s")
        if not wrong:
            _judge_the_end(changer.store, wrong)
    finally:
        changer.store.close()
        eras.close()
    return {"calls": calls, "steps": steps, "violations": wrong}


def _given(directory: Path, seed: int, only: str) -> dict[str, Any]:
    paths = {"path": str(directory / "store"), "eras": str(directory / "eras"), "tests": str(Path(__file__).parents[2])}
    return {**paths, "seed": seed, "only": only}


def _warm_up(changer: Changer, eras: Eras) -> None:
    """Calls each row twice, so that kernels are compiled before the time counts."""
    caller = Caller(changer, eras, THREADS, 0)
    for row in CALLS * 2:
        caller.begin()
        row(caller)


def _call_in_threads(changer: Changer, eras: Eras, seed: int, seconds: float, wrong: list[str], *, elsewhere: bool) -> int:
    """All threads call the same row, and then the next one."""
    callers = [Caller(changer, eras, number, seed * THREADS + number) for number in range(THREADS)]
    counts = [0] * THREADS
    together = threading.Barrier(THREADS, partial(_keep_short, changer))

    def work(caller: Caller) -> None:
        with suppress(threading.BrokenBarrierError):
            for row in CALLS:
                together.wait(PATIENCE)
                counts[caller.number] += _call_for_a_while(caller, changer, row, seconds, wrong, elsewhere=elsewhere)
                if wrong:
                    together.abort()

    threads = [threading.Thread(target=work, args=(caller,)) for caller in callers]
    with hurried():
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if not elsewhere:
                changer.step()
            time.sleep(0.0005)
    eras.end()
    if not wrong:
        wrong.extend(_twice(callers))
    return sum(counts)


def _keep_short(changer: Changer) -> None:
    """Deletes old records between two rows: a row that reads all of them takes ever longer, and the changes go on meanwhile."""
    with suppress(pylog.PylogError):
        log = changer.store.log("t")
        log.delete_records(max(log.start_offset, log.end_offset - KEPT))


def _call_for_a_while(caller: Caller, changer: Changer, row: Call, seconds: float, wrong: list[str], *, elsewhere: bool) -> int:
    deadline, changes = time.monotonic() + seconds, caller.eras.changes
    for count in itertools.count(1):
        began = time.monotonic()
        told = _called(caller, changer, row, elsewhere=elsewhere)
        wrong.extend([] if told is None else [told])
        if (took := time.monotonic() - began) > LONGEST_SECONDS:
            wrong.append(f"{row.__name__} took {took:.1f} s")
        patience = 0 if caller.eras.changes > changes else LONGEST_TURN_SECONDS
        if time.monotonic() >= deadline + patience or wrong:
            return count
    raise AssertionError


def _called(caller: Caller, changer: Changer, row: Call, *, elsewhere: bool) -> str | None:
    """Calls a row. Returns what was wrong, if anything."""
    caller.begin()
    passing = () if changer._only == "close" and elsewhere else PASSING.get(changer._only, ())
    passing += AMONG_THEMSELVES.get(row, ())
    try:
        row(caller)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
        if not isinstance(error, passing):
            return f"{row.__name__}: {traceback.format_exc()}"
        if type(error).__name__ not in documented(row):
            return f"{row.__name__}: no docstring names it: {traceback.format_exc()}"
    return None


def _twice(callers: list[Caller]) -> Iterator[str]:
    """No offset was given to two records while nobody truncated the log or deleted the topic."""
    given: dict[tuple[tuple[int, ...], int], bytes] = {}
    for caller in callers:
        for era, offset, value in caller.acknowledged:
            if era[0] == era[1] and era[2] == era[3] and given.setdefault((era, offset), value) != value:
                yield f"offset {offset} was given to {value!r} and to {given[era, offset]!r}"


def _judge_the_end(store: pylog.Store, wrong: list[str]) -> None:
    """All that is left is whole."""
    with suppress(pylog.UnknownTopicOrPartitionError):  # of a topic that the other process has deleted: the next one is asked for
        assert store.log("t").start_offset >= 0
    for record in store.log("t").records():
        check_value(record.value)
    wrong.extend(str(report) for report in (store.check(), store.verify()) if not report.ok)


def run(seed: int, seconds: float) -> dict[str, Any]:
    """All rows next to each change, in this process and then in another. For long runs."""
    done: dict[str, Any] = {"seed": seed, "violations": []}
    for elsewhere, only in itertools.product((False, True), CHANGES):
        with tempfile.TemporaryDirectory(prefix="pylog-beside-") as directory:
            share = seconds / 2 / len(CHANGES) / len(CALLS)
            found = call_beside(Path(directory), seed, elsewhere=elsewhere, only=only, seconds=share)
        done["violations"] += found["violations"]
        for name in ("calls", "steps"):
            done[name] = done.get(name, 0) + found[name]
    return done
