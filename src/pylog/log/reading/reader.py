"""Scans a log forward from an offset. Works on a published `LogState`; takes no lock and writes nothing.

Every batch that is returned has a good CRC and fits between its neighbours. Damage raises a `CorruptionError` with the offset
where reading can continue, after all records before it were returned.
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
from pylog.segment.batch_walk import Damage, crc_is_good, first_offsets, next_good_batch, offset_at, possible_markers, walk
from pylog.segment.segment import LogSegment, vanished

_STEPS: Final = 64  # batches between two index entries: the number that fits into Kafka's 4 KiB


class Batches(NamedTuple):
    """Good batches of one segment: POSITION counts from the buffer's start, which is at `shift` in the file."""

    segment: LogSegment
    buffer: Bytes
    table: Table
    shift: int


class TransactionEnd(NamedTuple):
    """A transaction marker: its offset, its producer, and whether it aborts."""

    offset: int
    producer_id: int
    committed: bool


class OffsetRange(NamedTuple):
    """The offsets to read, from `start` up to, but not including, `end`."""

    start: int
    end: int


def good_batches(state: LogState, wanted: OffsetRange) -> Iterator[Batches]:
    """Yields the batches with the wanted offsets, in order, one region of a segment at a time, with control batches.

    The decoder of the records checks CRCs.

    Raises:
        CorruptionError: at the first wanted bytes that are not the expected batch.
        OffsetOutOfRangeError: a segment's file was deleted during the read.
    """
    reached = wanted.start
    for segment, segment_end in state.from_offset(wanted.start):
        if segment.base_offset >= wanted.end:
            return
        try:
            for batches in _segment_batches(state, segment, segment_end, wanted._replace(start=reached)):
                yield batches
                reached = int(batches.table[LAST_OFFSET, -1]) + 1  # a running compaction may show old and new files
        except StorageFailedError as error:
            if not vanished(error):
                raise
            offset = max(segment.base_offset, reached)
            message = f"{segment.path} was removed while it was read: offset {offset} and later ones in it were deleted"
            raise OffsetOutOfRangeError(message, path=segment.path, offset=offset) from error


def _segment_batches(state: LogState, segment: LogSegment, segment_end: int, wanted: OffsetRange) -> Iterator[Batches]:
    position = segment.locate(max(wanted.start, segment.base_offset))
    size, offset = state.size_of(segment), segment.base_offset
    for buffer, table, shift, damage in walk(segment, position, size, segment_end):
        inside = (table[LAST_OFFSET] >= wanted.start) & (first_offsets(table) < wanted.end)
        inside |= (table[MAGIC] < 2) & (table[LAST_OFFSET] >= wanted.start)  # the first offset of a wrapper is not known yet
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
    """Raises if damaged bytes may have contained a wanted offset."""
    next_offset = segment_end if damage.next_offset is None else damage.next_offset
    if damage.offset >= wanted.end or next_offset <= max(wanted.start, damage.offset):
        return
    error = CorruptionError(f"the batch for offset {damage.offset} {damage.why}", position=damage.position, offset=damage.offset)
    raise placed(error, segment, next_offset if next_offset < state.end_offset else None)


def placed(error: PylogError, segment: LogSegment, next_offset: int | None) -> PylogError:
    """Adds the file and the next readable offset to an error whose position is already one in the file."""
    follows = "nothing readable follows" if next_offset is None else f"reading can continue at offset {next_offset}"
    error.args = (f"{segment.path} at position {error.position}: {error}; {follows}",)
    error.path = segment.path
    if isinstance(error, CorruptionError):
        error.next_offset = next_offset
    return error


