"""Reading a log: forwards from an offset, one record, by time. Works on a published `LogState`; takes no lock, writes nothing.

Every batch that is handed out has a good CRC and fits between its neighbours. Damage raises a `CorruptionError` that says where
reading can go on; what lies before it has been handed out by then.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pylog.errors import CorruptionError, OffsetOutOfRangeError, PylogError, StorageFailedError
from pylog.index.transaction_index import AbortedTransaction
from pylog.log.producer_state import control_record
from pylog.log.state import LogState
from pylog.record.batch import Bytes, Table
from pylog.record.decoder import RecordDecoder
from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_ABORT,
    CONTROL_BIT,
    CRC,
    HEADER_SIZE,
    LAST_OFFSET,
    MAGIC,
    POSITION,
    PRODUCER_ID,
    SIZE,
    TRANSACTIONAL_BIT,
)
from pylog.record.header import header_column
from pylog.segment.batch_walk import Damage, crc_is_good, first_offsets, next_good_batch, offset_at, walk
from pylog.segment.segment import LogSegment, vanished

_STEPS: Final = 64  # batches between two entries of an index: as many as fit into Kafka's 4 KiB


class Batches(NamedTuple):
    """Good batches of one segment: POSITION counts from the buffer's start, which lies at `shift` in the file."""

    segment: LogSegment
    buffer: Bytes
    table: Table
    shift: int


class TransactionEnd(NamedTuple):
    """A marker: its offset, whose transaction it ends, and how."""

    offset: int
    producer_id: int
    committed: bool


class OffsetRange(NamedTuple):
    """What is to be read: offsets from `start` to before `end`."""

    start: int
    end: int


def good_batches(state: LogState, wanted: OffsetRange) -> Iterator[Batches]:
    """The batches that hold the offsets wanted, in order, a region of a segment at a time; control batches among them.

    CRCs are left to who decodes the records.

    Raises:
        CorruptionError: at the first bytes wanted that are not the batch that should be there.
        OffsetOutOfRangeError: a segment's file was removed meanwhile.
    """
    reached = wanted.start
    for segment, segment_end in state.from_offset(wanted.start):
        if segment.base_offset >= wanted.end:
            return
        try:
            for batches in _segment_batches(state, segment, segment_end, wanted._replace(start=reached)):
                yield batches
                reached = int(batches.table[LAST_OFFSET, -1]) + 1  # of a compaction that is at work old and new files are seen
        except StorageFailedError as error:
            if not vanished(error):
                raise
            offset = max(segment.base_offset, reached)
            message = f"{segment.path} was removed while it was read: offset {offset} and those after it in this segment are gone"
            raise OffsetOutOfRangeError(message, path=segment.path, offset=offset) from error


def _segment_batches(state: LogState, segment: LogSegment, segment_end: int, wanted: OffsetRange) -> Iterator[Batches]:
    position = segment.locate(max(wanted.start, segment.base_offset))
    size, offset = state.size_of(segment), segment.base_offset
    for buffer, table, shift, damage in walk(segment, position, size, segment_end):
        inside = (table[LAST_OFFSET] >= wanted.start) & (first_offsets(table) < wanted.end)
        inside |= (table[MAGIC] < 2) & (table[LAST_OFFSET] >= wanted.start)  # where a wrapper begins is not known yet
        if inside.any():
            yield Batches(segment, buffer, np.ascontiguousarray(table[:, inside]), shift)
        if damage is not None:
            _check_missed(state, segment, segment_end, wanted, damage)
        offset = int(table[LAST_OFFSET, -1]) + 1 if table.shape[1] else offset
        if table.shape[1] and offset >= wanted.end and table[MAGIC, -1] == 2:
            return
    there = segment.file().size()
    if there < size:
        _check_missed(
            state, segment, segment_end, wanted, Damage(there, size, offset, None, "is missing: the file ends before it")
        )


def _check_missed(state: LogState, segment: LogSegment, segment_end: int, wanted: OffsetRange, damage: Damage) -> None:
    """Raises if damaged bytes may have held an offset that is wanted."""
    next_offset = segment_end if damage.next_offset is None else damage.next_offset
    if damage.offset >= wanted.end or next_offset <= max(wanted.start, damage.offset):
        return
    error = CorruptionError(f"the batch for offset {damage.offset} {damage.why}", position=damage.position, offset=damage.offset)
    raise placed(error, segment, next_offset if next_offset < state.end_offset else None)


def placed(error: PylogError, segment: LogSegment, next_offset: int | None) -> PylogError:
    """The error with its file, and with what to do next. Its position is one in the file already."""
    follows = "nothing readable follows" if next_offset is None else f"reading can go on at offset {next_offset}"
    error.args = (f"{segment.path} at position {error.position}: {error}; {follows}",)
    error.path = segment.path
    if isinstance(error, CorruptionError):
        error.next_offset = next_offset
    return error


