"""What a producer knows of one topic."""

from __future__ import annotations

import math

from pylog.config import TopicConfig
from pylog.partitioner import Partitioner
from pylog.producer.buffer import RECORD_CHARGE, RECORD_OVERHEAD, Buffer
from pylog.producer.config import ProducerConfig
from pylog.producer.numbering import Numbering
from pylog.record.rows import MAX_RECORD_OVERHEAD
from pylog.topics.topic import Topic


class Route:
    """One topic, as one producer sends to it.

    Attributes:
        topic: its name.
        buffer: where its records wait.
        partitions: the topic's partitions, ascending.
        limit: bytes that a record may have, with a batch around it.
        small: bytes of a value and its key that pass without a closer look.
        small_alone: the same of a value that has no key: none where the topic is compacted.
        compacted: whether the topic takes no records without a key.
        stamped: whether the topic gives records the time of their append.
        keyed, named, timed, headed: whether any record had a key, a partition, a timestamp, headers: nobody looks otherwise.
        partitioner: for records whose partition is not named.
        looked_at: when the topic was looked at, on the clock that never goes back.
    """

    def __init__(self, topic: Topic, buffer: Buffer, config: ProducerConfig, now: float) -> None:
        self.topic = topic.name
        self.buffer = buffer
        self._max_request_size = config.max_request_size
        self.keyed = self.named = self.timed = self.headed = False
        self.partitioner: Partitioner = config.new_partitioner()
        self._numberings: dict[int, Numbering] = {}
        self.renew(topic, now)

    def renew(self, topic: Topic, now: float) -> None:
        """Takes the topic as it is now."""
        self.partitions = topic.partition_ids
        self.limit = min(largest_batch(topic.config), self._max_request_size)
        self.small = min(RECORD_CHARGE - RECORD_OVERHEAD, self.limit - MAX_RECORD_OVERHEAD)
        self.compacted = topic.config.is_compacted
        self.small_alone = -1 if self.compacted else self.small
        self.stamped = topic.config.log_append_time
        self.looked_at = now

    def distrust(self) -> None:
        """Has the topic looked at again before anything else is sent to it."""
        self.looked_at = -math.inf

    def numbering(self, partition: int, producer_id: int) -> Numbering:
        """The numbers of the producer's batches for a partition."""
        return self._numberings.setdefault(partition, Numbering(producer_id))


def largest_batch(config: TopicConfig) -> int:
    """Bytes that a batch may have."""
    return min(config.max_message_bytes, config.segment_bytes)
