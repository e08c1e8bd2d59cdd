"""Membership of no group: who reads alone reads every partition of its topics."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from pylog.clients import Clients
from pylog.clock import Clock
from pylog.groups.member import Event, Revoke, Take
from pylog.record.types import TopicPartition


class Membership(Protocol):
    """What tells a consumer which partitions are its own: see `GroupMember`, of which these are a part."""

    @property
    def assignment(self) -> frozenset[TopicPartition]: ...

    def subscribe(self, topics: Collection[str]) -> None: ...

    def poll(self) -> Event | None: ...

    def gave_up(self, partitions: Collection[TopicPartition]) -> None: ...

    def leave(self) -> None: ...


class Alone:
    """The membership of a consumer without a group.

    Args:
        store, clock: whose topics, and by which time.
        interval_ms: how often topics are looked for.
    """

    def __init__(self, store: Clients, clock: Clock, interval_ms: int) -> None:
        self._store = store
        self._clock = clock
        self._interval_ms = interval_ms
        self._topics: frozenset[str] = frozenset()
        self._owned: set[TopicPartition] = set()
        self._due = clock.monotonic()
        self._told = False  # that it has begun, be it with no partition

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What it owns: everything taken and not given up."""
        return frozenset(self._owned)

    def subscribe(self, topics: Collection[str]) -> None:
        """Reads these topics from now on."""
        self._topics = frozenset(topics)
        self._due = self._clock.monotonic()
        self._told = False

    def poll(self) -> Event | None:
        """Tells which partitions there are no more, and which are new."""
        if self._clock.monotonic() < self._due:
            return None
        there = self._partitions()
        gone = self._owned - there
        if gone:
            return Revoke(frozenset(gone))
        new = there - self._owned
        event = Take(dict.fromkeys(sorted(new))) if new or not self._told else None
        self._owned, self._told = there, True
        self._due = self._clock.monotonic() + self._interval_ms / 1000  # last: who was interrupted asks again at once
        return event

    def _partitions(self) -> set[TopicPartition]:
        topics = self._store.topics()
        return {TopicPartition(name, number) for name in self._topics & topics.keys() for number in topics[name].partition_ids}

    def gave_up(self, partitions: Collection[TopicPartition]) -> None:
        """Says that a `Revoke` is done."""
        self._owned.difference_update(partitions)

    def leave(self) -> None:
        """Reads nothing any more."""
        self.subscribe(())
        self._owned.clear()
        self._told = True
