"""Assigns partitions to members: Kafka's assignors, as pure functions (groups-and-transactions 3.6).

An assignor gets each member's subscribed topics and previous partitions. It assigns each partition of each subscribed topic to
exactly one subscriber. Equal inputs always give equal assignments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import cycle
from typing import Final

from pylog.errors import InconsistentGroupProtocolError
from pylog.groups.sticky import sticky
from pylog.groups.types import Assignment, Partitions, Subscriber, java_order
from pylog.record.types import TopicPartition

Assignor = Callable[[Collection[Subscriber], Partitions], Assignment]


def range_(members: Collection[Subscriber], partitions: Partitions) -> Assignment:
    """Splits the partitions of each topic evenly among its subscribers; the first subscribers get one more.

    Args:
        members: those of the group.
        partitions: the numbers of each topic's partitions, ascending; topics without subscribers are left out.

    Returns:
        For each member's id its partitions.

    >>> found = range_([Subscriber("a", frozenset("t")), Subscriber("b", frozenset("t"))], {"t": [0, 1, 2]})
    >>> {member: sorted(each.partition for each in given) for member, given in found.items()}
    {'a': [0, 1], 'b': [2]}
    """
    found: dict[str, set[TopicPartition]] = {member.member_id: set() for member in members}
    for topic in sorted(partitions, key=java_order):
        readers = [member for member in _ordered(members) if topic in member.topics]
        if not readers:
            continue
        size, larger = divmod(len(partitions[topic]), len(readers))
        numbers = iter(partitions[topic])
        for partition, reader in enumerate(readers):
            found[reader.member_id].update(TopicPartition(topic, next(numbers)) for _ in range(size + (partition < larger)))
    return _frozen(found)


def round_robin(members: Collection[Subscriber], partitions: Partitions) -> Assignment:
    """Assigns partitions one by one to the topic's subscribers in turn. As `range_`."""
    found: dict[str, set[TopicPartition]] = {member.member_id: set() for member in members}
    turns = cycle(_ordered(members))
    wanted = frozenset[str]().union(*(member.topics for member in members))
    for topic in sorted(wanted & partitions.keys(), key=java_order):
        for number in partitions[topic]:
            reader = next(member for member in turns if topic in member.topics)
            found[reader.member_id].add(TopicPartition(topic, number))
    return _frozen(found)


def _ordered(members: Iterable[Subscriber]) -> list[Subscriber]:
    """Returns Kafka's order of members: those with an instance id first."""
    return sorted(members, key=lambda each: (each.instance_id is None, java_order(each.instance_id or each.member_id)))


def _frozen(found: Mapping[str, set[TopicPartition]]) -> Assignment:
    return {member: frozenset(given) for member, given in found.items()}


# Members release and take partitions one by one with every assignor, so the two sticky assignors differ in name only. Partitions
# that Kafka's cooperative assignor leaves out of its first round still belong to their last owner here.
ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "range": range_,
    "roundrobin": round_robin,
    "sticky": sticky,
    "cooperative-sticky": sticky,
}


def choose(wishes: Sequence[Sequence[str]]) -> str:
    """Chooses a group's assignor: each member votes for its first one that all members have; the most votes win.

    Args:
        wishes: the names of each member's assignors, the preferred one first. The first member's order decides a tie.

    Raises:
        InconsistentGroupProtocolError: none is in all of them.

    >>> choose([["range", "sticky"], ["sticky", "range"], ["roundrobin", "sticky"]])
    'sticky'
    """
    common = frozenset(wishes[0]).intersection(*wishes[1:])
    if not common:
        named = "; ".join(sorted({", ".join(each) for each in wishes}))
        raise InconsistentGroupProtocolError(
            f"the members of the group have no assignor in common ({named}); give them one that all have"
        )
    votes = Counter(next(name for name in names if name in common) for names in wishes)
    return max(sorted(votes, key=wishes[0].index), key=votes.__getitem__)
