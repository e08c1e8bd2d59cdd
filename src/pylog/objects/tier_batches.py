"""Finds offsets in a segment of a tier by its offset index and its batch headers, for segments whose end no record tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from pylog import limits, trace
from pylog.directory.leader_epoch_cache import EPOCHS, EpochEntry, assign_epoch, epoch_for_offset
from pylog.errors import CorruptionError, ObjectStoreError, ObjectStoreUnavailableError
from pylog.index import kinds
from pylog.index.offset_index import OffsetPosition
from pylog.objects.tier_source import SegmentObjects
from pylog.record.format import BASE_OFFSET, HEADER_SIZE, LAST_OFFSET, LEADER_EPOCH, POSITION, SIZE
from pylog.record.header import header_column
from pylog.segment.names import INDEX, LEADER_EPOCH_CHECKPOINT

_WINDOW_BYTES: Final = 256 << 10


def end_offset(objects: SegmentObjects, base_offset: int, size: int) -> int:
    """Returns the offset after a segment's last batch.

    Args:
        objects: the segment.
        base_offset: its first offset.
        size: bytes of its log.

    Raises:
        CorruptionError: its batches do not end at its end.

    Cost: its offset index, and the headers after the index's last entry.
    """
    end = base_offset
    for column in _columns(objects, _hint(objects, base_offset, size, limits.INT64_MAX), size):
        end = column[LAST_OFFSET] + 1
    return end


def position_of(objects: SegmentObjects, base_offset: int, size: int, offset: int) -> int:
    """Returns the position of the first batch that begins at or after an offset; the size if there is none.

    Arguments, errors and cost are those of `end_offset`.
    """
    for column in _columns(objects, _hint(objects, base_offset, size, offset - 1), size):
        if column[BASE_OFFSET] >= offset:
            return column[POSITION]
    return size


def epochs_in(checkpoint: bytes | None, url: str) -> list[EpochEntry]:
    """Returns the entries of a segment's copy of the leader epoch checkpoint; none if it is missing, damaged or empty.

    Args:
        checkpoint: the copy; None if it is missing.
        url: the segment's URL.
    """
    with suppress(CorruptionError):
        return EPOCHS.parsed(checkpoint, url) if checkpoint is not None else []
    return []


def epochs_within(objects: SegmentObjects, base_offset: int, end: int, size: int) -> tuple[EpochEntry, ...]:
    """Returns the leader epochs of a segment's offsets, from its copy of the checkpoint, else from its batches.

    Args:
        objects: the segment.
        base_offset, end: its offsets.
        size: bytes of its log.

    Cost: the checkpoint and two ranges of the log; all its headers if the checkpoint has no entries of these offsets, or
        contradicts the first or the last batch.
    """
    entries = epochs_in(objects.small_file(LEADER_EPOCH_CHECKPOINT), objects.url)
    starts = [(entry.epoch, max(entry.start_offset, base_offset)) for entry in entries]
    ends = [start for _, start in starts[1:]] + [end] * bool(starts)
    found = [EpochEntry(epoch, start) for (epoch, start), stop in zip(starts, ends, strict=True) if start < min(stop, end)]
    if not found:
        return epochs_of_batches(objects, size)
    wrong = epoch_misfit(objects, base_offset, size, found)
    if wrong is None:
        return tuple(found)
    trace.line(trace.TIER_EPOCHS_WRONG, path=objects.url, reason=wrong, then="the batches count")
    return epochs_of_batches(objects, size)


def epoch_misfit(objects: SegmentObjects, base_offset: int, size: int, epochs: Sequence[EpochEntry]) -> str | None:
    """Returns how leader epochs contradict a segment's first or last batch, in words; None if they do not.

    Args:
        objects: the segment.
        base_offset: its first offset.
        size: bytes of its log.
        epochs: what its description says, ascending.

    Cost: two ranges of the log, and its offset index.
    """
    first = next(_columns(objects, 0, size), None)
    last = first
    for last in _columns(objects, _hint(objects, base_offset, size, limits.INT64_MAX), size):  # noqa: B007 - for the last one
        pass
    for column in (first, last):
        if column is None or column[LEADER_EPOCH] < 0:
            continue
        written = epoch_for_offset(list(epochs), column[LAST_OFFSET])
        if written != column[LEADER_EPOCH] and (column is last or written is not None):  # a log may start after the first batch
            have = "none" if written is None else str(written)
            return f"offset {column[LAST_OFFSET]} has the leader epoch {column[LEADER_EPOCH]} in its batch, and {have} there"
    return None


def epochs_of_batches(objects: SegmentObjects, size: int) -> tuple[EpochEntry, ...]:
    """Returns the leader epochs of a segment's batches. Cost: all headers of the log."""
    found: list[EpochEntry] = []
    for column in _columns(objects, 0, size):
        found = assign_epoch(found, column[LEADER_EPOCH], column[BASE_OFFSET])
    return tuple(found)


def _hint(objects: SegmentObjects, base_offset: int, size: int, offset: int) -> int:
    """Returns the position of a batch at or before an offset, by the index; 0 if the index is damaged or missing."""
    data = b""
    try:
        data = objects.small_file(INDEX) or b""
    except ObjectStoreUnavailableError:
        raise
    except (CorruptionError, ObjectStoreError):
        pass
    index, damaged = kinds.OFFSETS.parsed(data, objects.url, base_offset, size)
    if damaged or not len(index):
        return 0
    entry: OffsetPosition = index.lookup(offset)
    if not 0 < entry.position < size - HEADER_SIZE:
        return 0
    column = header_column(bytes(objects.read(entry.position, entry.position + HEADER_SIZE)), entry.position)
    fits = column is not None and base_offset <= column[BASE_OFFSET] <= entry.offset
    return entry.position if fits else 0


def _columns(objects: SegmentObjects, position: int, size: int) -> Iterator[tuple[int, ...]]:
    """Yields the headers from a position on."""
    start, window = position, b""
    while position < size:
        if position + HEADER_SIZE > start + len(window):
            start, window = position, bytes(objects.read(position, min(size, position + _WINDOW_BYTES)))
        at = position - start
        column = header_column(window[at : at + HEADER_SIZE], position)
        if column is None or position + column[SIZE] > size:
            message = f"{objects.url} is damaged at position {position}: there is no whole batch; restore the object"
            raise CorruptionError(message, path=objects.url, position=position)
        yield column
        position += column[SIZE]