def crc_before(state: LogState, offset: int) -> int | None:
    """The stored CRC of the batch that holds the offset before `offset`; None when the log begins there, or has lost it."""
    if offset <= state.start_offset:
        return None
    crc = _stored_crc(state, offset - 1)
    if crc is not None:
        return crc
    with contextlib.suppress(CorruptionError, OffsetOutOfRangeError):
        for _, _, table, _ in good_batches(state, OffsetRange(offset - 1, offset)):
            crc = int(table[CRC, -1])
    return crc


def _stored_crc(state: LogState, offset: int) -> int | None:
    """The CRC of the batch that holds an offset, from the headers behind the index's entry; None when that is a long way."""
    found = state.segments.floor(offset)
    if found is None:
        return None
    segment = found[1]
    with contextlib.suppress(CorruptionError, StorageFailedError):  # the long way meets it again, and knows what it means
        position, size = segment.locate(offset), state.size_of(segment)
        for _ in range(_STEPS):
            column = header_column(segment.file().read(position, max(0, min(HEADER_SIZE, size - position))), position)
            if column is None:
                return None
            if column[LAST_OFFSET] >= offset:
                return column[CRC] if column[BASE_OFFSET] <= offset else None
            position += column[SIZE]
    return None


# ---- isolation ---------------------------------------------------------------------------------------------------------------


class TransactionOutcomes:
    """How the transactions ended whose records are read: the first marker of their producer behind them tells.

    The batches themselves are asked, not the transaction indexes: these are derived, and one that lacks an entry would make
    aborted records be served. Only where damage hides what follows the indexes have the word.

    Cost: nothing in a stretch without transactions, else one more walk over the headers, ahead of the reader.
    """

    def __init__(self, state: LogState, wanted: OffsetRange) -> None:
        self._state = state
        self._wanted = wanted
        self._ahead: Iterator[Batches] | None = None
        self._markers: defaultdict[int, deque[tuple[int, bool]]] = defaultdict(deque)  # producer → (offset, aborted), ascending
        self._indexed: list[AbortedTransaction] | None = None  # what the indexes say, once they have to be asked

    def aborted(self, table: Table) -> NDArray[np.bool_]:
        """Which batches belong to an aborted transaction. The tables of a reading come in the order of their offsets."""
        found = np.zeros(table.shape[1], np.bool_)
        for batch in np.flatnonzero((table[ATTRIBUTES] & (TRANSACTIONAL_BIT | CONTROL_BIT)) == TRANSACTIONAL_BIT).tolist():
            found[batch] = self._is_aborted(int(table[PRODUCER_ID, batch]), int(table[LAST_OFFSET, batch]))
        return found

    def _is_aborted(self, producer_id: int, offset: int) -> bool:
        markers = self._markers[producer_id]
        while markers and markers[0][0] < offset:
            markers.popleft()
        while not markers and self._go_on(offset):
            pass
        if markers:
            return markers[0][1]
        return any(each[0] == producer_id and each[1] <= offset <= each[2] for each in self._indexed or ())

    def _go_on(self, offset: int) -> bool:
        """Takes the markers of the next region; False at the end, or where damage may hide one."""
        if self._indexed is not None:
            return False
        if self._ahead is None:
            self._ahead = good_batches(self._state, OffsetRange(offset, self._state.end_offset))
        try:
            batches = next(self._ahead, None)
            if batches is not None:
                self._take_markers(batches, offset)
            return batches is not None
        except CorruptionError:
            self._indexed = aborted_transactions(self._state, self._wanted)
            return False

    def _take_markers(self, batches: Batches, offset: int) -> None:
        for end in transaction_ends(batches, offset):
            self._markers[end.producer_id].append((end.offset, not end.committed))


def transaction_ends(batches: Batches, offset: int) -> Iterator[TransactionEnd]:
    """The markers from `offset` on.

    Raises:
        CorruptionError: one does not match its checksum.
    """
    _, buffer, table, shift = batches
    for batch in np.flatnonzero(((table[ATTRIBUTES] & CONTROL_BIT) != 0) & (table[LAST_OFFSET] >= offset)).tolist():
        if not crc_is_good(buffer, table, batch):
            raise CorruptionError("a marker does not match its checksum", position=shift + int(table[POSITION, batch]))
        marker = control_record(buffer, table, batch)
        if marker is not None and marker.ends_transaction:
            committed = marker.type != CONTROL_ABORT
            yield TransactionEnd(int(table[LAST_OFFSET, batch]), int(table[PRODUCER_ID, batch]), committed)


