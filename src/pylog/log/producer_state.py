"""What producers did, as far as a log must know it: their last batches, open transactions, and the `.snapshot` files of both.

A fold over batch headers (storage-format 6.14): one replay function serves opening, recovery and appending. The last stable
offset is the first offset of the earliest open transaction, or the log's end. A batch that a producer sends again is found
among its last five; a snapshot keeps the last one only, and what follows the snapshot is replayed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedDict

from pylog import limits
from pylog.errors import CorruptionError, InvalidTransactionStateError, OutOfOrderSequenceError, ProducerFencedError
from pylog.fs import Bytes, FileSystem, join, read_derived, remove_derived, write_atomically
from pylog.index.transaction_index import AbortedTransaction
from pylog.record.batch import Table
from pylog.record.checksum import crc32c
from pylog.record.control import ControlRecord, parse_control
from pylog.record.decoder import RecordDecoder
from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    CONTROL_ABORT,
    CONTROL_BIT,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from pylog.record.types import ProducerBatch
from pylog.segment.names import SNAPSHOT, file_name

_VERSION: Final = 1
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_FIELDS: Final = ["id", "epoch", "sequence", "last", "delta", "timestamp", "coordinator", "first"]
_ROW: Final = np.dtype({"names": _FIELDS, "formats": [">i8", ">i2", ">i4", ">i8", ">i4", ">i8", ">i4", ">i8"]})
assert _ROW.itemsize == _ENTRY.size
_BATCHES_KEPT: Final = 5  # of each producer, as many as a Kafka client has under way at once


class Sequenced(NamedTuple):
    """A batch that a producer numbered: the sequences of its first and last record, and their offsets."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int


class Producer(NamedTuple):
    """One producer's entry, as a snapshot has it (storage-format 3.10), and earlier batches; -1 stands for none."""

    producer_id: int
    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    transaction_first_offset: int = -1
    earlier: tuple[Sequenced, ...] = ()

    @property
    def batches(self) -> tuple[Sequenced, ...]:
        """The last batches of its epoch, at most five, newest last."""
        if self.last_sequence < 0:
            return ()
        first = (self.last_sequence - self.offset_delta) & limits.INT32_MAX
        return *self.earlier, Sequenced(first, self.last_sequence, self.last_offset - self.offset_delta, self.last_offset)

    @property
    def next_sequence(self) -> int:
        """The sequence that its next batch begins with: 0 at first, and 0 again behind 2^31 - 1."""
        return (self.last_sequence + 1) & limits.INT32_MAX


