"""Tells which ends a truncation may have, so that it parts no transaction's records from its marker (transactions 13.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pylog.errors import InvalidTransactionStateError
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


def check_truncation(writer: LogWriter, directory: str, end: int, now_ms: int) -> None:
    """Raises InvalidTransactionStateError if a truncation would part or shorten a transaction.

    A broker's hanging transaction may be shortened: no coordinator will commit it.

    Cost: one pass over the batch headers after `end`; over those of the whole log if there are markers.
    """
    for found in undecided(writer.producers.open_producers(), now_ms):
        last = found.last_offset
        if last >= end:
            message = f"{directory}: a transaction of producer {found.producer_id} is open, with records up to offset {last}"
            advice = f"commit or abort it first, or truncate to {last + 1} or more"
            raise InvalidTransactionStateError(f"{message}, and a truncation to {end} would delete some; {advice}", offset=last)
    spans = _spans(writer.state, end)
    parted = next((span for span in spans if span.is_parted_by(end)), None)
    if parted is not None:
        message = f"{directory}: a truncation to {end} would keep records of the transaction that begins at offset {parted.first}"
        advice = f"truncate to {_below(spans, end)} or {_above(spans, end)}"
        raise InvalidTransactionStateError(f"{message}, and delete its marker at {parted.marker}; {advice}", offset=parted.marker)


def _below(spans: list[TransactionSpan], end: int) -> int:
    while firsts := [span.first for span in spans if span.is_parted_by(end)]:
        end = min(firsts)
    return end


def _above(spans: list[TransactionSpan], end: int) -> int:
    while markers := [span.marker for span in spans if span.is_parted_by(end)]:
        end = max(markers) + 1
    return end


def _spans(state: LogState, end: int) -> list[TransactionSpan]:
    """Returns the ended transactions of a log; none if it has no marker at or after an offset."""
    if not any(is_marker for _, _, _, is_marker in _transactional(state, end)):
        return []
    spans: list[TransactionSpan] = []
    began: dict[int, int] = {}
    for producer, base, last, is_marker in _transactional(state, state.start_offset):
        if not is_marker:
            began.setdefault(producer, max(base, state.start_offset))
        elif producer in began:
            spans.append(TransactionSpan(began.pop(producer), last))
    return spans


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
