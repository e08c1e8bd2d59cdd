"""`TransactionManager`: begins the transactions of a store, and finishes those that dead processes have left."""

from __future__ import annotations

import threading
from typing import Final
from weakref import ref

from pylog import limits, trace
from pylog.arguments import checked_int
from pylog.clock import Clock, RareCheck
from pylog.config import Durability, TransactionsConfig
from pylog.directory.topic_names import INTERNAL_TOPICS
from pylog.errors import (
    ClosedError,
    InvalidArgumentError,
    InvalidTransactionStateError,
    PylogError,
    UnknownTopicOrPartitionError,
)
from pylog.log.partition_log import PartitionLog
from pylog.log_manager import LogManager
from pylog.offsets.offset_manager import OffsetManager
from pylog.record.types import TopicPartition
from pylog.transactions.coordinator import TransactionCoordinator
from pylog.transactions.incarnation import Incarnation
from pylog.transactions.named_locks import NamedLocks
from pylog.transactions.owners import ANONYMOUS, TransactionOwners
from pylog.transactions.records import checked_own_id
from pylog.transactions.staged import StagedTransactions
from pylog.transactions.states import is_timed_out
from pylog.transactions.transaction import Transaction, is_in_use, new_transaction

_EXPIRY_INTERVAL_MS: Final = 3_600_000  # Kafka's transaction.remove.expired.transaction.cleanup.interval.ms


