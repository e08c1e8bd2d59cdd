"""What a process that dies leaves of a topic that it makes, and of files that it replaces: the next one finishes it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

import pylog
from pylog.clock import ManualClock
from pylog.directory.partition_metadata import read_topic_id
from pylog.fs import FileSystem
from pylog.store import Store
from pylog.testing import FaultyFileSystem, MemoryFileSystem, Moment, RecordingFileSystem
from pylog.tools.verify import verify

METADATA = "/s/t-1/partition.metadata"


def deaths(change: Callable[[Store], object]) -> Iterator[MemoryFileSystem]:
    """A change of a store, and its closing, by a process that dies: its disk after each step."""
    fs = RecordingFileSystem()
    with pylog.open("/s", fs=fs, clock=ManualClock(0)) as store:
        store.create_topic("before", segment_bytes=150)
        store.log("before").append(b"x")
        begun = len(fs.recording)
        change(store)
    for after in range(begun, len(fs.recording) + 1):
        moment = Moment.of(fs.recording, after)
        for death in moment.deaths(random.Random(after), 1):
            yield MemoryFileSystem(image=moment.state(death)[1])


def made(store: Store) -> None:
    store.create_topic("t", partition_count=3)


def appended(store: Store) -> None:
    for _ in range(3):
        store.log("before").append(b"y" * 30)


@pytest.mark.slow
@pytest.mark.parametrize("change", [made, appended])
def test_nothing_unfinished_is_left_when_the_next_process_has_opened_every_partition_and_closed(
    change: Callable[[Store], None],
) -> None:
    judged = 0
    for fs in deaths(change):
        with pylog.open("/s", fs=fs, clock=ManualClock(0)) as store:
            topics = store.topics()
            for name in topics:
                for number in store.topic(name).partition_ids:
                    store.log(name, number)
                    assert read_topic_id(fs, f"/s/{name}-{number}") == store.topic(name).id
            assert store.check().ok
        left = verify("/s", fs=fs, clock=ManualClock(0))
        assert left.ok
        assert {each.finding.kind for each in left.affected} <= {"behind"}, "a torn tail is the next append's"
        judged += 1
    assert judged > 10


def without_metadata() -> MemoryFileSystem:
    """A topic one of whose directories has lost its metadata."""
    fs = MemoryFileSystem()
    with pylog.open("/s", fs=fs) as store:
        store.create_topic("t", partition_count=2)
    fs.remove(METADATA)
    return fs


def opened(fs: FileSystem) -> None:
    with pylog.open("/s", fs=fs) as store:
        assert store.log("t", 1).append(b"x") == 0


def test_metadata_that_cannot_be_created_does_not_prevent_appends() -> None:
    fs = without_metadata()
    faulty = FaultyFileSystem(fs)
    faulty.fail("create ENOSPC", of="partition.metadata.tmp", forever=True)
    opened(faulty)
    assert not fs.exists(METADATA)
    assert faulty.fired


def test_the_directories_of_a_broker_get_no_metadata_from_others() -> None:
    fs = without_metadata()
    fs.create("/s/meta.properties").close()
    opened(fs)
    assert not fs.exists(METADATA)
