"""The producer state of a log: each producer's last batches and open transaction, and the `.snapshot` files.

The state is a fold over batch headers (storage-format 6.14). One replay function serves loading, recovery and appends. The last
stable offset is the first offset of the earliest open transaction, or the log's end. A batch that a producer sends again is
recognised by its last five batches. A snapshot has only the last one; later batches are replayed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sortedcontainers import SortedDict

from pylog import limits
from pylog.errors import CorruptionError, InvalidTransactionStateError, OutOfOrderSequenceError, ProducerFencedError
from pylog.fs import Bytes, FileKind, FileSystem, join, remove_derived, write_atomically
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
from pylog.record.types import MarkerBatch, ProducerBatch, TransactionalBatch
from pylog.segment.names import SNAPSHOT, file_name

_VERSION: Final = 1
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_FIELDS: Final = ["id", "epoch", "sequence", "last", "delta", "timestamp", "coordinator", "first"]
_ROW: Final = np.dtype({"names": _FIELDS, "formats": [">i8", ">i2", ">i4", ">i8", ">i4", ">i8", ">i4", ">i8"]})
assert _ROW.itemsize == _ENTRY.size
_BATCHES_KEPT: Final = 5  # of each producer, the number of requests that a Kafka client may have in flight


class Sequenced(NamedTuple):
    """The sequences and offsets of the first and last record of a producer's batch."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int


class Producer(NamedTuple):
    """One producer's entry in a snapshot (storage-format 3.10), and its earlier batches; -1 means none."""

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
        """The last batches of the producer's epoch, at most five, newest last."""
        if self.last_sequence < 0:
            return ()
        first = (self.last_sequence - self.offset_delta) & limits.INT32_MAX
        return *self.earlier, Sequenced(first, self.last_sequence, self.last_offset - self.offset_delta, self.last_offset)

    @property
    def next_sequence(self) -> int:
        """The sequence of its next batch: 0 at first, and 0 again after 2^31 - 1."""
        return (self.last_sequence + 1) & limits.INT32_MAX


class OpenTransaction(NamedTuple):
    """A transaction that has batches in a log, and no marker yet: its producer, the epoch, and the offset of its first record."""

    producer_id: int
    epoch: int
    first_offset: int