def all_transaction_ends(state: LogState, wanted: OffsetRange) -> Iterator[TransactionEnd]:
    """The markers among the offsets wanted. Cost: a walk over the batches' headers.

    Raises:
        CorruptionError: damage may hide one.
    """
    for batches in good_batches(state, wanted):
        try:
            yield from transaction_ends(batches, wanted.start)
        except CorruptionError as error:
            raise placed(error, batches.segment, None) from error


def aborted_transactions(state: LogState, wanted: OffsetRange) -> list[AbortedTransaction]:
    """The aborted transactions with records among the offsets wanted, as the indexes have them (storage-format 3.9.5)."""
    found: list[AbortedTransaction] = []
    for segment, _ in state.from_offset(wanted.start):
        entries, complete = segment.transactions().collect(wanted.start, wanted.end)
        found += entries
        if complete:
            break
    return found


def visible(buffer: Bytes, table: Table, outcomes: TransactionOutcomes | None) -> Table:
    """The batches whose records a reader sees: no control batches and, for committed reading, none of aborted transactions.

    What makes a batch invisible is believed only if its CRC is good; others are left to the decoder, which raises.
    """
    keep = (table[ATTRIBUTES] & CONTROL_BIT) == 0
    if outcomes is not None:
        keep &= ~outcomes.aborted(table)
    for batch in np.flatnonzero(~keep).tolist():
        keep[batch] = not crc_is_good(buffer, table, batch)
    return table if keep.all() else np.ascontiguousarray(table[:, keep])


# ---- frames ------------------------------------------------------------------------------------------------------------------


Renew = Callable[[LogState, PylogError], LogState]
Check = Callable[[Table], None]


def scan(
    state: LogState,
    wanted: OffsetRange,
    columns: Sequence[str],
    *,
    committed: bool,
    max_rows: int,
    verify: bool,
    renew: Renew | None = None,
    check: Check | None = None,
) -> Iterator[pa.RecordBatch]:
    """Arrow batches of the records wanted, of at most `max_rows` rows each; memory does not grow with the range.

    Args:
        state, wanted, columns: what is read of what.
        committed: leave out what was aborted.
        max_rows: of one Arrow batch.
        verify: check each batch's CRC.
        renew: given what went wrong, returns the log as it is now, to go on with, or raises.
        check: is given the batches of each region after they were read, before their records are given; raises to refuse them.

    Raises:
        InvalidArgumentError: at once, of columns that there are not.
    """
    decoder = RecordDecoder(columns, start=wanted.start, end=wanted.end, max_rows=max_rows, verify=verify)
    reading = _Reading(wanted, decoder, committed, check)
    return reading.frames(state) if renew is None else reading.frames_of_a_changing_log(state, renew)


class _Reading:
    """Reading a range: how far it has come, so that it can go on in another state of the log."""

    def __init__(self, wanted: OffsetRange, decoder: RecordDecoder, committed: bool, check: Check | None) -> None:
        self._wanted = wanted  # from where it goes on
        self._decoder = decoder
        self._committed = committed
        self._check = check

    def frames_of_a_changing_log(self, state: LogState, renew: Renew) -> Iterator[pa.RecordBatch]:
        """The same frames; when segments were replaced meanwhile the rest comes from those that are there now."""
        while True:
            try:
                yield from self.frames(state)
            except PylogError as error:
                state = renew(state, error)
                if self._wanted.start < state.start_offset:
                    raise
            else:
                return

    def frames(self, state: LogState) -> Iterator[pa.RecordBatch]:
        """Frames from where it has come to."""
        outcomes = TransactionOutcomes(state, self._wanted) if self._committed else None
        try:
            for segment, buffer, table, shift in good_batches(state, self._wanted):
                if self._check is not None:
                    self._check(table)
                try:
                    yield from self._decoder.feed(buffer, visible(buffer, table, outcomes))
                except PylogError as error:
                    self._came_to(error.offset or 0)  # what lies before it was handed out
                    error.position = (error.position or 0) + shift
                    raise _with_way_on(state, segment, error, self._wanted.start) from error
                self._came_to(int(table[LAST_OFFSET, -1]) + 1)
        except PylogError:
            yield from self._decoder.finish()
            raise
        yield from self._decoder.finish()

    def _came_to(self, offset: int) -> None:
        self._wanted = self._wanted._replace(start=max(self._wanted.start, offset))


def _with_way_on(state: LogState, segment: LogSegment, error: PylogError, start: int) -> PylogError:
    """A decoder's error with the offset at which reading can go on: behind where this reading began, so that it ends."""
    found = next_good_batch(segment, error.position or 0, state.size_of(segment), max(error.offset or 0, start) + 1)
    if found is not None:
        return placed(error, segment, offset_at(segment, found))
    following = state.segments.higher(segment.base_offset)
    return placed(error, segment, None if following is None else following[0])
