"""tidwall/wal: the end in memory moved before the write had succeeded; one full disk made the file unreadable for good."""

from __future__ import annotations

import pytest

import pylog
from pylog import Durability
from pylog.testing import FaultyFileSystem, MemoryFileSystem

VALUE = b"v" * 50


@pytest.mark.parametrize("level", [Durability.SYNC, Durability.OS])
@pytest.mark.parametrize("fault", ["short write ENOSPC", "write ENOSPC", "write EIO"])
@pytest.mark.parametrize("written", [0, 1, 7])
def test_the_log_goes_on_where_it_was_once_there_is_room(written: int, fault: str, level: Durability) -> None:
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk)
    with pylog.open("/data", fs=fs, clock=disk.clock, durability=level) as store:
        log = store.create_topic("t") and store.log("t")
        log.append_many([VALUE + b"%d" % number for number in range(written)])
        path = log.segments[0].path if written else "/data/t-0/00000000000000000000.log"
        size = len(disk.read(path, 1 << 20) or b"")
        fs.fail(fault, of=".log", forever=True)
        for _ in range(3):
            with pytest.raises(pylog.StorageFailedError):
                log.append_many([b"refused" * 20, b"refused too"])
            assert log.end_offset == written
            assert len(disk.read(path, 1 << 20) or b"") == size
        assert fs.fired >= 3
        fs.heal()
        assert log.append(b"accepted") == written
        wanted = [VALUE + b"%d" % number for number in range(written)] + [b"accepted"]
        assert [record.value for record in log.records()] == wanted
        assert store.check().ok
    with pylog.open("/data", fs=disk.crash(), clock=disk.clock) as store:
        assert [record.value for record in store.log("t").records()] == wanted
        assert store.log("t").recovery_report == ()


def test_whole_batches_of_a_refused_append_do_not_come_back() -> None:
    """The half that was written held three of five batches; the process dies before it writes anything else."""
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk)
    store = pylog.open("/data", fs=fs, clock=disk.clock)
    log = store.create_topic("t", max_message_bytes=200) and store.log("t")
    log.append(b"accepted")
    fs.fail("short write ENOSPC", of=".log")
    with pytest.raises(pylog.StorageFailedError):
        log.append_many([b"%d" % number + VALUE * 2 for number in range(5)])
    disk.kill()
    after = disk.process()
    with pylog.open("/data", fs=after, clock=after.clock) as store:
        assert [record.value for record in store.log("t").records()] == [b"accepted"]
        assert store.log("t").append(b"next") == 1


@pytest.mark.slow
def test_a_full_disk_while_a_segment_rolls_costs_nothing_and_leaves_no_gap() -> None:
    """The same fault at each write of a roll in turn: to the segment, its indexes, its seal, the header."""
    calls = 1
    while True:
        disk = MemoryFileSystem()
        fs = FaultyFileSystem(disk)
        store = pylog.open("/data", fs=fs, clock=disk.clock)
        log = store.create_topic("t", segment_bytes=200) and store.log("t")
        acknowledged = [b"%d" % log.append(b"%d" % number) for number in range(2)]
        fs.fail("short write ENOSPC", calls)
        for number in range(2, 6):
            try:
                log.append(b"%d" % number)
            except pylog.PylogError:
                break
            acknowledged.append(b"%d" % number)
        fired = fs.fired
        disk.kill()
        after = disk.process()
        with pylog.open("/data", fs=after, clock=after.clock) as store:
            values = [record.value for record in store.log("t").records()]
            assert values[: len(acknowledged)] == acknowledged, calls
            assert store.log("t").append(b"next") == len(values)
            assert store.check().ok
        if not fired:
            break
        calls += 1
    assert calls > 10
