"""Consumers that share a group on one store and one clock."""

from __future__ import annotations

import pylog
from pylog import Consumer, ConsumerRebalanceListener, TopicPartition


class Told(ConsumerRebalanceListener):
    """What a consumer was told, and what was committed then."""

    def __init__(self, store: pylog.Store) -> None:
        self.told: list[tuple[str, set[int], dict[int, int]]] = []
        self._store = store

    def _note(self, what: str, partitions: set[TopicPartition]) -> None:
        self.told.append((what, {place.partition for place in partitions}, committed(self._store)))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._note("assigned", assigned)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._note("revoked", revoked)

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self._note("lost", lost)


def committed(store: pylog.Store) -> dict[int, int]:
    return {place.partition: found.offset for place, found in store.offsets.fetch("g").items()}


def taken(*consumers: Consumer) -> list[tuple[int, int]]:
    """What all of them hand out, until there is nothing more and nothing moves."""
    seen: list[tuple[int, int]] = []
    quiet = 0
    while quiet < 3:
        found = [consumer.poll() for consumer in consumers]
        seen += [(record.partition, record.offset) for each in found for part in each.values() for record in part]
        quiet = 0 if any(found) else quiet + 1
    return seen
