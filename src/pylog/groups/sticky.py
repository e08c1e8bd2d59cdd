"""Kafka's sticky assignor: balance first, then as many partitions as possible keep their owners.

With equal subscriptions no member has two partitions more than another. With unequal ones no partition can move to a subscriber
that has two fewer than its owner. Kafka's claims by generation do not occur: previous assignments come from the log, in which a
partition has one owner.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator

from pylog.groups.types import Assignment, Partitions, Subscriber, java_order
from pylog.record.types import TopicPartition

PartitionsByMember = dict[str, list[TopicPartition]]


def sticky(members: Collection[Subscriber], partitions: Partitions) -> Assignment:
    """Assigns as Kafka's StickyAssignor and CooperativeStickyAssignor.

    Args:
        members: with their previous partitions. A partition that two members claim counts as unowned.
        partitions: the numbers of each topic's partitions, ascending.

    Returns:
        For each member's id its partitions.

    Cost: partitions x members; with unequal subscriptions and many moves, up to the square of that.

    >>> both = [Subscriber("a", frozenset("t"), frozenset({TopicPartition("t", 1)})), Subscriber("b", frozenset("t"))]
    >>> {member: sorted(each.partition for each in given) for member, given in sticky(both, {"t": [0, 1]}).items()}
    {'a': [1], 'b': [0]}
    """
    wanted = frozenset[str]().union(*(member.topics for member in members)) & partitions.keys()
    all_partitions = frozenset(TopicPartition(topic, number) for topic in wanted for number in partitions[topic])
    claims = Counter(partition for member in members for partition in member.owned)
    ordered = sorted(members, key=lambda member: java_order(member.member_id))
    owned = {
        member.member_id: sorted(
            (
                partition
                for partition in member.owned & all_partitions
                if partition.topic in member.topics and claims[partition] == 1
            ),
            key=lambda partition: (partition.partition, java_order(partition.topic)),
        )
        for member in ordered
    }
    if len({member.topics for member in members}) <= 1:
        given = _equal(owned, all_partitions)
    else:
        revoked = any(partition.topic not in member.topics for member in members for partition in member.owned & all_partitions)
        given = _Balancing(ordered, owned, all_partitions).balanced(only_new_first=not revoked)
    return {member: frozenset(share) for member, share in given.items()}


# ---- equal subscriptions -----------------------------------------------------------------------------------------------------


def _equal(owned: PartitionsByMember, partitions: frozenset[TopicPartition]) -> PartitionsByMember:
    """Assigns for equal subscriptions: each member gets the same number, or one more."""
    if not owned:
        return {}
    least, larger = divmod(len(partitions), len(owned))
    given, short, full = _kept(owned, least, larger)
    rest = partitions - {partition for share in given.values() for partition in share}
    waiting = deque(full)
    turns: Iterator[str] = iter(())
    for partition in sorted(rest, key=lambda partition: (java_order(partition.topic), partition.partition)):
        member = next(turns, None)
        if member is None and short:
            turns = iter(list(short))
            member = next(turns)
        elif member is None:
            member = waiting.popleft()
        given[member].append(partition)
        if len(given[member]) == least and member in short:
            short.remove(member)
            waiting.append(member)
    return given


def _kept(owned: PartitionsByMember, least: int, larger: int) -> tuple[PartitionsByMember, list[str], list[str]]:
    """Returns the partitions that keep their owners, the members with too few, and the members that may get one more."""
    given: PartitionsByMember = {}
    short, full = [], []
    for member, partitions in owned.items():
        if len(partitions) < least:
            given[member] = partitions
            short.append(member)
        elif len(partitions) > least and larger:
            given[member] = partitions[: least + 1]
            larger -= 1
        else:
            given[member] = partitions[:least]
            full.append(member)
    return given, short, full if larger else []


# ---- unequal subscriptions ---------------------------------------------------------------------------------------------------


class _Balancing:
    """Assigns for unequal subscriptions."""

    def __init__(self, members: Collection[Subscriber], owned: PartitionsByMember, partitions: Iterable[TopicPartition]) -> None:
        self._given = owned
        self._readers = {
            topic: [member.member_id for member in members if topic in member.topics]
            for topic in {partition.topic for partition in partitions}
        }
        self._partitions = sorted(
            partitions,
            key=lambda partition: (len(self._readers[partition.topic]), java_order(partition.topic), partition.partition),
        )
        self._owner = {partition: member for member, share in owned.items() for partition in share}
        self._moves: dict[TopicPartition, tuple[str, str]] = {}  # the source and target of each move

    def balanced(self, *, only_new_first: bool) -> PartitionsByMember:
        """Assigns unowned partitions, then moves partitions while that makes loads more equal."""
        new = [partition for partition in self._partitions if partition not in self._owner]
        for partition in new:
            self._assign(partition, self._idlest(partition))
        if only_new_first:
            self._move_while_better(new)
        self._move_while_better(self._partitions)
        return self._given

    def _idlest(self, partition: TopicPartition) -> str:
        """Returns the subscriber with the fewest partitions; the first of several."""
        return min(self._readers[partition.topic], key=lambda member: len(self._given[member]))

    def _assign(self, partition: TopicPartition, member: str) -> None:
        self._given[member].append(partition)
        self._owner[partition] = member

    def _move_while_better(self, partitions: list[TopicPartition]) -> None:
        """Moves partitions to members with two fewer, until none can be: each move makes two loads more equal."""
        moved = True
        while moved:
            moved = False
            for partition in partitions:
                source, target = self._owner[partition], self._idlest(partition)
                if len(self._given[source]) > len(self._given[target]) + 1:
                    self._move(self._best_to_move(partition, source, target), source, target)
                    moved = True

    def _best_to_move(self, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        """Prefers a partition that moved the other way before: moving it back undoes that move."""
        return next(
            (each for each, pair in self._moves.items() if each.topic == partition.topic and pair == (target, source)), partition
        )

    def _move(self, partition: TopicPartition, source: str, target: str) -> None:
        first = self._moves.pop(partition, (source,))[0]
        if first != target:
            self._moves[partition] = first, target
        self._given[source].remove(partition)
        self._assign(partition, target)
