"""aiokafka's partitioner."""

from __future__ import annotations

from pylog.compat.kafka.partitioner import DefaultPartitioner as KafkaPartitioner
from pylog.compat.kafka.partitioner import murmur2

__all__ = ["DefaultPartitioner", "murmur2"]


class DefaultPartitioner:
    """Kafka's partitioner: by the hash of the key; without a key, any partition.

    >>> DefaultPartitioner()(b"foobar", [0, 1, 2], [0, 1, 2])
    0
    """

    __call__ = KafkaPartitioner.__call__
