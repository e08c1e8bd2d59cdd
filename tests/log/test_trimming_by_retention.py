"""Retention makes logs shorter: by time, by size, and not before a group has read what would go."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog import TopicPartition
from pylog.clock import ManualClock
from pylog.errors import StorageFailedError
from pylog.store import Store
from support.faults.neighbours import HookedFileSystem, values
from support.log import trimming
from support.log.trimming import NOW, T, aged, bases, digit, digits, ends, fail, sized

fs = pytest.fixture(trimming.fs)
path = pytest.fixture(trimming.path)
store = pytest.fixture(trimming.store)


# ---- retention ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age_s", "left"), [(13, [0, 5, 10]), (14, [0, 5, 10]), (14.001, [5, 10]), (19.001, [10]), (24, [10]), (24.001, [15])]
)
def test_records_older_than_the_topic_keeps_are_deleted_a_segment_at_a_time(store: Store, age_s: float, left: list[int]) -> None:
    """When all go, the active one too, a new one begins at the end."""
    log = aged(store, retention_ms=10_000)
    assert store.tick(now_ms=NOW + int(1000 * age_s)) == len({0, 5, 10} - set(left))
    assert bases(log) == left
    assert ends(log) == (left[0], 15, 15)
    assert values(log) == digits(range(left[0], 15))
    assert log.append(digit(15)) == 15


def test_segments_beyond_the_size_that_the_topic_keeps_are_deleted_and_never_more(store: Store) -> None:
    for size, left in ((1035, [0, 5, 10]), (691, [0, 5, 10]), (690, [5, 10]), (345, [10]), (344, [10]), (0, [15])):
        log = aged(store, name=f"keeps-{size}", retention_bytes=size)
        store.tick(now_ms=NOW)
        assert bases(log) == left, size


def test_the_clock_of_the_store_decides_where_no_time_is_given(path: Path) -> None:
    clock = ManualClock(NOW)
    with pylog.open(path, clock=clock) as store:
        log = aged(store, retention_ms=10_000)
        assert store.tick() == 0
        clock.advance(15_000)
        assert store.tick() == 1
        clock.advance(-100_000)  # set back it deletes nothing
        assert store.tick() == 0
        assert bases(log) == [5, 10]


@pytest.mark.slow
def test_retention_covers_every_partition_of_every_topic_opened_or_not(path: Path, store: Store) -> None:
    store.create_topic("many", partition_count=3, segment_bytes=200, retention_ms=1000)
    for number in range(3):
        for _ in range(10):
            store.log("many", number).append(b"x", timestamp=NOW)
    store.close()
    with pylog.open(path) as again:
        assert again.tick(now_ms=NOW + 2000) > 6
        assert [again.log("many", number).start_offset for number in range(3)] == [10, 10, 10]


def test_the_background_ticks_as_often_as_it_is_asked_to(path: Path) -> None:
    with pylog.open(path, tick_interval_ms=2) as store:
        log = sized(store, retention_ms=1000)
        for number in range(15):
            log.append(digit(number), timestamp=1)
        came = threading.Event()
        for _ in range(4000):
            if log.start_offset == 15:
                break
            came.wait(0.005)
        assert (log.start_offset, log.end_offset) == (15, 15)


def test_one_partition_that_cannot_be_trimmed_keeps_no_other_one_from_it(
    store: Store, fs: HookedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        aged(store, name=name, retention_ms=1)
    renamed: set[str] = set()

    def refused(path: str) -> None:
        renamed.add(os.path.dirname(path))
        if os.path.dirname(path).endswith("a-0"):
            fail()

    monkeypatch.setattr(fs, "rename", lambda old, new: (refused(old), os.rename(old, new)))
    with pytest.raises(StorageFailedError):
        store.tick(now_ms=NOW + 10**6)
    assert {os.path.basename(each) for each in renamed} >= {"a-0", "b-0", "c-0"}
    assert sorted(store.log(name).start_offset for name in "abc")[1:] == [15, 15]


# ---- waiting for a group -----------------------------------------------------------------------------------------------------


class Group:
    """What a consumer group has committed, as `pylog.open` asks for it."""

    def __init__(self) -> None:
        self.offset: int | None = None
        self.asked: list[tuple[str, TopicPartition]] = []

    def __call__(self, group: str, partition: TopicPartition) -> int | None:
        self.asked.append((group, partition))
        return self.offset


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def waiting(path: Path, group: Group) -> Iterator[Store]:
    with pylog.open(path, clock=ManualClock(NOW + 10**6), committed=group) as opened:
        yield opened


def test_retention_waits_for_the_group_that_the_topic_names(waiting: Store, group: Group) -> None:
    log = aged(waiting, retention_ms=1000, retention_group="billing")
    for offset, left in ((None, [0, 5, 10]), (4, [0, 5, 10]), (5, [5, 10]), (12, [10]), (15, [15])):
        group.offset = offset
        waiting.tick()
        assert bases(log) == left
    assert set(group.asked) == {("billing", T)}


def test_a_bound_ends_the_waiting(waiting: Store, group: Group) -> None:
    log = aged(waiting, retention_ms=1000, retention_group="billing", retention_group_max_bytes=400)
    assert waiting.tick() == 2
    assert bases(log) == [10]


def test_deleting_by_command_waits_for_no_group(waiting: Store) -> None:
    log = aged(waiting, retention_ms=1000, retention_group="billing")
    log.delete_records(10)
    assert bases(log) == [10]


def test_no_group_is_consulted_where_none_is_named(waiting: Store, group: Group) -> None:
    log = aged(waiting, retention_ms=1000)
    assert waiting.tick() == 3
    assert (group.asked, bases(log)) == ([], [15])


def test_a_topic_that_waits_for_an_unknown_group_keeps_everything(store: Store) -> None:
    log = aged(store, retention_ms=1000, retention_group="billing")
    assert store.tick(now_ms=NOW + 10**6) == 0
    assert bases(log) == [0, 5, 10]
