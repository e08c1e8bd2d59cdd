"""`StoreParts`: the objects under a `Store`, created in their order when it opens, and closed in the reverse order."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

from pylog.clock import Clock
from pylog.fs import FileSystem
from pylog.groups.living_members import LivingMembers
from pylog.log.checking.report import Report
from pylog.log.checking.verification import Progress
from pylog.log.log import Log, log_over
from pylog.log_manager import LogManager
from pylog.monitoring.measured import Measures
from pylog.offsets.offset_manager import OffsetManager
from pylog.offsets.store import offset_store
from pylog.open_clients import OpenClients
from pylog.options import StoreOptions
from pylog.upkeep import Upkeep

if TYPE_CHECKING:  # opening a store loads neither
    from pylog.groups.admin import Group
    from pylog.transactions.admin import TransactionAdmin


class StoreParts:
    """Opens a directory, and creates what its `Store` delegates to.

    Args:
        path, options, fs, clock: of the store.

    Attributes:
        manager: the topics and logs.
        offsets: the committed offsets of groups.
        offset_store: the public side of `offsets`.
        clients: the producers, consumers and transactions.
        measures: the metrics.
        upkeep: retention and compaction.
    """

    def __init__(self, path: str, options: StoreOptions, fs: FileSystem, clock: Clock) -> None:
        self._clock = clock
        self._options = options
        self._guard = threading.Lock()
        self._transactions: TransactionAdmin | None = None
        self.manager = manager = LogManager(path, options, fs, clock)
        members = LivingMembers(manager.fs, manager.current_topics, writable=manager.writable)
        self.offsets = OffsetManager(manager, options.offsets, manager.fs, clock, members)
        manager.root.forget_deleted(self.offsets.forget_topic)
        self.clients = OpenClients(manager, self.offsets, clock, options)
        self.measures = Measures(manager, self.offsets, self.transactions)
        self.offset_store = offset_store(self.offsets)
        if manager.writable:
            self.clients.begin()
        committed = options.committed or self.offsets.position
        self.upkeep = Upkeep(manager, options, committed, self.clients.expire, self.clients.settle)
        if manager.writable and options.tick_interval_ms is not None:
            self.upkeep.begin(options.tick_interval_ms)

    def log(self, topic: str, partition: int) -> Log:
        """See `Store.log`."""
        opened = self.manager.log(topic, partition)
        if not self.manager.writable:
            return log_over(opened)
        known = opened.public
        if known is None:
            with self._guard:
                known = opened.public = opened.public or log_over(opened)
        return cast("Log", known)

    def group(self, group_id: str) -> Group:
        """See `Store.group`."""
        from pylog.groups.admin import new_group

        return new_group(group_id, self.manager, self.offsets, self._clock)

    def transactions(self) -> TransactionAdmin:
        """See `Store.transactions`."""
        from pylog.transactions import admin

        with self._guard:
            if self._transactions is None:
                clients = self.clients
                self._transactions = admin.transaction_admin(
                    self.manager, self._options.transactions, lambda: clients.transactions
                )
            return self._transactions

    def verify(self, rate_limit: float | None, progress: Progress | None, *, records: bool) -> Report:
        """See `Store.verify`."""
        report = self.manager.verify(rate_limit, progress, records=records)
        if not self.clients.has_transactions():
            return report
        from pylog.transactions import checking

        with self.manager.gate:
            return report.with_findings(checking.transaction_findings(self.transactions(), self.manager))

    def close(self) -> None:
        """See `Store.close`."""
        with ExitStack() as last:
            last.callback(self.clients.close)  # again: those that another thread created meanwhile
            last.callback(self.manager.close)
            last.callback(self.upkeep.end)  # before the logs
            last.callback(self.measures.close)  # before both
            self.clients.close()
