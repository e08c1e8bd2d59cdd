"""`ProducerTransactions`: a producer's records in transactions. The producer's thread only aborts what `close` finds open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from pylog.clock import Clock
from pylog.config import Durability
from pylog.errors import InvalidTransactionStateError, PylogError, TransactionAbortedError
from pylog.log_manager import LogManager
from pylog.producer.buffer import RecordAccumulator
from pylog.producer.columns import Columns, Futures, chosen_partitions, columns_of, columns_of_table, partitions_named, parts
from pylog.producer.config import ProducerConfig
from pylog.producer.future import FutureRecordMetadata, Outcome, by_route, copied, route_of, settle
from pylog.producer.route import Route
from pylog.record.rows import Longs
from pylog.record.types import BatchMetadata, TopicPartition
from pylog.transactions.group_consumer import GroupConsumer, Offsets, metadata_of
from pylog.transactions.incarnation import Incarnation
from pylog.transactions.manager import TransactionManager
from pylog.transactions.transaction import Transaction, add_rows, check_open, commit_marked, refuse_more


@dataclass
class _Open:
    """An open transaction, and its records whose futures are not settled.

    Attributes:
        transaction: the transaction.
        futures: the futures of the records, in the order of the calls.
        size: the bytes that they count for.
        added: by partition, the futures of the records that `transaction` has taken.
        added_at: the timestamp of those that have none of their own.
        settled: by partition, how many of the transaction's batches have settled futures.
    """

    transaction: Transaction
    futures: list[FutureRecordMetadata] = field(default_factory=list)
    size: int = 0
    added: dict[TopicPartition, list[FutureRecordMetadata]] = field(default_factory=dict)
    added_at: int = -1
    settled: dict[TopicPartition, int] = field(default_factory=dict)

    def new_batches(self) -> Iterator[tuple[TopicPartition, range]]:
        """Yields the offsets of the batches that were written since the last call."""
        for partition, batches in self.transaction.offsets.items():
            first = self.settled.get(partition, 0)
            self.settled[partition] = len(batches)
            for offsets in batches[first:]:
                yield partition, offsets


@contextmanager
def _adding(transaction: Transaction) -> Iterator[None]:
    """Adds records to a transaction, all or none: it can only be aborted after an error."""
    try:
        yield
    except BaseException as error:
        refuse_more(transaction, error)
        raise


class ProducerTransactions:
    """The transactions of one producer. Every method may be called from any thread.

    Records wait in memory until `flush`, the commit, a full buffer, or a call that waits for one of them. Then they are written
    to their logs, and their futures are settled: with the commit's durability at the commit, else with `os`.

    Args:
        manager: begins transactions.
        logs: the logs of the store.
        clock: for timestamps.
        config: the producer's.
        buffer: the producer's, for its lock and the threads that wait.

    Raises:
        InvalidArgumentError: the transactional id or the timeout is invalid.
    """

    def __init__(
        self, manager: TransactionManager, logs: LogManager, clock: Clock, config: ProducerConfig, buffer: RecordAccumulator
    ) -> None:
        manager.check(config.transactional_id, config.transaction_timeout_ms)
        self._manager = manager
        self._logs = logs
        self._clock = clock
        self._config = config
        self._buffer = buffer
        self._level = manager.level(config.durability)
        self._incarnation: Incarnation | None = None
        self._open: _Open | None = None
        self._settled: list[FutureRecordMetadata] = []  # their callbacks are due
        buffer.waiting.before_waiting = self._write_for_a_waiting_thread

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Runs alone. Callbacks run afterwards, so that they may use the producer."""
        waiting = self._buffer.waiting
        waiting.check_outside()
        due: list[FutureRecordMetadata] = []
        try:
            with waiting.turn:
                try:
                    yield
                finally:
                    due, self._settled = self._settled, []
        finally:
            if due:
                self._buffer.call_back(due)

    # ---- the program's calls -------------------------------------------------------------------------------------------------

    def init(self) -> None:
        """See `Producer.init_transactions`."""
        with self._turn():
            self._buffer.check_open()
            if self._incarnation is None:
                assert self._config.transactional_id is not None
                self._incarnation = self._manager.init(self._config.transactional_id, self._config.transaction_timeout_ms)

    def begin(self) -> None:
        """See `Producer.begin_transaction`."""
        with self._turn():
            self._buffer.check_open()
            if self._incarnation is None:
                raise InvalidTransactionStateError("the producer has no transactions yet; call init_transactions() first")
            if self._open is not None:
                message = f"the producer has a transaction already: {self._open.transaction!r}"
                raise InvalidTransactionStateError(f"{message}; commit or abort it before another one begins")
            self._open = _Open(self._manager.begin(self._incarnation, self._level, self._config.compression))

    def add(self, future: FutureRecordMetadata, size: int) -> None:
        """Adds a checked record, which counts for some bytes."""
        with self._turn():
            opened = self._current()
            check_open(opened.transaction)
            if opened.futures and opened.size + size > self._config.buffer_memory:
                self._flush(opened)
            opened.futures.append(future)
            opened.size += size

    def send_table(self, route: Route, table: Any) -> list[BatchMetadata]:
        """Writes the rows of a table, after the records before. Returns their batches."""
        with self._turn():
            opened = self._current()
            self._flush(opened)
            now_ms = self._clock.now_ms()
            rows = columns_of_table(table, route, now_ms)
            try:
                with _adding(opened.transaction):
                    for columns, named in rows:
                        self._add(opened, route, columns, named, now_ms)
                opened.transaction.flush()
            finally:
                batches = list(opened.new_batches())
                opened.added.clear()
            return [BatchMetadata(*partition, offsets, Durability.OS) for partition, offsets in batches]

    def send_offsets(self, offsets: Offsets, group: object) -> None:
        """See `Producer.send_offsets_to_transaction`."""
        known = group if isinstance(group, GroupConsumer) else metadata_of(group)
        with self._turn():
            self._current().transaction.send_offsets(known, offsets)

    def flush(self) -> None:
        """Writes the records that wait. Does nothing outside of a transaction."""
        with self._turn():
            if self._open is not None and self._open.futures:
                self._flush(self._open)

    def commit(self) -> None:
        """See `Producer.commit_transaction`."""
        with self._turn():
            opened = self._current()
            check_open(opened.transaction)
            try:
                self._add_futures(opened)
                commit_marked(opened.transaction)
            except BaseException as error:
                self._end_if_decided(opened, error)
                raise
            self._settle(opened, self._level)
            self._open = None

    def abort(self) -> None:
        """See `Producer.abort_transaction`."""
        with self._turn():
            self._abort(self._current(), "the program has aborted the transaction of the record")

    def end(self) -> None:
        """Aborts the open transaction, and ends the use of the id, as the producer is closed. Else the next use aborts it."""
        with self._turn():
            with suppress(PylogError):
                if self._open is not None:
                    self._abort(self._open, "the producer was closed before it committed the transaction of the record")
            with suppress(PylogError):  # a closed store has released it
                if self._incarnation is not None:
                    self._manager.end(self._incarnation)
                    self._incarnation = None

    # ---- steps; the caller has the turn --------------------------------------------------------------------------------------

    def _current(self) -> _Open:
        self._buffer.check_open()
        if self._open is None:
            raise InvalidTransactionStateError("the producer has no open transaction; call begin_transaction() first")
        return self._open

    def _abort(self, opened: _Open, reason: str) -> None:
        outcome = opened.transaction.outcome
        if outcome != "unknown":  # what is unknown stays so until the store is opened again
            self._open = None
        self._fail(opened.futures, TransactionAbortedError(reason))
        opened.transaction.abort()

    def _end_if_decided(self, opened: _Open, error: BaseException) -> None:
        """Settles what a commit that raised has left."""
        outcome = opened.transaction.outcome
        if outcome == "committed":  # an interrupt came after the decision
            self._settle(opened, self._level)
            self._open = None
        else:
            self._settle(opened, Durability.OS, error)

    def _flush(self, opened: _Open) -> None:
        check_open(opened.transaction)
        try:
            self._add_futures(opened)
            opened.transaction.flush()
        except BaseException as error:
            self._settle(opened, Durability.OS, error)
            raise
        self._settle(opened, Durability.OS)

    def _write_for_a_waiting_thread(self) -> None:
        """Writes the records before a thread waits for one of them. An error is in their futures."""
        with suppress(PylogError):
            self.flush()

    def _add_futures(self, opened: _Open) -> None:
        """Adds the records to the transaction, in the order of the calls for each topic."""
        opened.added_at = now_ms = self._clock.now_ms()
        with _adding(opened.transaction):
            for route, futures in by_route(opened.futures).items():
                self._add(opened, route, columns_of(futures, route, now_ms), partitions_named(futures, route), now_ms)

    @staticmethod
    def _add(opened: _Open, route: Route, columns: Columns, named: Longs | None, now_ms: int) -> None:
        for number, part in parts(columns, chosen_partitions(route, columns, named), now_ms):
            partition = TopicPartition(route.topic, number)
            add_rows(opened.transaction, partition, part.rows)
            opened.added.setdefault(partition, []).extend(part.futures)

    def _settle(self, opened: _Open, level: Durability, error: BaseException | None = None) -> None:
        """Settles the futures of the records that were written, and fails the others with an error."""
        left, opened.futures, opened.size = opened.futures, [], 0
        added, opened.added = opened.added, {}
        for partition, offsets in opened.new_batches():
            futures = added[partition][: len(offsets)]
            del added[partition][: len(offsets)]
            self._settle_batch(partition, offsets, futures, opened.added_at, level)
        if error is not None:
            failure = error if isinstance(error, Exception) else TransactionAbortedError(f"the call was interrupted by {error!r}")
            self._fail([future for future in left if not future.done()], copied(failure))

    def _settle_batch(self, partition: TopicPartition, offsets: range, futures: Futures, now_ms: int, level: Durability) -> None:
        stamped = route_of(futures[0]).stamped
        stamp = self._stamp(partition, offsets.start) if stamped else now_ms
        self._settled += futures
        settle(futures, Outcome(*partition, offsets.start, stamp, stamped, level))

    def _stamp(self, partition: TopicPartition, offset: int) -> int:
        """Returns the LogAppendTime, which the log has set."""
        with suppress(PylogError):  # the records are in the log even if reading them fails
            return self._logs.log(*partition).read(offset).timestamp
        return -1

    def _fail(self, futures: Sequence[FutureRecordMetadata], error: Exception) -> None:
        self._settled += futures
        for some in by_route(futures).values():
            settle(some, Outcome.failed(error))
