"""Deleting committed offsets: the records that do it, and the lines that say so (see `pylog.trace`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from pylog import trace
from pylog.errors import PylogError
from pylog.offsets.expiry import Expiry
from pylog.offsets.image import GroupImage
from pylog.offsets.membership import DELETION_ORDER
from pylog.offsets.schema import OLD_OFFSET, group_key, group_name, offset_key, parse_partition_key
from pylog.replayed_partition import KeyValue


def tombstones(name: bytes, group: GroupImage, deleted: Expiry) -> Iterator[KeyValue]:
    """The records that delete; the offsets' first, so that no crash leaves offsets of a group that is deleted."""
    for partition_key in deleted.partition_keys:
        yield offset_key(name, partition_key), None
        if partition_key in group.old_keys:
            yield offset_key(name, partition_key, OLD_OFFSET), None
    if deleted.group and group.is_consumer:
        yield from ((key, None) for key in sorted(group.membership, key=lambda key: (DELETION_ORDER.index(key[1]), key)))
    elif deleted.group:
        yield group_key(name), None


Lines = list[tuple[trace.Event, dict[str, Any]]]


def deletion_lines(name: bytes, group: GroupImage, deleted: Expiry, reason: str) -> Lines:
    """The lines for the deletion of a group's offsets and, if it is deleted too, of the group. Call it before the deletion.

    Args:
        name: the bytes of the group's name.
        group: as it is.
        deleted: what will be deleted.
        reason: why.
    """
    found: Lines = []
    if deleted.partition_keys and trace.wanted(trace.OFFSETS_DELETED):
        offsets = [_offset(group, partition_key) for partition_key in sorted(deleted.partition_keys)]
        facts = {"group": group_name(name), "count": len(offsets), "offsets": offsets, "reason": reason}
        found.append((trace.OFFSETS_DELETED, facts))
    if deleted.group:
        found.append((trace.GROUP_DELETED, {"group": group_name(name), "reason": reason}))
    return found


def trace_deletions(lines: Iterable[tuple[trace.Event, dict[str, Any]]]) -> None:
    """Logs the lines, when the deletion is done."""
    for event, facts in lines:
        trace.line(event, **facts)


def _offset(group: GroupImage, partition_key: bytes) -> str:
    """A partition and its committed offset; None if only an open transaction has one, or the record is damaged."""
    topic, number = parse_partition_key(partition_key)
    if partition_key in group.entries:
        with contextlib.suppress(PylogError):
            return f"{topic}-{number}:{group.commit(partition_key).committed.offset}"
    return f"{topic}-{number}"
