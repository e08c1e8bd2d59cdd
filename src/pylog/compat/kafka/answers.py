"""pylog's answers to a consumer as kafka-python's: offsets, commits, and errors of partitions that do not exist."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pylog.compat.kafka import errors
from pylog.compat.kafka.future import Future
from pylog.compat.kafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from pylog.compat.kafka.translation import translated
from pylog.errors import UnknownTopicOrPartitionError
from pylog.offsets.offset_manager import PartitionLike
from pylog.record.types import OffsetAndMetadata as NativeOffset
from pylog.record.types import OffsetAndTimestamp as NativeFound


def checked_times(timestamps: Mapping[TopicPartition, float]) -> dict[TopicPartition, int]:
    """Returns times to search for as whole milliseconds. Raises ValueError if one is negative, or no finite number."""
    for partition, stamp in timestamps.items():
        if not 0 <= stamp < math.inf:
            raise ValueError(f"the time {stamp} for {partition} is {'negative' if stamp < 0 else 'not finite'}")
    return {partition: int(stamp) for partition, stamp in timestamps.items()}


def existing(ask: Any, partitions: Any) -> Any:
    """Returns what a call answers. Raises KafkaTimeoutError at once where kafka-python waits for a partition.

    Args:
        ask: the call.
        partitions: its argument.
    """
    try:
        return ask(partitions)
    except UnknownTopicOrPartitionError as error:
        raise errors.KafkaTimeoutError(f"{error}; nothing creates it") from error


def offsets_of(offsets: Mapping[Any, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns pylog's offsets as kafka-python's.

    Args:
        offsets: by partition.
    """
    found = {}
    for partition, each in offsets.items():
        native = each if isinstance(each, NativeOffset) else NativeOffset(each)
        found[TopicPartition(*partition)] = OffsetAndMetadata(native.offset, native.metadata, _epoch(native))
    return found


def native_offsets(offsets: Any) -> dict[PartitionLike, int | NativeOffset]:
    """Returns kafka-python's offsets as pylog's.

    Args:
        offsets: an OffsetAndMetadata for each TopicPartition.

    Raises:
        TypeError: they are not.
    """
    if not isinstance(offsets, Mapping) or not all(
        isinstance(partition, TopicPartition) and isinstance(offset, OffsetAndMetadata) for partition, offset in offsets.items()
    ):
        raise TypeError("offsets must be OffsetAndMetadata by TopicPartition")
    return {
        partition: NativeOffset(each.offset, each.metadata or "", None if each.leader_epoch == -1 else each.leader_epoch)
        for partition, each in offsets.items()
    }


def _epoch(found: Any) -> int:
    """Returns the leader epoch of an answer; kafka-python's word for none is -1."""
    return -1 if found.leader_epoch is None else int(found.leader_epoch)


class OffsetCommitResponse:
    """The response to a commit that succeeded: it has no fields."""


def response_to(error: BaseException | None) -> Any:
    """Returns what a callback of a commit is given: the error, or an object that is none."""
    return OffsetCommitResponse() if error is None else translated(error)


def settle(done: Future, error: BaseException | None) -> None:
    """Settles the future of a commit."""
    if error is None:
        done.success(OffsetCommitResponse())
    else:
        done.failure(translated(error))


def found_at(found: NativeFound | None) -> OffsetAndTimestamp | None:
    """Returns the answer to a search by time; None if nothing was found."""
    return None if found is None else OffsetAndTimestamp(found.offset, found.timestamp, _epoch(found))
