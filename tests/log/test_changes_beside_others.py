"""Every change of a log beside every change of the same log by another process: neither is taken for a restored backup."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Durability
from pylog.errors import PylogError
from pylog.segment.names import CLEANED, LOG, SEAL
from pylog.store import Store, manager_of
from support.faults.neighbours import HookedFileSystem, Neighbour

OPTIONS: dict[str, Any] = {
    "cleanup_policy": "compact,delete",
    "segment_bytes": 600,
    "index_interval_bytes": 100,
    "retention_bytes": 3000,
    "retention_ms": -1,
}
COUNT = 35
CHANGES = {
    "append": "log.append(b'one' * 20, key=b'one')",
    "roll": "[log.append(b'roll' * 20, key=b'%d' % number) for number in range(12)]",
    "compaction": "store.compact('t')",
    "retention": "store.retain('t')",
    "delete_records": "log.delete_records(min(log.start_offset + 15, log.end_offset))",
    "truncation": "log.truncate(max(log.end_offset - 12, log.start_offset))",
    "truncation of most": "log.truncate(log.start_offset + 3 if log.end_offset > log.start_offset + 3 else log.end_offset)",
    "flush": "store.flush()",
    "flush in background": "manager_of(store).log('t').flush_in_background()",
}
DELETIONS = {
    "delete_topic": "store.delete_topic('t')",
    "delete and create": "store.delete_topic('t'); store.create_topic('t', cleanup_policy='compact,delete')",
}
REBUILDING = "[segment.rebuild_indexes() for _, segment in manager_of(store).log('t').snapshot().segments]"
MOMENTS = {"first file": ("create", LOG), "records": ("sync", LOG), "last file": ("sync", SEAL)}


@pytest.fixture
def store(tmp_path: Path, fs: HookedFileSystem) -> Iterator[Store]:
    with pylog.open(tmp_path / "s", fs=fs, durability=Durability.OS) as opened:
        opened.create_topic("t", **OPTIONS)
        put(opened.log("t"))
        yield opened


@pytest.fixture
def other(tmp_path: Path, store: Store, process: Neighbour) -> Iterator[Neighbour]:
    process.run("from pylog.store import manager_of")
    process.run("store = pylog.open(path, lock_timeout_ms=2000); log = store.log('t')", path=str(tmp_path / "s"))
    process.run("_ = log.append(b'theirs', key=b'theirs')")
    yield process
    process.run("store.close()")


def put(log: pylog.Log) -> None:
    for number in range(COUNT):
        log.append(b"%d" % number + b"." * 60, key=b"%d" % (number % 7))


def change(store: Store, code: str) -> None:
    exec(code, {"store": store, "log": store.log("t"), "manager_of": manager_of})


def both_go_on(store: Store, other: Neighbour) -> None:
    """Both processes have the same records, and append."""
    theirs = other.run("log.append(b'their next', key=b'next')")
    assert store.log("t").append(b"our next", key=b"next") == theirs + 1
    seen = [record.offset for record in store.log("t").records()]
    assert other.run("[record.offset for record in log.records()]") == seen
    assert seen[-1] == theirs + 1
    assert store.verify().ok


@pytest.mark.slow
@pytest.mark.pair("second process", "truncation", "delete_records")
@pytest.mark.parametrize("theirs", CHANGES)
@pytest.mark.parametrize("ours", CHANGES)
def test_a_change_after_one_of_another_process_is_made(store: Store, other: Neighbour, ours: str, theirs: str) -> None:
    for _ in range(2):
        other.run(f"_ = {CHANGES[theirs]}")
        change(store, CHANGES[ours])
    both_go_on(store, other)


@pytest.mark.sampled(5)
@pytest.mark.pair("compaction", "second process")
@pytest.mark.parametrize("theirs", [change for change in CHANGES if change != "compaction"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_change_of_another_process_in_the_middle_of_a_compaction_ends_it_at_most(
    tmp_path: Path, store: Store, other: Neighbour, fs: HookedFileSystem, moment: str, theirs: str
) -> None:
    call, name = MOMENTS[moment]
    for _ in range(2):
        fs.before(call, name + CLEANED, lambda: other.run(f"_ = {CHANGES[theirs]}"))
        store.compact("t")
        assert not list((tmp_path / "s/t-0").glob("*" + CLEANED))
    both_go_on(store, other)


@pytest.mark.parametrize("theirs", CHANGES)
def test_a_change_of_another_process_in_the_middle_of_a_flush_in_background_fails_neither(
    store: Store, other: Neighbour, fs: HookedFileSystem, theirs: str
) -> None:
    store.log("t").append(b"unsynced", key=b"unsynced")
    fs.before("sync", LOG, lambda: other.run(f"_ = {CHANGES[theirs]}"))
    change(store, CHANGES["flush in background"])
    both_go_on(store, other)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("theirs", DELETIONS)
@pytest.mark.parametrize("ours", CHANGES)
def test_a_change_after_another_process_has_deleted_the_topic_says_so(
    store: Store, other: Neighbour, ours: str, theirs: str
) -> None:
    log = store.log("t")
    other.run(DELETIONS[theirs])
    with contextlib.suppress(pylog.UnknownTopicOrPartitionError):
        exec(CHANGES[ours], {"store": store, "log": log, "manager_of": manager_of})
    assert list(store.topics()) == (["t"] if "create" in theirs else [])


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["truncation", "truncation of most", "delete_records"])
def test_threads_that_compact_and_read_beside_changes_of_the_same_log_find_no_replaced_directory(store: Store, cut: str) -> None:
    """The threads without the log's lock see its names in the middle of changes."""
    errors: list[PylogError] = []
    done = threading.Event()

    def again(action: str) -> None:
        while not done.is_set():
            try:
                change(store, action)
            except pylog.OffsetOutOfRangeError:  # the other thread was faster
                continue
            except PylogError as error:
                errors.append(error)
                return

    actions = [CHANGES["compaction"], CHANGES[cut], REBUILDING]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=again, args=(action,)) for action in actions]
    try:
        for thread in threads:
            thread.start()
        for _ in range(5):
            put(store.log("t"))
    finally:
        done.set()
        for thread in threads:
            thread.join(30)
        sys.setswitchinterval(interval)
    assert not [error for error in errors if isinstance(error, pylog.errors.DirectoryReplacedError)]
    put(store.log("t"))
    assert store.verify().ok
