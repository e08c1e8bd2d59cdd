"""Tells which ends a truncation may have, so that it parts no transaction's records from its marker (transactions 13.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pylog.errors import CorruptionError, InvalidTransactionStateError
from pylog.log.recovery.loaded import Source
from pylog.log.recovery.producer_snapshots import read_snapshot
from pylog.log.state import LogState
from pylog.log.writing.undecided import undecided
from pylog.log.writing.writer import LogWriter
from pylog.record.format import ATTRIBUTES, BASE_OFFSET, CONTROL_BIT, LAST_OFFSET, PRODUCER_ID, TRANSACTIONAL_BIT


class TransactionSpan(NamedTuple):
    """An ended transaction: the offset of its first record, and that of its marker."""

    first: int
    marker: int

    def is_parted_by(self, end: int) -> bool:
        """Returns whether a truncation to `end` keeps records of the transaction and deletes its marker."""
        return self.first < end <= self.marker


def check_whole(writer: LogWriter, source: Source, end: int, now_ms: int) -> None:
    """Raises InvalidTransactionStateError if a truncation would part or shorten a transaction.

    A broker's hanging transaction may be shortened: no coordinator will commit it. Records of a transaction that are only in the
    archive count as well.

    Cost: one pass over the batch headers after `end`; over those of the whole log if there are markers.
    """
    directory = source.directory
    for found in undecided(writer.producers.open_producers(), now_ms):
        last = found.last_offset
        if last >= end:
            message = f"{directory}: a transaction of producer {found.producer_id} is open, with records up to offset {last}"
            advice = f"commit or abort it first, or truncate to {last + 1} or more"
            raise InvalidTransactionStateError(f"{message}, and a truncation to {end} would delete some; {advice}", offset=last)
    spans = _spans(source, writer.state, end)
    parted = next((span for span in spans if span.is_parted_by(end)), None)
    if parted is not None:
        message = f"{directory}: a truncation to {end} would keep records of the transaction that begins at offset {parted.first}"
        ends = [_below(spans, end), _above(spans, end)]
        possible = " or ".join(str(each) for each in ends if each >= writer.state.start_offset)
        advice = f"delete its marker at {parted.marker}; truncate to {possible}"
        raise InvalidTransactionStateError(f"{message}, and {advice}", offset=parted.marker)


def _below(spans: list[TransactionSpan], end: int) -> int:
    while firsts := [span.first for span in spans if span.is_parted_by(end)]:
        end = min(firsts)
    return end


def _above(spans: list[TransactionSpan], end: int) -> int:
    while markers := [span.marker for span in spans if span.is_parted_by(end)]:
        end = max(markers) + 1
    return end


def _spans(source: Source, state: LogState, end: int) -> list[TransactionSpan]:
    """Returns the ended transactions of a log; none if it has no marker at or after an offset."""
    if not any(is_marker for _, _, _, is_marker in _transactional(state, end)):
        return []
    spans: list[TransactionSpan] = []
    began, unknown = _archived_beginnings(source, state)
    for producer, base, last, is_marker in _transactional(state, state.start_offset):
        if not is_marker:
            began.setdefault(producer, max(base, state.start_offset))
            continue
        first = began.pop(producer, unknown)
        if first is not None:
            spans.append(TransactionSpan(first, last))
    return spans


def _archived_beginnings(source: Source, state: LogState) -> tuple[dict[int, int], int | None]:
    """Returns the transactions that were open where the local records begin, if earlier ones are in the archive.

    The snapshot at the first local segment has them. Without it each marker may end a transaction with records in the archive.

    Returns:
        The first offset of each, by producer id; and the offset from which a transaction may begin that is not among them, or
        None if there is none.
    """
    if not state.remote_offsets or state.segments.first is None:
        return {}, None
    try:
        known = read_snapshot(source.fs, source.directory, state.segments.first[0])
    except CorruptionError:
        known = None
    if known is None:
        return {}, state.whole_start
    opened = ((each.producer_id, max(each.first_offset, state.whole_start)) for each in known.open_transactions())
    return dict(opened), None


def _transactional(state: LogState, start: int) -> Iterator[tuple[int, int, int, bool]]:
    """Yields producer id, first and last offset of transactional batches that reach an offset, and whether each is a marker."""
    for _, segment in state.segments:
        for region in segment.regions(segment.locate(max(start, segment.base_offset)), state.size_of(segment)):
            table = region.table
            wanted = (table[LAST_OFFSET] >= start) & (table[ATTRIBUTES] & TRANSACTIONAL_BIT != 0) & (table[PRODUCER_ID] >= 0)
            for batch in np.flatnonzero(wanted).tolist():
                producer, base, last, attributes = (
                    int(table[row, batch]) for row in (PRODUCER_ID, BASE_OFFSET, LAST_OFFSET, ATTRIBUTES)
                )
                yield producer, base, last, bool(attributes & CONTROL_BIT)
