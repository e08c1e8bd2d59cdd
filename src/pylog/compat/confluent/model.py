"""confluent-kafka's values of administration that its first module has: brokers, groups, partitions, and enumerations."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Self

from pylog.compat.confluent.structs import TopicPartition
from pylog.compat.kafka.metadata import NODE


class Ordered(Enum):
    """An enumeration whose members have an order."""

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < other.value) if isinstance(other, type(self)) else NotImplemented

    @classmethod
    def of(cls, given: Any) -> Self:
        """Returns the member that a program gave itself, by name in any case, or by number.

        Raises:
            ValueError: there is none.
        """
        if isinstance(given, str) and given.upper() in cls.__members__:
            return cls[given.upper()]
        try:
            return cls(given)
        except ValueError:
            raise ValueError(f"{given!r} is none of {', '.join(cls.__members__)}") from None


class ConsumerGroupState(Ordered):
    """The state of a group."""

    UNKNOWN = 0
    PREPARING_REBALANCING = 1
    COMPLETING_REBALANCING = 2
    STABLE = 3
    DEAD = 4
    EMPTY = 5


class ConsumerGroupType(Ordered):
    """The protocol of a group."""

    UNKNOWN = 0
    CONSUMER = 1
    CLASSIC = 2


class ElectionType(Ordered):
    """How a leader is elected."""

    PREFERRED = 0
    UNCLEAN = 1


class IsolationLevel(Ordered):
    """Whether records of open and aborted transactions are read."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class AcknowledgeType(IntEnum):
    """What became of a record of a share group, which pylog does not have."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3


@dataclass
class Node:
    """A broker.

    Attributes:
        id, host, port, rack: its own.
    """

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def id_string(self) -> str:
        """The id as text."""
        return str(self.id)

    def __str__(self) -> str:
        return f"({self.id}) {self.host}:{self.port}{f' (Rack - {self.rack})' if self.rack else ''}"


BROKER = Node(NODE.node_id, NODE.host, NODE.port)


@dataclass
class TopicPartitionInfo:
    """A partition.

    Attributes:
        id: its number.
        leader: its broker.
        replicas, isr: the brokers with copies.
    """

    id: int
    leader: Node
    replicas: list[Node]
    isr: list[Node]


@dataclass
class TopicCollection:
    """Topics to describe.

    Attributes:
        topic_names: their names.
    """

    topic_names: list[str]


@dataclass
class ConsumerGroupTopicPartitions:
    """A group with partitions.

    Attributes:
        group_id: the group.
        topic_partitions: partitions with offsets; None for all.
    """

    group_id: str
    topic_partitions: list[TopicPartition] | None = None


class Uuid:
    """The id of a topic.

    Args:
        most_significant_bits, least_significant_bits: its halves, as signed numbers.

    >>> Uuid(1, 2)
    AAAAAAAAAAEAAAAAAAAAAg
    """

    def __init__(self, most_significant_bits: int, least_significant_bits: int) -> None:
        self._halves = most_significant_bits, least_significant_bits

    @classmethod
    def of(cls, number: int) -> Self:
        """Returns the id for a number of 128 bits."""
        high, low = number.to_bytes(16)[:8], number.to_bytes(16)[8:]
        return cls(int.from_bytes(high, signed=True), int.from_bytes(low, signed=True))

    def get_most_significant_bits(self) -> int:
        """Returns the first half."""
        return self._halves[0]

    def get_least_significant_bits(self) -> int:
        """Returns the second half."""
        return self._halves[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Uuid) and self._halves == other._halves

    def __hash__(self) -> int:
        return hash(self._halves)

    def __str__(self) -> str:
        raw = b"".join(half.to_bytes(8, signed=True) for half in self._halves)
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    __repr__ = __str__
