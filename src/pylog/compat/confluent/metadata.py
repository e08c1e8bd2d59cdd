"""The metadata of a cluster as confluent-kafka's clients return it: one broker, 0, which has one copy of each partition."""

from __future__ import annotations

from typing import Final

from pylog.compat.clusters import Cluster
from pylog.compat.confluent.errors import KafkaError, Translating
from pylog.compat.kafka.metadata import NODE

CLUSTER_ID: Final = "pylog"


class BrokerMetadata:
    """A broker.

    Attributes:
        id, host, port: its own.
    """

    def __init__(self) -> None:
        self.id = -1
        self.host: str | None = None
        self.port = -1

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {self.host}:{self.port})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


class PartitionMetadata:
    """A partition.

    Attributes:
        id: its number.
        leader: the id of its broker.
        replicas, isrs: the ids of brokers with copies.
        error: None.
    """

    def __init__(self) -> None:
        self.id = -1
        self.leader = -1
        self.replicas: list[int] = []
        self.isrs: list[int] = []
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        return f"PartitionMetadata({self.id})" if self.error is None else f"PartitionMetadata({self.id}, {self.error})"

    def __str__(self) -> str:
        return f"{self.id}"


class TopicMetadata:
    """A topic.

    Attributes:
        topic: its name.
        partitions: `PartitionMetadata` by number.
        error: why it cannot be used; None if it can.
    """

    def __init__(self) -> None:
        self.topic: str | None = None
        self.partitions: dict[int, PartitionMetadata] = {}
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        error = "" if self.error is None else f", {self.error}"
        return f"TopicMetadata({self.topic}, {len(self.partitions)} partitions{error})"

    def __str__(self) -> str:
        return str(self.topic)


class ClusterMetadata:
    """A cluster.

    Attributes:
        cluster_id: its name.
        controller_id: the id of the broker that administers it.
        brokers: `BrokerMetadata` by id.
        topics: `TopicMetadata` by name.
        orig_broker_id, orig_broker_name: the broker that answered.
    """

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.orig_broker_id = -1
        self.orig_broker_name: str | None = None

    def __repr__(self) -> str:
        return f"ClusterMetadata({self.cluster_id})"

    def __str__(self) -> str:
        return str(self.cluster_id)


class Lookups:
    """The calls that each client has: metadata of the cluster, and credentials, which have no effect."""

    _cluster: Cluster
    _creates_topics = True  # as librdkafka's producers and administrators do when they ask for a missing topic

    def _check_open(self) -> None:
        """Raises RuntimeError if the client is closed."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Returns the topics with their partitions, and the one broker.

        Args:
            topic: a topic, or None for all. A producer and an administrator create a missing one if topics are created on demand,
                as librdkafka's do.
            timeout: seconds; accepted and not needed.

        Returns:
            A topic that does not exist has an error.

        Raises:
            TypeError: an argument has a wrong type. RuntimeError: the client is closed.

        Cost: one listing of the directory.

        >>> from pylog.compat.confluent import Producer
        >>> producer = Producer({"bootstrap.servers": "pylog+memory://metadata"})
        >>> producer.list_topics("orders").topics, producer.list_topics().brokers
        ({'orders': TopicMetadata(orders, 1 partitions)}, {0: BrokerMetadata(0, localhost:9092)})
        >>> _ = producer.close()
        """
        if topic is not None and not isinstance(topic, str):
            raise TypeError(f"topic={topic!r} is neither the name of a topic nor None")
        _check_timeout(timeout)
        self._check_open()
        with Translating():
            if topic and self._creates_topics:
                self._cluster.create_on_demand(topic, allowed=True)
            known = sorted(self._cluster.topics()) if topic is None else [topic]
            return _cluster_of({name: self._cluster.partitions(name) if name else None for name in known})

    def cluster_id(self, timeout: float = -1) -> str:
        """Returns `pylog`.

        Args:
            timeout: seconds; accepted and not needed.
        """
        _check_timeout(timeout)
        self._check_open()
        return CLUSTER_ID

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Accepts the credentials of a user, and does not use them: there is no broker to log in to.

        Args:
            username: text.
            password: text.

        Raises:
            TypeError: one is no text.
        """
        for name, given in (("username", username), ("password", password)):
            if not isinstance(given, str):
                raise TypeError(f"{name} is no text")


def _check_timeout(timeout: object) -> None:
    if not isinstance(timeout, int | float):
        raise TypeError(f"timeout={timeout!r} is not a number of seconds")


def _cluster_of(topics: dict[str, tuple[int, ...] | None]) -> ClusterMetadata:
    broker, found = BrokerMetadata(), ClusterMetadata()
    broker.id, broker.host, broker.port = NODE.node_id, NODE.host, NODE.port
    found.cluster_id = CLUSTER_ID
    found.controller_id = found.orig_broker_id = broker.id
    found.orig_broker_name = f"{broker.host}:{broker.port}/{broker.id}"
    found.brokers = {broker.id: broker}
    found.topics = {name: _topic_of(name, numbers) for name, numbers in topics.items()}
    return found


def _topic_of(name: str, numbers: tuple[int, ...] | None) -> TopicMetadata:
    found = TopicMetadata()
    found.topic = name
    if numbers is None:
        found.error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"there is no topic {name!r}")
    for number in numbers or ():
        partition = found.partitions[number] = PartitionMetadata()
        partition.id, partition.leader = number, NODE.node_id
        partition.replicas, partition.isrs = [NODE.node_id], [NODE.node_id]
    return found
