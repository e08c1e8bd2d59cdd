"""raft-wal, ALICE 2: a segment's file was there and empty, its first bytes had not got to the disk, and opening it failed."""

from __future__ import annotations

import pytest

import pylog
from pylog.testing import MemoryFileSystem

PARTITION = "/data/t-0"


def rolled(*, closed: bool) -> MemoryFileSystem:
    """Four records in two segments, everything durable."""
    fs = MemoryFileSystem()
    store = pylog.open("/data", fs=fs, clock=fs.clock)
    log = store.create_topic("t", segment_bytes=200) and store.log("t")
    for number in range(4):
        log.append(b"%d" % number)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    if closed:
        store.close()
    return fs.crash()


def emptied(fs: MemoryFileSystem, path: str) -> None:
    """A file of which the disk has the name and nothing else."""
    if fs.exists(path):
        fs.remove(path)
    fs.create(path).close()


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("zeros", [0, 1, 69, 4096], ids=lambda count: f"{count} zeros")
def test_a_new_segment_without_its_first_batch_is_where_the_log_goes_on(zeros: int, mode: str) -> None:
    """The file that the next roll had made when the power went: empty, or as long as it was to be and of zeros."""
    fs = rolled(closed=False)
    file = fs.create(f"{PARTITION}/{4:020d}.log")
    file.write(memoryview(bytes(zeros)), 0)
    file.close()
    with pylog.open("/data", mode, fs=fs, clock=fs.clock) as store:
        log = store.log("t")
        assert [record.value for record in log.records()] == [b"0", b"1", b"2", b"3"]
        assert log.end_offset == 4
        if mode == "rw":
            assert log.append(b"4") == 4
            assert [record.value for record in log.records(3)] == [b"3", b"4"]
            assert store.check().ok


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True], ids=["power lost", "closed"])
@pytest.mark.parametrize(
    "name",
    [
        "durable-point",
        "leader-epoch-checkpoint",
        f"{0:020d}.index",
        f"{0:020d}.timeindex",
        f"{0:020d}.seal",
        f"{2:020d}.index",
        f"{2:020d}.timeindex",
        f"{2:020d}.snapshot",
        f"{4:020d}.snapshot",
        "../recovery-point-offset-checkpoint",
        "../log-start-offset-checkpoint",
        "../.kafka_cleanshutdown",
        "../pylog.lock",
    ],
)
def test_an_empty_file_beside_the_segments_costs_no_record(name: str, closed: bool) -> None:
    fs = rolled(closed=closed)
    directory, _, last = f"{PARTITION}/{name}".rpartition("/")
    emptied(fs, f"/data/{last}" if directory.endswith("..") else f"{PARTITION}/{name}")
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        log = store.log("t")
        assert [record.value for record in log.records()] == [b"0", b"1", b"2", b"3"]
        assert log.append(b"4") == 4
        assert log.offset_for_timestamp(0) is not None
    with pylog.open("/data", "r", fs=fs, clock=fs.clock) as store:
        assert [record.value for record in store.log("t").records()] == [b"0", b"1", b"2", b"3", b"4"]


def test_an_empty_sealed_segment_is_a_loss_that_is_reported_and_not_repaired() -> None:
    fs = rolled(closed=True)
    emptied(fs, f"{PARTITION}/{0:020d}.log")
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        told = [(finding.kind, finding.path) for finding in store.check().findings]
        assert ("missing", f"{PARTITION}/{0:020d}.log") in told
        assert [record.value for record in store.log("t").records(2)] == [b"2", b"3"]
    assert fs.read(f"{PARTITION}/{0:020d}.log", 10) == b""
