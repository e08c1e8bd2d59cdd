"""`AIOKafkaAdminClient`: aiokafka's administrator on a pylog store. It asks kafka-python's, in another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import partial
from typing import Any, Final, Self

from pylog.compat.aiokafka.client import AIOKafkaClient
from pylog.compat.aiokafka.errors import IllegalArgumentError, IllegalOperation, Raising, kafka_errors
from pylog.compat.aiokafka.options import config_of, warn_of_ignored
from pylog.compat.aiokafka.structs import OffsetAndMetadata
from pylog.compat.kafka.admin import KafkaAdminClient
from pylog.compat.kafka.admin_types import ConfigResource as KafkaResource
from pylog.compat.kafka.admin_types import NewPartitions
from pylog.compat.kafka.admin_types import NewTopic as KafkaTopic
from pylog.compat.kafka.arguments import checked
from pylog.record.types import TopicPartition

__all__ = [
    "AIOKafkaAdminClient",
    "ConfigResource",
    "ConfigResourceType",
    "NewPartitions",
    "NewTopic",
    "RecordsToDelete",
]

CLIENT: Final = "AIOKafkaAdminClient"
_UNKNOWN: Final = 3


class ConfigResourceType(IntEnum):
    """The kinds of things that have options."""

    BROKER = 4
    TOPIC = 2


class ConfigResource:
    """A topic or a broker whose options are described or altered.

    Args:
        resource_type: a `ConfigResourceType`, or its name.
        name: the topic's name, or the broker's id.
        configs: values by option; None describes all options.
    """

    def __init__(self, resource_type: ConfigResourceType | str, name: Any, configs: Mapping[str, Any] | None = None) -> None:
        if not isinstance(resource_type, ConfigResourceType):
            resource_type = ConfigResourceType[str(resource_type).upper()]
        self.resource_type = resource_type
        self.name = name
        self.configs = configs


class NewTopic(KafkaTopic):
    """A topic to create.

    Args:
        name: its name.
        num_partitions: their number; -1 with `replica_assignments`.
        replication_factor: any value; there is one copy.
        replica_assignments: brokers by partition; they give the number of partitions.
        topic_configs: options by Kafka's names.

    Raises:
        IllegalArgumentError: both numbers and assignments were given, or neither.
    """

    def __init__(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        replica_assignments: Mapping[int, Iterable[int]] | None = None,
        topic_configs: Mapping[str, Any] | None = None,
    ) -> None:
        if (num_partitions == -1 or replication_factor == -1) == (replica_assignments is None):
            raise IllegalArgumentError("give num_partitions and replication_factor, or replica_assignments with -1 for both")
        super().__init__(name, num_partitions, replication_factor, replica_assignments, topic_configs)


class RecordsToDelete:
    """The records of a partition that are deleted.

    Args:
        before_offset: the first offset that stays; -1 deletes all records.
    """

    def __init__(self, before_offset: int) -> None:
        self.before_offset = before_offset


class Response:
    """The answer to a request: its fields are attributes, and lists of tuples.

    Args:
        fields: by name.
    """

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update({"throttle_time_ms": 0} | fields)

    def __repr__(self) -> str:
        return f"Response({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


@checked
class AIOKafkaAdminClient:
    """Administers topics and groups, as aiokafka's administrator does. There is one broker, 0, and one copy.

    Args:
        configs: aiokafka's options. Those that only mean something on a network are ignored, with one line in the log.

    Raises:
        TypeError: an option does not exist.

    >>> import asyncio, pylog.compat.aiokafka.admin as admin
    >>> async def main():
    ...     client = admin.AIOKafkaAdminClient(bootstrap_servers="pylog+memory://aio-admin")
    ...     await client.start()
    ...     await client.create_topics([admin.NewTopic("orders", 2, 1)])
    ...     return await client.list_topics()
    >>> asyncio.run(main())
    ['orders']
    """

    def __init__(self, **configs: Any) -> None:
        self.config = config_of(CLIENT, configs)
        self._given = configs
        self._client = AIOKafkaClient.of(self.config)
        self._admin: KafkaAdminClient | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Opens the store."""
        if self._admin is not None:
            return
        with Raising(IllegalOperation):
            self._admin = await asyncio.to_thread(partial(KafkaAdminClient, bootstrap_servers=self.config["bootstrap_servers"]))
            cluster = await self._client.bootstrap()
            warn_of_ignored(CLIENT, self._given, cluster.name)

    async def close(self) -> None:
        """Ends the administrator. The store stays open for other clients."""
        self._closed = True

    async def _ask(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self._admin is None or self._closed:
            raise IllegalOperation("the administrator is not started, or it is closed; await start() first")
        with Raising(IllegalOperation):
            return await asyncio.to_thread(method, self._admin, *arguments, **options)

    # ---- topics --------------------------------------------------------------------------------------------------------------

    async def create_topics(
        self, new_topics: Iterable[NewTopic], timeout_ms: int | None = None, validate_only: bool = False
    ) -> Response:
        """Creates topics.

        Args:
            new_topics: the topics.
            timeout_ms: a topic is there when this returns.
            validate_only: true to create nothing.

        Returns:
            `topic_errors`: a name, an error number and a message for each topic.

        Raises:
            IllegalOperation: the administrator is not started, or it is closed.
        """
        done = await self._ask(KafkaAdminClient.create_topics, new_topics, validate_only=validate_only, raise_errors=False)
        return Response(topic_errors=[(each["name"], each["error_code"], each["error_message"]) for each in done["topics"]])

    async def delete_topics(self, topics: Iterable[str], timeout_ms: int | None = None) -> Response:
        """Deletes topics. Returns `topic_error_codes`: a name and an error number for each topic."""
        done = await self._ask(KafkaAdminClient.delete_topics, topics, raise_errors=False)
        return Response(topic_error_codes=[(each["name"], each["error_code"]) for each in done["topics"]])

    async def list_topics(self) -> list[str]:
        """Returns the names of all topics."""
        found: list[str] = await self._ask(KafkaAdminClient.list_topics)
        return found

    async def describe_topics(self, topics: Iterable[str] | None = None) -> list[Any]:
        """Returns topics with their partitions. A topic that does not exist has the error code 3."""
        return list(map(_topic, await self._ask(KafkaAdminClient.describe_topics, topics)))

    async def describe_cluster(self) -> dict[str, Any]:
        """Returns the one broker."""
        found = await self._ask(KafkaAdminClient.describe_cluster)
        names = ("node_id", "host", "port", "rack")
        return {
            "throttle_time_ms": 0,
            "brokers": [{name: broker[name] for name in names} for broker in found["brokers"]],
            "cluster_id": found["cluster_id"],
            "controller_id": found["controller_id"],
        }

    async def _get_cluster_metadata(self, topics: Iterable[str] | None = None) -> Response:
        """Returns the one broker and topics as tuples. aiokafka's own tests read it."""
        cluster = await self.describe_cluster()
        brokers = [tuple(broker.values()) for broker in cluster["brokers"]]
        rows = [tuple(topic.values()) for topic in await self.describe_topics(topics)]
        return Response(**cluster | {"brokers": brokers, "topics": rows})

    async def create_partitions(
        self, topic_partitions: Mapping[str, NewPartitions], timeout_ms: int | None = None, validate_only: bool = False
    ) -> Response:
        """Raises the numbers of partitions of topics.

        Args:
            topic_partitions: by topic, the new number.
            timeout_ms: the partitions are there when this returns.
            validate_only: true to create nothing.

        Raises:
            UnknownTopicOrPartitionError, InvalidPartitionsError: raised for the first topic that fails.
        """
        done = await self._ask(KafkaAdminClient.create_partitions, topic_partitions, validate_only=validate_only)
        return Response(topic_errors=[(each["name"], each["error_code"], each["error_message"]) for each in done["results"]])

    async def delete_records(
        self, records_to_delete: Mapping[TopicPartition, RecordsToDelete], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes the first records of partitions. Returns their first offsets.

        Raises:
            UnknownTopicOrPartitionError, OffsetOutOfRangeError, PolicyViolationError: raised for the first partition that fails.
            KafkaStorageError: a file cannot be changed, or the archive of a tiered topic does not answer.
        """
        wanted = {partition: each.before_offset for partition, each in records_to_delete.items()}
        done = await self._ask(KafkaAdminClient.delete_records, wanted)
        return {partition: each["low_watermark"] for partition, each in done.items()}

    # ---- options -------------------------------------------------------------------------------------------------------------

    async def describe_configs(
        self, config_resources: Iterable[ConfigResource], include_synonyms: bool = False
    ) -> list[Response]:
        """Returns the options of topics and of the broker.

        Args:
            config_resources: topics and brokers; their `configs` choose options.
            include_synonyms: there are none.

        Returns:
            One answer for each broker and one for all topics, with `resources`: an error number, a message, the kind, the name,
            and tuples of options. A topic that does not exist has the error number 3.
        """
        known = set(await self.list_topics())
        brokers = [[each] for each in config_resources if each.resource_type is ConfigResourceType.BROKER]
        topics = [each for each in config_resources if each.resource_type is ConfigResourceType.TOPIC]
        answers = []
        for asked in [*brokers, *([topics] if topics else [])]:
            found = await self._ask(KafkaAdminClient.describe_configs, list(map(_resource, asked)))
            rows = [tuple(each) for each in found.resources]
            answers.append(Response(resources=[_missing(row) if row[2] == 2 and row[3] not in known else row for row in rows]))
        return answers

    async def alter_configs(self, config_resources: Iterable[ConfigResource]) -> list[Response]:
        """Changes options of topics.

        Args:
            config_resources: topics, with values by option.

        Returns:
            One answer with `resources`: an error number, a message, the kind and the name of each.
        """
        rows = []
        for each in config_resources:
            done = await self._ask(KafkaAdminClient.alter_configs, [_resource(each)], raise_on_unknown=False)
            (text,) = (text for names in done.values() for text in names.values())
            code = 0 if text == "OK" else next((code for code, kind in kafka_errors.items() if kind.__name__ in text), -1)
            rows.append((code, None if code == 0 else text, int(each.resource_type), str(each.name)))
        return [Response(resources=rows)]

    # ---- groups --------------------------------------------------------------------------------------------------------------

    async def list_consumer_groups(self, broker_ids: Iterable[int] | None = None) -> list[tuple[Any, ...]]:
        """Returns the names of the groups with their protocol."""
        found: list[tuple[Any, ...]] = await self._ask(KafkaAdminClient.list_consumer_groups)
        return found

    async def describe_consumer_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None, include_authorized_operations: bool = False
    ) -> list[Response]:
        """Returns one answer with `groups`: an error number, name, state, protocol and members of each."""
        found = await self._ask(KafkaAdminClient.describe_consumer_groups, group_ids)
        return [Response(groups=[tuple(each) for each in found])] if found else []

    async def find_coordinator(self, group_id: str, coordinator_type: int = 0) -> int:
        """Returns the id of the one broker."""
        return 0

    async def list_consumer_group_offsets(
        self, group_id: str, group_coordinator_id: int | None = None, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns a group's committed offsets by partition. A requested partition without a commit has the offset -1.

        Args:
            group_id: the group's name.
            group_coordinator_id: ignored; there is one broker.
            partitions: the partitions; by default all that have a commit.
        """
        found = await self._ask(KafkaAdminClient.list_consumer_group_offsets, group_id, partitions=partitions)
        return {partition: OffsetAndMetadata(each.offset, each.metadata) for partition, each in found.items()}


def _resource(given: ConfigResource) -> Any:
    return KafkaResource(given.resource_type.name, str(given.name), given.configs or None)


def _missing(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return _UNKNOWN, f"topic {row[3]!r} does not exist", row[2], row[3], []


def _topic(found: Mapping[str, Any]) -> dict[str, Any]:
    partitions = [
        {
            "error_code": each["error_code"],
            "partition": each["partition_index"],
            "leader": each["leader_id"],
            "replicas": each["replica_nodes"],
            "isr": each["isr_nodes"],
            "offline_replicas": each["offline_replicas"],
        }
        for each in found["partitions"]
    ]
    return {
        "error_code": found["error_code"],
        "topic": found["name"],
        "is_internal": found["is_internal"],
        "partitions": partitions,
    }