class TransactionManager:
    """The transactions of a store.

    Args:
        manager, offsets, clock: the store's manager, offsets and clock.
        config: the store's config.
        durability: the durability of transactions without a durability of their own.

    Attributes:
        coordinator: the steps of the protocol.
        config: as given.
        staged: the transactions of Spark jobs.
    """

    def __init__(
        self, manager: LogManager, offsets: OffsetManager, clock: Clock, config: TransactionsConfig, durability: Durability
    ) -> None:
        self._manager = manager
        self._offsets = offsets
        assert manager.locks is not None
        self._owners = TransactionOwners(manager.locks.owner)
        self.config = config
        self._durability = durability
        self._clock = clock
        self.coordinator = TransactionCoordinator(manager, config, clock, self._owners)
        self.staged = StagedTransactions(manager, self.coordinator, self._owners, config.max_timeout_ms)
        self.coordinator.go_on = self.staged.go_on
        self._guard = threading.Lock()  # for moments: no step of a transaction is made under it
        self._uses_of_ids = NamedLocks()
        self._incarnations: dict[str, Incarnation] = {}
        self._at_rest: dict[str, None] = {}  # ids that no producer uses, in the order of their first use
        self._expiry = RareCheck(_EXPIRY_INTERVAL_MS)
        self._unswept: set[TopicPartition] = set()  # partitions with open transactions that could not be finished yet

    def transaction(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        durability: Durability | str | None,
        compression: str | None,
        buffer_bytes: int,
    ) -> Transaction:
        """See `Store.transaction`."""
        timeout = self._checked_timeout("timeout_ms", timeout_ms)
        size = checked_int("buffer_bytes", buffer_bytes, 0, limits.INT64_MAX)
        level = self.level(durability)
        if transactional_id is None:
            with self._guard:
                return _new(self._anonymous(timeout), level, compression, size)
        name = checked_own_id(transactional_id)
        with self._guard:
            known = self._incarnations.get(name)
            if known is not None and known.is_initialised:
                _check_not_open(known)
                return _new(known, level, compression, size)
        with self._uses_of_ids.of(name):  # not the guard: an init may wait for a lock or a disk, and other ids must not
            with self._guard:
                incarnation = self._of(name, timeout)
                made = _new(incarnation, level, compression, size)
            _initialise(incarnation)
            return made

    # ---- the transactions of a producer --------------------------------------------------------------------------------------

    def check(self, transactional_id: str | None, timeout_ms: int) -> None:
        """Raises InvalidArgumentError for an id or a timeout, in milliseconds, that transactions cannot have."""
        checked_own_id(transactional_id)
        self._checked_timeout("transaction_timeout_ms", timeout_ms)

    def _checked_timeout(self, name: str, given: object) -> int:
        timeout, longest = checked_int(name, given, 1, limits.INT32_MAX), self.config.max_timeout_ms
        if timeout > longest:
            instead = f"give less, or open the store with transactions=TransactionsConfig(max_timeout_ms={timeout})"
            raise InvalidArgumentError(f"{name}={timeout} is longer than {longest} ms, the store's limit; {instead}")
        return timeout

    def level(self, durability: Durability | str | None) -> Durability:
        """Returns a transaction's durability; None is the store's."""
        return self._durability if durability is None else Durability.of(durability)

    def init(self, transactional_id: str, timeout_ms: int) -> Incarnation:
        """Begins a new use of an id, which fences all others, those in this store too."""
        byte = self._owners.take()
        made = Incarnation(transactional_id, timeout_ms, byte, self._manager, self._offsets, self.coordinator)
        with self._uses_of_ids.of(transactional_id):  # so that of two calls at once, the later one is the one that is known
            try:
                made.init()
            except BaseException:
                self._owners.release(byte)
                raise
            with self._guard:
                fenced = self._incarnations.get(transactional_id)
                self._incarnations[transactional_id] = made
                self._at_rest.pop(transactional_id, None)
        if fenced is not None:
            self._owners.release(fenced.owner_byte)
        return made

    def begin(self, incarnation: Incarnation, level: Durability, compression: str | None) -> Transaction:
        """Begins a transaction that writes its records at `flush` and at the commit only.

        Raises:
            InvalidTransactionStateError: the id has an open transaction in this store.
        """
        with self._guard:
            _check_not_open(incarnation)
            return _new(incarnation, level, compression, limits.INT64_MAX)

    def end(self, incarnation: Incarnation) -> None:
        """Ends the use of an id by a producer. A transaction that is left open has no living owner then: the next check ends it.

        If `transaction` has begun one of the id meanwhile, the use ends with those of other ids at rest.
        """
        name = incarnation.transactional_id
        with self._guard:
            if self._incarnations.get(name) is not incarnation:
                return  # a newer use of the id has fenced it, and released its byte
            if _is_open(incarnation):
                self._at_rest[name] = None
                return
            del self._incarnations[name]
            self._owners.release(incarnation.owner_byte)

    # ---- uses of ids ---------------------------------------------------------------------------------------------------------

    def _of(self, transactional_id: str, timeout_ms: int) -> Incarnation:
        known = self._incarnations.get(transactional_id)
        if known is None:
            self._end_oldest()
            self._at_rest[transactional_id] = None
            return self._begun(transactional_id, timeout_ms, self._owners.take())
        _check_not_open(known)
        return known

    def _end_oldest(self) -> None:
        """Ends the oldest uses of ids at rest beyond a bound. Each holds a byte of the lock file. A later use is new."""
        for name in list(self._at_rest) if len(self._at_rest) >= limits.TRANSACTIONAL_IDS_IN_USE else ():
            if len(self._at_rest) < limits.TRANSACTIONAL_IDS_IN_USE:
                return
            if not _is_open(self._incarnations[name]):
                del self._at_rest[name]
                self._owners.release(self._incarnations.pop(name).owner_byte)

    def _anonymous(self, timeout_ms: int) -> Incarnation:
        """Returns the use of an id for transactions without one (transactions 2.6)."""
        for known in self._incarnations.values():
            if known.is_anonymous and not _is_open(known):
                return known
        byte, number = self._owners.take_anonymous()
        made = self._begun(f"{ANONYMOUS}{number}", timeout_ms, byte)
        made.is_anonymous = True
        return made

    def _begun(self, transactional_id: str, timeout_ms: int, owner_byte: int) -> Incarnation:
        made = Incarnation(transactional_id, timeout_ms, owner_byte, self._manager, self._offsets, self.coordinator)
        self._incarnations[transactional_id] = made
        return made

    # ---- what dead processes have left ---------------------------------------------------------------------------------------

    def settle(self) -> int:
        """Finishes what dead processes have left. Returns how many transactions that were."""
        done = self.coordinator.settle()
        for partition in list(self._unswept):
            try:
                self._sweep(self._manager.log(*partition))
            except UnknownTopicOrPartitionError:
                self._unswept.discard(partition)
        for incarnation in self._uses():
            if incarnation.is_dropped:
                incarnation.abandon("its object was dropped without commit or abort")
        return done

    def expire_if_due(self, now_ms: int) -> None:
        """Deletes the records of unused ids, at most once an hour; never at the first call, as for offsets.

        Args:
            now_ms: the wall clock, in milliseconds.
        """
        if not self._expiry.is_due(now_ms):
            return
        deleted = self.coordinator.topic.expire(now_ms, self.config.transactional_id_expiration_ms)
        if deleted:
            reason = f"unused for transactional_id_expiration_ms={self.config.transactional_id_expiration_ms}"
            trace.line(trace.TRANSACTIONAL_IDS_EXPIRED, count=len(deleted), transactional_ids=deleted, reason=reason)

    def close(self) -> None:
        """Aborts the transactions that are open in this store, once, and ends the threads."""
        try:
            for incarnation in self._uses():
                incarnation.close()
        finally:
            self.coordinator.crew.end()

    def _uses(self) -> list[Incarnation]:
        with self._guard:
            return list(self._incarnations.values())

    def check_deletable(self, topic: str, *, force: bool) -> None:
        """Finishes what is due, and raises if an open or prepared transaction needs a topic (transactions 13.3).

        Args:
            topic: the topic.
            force: true to abort these transactions. Internal topics have the states of all ids: there it changes nothing.

        Raises:
            InvalidTransactionStateError: it names the transactional id.
            CorruptionError: an internal topic cannot be deleted, because the state of an id cannot be read.
        """
        self.settle()
        if topic in INTERNAL_TOPICS:
            self.coordinator.topic.check_readable()
        for state in self.coordinator.undecided():
            if topic not in INTERNAL_TOPICS and is_timed_out(state, self._clock.now_ms()):  # a broker would have aborted it
                continue
            if topic not in INTERNAL_TOPICS and topic not in {partition.topic for partition in state.partitions}:
                continue
            if force and topic not in INTERNAL_TOPICS:
                self.coordinator.finish(state.transactional_id, abort=True)
            else:
                message = f"topic {topic!r} cannot be deleted: the transaction of {state.transactional_id!r} needs it"
                raise InvalidTransactionStateError(
                    f"{message}, and is in the state {state.state.kafka_name}; commit or abort it first"
                )

    def sweep(self, log: PartitionLog) -> None:
        """Finishes the open transactions of a log that was opened, as far as they are due.

        It raises nothing if that is impossible, as on a full disk: the log can be read. The next `settle` tries again.
        """
        self._unswept.add(log.partition)
        self._sweep(log)

    def _sweep(self, log: PartitionLog) -> None:
        try:
            self.coordinator.sweep(log)
        except (ClosedError, UnknownTopicOrPartitionError):
            raise
        except PylogError as error:
            trace.line(trace.TRANSACTIONS_LEFT, log.partition, reason=str(error))
        else:
            self._unswept.discard(log.partition)


def _new(incarnation: Incarnation, level: Durability, compression: str | None, buffer_bytes: int) -> Transaction:
    made = new_transaction(incarnation, level, compression, buffer_bytes)
    incarnation.current = ref(made)
    return made


def _initialise(incarnation: Incarnation) -> None:
    """Fences older instances of an id whose first transaction in this store has been created, unless an earlier call has."""
    try:
        if not incarnation.is_initialised:
            incarnation.init()
    except BaseException:
        incarnation.current = None  # its caller never gets it
        raise


def _is_open(incarnation: Incarnation) -> bool:
    """Returns whether a transaction of the id is in use in this store."""
    found = None if incarnation.current is None else incarnation.current()
    return found is not None and is_in_use(found)


def _check_not_open(incarnation: Incarnation) -> None:
    if _is_open(incarnation):
        message = f"the transactional id {incarnation.transactional_id!r} has an open transaction in this store"
        raise InvalidTransactionStateError(f"{message}; commit or abort it before another one begins")
