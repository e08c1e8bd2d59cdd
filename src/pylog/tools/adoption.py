"""Translates topics for a Kafka broker: options as Kafka names them, and notes on what the broker does differently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pylog.config import Durability, OffsetsConfig, TopicConfig
from pylog.errors import UnknownTopicOrPartitionError
from pylog.offsets.schema import OFFSETS_TOPIC
from pylog.store import Store
from pylog.text import counted
from pylog.tools.metadata import KafkaTopic
from pylog.topics.topic import Topic

TRANSACTIONS_TOPIC: Final = "__transaction_state"
_SMALLEST_SEGMENT: Final = 1 << 20  # bytes; the smallest segment.bytes that a 4.3 broker accepts (interop 7.3)
_ALWAYS: Final = ("cleanup_policy", "retention_ms", "retention_bytes")  # always written, because a broker may have other defaults
_OURS: Final = ("durability", "retention_group", "retention_group_max_bytes")
_TIERED: Final = (  # of a broker with a plugin for remote storage
    "remote_storage_enable",
    "local_retention_ms",
    "local_retention_bytes",
    "remote_log_copy_disable",
    "remote_log_delete_on_disable",
    "remote_delete_delay_ms",
)
_OF_THE_BROKER: Final = "producer_id_expiration_ms"
_MINUTE_MS: Final = 60_000


def kafka_topic(topic: Topic, topic_id: str, leader_epochs: tuple[int, ...]) -> KafkaTopic:
    """Returns a topic as a broker must know it.

    Args:
        topic: topic of a store.
        topic_id: the topic's id.
        leader_epochs: leader epoch of each partition.
    """
    return KafkaTopic(topic.name, topic_id, kafka_options(topic.config), leader_epochs)


def kafka_options(config: TopicConfig) -> dict[str, str]:
    """Returns Kafka's options for a topic. An option of pylog's becomes the closest one of Kafka's that deletes nothing more.

    >>> kafka_options(TopicConfig(compression_type="none", durability="sync"))["compression.type"]
    'uncompressed'
    >>> kafka_options(TopicConfig(retention_group="billing", retention_ms=1000))["retention.ms"]
    '-1'
    """
    given = {name: getattr(config, name) for name in _ALWAYS} | config.changed()
    given = {name: value for name, value in given.items() if name not in (*_OURS, *_TIERED, _OF_THE_BROKER)}
    given["segment_bytes"] = max(config.segment_bytes, _SMALLEST_SEGMENT)
    if config.compression_type == "none":
        given["compression_type"] = "uncompressed"
    if config.retention_group is not None:
        given |= {"retention_ms": -1, "retention_bytes": -1}
    level = None if config.durability is None else Durability.of(config.durability)
    if level == Durability.SYNC:
        given["flush_messages"] = 1
    elif level is not None and level.interval_ms is not None:
        given["flush_ms"] = level.interval_ms
    return {name.replace("_", "."): str(value) for name, value in given.items()}


def server_properties(store: Store, node_id: int, now_ms: int) -> dict[str, str]:
    """Returns the properties that a broker requires in `server.properties` to use a directory.

    Args:
        store: the directory.
        node_id: node id of the broker.
        now_ms: current time, in milliseconds.
    """
    topics = store.topics()
    found = {"node.id": str(node_id), "log.dirs": store.path, "offsets.topic.replication.factor": "1"}
    if OFFSETS_TOPIC in topics:
        found["offsets.topic.num.partitions"] = str(topics[OFFSETS_TOPIC].partition_ids[-1] + 1)
    found |= {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    if TRANSACTIONS_TOPIC in topics:
        found["transaction.state.log.num.partitions"] = str(topics[TRANSACTIONS_TOPIC].partition_ids[-1] + 1)
    expiration = max((topic.config.producer_id_expiration_ms for topic in topics.values()), default=0)
    if expiration > TopicConfig().producer_id_expiration_ms:
        found["producer.id.expiration.ms"] = str(expiration)
    intervals = [option for topic in topics.values() if (option := kafka_options(topic.config).get("flush.ms"))]
    if intervals:
        found["log.flush.scheduler.interval.ms"] = min(intervals, key=int)
    kept = OffsetsConfig().retention_minutes
    age = _age_of_offsets(store, now_ms) // _MINUTE_MS
    if age >= kept // 2:
        found["offsets.retention.minutes"] = str(age + kept)
    return found


def _age_of_offsets(store: Store, now_ms: int) -> int:
    """Returns the milliseconds since the oldest commit. Brokers delete offsets by age (groups-and-transactions 1.11)."""
    stamps = (each.commit_timestamp for name in store.offsets.groups() for each in store.offsets.fetch(name).values())
    return max((now_ms - stamp for stamp in stamps if stamp is not None), default=0)


def notes_on(store: Store, now_ms: int) -> Iterator[str]:
    """Yields sentences on what a broker will do differently, or delete.

    Args:
        store: the directory.
        now_ms: current time, in milliseconds.
    """
    for topic in store.topics().values():
        yield from _notes_on_options(topic)
        yield from _notes_on_partitions(topic)
        due = sum(_due(store, topic, number, now_ms) for number in topic.partition_ids)
        if due:
            keep = f"pylog config {store.path} {topic.name} --set retention.ms=-1"
            message = f"retention will delete {counted(due, 'segment')} some minutes after the broker starts"
            yield f"topic {topic.name}: {message}; to keep them: {keep}"
    yield "pylog.json stays for pylog: a broker does not write its changes of topics and options into it"


def _notes_on_options(topic: Topic) -> Iterator[str]:
    config, name = topic.config, f"topic {topic.name}"
    if config.segment_bytes < _SMALLEST_SEGMENT:
        yield f"{name}: segment.bytes={config.segment_bytes} becomes {_SMALLEST_SEGMENT}, the least that a broker accepts"
    if config.retention_group is not None:
        message = "which brokers do not support, becomes retention.ms=-1 and retention.bytes=-1: the broker deletes nothing"
        yield f"{name}: retention.group={config.retention_group}, {message}"
    if config.durability is not None:
        options = kafka_options(config)
        flush = [f"{option}={options[option]}" for option in ("flush.messages", "flush.ms") if option in options]
        yield f"{name}: durability={config.durability} becomes {flush[0] if flush else 'the default of brokers'}"


def _notes_on_partitions(topic: Topic) -> Iterator[str]:
    missing = sorted(set(range(topic.partition_ids[-1] + 1)) - set(topic.partition_ids))
    if missing:
        yield f"topic {topic.name}: partitions {', '.join(map(str, missing[:10]))} do not exist; the broker creates them empty"


def _due(store: Store, topic: Topic, number: int, now_ms: int) -> int:
    """Returns the number of segments of a partition that a broker would delete."""
    if topic.config.retention_group is not None:
        return 0
    try:
        return sum(each.segments for each in store.retain(topic.name, number, now_ms=now_ms, dry_run=True))
    except UnknownTopicOrPartitionError:  # the partition has not been created yet
        return 0
