"""The topics, options, records and offsets of confluent-kafka's administrator."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from pylog.compat.clusters import KEEPS_EVERYTHING
from pylog.compat.confluent.admin_types import (
    AclOperation,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    DeletedRecords,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)
from pylog.compat.confluent.errors import KafkaError, failed
from pylog.compat.confluent.futures import check_list, check_timeouts, each_settled
from pylog.compat.confluent.model import BROKER, IsolationLevel, TopicCollection, TopicPartitionInfo, Uuid
from pylog.compat.confluent.native_admin import NativeAdmin
from pylog.compat.confluent.structs import TopicPartition
from pylog.compat.kafka.admin_configs import alter_topic
from pylog.compat.kafka.admin_types import NewTopic as KafkaTopic
from pylog.compat.kafka.enums import AlterConfigOp

_MOST_PARTITIONS: Final = 100_000
_KEPT: Final = {name.replace("_", "."): str(value) for name, value in KEEPS_EVERYTHING.items()}
_LONGEST_TIME: Final = 2**63 - 1


class TopicsOfAdmin:
    """The calls of `AdminClient` for topics."""

    _admin: NativeAdmin

    def create_topics(
        self,
        new_topics: list[NewTopic],
        *,
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Creates topics.

        Args:
            new_topics: the topics.
            operation_timeout: seconds; a topic exists when this returns.
            request_timeout: seconds; not needed.
            validate_only: true to create nothing.

        Returns:
            A future of None by name.

        Raises:
            TypeError, ValueError: an argument is wrong; nothing was created.
        """
        check_timeouts(operation_timeout=operation_timeout, request_timeout=request_timeout)
        wanted = check_list(new_topics, NewTopic)
        for each in wanted:
            _check_new_topic(each)

        def create(topic: NewTopic) -> None:
            assigned = dict(enumerate(topic.replica_assignment or ()))
            made = KafkaTopic(topic.topic, topic.num_partitions, topic.replication_factor, assigned, topic.config)
            self._admin.create_topics([made], validate_only=validate_only)

        return each_settled(wanted, create, key=lambda topic: topic.topic, twins=KafkaError.INVALID_REQUEST)

    def delete_topics(
        self, topics: list[str], *, operation_timeout: float | None = None, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Deletes topics, their records, and the offsets that groups have committed for them.

        Args:
            topics: names.
            operation_timeout: seconds; a topic is deleted when this returns.
            request_timeout: seconds; not needed.

        Returns:
            A future of None by name.
        """
        check_timeouts(operation_timeout=operation_timeout, request_timeout=request_timeout)

        def delete(topic: str) -> None:
            self._admin.delete_topics([topic])

        return each_settled(dict.fromkeys(check_list(topics, str)), delete)

    def create_partitions(
        self,
        new_partitions: list[NewPartitions],
        *,
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Raises the numbers of partitions of topics.

        Args:
            new_partitions: topics with their new numbers.
            operation_timeout: seconds; the partitions exist when this returns.
            request_timeout: seconds; not needed.
            validate_only: true to create nothing.

        Returns:
            A future of None by name.
        """
        check_timeouts(operation_timeout=operation_timeout, request_timeout=request_timeout)
        wanted = check_list(new_partitions, NewPartitions)
        for each in wanted:
            if not 1 <= each.new_total_count <= _MOST_PARTITIONS:
                raise ValueError(f"new_total_count={each.new_total_count} of {each.topic!r} is not from 1 to {_MOST_PARTITIONS}")

        def grow(given: NewPartitions) -> None:
            self._admin.create_partitions({given.topic: given.new_total_count}, validate_only=validate_only)

        return each_settled(wanted, grow, key=lambda given: given.topic, twins=KafkaError.INVALID_REQUEST)

    def describe_topics(
        self, topics: TopicCollection, *, include_authorized_operations: bool = False, request_timeout: float | None = None
    ) -> dict[str, Future[TopicDescription]]:
        """Returns topics with their partitions.

        Args:
            topics: their names.
            include_authorized_operations: true for the rights of the program.
            request_timeout: seconds; not needed.

        Returns:
            A future of a `TopicDescription` by name.
        """
        check_timeouts(request_timeout=request_timeout)
        if not isinstance(topics, TopicCollection):
            raise TypeError(f"{topics!r} is not a TopicCollection")
        names = check_list(topics.topic_names, str, may_be_empty=True)
        if "" in names:
            raise ValueError("the name of a topic is empty")
        return each_settled(names, lambda name: self._described(name, with_rights=include_authorized_operations))

    def _described(self, name: str, *, with_rights: bool) -> TopicDescription:
        (row,) = self._admin.describe_topics([name])
        if row["error_code"]:
            raise failed(row["error_code"], f"there is no topic {name!r}")
        partitions = [TopicPartitionInfo(each["partition_index"], BROKER, [BROKER], [BROKER]) for each in row["partitions"]]
        number = uuid.UUID(row["topic_id"] or str(uuid.UUID(int=0))).int
        rights = [AclOperation[each] for each in row["authorized_operations"]] if with_rights else None
        return TopicDescription(name, Uuid.of(number), row["is_internal"], partitions, rights)

    # ---- records and offsets -------------------------------------------------------------------------------------------------

    def list_offsets(
        self,
        topic_partition_offsets: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Returns offsets of partitions.

        Args:
            topic_partition_offsets: what to search, by partition.
            isolation_level: whether the end is the stable one.
            request_timeout: seconds; not needed.

        Returns:
            A future of a `ListOffsetsResultInfo` by partition.

        Raises:
            TypeError, ValueError: an argument is wrong.

        Cost: `OffsetSpec.max_timestamp` reads the whole partition; all others read a few batches at most.
        """
        check_timeouts(request_timeout=request_timeout)
        if not isinstance(isolation_level, IsolationLevel):
            raise TypeError(f"isolation_level={isolation_level!r} is not an IsolationLevel")
        if not isinstance(topic_partition_offsets, Mapping):
            raise TypeError(f"{topic_partition_offsets!r} is not a dict of OffsetSpec by TopicPartition")
        _check_partitions(list(topic_partition_offsets))
        if wrong := [each for each in topic_partition_offsets.values() if not isinstance(each, OffsetSpec)]:
            raise TypeError(f"{wrong[0]!r} is not an OffsetSpec")

        def find(partition: TopicPartition) -> ListOffsetsResultInfo:
            value = topic_partition_offsets[partition]._value
            if not OffsetSpec.max_timestamp()._value <= value <= _LONGEST_TIME:
                raise failed(KafkaError._INVALID_ARG, f"{value} is not a time in milliseconds")
            wanted = {partition.native: value}
            found = self._admin.list_partition_offsets(wanted, isolation_level.name)[partition.native]
            return ListOffsetsResultInfo(found.offset, found.timestamp, -1 if found.leader_epoch is None else found.leader_epoch)

        return each_settled(topic_partition_offsets, find)

    def delete_records(
        self,
        topic_partition_offsets: list[TopicPartition],
        *,
        operation_timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Deletes the records below an offset.

        Args:
            topic_partition_offsets: partitions with offsets; `OFFSET_END` deletes all records.
            operation_timeout: seconds; the records are deleted when this returns.
            request_timeout: seconds; not needed.

        Returns:
            A future of `DeletedRecords` by partition.
        """
        check_timeouts(operation_timeout=operation_timeout, request_timeout=request_timeout)
        wanted = check_list(topic_partition_offsets, TopicPartition, may_be_empty=True)
        _check_partitions(wanted)

        def delete(partition: TopicPartition) -> DeletedRecords:
            found = self._admin.delete_records({partition.native: partition.offset})
            return DeletedRecords(found[partition.native]["low_watermark"])

        return each_settled(wanted, delete, twins=KafkaError._INVALID_ARG)

    # ---- options -------------------------------------------------------------------------------------------------------------

    def describe_configs(
        self, resources: list[ConfigResource], *, request_timeout: float | None = None
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """Returns the options of topics, or of broker 0.

        Args:
            resources: the topics, or the broker.
            request_timeout: seconds; not needed.

        Returns:
            A future of `ConfigEntry` by option, by resource.
        """
        check_timeouts(request_timeout=request_timeout)
        return each_settled(check_list(resources, ConfigResource, wrong=ValueError), self._options_of)

    def _options_of(self, resource: ConfigResource) -> dict[str, ConfigEntry]:
        found = self._admin.options_of(_kind_of(resource), resource.name)
        return {name: _entry(name, option) for name, option in found.items()}

    def alter_configs(
        self, resources: list[ConfigResource], *, request_timeout: float | None = None, validate_only: bool = False
    ) -> dict[ConfigResource, Future[None]]:
        """Replaces the options of topics: one that is not named gets its default back, but for `retention.ms`.

        Deprecated in confluent-kafka: `incremental_alter_configs` changes only what it names. Without `retention.ms`, a topic is
        kept until told otherwise, as a new topic here; Kafka's default would delete records that are older than a week.

        Args:
            resources: topics with their `set_config`.
            request_timeout: seconds; not needed.
            validate_only: true to change nothing.

        Returns:
            A future of None by resource.
        """
        warnings.warn("alter_configs is deprecated; use incremental_alter_configs", DeprecationWarning, stacklevel=2)
        check_timeouts(request_timeout=request_timeout)

        def replace(resource: ConfigResource) -> None:
            found = self._options_of(resource)
            reset = {name for name, entry in found.items() if not entry.is_default and not entry.is_read_only}
            changes: dict[str, tuple[AlterConfigOp, Any]] = dict.fromkeys(reset, (AlterConfigOp.DELETE, None))
            given = _KEPT | resource.set_config_dict
            changes |= {name: (AlterConfigOp.SET, value) for name, value in given.items()}
            self._alter(resource, changes, validate_only=validate_only)

        return each_settled(check_list(resources, ConfigResource), replace)

    def incremental_alter_configs(
        self,
        resources: list[ConfigResource],
        *,
        request_timeout: float | None = None,
        validate_only: bool = False,
        broker: int | None = None,  # noqa: ARG002
    ) -> dict[ConfigResource, Future[None]]:
        """Changes options of topics.

        Args:
            resources: topics with their `incremental_configs`.
            request_timeout: seconds; not needed.
            validate_only: true to change nothing.
            broker: any; there is one.

        Returns:
            A future of None by resource.
        """
        check_timeouts(request_timeout=request_timeout)
        wanted = check_list(resources, ConfigResource)
        for each in wanted:
            for entry in check_list(each.incremental_configs, ConfigEntry):
                if not isinstance(entry.incremental_operation, AlterConfigOpType):
                    raise TypeError(f"the incremental_operation of {entry.name} is not an AlterConfigOpType")

        def change(resource: ConfigResource) -> None:
            changes = {
                each.name: (AlterConfigOp[each.incremental_operation.name], each.value)  # type: ignore[union-attr]  # checked
                for each in resource.incremental_configs
            }
            self._alter(resource, changes, validate_only=validate_only)

        return each_settled(wanted, change)

    def _alter(self, resource: ConfigResource, changes: dict[str, Any], *, validate_only: bool) -> None:
        if resource.restype is not ResourceType.TOPIC:
            raise failed(KafkaError.INVALID_REQUEST, f"options of a {resource.restype.name} cannot be changed here")
        alter_topic(self._admin.cluster, resource.name, changes, validate_only=validate_only)


def _check_new_topic(topic: NewTopic) -> None:
    if wrong := [each for each in topic.config or {} if not isinstance(each, str)]:
        raise TypeError(f"the name {wrong[0]!r} of an option of {topic.topic!r} is no text")
    if not -1 <= topic.num_partitions <= _MOST_PARTITIONS:
        raise ValueError(f"num_partitions={topic.num_partitions} of {topic.topic!r} is not from 1 to {_MOST_PARTITIONS}, nor -1")
    if topic.replica_assignment and topic.num_partitions not in (-1, len(topic.replica_assignment)):
        raise ValueError(f"the replica_assignment of {topic.topic!r} has not one list for each partition")


def _check_partitions(given: list[Any]) -> None:
    for each in given:
        if not isinstance(each, TopicPartition):
            raise TypeError(f"{each!r} is not a TopicPartition")
        if not each.topic:
            raise ValueError("the name of a topic is empty")
        if each.partition < 0:
            raise ValueError(f"partition {each.partition} of {each.topic!r} is negative")


def _kind_of(resource: ConfigResource) -> str:
    if resource.restype not in (ResourceType.TOPIC, ResourceType.BROKER):
        raise failed(KafkaError.INVALID_REQUEST, f"a {resource.restype.name} has no options here")
    return resource.restype.name


def _entry(name: str, option: Mapping[str, Any]) -> ConfigEntry:
    source = ConfigSource.of(option["config_source"])
    is_default = source is ConfigSource.DEFAULT_CONFIG
    return ConfigEntry(name, option["value"], source, option["read_only"], is_default, option["is_sensitive"])
