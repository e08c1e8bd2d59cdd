"""What `mypy --strict` refuses: each line has the error that it expects, and one that is not found is an error itself."""

from __future__ import annotations

import pylog


def wrong(store: pylog.Store, log: pylog.Log, producer: pylog.Producer, consumer: pylog.Consumer) -> None:
    log.append("paid")  # type: ignore[arg-type]
    log.append(b"paid", durabilty=None)  # type: ignore[call-arg]
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
    pylog.open("/data", durability="sync")  # type: ignore[arg-type]
