"""What `mypy --strict` refuses: each line has the error that it expects, and one that is not found is an error itself."""

from __future__ import annotations

import pylog
import pylog.aio
from pylog.aio import AsyncConsumer, AsyncLog, AsyncProducer, AsyncStore
from pylog.compat.fixture import KafkaForTests


def wrong(store: pylog.Store, log: pylog.Log, producer: pylog.Producer, consumer: pylog.Consumer) -> None:
    log.append("paid")  # type: ignore[arg-type]
    log.append(b"paid", durabilty=None)  # type: ignore[call-arg]
    log.append(b"paid", durability=5)  # type: ignore[arg-type]
    log.scan(isolation="read_committed")  # type: ignore[call-arg]
    log.read("0")  # type: ignore[arg-type]
    producer.send("orders", b"paid", timestamp_ms=1)  # type: ignore[call-arg]
    assert producer.send("orders", b"paid").value  # type: ignore[attr-defined]
    producer.partitions_for("orders")  # type: ignore[attr-defined]
    consumer.collect(0)  # type: ignore[attr-defined]
    store.clean("orders")  # type: ignore[attr-defined]
    assert store.topic("orders").partitions  # type: ignore[attr-defined]
    store.offsets.change("g", None)  # type: ignore[attr-defined]
    store.topic("orders").partition_count = 3  # type: ignore[misc]
    pylog.TopicPartition("orders", 0).partition = 1  # type: ignore[misc]
    log.read(0).value = b"other"  # type: ignore[misc]
    pylog.open("/data", durability=5)  # type: ignore[arg-type]
    pylog.open("/data", durabilty="sync")  # type: ignore[call-arg]


def wrong_options(store: pylog.Store, kafka: KafkaForTests) -> None:
    store.create_topic("orders", retenton_ms=5)  # type: ignore[call-arg]
    store.create_topic("orders", retention_ms="7d")  # type: ignore[arg-type]
    store.create_topic("orders", retention_ms=None)  # type: ignore[arg-type]
    store.create_topic("orders", 2, num_partitions=2)  # type: ignore[call-arg]
    store.create_topic("orders", config=5)  # type: ignore[arg-type]
    store.alter_topic("orders", retenton_ms=5)  # type: ignore[call-arg]
    store.alter_topic("orders", retention_ms="7d")  # type: ignore[arg-type]
    store.alter_topic("orders", partition_count=2)  # type: ignore[call-arg]
    kafka.topic("orders", retenton_ms=5)  # type: ignore[call-arg]
    store.consumer("orders", grup_id="billing")  # type: ignore[call-arg]
    store.consumer("orders", group_id=5)  # type: ignore[arg-type]
    store.consumer("orders", enable_auto_commit="yes")  # type: ignore[arg-type]
    store.consumer("orders", bootstrap_servers="localhost:9092")  # type: ignore[call-arg]
    store.consumer(["orders"])  # type: ignore[arg-type]
    store.consumer("orders", value_deserializer=str.upper)  # type: ignore[arg-type]
    store.consumer("orders", value_deserializer=object())  # type: ignore[arg-type]
    store.producer(linger=5)  # type: ignore[call-arg]
    store.producer(linger_ms="5")  # type: ignore[arg-type]
    store.producer(acks=0)  # type: ignore[arg-type]
    store.producer(value_serializer=str.upper)  # type: ignore[arg-type]
    store.producer(key_serializer="utf-8")  # type: ignore[arg-type]


def wrong_values(store: pylog.Store) -> None:
    store.producer().send("orders", "paid")  # type: ignore[arg-type]
    store.producer(value_serializer=str.encode).send("orders", 5)  # type: ignore[arg-type]
    store.producer(value_serializer=str.encode).send("orders", "paid", "42")  # type: ignore[arg-type]
    store.producer(key_serializer=str.encode).send("orders", b"paid", 42)  # type: ignore[arg-type]
    texts: pylog.Consumer[bytes | None, int] = store.consumer("orders", value_deserializer=bytes.decode)  # type: ignore[arg-type]
    for record in texts:
        record.value.upper()  # type: ignore[attr-defined]


async def wrong_coroutines(consumer: pylog.Consumer, producer: pylog.Producer[str, str]) -> None:
    sender = AsyncProducer(producer)
    await sender.send_and_wait("orders", b"paid")  # type: ignore[arg-type]
    await sender.send_and_wait("orders", "paid", key=b"42")  # type: ignore[arg-type]
    await sender.send_and_wait("orders", "paid", timestamp_ms=1)  # type: ignore[call-arg]
    await sender.send_and_wait("orders", "paid", partiton=1)  # type: ignore[call-arg]
    AsyncConsumer(consumer, group_id="billing")  # type: ignore[call-arg]
    (await AsyncConsumer(consumer).getone()).value.upper()  # type: ignore[union-attr]


async def wrong_stores_of_coroutines(store: AsyncStore, log: AsyncLog) -> None:
    await store.create_topic("orders", retenton_ms=5)  # type: ignore[call-arg]
    await store.producer(linger=5)  # type: ignore[call-arg]
    await log.append("paid")  # type: ignore[arg-type]
    await log.append_many(b"paid", codec="lz4")  # type: ignore[call-arg]
    await pylog.aio.open("/data", durabilty="sync")  # type: ignore[call-arg]
