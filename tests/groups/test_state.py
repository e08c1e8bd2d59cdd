"""A group's state is what its records say: read from brokers' records as Kafka's admin client tells it, and from our own."""

from __future__ import annotations

import random
from typing import Any

import pytest

import pylog
from pylog import TopicPartition
from pylog.groups import decisions
from pylog.groups.state import GroupState, Member, TopicInfo, Topics, changes, state_of, topic_info
from pylog.offsets.image import GroupImage, Image
from pylog.offsets.membership import (
    CURRENT,
    GROUP_EPOCH,
    GROUP_TOPICS,
    MEMBER,
    TARGET,
    TARGET_EPOCH,
    Epoch,
    format_epoch,
    parse_member,
)
from pylog.offsets.schema import GROUP, ClassicMember, GroupMetadata, group_key
from pylog.offsets.store import offset_manager_of
from pylog.store import Store
from support.golden import data as golden_data
from support.reference.offsets import reference_group

GROUPS = ["g-consumer", "g-consumer-left", "g-consumer-static", "g-consumer-regex", "g-upgraded"]
AVAILABLE: Topics = {"t": TopicInfo(b"t" * 16, (0, 1, 2)), "u": TopicInfo(b"u" * 16, (0,)), "v": TopicInfo(b"v" * 16, (0, 1))}


def image_of(store: Store, group: str) -> GroupImage:
    return offset_manager_of(store.offsets).with_partition(group, lambda there: _group(there, group))


def _group(there: Any, group: str) -> GroupImage:
    with there.image() as image:
        return image.groups[group.encode()]


def named(places: frozenset[TopicPartition]) -> list[str]:
    return [f"{place.topic}-{place.partition}" for place in sorted(places)]


@pytest.mark.parametrize("version", ["3.9.1", "4.3.0"])
@pytest.mark.parametrize("name", GROUPS)
def test_members_epochs_and_assignments_are_those_that_kafkas_admin_client_reported(version: str, name: str) -> None:
    case = golden_data.case(version, "groups")
    told = case.json("expected.json")["groups"].get(name)
    if told is None or told["type"] != "Consumer":
        assert version == "3.9.1"  # whose client could not be told of all
        return
    with pylog.open(case.log_directory, mode="r") as store:
        available = {topic: topic_info(info) for topic, info in store.topics().items()}
        state = state_of(image_of(store, name), available)
    if "groupEpoch" in told:
        assert state.epoch == told["groupEpoch"]
    expected = {
        each["memberId"]: (
            each["clientId"],
            each["groupInstanceId"],
            each["assignment"],
            each.get("targetAssignment", each["assignment"]),
        )
        for each in told["members"]
    }
    found = {
        member_id: (each.client_id, each.instance_id, named(each.owned), named(each.target))
        for member_id, each in state.members.items()
    }
    assert found == expected
    assert all(
        each.epoch == next(m for m in told["members"] if m["memberId"] == each.member_id).get("memberEpoch", each.epoch)
        for each in state.members.values()
    )


# ---- our own -----------------------------------------------------------------------------------------------------------------


def replayed(image: Image, items: list[Any]) -> None:
    for key, value in items:
        image.take(len(image.groups), key, value)


def some_event(rng: random.Random, state: GroupState, number: int, available: Topics) -> GroupState:
    """Whatever can happen to a group, happens."""
    ids = sorted(state.members)
    if not ids or rng.random() < 0.2:
        topics = frozenset(rng.sample(sorted(AVAILABLE), rng.randint(1, 3)))
        instance = f"i{rng.randint(0, 2)}" if rng.random() < 0.3 else None
        newcomer = Member(f"m{number}", topics, ("sticky",), instance, "client", 300_000)
        dead = {member for member in ids if state.members[member].instance_id is not None}
        return decisions.join(state, newcomer, available, dead=dead, expired={m for m in ids if rng.random() < 0.1})
    member = rng.choice(ids)
    me = state.members[member]
    what = rng.choice(["settle", "settle", "settle", "give up", "give up", "subscribe", "leave", "topics"])
    if what == "settle":
        return decisions.settle(state, member, me.owned)
    if what == "give up":
        return decisions.give_up(state, member, me.owned - me.target)
    if what == "subscribe":
        return decisions.subscribe(state, member, frozenset(rng.sample(sorted(AVAILABLE), rng.randint(1, 3))), available)
    return decisions.remove(state, {member}, available) if what == "leave" else decisions.refresh_topics(state, available)


@pytest.mark.slow
def test_replaying_the_records_of_every_change_gives_the_state_that_was_decided() -> None:
    rng = random.Random(11)
    for _ in range(40):
        image, available = Image(), dict(AVAILABLE)
        for number in range(30):
            before = state_of(image.groups.get(b"g"), available)
            if rng.random() < 0.05:
                name = rng.choice(sorted(AVAILABLE))  # it is deleted, grows, or is created again
                available = dict(AVAILABLE) | {name: TopicInfo(bytes([number + 1]) * 16, tuple(range(rng.randint(1, 4))))}
            after = some_event(rng, before, number, available)
            replayed(image, changes(b"g", before, after))
            found = state_of(image.groups.get(b"g"), available)
            assert (found.epoch, found.members, found.topics) == (after.epoch, after.members, after.topics)
            check_sound(found, available)


