"""Assignors: Kafka's own answers, and what holds for every answer."""

from __future__ import annotations

import random
from collections.abc import Collection
from itertools import pairwise

import pytest

import pylog
from pylog import TopicPartition
from pylog.groups.assignors import ASSIGNORS, choose, range_, round_robin
from pylog.groups.sticky import sticky
from pylog.groups.types import Assignment, Partitions, Subscriber

RANDOM_CASES = 10_000


def places(text: str) -> frozenset[TopicPartition]:
    """`t0-0,3 t1-1`: partitions 0 and 3 of t0, and 1 of t1."""
    return frozenset(
        TopicPartition(topic, int(number))
        for topic, _, numbers in (each.partition("-") for each in text.split())
        for number in numbers.split(",")
    )


def group(text: str, **owned: str) -> list[Subscriber]:
    """`C0:t0,t1 C1:t1/i`: members with their topics, and their instance ids."""
    found = []
    for each in text.split():
        member, _, rest = each.partition(":")
        topics, _, instance = rest.partition("/")
        found.append(Subscriber(member, frozenset(topics.split(",")), places(owned.get(member, "")), instance or None))
    return found


def topics(**counts: int) -> Partitions:
    return {topic: range(count) for topic, count in counts.items()}


# What Kafka's classes printed (groups-and-transactions 3.6): members, partitions, range's answer, round robin's.
PUBLISHED = [
    ("C0:t0,t1 C1:t0,t1", topics(t0=3, t1=3), ["t0-0,1 t1-0,1", "t0-2 t1-2"], ["t0-0,2 t1-1", "t0-1 t1-0,2"]),
    ("C0:t0 C1:t0 C2:t0", topics(t0=7), ["t0-0,1,2", "t0-3,4", "t0-5,6"], ["t0-0,3,6", "t0-1,4", "t0-2,5"]),
    (
        "C0:t0 C1:t0,t1 C2:t0,t1,t2",
        topics(t0=1, t1=2, t2=3),
        ["t0-0", "t1-0", "t1-1 t2-0,1,2"],
        ["t0-0", "t1-0", "t1-1 t2-0,1,2"],
    ),
    ("C0:t0 C1:t0 C2:t0 C3:t0", topics(t0=2), ["t0-0", "t0-1", "", ""], ["t0-0", "t0-1", "", ""]),
    (
        "C0:t0,t1,t2 C1:t0,t1,t2 C2:t0,t1,t2 C3:t1",
        topics(t0=10, t1=5, t2=1),
        ["t0-0,1,2,3 t1-0,1 t2-0", "t0-4,5,6 t1-2", "t0-7,8,9 t1-3", "t1-4"],
        ["t0-0,3,6,9 t1-3", "t0-1,4,7 t1-0,4", "t0-2,5,8 t1-1 t2-0", "t1-2"],
    ),
    (
        "C0:t0 C1:t0,t1 C2:t1",
        topics(t0=5, t1=4),
        ["t0-0,1,2", "t0-3,4 t1-0,1", "t1-2,3"],
        ["t0-0,2,4", "t0-1,3 t1-0,2", "t1-1,3"],
    ),
    ("C2:t0 C10:t0", topics(t0=5), ["t0-3,4", "t0-0,1,2"], ["t0-1,3", "t0-0,2,4"]),
    ("A:t0/i2 B:t0/i1 C:t0", topics(t0=4), ["t0-2", "t0-0,1", "t0-3"], ["t0-1", "t0-0,3", "t0-2"]),
]


@pytest.mark.parametrize(("members", "partitions", "by_range", "by_turns"), PUBLISHED)
def test_range_and_round_robin_answer_as_kafkas_classes(
    members: str, partitions: Partitions, by_range: list[str], by_turns: list[str]
) -> None:
    names = [member.member_id for member in group(members)]
    assert range_(group(members), partitions) == dict(zip(names, map(places, by_range), strict=True))
    assert round_robin(group(members), partitions) == dict(zip(names, map(places, by_turns), strict=True))


