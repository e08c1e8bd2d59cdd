"""How records become aiokafka's `ConsumerRecord`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pylog.compat.aiokafka.structs import ConsumerRecord
from pylog.compat.kafka.records import ConsumerRecord as KafkaRecord
from pylog.compat.kafka.records import taking as taking_kafka
from pylog.compat.kafka.serializer import Call
from pylog.consumer.fetcher import TakeRecords
from pylog.consumer.partition import FetchBuffer, FetchedRecords


def taking(key: Callable[[Any], Any] | None, value: Callable[[Any], Any] | None) -> TakeRecords:
    """Returns how a consumer takes records from its buffers.

    Args:
        key, value: the deserializers, or None. They are called for None, too.
    """
    take_kafka = taking_kafka(_of_data(key), _of_data(value))

    def take(buffer: FetchBuffer, count: int) -> FetchedRecords:
        fetched = take_kafka(buffer, count)
        return fetched._replace(records=list(map(_record, fetched.records))) if len(fetched.records) else fetched

    return take


def _of_data(given: Callable[[Any], Any] | None) -> Call | None:
    if given is None:
        return None
    return lambda topic, headers, data: given(data)  # noqa: ARG005 - aiokafka's take the data alone


def _record(found: KafkaRecord) -> ConsumerRecord[Any, Any]:
    topic, partition, _, offset, stamp, kind, key, value, headers, checksum, key_size, value_size, _ = found
    return ConsumerRecord(
        topic,
        partition,
        offset,
        stamp,
        kind,
        key,
        value,
        checksum,
        key_size,
        value_size,
        tuple(headers),  # type: ignore[arg-type]
    )
