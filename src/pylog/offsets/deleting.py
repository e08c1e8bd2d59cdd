"""Deletes committed offsets: the tombstones, and their log lines (see `pylog.trace`)."""

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
    """Yields the tombstones; those of offsets first, so that no crash leaves offsets of a deleted group."""
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
    """Returns the log lines for the deletion of a group's offsets and of the group. Call it before the deletion.

    Args:
        name: the bytes of the group's name.
        group: the group before the deletion.
        deleted: the offsets to delete, and whether the group is deleted too.
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
    """Returns a partition and its committed offset, without the offset if it is only pending or its record is damaged."""
    topic, number = parse_partition_key(partition_key)
    if partition_key in group.entries:
        with contextlib.suppress(PylogError):
            return f"{topic}-{number}:{group.commit(partition_key).committed.offset}"
    return f"{topic}-{number}"
