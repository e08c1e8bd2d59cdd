"""`pylog.restore` on a disk that loses power: the directory is refused until the same call has finished it; then it has all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import pylog
import pylog.restoring
from pylog import OffsetsConfig, TopicPartition
from pylog.archive.settings import RESTORING
from pylog.clock import ManualClock
from pylog.testing import MemoryFileSystem, RecordingFileSystem
from support.faults.power import losses, losses_behind
from support.objects import MemoryObjects, every_url

NOW: Final = 1_700_000_000_000
COPY: Final = "/copy"
URL: Final = "s3://any"
ORDERS: Final = TopicPartition("orders", 0)
SUBSETS, CUTS = 2, 1


@pytest.fixture(scope="module")
def memory() -> Iterator[MemoryObjects]:
    """An archive of two partitions with several segments and deleted records, and of a group's offset."""
    fs, clock = MemoryFileSystem(), ManualClock(NOW)
    with every_url(MemoryObjects()) as objects:
        with pylog.open("/shop", fs=fs, clock=clock, offsets=OffsetsConfig(topic_num_partitions=1)) as store:
            store.create_topic("orders", 2, segment_bytes=300, retention_ms=-1)
            for number in range(9):
                store.log("orders").append(b"%d" % number + b"x" * 80, timestamp=NOW)
            store.log("orders").delete_records(4)
            store.offsets.commit("billing", {ORDERS: 7})
            store.archive(URL, include_active=True)
        yield objects


def restored(fs: MemoryFileSystem) -> None:
    pylog.restore(URL, COPY, fs=fs, clock=ManualClock(NOW))


def content(fs: MemoryFileSystem, mode: str = "r") -> Any:
    with pylog.open(COPY, mode=mode, fs=fs, clock=ManualClock(NOW)) as store:
        log = store.log("orders")
        ends = log.start_offset, log.end_offset, store.log("orders", 1).end_offset
        report = store.verify()
        assert report.ok, report.findings
        return (
            ends,
            [record.value for record in log.records()],
            store.offsets.position("billing", ORDERS),
            store.topic("orders").id,
        )


def is_refused(fs: MemoryFileSystem) -> bool:
    """Whether the directory is not there, has no more than the marker that is being written, or is refused for its marker."""
    if not fs.exists(COPY) or all(entry.name.startswith(f"{RESTORING}.") for entry in fs.list(COPY)):
        return True
    try:
        content(fs)
    except pylog.IllegalStateError as error:
        return "unfinished restore" in str(error)
    return False


@pytest.mark.slow
def test_the_power_may_go_at_any_moment_of_a_restore(memory: MemoryObjects) -> None:
    fs = RecordingFileSystem()
    restored(fs)
    expected = content(MemoryFileSystem(image=fs.image()))
    assert expected[0] == (4, 9, 0)
    judged = finished = 0
    for crash, image in losses(fs.recording, "restore", SUBSETS, CUTS):
        left = MemoryFileSystem(image=image, boots=2)
        if is_refused(left):
            restored(left)
        else:
            assert not [entry.name for entry in left.list(COPY) if entry.name.startswith(RESTORING)]
            finished += 1
        assert content(left) == expected, str(crash)
        judged += 1
    assert judged > 50
    assert finished < judged
    for crash, image in losses_behind(fs.recording):
        assert content(MemoryFileSystem(image=image, boots=2)) == expected, str(crash)


def test_a_restore_that_has_returned_survives_a_power_loss_and_can_be_written_to(memory: MemoryObjects) -> None:
    fs = MemoryFileSystem()
    restored(fs)
    expected = content(MemoryFileSystem(image=fs.image()))
    left = fs.crash()
    assert content(left, "rw") == expected
    with pylog.open(COPY, fs=left, clock=ManualClock(NOW)) as store:
        assert store.log("orders").append(b"next") == 9


class StoppedError(BaseException):
    """The process dies."""


def _append(store: pylog.Store) -> None:
    fill(store, 7)


def _truncate(store: pylog.Store) -> None:
    store.log("orders").truncate(5)
    fill(store, 15)


def _delete_records(store: pylog.Store) -> None:
    store.log("orders").delete_records(9)


def _create_again(store: pylog.Store) -> None:
    store.delete_topic("orders")
    store.create_topic("orders", segment_bytes=300, retention_ms=-1)
    fill(store, 5)


def _empty(store: pylog.Store) -> None:
    store.delete_topic("orders")
    store.create_topic("orders", segment_bytes=300, retention_ms=-1)


def _delete(store: pylog.Store) -> None:
    store.delete_topic("orders")


def fill(store: pylog.Store, count: int) -> None:
    log = store.log("orders")
    for _ in range(count):
        log.append(b"%d" % store.log("other").append(b"another", timestamp=NOW) + b"y" * 80, timestamp=NOW)


def everything(fs: MemoryFileSystem, root: str) -> Any:
    with pylog.open(root, "r", fs=fs, clock=ManualClock(NOW)) as store:
        report = store.verify()
        assert report.ok, report.findings
        found = {}
        for name, topic in store.topics().items():
            for number in topic.partition_ids if not name.startswith("__") else ():
                log = store.log(name, number)
                found[name, number] = log.start_offset, log.end_offset, [record.value for record in log.records()]
        return found


@pytest.mark.sampled(24)
@pytest.mark.parametrize("changed", [_append, _truncate, _delete_records, _create_again, _empty, _delete])
@pytest.mark.parametrize("stops_at", [1, 5, 9, "end"])
def test_an_interrupted_restore_goes_on_with_the_archive_as_it_is_then(
    changed: Callable[[pylog.Store], None], stops_at: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file from the first call may be of other records, or stand for an end that the log has no more."""
    fs, clock, calls = MemoryFileSystem(), ManualClock(NOW), iter(range(1, 1000))

    def stops(*_: object) -> None:
        if stops_at == "end" or next(calls) == stops_at:
            raise StoppedError

    with (
        every_url(MemoryObjects()),
        pylog.open("/shop", fs=fs, clock=clock, offsets=OffsetsConfig(topic_num_partitions=1)) as store,
    ):
        store.create_topic("orders", 2, segment_bytes=300, retention_ms=-1)
        store.create_topic("other", segment_bytes=300, retention_ms=-1)
        store.log("other").append(b"stays", timestamp=NOW)
        fill(store, 20)
        store.log("orders").delete_records(3)
        store.offsets.commit("billing", {ORDERS: 7})
        store.archive(URL, include_active=True)
        with monkeypatch.context() as patch:
            if stops_at == "end":
                patch.setattr(pylog.restoring, "_ahead", stops)
            with pytest.raises(StoppedError):
                pylog.restore(URL, COPY, fs=fs, clock=clock, progress=None if stops_at == "end" else stops)
        changed(store)
        store.archive(URL, include_active=True)
        restored(fs)
        assert everything(fs, COPY) == everything(fs, "/shop")
        with pylog.open(COPY, fs=fs, clock=clock) as copy:
            copy.log("other").append(b"next", timestamp=NOW)
