"""The metadata of one topic that a producer caches: partitions, size limits, timestamp bounds."""

from __future__ import annotations

import math

from pylog import limits
from pylog.errors import PylogError, RecordTooLargeError
from pylog.log.options import limit_of, limit_text, timestamp_bounds
from pylog.partitioner import Partitioner
from pylog.producer.config import ProducerConfig, new_partitioner
from pylog.producer.numbering import Numbering
from pylog.producer.sizes import RECORD_CHARGE, RECORD_OVERHEAD
from pylog.producer.waiting import Waiting
from pylog.record.builder import keyless
from pylog.record.rows import MAX_RECORD_OVERHEAD
from pylog.topics.kept import IsDeleted
from pylog.topics.topic import Topic
from pylog.transactions.producer_ids import new_producer_id


class Route:
    """The cached metadata of one topic.

    Attributes:
        topic: its name.
        waiting: the threads that wait for its records.
        partitions: the topic's partitions, ascending.
        limit: the largest size of a record with its batch header, in bytes.
        limit_text: the same for messages, with the name of the option.
        small: a key and a value of up to this many bytes together need no further check.
        small_alone: the same for a value without a key; -1 if the topic is compacted.
        compacted: true if the topic requires keys.
        stamped: true if the topic uses LogAppendTime.
        timestamps: the range of timestamps that the topic accepts; None accepts all.
        keyed, named, timed, headed: true if any record had a key, a partition, a timestamp, headers.
        partitioner: for records without an explicit partition.
        read_at: when the topic was read, in seconds of the monotonic clock.
        changes: the store's count of topic changes at that time.
        tightened: true if a limit became stricter: records sent before may have to be refused now.
    """

    def __init__(self, topic: Topic, waiting: Waiting, config: ProducerConfig, now: float, changes: int = 0) -> None:
        self.topic = topic.name
        self.waiting = waiting
        self._max_request_size = config.max_request_size
        self.keyed = self.named = self.timed = self.headed = False
        self.partitioner: Partitioner = new_partitioner(config)
        self._producer_id = new_producer_id()  # a route's own: the producer may drop a route, and make it again
        self._numberings: dict[int, Numbering] = {}
        self.limit, self.compacted, self.tightened = 0, True, False
        self.renew(topic, now, changes)

    def renew(self, topic: Topic, now: float, changes: int = 0) -> None:
        """Replaces the metadata with the topic's current state.

        Args:
            topic: the topic as just read.
            now, changes: the new values of `read_at` and `changes`.
        """
        before = self.limit, self.compacted
        self.partitions = topic.partition_ids
        self.limit = min(limit_of(topic.config), self._max_request_size)
        own = self.limit < limit_of(topic.config)
        self.limit_text = f"max_request_size={self.limit} of the producer" if own else limit_text(topic.config)
        self.small = min(RECORD_CHARGE - RECORD_OVERHEAD, self.limit - MAX_RECORD_OVERHEAD)
        self.compacted = topic.config.is_compacted
        self.small_alone = -1 if self.compacted else self.small
        self.stamped = topic.config.log_append_time
        self.timestamps = timestamp_bounds(topic.config, topic.name)
        self.tightened = self.tightened or self.limit < before[0] or (self.compacted and not before[1])
        self.read_at, self.changes = now, changes

    def takes(self, key: bytes | None, size: int) -> PylogError | None:
        """Returns the error if the topic does not accept a record; `size` includes the batch header. None if it does."""
        if key is None and self.compacted:
            return keyless("a record")
        return too_large(size, self) if size > self.limit else None

    def distrust(self) -> None:
        """Makes the next send read the topic again."""
        self.read_at = -math.inf

    def numbering(self, partition: int) -> Numbering:
        """Returns the numbers of the producer's batches for a partition."""
        return self._numberings.setdefault(partition, Numbering(self._producer_id))


class Routes:
    """The metadata of the topics that a producer sends to.

    Attributes:
        plain: the metadata by topic, for records that need no further check; empty if all need one.
    """

    def __init__(self) -> None:
        self.plain: dict[str, Route] = {}
        self._all: dict[str, Route] = {}
        self._deleted: dict[str, None] = {}  # the topics that were deleted last

    def of(self, topic: str) -> Route | None:
        """Returns the metadata of a topic; None if it is not cached."""
        return self._all.get(topic)

    def add(self, route: Route, *, is_plain: bool) -> Route:
        """Adds metadata, and returns it, or that which another thread has added first."""
        known = self._all.setdefault(route.topic, route)
        if is_plain:
            self.plain[route.topic] = known
        return known

    def forget_topics(self, is_deleted: IsDeleted) -> None:
        """Forgets deleted topics, except the last few: a program that sends in a loop still gets the errors in its futures."""
        for topic in list(self._all):
            if is_deleted(topic) and topic not in self._deleted:
                self._deleted[topic] = None
        for topic in list(self._deleted)[: -limits.DELETED_ROUTES]:
            self._deleted.pop(topic, None)
            self.plain.pop(topic, None)
            self._all.pop(topic, None)


def too_large(size: int, route: Route) -> RecordTooLargeError:
    """Returns the error for a record that exceeds the limit of the topic or of the producer."""
    return RecordTooLargeError(
        f"a record of up to {size} bytes with its batch header exceeds {route.limit_text}; raise the limit for topic "
        f"{route.topic!r}, or send smaller records"
    )
