"""What a reader holds of a log neither grows nor shrinks, whatever happens to the log meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import pylog
from pylog import Durability, Store
from pylog.clock import ManualClock
from pylog.log import planning
from pylog.log.lookup import TimeSearch
from pylog.log.outline import outline_of
from pylog.log.view import SegmentView
from pylog.testing import MemoryFileSystem

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
    "compaction": lambda store: store.clean("t"),
    "roll and compaction": lambda store: (fill(store.log("t"), 6), store.clean("t")),
    "delete_topic": lambda store: store.delete_topic("t"),
    "close": lambda store: store.close(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_segments_of_a_state_stay_what_they_were_when_the_log_changes(store: Store, change: str) -> None:
    state = store.log("t").look()
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
    state = log.look()
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
