"""`Incarnation`: the use of a transactional id by one store, until the store is closed or a newer one takes over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple
from weakref import ReferenceType

from pylog import trace
from pylog.clock import Clock
from pylog.config import Durability
from pylog.errors import (
    ClosedError,
    InvalidTransactionStateError,
    ProducerFencedError,
    PylogError,
    TransactionAbortedError,
)
from pylog.log.options import limit_of
from pylog.log_manager import LogManager
from pylog.offsets.group_metadata import ConsumerGroupMetadata
from pylog.offsets.offset_manager import OffsetManager
from pylog.offsets.pending import PendingCommit
from pylog.record.few import Piece
from pylog.record.types import ProducerBatch, TopicPartition, TransactionalBatch
from pylog.topics.topic import Topic
from pylog.transactions import states
from pylog.transactions.coordinator import TransactionCoordinator, repeated
from pylog.transactions.metadata import ProducerIdAndEpoch, TransactionMetadata, TransactionOwner

_TOPIC_MAX_AGE_S: Final = 1.0
_NEXT_BEGINS: Final = "the next transaction of the id begins"
_OWN: Final = "its program aborts it"


class KnownTopic(NamedTuple):
    """A topic as it was read at a time of the monotonic clock, and the store's count of topic changes before that."""

    topic: Topic
    read_at: float
    changes: int


