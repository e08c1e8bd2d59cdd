"""The times of past commits: read from the end back, followed afterwards, in order, and after the last tombstone only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pylog import OffsetAndMetadata, limits
from pylog.groups.commit_history import CommitHistory, commit_key
from pylog.groups.health import PastCommit
from pylog.groups.observer import GroupObserver, with_current
from pylog.offsets.schema import OFFSETS_TOPIC, format_partition_key
from pylog.offsets.store import offset_manager_of
from pylog.record.types import TopicPartition
from pylog.store import manager_of
from support.groups.course import NOON, SECOND, GroupCourse

KEY = commit_key(b"billing", format_partition_key(TopicPartition("orders", 0)))


@pytest.fixture
def course() -> Iterator[GroupCourse]:
    made = GroupCourse()
    made.log.append_many([b"x"] * 200)
    yield made
    made.close()


def history_of(course: GroupCourse) -> CommitHistory:
    return CommitHistory(manager_of(course.store).log(OFFSETS_TOPIC, 0))


def test_a_cold_history_has_what_a_followed_one_has(course: GroupCourse, monkeypatch: pytest.MonkeyPatch) -> None:
    course.commit(0)
    followed = history_of(course)
    for number in range(1, 60):
        course.wait(SECOND)
        course.commit(number)
        course.commit(0, group=f"other{number % 7}")
        if number % 13 == 0:
            followed.refresh(NOON + 50 * SECOND)
    followed.refresh(NOON + 50 * SECOND)
    for size in (1, 7, 64, 100_000):  # records read at a time
        monkeypatch.setattr(limits, "COMMITS_AT_ONCE", size)
        cold = history_of(course)
        cold.refresh(NOON + 50 * SECOND)
        assert list(cold.commits(KEY))[-10:] == list(followed.commits(KEY))[-10:]
        assert list(cold.commits(KEY))[-10:] == [PastCommit(NOON + each * SECOND, each) for each in range(50, 60)]


def test_commits_in_the_window_and_the_last_ten_are_known_and_no_more_than_a_bound(course: GroupCourse) -> None:
    for number in range(120):
        course.commit(number)
        course.wait(SECOND)
    history = history_of(course)
    history.refresh(NOON + 50 * SECOND)
    found = history.commits(KEY)
    assert found[0].offset == 50
    assert [each.offset for each in found[-10:]] == list(range(110, 120))
    assert len(found) <= limits.COMMITS_KEPT + 10
    assert [each.timestamp for each in found] == sorted(each.timestamp for each in found)


@pytest.mark.parametrize("size", [1, 2, 4, 100_000])
def test_commits_before_a_tombstone_in_an_earlier_chunk_do_not_count(
    course: GroupCourse, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    course.commit(150)
    course.commit(0, group="other")
    course.store.offsets.delete("billing")
    course.commit(3)
    course.commit(0, group="other")
    monkeypatch.setattr(limits, "COMMITS_AT_ONCE", size)
    history = history_of(course)
    history.refresh(0)
    assert list(history.commits(KEY)) == [PastCommit(NOON, 3)]
    course.store.offsets.delete("billing")
    history.refresh(0)
    assert list(history.commits(KEY)) == []


def test_a_history_begins_again_when_the_topic_was_deleted_and_created_again(course: GroupCourse) -> None:
    observer = GroupObserver(manager_of(course.store), offset_manager_of(course.store.offsets))
    for offset in (5, 9):
        course.commit(offset)
    state = observer.group("billing")
    assert state is not None
    assert [len(each.commits) for each in observer.facts("billing", state)] == [2]
    course.store.delete_topic(OFFSETS_TOPIC)
    course.wait(SECOND)
    course.commit(7)
    observer.observe()
    state = observer.group("billing")
    assert state is not None
    assert [list(each.commits) for each in observer.facts("billing", state)] == [[PastCommit(NOON + SECOND, 7)]]


@pytest.mark.parametrize("topic", ["orders", OFFSETS_TOPIC])
@pytest.mark.parametrize("refreshed", [True, False])
def test_a_topic_that_is_deleted_while_groups_are_observed_has_no_rows_and_raises_nothing(
    course: GroupCourse, topic: str, refreshed: bool
) -> None:
    course.commit(150)
    observer = GroupObserver(manager_of(course.store), offset_manager_of(course.store.offsets))
    state = observer.group("billing")
    assert state is not None
    if refreshed:
        observer.unread(TopicPartition("orders", 0))
    course.store.delete_topic(topic)
    for rules in ("pylog", "burrow"):
        assert observer.health("billing", state, rules).partitions == ()


def test_a_commit_between_two_reads_is_no_rewind() -> None:
    past = [PastCommit(1_000, 5), PastCommit(2_000, 6), PastCommit(3_000, 9)]
    current = OffsetAndMetadata(6, "", None, 2_000)
    assert list(with_current(past, current, 5_000)) == past[:2]
    assert list(with_current([], current, 1_500)) == [PastCommit(1_500, 6)]
