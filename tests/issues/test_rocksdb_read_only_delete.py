"""RocksDB 11.6.0: an instance that was opened for reading removed files which it took for obsolete, and they were live."""

from __future__ import annotations

import pytest

import pylog
from pylog.segment.names import INDEX, LOG, TIME_INDEX
from pylog.testing import MemoryFileSystem, RecordingFileSystem
from pylog.testing.disk import Image

PARTITION = "/data/t-0"


def a_log(*, closed: bool) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    store = pylog.open("/data", fs=fs, clock=fs.clock)
    log = store.create_topic("t", segment_bytes=200) and store.log("t")
    for number in range(8):
        log.append(b"%d" % number)
    if closed:
        store.close()
    else:
        fs.kill()
    return fs.process()


def copied(fs: MemoryFileSystem, source: str, target: str) -> None:
    data = fs.read(source, 1 << 20)
    assert data is not None
    file = fs.create(target)
    file.write(memoryview(data), 0)
    file.close()


def litter(fs: MemoryFileSystem) -> None:
    """Everything that opening for writing would remove, rename, cut or make."""
    first, second = (f"{PARTITION}/{base:020d}" for base in sorted(bases(fs))[:2])
    for suffix in (LOG, INDEX, TIME_INDEX):
        fs.rename(first + suffix, f"{first}{suffix}.swap")
        copied(fs, second + suffix, f"{PARTITION}/{'9' * 20}{suffix}.deleted")
        copied(fs, second + suffix, f"{second}{suffix}.cleaned")
    fs.remove(second + INDEX)
    file = fs.open(f"{PARTITION}/{max(bases(fs)):020d}.log", write=True)
    file.write(memoryview(b"a torn tail"), file.size())
    copied(fs, f"{PARTITION}/partition.metadata", "/data/recovery-point-offset-checkpoint.tmp")


def bases(fs: MemoryFileSystem) -> set[int]:
    return {int(entry.name[:20]) for entry in fs.list(PARTITION) if entry.name.endswith(LOG)}


def read_everything(image: Image, boots: int) -> RecordingFileSystem:
    """Does all that a store open for reading can do, on a disk of its own."""
    fs = RecordingFileSystem(image=image, boots=boots)
    with pylog.open("/data", "r", fs=fs, clock=fs.clock) as store:
        log = store.log("t")
        assert [record.value for record in log.records(isolation_level="read_committed")] == [
            b"%d" % number for number in range(8)
        ]
        assert log.read(5).value == b"5"
        assert log.offset_for_timestamp(0) is not None
        assert log.wait_for(7, timeout_ms=0) == 8
        store.check()
        store.verify(records=True)
        with pytest.raises(pylog.ReadOnlyError):
            store.tick()
    return fs


@pytest.mark.parametrize("boots", [1, 2], ids=["process died", "power lost"])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("littered", [False, True], ids=["tidy", "with leftovers"])
def test_a_store_open_for_reading_asks_nothing_of_the_disk(littered: bool, closed: bool, boots: int) -> None:
    left = a_log(closed=closed)
    if littered:
        litter(left)
    assert read_everything(left.image(), boots).recording.operations == []


def test_a_reader_removes_nothing_beside_a_writer_that_makes_and_deletes_segments() -> None:
    fs = RecordingFileSystem()
    with pylog.open("/data", fs=fs, clock=fs.clock) as store:
        log = store.create_topic("t", segment_bytes=200) and store.log("t")
        log.append(b"0")
        reader = fs.process()
        with pylog.open("/data", "r", fs=reader, clock=reader.clock) as other:
            watching = other.log("t")
            for number in range(1, 9):
                log.append(b"%d" % number)
                log.delete_records(number - 1)
                asked = len(fs.recording)
                assert [record.value for record in watching.records()] == [b"%d" % left for left in (number - 1, number)]
                assert other.check().ok
                assert len(fs.recording) == asked
