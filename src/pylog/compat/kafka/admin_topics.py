"""An administrator's topics and partitions."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from pylog.compat.clusters import Cluster
from pylog.compat.kafka import errors
from pylog.compat.kafka.admin_configs import options_of_topic
from pylog.compat.kafka.admin_types import ACLOperation, Answer, NewPartitions, NewTopic
from pylog.compat.kafka.structs import IsolationLevel, OffsetAndTimestamp, OffsetSpec
from pylog.compat.kafka.topic_options import native_options
from pylog.compat.kafka.translation import Translating, translated
from pylog.errors import InvalidArgumentError, InvalidTopicError, PylogError
from pylog.record.types import TopicPartition
from pylog.text import counted
from pylog.topics.topic import Topic

_ALLOWED: Final = ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
_ALLOWED_BITS: Final = sum(1 << ACLOperation[name] for name in _ALLOWED)
_NO_ID: Final = str(uuid.UUID(int=0))
_SHOWN: Final = ("value", "read_only", "config_source", "is_sensitive")
_UNKNOWN: Final = 3
_WAIT_MS: Final = 10_000


class TopicsOfAdmin:
    """The calls of `KafkaAdminClient` for topics and partitions."""

    _cluster: Cluster

    def list_topics(self) -> list[str]:
        """Returns the names of all topics."""
        with Translating():
            return sorted(self._cluster.topics())

    def describe_topics(self, topics: Iterable[str | uuid.UUID] | None = None) -> list[Answer]:
        """Returns topics with their partitions. A topic that does not exist has the error code 3.

        Args:
            topics: names or ids; by default all.
        """
        with Translating():
            known = self._cluster.topics()
        wanted = sorted(known) if topics is None else list(topics)
        return [_described(each, _found(each, known)) for each in wanted]

    def describe_topic_partitions(
        self, topics: Iterable[str], response_partition_limit: int = 2000, cursor: Any = None
    ) -> dict[str, Any]:
        """Returns the same as `describe_topics`, for version 3's newer request."""
        rows = self.describe_topics(topics)
        for row in rows:
            del row["authorized_operations"]
            row["topic_authorized_operations"] = _ALLOWED_BITS
            row["topic_id"] = uuid.UUID(row["topic_id"] or _NO_ID)
            for partition in row["partitions"]:
                partition |= {"eligible_leader_replicas": None, "last_known_elr": None}
        return {"topics": rows, "next_cursor": None}

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: float = _WAIT_MS) -> None:
        """Raises KafkaTimeoutError at once if a topic does not exist: creation waits for nothing here."""
        missing = sorted(set(topic_names) - set(self.list_topics()))
        if missing:
            raise errors.KafkaTimeoutError(f"topics do not exist: {', '.join(missing)}")

    # ---- creating ------------------------------------------------------------------------------------------------------------

    def create_topics(
        self,
        new_topics: Mapping[str, Mapping[str, Any]] | Iterable[NewTopic | str],
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> Answer:
        """Creates topics.

        Args:
            new_topics: names; options by name; or `NewTopic` objects.
            timeout_ms: a topic is there when this returns.
            validate_only: true to create nothing.
            raise_errors: true to raise the first error; false to return error codes.
            wait_for_metadata: a topic is there when this returns.

        Raises:
            TypeError: no topics. ValueError: nothing to create. TopicAlreadyExistsError, InvalidTopicError,
            InvalidPartitionsError, InvalidConfigurationError, KafkaStorageError: raised for the first topic that fails; the
            others are created. InvalidConfigurationError: also for `remote.storage.enable` in a store without an archive.
        """
        if validate_only and wait_for_metadata:
            raise ValueError("validate_only and wait_for_metadata exclude each other")
        wanted = list(_topics_to_create(new_topics))
        if not wanted:
            raise ValueError(f"there is no topic in {new_topics!r}")
        return _carried_out(wanted, lambda topic: self._create(topic, validate_only=validate_only), raise_errors=raise_errors)

    def _create(self, topic: NewTopic, *, validate_only: bool) -> dict[str, Any]:
        count: int | None = len(topic.replica_assignments) or topic.num_partitions
        if count == -1:
            count = None
        elif not isinstance(count, int) or count < 1:
            raise errors.InvalidPartitionsError(f"topic {topic.name!r} cannot have {count} partitions")
        options, ignored = native_options(topic.topic_configs)
        with Translating(errors.InvalidConfigurationError):
            if validate_only:
                return self._checked_only(topic, count)
            made = self._cluster.create(topic.name, count, {name: value for name, value in options.items() if value is not None})
        self._cluster.meaningless[topic.name] = ignored
        return _created(_id(made), made.partition_count, _shown(options_of_topic(self._cluster, topic.name)))

    def _checked_only(self, topic: NewTopic, count: int | None) -> dict[str, Any]:
        if topic.name in self._cluster.topics():
            raise errors.TopicAlreadyExistsError(f"topic {topic.name!r} exists already")
        partitions = self._cluster.settings.num_partitions if count is None else count
        return _created(None, partitions, {})

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | Mapping[str, Any] | NewPartitions],
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Answer:
        """Raises the numbers of partitions of topics.

        Args:
            topic_partitions: by topic, the new number, `{"count": …}` or a `NewPartitions`.
            timeout_ms: the partitions are there when this returns.
            validate_only: true to create nothing.
            raise_errors: as for `create_topics`.

        Raises:
            UnknownTopicOrPartitionError, InvalidPartitionsError: raised for the first topic that fails.
            KafkaStorageError: a file cannot be written.
        """

        def grow(wanted: NewTopic) -> dict[str, Any]:
            known = self._cluster.partitions(wanted.name)
            if known is None:
                raise errors.UnknownTopicOrPartitionError(f"there is no topic {wanted.name!r}")
            if wanted.num_partitions <= len(known):
                message = f"topic {wanted.name!r} has {counted(len(known), 'partition')}; partitions can only be added"
                raise errors.InvalidPartitionsError(message)
            if not validate_only:
                self._cluster.store.add_partitions(wanted.name, wanted.num_partitions)
            return {}

        wanted = [NewTopic(name, _count(given)) for name, given in topic_partitions.items()]
        answer = _carried_out(wanted, grow, raise_errors=raise_errors)
        rows = [Answer({name: each[name] for name in ("name", "error_code", "error_message")}) for each in answer["topics"]]
        return Answer(results=rows)

    def delete_topics(
        self, topics: Iterable[str | uuid.UUID], timeout_ms: float | None = None, raise_errors: bool = True
    ) -> Answer:
        """Deletes topics, their records, and the offsets that groups have committed for them.

        Args:
            topics: names or ids.
            timeout_ms: the topics are deleted when this returns.
            raise_errors: as for `create_topics`.

        Raises:
            UnknownTopicOrPartitionError: raised for the first topic that does not exist.
            InvalidTxnStateError: an open transaction writes to the topic. KafkaStorageError: a file cannot be deleted.
        """

        def delete(wanted: NewTopic) -> dict[str, Any]:
            found = _found(wanted.name, self._cluster.topics())
            if found is None:
                raise errors.UnknownTopicOrPartitionError(f"there is no topic {wanted.name!r}")
            self._cluster.store.delete_topic(found.name)
            self._cluster.meaningless.pop(found.name, None)
            return {"name": found.name, "topic_id": _id(found)}

        return _carried_out([NewTopic(each) for each in topics], delete, raise_errors=raise_errors)  # type: ignore[arg-type]

    # ---- records and offsets -------------------------------------------------------------------------------------------------

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: float | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, int]]:
        """Deletes the records below an offset, by partition; -1 is the partition's end.

        Raises:
            TypeError: an offset is not an int.
            UnknownTopicOrPartitionError, OffsetOutOfRangeError: raised for the first partition that fails.
            PolicyViolationError: the topic is compacted and does not also delete.
            IllegalStateError: the archive of a tiered topic belongs to another directory. KafkaStorageError: a file cannot be
                changed, or the archive does not answer.
        """
        found = {}
        wanted = dict(records_to_delete or {})
        for partition, before in wanted.items():
            if isinstance(before, bool) or not isinstance(before, int):
                raise TypeError(f"the offset {before!r} of {partition} is not an int")
        with Translating(errors.PolicyViolationError):
            logs = {partition: self._cluster.store.log(*partition) for partition in wanted}
            for partition, before in wanted.items():
                start = logs[partition].delete_records(logs[partition].end_offset if before == -1 else before)
                found[partition] = {"partition_index": partition.partition, "low_watermark": start, "error_code": 0}
        return found

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, int],
        isolation_level: IsolationLevel | str = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Returns offsets by partition: of an `OffsetSpec`, or of the first record at or after a time.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist. TypeError: a requested offset is not a number.
            CorruptRecordError: a batch that the search needs is damaged.
            KafkaStorageError: a file cannot be read, or an archived record of a tiered topic cannot be fetched.

        Cost: `MAX_TIMESTAMP` reads the whole partition; all others read a few batches at most.
        """
        level = isolation_level if isinstance(isolation_level, str) else isolation_level.name
        with Translating():
            return {
                partition: self._offset_of(partition, spec, level.lower().replace("-", "_"))
                for partition, spec in topic_partition_specs.items()
            }

    def _offset_of(self, partition: TopicPartition, spec: Any, level: str) -> OffsetAndTimestamp:
        if isinstance(spec, bool) or not isinstance(spec, int):
            raise TypeError(f"{spec!r} is not an OffsetSpec, nor a time in milliseconds")
        log = self._cluster.store.log(*partition)
        if spec == OffsetSpec.LATEST:
            return OffsetAndTimestamp(log.stable_offset if level == "read_committed" else log.end_offset, -1, 0)
        if spec == OffsetSpec.EARLIEST:
            return OffsetAndTimestamp(log.start_offset, -1, 0)
        if spec == OffsetSpec.EARLIEST_LOCAL:
            return OffsetAndTimestamp(log.local_start_offset, -1, 0)
        if spec == OffsetSpec.LATEST_TIERED:
            archived_end = log.archived_end_offset
            return OffsetAndTimestamp(archived_end - 1, -1, 0) if archived_end else OffsetAndTimestamp(-1, -1)
        if spec == OffsetSpec.MAX_TIMESTAMP:
            stamps = ((record.timestamp, -record.offset) for record in log.records(isolation_level=level))
            stamp, offset = max(stamps, default=(-1, 1))
            return OffsetAndTimestamp(-offset, stamp)
        found = log.offset_for_timestamp(max(spec, 0), isolation_level=level)
        if found is None:
            return OffsetAndTimestamp(-1, -1)
        return OffsetAndTimestamp(found.offset, found.timestamp, -1 if found.leader_epoch is None else found.leader_epoch)


def _topics_to_create(given: Any) -> Iterator[NewTopic]:
    if isinstance(given, Mapping):
        for name, data in given.items():
            assignments = data.get("assignments") or {}
            configs = data.get("configs") or {}
            yield NewTopic(name, data.get("num_partitions", -1), data.get("replication_factor", -1), assignments, configs)
        return
    several = list(given)
    if all(isinstance(each, NewTopic) for each in several):
        yield from several
    elif all(isinstance(each, str) for each in several):
        yield from map(NewTopic, several)


def _carried_out(topics: list[NewTopic], act: Callable[[NewTopic], dict[str, Any]], *, raise_errors: bool) -> Answer:
    """Acts on each topic. Returns the answers; raises the first error afterwards, if that is wanted."""
    answers, first = [], None
    for topic in topics:
        answer = Answer(name=topic.name, topic_id=None, error_code=0, error_message=None)
        try:
            answer |= act(topic)
        except (PylogError, errors.BrokerResponseError) as error:
            made: Any = errors.InvalidTopicError(str(error)) if isinstance(error, InvalidTopicError) else translated(error)
            if isinstance(error, InvalidArgumentError) and not isinstance(made, errors.BrokerResponseError):
                made = errors.InvalidRequestError(str(error))
            answer |= {"error_code": getattr(made, "errno", None) or -1, "error_message": str(error)}
            first = first or made
        answers.append(answer)
    if first is not None and raise_errors:
        raise first
    return Answer(topics=answers)


def _found(wanted: str | uuid.UUID, known: Mapping[str, Topic]) -> Topic | None:
    if isinstance(wanted, uuid.UUID):
        return next((each for each in known.values() if _id(each) == str(wanted)), None)
    return known.get(wanted)


def _id(topic: Topic) -> str | None:
    return None if topic.id is None else str(uuid.UUID(bytes=base64.urlsafe_b64decode(topic.id + "==")))


def _created(topic_id: str | None, partitions: int, configs: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic_id": topic_id,
        "topic_config_error_code": 0,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": configs,
    }


def _shown(options: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Options as the answer to a creation has them."""
    return {name: {field: option[field] for field in _SHOWN} for name, option in options.items()}


def _described(wanted: str | uuid.UUID, topic: Topic | None) -> Answer:
    """Returns a topic with the keys of version 3 and of version 2."""
    if topic is None:
        name, topic_id = (None, str(wanted)) if isinstance(wanted, uuid.UUID) else (wanted, None)
        return _topic_row(name, topic_id, _UNKNOWN, [])
    return _topic_row(topic.name, _id(topic), 0, list(map(_partition_row, topic.partition_ids)))


def _topic_row(name: str | None, topic_id: str | None, code: int, partitions: list[Answer]) -> Answer:
    return Answer(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=str(name).startswith("__"),
        partitions=partitions,
        authorized_operations=list(_ALLOWED),
    )


def _partition_row(number: int) -> Answer:
    return Answer(
        error_code=0,
        partition_index=number,
        leader_id=0,
        leader_epoch=0,
        replica_nodes=[0],
        isr_nodes=[0],
        offline_replicas=[],
    )


def _count(given: Any) -> int:
    count = given.get("count") if isinstance(given, Mapping) else getattr(given, "total_count", given)
    if not isinstance(count, int):
        raise TypeError(f"a number of partitions is an int, not {count!r}")
    return count
