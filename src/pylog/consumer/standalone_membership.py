"""The membership of a consumer without a group, which reads every partition of its topics."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from pylog.clock import Clock
from pylog.groups.member import PartitionsAssigned, PartitionsRevoked, RebalanceEvent
from pylog.log_manager import LogManager
from pylog.record.types import OffsetAndMetadata, TopicPartition
from pylog.topics.watch import TopicsWatch


class Membership(Protocol):
    """Assigns partitions to a consumer. The part of `GroupMember` that a consumer uses."""

    @property
    def assignment(self) -> frozenset[TopicPartition]: ...

    def subscribe(self, topics: Collection[str], created: Collection[str] = ()) -> None: ...

    def poll(self) -> RebalanceEvent | None: ...

    def acknowledge_revocation(self, partitions: Collection[TopicPartition]) -> None: ...

    def leave(self) -> None: ...

    def expire_topics(self) -> None: ...


class StandaloneMembership:
    """The membership of a consumer without a group.

    Args:
        manager, clock: the consumer's.
        interval_ms: milliseconds between two listings of the topics, 500 at most.
        reads_new: true to read a partition that is created while the consumer runs from its first record.

    Attributes:
        starts: the first offsets of such partitions.
    """

    def __init__(self, manager: LogManager, clock: Clock, interval_ms: int, *, reads_new: bool = False) -> None:
        self._manager = manager
        self._clock = clock
        self._reads_new = reads_new
        self._watch = TopicsWatch(lambda: manager.topic_changes, interval_ms)
        self._topics: frozenset[str] = frozenset()
        self._following: frozenset[str] = frozenset()  # topics that were assigned before, or created since
        self._owned: set[TopicPartition] = set()
        self.starts: dict[TopicPartition, OffsetAndMetadata] = {}
        self._has_assigned = False  # the first assignment, even an empty one, has been returned

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned and not yet revoked."""
        return frozenset(self._owned)

    def subscribe(self, topics: Collection[str], created: Collection[str] = ()) -> None:
        """Replaces the subscribed topics. As `GroupMember.subscribe`."""
        self._topics = frozenset(topics)
        self._following = self._following & self._topics | frozenset(created)
        self._watch.expire()
        self._has_assigned = False

    def poll(self) -> RebalanceEvent | None:
        """Returns deleted partitions as revoked, else new ones as assigned; None if nothing changed."""
        now, changes = self._clock.monotonic(), self._manager.topic_changes
        if not self._watch.is_due(now):
            return None
        existing = self._partitions()
        deleted = self._owned - existing
        if deleted:
            return PartitionsRevoked(frozenset(deleted))
        new = existing - self._owned
        self._note_starts(new)
        starts = {partition: self.starts.get(partition) for partition in sorted(new)}
        event = PartitionsAssigned(starts) if new or not self._has_assigned else None
        self._owned, self._has_assigned, self._following = existing, True, self._topics
        self._watch.checked(now, changes)  # last: after an interrupt the next poll checks again
        return event

    def _note_starts(self, new: Collection[TopicPartition]) -> None:
        """Sets the start of partitions created while the consumer runs; `auto_offset_reset` decides the others."""
        if self._reads_new:
            start = OffsetAndMetadata(0, "", None)
            self.starts.update((partition, start) for partition in new if partition.topic in self._following)

    def _partitions(self) -> set[TopicPartition]:
        topics = self._manager.current_topics()
        return {TopicPartition(name, number) for name in self._topics & topics.keys() for number in topics[name].partition_ids}

    def acknowledge_revocation(self, partitions: Collection[TopicPartition]) -> None:
        """Confirms that the revocation of these partitions is complete."""
        self._owned.difference_update(partitions)
        for partition in partitions:
            self.starts.pop(partition, None)

    def expire_topics(self) -> None:
        """Makes the next poll list the topics."""
        self._watch.expire()

    def leave(self) -> None:
        """Ends the subscription and the assignment."""
        self.subscribe(())
        self._owned.clear()
        self._has_assigned = True