# Each with the partitions owned before, and Kafka's answer. Where its cooperative assignor withholds partitions for a round, the
# answer is that of the next round.
STICKY = [
    ("A:t0", {}, {"A": "t0-0,1,2,3,4,5"}),
    ("A:t0 B:t0", {"A": "t0-0,1,2,3,4,5"}, {"A": "t0-0,1,2", "B": "t0-3,4,5"}),
    ("A:t0 B:t0 C:t0", {"A": "t0-0,1,2", "B": "t0-3,4,5"}, {"A": "t0-0,1", "B": "t0-3,4", "C": "t0-2,5"}),
    ("B:t0 C:t0", {"B": "t0-3,4", "C": "t0-2,5"}, {"B": "t0-3,4,0", "C": "t0-2,5,1"}),
    ("A:t0 B:t0 C:t0", {}, {"A": "t0-0,3", "B": "t0-1,4", "C": "t0-2,5"}),
    ("A:t0 B:t0", {"A": "t0-0,3", "B": "t0-1,4"}, {"A": "t0-0,3,2", "B": "t0-1,4,5"}),
    # C comes back and still claims what it had before: what two claim is nobody's
    (
        "A:t0 B:t0 C:t0 D:t0",
        {"A": "t0-0,2,3", "B": "t0-1,4,5", "C": "t0-2,5"},
        {"A": "t0-0,3", "B": "t0-1,4", "C": "t0-2", "D": "t0-5"},
    ),
]


@pytest.mark.parametrize(("members", "owned", "expected"), STICKY)
def test_sticky_answers_as_kafkas_classes(members: str, owned: dict[str, str], expected: dict[str, str]) -> None:
    assert sticky(group(members, **owned), topics(t0=6)) == {member: places(each) for member, each in expected.items()}


def test_sticky_answers_as_kafkas_class_where_members_want_different_topics() -> None:
    members = group("C0:t0,t1,t2 C1:t0,t1,t2 C2:t0,t1,t2 C3:t1")
    expected = {"C0": "t0-0,3,6,9", "C1": "t0-1,4,7 t2-0", "C2": "t0-2,5,8 t1-3", "C3": "t1-0,1,2,4"}
    assert sticky(members, topics(t0=10, t1=5, t2=1)) == {member: places(each) for member, each in expected.items()}


def test_a_member_that_comes_gets_partitions_though_all_have_owners() -> None:
    members = group("A:t0,t1 B:t0", A="t0-0,1,2,3 t1-0,1")
    assert sticky(members, topics(t0=4, t1=2)) == {"A": places("t0-3 t1-0,1"), "B": places("t0-0,1,2")}


# ---- any case ----------------------------------------------------------------------------------------------------------------


def some_group(rng: random.Random) -> tuple[list[Subscriber], Partitions]:
    """Members that want the same or not, and had any partitions before: also deleted ones, and ones that others had too."""
    names = [f"t{number}" for number in range(rng.randint(1, 4))]
    partitions = {name: range(rng.randint(0, 7)) for name in names if rng.random() < 0.9}
    every = [TopicPartition(name, number) for name in names for number in range(8)]
    rng.shuffle(every)
    alike = frozenset(rng.sample(names, rng.randint(1, len(names)))) if rng.random() < 0.5 else None
    members = []
    for number in rng.sample(range(40), rng.randint(1, 8)):
        wanted = alike or frozenset(rng.sample(names, rng.randint(1, len(names))))
        owned = rng.sample(every, min(len(every), rng.randint(0, 4)))
        if rng.random() < 0.9:  # else others claim them too
            every = [place for place in every if place not in owned]
        members.append(
            Subscriber(f"m{number}", wanted, frozenset(owned), f"i{number % 7}-{number}" if rng.random() < 0.2 else None)
        )
    return members, partitions


def check_sound(members: Collection[Subscriber], partitions: Partitions, found: Assignment) -> None:
    """Every partition that somebody wants has one owner, who wants it."""
    given = [place for each in found.values() for place in each]
    wanted = {topic for member in members for topic in member.topics}
    assert found.keys() == {member.member_id for member in members}
    assert len(given) == len(set(given))
    assert set(given) == {TopicPartition(topic, number) for topic in wanted & partitions.keys() for number in partitions[topic]}
    assert all(place.topic in member.topics for member in members for place in found[member.member_id])


