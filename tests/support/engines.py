"""The engines under public objects, for tests of what they promise and users do not see."""

from __future__ import annotations

import pylog
from pylog.consumer.assignment import ConsumerAssignment
from pylog.consumer.core import ConsumerCore
from pylog.log.arguments import records_of
from pylog.log.partition_log import PartitionLog
from pylog.log.writing.partition_writer import PartitionWriter
from pylog.producer.buffer import RecordAccumulator
from pylog.producer.core import ProducerCore
from pylog.segment.segment import LogSegment


def engine_of(log: pylog.Log) -> PartitionLog:
    """The `PartitionLog` that a `Log` delegates to."""
    return log._partition_log


def writer_of(log: pylog.Log) -> PartitionWriter:
    """The side of a log's engine that changes the partition."""
    return engine_of(log).writer()


def segments_of(log: pylog.Log) -> list[LogSegment]:
    """A log's segments as they are now, oldest first."""
    return engine_of(log).snapshot().segments.values()


def append_as_another_program(log: pylog.Log, *records: tuple[bytes | None, bytes | None]) -> None:
    """Appends (key, value) records to one of Kafka's internal topics, which `Log` refuses."""
    engine = engine_of(log)
    now_ms = engine.clock.now_ms()
    engine.append(now_ms, records_of(records, now_ms), by_owner=True)


def buffer_of(producer: pylog.Producer) -> RecordAccumulator:
    """The records of a producer that wait for its thread."""
    return producer._buffer


def producers_of(store: pylog.Store) -> list[ProducerCore]:
    """The cores of a store's open producers."""
    return store._clients._producers


def assignment_of(consumer: pylog.Consumer) -> ConsumerAssignment:
    """The partitions of a consumer."""
    return consumer._assignment


def departing_of(store: pylog.Store) -> list[ConsumerCore]:
    """The cores of consumers that were dropped without `close`, and have not left their groups yet."""
    return store._clients.departing
