"""kafka-python's structures: named tuples with the fields of version 3, which also take the arguments of version 2."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

from pylog.compat.kafka.enums import Buildable
from pylog.record.types import TopicPartition

__all__ = [
    "BrokerMetadata",
    "ConsumerGroupMetadata",
    "GroupInformation",
    "IsolationLevel",
    "MemberInformation",
    "MemberState",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "PartitionMetadata",
    "RetryOptions",
    "TopicPartition",
    "TopicPartitionReplica",
]

UNJOINED: Final = "<unjoined>"


class MemberState:
    """The states of a group's member, as texts."""

    UNJOINED = UNJOINED
    REBALANCING = "<rebalancing>"
    STABLE = "<stable>"


class TopicPartitionReplica(NamedTuple):
    """A replica of a partition. There is one broker here, with the id 0."""

    topic: str
    partition: int
    broker_id: int


class OffsetAndMetadata(NamedTuple):
    """A committed offset.

    Attributes:
        offset: the offset of the next record to read.
        metadata: text of the application.
        leader_epoch: the leader epoch of the last record read; -1 if unknown.
    """

    offset: Any = None
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The result of a search by time.

    Attributes:
        offset: the offset of the record that was found.
        timestamp: its timestamp, in milliseconds.
        leader_epoch: the leader epoch of its batch; -1 if unknown.
    """

    offset: int
    timestamp: int
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership of its group.

    Attributes:
        group_id: the group; None without one.
        generation_id: the member's epoch; -1 if it has not joined.
        member_id: its id; empty if it has not joined.
        group_instance_id: the name of a static member, or None.
        state: one of the texts of `MemberState`.
    """

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = UNJOINED


class BrokerMetadata(NamedTuple):
    """A broker, as version 2 describes it."""

    nodeId: int  # noqa: N815 - kafka-python's name
    host: str
    port: int
    rack: str | None

    @property
    def node_id(self) -> int:
        """The broker's id, under the name of version 3."""
        return self.nodeId


class PartitionMetadata(NamedTuple):
    """A partition, as version 2 describes it."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]
    error: Any


class MemberInformation(NamedTuple):
    """A member of a group, as version 2 describes it."""

    member_id: str
    client_id: str
    client_host: str
    member_metadata: Any
    member_assignment: Any


class GroupInformation(NamedTuple):
    """A group, as version 2 describes it."""

    error_code: int
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[MemberInformation]
    authorized_operations: Any


class RetryOptions(NamedTuple):
    """Limits of repeated requests, from version 2."""

    limit: int
    backoff_ms: int
    retry_on_timeouts: bool


class IsolationLevel(Buildable, IntEnum):
    """Which records a consumer reads."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetSpec(Buildable, IntEnum):
    """Offsets that an administrator can ask for instead of a time."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
