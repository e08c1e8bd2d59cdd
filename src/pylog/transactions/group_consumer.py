"""The group whose offsets a transaction commits, as a program gives it: a name, a membership, or a consumer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from pylog.arguments import check_kind
from pylog.errors import InvalidArgumentError
from pylog.offsets.group_metadata import ConsumerGroupMetadata
from pylog.offsets.offset_manager import PartitionLike
from pylog.record.types import OffsetAndMetadata, TopicPartition

Offsets = Mapping[PartitionLike, int | OffsetAndMetadata]


@runtime_checkable
class GroupConsumer(Protocol):
    """A consumer with a group, such as `pylog.Consumer`."""

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns its membership."""
        ...

    def assignment(self) -> set[TopicPartition]:
        """Returns its partitions."""
        ...

    def position(self, partition: TopicPartition) -> int | None:
        """Returns the offset of the next record that it reads."""
        ...


def metadata_of(group: object) -> ConsumerGroupMetadata:
    """Returns the membership that is given by a group's name, by itself, or by a consumer.

    Raises:
        InvalidArgumentError: it is none of them. IllegalStateError: the consumer has no group.
    """
    if isinstance(group, str):
        return ConsumerGroupMetadata(group)
    found = group.group_metadata() if isinstance(group, GroupConsumer) else group
    if not isinstance(found, ConsumerGroupMetadata):
        expected = "the name of a group, a consumer, or the group_metadata() of a consumer"
        raise InvalidArgumentError(f"a group of type {type(group).__name__} is not {expected}")
    for name in ("group_id", "member_id"):
        check_kind(name, getattr(found, name), str, "text")
    return found


def positions_of(group: object) -> Offsets:
    """Returns the positions of a consumer's partitions, without those that are not known yet."""
    if not isinstance(group, GroupConsumer):
        raise InvalidArgumentError("offsets are missing; give them, or a consumer, whose positions are then taken")
    positions = {partition: group.position(partition) for partition in group.assignment()}
    return {partition: offset for partition, offset in positions.items() if offset is not None}
