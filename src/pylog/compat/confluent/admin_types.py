"""The values that confluent-kafka's administrator takes and returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import total_ordering
from typing import Any, ClassVar

from pylog.compat.confluent.model import ConsumerGroupState, ConsumerGroupType, Node, Ordered, TopicPartitionInfo, Uuid
from pylog.compat.confluent.structs import TopicPartition


class ResourceType(Ordered):
    """A kind of resource."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    BROKER = 4
    TRANSACTIONAL_ID = 5


class ConfigSource(Ordered):
    """The place where an option was set."""

    UNKNOWN_CONFIG = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8


class AlterConfigOpType(Ordered):
    """A change of an option."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class NewTopic:
    """A topic to create.

    Args:
        topic: its name.
        num_partitions: their number; -1 is the default of the installation.
        replication_factor: any value; there is one copy.
        replica_assignment: a list of brokers for each partition.
        config: options by Kafka's names.
    """

    def __init__(
        self,
        topic: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        replica_assignment: list[list[int]] | None = None,
        config: dict[str, str] | None = None,
    ) -> None:
        _check_text("topic", topic)
        _check_number("num_partitions", num_partitions)
        _check_number("replication_factor", replication_factor)
        self.topic = topic
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignment = replica_assignment
        self.config = config

    def __repr__(self) -> str:
        count = "" if self.num_partitions == -1 else f",num_partitions={self.num_partitions}"
        return f"NewTopic(topic={self.topic}{count})"


class NewPartitions:
    """A topic's new number of partitions.

    Args:
        topic: the topic.
        new_total_count: the new number.
        replica_assignment: a list of brokers for each new partition; ignored.
    """

    def __init__(self, topic: str, new_total_count: int, replica_assignment: list[list[int]] | None = None) -> None:
        _check_text("topic", topic)
        _check_number("new_total_count", new_total_count)
        self.topic = topic
        self.new_total_count = new_total_count
        self.replica_assignment = replica_assignment

    def __repr__(self) -> str:
        return f"NewPartitions(topic={self.topic},new_total_count={self.new_total_count})"


@dataclass
class ConfigEntry:
    """An option.

    Attributes:
        name, value: its own.
        source: the place where it was set.
        is_read_only, is_default, is_sensitive, is_synonym: what they say.
        synonyms: none.
        incremental_operation: how `incremental_alter_configs` changes it.
    """

    name: str
    value: str | None
    source: ConfigSource = ConfigSource.UNKNOWN_CONFIG
    is_read_only: bool = False
    is_default: bool = False
    is_sensitive: bool = False
    is_synonym: bool = False
    synonyms: dict[str, ConfigEntry] = field(default_factory=dict)
    incremental_operation: AlterConfigOpType | None = None

    def __repr__(self) -> str:
        return f'ConfigEntry({self.name}="{self.value}")'

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'


@total_ordering
class ConfigResource:
    """A topic or a broker whose options are described or altered.

    Args:
        restype: a `ResourceType`, its name or its number.
        name: the topic's name, or the broker's id.
        set_config: values by option.
        described_configs, error: kept and not used.
        incremental_configs: options with their changes.

    Raises:
        ValueError: there is no such kind, or the name is None.
    """

    Type: ClassVar = ResourceType

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        set_config: dict[str, str] | None = None,
        described_configs: dict[str, ConfigEntry] | None = None,
        error: object = None,
        incremental_configs: list[ConfigEntry] | None = None,
    ) -> None:
        if name is None:
            raise ValueError("the name of a resource is a string, not None")
        self.restype = ResourceType.of(restype)
        self.restype_int = int(self.restype.value)
        self.name = name
        self.set_config_dict = dict(set_config or {})
        self.incremental_configs = list(incremental_configs or [])
        self.configs = described_configs
        self.error = error

    def set_config(self, name: str, value: str, overwrite: bool = True) -> None:
        """Adds an option.

        Args:
            name, value: the option.
            overwrite: false to keep a value that it has already.
        """
        if overwrite or name not in self.set_config_dict:
            self.set_config_dict[name] = value

    def add_incremental_config(self, config_entry: ConfigEntry) -> None:
        """Adds a change for `incremental_alter_configs`."""
        self.incremental_configs.append(config_entry)

    def __repr__(self) -> str:
        return f"ConfigResource({self.restype},{self.name})"

    def __hash__(self) -> int:
        return hash((self.restype, self.name))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigResource) and (self.restype, self.name) == (other.restype, other.name)

    def __lt__(self, other: ConfigResource) -> bool:
        return (self.restype.value, self.name) < (other.restype.value, other.name)

    def __len__(self) -> int:
        return len(self.set_config_dict)


class OffsetSpec:
    """An offset to search: an end of a partition, or the first one at or after a time.

    >>> OffsetSpec.latest() is OffsetSpec.latest(), OffsetSpec.for_timestamp(5)
    (True, OffsetSpec(5))
    """

    _known: ClassVar[dict[int, OffsetSpec]] = {}

    def __init__(self, index: int) -> None:
        self._value = index

    @classmethod
    def _of(cls, value: int) -> OffsetSpec:
        return cls._known.setdefault(value, cls(value))

    @classmethod
    def earliest(cls) -> OffsetSpec:
        """Returns the log start."""
        return cls._of(-2)

    @classmethod
    def latest(cls) -> OffsetSpec:
        """Returns the end."""
        return cls._of(-1)

    @classmethod
    def max_timestamp(cls) -> OffsetSpec:
        """Returns the record with the largest timestamp."""
        return cls._of(-3)

    @classmethod
    def for_timestamp(cls, timestamp: int) -> OffsetSpec:
        """Returns the first record at or after a time in milliseconds."""
        return cls(timestamp)

    def __lt__(self, other: OffsetSpec) -> bool:
        return self._value < other._value

    def __repr__(self) -> str:
        return f"OffsetSpec({self._value})"


class ListOffsetsResultInfo:
    """An offset that was found.

    Args:
        offset, timestamp: the record's; -1 for none.
        leader_epoch: the record's; negative for none.
    """

    def __init__(self, offset: int, timestamp: int, leader_epoch: int) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.leader_epoch = None if leader_epoch < 0 else leader_epoch


@dataclass
class DeletedRecords:
    """The result of a deletion of records.

    Attributes:
        low_watermark: the new log start.
    """

    low_watermark: int


class AclOperation(Ordered):
    """A right of a user."""

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


@dataclass
class TopicDescription:
    """A topic.

    Attributes:
        name, topic_id: its own.
        is_internal: whether the store writes it.
        partitions: its partitions.
        authorized_operations: None, or what the program may do.
    """

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: list[TopicPartitionInfo]
    authorized_operations: list[AclOperation] | None = None


@dataclass
class DescribeClusterResult:
    """The cluster.

    Attributes:
        controller, nodes: its one broker.
        cluster_id: its name.
        authorized_operations: None, or what the program may do.
    """

    controller: Node
    nodes: list[Node]
    cluster_id: str | None = None
    authorized_operations: list[AclOperation] | None = None


@dataclass
class ConsumerGroupListing:
    """A group in a list.

    Attributes:
        group_id: its name.
        is_simple_consumer_group: whether its members share no partitions.
        state, type: its own.
    """

    group_id: str
    is_simple_consumer_group: bool
    state: ConsumerGroupState | None = None
    type: ConsumerGroupType | None = None


@dataclass
class ListConsumerGroupsResult:
    """Groups.

    Attributes:
        valid: the groups.
        errors: none.
    """

    valid: list[ConsumerGroupListing] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)


@dataclass
class MemberAssignment:
    """The partitions of a member.

    Attributes:
        topic_partitions: the partitions.
    """

    topic_partitions: list[TopicPartition]


@dataclass
class MemberDescription:
    """A member of a group.

    Attributes:
        member_id, client_id, host, group_instance_id: its own.
        assignment: its partitions.
        target_assignment: None.
    """

    member_id: str
    client_id: str
    host: str
    assignment: MemberAssignment
    group_instance_id: str | None = None
    target_assignment: MemberAssignment | None = None


@dataclass
class ConsumerGroupDescription:
    """A group.

    Attributes:
        group_id, state, type, partition_assignor: its own.
        is_simple_consumer_group: whether its members share no partitions.
        members: its members.
        coordinator: the one broker.
        authorized_operations: None, or what the program may do.
    """

    group_id: str
    is_simple_consumer_group: bool
    members: list[MemberDescription]
    partition_assignor: str
    state: ConsumerGroupState
    coordinator: Node
    authorized_operations: list[AclOperation] | None = None
    type: ConsumerGroupType = ConsumerGroupType.UNKNOWN


class GroupMember:
    """A member of a group, as the older `list_groups` returns it.

    Attributes:
        id, client_id, client_host: its own.
        metadata, assignment: empty bytes.
    """

    def __init__(self) -> None:
        self.id: str | None = None
        self.client_id: str | None = None
        self.client_host: str | None = None
        self.metadata = self.assignment = b""


class GroupMetadata:
    """A group, as the older `list_groups` returns it.

    Attributes:
        broker: the one broker.
        id, state, protocol_type, protocol, members: the group's.
        error: None.
    """

    def __init__(self) -> None:
        self.broker: Any = None
        self.id: str | None = None
        self.error: object = None
        self.state: str | None = None
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members: list[GroupMember] = []

    def __repr__(self) -> str:
        return f"GroupMetadata({self.id})"

    def __str__(self) -> str:
        return str(self.id)


def _check_text(name: str, given: object) -> None:
    if not isinstance(given, str):
        raise TypeError(f"{name}={given!r} is no text")


def _check_number(name: str, given: object) -> None:
    if not isinstance(given, int):
        raise TypeError(f"{name}={given!r} is no whole number")