class ProducerStateManager:
    """The state of a log's producers after all records below `end_offset`.

    Attributes:
        end_offset: all records below it were replayed.
        noted: maps the largest timestamp of a producer's last batch to the time since which the producer is idle. By default it
            is the timestamp, as in Kafka. For a missing or future timestamp, an open log uses the time of the append.

    >>> state = ProducerStateManager()
    >>> state.first_unstable_offset is None
    True
    """

    def __init__(self, producers: Iterable[Producer] = (), end_offset: int = 0) -> None:
        self.end_offset = end_offset
        self._kept: dict[int, Producer | None] = {}  # the entries before records that are not published yet
        self.noted: Callable[[int], int] = int  # largest timestamp of a batch → start of its producer's idle time
        self._producers = {producer.producer_id: producer for producer in producers}
        self._open: SortedDict[int, int] = SortedDict(
            {entry.transaction_first_offset: key for key, entry in self._producers.items() if entry.transaction_first_offset >= 0}
        )

    @property
    def producers(self) -> list[Producer]:
        """Returns all entries, by producer id."""
        return [self._producers[key] for key in sorted(self._producers)]

    @property
    def count(self) -> int:
        """The number of producers."""
        return len(self._producers)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest open transaction."""
        return int(self._open.peekitem(0)[0]) if self._open else None

    def keep(self, producer_ids: NDArray[np.int64]) -> None:
        """Saves these producers' entries before their first change, until `note_published`. Cost: O(1) for each."""
        for key in set(producer_ids.tolist()):
            self._kept.setdefault(key, self._producers.get(key))

    def replay_written(self, data: memoryview, table: Table) -> list[AbortedTransaction]:
        """Replays batches that this process has written, and that are not published yet. `put_back` undoes it.

        Returns:
            The transactions that these batches abort.
        """
        self.keep(table[PRODUCER_ID])
        return self.replay(np.frombuffer(data, np.uint8), table)

    def note_published(self, end_offset: int) -> None:
        """Notes that all batches up to an offset are published, so the saved entries are no longer needed."""
        if self._kept:
            self._kept = {}
        self.end_offset = end_offset

    def put_back(self, end_offset: int) -> None:
        """Restores the entries that `keep` saved: the later batches, from `end_offset` on, were not written.

        >>> state = ProducerStateManager([Producer(7, 0)])
        >>> state.keep(np.array([7, 8]))
        >>> state.expire(1, 1)
        [7]
        >>> state.put_back(0)
        >>> state.producers == [Producer(7, 0)]
        True
        """
        self.end_offset = min(self.end_offset, end_offset)
        for key, entry in self._kept.items():
            now = self._producers.pop(key, None)
            if now is not None and now.transaction_first_offset >= 0:
                del self._open[now.transaction_first_offset]
            if entry is not None:
                self._producers[key] = entry
                if entry.transaction_first_offset >= 0:
                    self._open[entry.transaction_first_offset] = key

    def open_transactions(self) -> list[OpenTransaction]:
        """Returns the open transactions, by their first offsets."""
        return [OpenTransaction(key, self._producers[key].epoch, first) for first, key in self._open.items()]

    def open_producers(self) -> list[Producer]:
        """Returns the producers with an open transaction, by the first offsets of these."""
        return [self._producers[key] for key in self._open.values()]

    def last_marker_epoch(self, producer_id: int) -> int:
        """Returns the epoch of a producer's last batch, if that was a marker; -1 if it was not or is unknown.

        >>> ProducerStateManager([Producer(7, 3)]).last_marker_epoch(7)
        3
        """
        known = self._producers.get(producer_id)
        return known.epoch if known is not None and known.last_sequence < 0 and known.transaction_first_offset < 0 else -1

    def check(self, batch: ProducerBatch, count: int) -> Sequenced | None:
        """Checks whether a batch may be appended.

        Args:
            batch: its producer's numbers, validated.
            count: the number of records.

        Returns:
            None if it may; if it is one of the producer's last five batches, that batch in the log.

        Raises:
            ProducerFencedError: the log has a higher epoch of the producer.
            OutOfOrderSequenceError: the batch does not follow the last one, or does not start at 0 in a new epoch.
            InvalidTransactionStateError: the producer has an open transaction, and the batch does not belong to it.

        A marker is not checked: its writer looks at the open transaction under the partition's lock.

        A producer without state may start at any sequence. Cost: O(1). Spec: storage-format 6.14.2, 6.14.3.

        >>> state = ProducerStateManager([Producer(7, 0, last_sequence=9, last_offset=41, offset_delta=9)], end_offset=42)
        >>> state.check(ProducerBatch(7, 0, 10), 5) is None
        True
        >>> state.check(ProducerBatch(7, 0, 0), 10)
        Sequenced(first_sequence=0, last_sequence=9, first_offset=32, last_offset=41)
        """
        known = self._producers.get(batch.producer_id)
        if known is None or known.epoch < 0 or isinstance(batch, MarkerBatch):
            return None
        if batch.epoch == known.epoch:
            last_sequence = (batch.sequence + count - 1) & limits.INT32_MAX
            for known_batch in known.batches:
                if (known_batch.first_sequence, known_batch.last_sequence) == (batch.sequence, last_sequence):
                    return known_batch
        _check_follows(batch, known)
        return None

    def next_sequence(self, producer_id: int, epoch: int) -> int | None:
        """Returns the next sequence of a producer in an epoch; None if there is no state.

        >>> ProducerStateManager([Producer(7, 0, last_sequence=9)]).next_sequence(7, 0)
        10
        """
        known = self._producers.get(producer_id)
        return known.next_sequence if known is not None and known.epoch == epoch else None

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Removes the state of idle producers without an open transaction (groups-and-transactions 5.10).

        Args:
            now_ms: the wall clock, in milliseconds; compared with the largest timestamp of each producer's last batch.
            expiration_ms: the least idle time, in milliseconds.

        Returns:
            The ids of the removed producers. Cost: O(number of producers).

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
        """Prepares the state for a snapshot at the end of a segment: removes idle producers, as `expire` does."""
        self.end_offset = end_offset
        return self.expire(now_ms, expiration_ms)

    def replay(self, buffer: Bytes, table: Table) -> list[AbortedTransaction]:
        """Replays batches that follow the previous ones.

        Args:
            buffer: their bytes, to read markers from.
            table: the batches, POSITION counting from the buffer's start.

        Returns:
            The transactions that these batches abort.

        Cost: O(1) for each batch with a producer id, none for others.
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
        """Ends a producer's transaction. Adds an entry for the transaction index if it was aborted and has data (6.14.4)."""
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
    """Checks a batch's epoch and sequence, and that the producer has no open transaction."""
    numbers, sent = batch._asdict(), f"producer {batch.producer_id}, epoch {batch.epoch}, sequence {batch.sequence}"
    if batch.epoch < known.epoch:
        message = f"{sent}: the log has epoch {known.epoch} of this producer; close this one, another instance has replaced it"
        raise ProducerFencedError(message, **numbers, expected=known.epoch)
    expected = known.next_sequence if batch.epoch == known.epoch else 0
    if batch.sequence != expected:
        message = f"{sent}: the log expects sequence {expected}; send the missing batches, or start a new epoch at sequence 0"
        raise OutOfOrderSequenceError(message, **numbers, expected=expected)
    belongs = isinstance(batch, TransactionalBatch) and batch.epoch == known.epoch
    if known.transaction_first_offset >= 0 and not belongs:
        message = f"{sent}: its transaction is open since offset {known.transaction_first_offset}; end that transaction first"
        raise InvalidTransactionStateError(message, offset=known.transaction_first_offset)


