"""The administrator of kafka-python's layer, which confluent-kafka's stands on: the same rules, other names."""

from __future__ import annotations

from typing import Any

from pylog.compat.clusters import Cluster
from pylog.compat.kafka import errors
from pylog.compat.kafka.admin_configs import ConfigsOfAdmin
from pylog.compat.kafka.admin_groups import GroupsOfAdmin
from pylog.compat.kafka.admin_replicas import ReplicasOfAdmin
from pylog.compat.kafka.admin_topics import TopicsOfAdmin
from pylog.compat.kafka.admin_types import ConfigResource


class NativeAdmin(TopicsOfAdmin, ConfigsOfAdmin, GroupsOfAdmin, ReplicasOfAdmin):
    """An administrator of one cluster.

    Args:
        cluster: the store.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def cluster(self) -> Cluster:
        """The store."""
        return self._cluster

    def options_of(self, kind: str, name: str) -> dict[str, dict[str, Any]]:
        """Returns all options of a topic or a broker by name.

        Args:
            kind: TOPIC or BROKER.
            name: the topic's name, or the broker's id.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist. ValueError, InvalidRequestError: nor does the broker.
        """
        resource = ConfigResource(kind, name)
        if kind == "TOPIC" and name not in self._cluster.topics():
            raise errors.UnknownTopicOrPartitionError(f"there is no topic {name!r}")
        found: dict[str, dict[str, Any]] = self.describe_configs([resource], config_filter="all")[kind.lower()][name]
        return found
