"""What a reader holds of a log neither grows nor shrinks, whatever happens to the log meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain
from typing import Any

import pytest

import pylog
from pylog import Durability, Store
from pylog.clock import ManualClock
from pylog.log.reading import planning
from pylog.log.reading.lookup import TimeSearch
from pylog.log.reading.outline import outline_of
from pylog.log.state import SegmentView
from pylog.testing import MemoryFileSystem
from support.engines import engine_of

VALUE = b"x" * 100
SEGMENT = 400


@pytest.fixture
def store() -> Iterator[Store]:
    with pylog.open("/s", fs=MemoryFileSystem(), clock=ManualClock(), durability=Durability.OS) as store:
        store.create_topic("t", segment_bytes=SEGMENT, cleanup_policy="compact,delete", retention_ms=-1)
        fill(store.log("t"), 12)
        yield store


def fill(log: pylog.Log, count: int) -> None:
    """Appends records, each with its offset as its timestamp."""
    for _ in range(count):
        offset = log.end_offset
        log.append(VALUE, key=b"%d" % (offset % 5), timestamp=offset)


CHANGES: dict[str, Callable[[Store], object]] = {
    "roll": lambda store: fill(store.log("t"), 12),
    "delete_records": lambda store: store.log("t").delete_records(8),
    "truncate": lambda store: store.log("t").truncate(5),
    "compaction": lambda store: store.compact("t"),
    "roll and compaction": lambda store: (fill(store.log("t"), 6), store.compact("t")),
    "delete_topic": lambda store: store.delete_topic("t"),
    "close": lambda store: store.close(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_segments_of_a_state_stay_what_they_were_when_the_log_changes(store: Store, change: str) -> None:
    state = engine_of(store.log("t")).snapshot()
    view = state.segments

    def seen() -> object:
        outline = outline_of(state)
        sizes = [segment[:3] for segment in state.described()]
        return [*view], len(view), view.first, view.last, view.floor(10**9), view.values(), sizes, outline.bases, outline.sizes

    before = seen()
    assert len(view) > 3
    CHANGES[change](store)
    assert seen() == before
    assert view.last is not None
    assert view.higher(view.last[0]) is None
    assert view.last[1] is state.active


def test_a_state_has_the_sizes_and_times_it_was_taken_with_after_its_active_segment_has_grown_and_was_sealed(
    store: Store,
) -> None:
    log = store.log("t")
    fill(log, 1)
    state = engine_of(log).snapshot()
    assert state.active is not None
    size, end = state.size_of(state.active), state.end_offset
    fill(log, 12)
    assert state.active.sealed
    assert state.active.size > size
    assert state.size_of(state.active) == size
    assert [segment.size for segment in state.described()][-1] == size
    assert state.end_of(state.active) == end
    search = TimeSearch()
    assert [getattr(search.find(state, at, committed=False), "offset", None) for at in range(end + 5)] == [
        *range(end),
        *[None] * 5,
    ]
    assert planning.size_between(outline_of(state), 0, end) == sum(state.size_of(segment) for _, segment in state.segments)


def test_a_view_cannot_be_changed_and_has_no_way_to_the_list_that_grows() -> None:
    view: SegmentView = SegmentView([(0, "a")])  # type: ignore[list-item]
    for name in ("last", "_items", "new"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(view, name, None)
    assert not {"insert", "remove", "replace"} & set(dir(view))


def test_a_segment_that_was_never_published_is_in_no_later_view() -> None:
    view: SegmentView = SegmentView([(0, "a"), (5, "b")])  # type: ignore[list-item]
    given_up = view.with_added(10, "lost")  # type: ignore[arg-type]
    grown = view.with_added(20, "c")  # type: ignore[arg-type]
    assert [item[0] for item in given_up] == [0, 5, 10]
    assert [item[0] for item in grown] == [0, 5, 20]
    for each in (view, given_up, grown):
        each.check()
    with pytest.raises(pylog.InvalidArgumentError):
        grown.with_added(20, "again")  # type: ignore[arg-type]


def test_the_segments_of_a_log_are_numbers_and_open_no_file(store: Store) -> None:
    segments = store.log("t").segments
    assert [segment.end_offset for segment in segments[:-1]] == [segment.base_offset for segment in segments[1:]]
    assert segments[-1].end_offset == store.log("t").end_offset
    assert all(isinstance(field, int | str) for segment in segments for field in segment)


@pytest.fixture
def _quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
@pytest.mark.usefixtures("_quick_switches")
def test_a_time_search_finds_each_acknowledged_record_while_another_thread_rolls() -> None:
    with pylog.open("/s", fs=MemoryFileSystem(), durability=Durability.OS) as store:
        store.create_topic("t", segment_bytes=SEGMENT)
        log = store.log("t")
        fill(log, 5)
        acknowledged, wrong = [4], list[object]()
        ended = threading.Event()

        def write() -> None:
            for _ in range(1500):
                fill(log, 1)
                acknowledged[0] += 1
            ended.set()

        thread = threading.Thread(target=write)
        thread.start()
        while not ended.is_set() and not wrong:
            wanted = acknowledged[0]
            found = log.offset_for_timestamp(wanted)
            if found is None or found.offset != wanted:
                wrong.append((wanted, found))
        thread.join()
    assert not wrong


@pytest.mark.pair("truncation", "second process")
@pytest.mark.parametrize("mode", ["rw", "r"])
def test_records_that_another_process_truncated_and_replaced_are_never_read(mode: str) -> None:
    fs = MemoryFileSystem()
    with pylog.open("/s", fs=fs, durability=Durability.OS) as other:
        other.create_topic("t", segment_bytes=2000)
        for offset in range(60):
            other.log("t").append(b"old" * 20, timestamp=offset)
        with pylog.open("/s", fs=fs, mode=mode, durability=Durability.OS) as store:
            log = store.log("t")
            log.read(40)
            other.log("t").truncate(30)
            for offset in range(30, 60):
                other.log("t").append(b"NEW" * 20, timestamp=1000 + offset)
            assert log.read(40).value == b"NEW" * 20
            assert [record.timestamp for record in log.records(28, 32)] == [28, 29, 1030, 1031]
            found = log.offset_for_timestamp(40)
            assert found is not None
            assert found.offset == 30
            other.log("t").delete_records(50)
            for call in (log.read, lambda offset: next(log.records(offset)), lambda offset: next(log.scan(offset))):
                with pytest.raises(pylog.OffsetOutOfRangeError):
                    call(35)
            assert log.size_between(0, 45) == 0
            assert all(offset >= 50 for offset in log.split_offsets(0, 60, 100))


@pytest.mark.slow
@pytest.mark.pair("truncation", "scan and follow")
@pytest.mark.parametrize("segment_bytes", [5 << 20, 1 << 30], ids=["sealed", "active"])
def test_an_iterator_held_over_a_truncation_of_another_process_gives_nothing_that_was_read_later(segment_bytes: int) -> None:
    """What it has read before is handed out; then it says that the log was truncated."""
    fs = MemoryFileSystem()
    with pylog.open("/s", fs=fs, durability=Durability.OS) as other, pylog.open("/s", fs=fs, durability=Durability.OS) as store:
        other.create_topic("t", segment_bytes=segment_bytes)
        size = 900_000
        for _ in range(60):
            other.log("t").append(b"0" + bytes(size))
        log = store.log("t")
        for number, begin in enumerate(HELD):
            held = begin(log)
            seen = [_value(next(held))]
            other.log("t").truncate(30)
            for _ in range(30, 60):
                other.log("t").append(b"%d" % (number + 1) + bytes(size))
            with pytest.raises(pylog.OffsetOutOfRangeError, match=r"truncated|was changed"):
                seen.extend(map(_value, held))
            assert {value[:1] for value in seen[2:]} <= {b"%d" % number}


HELD: tuple[Callable[[pylog.Log], Iterator[Any]], ...] = (
    lambda log: log.records(28),
    lambda log: log.records(28, isolation_level="read_committed"),
    lambda log: chain.from_iterable(_values(log.follow(28))),
)


def _values(frames: Iterator[Any]) -> Iterator[list[bytes]]:
    for frame in frames:
        yield frame.column("value").to_pylist()


def _value(found: Any) -> bytes:
    return found if isinstance(found, bytes) else found.value


@pytest.mark.slow
@pytest.mark.usefixtures("_quick_switches")
@pytest.mark.pair("scan and follow", "roll", "compaction", "delete_records")
@pytest.mark.parametrize("other", [False, True], ids=["one store", "two stores"])
def test_threads_read_only_what_was_written_while_another_rolls_trims_truncates_and_compacts(other: bool) -> None:
    """Each record carries its offset, and how often the log had been truncated when it was written."""
    fs = MemoryFileSystem()
    with pylog.open("/s", fs=fs, durability=Durability.OS) as writing:
        writing.create_topic("t", segment_bytes=SEGMENT, cleanup_policy="compact,delete", retention_ms=-1)
        with pylog.open("/s", fs=fs, durability=Durability.OS) if other else nullcontext(writing) as reading:
            wrong, ended = list[str](), threading.Event()
            threads = [threading.Thread(target=_look, args=(name, reading.log("t"), wrong, ended)) for name in LOOKS]
            for thread in threads:
                thread.start()
            for number in range(25):
                _change(writing, number)
            ended.set()
            for thread in threads:
                thread.join(60)
    assert not wrong


def _change(store: Store, number: int) -> None:
    log = store.log("t")
    for _ in range(7):
        offset = log.end_offset
        log.append(b"%d" % offset, key=b"%d" % (offset % 11), timestamp=offset)
    if number % 5 == 2:
        store.compact("t")
    if number % 7 == 3:
        log.delete_records(max(log.start_offset, log.end_offset - 60))
    if number % 6 == 4:
        log.truncate(log.end_offset - 5)


def _check(record: pylog.Record) -> None:
    assert record.value == b"%d" % record.offset, f"the record at {record.offset} is {record.value!r}"
    assert record.timestamp == record.offset


def _scan(log: pylog.Log) -> None:
    last = -1
    for record in log.records():
        _check(record)
        assert record.offset > last
        last = record.offset


def _read(log: pylog.Log) -> None:
    _check(log.read(log.start_offset))


def _search(log: pylog.Log) -> None:
    found = log.offset_for_timestamp(log.start_offset)
    assert found is None or found.offset == found.timestamp


def _plan(log: pylog.Log) -> None:
    log.split_offsets(0, log.end_offset, 300)
    described = log.segments
    assert [each.end_offset for each in described[:-1]] == [each.base_offset for each in described[1:]]


LOOKS: dict[str, Callable[[pylog.Log], None]] = {"scan": _scan, "read": _read, "search": _search, "plan": _plan}


def _look(name: str, log: pylog.Log, wrong: list[str], ended: threading.Event) -> None:
    while not ended.is_set() and not wrong:
        try:
            LOOKS[name](log)
        except pylog.OffsetOutOfRangeError:
            continue  # it was changed meanwhile, and the reader is told so
        except BaseException as error:  # noqa: BLE001 - each of them is what the test looks for
            wrong.append(f"{name}: {error!r}")
