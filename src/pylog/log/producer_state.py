"""The producer state of a log: each producer's last batches and open transaction. `recovery.producer_snapshots` has its files.

The state is a fold over batch headers (storage-format 6.14). One replay function serves loading, recovery and appends. The last
stable offset is the first offset of the earliest open transaction, or the log's end. A batch that a producer sends again is
recognised by its last five batches. A snapshot has only the last one; later batches are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pylog import limits
from pylog.errors import InvalidTransactionStateError, OutOfOrderSequenceError, ProducerFencedError
from pylog.fs import Bytes
from pylog.index.transaction_index import AbortedTransaction
from pylog.record.batch import Table
from pylog.record.control import ControlRecord
from pylog.record.control_batch import control_record, usual_marker
from pylog.record.few import EncodedBatch
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
from pylog.record.types import MarkerBatch, OpenTransaction, ProducerBatch, TransactionalBatch

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
        found = ((entry.transaction_first_offset, key) for key, entry in self._producers.items())
        self._open = dict(sorted(pair for pair in found if pair[0] >= 0))  # ascending: each one begins at the log's end
        self._listed: tuple[OpenTransaction, ...] | None = None  # the open transactions, until they change

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
        return next(iter(self._open), None)

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

    def replay_one(self, batch: EncodedBatch) -> list[AbortedTransaction]:
        """Does the same for a single batch of a producer, in plain Python."""
        column, key = batch.column, batch.column[PRODUCER_ID]
        self._kept.setdefault(key, self._producers.get(key))
        marker = usual_marker(batch.data) if column[ATTRIBUTES] & CONTROL_BIT else None
        if marker is None and column[ATTRIBUTES] & CONTROL_BIT:
            return self.replay(np.frombuffer(batch.data, np.uint8), batch.table)
        self.end_offset = max(self.end_offset, column[LAST_OFFSET] + 1)
        if marker is not None:
            return self._end_transaction(column, marker)
        self._take(column)
        return []

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
        self._listed = None
        for key, entry in self._kept.items():
            now = self._producers.pop(key, None)
            if now is not None and now.transaction_first_offset >= 0:
                del self._open[now.transaction_first_offset]
            if entry is not None:
                self._producers[key] = entry
                if entry.transaction_first_offset >= 0:
                    self._open[entry.transaction_first_offset] = key
        self._open = dict(sorted(self._open.items()))

    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """Returns the open transactions, by their first offsets. Cost: O(1), and O(n) after a change of them."""
        if self._listed is None:
            self._listed = tuple(OpenTransaction(key, self._producers[key].epoch, first) for first, key in self._open.items())
        return self._listed

    def open_producers(self) -> list[Producer]:
        """Returns the producers with an open transaction, by the first offsets of these."""
        return [self._producers[key] for key in self._open.values()]

    def open_transaction_of(self, producer_id: int) -> OpenTransaction | None:
        """Returns the open transaction of a producer; None if it has none."""
        known = self._producers.get(producer_id)
        if known is None or known.transaction_first_offset < 0:
            return None
        return OpenTransaction(producer_id, known.epoch, known.transaction_first_offset)

    def has_batch(self, producer_id: int, epoch: int) -> bool:
        """Returns whether the last batch of a producer has an epoch, and no later one has begun."""
        known = self._producers.get(producer_id)
        return known is not None and known.epoch == epoch and known.last_sequence >= 0

    def epoch_of(self, producer_id: int) -> int:
        """Returns the epoch of a producer's last batch or marker; -1 if the producer is unknown."""
        known = self._producers.get(producer_id)
        return -1 if known is None else known.epoch

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
            column = table[:, batch].tolist()
            if column[BASE_OFFSET] < self.end_offset:
                continue
            if column[ATTRIBUTES] & CONTROL_BIT:
                marker = control_record(buffer, table, batch)
                if marker is not None and marker.ends_transaction:
                    aborted += self._end_transaction(column, marker)
            else:
                self._take(column)
        if table.shape[1]:
            self.end_offset = max(self.end_offset, int(table[LAST_OFFSET, -1]) + 1)
        return aborted

    def _take(self, column: Sequence[int]) -> None:
        key, base, last = column[PRODUCER_ID], column[BASE_OFFSET], column[LAST_OFFSET]
        old = self._producers.get(key)
        first = -1 if old is None else old.transaction_first_offset
        if column[ATTRIBUTES] & TRANSACTIONAL_BIT and first < 0:
            first = base
            self._open[base] = key
            self._listed = None
        epoch, sequence = column[PRODUCER_EPOCH], column[BASE_SEQUENCE]
        self._producers[key] = Producer(
            key,
            epoch,
            -1 if sequence < 0 else (sequence + last - base) & limits.INT32_MAX,
            last,
            last - base,
            self.noted(column[MAX_TIMESTAMP]),
            -1 if old is None else old.coordinator_epoch,
            first,
            old.batches[1 - _BATCHES_KEPT :] if old is not None and old.epoch == epoch else (),
        )

    def _end_transaction(self, column: Sequence[int], marker: ControlRecord) -> list[AbortedTransaction]:
        """Ends a producer's transaction. Adds an entry for the transaction index if it was aborted and has data (6.14.4)."""
        key, offset = column[PRODUCER_ID], column[LAST_OFFSET]
        epoch, timestamp = column[PRODUCER_EPOCH], self.noted(column[MAX_TIMESTAMP])
        old = self._producers.get(key) or Producer(key, epoch)
        first = old.transaction_first_offset
        kept = old if old.epoch == epoch else Producer(key, epoch)
        self._producers[key] = kept._replace(
            timestamp=timestamp, coordinator_epoch=marker.coordinator_epoch or 0, transaction_first_offset=-1
        )
        if first < 0:
            return []
        del self._open[first]
        self._listed = None
        if marker.type != CONTROL_ABORT:
            return []
        stable = self.first_unstable_offset
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
