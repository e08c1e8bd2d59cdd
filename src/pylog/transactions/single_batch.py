"""Transactions of one plain batch: the batch decides them, so they need no marker and no prepared state (transactions 5.4).

The id's record Ongoing names the partition before the batch is written. A newer instance that finds it takes the partition's
lock and reads the log. If the batch is there, the transaction is committed. If not, an abort marker with the next epoch keeps it
out.
"""

from __future__ import annotations

from contextlib import suppress

from pylog import trace
from pylog.clock import Clock
from pylog.config import Durability
from pylog.errors import UnknownTopicOrPartitionError
from pylog.log.writing.refitting import FencingRequest
from pylog.log.writing.undecided import has_batch_now
from pylog.log_manager import LogManager
from pylog.transactions import states
from pylog.transactions.metadata import TransactionMetadata
from pylog.transactions.producer_ids import new_producer_id
from pylog.transactions.topic import TransactionsTopic


class SingleBatchTransactions:
    """Ends the transactions of one batch, those of this process and those that others have left.

    Args:
        manager, clock: the store's manager and clock.
        topic: the states of the transactional ids.
    """

    def __init__(self, manager: LogManager, topic: TransactionsTopic, clock: Clock) -> None:
        self._manager = manager
        self._topic = topic
        self._clock = clock

    def finish(self, begun: TransactionMetadata, reason: str) -> TransactionMetadata | None:
        """Finishes an open transaction: it is committed if the log has its batch, else an abort marker keeps the batch out.

        Args:
            begun: the open transaction.
            reason: why it is finished, for the log line of an abort.

        Returns:
            The state of the id as this call has left it.
        """
        name, (partition,) = begun.transactional_id, begun.partitions
        level = Durability.SYNC if begun.owner is None or begun.owner.is_synced else Durability.OS
        request = FencingRequest(self._clock.now_ms(), *begun.identity, self._topic.coordinator_epoch(name), level)
        with suppress(UnknownTopicOrPartitionError):  # the topic was deleted, and the batch with it
            self._manager.known_log(partition).commit(request)
        made = self.complete(begun, is_committed=request.has_batch)
        if made is not None and not request.has_batch:
            facts = {"transactional_id": name, "producer_id": made.producer_id, "epoch": made.producer_epoch}
            trace.line(trace.TRANSACTION_ABORTED, **facts, reason=reason)
        return made or self._topic.state_of(name)

    def complete(self, begun: TransactionMetadata, *, is_committed: bool) -> TransactionMetadata | None:
        """Notes that a transaction is complete. Returns None if another process has done so."""
        now_ms = self._clock.now_ms()

        def completed(current: TransactionMetadata | None) -> TransactionMetadata | None:
            return states.complete_single(current, begun, now_ms, new_producer_id, is_committed=is_committed)

        return self._topic.change(begun.transactional_id, completed, Durability.OS)

    def has_batch(self, begun: TransactionMetadata) -> bool:
        """Returns whether the log has the batch of an open transaction."""
        (partition,) = begun.partitions
        try:
            return has_batch_now(self._manager.log(*partition).writer(), *begun.identity)
        except UnknownTopicOrPartitionError:
            return False
