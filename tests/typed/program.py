"""A program that uses the public interface: `mypy --strict` accepts it, and infers these types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_type

import pylog
from pylog import OffsetAndMetadata, OffsetAndTimestamp, Record, RecordMetadata, TopicPartition
from pylog.aio import AsyncConsumer, AsyncProducer
from pylog.testing import FaultyFileSystem, MemoryFileSystem


def stores(path: str) -> None:
    with pylog.open(path, durability=pylog.Durability.OS) as store:
        assert_type(store, pylog.Store)
        topic = store.create_topic("orders", partition_count=2, retention_ms=-1)
        assert_type(topic.partition_count, int)
        assert_type(topic.partition_ids, tuple[int, ...])
        assert_type(topic.config.retention_ms, int)
        assert_type(store.topics(), dict[str, pylog.Topic])
        assert_type(store.groups(), list[str])


def logs(log: pylog.Log) -> None:
    assert_type(log.append(b"paid", key=b"42", timestamp=1), int)
    assert_type(log.append_many([b"a", (b"k", b"b")]), range)
    assert_type(log.read(0), Record)
    assert_type(log.records(0, isolation_level="read_committed"), Iterator[Record])
    assert_type(log.offset_for_timestamp(1), OffsetAndTimestamp | None)
    record = log.read(0)
    assert_type((record.key, record.value, record.timestamp), tuple[bytes | None, bytes | None, int])


def producers(producer: pylog.Producer) -> None:
    future = producer.send("orders", b"paid", key=b"42", timestamp=1)
    assert_type(future, pylog.FutureRecordMetadata)
    assert_type(future.result(timeout=1), RecordMetadata)
    assert_type(future.exception(), Exception | None)
    assert_type(producer.partitions_for_topic("orders"), set[int])


def consumers(consumer: pylog.Consumer) -> None:
    assert_type(consumer.poll(timeout_ms=100), dict[TopicPartition, list[Record]])
    for record in consumer:
        assert_type(record, Record)
    assert_type(consumer.position(TopicPartition("orders", 0)), int | None)
    consumer.commit({TopicPartition("orders", 0): OffsetAndMetadata(1)})


def groups(store: pylog.Store) -> None:
    store.offsets.commit("billing", {("orders", 0): 1})
    assert_type(store.offsets.fetch("billing"), dict[TopicPartition, OffsetAndMetadata])
    assert_type(store.group("billing").lag(), dict[TopicPartition, int])


async def coroutines(consumer: pylog.Consumer, producer: pylog.Producer) -> None:
    async with AsyncConsumer(consumer) as asynchronous:
        assert_type(await asynchronous.poll(), dict[TopicPartition, list[Record]])
        async for record in asynchronous:
            assert_type(record, Record)
    async with AsyncProducer(producer) as sender:
        assert_type(await sender.send("orders", b"paid"), RecordMetadata)


def fakes() -> pylog.Store:
    return pylog.open("/data", fs=FaultyFileSystem(MemoryFileSystem()))
