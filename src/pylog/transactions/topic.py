"""The topic `__transaction_state`: the last record of each transactional id, and the way to append the next one."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from pylog import limits
from pylog.clock import Clock
from pylog.config import Durability, TransactionsConfig
from pylog.errors import CorruptionError, PylogError
from pylog.internal_topic import InternalTopic
from pylog.log.partition_log import PartitionLog
from pylog.log.writing.refitting import ChosenRequest
from pylog.log_manager import LogManager
from pylog.record.few import Piece, few_rows
from pylog.replayed_partition import ReplayedPartition
from pylog.transactions.image import TransactionsImage
from pylog.transactions.metadata import TRANSACTION_STATE_TOPIC, TransactionMetadata, TransactionState
from pylog.transactions.records import format_key, format_value, partition_for
from pylog.transactions.resting import RestingPartitions

LOGGER: Final = logging.getLogger("pylog.transactions")
Transition = Callable[[TransactionMetadata | None], TransactionMetadata | None]


class _UnderWayError(PylogError):
    """A state cannot be decided now, because of another thread: try again. Callers never see it."""


class _Decision:
    """A change of the state of an id.

    Attributes:
        transactional_id, now_ms, transition: as for `TransactionsPartition.change`.
        after: the next state, once it is decided.
        request: appends it.
    """

    __slots__ = ("_record", "after", "now_ms", "request", "transactional_id", "transition")

    def __init__(self, transactional_id: str, now_ms: int, transition: Transition) -> None:
        self.transactional_id = transactional_id
        self.now_ms = now_ms
        self.transition = transition
        self.after: TransactionMetadata | None = None
        self.request: ChosenRequest
        self._record: tuple[bytes, bytes] | None = None

    def record(self, after: TransactionMetadata) -> tuple[bytes, bytes]:
        """Returns the key and the value of the record of the next state."""
        if self._record is None:
            self._record = format_key(self.transactional_id), format_value(after)
        return self._record


class TransactionsPartition(ReplayedPartition[TransactionsImage]):
    """The transactional ids in one partition of `__transaction_state`."""

    def __init__(self, open_log: Callable[[], PartitionLog], directory: str, number: int) -> None:
        super().__init__(open_log, directory, number, TransactionsImage)
        self._decided: deque[_Decision] = deque()  # in the order of their records; under the guard

    def state_of(self, transactional_id: str) -> TransactionMetadata | None:
        """Returns the last state of an id; None if it has none. Cost: one pread if nothing has changed."""
        with self._guard:
            return self._caught_up().state_of(transactional_id)

    def change(self, transactional_id: str, transition: Transition, now_ms: int, level: Durability) -> TransactionMetadata | None:
        """Appends the next state of an id, decided under the partition's lock (transactions, rule 6).

        Args:
            transactional_id: the id.
            transition: from the last state to the next one. It may raise; nothing is then appended. If it returns None or the
                last state itself, nothing is appended either.
            now_ms: the time of the record, in milliseconds.
            level: the durability of the record.

        Returns:
            What `transition` has returned.
        """
        while True:
            if self._position != self._log.known.end_offset:
                with self._guard:
                    self._caught_up()  # most of the work before the lock is taken
            decision = _Decision(transactional_id, now_ms, transition)
            request = decision.request = ChosenRequest(now_ms, partial(self._decide, decision), level)
            try:
                self._log.commit(request)
            except _UnderWayError:
                continue
            finally:
                with self._guard:
                    self._take_decided()
            return decision.after

    def _decide(self, decision: _Decision) -> Piece | None:
        """Decides the next state of an id, and returns its record. Called under the log's lock.

        Elsewhere the log's lock may be waited for inside the guard, so the guard is not waited for without an end here.
        """
        if not self._guard.acquire(timeout=limits.LONGEST_SLEEP_S):
            raise _UnderWayError("another thread reads the states")
        try:
            self._take_decided()
            if any(other.transactional_id == decision.transactional_id for other in self._decided):
                raise _UnderWayError("another thread changes the state of the same id")
            before = self._caught_up().state_of(decision.transactional_id)
            decision.after = decision.transition(before)
            if decision.after is None or decision.after is before:
                return None
            self._decided.append(decision)
            return few_rows([(decision.now_ms, *decision.record(decision.after), ())])
        finally:
            self._guard.release()

    def _take_decided(self) -> None:
        """Adds the records that were decided and written to the image, so that they are not read again. Under the guard."""
        while self._decided and (request := self._decided[0].request).done:
            decision = self._decided.popleft()
            written = request.acknowledgement  # None if it has failed: if it is in the log nevertheless, the next replay finds it
            if written is not None and decision.after is not None and self._position == written.offsets.start:
                self._image.take_state(written.offsets.start, decision.record(decision.after)[1], decision.after)
                self._position = written.offsets.stop

    def undecided(self) -> list[TransactionMetadata]:
        """Returns the states of the ids whose transactions are open or prepared."""
        with self.image() as image:
            return [state for state in map(image.state_of, image.undecided()) if state is not None]

    def prepared_commits(self, image: TransactionsImage) -> dict[str, tuple[TransactionMetadata, bool]]:
        """Returns the transactions that are decided to commit and may lack markers, and whether a power loss would keep that.

        Args:
            image: the image of this partition, which the caller has locked.
        """
        found = {}
        for name in image.undecided():
            state = image.state_of(name)
            if state is not None and state.state is TransactionState.PREPARE_COMMIT:
                must_sync = state.owner is not None and state.owner.is_synced
                found[name] = state, not must_sync or image.record_offset(name) < self._log.snapshot().durable_offset
        return found

    def open_singles(self, image: TransactionsImage) -> list[TransactionMetadata]:
        """Returns the open transactions of one batch. `image` is as for `prepared_commits`."""
        found = map(image.state_of, image.undecided())
        return [state for state in found if state is not None and state.is_single]

    def make_durable(self) -> None:
        """Syncs the records so far, unless they are durable. Cost: one pread if they are."""
        state = self._log.snapshot()
        if state.durable_offset < state.end_offset:
            self._log.flush()

    def is_durable(self) -> bool:
        """Returns whether a power loss would keep all records so far."""
        state = self._log.snapshot()
        return state.durable_offset == state.end_offset

    def leader_epoch(self) -> int:
        """Returns the leader epoch of new records, which is the coordinator's epoch in markers (transactions 3.5).

        Cost: one pread, if only this process has written since the last append.
        """
        side = self._log.writer()
        known = side.writer
        if known is not None and not self._log.may_have_changed():
            return known.leader_epoch
        with side.current() as writer:
            return writer.leader_epoch

    def _report(self, offset: int, why: str) -> None:
        LOGGER.warning("%s: the record at offset %d is skipped: %s", self.directory, offset, why)


class TransactionsTopic(InternalTopic[TransactionsPartition]):
    """Kafka's TransactionStateManager: the states of all transactional ids.

    Args:
        manager: the store's manager.
        config: options of the topic.
        clock: for the times of records.
    """

    def __init__(self, manager: LogManager, config: TransactionsConfig, clock: Clock) -> None:
        options = {
            "cleanup_policy": "compact",
            "compression_type": "uncompressed",
            "segment_bytes": config.topic_segment_bytes,
        }
        super().__init__(manager, TRANSACTION_STATE_TOPIC, TransactionsPartition, config.topic_num_partitions, **options)
        self._clock = clock
        self._resting = RestingPartitions(manager.fs)

    def undecided(self) -> tuple[dict[int, list[TransactionMetadata]], dict[int, PylogError]]:
        """Returns the states of the ids whose transactions are open or prepared, by partition, and errors, as `each_partition`.

        Partitions that this store has not opened, and that certainly have none, are not opened for it.
        """
        return self.each_partition(TransactionsPartition.undecided, unless_unopened=self._resting.has)

    def _number_of(self, name: str, count: int) -> int:
        return partition_for(name, count)

    def state_of(self, transactional_id: str) -> TransactionMetadata | None:
        """Returns the last state of an id; None if it has none."""
        return self.on_partition(transactional_id, TransactionsPartition.state_of, transactional_id)

    def change(self, transactional_id: str, transition: Transition, level: Durability) -> TransactionMetadata | None:
        """Appends the next state of an id, as `TransactionsPartition.change`. Creates the topic if there is none."""
        given = transactional_id, transition, self._clock.now_ms(), level
        return self.on_partition(transactional_id, TransactionsPartition.change, *given, make=True)

    def make_durable(self, transactional_id: str) -> None:
        """Syncs the records of an id."""
        self.on_partition(transactional_id, TransactionsPartition.make_durable)

    def is_durable(self, transactional_id: str) -> bool:
        """Returns whether a power loss would keep the last record of an id."""
        return bool(self.on_partition(transactional_id, TransactionsPartition.is_durable))

    def coordinator_epoch(self, transactional_id: str) -> int:
        """Returns the coordinator's epoch for the markers of an id."""
        return self.on_partition(transactional_id, TransactionsPartition.leader_epoch) or 0

    def ids(self) -> list[str]:
        """Returns all transactional ids, sorted."""
        found: list[str] = []
        for partition in self.all_partitions():
            with partition.image() as image:
                found += image.ids()
        return sorted(found)

    def expire(self, now_ms: int, expiration_ms: int) -> list[str]:
        """Deletes the records of ids that were unused for `expiration_ms`, and returns these ids, sorted.

        An id with an open or a prepared transaction stays, and so does one whose state cannot be read.
        """
        deleted: list[str] = []
        for partition in self.all_partitions():
            with partition.image() as image:
                if not image.expired(now_ms, expiration_ms):  # most often nothing has expired, and no lock is needed
                    continue
            with partition.exclusively() as image:
                found = image.expired(now_ms, expiration_ms)
                if found:
                    partition.append(
                        [(format_key(name), None) for name in found], self._clock.now_ms(), Durability.OS, atomic=False
                    )
                deleted += found
        return sorted(deleted)

    def check_readable(self) -> None:
        """Raises CorruptionError or StorageFailedError if the state of an id cannot be read."""
        for partition in self.all_partitions():
            with partition.image() as image:
                for name, fault in image.faults().items():
                    message = f"{partition.directory}: the state of the transactional id {name!r} cannot be read: {fault}"
                    raise CorruptionError(f"{message}; repair it first", path=partition.directory)

    def state_of_producer(self, producer_id: int) -> TransactionMetadata | None:
        """Returns the state of the id that has a producer id, or had it before its current one; None if there is none.

        Raises:
            CorruptionError: none has it, and the state of an id cannot be read: that id may be the one.
        """
        unreadable = ""
        for partition in self.all_partitions():
            with partition.image() as image:
                found = image.state_of_producer(producer_id)
                for name, fault in image.faults().items():
                    unreadable = f"{partition.directory}: the transactional id {name!r} may have producer {producer_id}: {fault}"
            if found is not None:
                return found
        if unreadable:
            raise CorruptionError(unreadable)
        return None