def crc_before(state: LogState, offset: int) -> int | None:
    """Returns the stored CRC of the batch before `offset`; None if the log begins there, or the batch was deleted."""
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
    """Returns the CRC of the batch with an offset, from headers after the index entry; None if the batch is too far away."""
    found = state.segments.floor(offset)
    if found is None:
        return None
    segment = found[1]
    with contextlib.suppress(CorruptionError, StorageFailedError):  # the full search meets the error again, and handles it
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
    """The outcomes of the transactions being read: the producer's first marker after a record decides.

    Markers are read from the batches, not from the transaction indexes. An index is derived, and a missing entry would cause
    aborted records to be served. If damage may hide a marker, a sound transaction index of the damaged segment can prove the
    outcome (`TransactionProof`). Without that proof the outcome is unknown, and the record is never served as committed.

    Cost: none in ranges without transactions, else a second walk over the headers, ahead of the reader.
    """

    def __init__(self, state: LogState, wanted: OffsetRange) -> None:
        self._state = state
        self._wanted = wanted
        self._ahead: Iterator[Batches] | None = None
        self._markers: defaultdict[int, deque[tuple[int, bool]]] = defaultdict(deque)  # producer → (offset, aborted), ascending
        self._damage: CorruptionError | None = None  # the damage that ended the walk
        self._proof: TransactionProof | None = None  # for transactions whose marker the damage may hide
        self._rest: TransactionOutcomes | None = None  # the walk after the damage

    def aborted(self, table: Table) -> NDArray[np.bool_]:
        """Returns which batches belong to an aborted transaction. Tables must be passed in offset order.

        Raises:
            CorruptionError: the outcome of a transaction is unknown, because damage may hide its marker.
        """
        found, error = self.known(None, table)
        if error is not None:
            raise error
        return found

    def known(self, buffer: Bytes | None, table: Table) -> tuple[NDArray[np.bool_], CorruptionError | None]:
        """Like `aborted`, but returns the error with the answers for the batches before the first unknown outcome.

        With `buffer`, a batch that does not match its checksum is left to the decoder, which raises.
        """
        found = np.zeros(table.shape[1], np.bool_)
        for batch in np.flatnonzero((table[ATTRIBUTES] & (TRANSACTIONAL_BIT | CONTROL_BIT)) == TRANSACTIONAL_BIT).tolist():
            outcome = self._is_aborted(int(table[PRODUCER_ID, batch]), int(table[LAST_OFFSET, batch]))
            if outcome is None and (buffer is None or crc_is_good(buffer, table, batch)):
                return found[:batch], self._unknown(table, batch)
            found[batch] = outcome or False
        return found, None

    def _is_aborted(self, producer_id: int, offset: int) -> bool | None:
        """Returns None if the outcome is unknown."""
        marker = self._first_marker(producer_id, offset)
        if marker is not None:
            return marker[1]
        damage = self._damage
        if damage is None:
            return None  # the log has no marker that ends the transaction
        if damage.next_offset is not None and offset >= damage.next_offset:  # a read without checksums skips damage
            return self._after(damage.next_offset)._is_aborted(producer_id, offset)
        return self._hidden_outcome(producer_id, offset, damage)

    def _first_marker(self, producer_id: int, offset: int) -> tuple[int, bool] | None:
        """Returns a producer's first marker after an offset, unless damage comes first."""
        markers = self._markers[producer_id]
        while markers and markers[0][0] < offset:
            markers.popleft()
        while not markers and self._go_on(offset):
            pass
        return markers[0] if markers else None

    def _hidden_outcome(self, producer_id: int, offset: int, damage: CorruptionError) -> bool | None:
        """Returns the outcome of a transaction whose marker the damage may hide."""
        if self._proof is None:
            self._proof = TransactionProof(self._state, damage)
        if self._proof.names_aborted(producer_id, offset):
            return True
        if not self._proof.complete:
            return None
        if damage.next_offset is None:
            return False
        rest = self._after(damage.next_offset)
        marker = rest._first_marker(producer_id, damage.next_offset)
        if marker is None and rest._damage is not None:
            return rest._hidden_outcome(producer_id, offset, rest._damage)
        # A later abort may be of this transaction or, if the damage hides a commit, of the next one.
        return False if marker is None or not marker[1] else self._proof.aborted_by(producer_id, offset, marker[0])

    def _after(self, offset: int) -> TransactionOutcomes:
        """Returns the outcomes by what follows the damage."""
        if self._rest is None:
            self._rest = TransactionOutcomes(self._state, self._wanted._replace(start=offset))
        return self._rest

    def _go_on(self, offset: int) -> bool:
        """Reads the markers of the next region. Returns False at the end, or if damage may hide a marker."""
        if self._damage is not None:
            return False
        if self._ahead is None:
            self._ahead = good_batches(self._state, OffsetRange(offset, self._state.end_offset))
        try:
            batches = next(self._ahead, None)
            if batches is not None:
                self._take_markers(batches, offset)
            return batches is not None
        except CorruptionError as error:
            self._damage = error
            return False

    def _take_markers(self, batches: Batches, offset: int) -> None:
        for end in transaction_ends(batches, offset):
            self._markers[end.producer_id].append((end.offset, not end.committed))

    def _unknown(self, table: Table, first: int) -> CorruptionError:
        """Returns the error for batches from `first` on. Its `next_offset` is the first later offset with a known outcome."""
        offset, producer = max(int(first_offsets(table)[first]), self._wanted.start), int(table[PRODUCER_ID, first])
        last = first
        while last + 1 < table.shape[1] and self._is_unknown(table, last + 1):
            last += 1
        next_offset = int(table[LAST_OFFSET, last]) + 1
        told = f"whether producer {producer} committed or aborted its transaction at offset {offset} is unknown"
        way_on = f"repair the log, or continue at offset {next_offset} without these records"
        if self._damage is None:
            found = self._state.segments.floor(offset)
            path = None if found is None else found[1].path
            message = f"{path}: {told}, because the log has no marker that ends it; {way_on}"
            return CorruptionError(message, path=path, position=0, offset=offset, next_offset=next_offset)
        message = (
            f"{told}, because the marker may be in damaged bytes and no transaction index proves it; {way_on} ({self._damage})"
        )
        path, position = self._damage.path, self._damage.position
        return CorruptionError(message, path=path, position=position, offset=offset, next_offset=next_offset)

    def _is_unknown(self, table: Table, batch: int) -> bool:
        transactional = (table[ATTRIBUTES, batch] & (TRANSACTIONAL_BIT | CONTROL_BIT)) == TRANSACTIONAL_BIT
        hidden = self._damage is not None and table[LAST_OFFSET, batch] >= (self._damage.offset or 0)
        if not transactional or hidden:
            return False
        return self._is_aborted(int(table[PRODUCER_ID, batch]), int(table[LAST_OFFSET, batch])) is None


