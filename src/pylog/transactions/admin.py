"""`TransactionAdmin`: lists, describes and ends transactions, for administrators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from pylog.arguments import did_you_mean, items_of
from pylog.config import TransactionsConfig
from pylog.errors import (
    CorruptionError,
    InvalidArgumentError,
    InvalidTransactionStateError,
    PylogError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
)
from pylog.factory_made import FactoryMade
from pylog.fs import join
from pylog.log.producer_state import Producer
from pylog.log.reading.lookup import name
from pylog.log_manager import LogManager
from pylog.record.types import OpenTransaction, TopicPartition
from pylog.topics.topic import check_partition
from pylog.transactions.described import STATES, OpenTransactionDescription, Owner, TransactionDescription, described
from pylog.transactions.manager import TransactionManager
from pylog.transactions.markers import OpenTransactionKind, judge
from pylog.transactions.metadata import TRANSACTION_STATE_TOPIC, ProducerIdAndEpoch, TransactionMetadata
from pylog.transactions.owners import lives_elsewhere
from pylog.transactions.records import checked_id
from pylog.transactions.topic import TransactionsPartition, TransactionsTopic

Descriptions = list[TransactionDescription]
OpenTransactions = list[OpenTransactionDescription]
TransactionFaults = dict[int | str, PylogError]
PartitionList = list[TopicPartition]
SeenProducers = list[tuple[TopicPartition, Producer]]
_WITHOUT: Final = (TRANSACTION_STATE_TOPIC, "__cluster_metadata")  # no transaction writes to them
_HINT: Final = "Store.transactions.list lists the ids"


class TransactionAdmin(FactoryMade, factory="Store.transactions"):
    """The transactions of a store, for administrators. Every method may be called from any thread and process.

    `list`, `describe`, `find_open` and `find_hanging` only read, so they work in a store that is open for reading, and while a
    broker is running.

    Once the store is closed, each call raises `ClosedError`. A call raises `StoreLockedError` if another process keeps a
    partition locked for longer than `lock_timeout_ms`; in a store that is open for writing, the first read takes its lock, too.
    In a store that is opened by the URL of an archive, reading raises `ObjectStoreError` if a request fails.

    >>> import pylog, tempfile
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("orders")
    ...     with store.transaction("billing") as txn:
    ...         txn.append("orders", b"paid")
    ...     [(each.transactional_id, each.state) for each in store.transactions.list()]
    [('billing', 'CompleteCommit')]
    """

    def _begin(self, manager: LogManager, config: TransactionsConfig, writing: Callable[[], TransactionManager]) -> None:
        self._manager = manager
        self._config = config
        self._writing = writing
        self._own_topic: TransactionsTopic | None = None

    def __repr__(self) -> str:
        return f"TransactionAdmin({self._manager.path!r})"

    # ---- transactional ids ---------------------------------------------------------------------------------------------------

    def list(self, states: Iterable[str] = ()) -> Descriptions:
        """Returns the transactional ids with their states, sorted by id, including those of Kafka's clients.

        Args:
            states: Kafka's names of states, such as "Ongoing"; by default, all states.

        Raises:
            InvalidArgumentError: a state does not exist.
            CorruptionError: a state cannot be read. `known` returns the others.

        Cost: one refresh of each partition of `__transaction_state`, and 30 µs for each id. The first call reads them.
        """
        found, faults = self.known(states)
        for error in faults.values():
            raise error
        return found

    def known(self, states: Iterable[str] = ()) -> tuple[Descriptions, TransactionFaults]:
        """Returns what `list` returns, even if some states cannot be read.

        Args:
            states: as for `list`.

        Returns:
            The ids, and the errors: by id, or by number of a partition of `__transaction_state` whose ids are all unknown.

        Raises:
            InvalidArgumentError: a state does not exist.

        Cost: as `list`.
        """
        wanted = _checked_states(states)
        with self._manager.gate:
            now_ms = self._manager.clock.now_ms()
            found, failed = self._topic.each_partition(_states_of)
            faults: TransactionFaults = dict(failed.items())
            seen = list[TransactionDescription]()
            for number, (known, unreadable) in found.items():
                path = join(self._manager.path, f"{TRANSACTION_STATE_TOPIC}-{number}")
                faults |= {each: CorruptionError(f"{path}: {why}", path=path) for each, why in unreadable.items()}
                seen += [described(each, self._owner(each), now_ms) for each in known]
        chosen = [each for each in seen if not wanted or each.state in wanted]
        return sorted(chosen, key=lambda each: each.transactional_id), faults

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Returns a transactional id with its open or last transaction.

        Args:
            transactional_id: the id.

        Raises:
            TransactionalIdNotFoundError: there is no such id; the message names similar ones.
            InvalidArgumentError: the id is empty, too long, or no text.
            CorruptionError: its state cannot be read.

        Cost: one refresh of a partition. The first call reads it.
        """
        with self._manager.gate:
            state = self._state_of(transactional_id)
            return described(state, self._owner(state), self._manager.clock.now_ms())

    def _state_of(self, transactional_id: str) -> TransactionMetadata:
        state = self._topic.state_of(checked_id(transactional_id))
        if state is None:
            hint = did_you_mean(transactional_id, self._topic.ids())
            message = f"there is no transactional id {transactional_id!r} in {self._manager.path}{hint or '; ' + _HINT}"
            raise TransactionalIdNotFoundError(message, path=self._manager.path)
        return state

    def abort(self, transactional_id: str, *, fence: bool = False) -> TransactionDescription:
        """Aborts the open transaction of an id, even if its owner lives, and completes a prepared one.

        The id takes its next epoch, and each partition gets a marker. The next call of the transaction that was aborted raises
        `TransactionAbortedError`; its program can go on with another one. Without an open transaction nothing is written.

        Args:
            transactional_id: the id.
            fence: true to fence the running program, too, as Kafka's `fenceProducers`: its next transaction raises
                `ProducerFencedError`, and only a new instance can use the id.

        Returns:
            The id as it is now. Its state is "CompleteCommit" if the transaction was decided already.

        Raises:
            TransactionalIdNotFoundError: there is no such id.
            ReadOnlyError: the store is open for reading.
            CorruptionError, StorageFailedError: a marker could not be written. The transaction is decided; `settle` tries again.

        Cost: two appends to `__transaction_state`, and a marker in each partition of the transaction.
        """
        with self._manager.gate:
            coordinator = self._writing().coordinator
            state = self._state_of(transactional_id)
            if fence:
                coordinator.init(transactional_id, state.timeout_ms)
            else:
                coordinator.finish(transactional_id, abort=True)
            return self.describe(transactional_id)

    def settle(self) -> int:
        """Finishes the transactions that dead processes of pylog have left, as `Store.tick` does, in all partitions.

        Returns:
            How many transactions it has finished. One that cannot be finished now is logged, and left to the next call.

        Raises:
            ReadOnlyError: the store is open for reading.
            CorruptionError, StorageFailedError: a partition cannot be opened.

        Cost: opens each partition.
        """
        with self._manager.gate:
            manager = self._writing()
            done = manager.settle()
            for key in self._partitions(None, None):
                log = self._manager.log(*key)
                if log.snapshot(committed=True).first_unstable_offset is not None:
                    done += manager.coordinator.sweep(log)
            return done

    # ---- open transactions of partitions -------------------------------------------------------------------------------------

    def find_open(self, topic: str | None = None, partition: int | None = None) -> OpenTransactions:
        """Returns the open transactions of partitions. The first one of a partition holds its last stable offset.

        Args:
            topic: the topic; by default, all topics, with `__consumer_offsets`.
            partition: one partition of that topic; by default, all.

        Returns:
            The transactions by partition, and in each by their first offsets.

        Raises:
            UnknownTopicOrPartitionError: the topic or partition does not exist.
            InvalidArgumentError: a partition without a topic.
            CorruptionError: a partition or a state cannot be read.

        Cost: one refresh of each partition. A store that is open for reading opens them.
        """
        with self._manager.gate:
            seen = self._seen(self._partitions(topic, partition))
            return self._judged(seen)

    def find_hanging(self, topic: str | None = None, partition: int | None = None, *, idle_ms: int = 0) -> OpenTransactions:
        """Returns the hanging transactions: open in a partition, while no transactional id has them open there.

        Readers with `read_committed` stop there, and no coordinator ends them. A store that is open for writing aborts those of
        pylog's producers by itself. `end_hanging` aborts the others, which a broker's clients have left.

        Args:
            topic: as for `find_open`.
            partition: as for `find_open`.
            idle_ms: the shortest time without an append of the producer, in milliseconds. `kafka-transactions.sh` waits for 15
                minutes by default; here, the states of the ids are enough.

        Raises:
            PylogError: as `find_open`.

        Cost: as `find_open`, twice for partitions with hanging transactions.
        """
        with self._manager.gate:
            now_ms = self._manager.clock.now_ms()
            found = [each for each in self.find_open(topic, partition) if each.is_hanging]
            still = {  # the others have ended since their ids were read
                (key, entry.producer_id, entry.transaction_first_offset)
                for key, entry in self._seen(dict.fromkeys(each.topic_partition for each in found))
            }
            kept = [each for each in found if (each.topic_partition, each.producer_id, each.start_offset) in still]
            return [each for each in kept if now_ms - each.last_timestamp_ms >= idle_ms]

    def end_hanging(self, hanging: Iterable[OpenTransactionDescription] | None = None) -> OpenTransactions:
        """Aborts hanging transactions: each gets an ABORT marker, with the epoch after that of its records.

        Args:
            hanging: results of `find_hanging`; by default, all that it returns now.

        Returns:
            Those that this call has ended. Another process may have ended some of them.

        Raises:
            InvalidTransactionStateError: one of them does not hang: a transactional id has it open. Use `abort`.
            ReadOnlyError: the store is open for reading.
            InvalidArgumentError: `hanging` has something else than results of `find_hanging`.
            CorruptionError, StorageFailedError: a partition cannot be written to. Those before it are ended.

        Cost: one synced append for each.
        """
        with self._manager.gate:
            coordinator = self._writing().coordinator
            given = self.find_hanging() if hanging is None else items_of("hanging", hanging, "hanging transactions")
            for each in given:
                self._check_hanging(each)
            return [
                each for each in given if coordinator.abort_open(self._manager.log(*each.topic_partition), _transaction_of(each))
            ]

    def _check_hanging(self, given: OpenTransactionDescription) -> None:
        """Raises if a transaction is open in an id: its own coordinator ends it, or `abort`."""
        if not isinstance(given, OpenTransactionDescription):
            raise InvalidArgumentError(f"{given!r} is not a hanging transaction; give those that find_hanging has returned")
        state = self._topic.state_of_producer(given.producer_id)
        if state is not None and _is_known(state, given.topic_partition, _transaction_of(given)):
            raise InvalidTransactionStateError(
                f"the transaction at offset {given.start_offset} of {name(given.topic_partition)} does not hang: "
                f"the transactional id {state.transactional_id!r} has it open; abort that id"
            )

    # ---- how they are read ---------------------------------------------------------------------------------------------------

    @property
    def _topic(self) -> TransactionsTopic:
        manager = self._manager
        if manager.writable:
            return self._writing().coordinator.topic
        if self._own_topic is None:
            self._own_topic = TransactionsTopic(manager, self._config, manager.clock)
        return self._own_topic

    def _owner(self, state: TransactionMetadata | None) -> Owner | None:
        """Returns whether the owner of an open or prepared transaction lives."""
        if state is None or state.state.is_at_rest:
            return None
        if state.owner is None:
            return "broker"
        if self._manager.writable:
            return "alive" if self._writing().coordinator.owner_lives(state.owner) else "dead"
        lives = lives_elsewhere(self._manager.fs, self._manager.path, state.owner.byte)
        return "unknown" if lives is None else "alive" if lives else "dead"

    def _partitions(self, topic: str | None, partition: int | None) -> PartitionList:
        manager = self._manager
        if topic is None:
            if partition is not None:
                raise InvalidArgumentError(f"partition={partition} requires a topic; give both")
            found = [each for each in manager.topics().values() if each.name not in _WITHOUT]
            return [TopicPartition(each.name, number) for each in found for number in each.partition_ids]
        known = manager.topic(topic)
        if partition is not None:
            check_partition(manager.path, known, partition)
        return [TopicPartition(topic, number) for number in (known.partition_ids if partition is None else [partition])]

    def _seen(self, partitions: Iterable[TopicPartition]) -> SeenProducers:
        """Returns the producers with an open transaction, by partition and first offset."""
        found: SeenProducers = []
        for key in partitions:
            with suppress(UnknownTopicOrPartitionError):  # not created yet, or just deleted
                found += [(key, entry) for entry in self._manager.log(*key).open_producers()]
        return found

    def _judged(self, seen: SeenProducers) -> OpenTransactions:
        """Compares open transactions with the states of their ids, which are read after the partitions (transactions 6.3)."""
        now_ms, states = self._manager.clock.now_ms(), dict[int, TransactionMetadata | None]()
        for _, entry in seen:
            if entry.producer_id not in states:
                states[entry.producer_id] = self._topic.state_of_producer(entry.producer_id)
        return [self._described(key, entry, states[entry.producer_id], now_ms) for key, entry in seen]

    def _described(
        self, key: TopicPartition, entry: Producer, state: TransactionMetadata | None, now_ms: int
    ) -> OpenTransactionDescription:
        opened = OpenTransaction(entry.producer_id, entry.epoch, entry.transaction_first_offset)
        known = state is not None and _is_known(state, key, opened)
        since = state.start_timestamp_ms if known and state is not None and state.start_timestamp_ms >= 0 else entry.timestamp
        return OpenTransactionDescription(
            key,
            entry.producer_id,
            entry.epoch,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
            entry.timestamp,
            max(0, now_ms - since),
            None if state is None else state.transactional_id,
            None if state is None else state.state.kafka_name,
            self._owner(state) if known else None,
            not known,
        )