def control_record(buffer: Bytes, table: Table, batch: int) -> ControlRecord | None:
    """Returns the control record of a batch; None if compaction emptied it."""
    decoder = RecordDecoder(("key", "value"), verify=False)
    single = np.ascontiguousarray(table[:, batch : batch + 1])
    for frame in (*decoder.feed(buffer, single), *decoder.finish()):
        return parse_control(frame.column(0)[0].as_py(), frame.column(1)[0].as_py())
    return None


# ---- snapshots ---------------------------------------------------------------------------------------------------------------


def encode_snapshot(state: ProducerStateManager) -> bytes:
    """Returns the content of a `.snapshot` file (storage-format 3.10).

    >>> encode_snapshot(ProducerStateManager()).hex()
    '000148674bc700000000'
    """
    body = b"".join(_ENTRY.pack(*producer[:-1]) for producer in state.producers)
    counted = struct.pack(">i", len(body) // _ENTRY.size) + body
    return struct.pack(">hI", _VERSION, crc32c(counted)) + counted


class Idleness(NamedTuple):
    """The expiry of producers: `expiration_ms` of idle time at `now_ms`, both in milliseconds."""

    now_ms: int
    expiration_ms: int


ONLY_OPEN: Final = Idleness(limits.INT64_MAX, 0)  # for readers, which need only producers with open transactions


def read_snapshot(fs: FileSystem, directory: str, offset: int, idle: Idleness | None = None) -> ProducerStateManager | None:
    """Reads a producer snapshot; None if there is none.

    Args:
        fs, directory, offset: identify the file.
        idle: skips expired producers; those without a timestamp count as idle from now on.

    Raises:
        CorruptionError: the snapshot cannot be used.

    Cost: 1 µs for each producer that has not expired.
    """
    path = join(directory, file_name(offset, SNAPSHOT))
    data, fault, *_ = SNAPSHOTS.fetch_derived(fs, path, offset)
    if fault is not None:
        raise CorruptionError(f"{path} cannot be used: {fault}; an older one is used", path=path)
    return None if data is None else SNAPSHOTS.parsed(data, path, offset, idle)


def _state_of(data: bytes, path: str, offset: int, idle: Idleness | None) -> ProducerStateManager:
    _check_snapshot(data, path)
    rows = np.frombuffer(data, _ROW, offset=_HEAD.size)
    if not _are_possible(rows, offset):
        raise CorruptionError(f"{path} has numbers that no log of {offset} offsets has; an older one is used", path=path)
    if idle is not None:
        stamps = np.where(rows["timestamp"] < 0, idle.now_ms, np.minimum(rows["timestamp"], idle.now_ms))
        kept = (rows["first"] >= 0) | (idle.now_ms - stamps < idle.expiration_ms)
        rows = rows[kept].copy()
        rows["timestamp"] = stamps[kept]
    return ProducerStateManager((Producer(*fields) for fields in rows.tolist()), offset)


def most_bytes(offset: int) -> int:
    """Returns the most bytes of a snapshot: each producer in it has a record of its own below the snapshot's offset.

    >>> most_bytes(1), most_bytes(1 << 40) == limits.MAX_SNAPSHOT_BYTES
    (56, True)
    """
    return min(limits.MAX_SNAPSHOT_BYTES, _HEAD.size + offset * _ENTRY.size)


SNAPSHOTS: Final = FileKind("a producer snapshot", _state_of, most_bytes, "an older one is used")


def _are_possible(rows: Any, offset: int) -> bool:
    """Returns whether entries are possible in a log that ends at an offset."""
    ids, firsts = rows["id"], rows["first"][rows["first"] >= 0]
    within = (rows["last"] >= -1) & (rows["last"] < offset) & (rows["first"] >= -1) & (rows["first"] < offset)
    counts = (rows["sequence"] >= -1) & (rows["delta"] >= 0) & (rows["delta"] <= rows["last"] + 1)
    distinct = np.unique(ids).size == ids.size and np.unique(firsts).size == firsts.size
    return bool((within & counts & (ids >= 0)).all()) and distinct


def snapshot_entries(data: bytes, path: str) -> Iterator[Producer]:
    """Returns the entries of a snapshot, in file order.

    Raises:
        CorruptionError: an unknown version, a wrong CRC or count.
    """
    _check_snapshot(data, path)
    return (Producer(*fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :]))


