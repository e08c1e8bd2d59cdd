"""`OffsetStore`: the committed offsets of consumer groups, in Kafka's own topic `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pylog.config import Durability
from pylog.errors import InvalidTypeError, PylogError
from pylog.factory_made import FactoryMade
from pylog.offsets.offset_manager import OffsetManager, PartitionLike
from pylog.record.types import OffsetAndMetadata, TopicPartition
from pylog.skipped import Skipped


class OffsetStore(FactoryMade, factory="Store.offsets"):
    """The committed offsets of a store, by group: `Store.offsets`. Any thread and process may call any method.

    A committed offset is the offset of the next record to read. Groups without members are Kafka's simple groups: the last commit
    counts.

    Once the store is closed, each call raises `ClosedError`. A call raises `StoreLockedError` if another process keeps a
    partition locked for longer than `lock_timeout_ms`; the first read of a partition takes its lock, too. In a store that is
    opened by the URL of an archive, reading raises `ObjectStoreError` if a request fails.

    >>> import pylog, tempfile
    >>> store = pylog.open(tempfile.mkdtemp())
    >>> _ = store.create_topic("orders")
    >>> _ = store.log("orders").append_many([b"a", b"b"])
    >>> store.offsets.commit("billing", {("orders", 0): 1})
    >>> store.offsets.fetch("billing")[("orders", 0)].offset
    1
    >>> store.close()
    """

    _manager: OffsetManager

    def commit(
        self,
        group_id: str,
        offsets: Mapping[PartitionLike, int | OffsetAndMetadata],
        *,
        durability: Durability | str | None = None,
    ) -> None:
        """Commits offsets: all of them, or none even after a crash.

        Args:
            group_id: a name of 1 to 32,767 bytes.
            offsets: (topic, partition) to the offset of the next record to read, from 0 to the partition's end.
            durability: the level of this commit; by default, the store's.

        Raises:
            InvalidArgumentError: the group's name is empty or too long, an offset is negative, metadata has more than 4096
                UTF-16 code units. Here as below, nothing was written.
            NonEmptyGroupError: the group has active members; only they can commit.
            UnknownTopicOrPartitionError: there is no such partition.
            OffsetOutOfRangeError: an offset is past the partition's end.
            RecordTooLargeError: the offsets do not fit into one batch.
            ReadOnlyError, CorruptionError, StorageFailedError: as `Log.append`.

        Cost: one append; the first one in a directory makes the topic `__consumer_offsets`.
        """
        if type(offsets) is not dict and not isinstance(offsets, Mapping):  # the latter takes a call
            raise InvalidTypeError(f"offsets must be a mapping, as in {{('orders', 0): 1}}, and not {offsets!r}")
        self._manager.commit(group_id, offsets, durability=durability)

    def fetch(self, group_id: str, partitions: Iterable[PartitionLike] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns a group's committed offsets.

        Args:
            group_id: the group's name. A group without commits has no offsets.
            partitions: only these partitions; those without a commit are left out.

        Raises:
            CorruptionError: the offsets are damaged, so the group's commits are unknown.

        Cost: a refresh of the log's end, and a copy. The first call in a process reads the partition of `__consumer_offsets`.
        """
        return self._manager.fetch(group_id, partitions)

    def position(self, group_id: str, partition: PartitionLike) -> int | None:
        """Returns the offset that a group will read next.

        Args:
            group_id: the group's name.
            partition: a topic and the number of a partition.

        Returns:
            The offset; None if the group has committed none.

        Raises, Cost: as `fetch`.
        """
        return self._manager.position(group_id, partition)

    def pending(self, group_id: str) -> set[TopicPartition]:
        """Returns the partitions for which an open transaction has committed offsets of the group.

        Args:
            group_id: the group's name.

        A caller that must not read records twice waits for the transaction's end before it fetches them, as Kafka's consumers do.

        Raises, Cost: as `fetch`.
        """
        return self._manager.pending(group_id)

    def groups(self) -> list[str]:
        """Returns the names of all groups, sorted. Cost: the first call in a process reads all of `__consumer_offsets`.

        Raises:
            CorruptionError: a part of the offsets is damaged, so not all groups are known.
        """
        return self._manager.groups()

    def known_groups(self) -> tuple[list[str], dict[int, PylogError]]:
        """Returns the names of the groups in all partitions that can be read, and why others cannot be.

        Returns:
            The names, sorted; and for each partition of `__consumer_offsets` that cannot be read the error, by the partition's
            number: its groups are missing.

        Cost: as `groups`.
        """
        return self._manager.known_groups()

    def skipped_records(self) -> dict[int, tuple[int, list[Skipped]]]:
        """Returns the records of `__consumer_offsets` that are skipped, because no version of Kafka writes such records.

        A skipped record changes nothing: the commits and members of all groups are as if it were not there.

        Returns:
            By partition: the number of such records, and the offset and the fault of the first ones. Partitions without any,
            and those that cannot be read, are left out.

        Cost: as `groups`.
        """
        return self._manager.skipped_records()

    def delete(
        self, group_id: str, partitions: Iterable[PartitionLike] | None = None, *, durability: Durability | str | None = None
    ) -> set[TopicPartition]:
        """Deletes committed offsets of a group, including offsets pending in open transactions; all or none of them.

        Args:
            group_id: the group; it need not exist.
            partitions: only for these; by default for all, and the group itself with them. Records of members of Kafka's newer
                protocol stay.
            durability: as for `commit`.

        Returns:
            The partitions whose offsets were deleted.

        Raises:
            ReadOnlyError, CorruptionError, StorageFailedError: as `Log.append`.

        Cost: one append if there is something to delete.
        """
        return self._manager.delete(group_id, partitions, durability=durability)

    def expire(self, now_ms: int | None = None) -> int:
        """Deletes offsets that have expired by Kafka's rules: unused for `OffsetsConfig.retention_minutes`.

        Args:
            now_ms: the wall clock, in milliseconds; the store's clock by default.

        Returns:
            How many offsets were deleted.

        Raises:
            ReadOnlyError, CorruptionError, StorageFailedError: as `Log.append`.

        Cost: one check of every offset; `Store.tick` calls it every `OffsetsConfig.retention_check_interval_ms`.
        """
        return self._manager.expire(now_ms)


def offset_store(manager: OffsetManager) -> OffsetStore:
    """Returns the public face of an `OffsetManager`."""
    made = OffsetStore.__new__(OffsetStore)
    made._manager = manager
    return made


def offset_manager_of(store: OffsetStore) -> OffsetManager:
    """Returns the `OffsetManager` of an `OffsetStore`."""
    return store._manager