def _checked_states(states: Iterable[str]) -> tuple[str, ...]:
    wanted: tuple[str, ...] = items_of("states", states, "names")
    for each in wanted:
        if each not in STATES:
            raise InvalidArgumentError(f"{each!r} is not a state; the states are {', '.join(STATES)}")
    return wanted


def _states_of(partition: TransactionsPartition) -> tuple[list[TransactionMetadata], dict[str, str]]:
    """Returns the states of a partition's ids, and why the others cannot be read."""
    with partition.image() as image:
        faults = image.faults()
        states = [image.state_of(name) for name in image.ids() if name not in faults]
        return [state for state in states if state is not None], faults


def _is_known(state: TransactionMetadata, partition: TopicPartition, opened: OpenTransaction) -> bool:
    identity = ProducerIdAndEpoch(opened.producer_id, opened.epoch)
    return judge(state, identity, partition) is OpenTransactionKind.KNOWN


def _transaction_of(given: OpenTransactionDescription) -> OpenTransaction:
    return OpenTransaction(given.producer_id, given.producer_epoch, given.start_offset)


def missing_partitions(manager: LogManager, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Returns those of some partitions that do not exist."""
    topics = manager.topics()
    return [key for key in partitions if key.topic not in topics or key.partition not in topics[key.topic].partition_ids]


def transaction_admin(
    manager: LogManager, config: TransactionsConfig, writing: Callable[[], TransactionManager]
) -> TransactionAdmin:
    """Creates the administration of a store's transactions, for `Store.transactions`.

    Args:
        manager, config: the store's manager and config.
        writing: gives the store's `TransactionManager`; raises ReadOnlyError if the store is open for reading.
    """
    made = TransactionAdmin.__new__(TransactionAdmin)
    made._begin(manager, config, writing)
    return made
