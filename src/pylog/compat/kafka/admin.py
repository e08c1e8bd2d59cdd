"""`KafkaAdminClient`: kafka-python's administrator on a pylog store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, NoReturn, Self, cast

from pylog.compat.clusters import CLUSTERS, Cluster
from pylog.compat.kafka import errors
from pylog.compat.kafka.admin_configs import ConfigsOfAdmin
from pylog.compat.kafka.admin_groups import GroupsOfAdmin
from pylog.compat.kafka.admin_metrics import AdminMetrics
from pylog.compat.kafka.admin_replicas import ReplicasOfAdmin
from pylog.compat.kafka.admin_topics import TopicsOfAdmin
from pylog.compat.kafka.admin_transactions import TransactionsOfAdmin
from pylog.compat.kafka.admin_types import (
    ACL,
    AbortTransactionSpec,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetTimestamp,
    PartitionProducerState,
    ProducerState,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    TransactionDescription,
    TransactionListing,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from pylog.compat.kafka.arguments import checked
from pylog.compat.kafka.enums import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
    GroupState,
    GroupType,
    TransactionState,
    UpdateFeatureType,
)
from pylog.compat.kafka.metadata import NODE, Client
from pylog.compat.kafka.options import ADMIN, API_VERSION, config_of, unknown_options, warn_of_ignored, wrong_reporters
from pylog.compat.kafka.structs import OffsetSpec
from pylog.compat.kafka.translation import Translating, reconfigured
from pylog.record.types import TopicPartition

__all__ = [
    "ACL",
    "ACLFilter",
    "ACLOperation",
    "ACLPermissionType",
    "ACLResourcePatternType",
    "AbortTransactionSpec",
    "AlterConfigOp",
    "ConfigFilterType",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSourceType",
    "ConfigType",
    "GroupState",
    "GroupType",
    "KafkaAdminClient",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OffsetTimestamp",
    "PartitionProducerState",
    "ProducerState",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "ScramMechanism",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "UpdateFeatureType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]

CLIENT: Final = "KafkaAdminClient"
_CLUSTER_ID: Final = "pylog"


class _NoCluster:
    """The cluster of an administrator that is closed."""

    def __getattr__(self, name: str) -> NoReturn:
        raise errors.IllegalStateError("the administrator is closed; create another one")


@checked
class KafkaAdminClient(TopicsOfAdmin, ConfigsOfAdmin, GroupsOfAdmin, ReplicasOfAdmin, TransactionsOfAdmin):
    """Administers topics and groups, as kafka-python's administrator does. There is one broker, 0, and one copy.

    Args:
        configs: kafka-python's options. Those that only mean something on a network are ignored, with one line in the log.

    Raises:
        KafkaConfigurationError: an option does not exist.

    >>> import pylog.compat.kafka as kafka
    >>> admin = kafka.KafkaAdminClient(bootstrap_servers="pylog+memory://admin")
    >>> _ = admin.create_topics({"orders": {"num_partitions": 2, "configs": {"retention.ms": "60000"}}})
    >>> admin.list_topics(), len(admin.describe_topics(["orders"])[0]["partitions"])
    (['orders'], 2)
    >>> admin.close()
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = ADMIN

    def __init__(self, **configs: Any) -> None:
        wrong = unknown_options(CLIENT, configs, ADMIN)
        if wrong:
            raise errors.KafkaConfigurationError(wrong)
        self.config = config_of(ADMIN, configs)
        if wrong := wrong_reporters(self.config["metric_reporters"]):
            raise errors.KafkaConfigurationError(wrong)
        with Translating(reconfigured):
            self._cluster = CLUSTERS.of(self.config["bootstrap_servers"])
        self._client = self._manager = Client(self._cluster)
        warn_of_ignored(CLIENT, ADMIN, configs, self._cluster.name)
        self._metrics = AdminMetrics(self.config)
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: object, exc_val: object, exc_tb: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the administrator: later calls raise IllegalStateError. The store stays open for other clients."""
        self._cluster = cast("Cluster", _NoCluster())
        if not self._is_closed:
            self._is_closed = True
            self._metrics.close()

    # ---- the cluster ---------------------------------------------------------------------------------------------------------

    def describe_cluster(self) -> dict[str, Any]:
        """Returns the one broker."""
        broker = {"broker_id": NODE.nodeId, "node_id": NODE.nodeId, "host": NODE.host, "port": NODE.port, "rack": None}
        return {
            "cluster_id": _CLUSTER_ID,
            "controller_id": NODE.nodeId,
            "brokers": [broker | {"is_fenced": False}],
            "cluster_authorized_operations": set(),
        }

    def describe_log_dirs(
        self, topic_partitions: Mapping[str, Iterable[int] | None] | Iterable[str] | None = None, brokers: Any = None
    ) -> list[dict[str, Any]]:
        """Returns the sizes of partitions in bytes.

        Args:
            topic_partitions: partitions by topic, or topics; by default all.
            brokers: any; there is one.
        """
        with Translating():
            topics = self._cluster.topics()
            wanted = topic_partitions if isinstance(topic_partitions, Mapping) else dict.fromkeys(topic_partitions or topics)
            found = [
                {"name": name, "partitions": [self._size(name, number) for number in (numbers or topics[name].partition_ids)]}
                for name, numbers in wanted.items()
                if name in topics
            ]
        directory = {"error_code": 0, "log_dir": self._cluster.name, "topics": found, "total_bytes": -1, "usable_bytes": -1}
        return [{"broker": NODE.nodeId, "log_dirs": [directory]}]

    def _size(self, topic: str, number: int) -> dict[str, Any]:
        size = sum(each.size for each in self._cluster.store.log(topic, number).segments)
        return {"partition_index": number, "partition_size": size, "offset_lag": 0, "is_future_key": False}

    def describe_producers(self, partitions: Iterable[TopicPartition], broker_id: int | None = None) -> dict[Any, Any]:
        """Returns no active producers: pylog's producers do not outlive their process.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
        """
        with Translating():
            store = self._cluster.store
            return {partition: PartitionProducerState([]) for partition in partitions if store.log(*partition) is not None}

    def get_broker_version_data(self, broker_id: int) -> tuple[int, ...]:
        """Returns the version of the broker whose answers the layer gives."""
        return API_VERSION

    def api_versions(self) -> dict[Any, Any]:
        """Returns nothing: there is no protocol."""
        return {}

    def describe_features(self, send_request_to_controller: bool = False) -> dict[Any, Any]:
        """Returns nothing: there are no features to switch."""
        return {}

    # ---- refused -------------------------------------------------------------------------------------------------------------

    def alter_user_scram_credentials(self, alterations: Any) -> NoReturn:
        """Raises UnsupportedVersionError: there are no users."""
        _needs_a_broker("alter_user_scram_credentials")

    def describe_user_scram_credentials(self, users: Any = None) -> NoReturn:
        """Raises UnsupportedVersionError: there are no users."""
        _needs_a_broker("describe_user_scram_credentials")

    def describe_metadata_quorum(self) -> NoReturn:
        """Raises UnsupportedVersionError: there are no controllers."""
        _needs_a_broker("describe_metadata_quorum")

    def update_features(self, feature_updates: Any, validate_only: bool = False, timeout_ms: float = 60_000) -> NoReturn:
        """Raises UnsupportedVersionError: there are no features to switch."""
        _needs_a_broker("update_features")

    def send_request(self, request: Any, node_id: int | None = None) -> NoReturn:
        """Raises UnsupportedVersionError: there is no network."""
        _needs_a_broker("send_request")

    def send_requests(self, requests_and_node_ids: Any, response_fn: Any = None) -> NoReturn:
        """Raises UnsupportedVersionError: there is no network."""
        _needs_a_broker("send_requests")

    def create_acls(self, acls: Any) -> NoReturn:
        """Raises SecurityDisabledError, as a broker without an authorizer."""
        _no_authorizer()

    def describe_acls(self, acl_filter: Any) -> NoReturn:
        """Raises SecurityDisabledError, as a broker without an authorizer."""
        _no_authorizer()

    def delete_acls(self, acl_filters: Any) -> NoReturn:
        """Raises SecurityDisabledError, as a broker without an authorizer."""
        _no_authorizer()


def _needs_a_broker(call: str) -> NoReturn:
    raise errors.UnsupportedVersionError(f"{call} needs a broker; the topics are in a pylog store")


def _no_authorizer() -> NoReturn:
    raise errors.SecurityDisabledError("a pylog store has no access control of its own; use the permissions of its directory")
