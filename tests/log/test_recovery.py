"""After a crash: what was acknowledged is there, a torn tail is cut and kept aside, damage is never taken for one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import pylog
from pylog.directory.checkpoints import CLEAN_SHUTDOWN
from pylog.fs import OsFileSystem
from pylog.log.durable_point import SLOT_SIZE, DurablePoint, open_header
from pylog.record.batch import scan_batches
from pylog.record.format import POSITION
from pylog.testing import FaultyFileSystem as PublicFaultyFileSystem
from pylog.testing import MemoryFileSystem
from support.engines import writer_of
from support.faults.faulty_fs import Faults, FaultyFileSystem
from support.golden.data import case

SMALL = {"segment_bytes": 600, "index_interval_bytes": 100}


def values(log: pylog.Log) -> list[bytes | None]:
    return [record.value for record in log.records()]


def crashed(path: Path, records: int, **config: int) -> Path:
    """A store whose process died right after its last acknowledgement: nothing was closed."""
    store = pylog.open(path)
    store.create_topic("t", **(config or SMALL))
    log = store.log("t")
    for number in range(records):
        log.append(b"value %d" % number, timestamp=1_000 + number)
    copy = path.with_name(path.name + "-crashed")
    shutil.copytree(path, copy)
    store.close()
    keep_inodes(path, copy)
    return copy


def keep_inodes(source: Path, copy: Path) -> None:
    """Makes the copy the very files that were written, as a crash leaves them: the durable point knows its files by inode."""
    for file in (copy / "t-0").iterdir():
        written = source / "t-0" / file.name
        with written.open("r+b") as same:
            same.truncate(0)
            same.write(file.read_bytes())
        shutil.copystat(file, written)
        file.unlink()
        os.rename(written, file)


def test_everything_acknowledged_is_there_after_a_crash(tmp_path: Path) -> None:
    directory = crashed(tmp_path / "s", 30)
    with pylog.open(directory) as store:
        log = store.log("t")
        assert values(log) == [b"value %d" % number for number in range(30)]
        assert store.recovery_report == ()
        assert log.append(b"next") == 30


def last_segment(directory: Path) -> Path:
    return max((directory / "t-0").glob("*.log"))


@pytest.mark.slow
def test_a_write_torn_at_any_byte_costs_only_itself(tmp_path: Path) -> None:
    directory = crashed(tmp_path / "s", 8)
    segment = last_segment(directory)
    whole = segment.read_bytes()
    with pylog.open(tmp_path / "other") as store:
        store.create_topic("t")
        store.log("t").append_many([b"the batch that was being written"] * 3, durability=pylog.Durability.SYNC)
        batch = bytearray((tmp_path / "other" / "t-0" / segment.name.replace(segment.name[:20], "0" * 20)).read_bytes())
    batch[:8] = (8).to_bytes(8, "big")
    for size in range(1, len(batch)):
        with segment.open("r+b") as file:
            file.truncate(len(whole))
            file.seek(len(whole))
            file.write(batch[:size])
        with pylog.open(directory, mode="r") as store:
            log = store.log("t")
            assert log.end_offset == 8, size
            assert values(log) == [b"value %d" % number for number in range(8)]
            assert store.recovery_report == ()  # what lies above the published end is no reader's business
    with pylog.open(directory) as store:
        log = store.log("t")
        assert log.append(b"next") == 8
        assert values(log)[-2:] == [b"value 7", b"next"]
    (aside,) = (directory / "t-0").glob("*.torn.0")
    assert aside.read_bytes() == batch[: len(batch) - 1]


def test_a_whole_batch_that_was_not_acknowledged_may_stay(tmp_path: Path) -> None:
    """A process that dies between its write and its acknowledgement leaves a whole batch; keeping it is legal."""
    directory = crashed(tmp_path / "s", 3, segment_bytes=1 << 20)
    segment = last_segment(directory)
    data = segment.read_bytes()
    extra = bytearray(data[: len(data) // 3])
    extra[:8] = (3).to_bytes(8, "big")
    segment.write_bytes(data + extra)
    with pylog.open(directory) as store:
        assert values(store.log("t")) == [b"value 0", b"value 1", b"value 2", b"value 0"]


@pytest.mark.damaged("it was damaged on purpose")
@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_flipped_bit_below_the_durable_end_is_corruption_and_never_a_torn_tail(tmp_path: Path, bit: int) -> None:
    """Also in the very last batch, where nothing that follows could tell."""
    directory = crashed(tmp_path / "s", 6, segment_bytes=1 << 20)
    segment = last_segment(directory)
    data = bytearray(segment.read_bytes())
    size = len(data) // 6
    for position in (len(data) - size + 30, len(data) - 3, len(data) - size + 9, len(data) - size + 17):
        damaged = bytearray(data)
        damaged[position] ^= 1 << bit
        with segment.open("r+b") as file:
            file.write(damaged)
        before = segment.read_bytes()
        with pylog.open(directory) as store:
            log = store.log("t")
            with pytest.raises(pylog.CorruptionError):
                log.append(b"never")
            assert [finding.kind for finding in log.recovery_report] == ["corrupt"]
        assert segment.read_bytes() == before
    with segment.open("r+b") as file:
        file.write(data)
    with pylog.open(directory) as store:
        assert store.log("t").append(b"again") == 6


@pytest.mark.damaged("it was damaged on purpose")
def test_records_missing_below_the_durable_end_are_corruption(tmp_path: Path) -> None:
    directory = crashed(tmp_path / "s", 6, segment_bytes=1 << 20)
    segment = last_segment(directory)
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size // 6 * 5)
    with pylog.open(directory) as store:
        log = store.log("t")
        with pytest.raises(pylog.CorruptionError, match="before the end that was synced"):
            log.append(b"never")
        assert values(log) == [b"value %d" % number for number in range(5)]


def test_derived_files_of_a_crashed_log_are_made_again(tmp_path: Path) -> None:
    directory = crashed(tmp_path / "s", 40)
    for pattern in ("*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint", "durable-point"):
        for path in (directory / "t-0").glob(pattern):
            path.unlink()
    with pylog.open(directory) as store:
        log = store.log("t")
        assert values(log) == [b"value %d" % number for number in range(40)]
        for number in range(40):
            found = log.offset_for_timestamp(1_000 + number)
            assert found == (number, 1_000 + number)
        assert log.append(b"next") == 40


def test_the_marker_is_gone_before_the_first_write_and_back_after_a_clean_close(tmp_path: Path) -> None:
    directory = tmp_path / "s"
    with pylog.open(directory) as store:
        store.create_topic("t")
    assert (directory / CLEAN_SHUTDOWN).exists()
    with pylog.open(directory) as store:
        assert (directory / CLEAN_SHUTDOWN).exists()
        store.log("t").append(b"x")
        assert not (directory / CLEAN_SHUTDOWN).exists()
    assert (directory / CLEAN_SHUTDOWN).exists()


def test_the_marker_stays_away_while_a_partition_is_not_recovered(tmp_path: Path) -> None:
    """A partition that nobody opened may have a torn tail: a broker would not start under a marker."""
    directory = crashed(tmp_path / "s", 3, segment_bytes=1 << 20)
    with last_segment(directory).open("ab") as file:
        file.write(bytes(100))
    with pylog.open(directory) as store:
        store.create_topic("other")
        store.log("other").append(b"x")
    assert not (directory / CLEAN_SHUTDOWN).exists()
    with pylog.open(directory) as store:
        store.log("t").append(b"x")
    assert (directory / CLEAN_SHUTDOWN).exists()


def test_the_marker_stays_away_while_a_torn_tail_is_not_cut(tmp_path: Path) -> None:
    directory = crashed(tmp_path / "s", 3, segment_bytes=1 << 20)
    with last_segment(directory).open("ab") as file:
        file.write(bytes(100))
    with pylog.open(directory) as store:
        assert store.log("t").end_offset == 3  # opened, read, not written
    assert not (directory / CLEAN_SHUTDOWN).exists()


# ---- failing calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("short", [0, 1, 40])
def test_a_failed_write_is_cut_off_again_and_the_log_goes_on(tmp_path: Path, short: int) -> None:
    fs = FaultyFileSystem()
    with pylog.open(tmp_path, fs=fs) as store:
        store.create_topic("t", **SMALL)
        log = store.log("t")
        log.append_many([b"a", b"b"])
        size = last_segment(tmp_path).stat().st_size
        fs.faults = Faults({"write": {1}}, short=short)
        with pytest.raises(pylog.StorageFailedError):
            log.append(b"refused")
        assert last_segment(tmp_path).stat().st_size == size
        assert log.end_offset == 2
        fs.faults = Faults()
        assert log.append(b"c") == 2
        assert values(log) == [b"a", b"b", b"c"]
    with pylog.open(tmp_path, mode="r") as store:
        assert values(store.log("t")) == [b"a", b"b", b"c"]


def test_after_a_failed_sync_nothing_is_acknowledged_until_the_store_is_opened_again(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    store = pylog.open(tmp_path, fs=fs)
    store.create_topic("t")
    log = store.log("t")
    log.append(b"kept")
    fs.faults = Faults({"sync": {1}})
    with pytest.raises(pylog.StorageFailedError):
        log.append(b"not acknowledged")
    assert log.end_offset == 1
    with pytest.raises(pylog.ClosedError, match="open it again"):
        log.append(b"refused")
    store.close()
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    with pylog.open(tmp_path) as again:
        assert values(again.log("t"))[0] == b"kept"
        assert again.log("t").append(b"more") >= 1


@pytest.mark.slow
@pytest.mark.parametrize("call", ["write", "sync", "create", "rename", "sync_directory"])
def test_a_failure_of_any_call_while_rolling_loses_nothing_acknowledged(tmp_path: Path, call: str) -> None:
    for number in range(1, 40):
        fs = FaultyFileSystem()
        directory = tmp_path / f"{number}"
        store = pylog.open(directory, fs=fs)
        store.create_topic("t", **SMALL)
        log = store.log("t")
        acknowledged = [log.append(b"value 0" * 10)]
        fs.faults = Faults({call: {number}}, short=5)
        failed = False
        for value in range(1, 12):
            try:
                acknowledged.append(log.append(b"value %d" % value * 10))
            except pylog.PylogError:
                failed = True
        fs.faults = Faults()
        store.close()
        with pylog.open(directory) as again:
            found = {record.offset: record.value for record in again.log("t").records()}
            assert set(acknowledged) <= set(found), (call, number)
            again.log("t").append(b"goes on")
        if not failed:
            break
    else:
        pytest.fail("the calls never came to an end")


def test_an_interrupted_append_leaves_no_bytes_before_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        log = store.log("t")
        log.append(b"a")
        writer = writer_of(log).writer
        assert writer is not None
        monkeypatch.setattr(writer, "_commit", lambda level: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            log.append(b"interrupted")
        monkeypatch.undo()
        assert log.append(b"b") == 1
        assert values(log) == [b"a", b"b"]


# ---- slots -------------------------------------------------------------------------------------------------------------------


def slot_of(directory: Path) -> DurablePoint | None:
    header = open_header(OsFileSystem(), str(directory))
    assert header is not None
    return header.refresh()


def test_a_torn_slot_falls_back_to_the_older_one(tmp_path: Path) -> None:
    old, new = DurablePoint(counter=4).encoded(), DurablePoint(counter=5).encoded()
    file = tmp_path / "durable-point"
    file.write_bytes(old + new)
    assert slot_of(tmp_path) == DurablePoint(counter=5)
    for byte in range(SLOT_SIZE):
        torn = bytearray(new)
        torn[byte] ^= 0x10
        file.write_bytes(old + bytes(torn))
        assert slot_of(tmp_path) == DurablePoint(counter=4)
    file.write_bytes(b"")
    assert slot_of(tmp_path) is None


def test_a_reader_never_goes_back_to_the_slot_before_while_the_newer_one_is_being_written(tmp_path: Path) -> None:
    old, new = DurablePoint(counter=4).encoded(), DurablePoint(counter=5).encoded()
    file = tmp_path / "durable-point"
    file.write_bytes(old + new)
    header = open_header(OsFileSystem(), str(tmp_path))
    assert header is not None
    assert header.refresh() == DurablePoint(counter=5)
    file.write_bytes(old + bytes(SLOT_SIZE))
    assert header.refresh() == DurablePoint(counter=5)


def bound(path: Path) -> int:
    slot = slot_of(path / "t-0")
    assert slot is not None
    return slot.unsynced_bytes


def test_a_large_append_says_beforehand_how_much_of_it_may_be_unsynced(tmp_path: Path) -> None:
    """Else a power loss in the middle of it, which may keep its later pages only, would be taken for damage."""
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        log = store.log("t")
        log.append(b"small")
        assert bound(tmp_path) == 4 << 20
        log.append_many([bytes(1_000_000)] * 9)
        assert bound(tmp_path) >= 9_000_000
        log.append(b"at another level", durability=pylog.Durability.OS)
        assert bound(tmp_path) == 1 << 30


@pytest.mark.damaged("it was damaged on purpose")
def test_damage_below_a_brokers_recovery_point_is_corruption_and_never_a_torn_tail(tmp_path: Path) -> None:
    """A broker that stopped cleanly had everything on the disk: what is broken at the end was not being written."""
    directory = case("4.3.0", "txn").copy(tmp_path / "broker")
    segment = max((directory / "txn-1").glob("*.log"))
    data = bytearray(segment.read_bytes())
    last = int(scan_batches(np.frombuffer(bytes(data), np.uint8)).table[POSITION, -1])
    data[last + 16] = 3  # the last batch's magic byte
    segment.write_bytes(data)
    with pylog.open(directory) as store:
        log = store.log("txn", 1)
        assert [finding.kind for finding in log.recovery_report][:1] == ["corrupt"]
        with pytest.raises(pylog.CorruptionError):
            log.append(b"never over it")
    assert segment.read_bytes() == data


def test_bytes_after_a_brokers_recovery_point_are_a_torn_tail(tmp_path: Path) -> None:
    directory = case("4.3.0", "txn").copy(tmp_path / "broker")
    with max((directory / "txn-1").glob("*.log")).open("ab") as file:
        file.write(bytes(5000))
    with pylog.open(directory) as store:
        log = store.log("txn", 1)
        end = log.end_offset
        assert log.append(b"goes on") == end
        assert [finding.kind for finding in log.recovery_report] == ["torn"]


@pytest.mark.parametrize("number", range(4, 60, 5))
def test_a_failed_append_says_from_which_offset_on_its_records_are_not_in_the_log(tmp_path: Path, number: int) -> None:
    """An append of many segments commits each as it fills: what it kept must not be sent again."""
    fs = FaultyFileSystem()
    store = pylog.open(tmp_path, fs=fs)
    store.create_topic("t", segment_bytes=600)
    log = store.log("t")
    log.append(b"first")
    records = [b"%d" % value * 20 for value in range(100)]
    fs.faults = Faults({"write": {number}})
    with pytest.raises(pylog.StorageFailedError) as caught:
        log.append_many(records)
    fs.faults = Faults()
    kept = log.end_offset - 1
    assert caught.value.offset == log.end_offset
    assert values(log) == [b"first", *records[:kept]]
    store.close()
    with pylog.open(tmp_path) as again:
        log = again.log("t")
        assert values(log)[: kept + 1] == [b"first", *records[:kept]]
        assert log.append(b"goes on") >= kept + 1


def test_a_failed_sync_says_from_which_offset_on_nothing_is_promised(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    store = pylog.open(tmp_path, fs=fs)
    store.create_topic("t")
    log = store.log("t")
    log.append_many([b"a", b"b"])
    fs.faults = Faults({"sync": {1}})
    with pytest.raises(pylog.StorageFailedError) as caught:
        log.append(b"c")
    assert caught.value.offset == 2
    store.close()


def test_an_index_that_is_gone_and_cannot_be_written_hinders_no_reading() -> None:
    memory = MemoryFileSystem()
    with pylog.open("/s", fs=memory, clock=memory.clock) as store:
        log = store.create_topic("t", **SMALL) and store.log("t")
        for number in range(30):
            log.append(b"value %d" % number)
    for entry in memory.list("/s/t-0"):
        if entry.name.endswith("index"):
            memory.remove(f"/s/t-0/{entry.name}")
    fs = PublicFaultyFileSystem(memory)
    with pylog.open("/s", fs=fs, clock=memory.clock) as store:
        fs.fail("create ENOSPC", forever=True, of="index.tmp")
        log = store.log("t")
        assert [log.read(offset).value for offset in range(30)] == [b"value %d" % number for number in range(30)]
        assert fs.fired
        fs.heal()


def test_a_torn_write_after_the_gap_of_a_truncation_is_torn_also_below_the_recovery_point() -> None:
    """The batch went whole: what the file holds begins below the log's end, and so below the recovery point."""
    fs = MemoryFileSystem()
    with pylog.open("/s", fs=fs, clock=fs.clock) as store:
        store.create_topic("t")
        store.log("t").append_many([b"a", b"b", b"c"])
    store = pylog.open("/s", fs=fs, clock=fs.clock)
    store.log("t").truncate(1)
    fs.kill()
    fs = fs.process()
    fs.open(f"/s/t-0/{0:020d}.log", write=True).write(memoryview(b"half of a batch of offset 1"), 0)
    with pylog.open("/s", fs=fs, clock=fs.clock) as store:
        log = store.log("t")
        assert [finding.kind for finding in log.recovery_report] == ["torn"]
        assert log.append(b"again") == 1
