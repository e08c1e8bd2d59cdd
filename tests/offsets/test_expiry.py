"""What expires, and when: Kafka's rules, by state and kind of group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pylog
from pylog import OffsetsConfig, TopicPartition
from pylog.clock import ManualClock
from pylog.offsets.expiry import Expiry, expired
from pylog.offsets.image import GroupImage, Image
from pylog.offsets.schema import (
    GROUP,
    ClassicMember,
    Commit,
    GroupMetadata,
    format_offset,
    format_partition_key,
    group_key,
    offset_key,
)
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from support.reference.offsets import reference_group, reference_offset

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
PLACES = [format_partition_key(T0), format_partition_key(U0)]
NOW = 1_000_000
SUBSCRIBED_TO_T = bytes.fromhex("0000 00000001 000174 ffffffff")
MEMBER = ClassicMember("m", None, "c", "/h", 1, 1, SUBSCRIBED_TO_T, b"")


def group_of(metadata: GroupMetadata | None, *commits: int, members: bool = False) -> GroupImage:
    """A group with offsets committed at these times, of topics t and u."""
    image = Image()
    for number, (place, time) in enumerate(zip(PLACES, commits, strict=False)):
        image.take(number, offset_key(b"g", place), format_offset(1, b"", None, time))
    if metadata is not None:
        image.take(10, group_key(b"g"), reference_group(3, metadata))
    if members:
        image.take(11, b"\0\3\0\1g", b"\0\0\0\0\0\1\0")
        image.take(12, b"\0\5\0\1g\0\1m", b"any")
    return image.groups[b"g"]


def classic(kind: str, since: int | None, *members: ClassicMember) -> GroupMetadata:
    return GroupMetadata(kind, 1, None, None, since, members)


BOTH = Expiry(PLACES, True)
NOTHING = Expiry([], False)


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (group_of(None, NOW - 100, NOW - 99), Expiry(PLACES[:1], False)),  # exactly so old is old enough
        (group_of(None, NOW - 100, NOW - 101), BOTH),
        (group_of(classic("", NOW), NOW - 100, NOW - 100), BOTH),
        (group_of(classic("consumer", NOW - 99), 0, 0), NOTHING),  # it counts from when the last member left
        (group_of(classic("consumer", NOW - 100), NOW, NOW), BOTH),
        (group_of(classic("consumer", None), 0, NOW), Expiry(PLACES[:1], False)),
        (group_of(classic("consumer", NOW, MEMBER), 0, 0), Expiry(PLACES[1:], False)),  # nobody reads u
        (group_of(classic("consumer", NOW, MEMBER._replace(subscription=b"?")), 0, 0), NOTHING),
        (group_of(classic("connect", NOW, MEMBER), 0, 0), NOTHING),
        (group_of(classic("consumer", NOW)), Expiry([], True)),  # nobody there, and nothing committed
        (group_of(None, 0, 0, members=True), NOTHING),
    ],
)
def test_offsets_expire_by_the_state_of_their_group(group: GroupImage, expected: Expiry) -> None:
    assert expired(group, (), NOW, 100, has_living_members=lambda: True) == expected


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (group_of(classic("connect", NOW, MEMBER), NOW - 100, NOW - 99), Expiry(PLACES[:1], False)),
        (group_of(classic("consumer", NOW, MEMBER), NOW - 100, NOW - 100), BOTH),
        (group_of(None, NOW - 100, NOW - 100, members=True), BOTH),
    ],
)
def test_members_whose_processes_all_died_keep_nothing(group: GroupImage, expected: Expiry) -> None:
    assert expired(group, (), NOW, 100, has_living_members=lambda: False) == expected


def test_an_explicit_time_overrides_the_retention() -> None:
    for expires, gone in ((NOW, True), (NOW + 1, False)):
        image = Image()
        value = reference_offset(1, Commit(pylog.OffsetAndMetadata(1, "", None, 0), expires))
        image.take(0, offset_key(b"g", PLACES[0]), value)
        assert expired(image.groups[b"g"], (), NOW, 100, has_living_members=lambda: True) == Expiry(
            PLACES[:1] if gone else [], gone
        )


def test_offsets_that_an_open_transaction_has_committed_stay_and_their_group_too() -> None:
    assert expired(group_of(None, 0, 0), PLACES[:1], NOW, 100, has_living_members=lambda: True) == Expiry(PLACES[1:], False)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Store]:
    offsets = OffsetsConfig(topic_num_partitions=2, retention_minutes=1, retention_check_interval_ms=1000)
    with pylog.open("/s", fs=MemoryFileSystem(), clock=clock, offsets=offsets) as made:
        for topic in "tu":
            made.create_topic(topic, retention_ms=-1)
            made.log(topic).append_many([b"x"] * 10)
        yield made


def test_expired_offsets_are_deleted_and_their_groups(store: Store, clock: ManualClock) -> None:
    store.offsets.commit("old", {T0: 1, U0: 1})
    clock.advance(30_000)
    store.offsets.commit("young", {T0: 1})
    clock.advance(29_999)
    assert store.offsets.expire() == 0
    clock.advance(1)
    assert store.offsets.expire() == 2
    assert store.offsets.expire() == 0
    assert store.offsets.groups() == ["young"]
    assert [record.key for number in range(2) for record in store.log("__consumer_offsets", number).records()].count(
        group_key(b"old")
    ) == 1
    assert group_key(b"old")[1] == GROUP


def test_a_tick_checks_for_expired_offsets_now_and_then_and_not_at_first(store: Store) -> None:
    store.offsets.commit("g", {T0: 1})
    for time, there in ((NOW + 80_000, True), (NOW + 80_999, True), (NOW + 81_000, False)):
        store.tick(time)
        assert (store.offsets.groups() == ["g"]) is there


@pytest.mark.slow
def test_a_clock_that_was_ahead_once_does_not_keep_offsets_from_expiring(store: Store) -> None:
    store.tick(NOW + 365 * 86_400_000)
    store.offsets.commit("g", {T0: 1})
    for time in range(NOW, NOW + 300_000, 1_000):
        store.tick(time)
    assert store.offsets.groups() == []
