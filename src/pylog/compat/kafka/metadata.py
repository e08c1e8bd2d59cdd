"""What kafka-python's clients know of their cluster: topics, partitions, and one broker, which has the id 0."""

from __future__ import annotations

from pylog.compat.clusters import Cluster
from pylog.compat.kafka.structs import BrokerMetadata, TopicPartition

NODE = BrokerMetadata(0, "localhost", 9092, None)


class ClusterMetadata:
    """The `_client.cluster` of a consumer, and the `cluster` that a partitioner is given.

    Args:
        cluster: the store.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """Returns the names of the topics."""
        return {name for name in self._cluster.topics() if not (exclude_internal_topics and name.startswith("__"))}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Returns the numbers of a topic's partitions; None if it does not exist."""
        found = self._cluster.partitions(topic)
        return None if found is None else set(found)

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Returns the same: every partition is available."""
        return self.partitions_for_topic(topic)

    def brokers(self) -> set[BrokerMetadata]:
        """Returns the one broker."""
        return {NODE}

    def broker_metadata(self, broker_id: int | str) -> BrokerMetadata | None:
        """Returns the broker, if it has the id given."""
        return NODE if str(broker_id) == "0" else None

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """Returns the broker's id; None if the partition does not exist."""
        return 0 if partition.partition in (self._cluster.partitions(partition.topic) or ()) else None

    def request_update(self) -> None:
        """Does nothing: metadata is read when it is requested."""


class Client:
    """The `_client` of a consumer or an administrator.

    Args:
        cluster: the store.

    Attributes:
        cluster: what is known of it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = ClusterMetadata(cluster)

    def bootstrap_connected(self) -> bool:
        """Returns True."""
        return True

    def least_loaded_node(self) -> int:
        """Returns the id of the one broker."""
        return NODE.node_id