class ProducerStateManager:
    """The producers of a log after all records below `end_offset`.

    Attributes:
        end_offset: all records below it were taken.
        noted: gives the time that a producer is idle from, in milliseconds, for the largest timestamp of its last batch. By
            default that is the timestamp, as in Kafka. For batches without one, or with one in the future, a log that is open
            notes the time of the append.

    >>> state = ProducerStateManager()
    >>> state.first_unstable_offset is None
    True
    """

    def __init__(self, producers: Iterable[Producer] = (), end_offset: int = 0) -> None:
        self.end_offset = end_offset
        self.noted: Callable[[int], int] = int  # largest timestamp of a batch → the time that its producer's idleness counts from
        self._producers = {producer.producer_id: producer for producer in producers}
        self._open: SortedDict[int, int] = SortedDict(
            {entry.transaction_first_offset: key for key, entry in self._producers.items() if entry.transaction_first_offset >= 0}
        )

    @property
    def producers(self) -> list[Producer]:
        """All entries, by producer id."""
        return [self._producers[key] for key in sorted(self._producers)]

    @property
    def count(self) -> int:
        """The number of producers."""
        return len(self._producers)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest open transaction."""
        return int(self._open.peekitem(0)[0]) if self._open else None

    def keep(self, producer_ids: NDArray[np.int64], kept: dict[int, Producer | None]) -> None:
        """Notes in `kept` how these producers' entries are, before they change for the first time. Cost: O(1) for each."""
        for key in set(producer_ids.tolist()):
            kept.setdefault(key, self._producers.get(key))

    def put_back(self, kept: dict[int, Producer | None], end_offset: int) -> None:
        """Makes entries again what `keep` noted: the batches since then, from `end_offset` on, are not in the log after all.

        >>> state, kept = ProducerStateManager([Producer(7, 0)]), {}
        >>> state.keep(np.array([7, 8]), kept)
        >>> state.expire(1, 1)
        [7]
        >>> state.put_back(kept, 0)
        >>> state.producers == [Producer(7, 0)]
        True
        """
        self.end_offset = min(self.end_offset, end_offset)
        for key, entry in kept.items():
            now = self._producers.pop(key, None)
            if now is not None and now.transaction_first_offset >= 0:
                del self._open[now.transaction_first_offset]
            if entry is not None:
                self._producers[key] = entry
                if entry.transaction_first_offset >= 0:
                    self._open[entry.transaction_first_offset] = key

    def check(self, batch: ProducerBatch, count: int) -> Sequenced | None:
        """Whether a batch, of no transaction, may be appended now.

        Args:
            batch: its producer's numbers, checked.
            count: records in it.

        Returns:
            None when it may; the batch in the log when it is there already, among the producer's last five.

        Raises:
            ProducerFencedError: the producer has a higher epoch now.
            OutOfOrderSequenceError: the batch does not follow on from the last one, or not at 0 in a new epoch.
            InvalidTransactionStateError: the producer has a transaction open.

        A producer that the log knows nothing of may begin anywhere. Cost: O(1). Spec: storage-format 6.14.2, 6.14.3.

        >>> state = ProducerStateManager([Producer(7, 0, last_sequence=9, last_offset=41, offset_delta=9)], end_offset=42)
        >>> state.check(ProducerBatch(7, 0, 10), 5) is None
        True
        >>> state.check(ProducerBatch(7, 0, 0), 10)
        Sequenced(first_sequence=0, last_sequence=9, first_offset=32, last_offset=41)
        """
        known = self._producers.get(batch.producer_id)
        if known is None or known.epoch < 0:
            return None
        if batch.epoch == known.epoch:
            last_sequence = (batch.sequence + count - 1) & limits.INT32_MAX
            for there in known.batches:
                if (there.first_sequence, there.last_sequence) == (batch.sequence, last_sequence):
                    return there
        _check_follows(batch, known)
        return None

    def next_sequence(self, producer_id: int, epoch: int) -> int | None:
        """The sequence that follows a producer's last batch of an epoch; None when nothing is known of it.

        >>> ProducerStateManager([Producer(7, 0, last_sequence=9)]).next_sequence(7, 0)
        10
        """
        known = self._producers.get(producer_id)
        return known.next_sequence if known is not None and known.epoch == epoch else None

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Forgets producers that have been idle so long, but none with an open transaction (groups-and-transactions 5.10).

        Args:
            now_ms: the wall clock, in milliseconds. It is compared with the largest timestamp of each producer's last batch.
            expiration_ms: idle for at least this long.

        Returns:
            The ids of those that are forgotten. Cost: O(number of producers).

        >>> state = ProducerStateManager([Producer(7, 0, timestamp=1000), Producer(8, 0, timestamp=1001)])
        >>> state.expire(now_ms=2000, expiration_ms=1000)
        [7]
        """
        idle = [
            key
            for key, entry in self._producers.items()
            if entry.transaction_first_offset < 0 and now_ms - entry.timestamp >= expiration_ms
        ]
        for key in idle:
            del self._producers[key]
        return idle

    def rest(self, end_offset: int, now_ms: int, expiration_ms: int) -> list[int]:
        """Comes to the end of a segment: what a snapshot has there. Idle producers are forgotten, as `expire` does."""
        self.end_offset = end_offset
        return self.expire(now_ms, expiration_ms)

    def replay(self, buffer: Bytes, table: Table) -> list[AbortedTransaction]:
        """Takes batches that follow those already taken.

        Args:
            buffer: where their bytes are: markers are read from it.
            table: the batches, POSITION counting from the buffer's start.

        Returns:
            The transactions that these batches abort.

        Cost: O(1) for each batch that has a producer, nothing for others.
        """
        aborted = []
        for batch in np.flatnonzero(table[PRODUCER_ID] >= 0).tolist():
            if int(table[BASE_OFFSET, batch]) < self.end_offset:
                continue
            if table[ATTRIBUTES, batch] & CONTROL_BIT:
                marker = control_record(buffer, table, batch)
                if marker is not None and marker.ends_transaction:
                    aborted += self._end_transaction(table, batch, marker)
            else:
                self._take(table, batch)
        if table.shape[1]:
            self.end_offset = max(self.end_offset, int(table[LAST_OFFSET, -1]) + 1)
        return aborted

    def _take(self, table: Table, batch: int) -> None:
        key, base, last = (int(table[row, batch]) for row in (PRODUCER_ID, BASE_OFFSET, LAST_OFFSET))
        old = self._producers.get(key)
        first = -1 if old is None else old.transaction_first_offset
        if table[ATTRIBUTES, batch] & TRANSACTIONAL_BIT and first < 0:
            first = base
            self._open[base] = key
        epoch, sequence = int(table[PRODUCER_EPOCH, batch]), int(table[BASE_SEQUENCE, batch])
        self._producers[key] = Producer(
            key,
            epoch,
            -1 if sequence < 0 else (sequence + last - base) & limits.INT32_MAX,
            last,
            last - base,
            self.noted(int(table[MAX_TIMESTAMP, batch])),
            -1 if old is None else old.coordinator_epoch,
            first,
            old.batches[1 - _BATCHES_KEPT :] if old is not None and old.epoch == epoch else (),
        )

    def _end_transaction(self, table: Table, batch: int, marker: ControlRecord) -> list[AbortedTransaction]:
        """Closes a producer's transaction; an abort of one that has data is an entry of the transaction index (6.14.4)."""
        key, offset = int(table[PRODUCER_ID, batch]), int(table[LAST_OFFSET, batch])
        epoch, timestamp = int(table[PRODUCER_EPOCH, batch]), self.noted(int(table[MAX_TIMESTAMP, batch]))
        old = self._producers.get(key, Producer(key, epoch))
        first = old.transaction_first_offset
        kept = old if old.epoch == epoch else Producer(key, epoch)
        self._producers[key] = kept._replace(
            timestamp=timestamp, coordinator_epoch=marker.coordinator_epoch or 0, transaction_first_offset=-1
        )
        if first < 0:
            return []
        del self._open[first]
        stable = self.first_unstable_offset
        if marker.type != CONTROL_ABORT:
            return []
        return [AbortedTransaction(key, first, offset, offset + 1 if stable is None else stable)]


