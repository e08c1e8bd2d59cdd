"""`Transaction`: one transaction of a store, from its first record to its outcome."""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, Final, Literal, ParamSpec, Self

import pyarrow as pa

from pylog.arguments import check_kind, is_int
from pylog.config import Durability
from pylog.directory.topic_names import INTERNAL_TOPICS, check_topic_name, internal_topic
from pylog.errors import (
    ClosedError,
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTransactionStateError,
    PylogError,
    RecordTooLargeError,
    StorageFailedError,
    TransactionAbortedError,
)
from pylog.factory_made import FactoryMade
from pylog.fs import process_id
from pylog.log.arguments import checked_items
from pylog.offsets.group_metadata import ConsumerGroupMetadata
from pylog.offsets.pending import PendingCommit
from pylog.record.few import Piece
from pylog.record.types import Header, TopicPartition, TransactionalBatch
from pylog.transactions import states
from pylog.transactions.batches import Buffer, batches_of
from pylog.transactions.group_consumer import GroupConsumer, Offsets, metadata_of, positions_of
from pylog.transactions.incarnation import Incarnation
from pylog.transactions.lone_batch import LoneBatch
from pylog.transactions.metadata import ProducerIdAndEpoch

_Outcome = Literal["open", "committed", "aborted", "unknown"]
P = ParamSpec("P")
_BATCH_SIZE: Final = 16_384  # Kafka's batch.size: bytes of records without keys that go to one partition


