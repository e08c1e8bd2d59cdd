"""Whatever was acknowledged before a call began, by any process, is seen by that call, on each thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pylog
from pylog import Durability, Log, Store, TopicPartition
from pylog.directory.byte_lock import ByteLock
from support.faults.neighbours import HookedFileSystem, Neighbour

PLACE = TopicPartition("t", 0)
VALUE = b"x" * 100
TIME = 1_700_000_000_000


def rows(first: int, count: int) -> list[tuple[None, bytes, tuple[()], int]]:
    """Records whose timestamps follow from their offsets."""
    return [(None, VALUE, (), TIME + offset) for offset in range(first, first + count)]


# Each returns the largest offset that the log is seen to have, from what the caller knows to be there.
SEEN: dict[str, Callable[[Store, Log, int], int]] = {
    "end_offset": lambda _, log, __: log.end_offset - 1,
    "stable_offset": lambda _, log, __: log.stable_offset - 1,
    "read": lambda _, log, last: log.read(last).offset,
    "read_many": lambda _, log, last: log.read_many([last], columns=["offset"])["offset"][0].as_py(),
    "scan": lambda _, log, last: max(frame["offset"][-1].as_py() for frame in log.scan(last - 1)),
    "records": lambda _, log, last: max(record.offset for record in log.records(last - 1, isolation_level="read_committed")),
    "offset_for_timestamp": lambda _, log, last: getattr(log.offset_for_timestamp(TIME + last), "offset", -1),
    "wait_for": lambda _, log, last: log.wait_for(last, timeout_ms=0) - 1,
    "follow": lambda _, log, last: max(frame["offset"][-1].as_py() for frame in log.follow(last - 1, timeout_ms=0)),
    "segments": lambda _, log, __: log.segments[-1].end_offset - 1,
    "size_between": lambda _, log, last: last if log.size_between(last, last + 1) > 0 else -1,
    "start_and_end_offsets": lambda store, _, __: ends(store)[1] - 1,
    "consumer that seeks": lambda store, _, last: polled(store, last),
    "consumer's end_offsets": lambda store, _, __: consumers_end(store) - 1,
}


def ends(store: Store) -> tuple[int, int]:
    found = store.start_and_end_offsets([PLACE])[PLACE]
    assert found is not None
    return found


def polled(store: Store, offset: int) -> int:
    with store.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, offset)
        return consumer.poll(1000)[PLACE][-1].offset


def consumers_end(store: Store) -> int:
    with store.consumer() as consumer:
        return consumer.end_offsets([PLACE])[PLACE]


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "store")
    with pylog.open(path, durability=Durability.OS) as store:
        store.create_topic("t", segment_bytes=400)
        store.log("t").append_many(rows(0, 2))
    return path


@pytest.fixture
def other() -> Iterator[Neighbour]:
    with Neighbour() as other:
        yield other


@pytest.mark.sampled(3)
@pytest.mark.parametrize("method", SEEN)
@pytest.mark.pair("roll", "second process")
def test_a_thread_that_finds_another_one_refreshing_does_not_take_its_older_state(path: str, method: str) -> None:
    fs = HookedFileSystem()
    begun, go_on = threading.Event(), threading.Event()
    with pylog.open(path, durability=Durability.OS) as writer, pylog.open(path, mode="r", fs=fs) as store:
        log = store.log("t")
        assert log.end_offset == 2
        writer.log("t").append_many(rows(2, 8))  # rolls, so that the next refresh opens files

        def pause() -> None:
            begun.set()
            go_on.wait(10)

        fs.before("open", ".log", pause)
        first = threading.Thread(target=lambda: log.end_offset)
        first.start()
        assert begun.wait(10)
        last = writer.log("t").append_many(rows(10, 8)).stop - 1
        seen: list[int] = []
        second = threading.Thread(target=lambda: seen.append(SEEN[method](store, log, last)))
        second.start()
        second.join(0.05)  # it must wait, or refresh by itself
        go_on.set()
        first.join()
        second.join()
        assert seen == [last]


HOLD = """
store = pylog.open(path, durability=pylog.Durability.OS)
log = store.log("t")
lock = store._manager.log("t").exclusively()
lock.__enter__()
"""
APPEND = """
first = log.end_offset
last = log.append_many([(None, b"x" * 100, (), 1_700_000_000_000 + offset) for offset in range(first, first + 9)]).stop - 1
"""


@pytest.mark.slow
@pytest.mark.pair("roll", "second process")
def test_a_store_that_has_written_sees_what_a_process_acknowledged_that_keeps_the_lock(path: str, other: Neighbour) -> None:
    """Once alone, and once while another thread of this process waits for that lock."""
    with pylog.open(path, durability=Durability.OS, lock_timeout_ms=60_000) as store:
        log = store.log("t")
        log.append(VALUE, timestamp=TIME)
        other.run(HOLD, path=path)
        seen = {}
        for method, ask in SEEN.items():
            other.run(APPEND)
            last = other.run("last")
            seen[method] = ask(store, log, last) - last
        waiting = threading.Thread(target=lambda: log.append(VALUE))
        waiting.start()
        for method, ask in SEEN.items():
            other.run(APPEND)
            last = other.run("last")
            seen[f"{method}, while a thread waits"] = ask(store, log, last) - last
        assert waiting.is_alive()
        other.run("lock.__exit__(None, None, None)")
        waiting.join()
        assert {method: late for method, late in seen.items() if late} == {}
        assert log.end_offset == last + 2


@contextlib.contextmanager
def never_free(_: ByteLock) -> Iterator[bool]:
    yield False


def test_the_log_of_a_topic_that_was_created_again_is_the_new_one_also_while_the_lock_is_taken(
    path: str, other: Neighbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pylog.open(path, durability=Durability.OS) as store:
        store.log("t").append(VALUE, timestamp=TIME)
        other.run(AGAIN, path=path)
        monkeypatch.setattr(ByteLock, "entered_if_free", never_free)
        log = store.log("t")
        assert log.end_offset == 1
        assert log.append(VALUE, timestamp=TIME) == 1


AGAIN = """
import pylog
with pylog.open(path, durability="os") as store:
    store.delete_topic("t")
    store.create_topic("t", segment_bytes=400)
    store.log("t").append(b"new")
"""