class TransactionProof:
    """Proves from transaction indexes the outcomes of transactions whose marker may be in damaged bytes.

    An index has no checksum. So it counts only if it agrees with the batches: each entry ends at an ABORT marker of its producer
    or in damaged bytes, and begins with a batch of that producer; and every intact ABORT marker of its segment has an entry.

    Args:
        state: the log.
        damage: the damaged bytes that may hide a marker.

    Attributes:
        complete: the damaged segment has a sound index, so a transaction that is not in it was not aborted in that segment.

    Cost: a walk over the headers of the segments from the damage on that have an index.
    """

    def __init__(self, state: LogState, damage: CorruptionError) -> None:
        self.complete = False
        self._entries: list[AbortedTransaction] = []
        for segment, segment_end in state.from_offset(damage.offset or 0):
            entries = _proven_entries(state, segment, segment_end)
            self.complete |= entries is not None and segment.path == damage.path
            self._entries += entries or ()

    def names_aborted(self, producer_id: int, offset: int) -> bool:
        """Returns whether an index has an aborted transaction of a producer around an offset."""
        return any(each.producer_id == producer_id and each.first_offset <= offset <= each.last_offset for each in self._entries)

    def aborted_by(self, producer_id: int, offset: int, marker: int) -> bool | None:
        """Returns whether the ABORT marker at an offset ended the transaction at another one; None if no index proves it."""
        for each in self._entries:
            if each.producer_id == producer_id and each.last_offset == marker:
                return each.first_offset <= offset
        return None


def _proven_entries(state: LogState, segment: LogSegment, segment_end: int) -> list[AbortedTransaction] | None:
    """Returns the entries of a segment's transaction index; None unless the index is there and agrees with the batches."""
    index = segment.sound_transactions()
    if index is None:
        return None
    entries = [index.entry(number) for number in range(len(index))]
    aborts, hidden = _intact_aborts(state, OffsetRange(segment.base_offset, segment_end))
    for entry in entries:
        ends = (entry.producer_id, entry.last_offset) in aborts or any(entry.last_offset in offsets for offsets in hidden)
        if not ends or not _begins(state, entry):
            return None
    return entries if aborts <= {(entry.producer_id, entry.last_offset) for entry in entries} else None


def _intact_aborts(state: LogState, wanted: OffsetRange) -> tuple[set[tuple[int, int]], list[range]]:
    """Returns the ABORT markers in a range, as producer and offset, and the offsets whose bytes are damaged."""
    aborts: set[tuple[int, int]] = set()
    hidden: list[range] = []
    while wanted.start < wanted.end:
        try:
            for end in all_transaction_ends(state, wanted):
                aborts |= set() if end.committed else {(end.producer_id, end.offset)}
            break
        except CorruptionError as error:
            following = wanted.end if error.next_offset is None else error.next_offset
            hidden.append(range(error.offset or 0, following))
            wanted = wanted._replace(start=following)
    return aborts, hidden


def _begins(state: LogState, entry: AbortedTransaction) -> bool:
    """Returns whether a batch of the entry's producer and of a transaction begins at its first offset."""
    first = entry.first_offset
    with contextlib.suppress(CorruptionError, OffsetOutOfRangeError):
        for _, _, table, _ in good_batches(state, OffsetRange(first, first + 1)):
            own = (table[PRODUCER_ID] == entry.producer_id) & (table[BASE_OFFSET] == first)
            return bool((own & ((table[ATTRIBUTES] & (TRANSACTIONAL_BIT | CONTROL_BIT)) == TRANSACTIONAL_BIT)).any())
    return False


