"""Writes the rows of a Spark job in one transaction: a micro-batch of a streaming query, or all rows of a batch job.

A micro-batch is decided by its intent (`pylog.staging.intents`) before the first row is appended. So its transaction is not
aborted when the driver dies: any process that opens the directory for writing appends the rest and commits it. If it was aborted
and repeated, `read_uncommitted` readers would see its rows twice (transactions 12).

The steps: `__transaction_state` names the partitions, durably; the intent; the rows; the decision; the markers; the intent is
done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Final

from pylog import trace
from pylog.config import Durability
from pylog.directory.topic_names import INTERNAL_TOPICS, internal_topic
from pylog.errors import (
    CorruptionError,
    InvalidTransactionStateError,
    OffsetOutOfRangeError,
    PylogError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from pylog.log.partition_log import PartitionLog
from pylog.log.writing.append_batches import BatchRange
from pylog.log.writing.refitting import spliced
from pylog.log_manager import LogManager
from pylog.record.types import ProducerBatch, TopicPartition, TransactionalBatch
from pylog.splicing import Splicer, StagedRows
from pylog.staging.file import staged_path
from pylog.staging.intents import IntendedTransaction, Intent, PartitionIntent, intent_name, read_intent, write_intent
from pylog.transactions import states
from pylog.transactions.coordinator import TransactionCoordinator
from pylog.transactions.metadata import ProducerIdAndEpoch, TransactionMetadata, TransactionOwner, TransactionState
from pylog.transactions.owners import ANONYMOUS, TransactionOwners

PREFIX: Final = "pylog-spark-"


def transactional_id_of(query: str) -> str:
    """Returns the transactional id of a streaming query.

    >>> transactional_id_of("ab-12")
    'pylog-spark-ab-12'
    """
    return PREFIX + query


class StagedTransactions:
    """The transactions of Spark jobs.

    Args:
        manager: the store's manager.
        coordinator: the steps of the protocol.
        owners: the owners of this store's transactions.
        timeout_ms: how long such a transaction may stay open while its driver lives, in milliseconds.
    """

    def __init__(
        self, manager: LogManager, coordinator: TransactionCoordinator, owners: TransactionOwners, timeout_ms: int
    ) -> None:
        self._manager = manager
        self._coordinator = coordinator
        self._owners = owners
        self._timeout_ms = timeout_ms

    # ---- a batch job ---------------------------------------------------------------------------------------------------------

    def write(self, staged: StagedRows, splicer: Splicer, level: Durability | None) -> None:
        """Appends all rows of a batch job in one transaction. If that fails, it is aborted, by this process or the next one.

        Args:
            staged: the rows.
            splicer: appends them.
            level: the durability; None is the highest one of the topics.
        """
        partitions = staged.partitions()
        durability = level or self._level_of(partitions)
        owner = self._owners.take_anonymous()
        name = ANONYMOUS + str(owner.number)
        with self._begun(name, owner.byte, partitions, durability) as mine:
            put = partial(self._put, name, mine, durability)
            try:
                batch = TransactionalBatch(*mine, 0)
                ends = {each: splicer.append(each, staged, batch, 0, put) for each in partitions}
                self._coordinator.prepare_commit(name, mine, ends, durability)
            except BaseException:
                with suppress(PylogError):  # the next process that opens the directory aborts it
                    self._coordinator.finish(name, abort=True)
                raise
            self._write_markers(name, mine)

    @contextmanager
    def _begun(
        self, transactional_id: str, byte: int, partitions: Iterable[TopicPartition], level: Durability
    ) -> Iterator[ProducerIdAndEpoch]:
        """Begins a transaction, durably. Yields its numbers. Until the context ends, its owner is alive."""
        try:
            mine = self._coordinator.init(transactional_id, self._timeout_ms)
            self._coordinator.begin(transactional_id, mine, partitions, TransactionOwner.of(byte, level))
            self._coordinator.topic.make_durable(transactional_id)
            yield mine
        finally:
            self._owners.release(byte)

    def _level_of(self, partitions: Iterable[TopicPartition]) -> Durability:
        """Returns the highest durability that topics have for their appends."""
        levels = [self._manager.log(*each).writer().source.options.now.durability for each in partitions]
        return Durability.SYNC if Durability.SYNC in levels else levels[0]

    # ---- a micro-batch -------------------------------------------------------------------------------------------------------

    def begun(
        self, query: str, partitions: Sequence[TopicPartition], level: Durability | None
    ) -> AbstractContextManager[ProducerIdAndEpoch]:
        """Begins the transaction of a micro-batch, durably, before its intent is written. The caller holds the query's lock.

        Args:
            query: the query's id.
            partitions: all partitions that have rows.
            level: the durability; None is the highest one of the topics.

        Returns:
            A context that yields the numbers. Until it ends, the transaction's owner is alive.
        """
        return self._begun(transactional_id_of(query), self._owners.take(), partitions, level or self._level_of(partitions))

    def complete(self, intent: Intent) -> Intent | None:
        """Appends the missing rows of a micro-batch, commits its transaction, and marks the intent as done.

        The caller holds the query's lock.

        Returns:
            The completed intent; None if the transaction was aborted, so that all of it must be written again.

        Raises:
            ProducerFencedError: another program uses the query's transactional id.
            InvalidTransactionStateError: whether the transaction was committed is unknown.
            PylogError: as an append; calling it again goes on.
        """
        assert isinstance(intent.transaction, IntendedTransaction)
        name, mine = transactional_id_of(intent.query), _identity(intent)
        state = self._coordinator.topic.state_of(name)
        outcome = states.outcome_of(state, mine)
        if outcome is states.TransactionOutcome.ABORTED:
            return None
        splicer = Splicer(self._manager, intent.transaction.timestamp_type)
        staged = splicer.read(intent.files)
        if outcome is states.TransactionOutcome.UNKNOWN:
            outcome = self._outcome_by_rows(intent, staged, splicer)
        if outcome is states.TransactionOutcome.OPEN and state is not None and state.owner is not None:
            level = Durability.SYNC if state.owner.is_synced else Durability.OS
            try:
                ends = self._append_rest(intent, staged, splicer, level)
                self._coordinator.prepare_commit(name, mine, ends, level)
            except TransactionAbortedError:
                return None
            outcome = states.TransactionOutcome.COMMITTED
        if outcome is not states.TransactionOutcome.COMMITTED:
            return None
        self._write_markers(name, mine)
        return self._note_done(intent, staged)

    def _append_rest(self, intent: Intent, staged: StagedRows, splicer: Splicer, level: Durability) -> dict[TopicPartition, int]:
        assert isinstance(intent.transaction, IntendedTransaction)
        name, mine, batch = transactional_id_of(intent.query), _identity(intent), intent.transaction.numbers
        put = partial(self._put, name, mine, level)
        ends = {}
        for target in intent.targets:
            partition = TopicPartition(target.topic, target.partition)
            done = self._manager.log(*partition).next_sequence(batch.producer_id, batch.epoch) or 0  # kept while it is open
            ends[partition] = splicer.append(partition, staged, batch, done, put)
        return ends

    def _put(
        self,
        transactional_id: str,
        mine: ProducerIdAndEpoch,
        level: Durability,
        log: PartitionLog,
        parts: list[BatchRange],
        batch: ProducerBatch | None,
    ) -> int:
        """Appends batches of an open transaction (rules 3 and 4)."""
        if log.partition.topic in INTERNAL_TOPICS:
            raise internal_topic(log.partition.topic, log.directory)

        def append() -> range:
            request = spliced(parts, batch, level, level)
            request.check = partial(self._coordinator.check_append, transactional_id, mine, log.partition)
            return log.commit(request).offsets

        return self._coordinator.after_orphans(log, mine, append).stop

    def _outcome_by_rows(self, intent: Intent, staged: StagedRows, splicer: Splicer) -> states.TransactionOutcome:
        """Returns the outcome of a transaction whose id has expired or has moved on, by its rows in the logs."""
        assert isinstance(intent.transaction, IntendedTransaction)
        batch = intent.transaction.numbers
        try:
            counts = [splicer.found(each, batch, intent, "read_committed") for each in intent.targets]
        except (OffsetOutOfRangeError, UnknownTopicOrPartitionError):
            counts = [-1]
        if not any(counts):
            return states.TransactionOutcome.ABORTED
        if counts == [staged.count(TopicPartition(each.topic, each.partition)) for each in intent.targets]:
            return states.TransactionOutcome.COMMITTED
        name = transactional_id_of(intent.query)
        raise InvalidTransactionStateError(
            f"whether micro-batch {intent.batch} of query {intent.query} was committed is unknown: the transactional id {name!r} "
            "has no record of its transaction any more; start the query with a new checkpoint"
        )

    def _write_markers(self, transactional_id: str, mine: ProducerIdAndEpoch) -> None:
        """Writes the markers of a committed transaction. If that fails, it is still committed, and completed later."""
        try:
            self._coordinator.finish(transactional_id, abort=False)
        except PylogError as error:
            facts = {"transactional_id": transactional_id, "producer_id": mine.producer_id, "epoch": mine.producer_epoch}
            trace.line(trace.TRANSACTION_INCOMPLETE, **facts, reason=str(error))

    def _note_done(self, intent: Intent, staged: StagedRows) -> Intent:
        counted = [
            PartitionIntent(each.topic, each.partition, each.end_offset, staged.count(TopicPartition(each.topic, each.partition)))
            for each in intent.targets
        ]
        finished = Intent(intent.query, intent.batch, targets=tuple(counted), done=True)
        write_intent(self._manager.fs, self._manager.path, finished)
        return finished

    # ---- a micro-batch of a dead driver --------------------------------------------------------------------------------------

    def go_on(self, state: TransactionMetadata) -> bool:
        """Completes the micro-batch of a dead driver, instead of aborting its transaction.

        Args:
            state: the state of an id with an open transaction that is due to be aborted.

        Returns:
            False if it is not the transaction of a micro-batch whose rows exist: it must be aborted.

        Raises:
            PylogError: it could not be completed now; the next attempt goes on.
        """
        query = state.transactional_id.removeprefix(PREFIX)
        if query == state.transactional_id or self._intended(query, state) is None:
            return False
        with self._manager.query_lock_if_free(intent_name(query)) as is_free:
            if not is_free:
                return True  # a driver that has begun again completes it, or this thread does
            intent = self._intended(query, state)
            if intent is None:
                return self._coordinator.topic.state_of(state.transactional_id) != state
            try:
                done = self.complete(intent)
            except (CorruptionError, UnknownTopicOrPartitionError):
                return False  # a staging file is damaged, or a topic was deleted
            if done is not None:
                trace_micro_batch(trace.SPARK_RESUMED, done)
                for file in intent.files:
                    self._manager.fs.remove(staged_path(self._manager.path, file))
            return True

    def _intended(self, query: str, state: TransactionMetadata) -> Intent | None:
        """Returns the intent that an open transaction belongs to; None if there is none, or its rows do not exist."""
        fs, root = self._manager.fs, self._manager.path
        try:
            intent = read_intent(fs, root, query)
        except CorruptionError:
            return None
        if intent is None or not isinstance(intent.transaction, IntendedTransaction):
            return None
        is_its = _identity(intent) == state.identity and state.state is TransactionState.ONGOING
        return intent if is_its and all(fs.exists(staged_path(root, file)) for file in intent.files) else None


def trace_micro_batch(event: trace.Event, done: Intent) -> None:
    """Writes the line of a micro-batch that was appended.

    Args:
        event: `SPARK_COMMITTED`, or `SPARK_RESUMED` if an earlier attempt had begun it.
        done: its completed intent.
    """
    partitions = [TopicPartition(each.topic, each.partition) for each in done.targets]
    facts = {"query": done.query, "batch": done.batch, "records": done.records()}
    trace.line(event, **facts, partitions=trace.names_of(partitions))


def _identity(intent: Intent) -> ProducerIdAndEpoch:
    assert isinstance(intent.transaction, IntendedTransaction)
    return ProducerIdAndEpoch(intent.transaction.producer_id, intent.transaction.producer_epoch)
