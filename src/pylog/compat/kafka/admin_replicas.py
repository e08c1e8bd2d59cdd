"""An administrator's replicas: each partition has one copy, at broker 0, in the store's directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pylog.compat.clusters import Cluster
from pylog.compat.kafka import errors
from pylog.compat.kafka.admin_types import Answer
from pylog.compat.kafka.metadata import NODE
from pylog.compat.kafka.structs import TopicPartitionReplica
from pylog.compat.kafka.translation import Translating
from pylog.record.types import TopicPartition

_ELECTIONS: Final = (0, 1)  # preferred, unclean
_ONE_COPY: Final = [NODE.node_id]


Partitions = Mapping[str, Iterable[int]] | Iterable[str]  # by topic, or topics with all of theirs


class ReplicasOfAdmin:
    """The calls of `KafkaAdminClient` for leaders and copies. They answer as a broker without other brokers does."""

    _cluster: Cluster

    def elect_leaders(
        self,
        election_type: Any,
        topic_partitions: Partitions | None = None,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Answer:
        """Elects nobody: each partition's leader is broker 0. Each partition has the error code 84 (election not needed).

        Args:
            election_type: 0 (preferred) or 1 (unclean).
            topic_partitions: partitions by topic, or topics; None elects where it is needed, so nowhere.
            timeout_ms: ignored.
            raise_errors: true to raise the error of the first partition that does not exist.

        Raises:
            ValueError: the type is wrong. UnknownTopicOrPartitionError: a partition does not exist.
        """
        if election_type not in _ELECTIONS:
            raise ValueError(f"election_type={election_type!r} is not 0 (preferred) or 1 (unclean)")
        rows = [
            Answer(topic=topic, partition_result=[self._elected(topic, number, raise_errors=raise_errors) for number in numbers])
            for topic, numbers in self._chosen(topic_partitions)
        ]
        return Answer(throttle_time_ms=0, error_code=0, replica_election_results=rows)

    def _chosen(self, given: Partitions | None) -> Iterator[tuple[str, Iterable[int]]]:
        if isinstance(given, Mapping):
            yield from given.items()
        else:
            for topic in given or ():
                yield topic, self._cluster.partitions(topic) or (0,)

    def _elected(self, topic: str, number: int, *, raise_errors: bool) -> Answer:
        kind: Any = errors.ElectionNotNeededError
        if not self._exists(topic, number):
            kind = errors.UnknownTopicOrPartitionError
            if raise_errors:
                raise kind(f"there is no partition {number} of topic {topic!r}")
        return Answer(partition_id=number, error_code=kind.errno, error_message=kind.description)

    def perform_leader_election(
        self, election_type: Any, topic_partitions: Partitions | None = None, timeout_ms: float | None = None
    ) -> Answer:
        """Does the same, by version 2's name."""
        return self.elect_leaders(election_type, topic_partitions, timeout_ms)

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Iterable[int] | None], timeout_ms: float | None = None
    ) -> dict[TopicPartition, Any]:
        """Accepts broker 0 as the only broker of a partition.

        Args:
            reassignments: ids of brokers by partition; None cancels a reassignment.
            timeout_ms: ignored.

        Returns:
            By partition None, or the class of an error.

        Raises:
            ValueError: a list of brokers is empty, or has something else than ints.
        """
        wanted = {partition: None if brokers is None else list(brokers) for partition, brokers in reassignments.items()}
        for partition, brokers in wanted.items():
            if brokers is not None and not (brokers and all(isinstance(each, int) for each in brokers)):
                raise ValueError(f"the brokers of {partition} must be ids, at least one; None cancels a reassignment")
        return {TopicPartition(*partition): self._reassigned(partition, brokers) for partition, brokers in wanted.items()}

    def _reassigned(self, partition: Any, brokers: list[int] | None) -> Any:
        if not self._exists(*partition):
            return errors.UnknownTopicOrPartitionError
        if brokers is None:
            return errors.NoReassignmentInProgressError
        return None if brokers == _ONE_COPY else errors.InvalidReplicationAssignmentError

    def list_partition_reassignments(self, topic_partitions: Any = None, timeout_ms: float | None = None) -> dict[Any, Any]:
        """Returns nothing: a partition has one copy, which stays."""
        return {}

    def alter_replica_log_dirs(self, replica_assignments: Mapping[Any, str]) -> dict[Any, Any]:
        """Accepts the store's directory as the only one for a copy.

        Args:
            replica_assignments: directories by topic, partition and broker.

        Returns:
            The class of an error by copy, NoError for none.
        """
        copies = {_copy_of(given): directory for given, directory in replica_assignments.items()}
        return {copy: self._moved(copy, directory) for copy, directory in copies.items()}

    def _moved(self, copy: TopicPartitionReplica, directory: str) -> Any:
        if copy.broker_id != NODE.node_id or not self._exists(copy.topic, copy.partition):
            return errors.UnknownTopicOrPartitionError
        return errors.NoError if directory == self._cluster.name else errors.LogDirNotFoundError

    def _exists(self, topic: str, number: int) -> bool:
        with Translating():
            return number in (self._cluster.partitions(topic) or ())


def _copy_of(given: Any) -> TopicPartitionReplica:
    if not isinstance(given, tuple) or len(given) != len(TopicPartitionReplica._fields):
        raise TypeError(f"{given!r} is not a copy of a partition; give a TopicPartitionReplica")
    return TopicPartitionReplica(*given)
