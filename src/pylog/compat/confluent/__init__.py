"""The names of confluent-kafka's producer and consumer, on a pylog store.

    from pylog.compat.confluent import Consumer, KafkaError, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": "pylog:///data/shop", "transactional.id": "billing"})

`bootstrap.servers` names the directory as for kafka-python's layer (`pylog.compat`). Options of a network are accepted, have no
effect, and are named in one log line. `pylog.compat.confluent.admin` has the administrator. The clients with serializers, those
for asyncio and the schema registry are not here.
"""

from __future__ import annotations

from pylog.compat.confluent.consumer import Consumer
from pylog.compat.confluent.errors import KafkaError, KafkaException
from pylog.compat.confluent.model import (
    AcknowledgeType,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
    Node,
    TopicCollection,
    TopicPartitionInfo,
    Uuid,
)
from pylog.compat.confluent.producer import Producer
from pylog.compat.confluent.structs import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
    TopicPartition,
)

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AcknowledgeType",
    "Consumer",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "ElectionType",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "Message",
    "Node",
    "Producer",
    "TopicCollection",
    "TopicPartition",
    "TopicPartitionInfo",
    "Uuid",
]