def _check_follows(batch: ProducerBatch, known: Producer) -> None:
    """A batch is of its producer's epoch or a higher one, begins where the last one ended, and breaks into no transaction."""
    numbers, place = batch._asdict(), f"producer {batch.producer_id}, epoch {batch.epoch}, sequence {batch.sequence}"
    if batch.epoch < known.epoch:
        message = f"{place}: epoch {known.epoch} of this producer is in the log; end this one, another has taken over"
        raise ProducerFencedError(message, **numbers, expected=known.epoch)
    expected = known.next_sequence if batch.epoch == known.epoch else 0
    if batch.sequence != expected:
        message = f"{place}: the log expects sequence {expected}; send what is missing, or begin a new epoch at sequence 0"
        raise OutOfOrderSequenceError(message, **numbers, expected=expected)
    if known.transaction_first_offset >= 0:
        message = f"{place}: this producer has a transaction open since offset {known.transaction_first_offset}; end it first"
        raise InvalidTransactionStateError(message, offset=known.transaction_first_offset)


def control_record(buffer: Bytes, table: Table, batch: int) -> ControlRecord | None:
    """The control record of a batch; None when compaction emptied it."""
    decoder = RecordDecoder(("key", "value"), verify=False)
    single = np.ascontiguousarray(table[:, batch : batch + 1])
    for frame in (*decoder.feed(buffer, single), *decoder.finish()):
        return parse_control(frame.column(0)[0].as_py(), frame.column(1)[0].as_py())
    return None


# ---- snapshots ---------------------------------------------------------------------------------------------------------------


