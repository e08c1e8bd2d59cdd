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
        self._due = self._clock.monotonic() + self._interval_ms / 1000
        new = there - self._owned
        if not new and self._told:
            return None
        self._owned, self._told = there, True
        return Take(dict.fromkeys(sorted(new)))

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
