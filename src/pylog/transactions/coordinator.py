"""`TransactionCoordinator`: the steps of the protocol, each of which any process may take over (transactions 4 to 7).

No process must run for them: the next process that opens the directory finishes transactions that a dead one has left. No thread
holds the locks of two partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from pylog import trace
from pylog.clock import Clock
from pylog.config import Durability, TransactionsConfig
from pylog.errors import (
    InvalidTransactionStateError,
    ProducerFencedError,
    PylogError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from pylog.limits import MAX_PRODUCER_EPOCH
from pylog.log.partition_log import PartitionLog
from pylog.log.writing.refitting import ChooseMarker, MarkerRequest
from pylog.log.writing.undecided import open_producers_now
from pylog.log_manager import LogManager
from pylog.record.types import MarkerBatch, OpenTransaction, ProducerBatch, TopicPartition
from pylog.topics.partitions import for_each_partition
from pylog.transactions import deadlines, markers, states
from pylog.transactions.crew import Crew
from pylog.transactions.deadlines import OpenedAt, TransactionDeadlines
from pylog.transactions.markers import Marker
from pylog.transactions.metadata import ProducerIdAndEpoch, TransactionMetadata, TransactionOwner, TransactionState
from pylog.transactions.owners import TransactionOwners
from pylog.transactions.producer_ids import is_of_a_broker, new_producer_id
from pylog.transactions.single_batch import SingleBatchTransactions
from pylog.transactions.topic import TransactionsTopic

_REQUESTED: Final = "a newer instance or an administrator aborts it"
_HEARTBEAT_S: Final = 3.0  # between two checks of open transactions, as a rule


class TransactionCoordinator:
    """Begins, decides and finishes the transactions of a store, and those that dead processes have left.

    Args:
        manager, clock: the store's manager and clock.
        config: the store's config.
        owners: knows which transactions belong to processes that live.

    Attributes:
        topic: the states of the transactional ids.
        singles: ends the transactions of one batch.
        crew: makes the calls of one step for several partitions at once.
        go_on: called with an open transaction before it is aborted because it is due. Returns whether it must not be aborted.
    """

    def __init__(self, manager: LogManager, config: TransactionsConfig, clock: Clock, owners: TransactionOwners) -> None:
        self._manager = manager
        self._clock = clock
        self._owners = owners
        self.topic = TransactionsTopic(manager, config, clock)
        self.singles = SingleBatchTransactions(manager, self.topic, clock)
        self._deadlines = TransactionDeadlines(_HEARTBEAT_S)
        self._overdue: frozenset[OpenedAt] = frozenset()
        self.crew = Crew(clock)
        self.go_on: Callable[[TransactionMetadata], bool] = _abort_always
        self._renewed: dict[ProducerIdAndEpoch, ProducerIdAndEpoch] = {}  # a few: only backups that were restored lead to them

    # ---- an incarnation ------------------------------------------------------------------------------------------------------

    def init(self, transactional_id: str, timeout_ms: int) -> ProducerIdAndEpoch:
        """Begins a new incarnation of an id: finishes what the last one has left, and fences it (rule 12).

        Returns:
            The producer id and epoch of its first transaction.
        """
        while True:
            self.finish(transactional_id, abort=True)
            try:
                made = self.topic.change(
                    transactional_id, partial(self._initialised, transactional_id, timeout_ms), Durability.OS
                )
            except InvalidTransactionStateError:
                continue  # an older incarnation has begun a transaction meanwhile
            assert made is not None
            return made.identity

    def _initialised(self, transactional_id: str, timeout_ms: int, current: TransactionMetadata | None) -> TransactionMetadata:
        now_ms = self._clock.now_ms()
        return states.init(current, transactional_id, timeout_ms=timeout_ms, now_ms=now_ms, new_producer_id=new_producer_id)

    def has_no_record(self, transactional_id: str) -> bool:
        """Returns whether an id has expired, or the topic was created again."""
        return self.topic.state_of(transactional_id) is None

    def renewed_of(self, mine: ProducerIdAndEpoch) -> ProducerIdAndEpoch | None:
        """Returns what replaces the numbers of a transaction that `_renew` has aborted; None for any other transaction."""
        return self._renewed.get(mine)

    def _renew(self, log: PartitionLog, mine: ProducerIdAndEpoch, epoch: int) -> bool:
        """Gives an id a new producer id, because a log has a later epoch of its producer than the id's own records (rule 3.3).

        That happens after `__transaction_state` was restored from a backup, or repaired. The open transaction is aborted.

        Returns:
            False if the id's records have moved on: another instance has fenced this one.
        """
        state = self.topic.state_of_producer(mine.producer_id)
        if state is None or state.identity != mine or state.state is not TransactionState.ONGOING:
            return False
        name = state.transactional_id
        self.finish(name, abort=True)

        def renewed(current: TransactionMetadata | None) -> TransactionMetadata | None:
            if current is None or not current.state.is_complete or states.last_transaction(current) != mine:
                return None  # a newer instance has the id
            return states.init(
                current,
                name,
                timeout_ms=state.timeout_ms,
                now_ms=self._clock.now_ms(),
                new_producer_id=new_producer_id,
                highest_epoch=MAX_PRODUCER_EPOCH + 1,
            )

        made = self.topic.change(name, renewed, Durability.OS)
        if made is None:
            return False
        self._renewed[mine] = made.identity
        facts = {"transactional_id": name, "old": mine.producer_id, "new": made.producer_id}
        reason = f"the log has epoch {epoch}, which is later than epoch {mine.producer_epoch} of the id's records"
        trace.line(trace.PRODUCER_ID_RENEWED, log.partition, **facts, reason=reason)
        return True

    # ---- an open transaction -------------------------------------------------------------------------------------------------

    def begin(
        self, transactional_id: str, mine: ProducerIdAndEpoch, partitions: Iterable[TopicPartition], owner: TransactionOwner
    ) -> TransactionMetadata:
        """Makes a transaction known, with the partitions that it is about to write to (rule 1). Returns its state.

        The record before is durable before the first batch: a power loss must not keep the batch and lose the record (rule 2).
        """
        level = Durability.OS
        if owner.is_synced and not self.topic.is_durable(transactional_id):
            level = Durability.SYNC
        now_ms = self._clock.now_ms()
        made = self.topic.change(transactional_id, lambda current: states.begin(current, mine, partitions, owner, now_ms), level)
        assert made is not None
        return made

    def add_partitions(self, transactional_id: str, mine: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]) -> None:
        """Makes more partitions of an open transaction known."""
        now_ms = self._clock.now_ms()
        self.topic.change(
            transactional_id, lambda current: states.add_partitions(current, mine, partitions, now_ms), Durability.OS
        )

    def check_append(self, transactional_id: str, mine: ProducerIdAndEpoch, partition: TopicPartition) -> None:
        """Raises unless a transaction may append to a partition. The caller holds the partition's lock (rule 3)."""
        states.check_append(self.topic.state_of(transactional_id), mine, partition)

    def append(
        self,
        transactional_id: str,
        partition: TopicPartition,
        batch: ProducerBatch,
        pieces: Sequence[Any],
        now_ms: int,
        compression: str | None,
        level: Durability,
    ) -> range:
        """Appends one batch of an open transaction, and returns its offsets.

        A `TransactionalBatch` counts once its marker follows. Any other one is all of its transaction, and decides it (5.4).
        """
        log = self._manager.log(*partition)
        mine = ProducerIdAndEpoch(batch.producer_id, batch.epoch)
        check = partial(self.check_append, transactional_id, mine, partition)

        def append() -> range:
            done = log.append(now_ms, list(pieces), compression, level, batch, True, check=check)
            if done.duplicate:
                raise repeated(log, mine)
            return done.offsets

        return self.after_orphans(log, mine, append)

    def after_orphans(self, log: PartitionLog, mine: ProducerIdAndEpoch, append: Callable[[], range]) -> range:
        """Makes an append of a transaction. If an older transaction of its producer is open there, aborts that first (rule 4).

        Raises:
            TransactionAbortedError: the log has later batches of the producer. The next transaction of the id has another one.
        """
        try:
            try:
                return append()
            except InvalidTransactionStateError as error:
                if error.offset is None or not self.abort_orphan(log, mine):  # else an older one is open at that offset
                    raise
                return append()
        except ProducerFencedError as error:
            if not self._renew(log, mine, error.expected):
                raise
            message = f"{log.directory} has a later epoch of producer {mine.producer_id} than the records of its transactional id"
            advice = "the id has a new producer id now; abort the transaction, and begin it again"
            raise TransactionAbortedError(f"{message}, as after a restored backup; {advice}") from error

    # ---- the decision --------------------------------------------------------------------------------------------------------

    def prepare_commit(
        self, transactional_id: str, mine: ProducerIdAndEpoch, written: Mapping[TopicPartition, int], level: Durability
    ) -> TransactionMetadata:
        """Decides that a transaction is committed. All its data is durable before (rule 5)."""
        now_ms = self._clock.now_ms()
        made = self.topic.change(
            transactional_id,
            lambda current: states.prepare_commit(current, mine, written, now_ms, new_producer_id),
            level,
        )
        assert made is not None
        return made

    def prepare_abort(self, transactional_id: str, mine: ProducerIdAndEpoch) -> TransactionMetadata:
        """Decides that a transaction is aborted."""
        now_ms = self._clock.now_ms()
        made = self.topic.change(
            transactional_id, lambda current: states.prepare_abort(current, mine, now_ms, new_producer_id), Durability.OS
        )
        assert made is not None
        return made

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def finish(self, transactional_id: str, *, abort: bool) -> TransactionMetadata | None:
        """Finishes what is prepared, and aborts what is open, if that is due (transactions 6.1). Any process may do it.

        Args:
            transactional_id: the id.
            abort: true to abort an open transaction even if its owner lives.

        Returns:
            The state of the id as this call has left it; None if it has none.
        """
        current = self.topic.state_of(transactional_id)
        reason = _REQUESTED if abort else None if current is None else self._why_due(current)
        if current is not None and current.state is TransactionState.ONGOING and reason is not None:
            if not abort and self.go_on(current):
                return self.topic.state_of(transactional_id)
            if current.is_single:
                return self.singles.finish(current, reason)
            try:
                current = self.prepare_abort(transactional_id, current.identity)
            except (InvalidTransactionStateError, ProducerFencedError, TransactionAbortedError):
                current = self.topic.state_of(transactional_id)  # another process was faster
            else:
                trace.line(trace.TRANSACTION_ABORTED, **_facts(current), reason=reason)
        if current is None or not current.state.is_prepared:
            return current
        return self.write_markers(current)

    def _why_due(self, current: TransactionMetadata) -> str | None:
        lives = current.owner is not None and self._owners.is_alive(current.owner.byte)
        overdue = deadlines.opened_at(current) in self._overdue
        return deadlines.why_due(current, owner_lives=lives, is_overdue=overdue, now_ms=self._clock.now_ms())

    def write_markers(self, prepared: TransactionMetadata) -> TransactionMetadata | None:
        """Writes the markers of a prepared transaction, and notes that it is complete (rules 7 to 11)."""
        committed = prepared.state is TransactionState.PREPARE_COMMIT
        synced = prepared.owner is None or prepared.owner.is_synced
        level = Durability.SYNC if synced else Durability.OS  # readers go past a marker: its offset must not be given again
        if synced and committed:
            self.topic.make_durable(prepared.transactional_id)
        epoch = self.topic.coordinator_epoch(prepared.transactional_id)
        calls = [partial(self._write_marker, each, prepared, epoch, level) for each in prepared.partitions]
        self.crew.results(calls, syncs=synced)
        now_ms = self._clock.now_ms()
        made = self.topic.change(
            prepared.transactional_id, lambda current: states.complete(current, prepared, now_ms), Durability.OS
        )
        return made or self.topic.state_of(prepared.transactional_id)

    def _write_marker(
        self, partition: TopicPartition, prepared: TransactionMetadata, coordinator_epoch: int, level: Durability
    ) -> None:
        """Appends the marker that a partition needs. If another process has written it, only syncs it at `SYNC`."""

        def choose(found: OpenTransaction | None) -> tuple[MarkerBatch, bool] | None:
            return _batch_of(markers.marker_for(prepared, None if found is None else found.epoch))

        with suppress(UnknownTopicOrPartitionError):  # the topic was deleted
            self._append_marker(self._manager.known_log(partition), prepared.producer_id, choose, coordinator_epoch, level)

    def abort_orphan(self, log: PartitionLog, mine: ProducerIdAndEpoch) -> bool:
        """Aborts an older open transaction of the same producer in a partition (rule 4). Returns whether there was one."""
        own = (found for found in open_transactions(log) if found.producer_id == mine.producer_id)
        return any(self._abort_orphan(log, found) for found in own if found.epoch < mine.producer_epoch)

    def _append_marker(
        self, log: PartitionLog, producer_id: int, choose: ChooseMarker, coordinator_epoch: int, level: Durability
    ) -> None:
        log.commit(MarkerRequest(self._clock.now_ms(), producer_id, choose, coordinator_epoch, level))

    # ---- what dead processes have left ---------------------------------------------------------------------------------------

    def undecided(self) -> list[TransactionMetadata]:
        """Returns the states of all ids whose transaction is open or prepared. Ids that cannot be read are left out."""
        found, _ = self.topic.undecided()
        return [state for left in found.values() for state in left]

    def settle(self) -> int:
        """Finishes what dead processes of pylog have left. Returns how many transactions that were.

        A broker's transactions are left to the broker, or to the next instance of their id: to open a broker's directory changes
        nothing in it but what is appended.

        A transaction that cannot be finished now, because a log is damaged or the disk is full, is left to the next call.
        """
        found, failed = self.topic.undecided()
        undecided = [state for left in found.values() for state in left if state.owner is not None]
        self._overdue = self._deadlines.overdue(undecided, self._clock.monotonic())
        due = [state for state in undecided if state.state.is_prepared or self._why_due(state)]
        for state in due:
            try:
                self.finish(state.transactional_id, abort=False)
            except PylogError as error:
                trace.line(trace.TRANSACTION_INCOMPLETE, **_facts(state), reason=str(error))
        for damage in failed.values():
            trace.line(trace.TRANSACTIONS_UNREADABLE, reason=str(damage))
        return len(due)

    def sweep(self, log: PartitionLog) -> int:
        """Finishes pylog's open transactions of a partition that are due, and aborts orphans: those that no id knows (rule 14).

        Those of a broker's producers are not looked up: that would open `__transaction_state` for writing.

        Returns:
            How many orphans there were.

        Raises:
            PylogError: the first error. The other transactions of the partition were finished.
        """
        return sum(for_each_partition(partial(self._sweep_one, log, found) for found in open_transactions(log)))

    def _sweep_one(self, log: PartitionLog, found: OpenTransaction) -> int:
        if is_of_a_broker(found.producer_id):
            return 0
        identity = ProducerIdAndEpoch(found.producer_id, found.epoch)
        state = self.topic.state_of_producer(found.producer_id)
        kind = markers.judge(state, identity, log.partition)
        if kind is markers.OpenTransactionKind.KNOWN and state is not None and state.owner is not None:
            self.finish(state.transactional_id, abort=False)
        return int(kind is markers.OpenTransactionKind.ORPHAN and self._abort_orphan(log, found))

    def abort_open(self, log: PartitionLog, found: OpenTransaction) -> bool:
        """Aborts an open transaction of a partition that no id has open, if it still is. Returns whether it was."""
        return self._abort_orphan(log, found)

    def owner_lives(self, owner: TransactionOwner) -> bool:
        """Returns whether the owner of a transaction lives."""
        return self._owners.is_alive(owner.byte)

    def _abort_orphan(self, log: PartitionLog, orphan: OpenTransaction) -> bool:
        found: list[OpenTransaction] = []

        def choose(now: OpenTransaction | None) -> tuple[MarkerBatch, bool] | None:
            if now != orphan:
                return None
            found.append(orphan)
            return _batch_of(markers.orphan_marker(orphan.producer_id, orphan.epoch))

        self._append_marker(log, orphan.producer_id, choose, 0, Durability.SYNC)
        if found:
            facts = {"producer_id": orphan.producer_id, "epoch": orphan.epoch, "first_offset": orphan.first_offset}
            trace.line(trace.ORPHAN_ABORTED, log.partition, **facts, reason="no transactional id has it open")
        return bool(found)


def _abort_always(_: TransactionMetadata) -> bool:
    return False


def repeated(log: PartitionLog, mine: ProducerIdAndEpoch) -> ProducerFencedError:
    """Returns the error for an append that the log takes for a repetition of an older batch with the same numbers."""
    message = f"{log.directory} has a batch of an older transaction with the numbers {tuple(mine)}"
    numbers = {"producer_id": mine.producer_id, "epoch": mine.producer_epoch, "sequence": 0}
    return ProducerFencedError(message, **numbers, expected=mine.producer_epoch)


def open_transactions(log: PartitionLog) -> list[OpenTransaction]:
    """Returns the open transactions of a partition now, by their first offsets. Takes the partition's lock; writes nothing."""
    found = open_producers_now(log.writer())
    return [OpenTransaction(each.producer_id, each.epoch, each.transaction_first_offset) for each in found]


def _batch_of(marker: Marker | None) -> tuple[MarkerBatch, bool] | None:
    return None if marker is None else (MarkerBatch(marker.producer_id, marker.epoch, -1), marker.is_commit)


def _facts(state: TransactionMetadata) -> dict[str, Any]:
    return {"transactional_id": state.transactional_id, "producer_id": state.producer_id, "epoch": state.producer_epoch}
