"""A commit of no member is refused while its group has active members. Repeated commits do not ask the disk again for that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import pylog
from pylog import NonEmptyGroupError, OffsetsConfig, TopicPartition
from pylog.clock import ManualClock
from pylog.groups.member import GroupMember
from pylog.groups.members_file import MEMBERS_FILE
from pylog.internal_topic import InternalTopic
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from support.groups.members import member_of

T0 = TopicPartition("t", 0)


class _Counting(MemoryFileSystem):
    """Counts how often the members file is asked for."""

    asked = 0

    def exists(self, path: str) -> bool:
        self.asked += path.endswith(MEMBERS_FILE)
        return super().exists(path)


@pytest.fixture
def fs() -> _Counting:
    return _Counting()


def _opened(fs: MemoryFileSystem, **how: Any) -> Store:
    return pylog.open("/s", fs=fs, clock=ManualClock(1_700_000_000_000), offsets=OffsetsConfig(topic_num_partitions=1), **how)


@pytest.fixture
def store(fs: _Counting) -> Iterator[Store]:
    with _opened(fs) as made:
        made.create_topic("t")
        made.log("t").append_many([b"x"] * 10)
        yield made


def _joined(store: Store, group: str = "g") -> GroupMember:
    member = member_of(store, group)
    member.subscribe(["t"])
    while member.poll() is not None:
        pass
    return member


def test_repeated_commits_of_no_member_ask_for_the_members_file_once(store: Store, fs: _Counting) -> None:
    store.offsets.commit("g", {T0: 0})
    before = fs.asked
    for offset in range(1, 10):
        store.offsets.commit("g", {T0: offset})
    assert fs.asked == before
    with _opened(fs) as other:
        other.offsets.commit("g", {T0: 3})  # a change by another process may be a member's
    store.offsets.commit("g", {T0: 4})
    assert fs.asked > before


@pytest.mark.pair("groups", "second process")
def test_a_member_that_joins_elsewhere_between_two_commits_keeps_the_next_one_out(store: Store, fs: _Counting) -> None:
    store.offsets.commit("g", {T0: 1})
    store.offsets.commit("g", {T0: 2})
    with _opened(fs) as other:
        member = _joined(other)
        for _ in range(2):
            with pytest.raises(NonEmptyGroupError, match=r"'g' has active members [(]1, "):
                store.offsets.commit("g", {T0: 3})
        store.offsets.commit("h", {T0: 3})
        assert store.offsets.position("g", T0) == 2
        member.leave()
    store.offsets.commit("g", {T0: 4})
    assert store.offsets.position("g", T0) == 4


def test_a_member_of_this_store_that_joins_between_two_commits_keeps_the_next_one_out(store: Store) -> None:
    store.offsets.commit("g", {T0: 1})
    store.offsets.commit("g", {T0: 2})
    member = _joined(store)
    with pytest.raises(NonEmptyGroupError):
        store.offsets.commit("g", {T0: 3})
    store.offsets.commit("h", {T0: 3})
    store.offsets.commit("h", {T0: 4})
    with pytest.raises(NonEmptyGroupError):
        store.offsets.commit("g", {T0: 3})
    member.leave()
    store.offsets.commit("g", {T0: 5})


@pytest.mark.pair("groups", "second process")
def test_a_member_that_joins_while_a_commit_waits_for_the_lock_keeps_it_out(
    store: Store, fs: _Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.offsets.commit("g", {T0: 1})
    due, on_partition = [True], InternalTopic.on_partition
    with _opened(fs) as other:

        def late(*given: Any, **named: Any) -> Any:
            if due:
                due.clear()
                _joined(other)
            return on_partition(*given, **named)

        monkeypatch.setattr(InternalTopic, "on_partition", late)
        with pytest.raises(NonEmptyGroupError):
            store.offsets.commit("g", {T0: 2})
    assert store.offsets.position("g", T0) == 1


def test_commits_next_to_members_of_other_groups_are_each_written_once(store: Store) -> None:
    _joined(store, "other")
    log = store.log("__consumer_offsets")
    before = log.end_offset
    for offset in range(5):
        store.offsets.commit("g", {T0: offset})
    assert log.end_offset == before + 5