def check_sound(state: GroupState, available: Topics) -> None:
    """No partition has two owners; every one that a member wants is meant for exactly one that wants it."""
    for kind in ("owned", "target"):
        given = [place for member in state.members.values() for place in getattr(member, kind)]
        assert len(given) == len(set(given))
    if state.members and not decisions.topics_changed(state, available):
        wanted = {topic for member in state.members.values() for topic in member.topics}
        all_targets = frozenset().union(*(member.target for member in state.members.values()))
        assert all_targets == {
            TopicPartition(topic, number) for topic in wanted & available.keys() for number in available[topic].numbers
        }
        assert all({place.topic for place in member.target} <= member.topics for member in state.members.values())


def kinds(items: list[Any]) -> list[int]:
    return [key[1] if value is not None else -key[1] for key, value in items]


def test_records_come_in_the_order_in_which_a_broker_writes_them() -> None:
    nobody = state_of(None, AVAILABLE)
    joined = decisions.join(nobody, Member("m", frozenset("t"), ("range",)), AVAILABLE, dead=(), expired=())
    alone = decisions.settle(joined, "m", frozenset())
    assert kinds(changes(b"g", nobody, alone)) == [MEMBER, GROUP_TOPICS, GROUP_EPOCH, TARGET, TARGET_EPOCH, CURRENT]
    left = decisions.remove(alone, {"m"}, AVAILABLE)
    assert kinds(changes(b"g", alone, left)) == [-CURRENT, -TARGET, -MEMBER, GROUP_TOPICS, GROUP_EPOCH, TARGET_EPOCH]
    assert changes(b"g", alone, alone) == []


def test_a_members_record_says_as_a_brokers_does_that_it_is_none_of_the_classic_protocol() -> None:
    nobody = state_of(None, AVAILABLE)
    joined = decisions.join(nobody, Member("m", frozenset("t"), ("range",)), AVAILABLE, dead=(), expired=())
    ours = next(value for key, value in changes(b"g", nobody, joined) if key[1] == MEMBER)
    with pylog.open(golden_data.case("4.3.0", "groups").log_directory, mode="r") as store:
        records = image_of(store, "g-consumer").membership.items()
    theirs = next(entry.value for key, entry in records if key[1] == MEMBER)
    assert ours is not None
    assert parse_member(ours).tags[0] == parse_member(theirs).tags[0]


def test_a_topic_that_was_created_again_is_another_topic_without_owners() -> None:
    nobody = state_of(None, AVAILABLE)
    joined = decisions.join(nobody, Member("m", frozenset("tu"), ("sticky",)), AVAILABLE, dead=(), expired=())
    alone = decisions.settle(joined, "m", frozenset())
    again = {**AVAILABLE, "t": TopicInfo(b"new" + bytes(13), (0, 1, 2))}
    after = decisions.refresh_topics(alone, again)
    assert named(after.members["m"].owned) == ["u-0"]
    assert named(after.members["m"].target) == ["t-0", "t-1", "t-2", "u-0"]
    assert {TARGET, CURRENT} <= set(kinds(changes(b"g", alone, after)))  # also where the names are the same


def test_members_of_a_brokers_classic_group_are_dead_and_its_epoch_goes_on() -> None:
    old = ClassicMember("old", None, "c", "/h", 1, 1, b"", b"")
    image = Image()
    image.take(0, group_key(b"g"), reference_group(3, GroupMetadata("consumer", 7, "range", "old", 0, (old,))))
    before = state_of(image.groups[b"g"], AVAILABLE)
    assert (before.epoch, list(before.members), before.classic) == (7, ["old"], True)
    after = decisions.join(before, Member("m", frozenset("t"), ("range",)), AVAILABLE, dead={"old"}, expired={"old"})
    items = changes(b"g", before, after)
    assert kinds(items) == [-GROUP, MEMBER, GROUP_TOPICS, GROUP_EPOCH, TARGET, TARGET_EPOCH, CURRENT]
    replayed(image, items)
    found = state_of(image.groups[b"g"], AVAILABLE)
    assert (found.epoch, list(found.members), found.classic) == (8, ["m"], False)


def test_a_classic_group_of_others_than_consumers_is_refused_while_it_has_members() -> None:
    state = GroupState(3, {"worker": Member("worker", frozenset())}, classic=True, protocol_type="connect")
    with pytest.raises(pylog.InconsistentGroupProtocolError, match="'connect', not consumers"):
        decisions.join(state, Member("m", frozenset("t"), ("range",)), AVAILABLE, dead=(), expired={"worker"})


def test_a_topic_of_a_broker_that_knew_no_ids_gets_one_from_its_name() -> None:
    topic = pylog.Topic("old", None, pylog.TopicConfig(), (0,))
    assert topic_info(topic) == topic_info(topic)
    assert len(topic_info(topic).topic_id) == 16
    assert topic_info(topic).topic_id != topic_info(pylog.Topic("older", None, pylog.TopicConfig(), (0,))).topic_id


def test_a_record_of_a_group_that_cannot_be_read_changes_nothing() -> None:
    image = Image()
    image.take(0, b"\0\3\0\1g", format_epoch(Epoch(7)))
    image.take(1, b"\0\5\0\1g\0\1m", b"\0\0nonsense")
    image.take(2, b"\0\3\0\1g", b"\0\0")
    assert state_of(image.groups[b"g"], AVAILABLE).epoch == 7
    assert [offset for offset, _ in image.skipped] == [1, 2]
