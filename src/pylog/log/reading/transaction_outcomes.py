"""Tells which transactions in a range were committed and which were aborted, for `read_committed` and for compaction.

Markers decide, and they are read from the batches. Where damage may hide a marker, a sound transaction index can prove the
outcome. Without that proof it is unknown, and reading raises.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pylog.errors import CorruptionError, OffsetOutOfRangeError
from pylog.index.transaction_index import AbortedTransaction
from pylog.log.reading.good_batches import Batches, OffsetRange, good_batches, placed
from pylog.log.state import LogState
from pylog.record import kernels
from pylog.record.batch import Bytes, Table
from pylog.record.control_batch import control_record
from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_ABORT,
    CONTROL_BIT,
    LAST_OFFSET,
    POSITION,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from pylog.segment.batch_walk import crc_is_good, first_offsets, possible_markers
from pylog.segment.segment import LogSegment

IsLeftOut = Callable[[int, int], bool | None]
_KIND: Final = TRANSACTIONAL_BIT | CONTROL_BIT


class TransactionEnd(NamedTuple):
    """A transaction marker: its offset, its producer, and whether it aborts."""

    offset: int
    producer_id: int
    committed: bool


class TransactionOutcomes:
    """The outcomes of the transactions being read: the producer's first marker after a record decides.

    Markers are read from the batches, not from the transaction indexes. An index is derived, and a missing entry would cause
    aborted records to be served. If damage may hide a marker, a sound transaction index of the damaged segment can prove the
    outcome (`TransactionProof`). Without that proof the outcome is unknown, and the record is never served as committed.

    Args:
        state, wanted: the log, and the range that is read.
        is_left_out: decides on transactions without a marker in the range, as in a snapshot, before later markers do; it takes
            the producer id and the offset of a batch, and returns None to leave the decision to the markers.

    Cost: none in ranges without transactions. Markers in a region that the reader has in memory are taken from there. Only for
    transactions that end after it, a second walk reads ahead of the reader.
    """

    def __init__(self, state: LogState, wanted: OffsetRange, is_left_out: IsLeftOut | None = None) -> None:
        self._state = state
        self._wanted = wanted
        self._is_left_out = is_left_out
        self._ahead: Iterator[Batches] | None = None
        self._reached = 0  # the markers from the first transaction's offset up to here are known
        self._markers: defaultdict[int, deque[tuple[int, bool]]] = defaultdict(deque)  # producer → (offset, aborted), ascending
        self._damage: CorruptionError | None = None  # the damage that ended the walk
        self._proof: TransactionProof | None = None  # for transactions whose marker the damage may hide
        self._after_damage: TransactionOutcomes | None = None  # the walk after the damage

    def aborted(self, table: Table) -> NDArray[np.bool_]:
        """Returns which batches belong to an aborted transaction. Tables must be passed in offset order.

        Raises:
            CorruptionError: the outcome of a transaction is unknown, because damage may hide its marker.
        """
        found, error = self._known(None, table, _in_transactions(table), np.zeros(table.shape[1], np.bool_))
        if error is not None:
            raise error
        return found

    def known(self, batches: Batches) -> tuple[NDArray[np.bool_], CorruptionError | None]:
        """Returns the same as `aborted`, but the error with the answers for the batches before the first unknown outcome.

        A batch that does not match its checksum is left to the decoder, which raises.

        Args:
            batches: a region that the reader has in memory, with its markers.
        """
        found = np.zeros(batches.table.shape[1], np.bool_)
        asked = _in_transactions(batches.table)
        if asked.size:
            asked = self._decide_inside(batches, asked, found)
        return self._known(batches.buffer, batches.table, asked, found)

    def _decide_inside(self, batches: Batches, asked: NDArray[np.int64], found: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Notes which batches are aborted by a marker in the same region. Returns those that no marker there decides."""
        count = batches.table.shape[1]
        slots, outcomes = np.zeros(count + 1, np.int64), np.empty(count, np.int64)
        if self._damage is not None or kernels.outcomes_inside(batches.buffer, batches.table, slots, outcomes) != kernels.OK:
            self._take_read(batches)
            return asked
        end = int(batches.table[LAST_OFFSET, -1]) + 1
        if end > self._reached:
            self._ahead, self._reached = None, end
        decided = outcomes[asked]
        found[asked] = decided == kernels.ABORTED
        left: NDArray[np.int64] = asked[decided == kernels.UNDECIDED]
        return left

    def _known(
        self, buffer: Bytes | None, table: Table, asked: NDArray[np.int64], found: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], CorruptionError | None]:
        for batch in asked.tolist():
            outcome = self._is_aborted(table.item(PRODUCER_ID, batch), table.item(LAST_OFFSET, batch))
            if outcome is None and (buffer is None or crc_is_good(buffer, table, batch)):
                return found[:batch], self._unknown(table, batch)
            found[batch] = outcome or False
        return found, None

    def _is_aborted(self, producer_id: int, offset: int) -> bool | None:
        """Returns None if the outcome is unknown."""
        known = None if self._is_left_out is None else self._is_left_out(producer_id, offset)
        if known is not None:
            return known
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
        while not markers and self._read_on(offset):
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
        if self._after_damage is None:
            self._after_damage = TransactionOutcomes(self._state, self._wanted._replace(start=offset))
        return self._after_damage

    def _read_on(self, offset: int) -> bool:
        """Reads the markers of the next region. Returns False at the end, or if damage may hide a marker."""
        if self._damage is not None:
            return False
        if self._ahead is None:
            self._ahead = good_batches(self._state, OffsetRange(max(offset, self._reached), self._state.end_offset))
        try:
            batches = next(self._ahead, None)
            if batches is not None:
                self._take_markers(batches, offset)
            return batches is not None
        except CorruptionError as error:
            self._damage = error
            return False

    def _take_read(self, batches: Batches) -> None:
        """Takes the markers of a region that the reader has read, unless the walk ahead has taken them."""
        if self._damage is not None or int(batches.table[LAST_OFFSET, -1]) < self._reached:
            return
        self._ahead = None  # the next one begins after this region
        try:
            self._take_markers(batches, self._reached)
        except CorruptionError as error:
            self._damage = error

    def _take_markers(self, batches: Batches, offset: int) -> None:
        for end in transaction_ends(batches, max(offset, self._reached)):
            self._markers[end.producer_id].append((end.offset, not end.committed))
        self._reached = int(batches.table[LAST_OFFSET, -1]) + 1

    def _unknown(self, table: Table, first: int) -> CorruptionError:
        """Returns the error for batches from `first` on. Its `next_offset` is the first later offset with a known outcome."""
        offset, producer = max(int(first_offsets(table)[first]), self._wanted.start), int(table[PRODUCER_ID, first])
        last = first
        while last + 1 < table.shape[1] and self._is_unknown(table, last + 1):
            last += 1
        next_offset = int(table[LAST_OFFSET, last]) + 1
        problem = f"whether producer {producer} committed or aborted its transaction at offset {offset} is unknown"
        way_on = f"repair the log, or continue at offset {next_offset} without these records"
        if self._damage is None:
            found = self._state.segments.floor(offset)
            path = None if found is None else found[1].path
            message = f"{path}: {problem}, because the log has no marker that ends it; {way_on}"
            return CorruptionError(message, path=path, position=0, offset=offset, next_offset=next_offset)
        message = (
            f"{problem}, because the marker may be in damaged bytes and no transaction index proves it; {way_on} ({self._damage})"
        )
        path, position = self._damage.path, self._damage.position
        return CorruptionError(message, path=path, position=position, offset=offset, next_offset=next_offset)

    def _is_unknown(self, table: Table, batch: int) -> bool:
        transactional = (table[ATTRIBUTES, batch] & _KIND) == TRANSACTIONAL_BIT
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


