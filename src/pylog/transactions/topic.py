"""The topic `__transaction_state`: the last record of each transactional id, and the way to append the next one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from pylog.clock import Clock
from pylog.config import Durability, TransactionsConfig
from pylog.errors import CorruptionError
from pylog.internal_topic import InternalTopic
from pylog.log.partition_log import PartitionLog
from pylog.log_manager import LogManager
from pylog.replayed_partition import ReplayedPartition
from pylog.transactions.image import TransactionsImage
from pylog.transactions.metadata import TRANSACTION_STATE_TOPIC, TransactionMetadata
from pylog.transactions.records import format_key, format_value, partition_for

LOGGER: Final = logging.getLogger("pylog.transactions")
Transition = Callable[[TransactionMetadata | None], TransactionMetadata | None]


class TransactionsPartition(ReplayedPartition[TransactionsImage]):
    """The transactional ids in one partition of `__transaction_state`."""

    def __init__(self, open_log: Callable[[], PartitionLog], directory: str, number: int) -> None:
        super().__init__(open_log, directory, number, TransactionsImage)

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
        with self.exclusively() as image:
            before = image.state_of(transactional_id)
            after = transition(before)
            if after is not None and after is not before:
                self.append([(format_key(transactional_id), format_value(after))], now_ms, level)
            return after

    def undecided(self) -> list[TransactionMetadata]:
        """Returns the states of the ids whose transactions are open or prepared."""
        with self.image() as image:
            return [state for state in map(image.state_of, image.undecided()) if state is not None]

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
        """Returns the leader epoch of new records, which is the coordinator's epoch in markers (transactions 3.5)."""
        with self._log.writer().current() as writer:
            return writer.leader_epoch

    def _report(self, offset: int, why: str) -> None:
        LOGGER.warning("%s: the record at offset %d is skipped: %s", self.directory, offset, why)


class TransactionsTopic(InternalTopic[TransactionsPartition]):
    """Kafka's TransactionStateManager: the states of all transactional ids.

    Args:
        manager: of the store.
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
