"""The example that writes each record once to a database, killed wherever it is."""

from __future__ import annotations

import importlib.util
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

import pylog
from support.faults.interruptions import steps

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "exactly_once.py"
COUNT = 4  # records: two polls


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("exactly_once", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with pylog.open(tmp_path / "shop", durability=pylog.Durability.OS) as store:
        store.create_topic("payments")
        store.log("payments").append_many([(b"alice", b"%d" % amount) for amount in range(COUNT)])
        store.offsets.commit("other", {("payments", 0): 0})  # the topic of offsets is made
    return tmp_path / "shop"


def killed_at(line: int) -> Callable[[FrameType, str, Any], Any]:
    """A tracer that ends the process, as kill -9 does, before the given one of all lines of the example that are run."""
    left = iter(range(line))

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != str(EXAMPLE) or frame.f_code.co_name == "<listcomp>":
            return None
        if event == "line" and next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


def in_a_child(example: ModuleType, path: Path, database: Path, line: int | None = None) -> int:
    """Runs the example in a process of its own; returns how that ended."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            opened = sqlite3.connect(database)
            opened.execute("PRAGMA synchronous = OFF")  # a kill loses nothing that was written
            with pylog.open(path, durability=pylog.Durability.OS) as store:
                sys.settrace(None if line is None else killed_at(line))
                example.consume(store, opened, timeout_ms=0, max_records=2)
                sys.settrace(None)
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
def test_killed_between_any_two_steps_no_row_is_there_twice_and_none_is_missing(
    example: ModuleType, path: Path, tmp_path: Path
) -> None:
    example.main()  # loads the kernels: children find them
    every = [(0, offset, b"alice", offset) for offset in range(COUNT)]
    for line in steps(4):
        database = tmp_path / f"{line}.db"
        ended = in_a_child(example, path, database, line)
        assert in_a_child(example, path, database) == 0
        with sqlite3.connect(database) as found:
            assert found.execute('SELECT * FROM payments ORDER BY "offset"').fetchall() == every
        found.close()
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
    assert line > 30


@pytest.mark.slow
def test_a_member_that_was_overtaken_writes_nothing(example: ModuleType, path: Path, tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "ledger.db")
    with pylog.open(path) as store, store.consumer(group_id="ledger", auto_offset_reset="earliest") as stopped:
        ledger = example.Ledger(stopped, database)
        stopped.subscribe(["payments"], listener=ledger)
        in_hand = stopped.poll(max_records=2)
        ledger.on_partitions_lost(stopped.assignment())
        stopped.unsubscribe()
        example.consume(store, database, timeout_ms=0)
        ((partition, records),) = in_hand.items()
        with pytest.raises(example.OvertakenError):
            ledger.write(partition, records)
    assert database.execute("SELECT count(*), sum(amount) FROM payments").fetchall() == [(COUNT, sum(range(COUNT)))]
    database.close()


@pytest.mark.slow
def test_the_example_runs(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    example.main()
    assert capsys.readouterr().out.splitlines() == [
        "[(b'alice', 2, 60), (b'bob', 2, 24)]",
        "[(b'alice', 4, 120), (b'bob', 4, 48)]",
    ]
