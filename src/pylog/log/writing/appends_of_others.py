"""Adds the appends of another process to the active segment and the producers, as if this process had written them."""

from __future__ import annotations

from pylog.log.durable_point import DurablePoint, DurablePointFile
from pylog.log.producer_state import ProducerStateManager
from pylog.log.writing.active_segment import ActiveSegment


def take_appends(
    active: ActiveSegment, header: DurablePointFile, producers: ProducerStateManager, epoch: int, *, published: bool
) -> DurablePoint | None:
    """Adds the batches between the end known here and the published end.

    Args:
        active, header, producers: the writer's. They are incomplete if this returns None: load the log again.
        epoch: the epoch of the last published state.
        published: true to add only published records, for reads without the partition's lock.

    Returns:
        The header's slot; None if another process did more than append, or the batches are not as expected.

    Cost: one pass over the new bytes.
    """
    old, slot = header.slot, header.refresh()
    if old is None or slot is None or not header.same_boot or slot.flags:
        return None
    same = (slot.epoch, slot.active_base, slot.active_inode) == (epoch, active.base_offset, old.active_inode)
    size, position = active.file.raw.size(), slot.published_position
    whole = position == size or (position < size and (published or active.file.is_blank_at(position)))
    if slot.epoch % 2 or not same or not whole or position < active.size:
        return None
    for region in active.segment.regions(active.size, position, verify=True):
        if not active.take(region):
            return None
        active.aborted += producers.replay(region.buffer, region.table)
    if (active.size, active.next_offset) != (position, slot.published_offset):
        return None
    active.file.end = size
    return slot
