"""Checks of what callers give to `OffsetStore`: names of groups, partitions, numbers."""

from __future__ import annotations

import numpy as np

from pylog import limits
from pylog.errors import InvalidArgumentError
from pylog.record.types import TopicPartition


def checked_group(group: object) -> bytes:
    """The bytes of a group's name, checked."""
    if not isinstance(group, str):
        raise InvalidArgumentError(f"group={group!r} is not a group's name")
    name = encoded(group, "the group's name")
    if len(name) > limits.MAX_GROUP_BYTES:
        raise InvalidArgumentError(
            f"the group's name has {len(name)} bytes, more than the {limits.MAX_GROUP_BYTES} that keys have room for"
        )
    return name


def encoded(text: str, what: str, encoding: str = "utf-8") -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{what} has half of a surrogate pair, which is not text") from error


def checked_partition(partition: object) -> TopicPartition:
    """A partition that a caller names, checked for its form."""
    if isinstance(partition, TopicPartition) and isinstance(partition.partition, int):
        return partition
    if (
        isinstance(partition, tuple)
        and len(partition) == 2
        and isinstance(partition[0], str)
        and isinstance(partition[1], int | np.integer)
    ):
        return TopicPartition(partition[0], int(partition[1]))
    raise InvalidArgumentError(f"{partition!r} is not a partition: a pair of its topic and its number")


def checked_int(name: str, value: object, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value <= high:
        raise InvalidArgumentError(f"{name}={value!r} is not an int from 0 to {high}")
    return int(value)