def _in_turn(method: Callable[Concatenate[Transaction, P], None]) -> Callable[Concatenate[Transaction, P], None]:
    """Makes the calls of several threads one after the other.

    Records that another thread adds during a flush would be dropped with those that it has written.
    """

    @wraps(method)
    def call(self: Transaction, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if process_id() != self._pid:  # a thread that holds the lock does not exist here
            raise ClosedError("a transaction cannot be used in a forked process; open the store again there")
        with self._lock:
            method(self, *args, **kwargs)

    return call


class Transaction(FactoryMade, factory="Store.transaction"):
    """Records for any partitions, and committed offsets, that become visible to `read_committed` readers all or none.

    A context manager: the end of the block commits, and an exception aborts. Created by `Store.transaction`. Threads that share
    it take turns. Closing the store aborts it; calls then raise `ClosedError`.

    Attributes:
        transactional_id: the id.

    >>> import pylog, tempfile
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("invoices")
    ...     _ = store.create_topic("audit")
    ...     with store.transaction("billing") as txn:
    ...         txn.append("invoices", b"9.50", key=b"42")
    ...         txn.append("audit", b"invoice for 42")
    ...     txn.outcome, [record.value for record in store.log("audit").records(isolation_level="read_committed")]
    ('committed', [b'invoice for 42'])
    """

    def _begin(self, incarnation: Incarnation, durability: Durability, compression: str | None, buffer_bytes: int) -> None:
        self.transactional_id = incarnation.transactional_id
        self._incarnation = incarnation
        self._level = durability
        self._compression = compression
        self._buffer_bytes = buffer_bytes
        self._buffers: dict[str, Buffer] = {}
        self._waiting: dict[TopicPartition, list[Piece]] = {}
        self._waiting_bytes = 0
        self._offsets: dict[tuple[str, str], PendingCommit] = {}  # by group and member
        self._sequences: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, list[range]] = {}
        self._mine: ProducerIdAndEpoch | None = None  # once the transaction is known in `__transaction_state`
        self._outcome: _Outcome = "open"
        self._failure: BaseException | None = None
        self._is_given_up = False  # `abort` was called
        self._is_marked = False  # it gets markers, whatever is in it
        self._deadline = 0.0  # on the monotonic clock; set once the transaction is known
        self._lock, self._pid = RLock(), process_id()

    def __repr__(self) -> str:
        return f"Transaction({self.transactional_id!r}, {self._outcome})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._outcome != "open":
            return
        if error is not None:
            _abort_after(self, error)
            return
        try:
            self.commit()
        except BaseException as failed:
            _abort_after(self, failed)
            raise

    @property
    def outcome(self) -> str:
        """One of "open", "committed", "aborted" and "unknown".

        It is unknown after a sync of the decision has failed: close the store and open it again, which decides it, and read the
        records with `isolation_level="read_committed"`. If `Store.flush` raises an error then, the disk still refuses syncs, and
        nothing is decided yet.

        After an interrupt of the commit, it is what was decided. Only a transaction without an id that is one plain append has no
        decision: after an interrupt its outcome stays unknown, as that of an append.
        """
        may_ask = not isinstance(self._failure, StorageFailedError)
        is_asked = self._is_given_up if self._outcome == "open" else self._outcome == "unknown" and may_ask
        if is_asked and self._mine is not None:  # `commit` was interrupted, or `abort` has failed
            found = self._incarnation.outcome_of(self._mine)
            return "unknown" if found is states.TransactionOutcome.UNKNOWN else found.value
        return self._outcome

    @property
    def offsets(self) -> dict[TopicPartition, list[range]]:
        """The offsets of the records that were written so far, by partition: a range for each batch."""
        return {partition: list(ranges) for partition, ranges in self._written.items() if partition.topic not in INTERNAL_TOPICS}

    # ---- records -------------------------------------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        headers: Iterable[Header] | None = None,
        partition: int | None = None,
        timestamp: Any = None,
    ) -> None:
        """Adds one record.

        Args:
            topic: the name of a topic.
            value: bytes, or None for a tombstone.
            key: bytes, or None. Equal keys go to the same partition, as with Kafka's producers.
            headers: pairs of a name and bytes or None.
            partition: the number of a partition; by default, the key decides.
            timestamp: milliseconds since 1970 or a datetime; by default, now.

        Raises:
            InvalidTransactionStateError: the transaction has ended, or an earlier call has failed: abort it.
            UnknownTopicOrPartitionError, InvalidTopicError, InvalidRecordError, InvalidArgumentError: nothing was added.
            PylogError: as `flush`, once the buffer is full.
        """
        self.append_many(topic, [(key, value, headers or (), timestamp)], partition=partition)

    @_in_turn
    def append_many(self, topic: str, items: Sequence[Any], *, partition: int | None = None) -> None:
        """Adds records.

        Args:
            topic: the name of a topic.
            items: as for `Log.append_many`: values, or tuples of a key, a value, headers and a timestamp.
            partition: as for `append`.

        Raises:
            PylogError: as `append`.
        """
        check_open(self)
        number = _checked_partition(partition)
        buffer = self._buffer_of(topic, number)
        self._add(buffer.split(checked_items(items), number, self._incarnation.clock.now_ms()))

    @_in_turn
    def append_arrow(self, topic: str, data: Any, *, partition: int | None = None) -> None:
        """Adds the rows of a `pyarrow.Table` or `RecordBatch`, with the columns of `Log.append_arrow`.

        Args:
            topic: the name of a topic.
            data: the rows.
            partition: as for `append`.

        Raises:
            PylogError: as `append`.
        """
        check_open(self)
        if not isinstance(data, pa.Table | pa.RecordBatch):
            raise InvalidRecordError(f"append_arrow takes a pyarrow.Table or RecordBatch, not {type(data).__name__}")
        number = _checked_partition(partition)
        buffer = self._buffer_of(topic, number)
        self._add(buffer.split_table(data, number, self._incarnation.clock.now_ms()))

    @_in_turn
    def send_offsets(self, group: str | ConsumerGroupMetadata | GroupConsumer, offsets: Offsets | None = None) -> None:
        """Adds the offsets of a consumer group: the group goes on from them if, and only if, the transaction is committed.

        Args:
            group: a consumer with a group, or its `group_metadata()`: the offsets are committed only if the consumer still owns
                the partitions at the commit. Or the name of a group without active members.
            offsets: by partition, the offset of the next record that the group will read. With a consumer, the default is the
                positions of its partitions.

        Raises:
            OffsetOutOfRangeError, UnknownTopicOrPartitionError, InvalidArgumentError: nothing was added.
            IllegalStateError: the consumer has no group. InvalidTransactionStateError: as `append`.

        A partition that the consumer has lost makes `commit` raise FencedMemberError, and active members make it raise
        NonEmptyGroupError.
        """
        check_open(self)
        known = metadata_of(group)
        wanted = positions_of(group) if offsets is None else offsets
        if not isinstance(wanted, Mapping):
            raise InvalidArgumentError(f"offsets of type {type(wanted).__name__} are not a mapping of partitions to offsets")
        pending = self._offsets.get(known[:2]) or self._incarnation.offsets_of(known)
        pending.add(wanted)
        pending.group = known  # with the member's epoch now
        if wanted:
            self._offsets[known[:2]] = pending

    def _buffer_of(self, topic: str, partition: int | None) -> Buffer:
        check_kind("topic", topic, str, "a topic name")
        found = self._buffers.get(topic)
        if found is None:
            check_topic_name(topic)
            if topic in INTERNAL_TOPICS:
                raise internal_topic(topic, self._incarnation.path)
            found = self._buffers[topic] = Buffer(self._incarnation.topic(topic), _BATCH_SIZE)
        if partition is not None and not found.has(partition):  # it may have been added since
            found = self._buffers[topic] = Buffer(self._incarnation.topic_now(topic), _BATCH_SIZE)
        return found

    def _add(self, parts: Iterable[tuple[TopicPartition, Piece]]) -> None:
        for partition, rows in list(parts):  # all are checked before the first is added
            self._waiting.setdefault(partition, []).append(rows)
            self._waiting_bytes += rows.size_bound
        if self._waiting_bytes >= self._buffer_bytes:
            self.flush()

    # ---- writing -------------------------------------------------------------------------------------------------------------

    @_in_turn
    def flush(self) -> None:
        """Writes the buffered records to their logs, where `read_committed` readers do not see them before the commit.

        Raises:
            ProducerFencedError: a newer instance uses the id.
            TransactionAbortedError: it has timed out, or another call aborted it. InvalidTransactionStateError: as `append`.
            PylogError: as `Log.append`. After any error only `abort` is possible.
        """
        check_open(self)
        try:
            self._write()
        except BaseException as error:
            self._failure = error
            raise

    def _write(self, offsets: Iterable[PendingCommit] = ()) -> None:
        """Writes the buffered records, and offsets. All partitions are registered in one step, and written at once."""
        calls = {partition: [partial(self._put_all, partition)] for partition in self._waiting}
        for pending in offsets:
            partition = pending.partition()
            calls.setdefault(partition, []).append(partial(self._put_offsets, partition, pending))
        if not calls:
            return
        self._register(list(calls))
        self._incarnation.at_once([partial(_each, of_partition) for of_partition in calls.values()], self._level)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _put_all(self, partition: TopicPartition) -> None:
        for rows in batches_of(self._waiting[partition], self._incarnation.batch_limit(partition)):
            try:
                self._put(partition, rows)
            except RecordTooLargeError:  # another process has lowered the topic's limit
                for part in batches_of([rows], self._incarnation.batch_limit(partition, now=True)):
                    self._put(partition, part)

    def _put(self, partition: TopicPartition, rows: Piece) -> None:
        batch = self._next_batch(partition)
        self._note(partition, self._incarnation.append(partition, batch, rows, self._compression, self._level))

    def _put_offsets(self, partition: TopicPartition, offsets: PendingCommit) -> None:
        batch = self._next_batch(partition)
        self._note(partition, self._incarnation.append_offsets(partition, batch, offsets, self._level))

    def _register(self, partitions: Sequence[TopicPartition]) -> None:
        """Makes partitions known in `__transaction_state` before anything of the transaction is in them."""
        if self._mine is None:
            deadline = self._incarnation.deadline()
            self._mine, self._deadline = self._incarnation.begin(partitions, self._level).identity, deadline
        elif not self._sequences.keys() >= set(partitions):
            self._incarnation.add_partitions(self._mine, partitions)
        for partition in partitions:
            self._sequences.setdefault(partition, 0)

    def _next_batch(self, partition: TopicPartition) -> TransactionalBatch:
        assert self._mine is not None
        return TransactionalBatch(*self._mine, self._sequences[partition])

    def _note(self, partition: TopicPartition, offsets: range) -> None:
        self._written.setdefault(partition, []).append(offsets)
        self._sequences[partition] += len(offsets)

    # ---- the end -------------------------------------------------------------------------------------------------------------

    @_in_turn
    def commit(self) -> None:
        """Writes what is buffered, and commits. When it returns, `read_committed` readers see all of the transaction.

        A commit is kept as an append of the transaction's durability is, whatever process is killed: also if this one dies
        before it returns, all of the transaction becomes visible, or none of it.

        Raises:
            ProducerFencedError, TransactionAbortedError, InvalidTransactionStateError: it was not committed.
            SyncFailedError: the outcome is unknown until the store is opened again.
            PylogError: as `flush`.

        Cost: at `SYNC`, the time of four syncs: those of the partitions are begun together. If all records are in one partition
        and fit into one batch, that of two syncs; without an id, that of one.
        """
        check_open(self)
        try:
            if self._is_committed_alone():
                return
            self._write(self._offsets.values())
        except BaseException as error:
            self._failure = error
            raise
        if self._mine is None:
            self._outcome = "committed"  # there is nothing in it
            return
        self._outcome = "unknown"  # until the decision is written
        try:
            ends = {partition: ranges[-1].stop for partition, ranges in self._written.items()}
            prepared = self._incarnation.prepare_commit(self._mine, ends, self._level)
        except PylogError as error:
            self._failure = error
            if not isinstance(error, StorageFailedError):
                self._outcome = "open"
            raise
        self._outcome = "committed"
        self._incarnation.complete(self._mine, prepared)

    def _is_committed_alone(self) -> bool:
        """Commits the records as one plain batch, if they fit into one. It is there whole or not at all (transactions 5.4)."""
        if self._is_marked or self._mine is not None or self._offsets or len(self._waiting) != 1:
            return False
        ((partition, pieces),) = self._waiting.items()
        batches = list(islice(batches_of(pieces, self._incarnation.batch_limit(partition)), 2))
        if len(batches) > 1:
            return False
        lone = LoneBatch(self._incarnation, partition, batches[0], self._compression, self._level)
        try:
            self._mine = lone.begin()
            self._outcome = "unknown"  # until the batch is written
            offsets = lone.append()
        except PylogError as error:
            if not isinstance(error, StorageFailedError) or error.passes:
                self._outcome = "open"
            if isinstance(error, RecordTooLargeError):  # another process has lowered the topic's limit
                self._mine = None
                lone.give_up()
                return False
            raise
        self._written[partition] = [offsets]
        self._outcome = "committed"
        lone.complete()
        return True

    @_in_turn
    def abort(self) -> None:
        """Drops what is buffered, and aborts what is written: `read_committed` readers never see it. May be called twice.

        Raises:
            InvalidTransactionStateError: it is committed, or that is unknown. ProducerFencedError: a newer instance aborted it.
            StorageFailedError, StoreLockedError: the abort could not be written; the next one that opens the store does it.
        """
        outcome = self.outcome
        if outcome == "aborted":
            return
        if outcome != "open":
            raise InvalidTransactionStateError(
                f"the transaction of {self.transactional_id!r} cannot be aborted: its outcome is {outcome!r}"
            )
        self._waiting.clear()
        self._offsets.clear()
        self._outcome, self._is_given_up = "open", True  # until it is written: an interrupted abort may be called again
        try:
            if self._mine is not None:
                self._incarnation.abort(self._mine)
        except InvalidTransactionStateError:  # it is decided otherwise
            self._outcome = "unknown"
            raise
        self._outcome = "aborted"


