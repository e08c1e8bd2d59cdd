"""`PendingCommit`: the offsets that a transaction commits for a group. They count once it is committed
(groups-and-transactions 1.10).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pylog.config import Durability
from pylog.errors import FencedMemberError, NonEmptyGroupError
from pylog.log.partition_log import PartitionLog
from pylog.offsets.arguments import checked_group
from pylog.offsets.commit_records import CommitRecords
from pylog.offsets.group_metadata import ConsumerGroupMetadata
from pylog.offsets.image import Image
from pylog.offsets.offset_manager import OffsetManager, PartitionLike, view_of
from pylog.offsets.partition import OffsetsPartition
from pylog.offsets.schema import OFFSETS_TOPIC
from pylog.record.types import OffsetAndMetadata, TopicPartition, TransactionalBatch


class PendingCommit:
    """The offsets of one group, or of one member of it, in a transaction.

    Args:
        manager: the store's manager.
        group: the group, and the member that commits.

    Raises:
        InvalidArgumentError: the group's name is empty or too long.
    """

    def __init__(self, manager: OffsetManager, group: ConsumerGroupMetadata) -> None:
        self._manager = manager
        self._name = checked_group(group.group_id)
        self.group = group
        self._partitions: set[TopicPartition] = set()
        self._records: dict[bytes, bytes | None] = {}
        self._logs: dict[TopicPartition, PartitionLog] = {}

    def add(self, offsets: Mapping[PartitionLike, int | OffsetAndMetadata]) -> None:
        """Adds offsets, for the logs that the partitions have now. A later offset of a partition replaces an earlier one.

        Raises:
            OffsetOutOfRangeError, UnknownTopicOrPartitionError, InvalidArgumentError: nothing was added.
        """
        found = self._manager.items(self.group.group_id, offsets)
        self._partitions.update(TopicPartition(*partition) for partition in offsets)
        self._records.update(found.records)
        self._logs.update((log.partition, log) for log in found.logs)

    def partition(self) -> TopicPartition:
        """Returns the partition of the group's records. It is created if it is missing."""
        number = self._manager.with_partition(self.group.group_id, lambda partition: partition.number)
        return TopicPartition(OFFSETS_TOPIC, number)

    def append(self, batch: TransactionalBatch, durability: Durability, check: Callable[[], object]) -> range:
        """Appends the offsets, if the member owns their partitions at that moment, or the group has no active members.

        Args:
            batch: the numbers of the transaction's batch.
            durability: the append's durability.
            check: called under the lock of the group's partition. Nothing is appended if it raises.

        Returns:
            The offsets of the records.

        Raises:
            FencedMemberError: the member has lost a partition. NonEmptyGroupError: the group has active members.
            UnknownTopicOrPartitionError: a topic was deleted since its offset was added.
        """
        items = CommitRecords(list(self._records.items()), list(self._logs.values()))

        def act(partition: OffsetsPartition) -> range:
            with partition.exclusively() as image:
                self._check_group(partition, image)
                check()
                return partition.append(items.records, None, durability, check=items.check, producer=batch)

        return self._manager.with_partition(self.group.group_id, act)

    def _check_group(self, partition: OffsetsPartition, image: Image) -> None:
        """Raises unless the offsets may be committed now. The caller holds the partition's lock (rule 15)."""
        view = view_of(partition, image, self._name)
        try:
            if self.group.member_id:
                self._manager.members.check_commit(view, self.group, self._partitions)
            elif not self._manager.accepts_without_member:
                self._manager.refuse_members(self.group.group_id, view)
        except FencedMemberError as error:
            raise FencedMemberError(f"{error}; abort the transaction, and poll before you begin another one") from None
        except NonEmptyGroupError as error:
            raise NonEmptyGroupError(f"{error}, or send the offsets with the group_metadata() of the consumer") from None
