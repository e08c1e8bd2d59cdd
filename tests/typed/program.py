"""A program that uses the public interface: `mypy --strict` accepts it, and infers these types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Unpack, assert_type

import pylog
import pylog.aio
from pylog import OffsetAndMetadata, OffsetAndTimestamp, Record, RecordMetadata, TopicPartition
from pylog.aio import AsyncConsumer, AsyncIteration, AsyncLog, AsyncProducer, AsyncStore
from pylog.consumer.options import ConsumerArguments
from pylog.testing import FaultyFileSystem, MemoryFileSystem


def stores(path: str) -> None:
    assert_type(pylog.open(path, durability="os"), pylog.Store)
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
    log.append(b"paid", durability="os")
    log.append_many([b"paid"], durability="interval:50")
    log.append(b"paid", durability=pylog.Durability.SYNC)
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


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def number(data: bytes) -> int:
    return int(data)


def with_topic(value: int, topic: str, headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    return f"{topic} {value}".encode()


def from_topic(data: bytes, topic: str, headers: tuple[tuple[str, bytes | None], ...]) -> int:
    return int(data)


class Numbers:
    def serialize(self, topic: str, headers: Sequence[tuple[str, bytes | None]], data: int) -> bytes:
        return b"%d" % data

    def deserialize(self, topic: str, headers: Sequence[tuple[str, bytes | None]], data: bytes | None) -> int | None:
        return None if data is None else int(data)


def topics_with_options(store: pylog.Store, options: dict[str, Any]) -> None:
    store.create_topic("orders", 2, exist_ok=True, cleanup_policy="compact", durability="os", min_cleanable_dirty_ratio=0)
    store.create_topic("orders", config={"retention.ms": 5}, segment_bytes=1 << 20)
    store.create_topic("orders", **options)
    store.alter_topic("orders", retention_ms=None, durability="interval:5", retention_group=None)


def typed_producers(store: pylog.Store, options: dict[str, Any]) -> None:
    assert_type(store.producer(), pylog.Producer)
    assert_type(store.producer(), pylog.Producer[bytes | None, bytes | None])
    assert_type(store.producer(linger_ms=0.5, acks="all", durability="os"), pylog.Producer[bytes | None, bytes | None])
    assert_type(store.producer(value_serializer=None), pylog.Producer)
    texts = store.producer(value_serializer=str.encode)
    assert_type(texts, pylog.Producer[bytes | None, str])
    texts.send("orders", "paid", b"42")
    texts.send("orders", None)
    both = store.producer(key_serializer=str.encode, value_serializer=encoded)
    assert_type(both, pylog.Producer[str, object])
    both.send("orders", {"cents": 1999}, key="42", headers=[("trace", b"1")])
    any_value = store.producer(value_serializer=lambda value: json.dumps(value).encode())
    # pyright takes a lambda for one of bytes, the default: it needs a function that names the type of its argument
    assert_type(any_value, pylog.Producer[bytes | None, Any])  # pyright: ignore[reportAssertTypeFailure]
    any_value.send("orders", {"cents": 1999})  # pyright: ignore[reportArgumentType]
    assert_type(store.producer(value_serializer=with_topic), pylog.Producer[bytes | None, int])
    assert_type(store.producer(value_serializer=Numbers()), pylog.Producer[bytes | None, int])
    store.producer(**options).send("orders", 5)


def typed_consumers(store: pylog.Store, options: dict[str, Any]) -> None:
    assert_type(store.consumer("orders"), pylog.Consumer)
    assert_type(store.consumer("orders"), pylog.Consumer[bytes | None, bytes | None])
    assert_type(store.consumer("orders", "audit", group_id="billing", consumer_timeout_ms=0.5), pylog.Consumer)
    assert_type(store.consumer("orders", partition_assignment_strategy=["range"]), pylog.Consumer)
    texts = store.consumer("orders", value_deserializer=bytes.decode)
    assert_type(texts, pylog.Consumer[bytes | None, str])
    assert_type(texts.poll(), dict[TopicPartition, list[Record[bytes | None, str]]])
    assert_type(next(texts).value, str)
    for record in texts:
        assert_type((record.key, record.value), tuple[bytes | None, str])
    both = store.consumer("orders", key_deserializer=number, value_deserializer=json.loads)
    assert_type(both, pylog.Consumer[int, Any])
    for numbered in both:
        assert_type(numbered, Record[int, Any])
    assert_type(store.consumer("orders", value_deserializer=from_topic), pylog.Consumer[bytes | None, int])
    assert_type(store.consumer("orders", value_deserializer=Numbers()), pylog.Consumer[bytes | None, int | None])
    assert_type(store.consumer(**options), pylog.Consumer[Any, Any])
    assert_type(Record("orders", 0, 0, 0, "42", 5), Record[str, int])
    shown(next(texts))


def shown(record: Record[object, object]) -> str:
    return repr(record)


def with_own_defaults(store: pylog.Store, **options: Unpack[ConsumerArguments[bytes | None, str]]) -> None:
    assert_type(store.consumer("orders", **options), pylog.Consumer[bytes | None, str])


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
        assert_type(await sender.send_and_wait("orders", b"paid"), RecordMetadata)
        assert_type(await sender.send_and_wait("orders", b"paid", key=b"42", on_delivery=print), RecordMetadata)


async def typed_coroutines(store: pylog.Store) -> None:
    async with AsyncConsumer(store.consumer("orders", value_deserializer=bytes.decode)) as consumer:
        assert_type(consumer, AsyncConsumer[bytes | None, str])
        assert_type(await consumer.poll(), dict[TopicPartition, list[Record[bytes | None, str]]])
        assert_type(await consumer.getmany(), dict[TopicPartition, list[Record[bytes | None, str]]])
        assert_type((await consumer.getone()).value, str)
        async for record in consumer:
            assert_type(record, Record[bytes | None, str])
    async with AsyncProducer(store.producer(key_serializer=str.encode)) as producer:
        assert_type(producer, AsyncProducer[str, bytes | None])
        await producer.send_and_wait("orders", b"paid", key="42")


def fakes() -> pylog.Store:
    return pylog.open("/data", fs=FaultyFileSystem(MemoryFileSystem()))


async def administered(path: str) -> None:
    async with pylog.aio.open(path, durability="os") as store:
        assert_type(store, AsyncStore)
        assert_type(await store.create_topic("orders", 2, retention_ms=-1), pylog.Topic)
        assert_type(await store.topics(), dict[str, pylog.Topic])
        assert_type(await store.groups(), list[str])
        assert_type(await store.run(lambda each: each.group("billing").lag()), dict[TopicPartition, int])
        assert_type(await store.producer(value_serializer=str.encode), AsyncProducer[bytes | None, str])
        assert_type(await store.consumer("orders", value_deserializer=bytes.decode), AsyncConsumer[bytes | None, str])
        log = await store.log("orders")
        assert_type(log, AsyncLog)
        assert_type(await log.append(b"paid", key=b"42"), int)
        assert_type(log.records(), AsyncIteration[Record])
        async for record in log.records():
            assert_type(record.value, bytes | None)
    assert_type(await pylog.aio.open(path, mode="r"), AsyncStore)
