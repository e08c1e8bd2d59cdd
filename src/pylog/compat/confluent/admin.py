"""confluent-kafka's `AdminClient` on a pylog store, with the names of `confluent_kafka.admin`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NoReturn, Self

from pylog.compat.clusters import CLUSTERS
from pylog.compat.confluent.admin_groups import GroupsOfAdmin
from pylog.compat.confluent.admin_topics import TopicsOfAdmin
from pylog.compat.confluent.admin_types import (
    AclOperation,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConsumerGroupDescription,
    ConsumerGroupListing,
    DeletedRecords,
    DescribeClusterResult,
    GroupMember,
    GroupMetadata,
    ListConsumerGroupsResult,
    ListOffsetsResultInfo,
    MemberAssignment,
    MemberDescription,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from pylog.compat.confluent.configuration import Given
from pylog.compat.confluent.contradictions import check_producer
from pylog.compat.confluent.errors import KafkaError, KafkaException, Translating, failed
from pylog.compat.confluent.events import Events
from pylog.compat.confluent.futures import check_list, check_timeouts, each_settled, settled
from pylog.compat.confluent.metadata import (
    CLUSTER_ID,
    BrokerMetadata,
    ClusterMetadata,
    Lookups,
    PartitionMetadata,
    TopicMetadata,
)
from pylog.compat.confluent.model import BROKER, ElectionType
from pylog.compat.confluent.native_admin import NativeAdmin
from pylog.compat.confluent.security import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    ResourcePatternType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from pylog.compat.confluent.structs import OFFSET_INVALID, TopicPartition

__all__ = [
    "CONFIG_SOURCE_DEFAULT_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG",
    "CONFIG_SOURCE_GROUP_CONFIG",
    "CONFIG_SOURCE_STATIC_BROKER_CONFIG",
    "CONFIG_SOURCE_UNKNOWN_CONFIG",
    "OFFSET_INVALID",
    "RESOURCE_ANY",
    "RESOURCE_BROKER",
    "RESOURCE_GROUP",
    "RESOURCE_TOPIC",
    "RESOURCE_TRANSACTIONAL_ID",
    "RESOURCE_UNKNOWN",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AdminClient",
    "AlterConfigOpType",
    "BrokerMetadata",
    "ClusterMetadata",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "DeletedRecords",
    "DescribeClusterResult",
    "GroupMember",
    "GroupMetadata",
    "KafkaError",
    "KafkaException",
    "ListConsumerGroupsResult",
    "ListOffsetsResultInfo",
    "MemberAssignment",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "PartitionMetadata",
    "ResourcePatternType",
    "ResourceType",
    "ScramCredentialInfo",
    "ScramMechanism",
    "TopicDescription",
    "TopicMetadata",
    "UserScramCredentialAlteration",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentialsDescription",
]

CONFIG_SOURCE_UNKNOWN_CONFIG: Final = 0
CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG: Final = 1
CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG: Final = 2
CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
CONFIG_SOURCE_STATIC_BROKER_CONFIG: Final = 4
CONFIG_SOURCE_DEFAULT_CONFIG: Final = 5
CONFIG_SOURCE_GROUP_CONFIG: Final = 8
RESOURCE_UNKNOWN: Final = 0
RESOURCE_ANY: Final = 1
RESOURCE_TOPIC: Final = 2
RESOURCE_GROUP: Final = 3
RESOURCE_BROKER: Final = 4
RESOURCE_TRANSACTIONAL_ID: Final = 5


class AdminClient(TopicsOfAdmin, GroupsOfAdmin, Lookups):
    """Administers topics and groups. There is one broker, 0, and one copy of each partition.

    The futures are done when a call returns. They have a `KafkaException` where a broker would answer with an error.

    Args:
        conf: the options, with confluent-kafka's names.
        kwargs: more options.

    Raises:
        KafkaException: an option is wrong. TypeError: the options are no dict.

    >>> from pylog.compat.confluent.admin import AdminClient, NewTopic
    >>> admin = AdminClient({"bootstrap.servers": "pylog+memory://confluent-admin"})
    >>> admin.create_topics([NewTopic("orders", 2)])["orders"].result()
    >>> admin.list_topics().topics
    {'orders': TopicMetadata(orders, 2 partitions)}
    """

    def __init__(self, conf: Mapping[str, Any], **kwargs: Any) -> None:
        if not isinstance(conf, Mapping):
            raise TypeError("the options are no dict")
        given = Given(conf, kwargs)
        check_producer(given.values)
        servers = given.take("bootstrap.servers")
        self._events = Events(given, "administrator")
        with Translating():
            self._cluster = CLUSTERS.of(servers)
        self._admin = NativeAdmin(self._cluster)

    def __len__(self) -> int:
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing: the store stays open for other clients."""

    def poll(self, timeout: float = -1) -> int:  # noqa: ARG002
        """Calls `stats_cb` if it is due. Returns how many calls it made.

        Args:
            timeout: seconds; it does not wait.
        """
        return self._events.deliver(dict)

    def describe_cluster(
        self, *, include_authorized_operations: bool = False, request_timeout: float | None = None
    ) -> Future[DescribeClusterResult]:
        """Returns the one broker.

        Args:
            include_authorized_operations: true for the rights of the program.
            request_timeout: seconds; not needed.

        Returns:
            A future of a `DescribeClusterResult`.
        """
        check_timeouts(request_timeout=request_timeout)
        rights = [AclOperation.ALL] if include_authorized_operations else None
        return settled(lambda: DescribeClusterResult(BROKER, [BROKER], CLUSTER_ID, rights))

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: list[TopicPartition] | None = None,
        *,
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> Future[dict[TopicPartition, KafkaException | None]]:
        """Elects nobody: each partition's leader is broker 0.

        Args:
            election_type: any.
            partitions: the partitions; None elects where it is needed, so nowhere.
            operation_timeout: seconds; not needed.
            request_timeout: seconds; not needed.

        Returns:
            A future of an error by partition: `ELECTION_NOT_NEEDED`, or `UNKNOWN_TOPIC_OR_PART`.
        """
        check_timeouts(operation_timeout=operation_timeout, request_timeout=request_timeout)
        if not isinstance(election_type, ElectionType):
            raise TypeError(f"election_type={election_type!r} is not an ElectionType")
        wanted = [] if partitions is None else check_list(partitions, TopicPartition, may_be_empty=True)

        def elected(partition: TopicPartition) -> KafkaException:
            answer = self._admin.elect_leaders(election_type.value, {partition.topic: [partition.partition]}, raise_errors=False)
            (row,) = answer["replica_election_results"][0]["partition_result"]
            return failed(row["error_code"], row["error_message"])

        return settled(lambda: {each: elected(each) for each in wanted})

    # ---- refused -------------------------------------------------------------------------------------------------------------

    def create_acls(self, acls: list[AclBinding], *, request_timeout: float | None = None) -> dict[AclBinding, Future[None]]:
        """Returns futures with `SECURITY_DISABLED`, as a broker without an authorizer answers."""
        check_timeouts(request_timeout=request_timeout)
        return each_settled(check_list(acls, AclBinding), _no_authorizer)

    def describe_acls(
        self, acl_binding_filter: AclBindingFilter, *, request_timeout: float | None = None
    ) -> Future[list[AclBinding]]:
        """Returns a future with `SECURITY_DISABLED`, as a broker without an authorizer answers."""
        check_timeouts(request_timeout=request_timeout)
        if not isinstance(acl_binding_filter, AclBindingFilter):
            raise TypeError(f"{acl_binding_filter!r} is not an AclBindingFilter")
        return settled(_no_authorizer)

    def delete_acls(
        self, acl_binding_filters: list[AclBindingFilter], *, request_timeout: float | None = None
    ) -> dict[AclBindingFilter, Future[list[AclBinding]]]:
        """Returns futures with `SECURITY_DISABLED`, as a broker without an authorizer answers."""
        check_timeouts(request_timeout=request_timeout)
        return each_settled(check_list(acl_binding_filters, AclBindingFilter), _no_authorizer)

    def describe_user_scram_credentials(self, users: list[str] | None = None, *, request_timeout: float | None = None) -> Any:
        """Returns futures with `UNSUPPORTED_VERSION`: a store has no users. One by user, or one for all."""
        check_timeouts(request_timeout=request_timeout)
        return settled(_no_users) if users is None else each_settled(check_list(users, str), _no_users)

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialAlteration], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Returns futures with `UNSUPPORTED_VERSION`: a store has no users."""
        check_timeouts(request_timeout=request_timeout)
        wanted = check_list(alterations, UserScramCredentialAlteration)
        return each_settled(dict.fromkeys(each.user for each in wanted), _no_users)


def _no_authorizer(*_: object) -> NoReturn:
    reason = "a pylog store has no access control of its own; use the permissions of its directory"
    raise failed(KafkaError.SECURITY_DISABLED, reason)


def _no_users(*_: object) -> NoReturn:
    raise failed(KafkaError.UNSUPPORTED_VERSION, "a pylog store has no users; the topics are in a directory")