class Incarnation:
    """The use of a transactional id.

    Args:
        transactional_id: the id.
        timeout_ms: how long its transactions may stay open, in milliseconds.
        owner_byte: the byte of `pylog.lock` that shows that the owner lives.
        manager, offsets, coordinator: the store's manager, offsets and coordinator.

    Attributes:
        transactional_id: as given.
        owner_byte: as given.
        is_anonymous: true if callers have given no id, so that no newer instance fences this one.
        clock, path: the store's clock and path.
        current: the last transaction of the id in this store.
    """

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        owner_byte: int,
        manager: LogManager,
        offsets: OffsetManager,
        coordinator: TransactionCoordinator,
    ) -> None:
        self.transactional_id = transactional_id
        self.clock: Clock = manager.clock
        self.path = manager.path
        self.current: ReferenceType[Any] | None = None
        self.owner_byte = owner_byte
        self.is_anonymous = False
        self._manager = manager
        self._offsets = offsets
        self._coordinator = coordinator
        self._timeout_ms = timeout_ms
        self._topics: dict[str, KnownTopic] = {}
        self._next: ProducerIdAndEpoch | None = None  # numbers of the next transaction, if the last one is complete
        self._last: ProducerIdAndEpoch | None = None  # numbers of the last one
        self._lock = threading.Lock()  # while numbers are taken
        self._is_closed = False

    def init(self) -> None:
        """Fences older instances of the id, and aborts what they have open."""
        self._next = self._coordinator.init(self.transactional_id, self._timeout_ms)

    @property
    def is_initialised(self) -> bool:
        """Whether `init` has returned once."""
        return self._last is not None or self._next is not None

    @property
    def is_dropped(self) -> bool:
        """Whether the object of the last transaction does not exist any more."""
        return self.current is not None and self.current() is None

    def deadline(self) -> float:
        """Returns when a transaction that begins now has timed out, on the monotonic clock."""
        return self.clock.monotonic() + self._timeout_ms / 1000

    def close(self) -> None:
        """Ends the use of the id: aborts the transaction that is open in this store, if any."""
        self._is_closed = True
        self.abandon("its store was closed")

    def abandon(self, reason: str) -> None:
        """Aborts the last transaction if it is still open. One attempt: another process does it if that fails."""
        name = self.transactional_id
        with self._lock:
            if self._last is None or self._next is not None:
                return
            try:
                if self.outcome_of(self._last) is not states.TransactionOutcome.OPEN:
                    return
                self.abort(self._last)
            except PylogError as error:
                facts = {"transactional_id": name, "producer_id": self._last.producer_id, "epoch": self._last.producer_epoch}
                trace.line(trace.TRANSACTION_INCOMPLETE, **facts, reason=str(error))
            else:
                facts = {"transactional_id": name, "producer_id": self._last.producer_id, "epoch": self._last.producer_epoch}
                trace.line(trace.TRANSACTION_ABORTED, **facts, reason=reason)

    @contextmanager
    def _in_open_store(self) -> Iterator[None]:
        """Raises ClosedError instead of the error that the close of the store has caused."""
        try:
            yield
        except (TransactionAbortedError, ProducerFencedError, InvalidTransactionStateError) as error:
            if self._is_closed:
                raise ClosedError(f"the store at {self.path} is closed, which has aborted the transaction") from error
            raise

    def topic(self, name: str) -> Topic:
        """Returns a topic as it was within the last second, unless this process has changed it since, or it was deleted.

        Cost: one small read, and once a second a listing of the directory.
        """
        now, changes = self.clock.monotonic(), self._manager.topic_changes  # before the topic is read
        known = self._topics.get(name)
        if known is not None and known.changes == changes and now - known.read_at < _TOPIC_MAX_AGE_S:
            first = TopicPartition(name, known.topic.partition_ids[0])
            if not self._manager.known_log(first).was_deleted():
                return known.topic
        return self.topic_now(name)

    def topic_now(self, name: str) -> Topic:
        """Returns a topic as it is now. Cost: a listing of the directory."""
        now, changes = self.clock.monotonic(), self._manager.topic_changes
        self._topics = {name: each for name, each in self._topics.items() if now - each.read_at < _TOPIC_MAX_AGE_S}
        known = self._topics[name] = KnownTopic(self._manager.topic(name), now, changes)
        return known.topic

    def at_once(self, calls: Sequence[Callable[[], object]], level: Durability) -> None:
        """Makes the calls of one step for several partitions, so that their syncs are begun together."""
        self._coordinator.crew.results(calls, syncs=level == Durability.SYNC)

    def batch_limit(self, partition: TopicPartition, *, now: bool = False) -> int:
        """Returns the largest size of a batch of a partition, in bytes, by the options that its log applies.

        Args:
            partition: the partition.
            now: true for the topic's options as they are now, which costs one small read.
        """
        log = self._manager.known_log(partition)
        return limit_of(log.config if now else log.writer().source.options.now.config)

    # ---- the steps of a transaction ------------------------------------------------------------------------------------------

    def begin(self, partitions: Sequence[TopicPartition], level: Durability, *, is_single: bool = False) -> TransactionMetadata:
        """Makes a transaction known. Returns its state, with the producer id and epoch of its batches.

        Args:
            partitions: those that it is about to write to.
            level: its durability.
            is_single: true for a transaction of one plain batch, which decides it.

        Raises:
            ProducerFencedError: a newer instance uses the id.
        """
        owner = TransactionOwner.of(self.owner_byte, level, is_single=is_single)
        with self._lock, self._in_open_store():
            if not self.is_initialised:
                self.init()
            try:
                return self._begin(partitions, owner)
            except ProducerFencedError:
                if not self._coordinator.has_no_record(self.transactional_id):
                    raise
                self.init()  # the id has expired, so nobody else has taken it over
                return self._begin(partitions, owner)

    def _begin(self, partitions: Sequence[TopicPartition], owner: TransactionOwner) -> TransactionMetadata:
        mine = self._next or self._following()
        self._last, self._next = mine, None
        return self._coordinator.begin(self.transactional_id, mine, partitions, owner)

    def _following(self) -> ProducerIdAndEpoch:
        """Finishes the last transaction, which was interrupted or has failed. Returns the numbers of the next one."""
        last, name = self._last, self.transactional_id
        assert last is not None
        renewed = self._coordinator.renewed_of(last)
        if renewed is not None:
            return renewed
        state = self._coordinator.topic.state_of(name)
        outcome = states.outcome_of(state, last)
        if state is not None and state.is_single and outcome is states.TransactionOutcome.OPEN:
            state = self._coordinator.singles.finish(state, _NEXT_BEGINS)
        elif outcome is states.TransactionOutcome.OPEN:
            state = self._coordinator.prepare_abort(name, last)
        if state is not None and state.state.is_prepared and states.outcome_of(state, last).is_decided:
            state = self._coordinator.write_markers(state)
        is_own = state is not None and state.state.is_complete and states.last_transaction(state) == last
        return state.identity if is_own and state is not None else last  # the next step tells if another instance has the id

    def add_partitions(self, mine: ProducerIdAndEpoch, partitions: Sequence[TopicPartition]) -> None:
        """Makes more partitions known."""
        with self._in_open_store():
            self._coordinator.add_partitions(self.transactional_id, mine, partitions)

    def append(
        self, partition: TopicPartition, batch: ProducerBatch, rows: Piece, compression: str | None, level: Durability
    ) -> range:
        """Appends one batch, and returns its offsets. See `TransactionCoordinator.append` for its kinds."""
        now_ms = self.clock.now_ms()
        with self._in_open_store():
            return self._coordinator.append(self.transactional_id, partition, batch, [rows], now_ms, compression, level)

    def append_alone(self, partition: TopicPartition, rows: Piece, compression: str | None, level: Durability) -> range:
        """Appends one batch that is no part of a transaction, and returns its offsets."""
        log = self._manager.log(*partition)
        return log.append(self.clock.now_ms(), [rows], compression, level, atomic=True).offsets

    def prepare_commit(
        self, mine: ProducerIdAndEpoch, ends: Mapping[TopicPartition, int], level: Durability
    ) -> TransactionMetadata:
        """Decides that the transaction is committed."""
        with self._in_open_store():
            return self._coordinator.prepare_commit(self.transactional_id, mine, ends, level)

    def outcome_of(self, mine: ProducerIdAndEpoch) -> states.TransactionOutcome:
        """Returns what became of a transaction, as far as the last record of the id, or its only batch, tells."""
        state = self._coordinator.topic.state_of(self.transactional_id)
        if state is not None and state.is_single and state.identity == mine and self._coordinator.singles.has_batch(state):
            return states.TransactionOutcome.COMMITTED
        return states.outcome_of(state, mine)

    def complete_single(self, begun: TransactionMetadata) -> None:
        """Notes that a transaction is complete: its batch is in the log. If that fails, the next one of the id does it."""
        try:
            self._take_next(begun.identity, self._coordinator.singles.complete(begun, is_committed=True))
        except PylogError as error:
            facts = {"transactional_id": self.transactional_id, "producer_id": begun.producer_id}
            trace.line(trace.TRANSACTION_INCOMPLETE, **facts, epoch=begun.producer_epoch, reason=str(error))

    def complete(self, mine: ProducerIdAndEpoch, prepared: TransactionMetadata) -> None:
        """Writes the markers of a committed transaction. If that fails, it is still committed, and completed later."""
        try:
            self._take_next(mine, self._coordinator.write_markers(prepared))
        except PylogError as error:
            facts = {"transactional_id": self.transactional_id, "producer_id": prepared.producer_id}
            trace.line(trace.TRANSACTION_INCOMPLETE, **facts, epoch=prepared.producer_epoch, reason=str(error))

    def abort(self, mine: ProducerIdAndEpoch) -> None:
        """Aborts the transaction, unless another process has."""
        state = self._coordinator.topic.state_of(self.transactional_id)
        if state is not None and state.is_single and state.identity == mine:
            self._take_next(mine, self._coordinator.singles.finish(state, _OWN))
            return
        try:
            prepared = self._coordinator.prepare_abort(self.transactional_id, mine)
        except TransactionAbortedError:
            return  # `begin` finishes it
        except ProducerFencedError:
            if self._coordinator.renewed_of(mine) is None:
                raise
            return  # `append` has aborted it
        self._take_next(mine, self._coordinator.write_markers(prepared))

    def _take_next(self, mine: ProducerIdAndEpoch, state: TransactionMetadata | None) -> None:
        """Takes the numbers of the next transaction, unless another thread has begun that already.

        The state may be of a later transaction, which a newer instance has completed meanwhile: its numbers belong to that one.
        """
        if state is not None and state.state.is_complete and states.last_transaction(state) == mine and self._last == mine:
            self._next = state.identity

    # ---- offsets -------------------------------------------------------------------------------------------------------------

    def offsets_of(self, group: ConsumerGroupMetadata) -> PendingCommit:
        """Returns the offsets that a transaction commits for a group; none yet."""
        return PendingCommit(self._offsets, group)

    def append_offsets(
        self, partition: TopicPartition, batch: TransactionalBatch, offsets: PendingCommit, level: Durability
    ) -> range:
        """Appends the offsets of a group, pending until the transaction ends. Returns the offsets of the records."""
        mine = ProducerIdAndEpoch(batch.producer_id, batch.epoch)
        check = partial(self._coordinator.check_append, self.transactional_id, mine, partition)
        with self._in_open_store():
            log = self._manager.known_log(partition)

            def append() -> range:
                end = log.known.end_offset
                appended = offsets.append(batch, level, check)
                if appended.start < end:  # nothing else shortens an internal topic
                    raise repeated(log, mine)
                return appended

            return self._coordinator.after_orphans(log, mine, append)