ENTRIES: Final = FileKind("a producer snapshot", snapshot_entries, most_bytes, "an older one is used")


def _check_snapshot(data: bytes, path: str) -> None:
    if len(data) < _HEAD.size:
        raise CorruptionError(f"{path} is too short for a producer snapshot", path=path)
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION or crc != crc32c(data[6:]) or len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptionError(f"{path} is not a valid producer snapshot; an older one is used", path=path)


def load_snapshot(
    fs: FileSystem, directory: str, offsets: Iterable[int], start_offset: int, end_offset: int, idle: Idleness | None = None
) -> tuple[ProducerStateManager, list[str]]:
    """Returns the newest usable snapshot in (start, end], else an empty state at the log start; and the faults of others."""
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
    """Writes a snapshot, named by the state's end offset; offset 0 has none (storage-format 3.10.4).

    A state with more producers than a reader accepts is not written: the batch headers after an older snapshot replace it.
    """
    if state.end_offset > 0 and state.count <= (limits.MAX_SNAPSHOT_BYTES - _HEAD.size) // _ENTRY.size:
        write_atomically(fs, directory, file_name(state.end_offset, SNAPSHOT), encode_snapshot(state))


def drop_snapshots(
    fs: FileSystem, directory: str, offsets: Iterable[int], end_offset: int, bases: Collection[int] = ()
) -> list[str]:
    """Removes snapshots after the log end, left by an unfinished truncation, because new records will reach their offsets.

    Also removes superseded ones, as Kafka does at loading: each clean shutdown leaves a snapshot at the log end. The newest one
    and those at the `bases` of segments stay (groups-and-transactions 5.7).

    Returns:
        The names of the removed files after the log end.
    """
    known = sorted(offsets)
    stale = [file_name(offset, SNAPSHOT) for offset in known if offset > end_offset]
    superseded = [offset for offset in known if offset <= end_offset][:-1]
    for offset in superseded if bases else ():
        if offset not in bases:
            remove_derived(fs, join(directory, file_name(offset, SNAPSHOT)))  # without a sync: it does no harm if it comes back
    for name in stale:
        remove_derived(fs, join(directory, name))
    if stale:
        fs.sync_directory(directory)
    return stale
