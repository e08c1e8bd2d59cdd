"""Checks of what callers give to `OffsetStore`: names of groups, partitions, numbers."""

from __future__ import annotations

from pylog import limits
from pylog.arguments import is_int, items_of
from pylog.errors import InvalidArgumentError
from pylog.record.types import TopicPartition


def checked_group(group: object) -> bytes:
    """Returns the bytes of a group's name after checking it."""
    if not isinstance(group, str):
        raise InvalidArgumentError(f"group_id={group!r} is not a group's name")
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
    """Returns a partition that a caller names after checking its form."""
    if isinstance(partition, TopicPartition) and type(partition.partition) is int:
        return partition
    if isinstance(partition, tuple) and len(partition) == 2 and isinstance(partition[0], str) and is_int(partition[1]):
        return TopicPartition(partition[0], int(partition[1]))
    raise InvalidArgumentError(f"{partition!r} is not a partition: a pair of its topic and its number")


def checked_partitions(partitions: object) -> list[TopicPartition]:
    """Returns the partitions that a caller names, in the given order, each once."""
    return list(dict.fromkeys(map(checked_partition, items_of("partitions", partitions, "partitions"))))


def checked_metadata(metadata: object, limit: int) -> bytes:
    """Returns the bytes of a commit's metadata, of at most `limit` UTF-16 code units; for None, no bytes."""
    if metadata is None:  # groups-and-transactions 1.6
        return b""
    if not isinstance(metadata, str):
        raise InvalidArgumentError(f"metadata of type {type(metadata).__name__} is not text")
    if not metadata:
        return b""
    # Java counts characters, whatever the option's name says
    if len(metadata) > limit or len(encoded(metadata, "metadata", "utf-16-le")) > 2 * limit:
        raise InvalidArgumentError(f"metadata of {len(metadata)} characters is more than {limit} UTF-16 code units")
    return encoded(metadata, "metadata")
