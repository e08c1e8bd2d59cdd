"""The producers, consumers and transactions of a store: made for it, and closed with it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

from pylog.clock import Clock
from pylog.directory.topic_names import TRANSACTION_STATE_TOPIC
from pylog.fs import LiveSet, join
from pylog.log.partition_log import PartitionLog
from pylog.log_manager import LogManager
from pylog.offsets.offset_manager import OffsetManager
from pylog.options import StoreOptions
from pylog.topics.signs import META_PROPERTIES

if TYPE_CHECKING:  # opening a store loads no client: they are a tenth of its start-up time
    from pylog.consumer.consumer import Consumer
    from pylog.consumer.core import ConsumerCore
    from pylog.producer.core import ProducerCore
    from pylog.producer.producer import Producer
    from pylog.transactions.manager import TransactionManager
    from pylog.transactions.snapshots import SnapshotTaker


class OpenClients:
    """Makes the clients of a store, and closes those that are still open.

    Args:
        manager, offsets, clock, options: the store's manager, offsets, clock and options.

    Attributes:
        departing: the cores of consumers that were dropped without `close`, and have not left their groups yet.
    """

    def __init__(self, manager: LogManager, offsets: OffsetManager, clock: Clock, options: StoreOptions) -> None:
        self._manager = manager
        self._offsets = offsets
        self._clock = clock
        self._options = options
        self._transactions: TransactionManager | None = None
        self._snapshots: SnapshotTaker | None = None
        self._guard = threading.Lock()
        self._settling = threading.Lock()
        self._producers: list[ProducerCore] = []
        self._consumers: LiveSet[Consumer[Any, Any]] = LiveSet()
        self.departing: list[ConsumerCore] = []

    def producer(self, config: Mapping[str, Any]) -> Producer[Any, Any]:
        """See `Store.producer`."""
        from pylog.producer.config import producer_config
        from pylog.producer.core import ProducerCore
        from pylog.producer.producer import new_producer

        self._manager.check_writable()
        checked = producer_config(config)
        transactions = None if checked.transactional_id is None else self.transactions
        core = ProducerCore(self._manager, self._clock, checked, self._forget, transactions)
        producer = new_producer(self._manager, self._clock, checked, core)
        core.begin()  # from here on, an interrupt that drops the producer ends the thread
        with self._guard:
            self._producers.append(core)
        return producer

    def _forget(self, core: ProducerCore) -> None:
        with self._guard:
            if core in self._producers:
                self._producers.remove(core)

    def consumer(self, topics: Iterable[str], options: Mapping[str, Any]) -> Consumer[Any, Any]:
        """See `Store.consumer`."""
        from pylog.consumer.consumer import new_consumer
        from pylog.consumer.options import ConsumerOptions

        self._manager.gate.check()
        checked = ConsumerOptions.of(options)
        consumer = new_consumer(self._manager, self._offsets, topics, checked, self._clock, self.departing)
        self._consumers.add(consumer)
        return consumer

    @property
    def transactions(self) -> TransactionManager:
        """The transactions of the store."""
        from pylog.transactions.manager import TransactionManager

        self._manager.check_writable()
        with self._guard:
            if self._transactions is None:
                options = self._options
                self._transactions = TransactionManager(
                    self._manager, self._offsets, self._clock, options.transactions, options.durability
                )
            return self._transactions

    @property
    def snapshots(self) -> SnapshotTaker:
        """Takes snapshots of the store."""
        from pylog.transactions.snapshots import SnapshotTaker

        self._manager.gate.check()
        with self._guard:
            if self._snapshots is None:
                self._snapshots = SnapshotTaker(self._manager, self._options.transactions, self._options.offsets)
            return self._snapshots

    def begin(self) -> None:
        """Finishes the transactions that dead processes have left, when a store is opened for writing.

        In a broker's directory that waits for the first tick: opening it writes nothing.
        """
        manager = self._manager
        manager.found_unstable = self._found_unstable
        manager.finish_transactions = self._settle_for_reader
        if not manager.fs.exists(join(manager.path, META_PROPERTIES)):
            self.settle()

    def settle(self) -> None:
        """Finishes the transactions that dead processes have left."""
        with self._settling:
            if self.has_transactions():
                self.transactions.settle()

    def _settle_for_reader(self) -> None:
        """Finishes the transactions that dead processes have left, unless another thread does that now."""
        if not self._settling.acquire(blocking=False):
            return
        try:
            if self.has_transactions():
                self.transactions.settle()
        finally:
            self._settling.release()

    def expire(self, now_ms: int) -> None:
        """Deletes what groups and transactional ids have not used for long, if that is due. In a broker's directory ids stay.

        Args:
            now_ms: the wall clock, in milliseconds.
        """
        try:
            self._offsets.expire_if_due(now_ms)
        finally:
            manager = self._manager
            if self.has_transactions() and not manager.fs.exists(join(manager.path, META_PROPERTIES)):
                self.transactions.expire_if_due(now_ms)

    def delete_topic(self, name: str, *, force: bool, keep_archive: bool) -> None:
        """Deletes a topic. See `Store.delete_topic`."""
        manager = self._manager
        manager.check_writable()
        if force:  # before a transaction is aborted for it
            manager.root.changes.check_deletable(manager.topic(name))
        if self.has_transactions():
            self.transactions.check_deletable(name, force=force)
        if not keep_archive:
            manager.tiers.not_keeping(name)
        with manager.tiers.keeping(name) if keep_archive else nullcontext():
            manager.delete_topic(name, lambda: self._offsets.forgetting(name))

    def has_transactions(self) -> bool:
        """Returns whether the directory has the topic of transactional ids. Cost: one check of a path."""
        manager = self._manager
        return self._transactions is not None or manager.fs.exists(join(manager.path, f"{TRANSACTION_STATE_TOPIC}-0"))

    def _found_unstable(self, log: PartitionLog) -> None:
        self.transactions.sweep(log)

    def close(self) -> None:
        """Closes the producers, so that acknowledged records are in the logs, and then the consumers, which commit nothing."""
        consumers = self._consumers.members()
        with ExitStack() as last:
            if self._transactions is not None:  # after the producers, which abort their own
                last.callback(self._transactions.close)
            if consumers:
                from pylog.consumer.consumer import close_with_store

                for consumer in consumers:
                    last.callback(close_with_store, consumer)
            for core in list(self.departing):
                last.callback(core.abandon)
            for producer in list(self._producers):  # first, so that acknowledged records are in the logs
                last.callback(producer.close)