def _abort_after(transaction: Transaction, error: BaseException) -> None:
    """Aborts because of an exception, which is the one to raise. Does nothing once the outcome may be decided."""
    try:
        if transaction.outcome == "open":
            transaction.abort()
    except PylogError as failed:
        error.add_note(f"the transaction could not be aborted now ({failed}); the next one that opens the store aborts it")


def _each(calls: Iterable[Callable[[], None]]) -> None:
    for call in calls:
        call()


def _checked_partition(partition: Any) -> int | None:
    if partition is not None and not is_int(partition):
        raise InvalidArgumentError(f"partition={partition!r} is not an int")
    return partition


def new_transaction(incarnation: Incarnation, durability: Durability, compression: str | None, buffer_bytes: int) -> Transaction:
    """Creates a transaction, for `Store.transaction`."""
    made = Transaction.__new__(Transaction)
    made._begin(incarnation, durability, compression, buffer_bytes)
    return made


# ---- for producers -----------------------------------------------------------------------------------------------------------


def check_open(transaction: Transaction) -> None:
    """Raises an error if a transaction has ended, or an earlier call has failed. Aborts it if its timeout is over."""
    if transaction._outcome != "open":
        message = f"the transaction of {transaction.transactional_id!r} has ended: its outcome is {transaction._outcome!r}"
        raise InvalidTransactionStateError(f"{message}; begin another one with store.transaction")
    if transaction._is_given_up:
        message = f"the abort of the transaction of {transaction.transactional_id!r} was interrupted or has failed"
        raise InvalidTransactionStateError(f"{message}; abort it again")
    if transaction._failure is not None:
        message = f"a call of the transaction of {transaction.transactional_id!r} has failed ({transaction._failure})"
        raise InvalidTransactionStateError(f"{message}; abort it")
    if transaction._mine is not None and transaction._incarnation.clock.monotonic() > transaction._deadline:
        _time_out(transaction)


def _time_out(transaction: Transaction) -> None:
    """Aborts because the timeout is over, and raises TransactionAbortedError."""
    message = f"the transaction of {transaction.transactional_id!r} has been open for longer than its timeout"
    error = TransactionAbortedError(f"{message} and was aborted; begin another one, with a larger timeout_ms if it needs one")
    _abort_after(transaction, error)
    transaction._failure = error
    raise error


def add_rows(transaction: Transaction, partition: TopicPartition, rows: Piece) -> None:
    """Adds rows of one partition to a transaction. The caller has chosen the partition and checked the rows."""
    transaction._add([(partition, rows)])


def commit_marked(transaction: Transaction) -> None:
    """Commits with a marker in each partition, as a broker does: programs for Kafka's clients see the same offsets."""
    transaction._is_marked = True
    transaction.commit()


def refuse_more(transaction: Transaction, error: BaseException) -> None:
    """Lets a transaction only be aborted: some of its records could not be added, because of an error."""
    transaction._failure = transaction._failure or error


def is_in_use(transaction: Transaction) -> bool:
    """Returns whether a transaction is open, and the program has not called `abort`."""
    return not transaction._is_given_up and transaction.outcome == "open"
