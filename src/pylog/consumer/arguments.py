"""Checks of the partitions and timestamps that callers give to a consumer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from pylog.arguments import is_int
from pylog.errors import InvalidArgumentError, InvalidTypeError
from pylog.record.types import TopicPartition

Timestamps = Mapping[TopicPartition, int | datetime]


def checked_partition(given: object) -> TopicPartition:
    """Returns a caller's partition, which may be a plain pair, as a `TopicPartition`."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        topic, number = given
        if is_int(number):
            return TopicPartition(topic, int(number))
    raise InvalidArgumentError(f"{given!r} is not a partition; give a TopicPartition, or a pair of topic and partition number")


def checked_partitions(given: Collection[object]) -> list[TopicPartition]:
    """Returns partitions in the given order, each once."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidArgumentError(f"{given!r} is not a list of partitions")
    return list(dict.fromkeys(map(checked_partition, given)))


def checked_times(given: object) -> list[tuple[TopicPartition, Any]]:
    """Returns partitions with the requested timestamps. The timestamps are not checked."""
    if not isinstance(given, Mapping):
        raise InvalidTypeError(f"{given!r} is not a mapping of partitions to timestamps, as in {{('orders', 0): 1700000000000}}")
    return [(checked_partition(partition), timestamp) for partition, timestamp in given.items()]
