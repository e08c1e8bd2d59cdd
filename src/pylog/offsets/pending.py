"""Appends the offsets of a group in a transaction: they are pending until it ends (groups-and-transactions 1.10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pylog.config import Durability
from pylog.offsets.arguments import checked_group
from pylog.offsets.offset_manager import OffsetManager, PartitionLike, view_of
from pylog.offsets.partition import OffsetsPartition
from pylog.record.types import OffsetAndMetadata, TransactionalBatch


def append_pending(
    manager: OffsetManager,
    group_id: str,
    offsets: Mapping[PartitionLike, int | OffsetAndMetadata],
    batch: TransactionalBatch,
    durability: Durability,
    check: Callable[[], object],
) -> range:
    """Appends the offsets of a group without active members in a transaction. They count once it is committed.

    Args:
        manager: of the store.
        group_id, offsets: as for `OffsetStore.commit`.
        batch: the numbers of the transaction's batch.
        durability: of the append.
        check: called under the lock of the group's partition. Nothing is appended if it raises.

    Returns:
        The offsets of the records.

    Raises:
        NonEmptyGroupError: the group has active members. As `OffsetStore.commit`.
    """
    name, items = checked_group(group_id), manager.items(group_id, offsets)

    def act(partition: OffsetsPartition) -> range:
        with partition.exclusively() as image:
            manager.refuse_members(group_id, view_of(partition, image, name))
            check()
            return partition.append(items.records, None, durability, check=items.check, producer=batch)

    return manager.with_partition(group_id, act)
