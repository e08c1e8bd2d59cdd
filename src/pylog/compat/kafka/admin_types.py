"""The values that kafka-python's administrator takes and returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple, Self

from pylog.compat.kafka import errors
from pylog.compat.kafka.enums import ConfigResourceType, TransactionState
from pylog.record.types import TopicPartition


class OffsetTimestamp(int):
    """A time in milliseconds, where an offset may stand too."""

    __slots__ = ()


class NewTopic:
    """A topic to create.

    Args:
        name: its name.
        num_partitions: their number; -1 is the default of the installation.
        replication_factor: any value; there is one copy.
        replica_assignments: brokers by partition; they give the number of partitions.
        topic_configs: options by Kafka's names.
    """

    def __init__(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignments: Mapping[int, Iterable[int]] | None = None,
        topic_configs: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignments = replica_assignments or {}
        self.topic_configs = topic_configs or {}


class NewPartitions:
    """A topic's new number of partitions.

    Args:
        total_count: the new number.
        new_assignments: brokers of the new partitions; ignored.
    """

    def __init__(self, total_count: int, new_assignments: Any = None) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments


class ConfigResource:
    """A topic or a broker whose options are described or altered.

    Args:
        resource_type: a `ConfigResourceType`, or its name.
        name: the topic's name, or the broker's id.
        configs: names of options, or values by name.
    """

    def __init__(self, resource_type: ConfigResourceType | str, name: str, configs: Any = None) -> None:
        if not isinstance(resource_type, ConfigResourceType):
            resource_type = ConfigResourceType[str(resource_type).upper()]
        self.resource_type = resource_type
        self.name = name
        self.configs = configs

    def __repr__(self) -> str:
        return f"ConfigResource({self.resource_type}, {self.name}, {self.configs})"


@dataclass(frozen=True)
class MemberToRemove:
    """A member to remove from its group.

    Attributes:
        member_id: the id of a dynamic member.
        group_instance_id: the name of a static one.
        reason: in words.
    """

    member_id: str | None = None
    group_instance_id: str | None = None
    reason: str | None = None


class ProducerState(NamedTuple):
    """A producer, as the log of a partition has it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class PartitionProducerState(NamedTuple):
    """The producers of a partition."""

    active_producers: list[ProducerState]


class TransactionListing(NamedTuple):
    """A transaction in a list."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """A transaction."""

    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    topic_partitions: set[TopicPartition]


class AbortTransactionSpec(NamedTuple):
    """A transaction to abort."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1


# ---- access control and passwords: these values can be made; the calls that take them are refused ----------------------------


class ResourceType(IntEnum):
    """The kinds of things that access is controlled for."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class ACLOperation(IntEnum):
    """The operations that access is controlled for."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ACLPermissionType(IntEnum):
    """Whether access is allowed."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ACLResourcePatternType(IntEnum):
    """How a pattern matches names."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class ScramMechanism(IntEnum):
    """How passwords are hashed."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


def _require(is_right: bool, message: str) -> None:
    if not is_right:
        raise errors.IllegalArgumentError(message)


@dataclass(frozen=True)
class ResourcePatternFilter:
    """Names of resources to look for.

    Attributes:
        resource_type, resource_name, pattern_type: the kind, the name, and how it matches.
    """

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: ACLResourcePatternType

    def __post_init__(self) -> None:
        _require(isinstance(self.resource_type, ResourceType), "resource_type is not a ResourceType")
        _require(isinstance(self.pattern_type, ACLResourcePatternType), "pattern_type is not an ACLResourcePatternType")


@dataclass(frozen=True)
class ResourcePattern(ResourcePatternFilter):
    """The resources that a rule is about."""

    pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.resource_type != ResourceType.ANY, "resource_type cannot be ANY")
        matches = ACLResourcePatternType.ANY, ACLResourcePatternType.MATCH
        _require(self.pattern_type not in matches, f"pattern_type cannot be {self.pattern_type.name} here")


@dataclass(frozen=True)
class ACLFilter:
    """Rules to look for.

    Attributes:
        principal, host, operation, permission_type, resource_pattern: the fields of the rules.
    """

    principal: str | None
    host: str | None
    operation: ACLOperation
    permission_type: ACLPermissionType
    resource_pattern: ResourcePatternFilter

    def __post_init__(self) -> None:
        _require(isinstance(self.operation, ACLOperation), "operation is not an ACLOperation")
        _require(isinstance(self.permission_type, ACLPermissionType), "permission_type is not an ACLPermissionType")
        _require(isinstance(self.resource_pattern, ResourcePatternFilter), "resource_pattern is not a ResourcePatternFilter")


@dataclass(frozen=True)
class ACL(ACLFilter):
    """A rule."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.operation != ACLOperation.ANY, "operation cannot be ANY")
        _require(self.permission_type != ACLPermissionType.ANY, "permission_type cannot be ANY")
        _require(isinstance(self.resource_pattern, ResourcePattern), "resource_pattern is not a ResourcePattern")


@dataclass(frozen=True)
class UserScramCredentialDeletion:
    """A password to delete.

    Attributes:
        user, mechanism: whose, and how it is hashed.
    """

    user: str
    mechanism: ScramMechanism


@dataclass(frozen=True)
class UserScramCredentialUpsertion:
    """A password to set.

    Attributes:
        user, mechanism, password, iterations, salt: whose, and how it is hashed.
    """

    user: str
    mechanism: ScramMechanism
    password: bytes | str
    iterations: int | None = None
    salt: bytes | None = None


_OLD_NAMES: Final = {  # version 2's of fields
    "topic": "name",
    "partition": "partition_index",
    "leader": "leader_id",
    "replicas": "replica_nodes",
    "isr": "isr_nodes",
}


class Answer(dict[Any, Any]):
    """An answer in version 3's shape, a dict. Version 2's names and attributes lead to the same values, and so do numbers."""

    def __missing__(self, key: Any) -> Any:
        return list(self.values())[key] if isinstance(key, int) else self[_OLD_NAMES[key]]

    def get(self, key: Any, default: Any = None) -> Any:
        """Returns a value by its name in version 3 or 2; the default if there is none.

        Args:
            key: the name.
            default: for a name that does not exist.
        """
        return super().get(key, super().get(_OLD_NAMES.get(key), default))

    def to_dict(self) -> Self:
        """Returns the answer itself."""
        return self

    to_object = to_dict

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def _rows(self) -> list[Any]:
        return list(self["topics"] if "topics" in self else self["results"])

    @property
    def topic_errors(self) -> list[tuple[str, int, str | None]]:
        """Version 2's: a topic, an error number and a message each."""
        return [(each["name"], each["error_code"], each["error_message"]) for each in self._rows]

    @property
    def topic_error_codes(self) -> list[tuple[str, int]]:
        """Version 2's: a topic and an error number each."""
        return [(each["name"], each["error_code"]) for each in self._rows]
