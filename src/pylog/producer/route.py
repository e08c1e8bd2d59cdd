"""What a producer knows of one topic."""

from __future__ import annotations

import math

from pylog.errors import PylogError, RecordTooLargeError
from pylog.log.arguments import limit_of, limit_text, timestamp_bounds
from pylog.partitioner import Partitioner
from pylog.producer.config import ProducerConfig
from pylog.producer.numbering import Numbering
from pylog.producer.sizes import RECORD_CHARGE, RECORD_OVERHEAD
from pylog.producer.waiting import Waiting
from pylog.record.builder import keyless
from pylog.record.rows import MAX_RECORD_OVERHEAD
from pylog.topics.topic import Topic


class Route:
    """One topic, as one producer sends to it.

    Attributes:
        topic: its name.
        waiting: the threads that wait for its records.
        partitions: the topic's partitions, ascending.
        limit: bytes that a record may have, with a batch around it.
        limit_text: the same for messages, with the option that sets it.
        small: bytes of a value and its key that pass without a closer look.
        small_alone: the same of a value that has no key: none where the topic is compacted.
        compacted: whether the topic takes no records without a key.
        stamped: whether the topic gives records the time of their append.
        timestamps: which timestamps the topic takes; None takes all.
        keyed, named, timed, headed: whether any record had a key, a partition, a timestamp, headers: nobody looks otherwise.
        partitioner: for records whose partition is not named.
        looked_at: when the topic was looked at, on the clock that never goes back.
        changes: how many changes of topics its store had made by then.
        tightened: whether the topic takes less than it did at first: records may have been sent before that it refuses now.
    """

    def __init__(self, topic: Topic, waiting: Waiting, config: ProducerConfig, now: float, changes: int = 0) -> None:
        self.topic = topic.name
        self.waiting = waiting
        self._max_request_size = config.max_request_size
        self.keyed = self.named = self.timed = self.headed = False
        self.partitioner: Partitioner = config.new_partitioner()
        self._numberings: dict[int, Numbering] = {}
        self.limit, self.compacted, self.tightened = 0, True, False
        self.renew(topic, now, changes)

    def renew(self, topic: Topic, now: float, changes: int = 0) -> None:
        """Takes the topic as it is now.

        Args:
            topic: as it is.
            now, changes: what `looked_at` and `changes` are then.
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
        self.looked_at, self.changes = now, changes

    def takes(self, key: bytes | None, size: int) -> PylogError | None:
        """Why the topic does not take a record of a key and a size with a batch around it; None if it does."""
        if key is None and self.compacted:
            return keyless("a record")
        return too_large(size, self) if size > self.limit else None

    def distrust(self) -> None:
        """Has the topic looked at again before anything else is sent to it."""
        self.looked_at = -math.inf

    def numbering(self, partition: int, producer_id: int) -> Numbering:
        """The numbers of the producer's batches for a partition."""
        return self._numberings.setdefault(partition, Numbering(producer_id))


def too_large(size: int, route: Route) -> RecordTooLargeError:
    """The error of a record that the topic's log, or the producer, does not take."""
    return RecordTooLargeError(
        f"a record of up to {size} bytes with its batch header is more than {route.limit_text}; raise that for topic "
        f"{route.topic!r}, or send less"
    )