def _proven_entries(state: LogState, segment: LogSegment, segment_end: int) -> tuple[AbortedTransaction, ...] | None:
    """Returns the entries of a segment's transaction index; None unless the index exists and agrees with the batches."""
    index = segment.sound_transactions()
    if index is None:
        return None
    entries = index.entries
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
            return bool((own & ((table[ATTRIBUTES] & _KIND) == TRANSACTIONAL_BIT)).any())
    return False


def _in_transactions(table: Table) -> NDArray[np.int64]:
    """Returns which batches have records of a transaction."""
    return np.flatnonzero((table[ATTRIBUTES] & _KIND) == TRANSACTIONAL_BIT)


def transaction_ends(batches: Batches, offset: int) -> Iterator[TransactionEnd]:
    """Yields the markers from `offset` on.

    Raises:
        CorruptionError: a batch that is or may be a marker does not match its checksum.
    """
    segment, buffer, table, shift = batches
    for batch in np.flatnonzero(possible_markers(table) & (table[LAST_OFFSET] >= offset)).tolist():
        last_offset = table.item(LAST_OFFSET, batch)
        if not crc_is_good(buffer, table, batch):
            first, position = int(first_offsets(table)[batch]), shift + int(table[POSITION, batch])
            error = CorruptionError("a marker does not match its checksum", position=position, offset=first)
            raise placed(error, segment, last_offset + 1)
        marker = control_record(buffer, table, batch) if table.item(ATTRIBUTES, batch) & CONTROL_BIT else None
        if marker is not None and marker.ends_transaction:
            yield TransactionEnd(last_offset, table.item(PRODUCER_ID, batch), marker.type != CONTROL_ABORT)


def all_transaction_ends(state: LogState, wanted: OffsetRange) -> Iterator[TransactionEnd]:
    """Yields the markers among the wanted offsets. Cost: a walk over the batches' headers.

    Raises:
        CorruptionError: damage may hide one.
    """
    for batches in good_batches(state, wanted):
        yield from transaction_ends(batches, wanted.start)