def check_balanced(members: Collection[Subscriber], found: Assignment) -> None:
    """No partition could go to a member with two fewer than its owner."""
    for owner in members:
        for other in members:
            if any(place.topic in other.topics for place in found[owner.member_id]):
                assert len(found[owner.member_id]) <= len(found[other.member_id]) + 1


def kept(members: Collection[Subscriber], found: Assignment) -> int:
    return sum(len(member.owned & found[member.member_id]) for member in members)


@pytest.mark.slow
def test_every_assignment_gives_each_partition_one_subscribed_owner_and_sticky_ones_are_balanced() -> None:
    rng = random.Random(5)
    for case in range(RANDOM_CASES):
        members, partitions = some_group(rng)
        for assign in (range_, round_robin, sticky):
            found = assign(members, partitions)
            check_sound(members, partitions, found)
            assert case % 5 or assign(members[::-1], partitions) == found
        check_balanced(members, found)
        if case % 3:
            continue
        again = [member._replace(owned=found[member.member_id]) for member in members]
        assert sticky(again, partitions) == found  # what is balanced stays as it is


def test_range_gives_consecutive_partitions_and_pieces_of_equal_size() -> None:
    rng = random.Random(6)
    for _ in range(1000):
        members, partitions = some_group(rng)
        found = range_(members, partitions)
        for topic in partitions:
            numbers = [
                sorted(place.partition for place in found[each.member_id] if place.topic == topic)
                for each in members
                if topic in each.topics
            ]
            assert all(after == before + 1 for each in numbers for before, after in pairwise(each))
            assert not numbers or max(map(len, numbers)) <= min(map(len, numbers)) + 1


def test_with_equal_subscriptions_as_much_stays_as_balance_allows() -> None:
    rng = random.Random(7)
    for _ in range(2000):
        count, size = rng.randint(1, 6), rng.randint(0, 14)
        owners = [rng.randrange(count + 1) for _ in range(size)]
        members = [
            Subscriber(
                f"m{number}", frozenset({"t"}), frozenset(TopicPartition("t", at) for at in range(size) if owners[at] == number)
            )
            for number in range(count)
        ]
        had = sorted((len(member.owned) for member in members), reverse=True)
        least, larger = divmod(size, count)
        best = sum(min(each, least + (place < larger)) for place, each in enumerate(had))
        assert kept(members, sticky(members, {"t": range(size)})) == best


@pytest.mark.slow
def test_a_member_that_goes_moves_nothing_that_others_have() -> None:
    rng = random.Random(8)
    for _ in range(2000):
        members, partitions = some_group(rng)
        found = sticky(members, partitions)
        left = [member._replace(owned=found[member.member_id]) for member in members[1:]]
        if len({member.topics for member in left}) == 1:
            assert all(member.owned <= sticky(left, partitions)[member.member_id] for member in left)


# ---- which assignor ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wishes", "chosen"),
    [
        ([["range"]], "range"),
        ([["range", "cooperative-sticky"], ["cooperative-sticky"]], "cooperative-sticky"),
        ([["range", "sticky"], ["sticky", "range"], ["roundrobin", "sticky"]], "sticky"),
        ([["range", "sticky"], ["sticky", "range"]], "range"),
        ([["sticky", "range"], ["range", "sticky"]], "sticky"),
    ],
)
def test_the_assignor_is_the_one_that_most_members_want_of_those_that_all_have(wishes: list[list[str]], chosen: str) -> None:
    assert choose(wishes) == chosen


def test_members_without_a_common_assignor_are_refused_with_their_names() -> None:
    with pytest.raises(pylog.InconsistentGroupProtocolError, match="no assignor in common \\(range; sticky, roundrobin\\)"):
        choose([["range"], ["sticky", "roundrobin"]])


def test_the_assignors_have_kafkas_names() -> None:
    assert list(ASSIGNORS) == ["range", "roundrobin", "sticky", "cooperative-sticky"]