def transaction_ends(batches: Batches, offset: int) -> Iterator[TransactionEnd]:
    """Yields the markers from `offset` on.

    Raises:
        CorruptionError: a batch that is or may be a marker does not match its checksum.
    """
    segment, buffer, table, shift = batches
    for batch in np.flatnonzero(possible_markers(table) & (table[LAST_OFFSET] >= offset)).tolist():
        last_offset = int(table[LAST_OFFSET, batch])
        if not crc_is_good(buffer, table, batch):
            first, position = int(first_offsets(table)[batch]), shift + int(table[POSITION, batch])
            error = CorruptionError("a marker does not match its checksum", position=position, offset=first)
            raise placed(error, segment, last_offset + 1)
        marker = control_record(buffer, table, batch) if table[ATTRIBUTES, batch] & CONTROL_BIT else None
        if marker is not None and marker.ends_transaction:
            yield TransactionEnd(last_offset, int(table[PRODUCER_ID, batch]), marker.type != CONTROL_ABORT)


def all_transaction_ends(state: LogState, wanted: OffsetRange) -> Iterator[TransactionEnd]:
    """Yields the markers among the wanted offsets. Cost: a walk over the batches' headers.

    Raises:
        CorruptionError: damage may hide one.
    """
    for batches in good_batches(state, wanted):
        yield from transaction_ends(batches, wanted.start)


def visible(buffer: Bytes, table: Table, aborted: NDArray[np.bool_] | None) -> Table:
    """Selects the batches that a reader sees: no control batches and, with `read_committed`, none of aborted transactions.

    A batch is hidden only if its CRC is good; the decoder raises for the others.
    """
    keep = (table[ATTRIBUTES] & CONTROL_BIT) == 0
    if aborted is not None:
        keep &= ~aborted
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
    """Yields Arrow batches of the wanted records, of at most `max_rows` rows each. Memory does not grow with the range.

    Args:
        state, wanted, columns: the log, the offsets and the columns to read.
        committed: true to leave out aborted records.
        max_rows: the largest number of rows in one Arrow batch.
        verify: true to check each batch's CRC.
        renew: receives an error, and returns the current state to continue with, or raises.
        check: called with the batches of each region after they were read; raises to refuse their records.

    Raises:
        InvalidArgumentError: at once, for unknown columns.
    """
    decoder = RecordDecoder(columns, start=wanted.start, end=wanted.end, max_rows=max_rows, verify=verify)
    reading = _Reading(wanted, decoder, committed, check)
    return reading.frames(state) if renew is None else reading.frames_of_a_changing_log(state, renew)


class _Reading:
    """A scan of a range, with its progress, so that it can continue in a newer state of the log."""

    def __init__(self, wanted: OffsetRange, decoder: RecordDecoder, committed: bool, check: Check | None) -> None:
        self._wanted = wanted  # the remaining range
        self._decoder = decoder
        self._committed = committed
        self._check = check

    def frames_of_a_changing_log(self, state: LogState, renew: Renew) -> Iterator[pa.RecordBatch]:
        """Yields the frames. If segments were replaced during the scan, it continues in the new ones."""
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
        """Yields the frames of the remaining range."""
        outcomes = TransactionOutcomes(state, self._wanted) if self._committed else None
        try:
            for segment, buffer, table, shift in good_batches(state, self._wanted):
                if self._check is not None:
                    self._check(table)
                aborted, unknown = (None, None) if outcomes is None else outcomes.known(buffer, table)
                known = table if unknown is None or aborted is None else np.ascontiguousarray(table[:, : aborted.size])
                try:
                    yield from self._decoder.feed(buffer, visible(buffer, known, aborted))
                except PylogError as error:
                    self._came_to(error.offset or 0)  # the records before it were returned
                    error.position = (error.position or 0) + shift
                    raise _with_way_on(state, segment, error, self._wanted.start) from error
                if unknown is not None:
                    self._came_to(unknown.offset or 0)
                    raise unknown
                self._came_to(int(table[LAST_OFFSET, -1]) + 1)
        except PylogError:
            yield from self._decoder.finish()
            raise
        yield from self._decoder.finish()

    def _came_to(self, offset: int) -> None:
        self._wanted = self._wanted._replace(start=max(self._wanted.start, offset))


def _with_way_on(state: LogState, segment: LogSegment, error: PylogError, start: int) -> PylogError:
    """Adds to a decoder's error the offset where reading can continue, after the start of this read, so that it ends."""
    found = next_good_batch(segment, error.position or 0, state.size_of(segment), max(error.offset or 0, start) + 1)
    if found is not None:
        return placed(error, segment, offset_at(segment, found))
    following = state.segments.higher(segment.base_offset)
    return placed(error, segment, None if following is None else following[0])