def encode_snapshot(state: ProducerStateManager) -> bytes:
    """The bytes of a `.snapshot` file (storage-format 3.10).

    >>> encode_snapshot(ProducerStateManager()).hex()
    '000148674bc700000000'
    """
    body = b"".join(_ENTRY.pack(*producer[:-1]) for producer in state.producers)
    counted = struct.pack(">i", len(body) // _ENTRY.size) + body
    return struct.pack(">hI", _VERSION, crc32c(counted)) + counted


def parse_snapshot(data: bytes, offset: int, path: str) -> ProducerStateManager:
    """A state from the bytes of a snapshot named `offset`.

    Raises:
        CorruptionError: another version, a wrong CRC, a wrong count, numbers that no log has.
    """
    return _state_of(data, offset, path, None)


class Idleness(NamedTuple):
    """When a producer is forgotten: at a time in milliseconds it has been idle for so many."""

    now_ms: int
    expiration_ms: int


ONLY_OPEN: Final = Idleness(
    limits.INT64_MAX, 0
)  # for readers: of other producers than those of open transactions they need nothing


def read_snapshot(fs: FileSystem, directory: str, offset: int, idle: Idleness | None = None) -> ProducerStateManager | None:
    """Reads a producer snapshot; None where there is none.

    Args:
        fs, directory, offset: which.
        idle: leaves out producers that have expired; those without a time have been idle from now on.

    Raises:
        CorruptionError: it cannot be used, whatever the reason. Cost: 1 µs for each producer that has not expired.
    """
    path = join(directory, file_name(offset, SNAPSHOT))
    data, fault, *_ = read_derived(fs, path, limits.MAX_SNAPSHOT_BYTES)
    if fault is not None:
        raise CorruptionError(f"{path} cannot be used: {fault}; an older one is used", path=path)
    return None if data is None else _state_of(data, offset, path, idle)


def _state_of(data: bytes, offset: int, path: str, idle: Idleness | None) -> ProducerStateManager:
    _check_snapshot(data, path)
    rows = np.frombuffer(data, _ROW, offset=_HEAD.size)
    if not _are_possible(rows, offset):
        raise CorruptionError(f"{path} has numbers that no log of {offset} offsets has; an older one is used", path=path)
    if idle is not None:
        stamps = np.where(rows["timestamp"] < 0, idle.now_ms, np.minimum(rows["timestamp"], idle.now_ms))
        stays = (rows["first"] >= 0) | (idle.now_ms - stamps < idle.expiration_ms)
        rows = rows[stays].copy()
        rows["timestamp"] = stamps[stays]
    return ProducerStateManager((Producer(*fields) for fields in rows.tolist()), offset)


def _are_possible(rows: Any, offset: int) -> bool:
    """Whether entries can be those of a log's producers before an offset."""
    ids, firsts = rows["id"], rows["first"][rows["first"] >= 0]
    within = (rows["last"] >= -1) & (rows["last"] < offset) & (rows["first"] >= -1) & (rows["first"] < offset)
    counts = (rows["sequence"] >= -1) & (rows["delta"] >= 0) & (rows["delta"] <= rows["last"] + 1)
    distinct = np.unique(ids).size == ids.size and np.unique(firsts).size == firsts.size
    return bool((within & counts & (ids >= 0)).all()) and distinct


def snapshot_entries(data: bytes, path: str) -> Iterator[Producer]:
    """The entries of a snapshot, in the order of the file.

    Raises:
        CorruptionError: another version, a wrong CRC, a wrong count.
    """
    _check_snapshot(data, path)
    return (Producer(*fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :]))


def _check_snapshot(data: bytes, path: str) -> None:
    if len(data) < _HEAD.size:
        raise CorruptionError(f"{path} is too short for a producer snapshot", path=path)
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION or crc != crc32c(data[6:]) or len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptionError(f"{path} is not a valid producer snapshot; an older one is used", path=path)


def load_snapshot(
    fs: FileSystem, directory: str, offsets: Iterable[int], start_offset: int, end_offset: int, idle: Idleness | None = None
) -> tuple[ProducerStateManager, list[str]]:
    """The newest usable snapshot in (start, end], else an empty state at the log's start; and what was wrong with others."""
    complaints: list[str] = []
    for offset in sorted((offset for offset in offsets if start_offset < offset <= end_offset), reverse=True):
        try:
            found = read_snapshot(fs, directory, offset, idle)
        except CorruptionError as error:
            complaints.append(str(error))
            continue
        if found is not None:
            return found, complaints
    return ProducerStateManager(end_offset=start_offset), complaints


def write_snapshot(fs: FileSystem, directory: str, state: ProducerStateManager) -> None:
    """Writes the snapshot of a state, named by its end offset; an offset of 0 has none (storage-format 3.10.4).

    Neither has one of more producers than are read: the batch headers after an older one are.
    """
    if state.end_offset > 0 and state.count <= (limits.MAX_SNAPSHOT_BYTES - _HEAD.size) // _ENTRY.size:
        write_atomically(fs, directory, file_name(state.end_offset, SNAPSHOT), encode_snapshot(state))


def drop_snapshots(fs: FileSystem, directory: str, offsets: Iterable[int], end_offset: int) -> list[str]:
    """Removes the snapshots after a log's end, which an unfinished truncation leaves; new records will reach their offsets.

    Returns:
        The names of the files that were removed.
    """
    stale = [file_name(offset, SNAPSHOT) for offset in offsets if offset > end_offset]
    for name in stale:
        remove_derived(fs, join(directory, name))
    if stale:
        fs.sync_directory(directory)
    return stale
