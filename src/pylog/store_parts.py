"""`StoreParts`: the objects under a `Store`, created in their order when it opens, and closed in the reverse order."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, cast

from pylog.clock import Clock
from pylog.config import TopicConfig
from pylog.errors import InvalidArgumentError, PylogError
from pylog.fs import FileSystem, join
from pylog.groups.living_members import LivingMembers
from pylog.log.checking.report import Report
from pylog.log.checking.verification import Progress
from pylog.log.log import Log, log_over
from pylog.log.recovery.archive_tier import ArchiveNotes, Tier
from pylog.log.recovery.tier import is_brokers
from pylog.log_manager import LogManager
from pylog.monitoring.measured import Measures
from pylog.offsets.offset_manager import OffsetManager
from pylog.offsets.store import offset_store
from pylog.open_clients import OpenClients
from pylog.options import StoreOptions
from pylog.record.types import TopicPartition
from pylog.topics.signs import ARCHIVE_SETTINGS
from pylog.upkeep import Upkeep

if TYPE_CHECKING:  # opening a store loads none of them
    from pylog.archive.tiers import Tiers
    from pylog.groups.admin import Group
    from pylog.transactions.admin import TransactionAdmin


class StoreParts:
    """Opens a directory, and creates what its `Store` delegates to.

    Args:
        path, options, fs, clock: the store's path, options, file system and clock.

    Attributes:
        manager: the topics and logs.
        offsets: the committed offsets of groups.
        offset_store: the public side of `offsets`.
        clients: the producers, consumers and transactions.
        measures: the metrics.
        upkeep: retention and compaction.
        tiers: the archive.
    """

    def __init__(self, path: str, options: StoreOptions, fs: FileSystem, clock: Clock) -> None:
        self._clock = clock
        self._options = options
        self._guard = threading.Lock()
        self._transactions: TransactionAdmin | None = None
        self.manager = manager = LogManager(path, options, fs, clock)
        members = LivingMembers(manager.fs, manager.current_topics, writable=manager.writable)
        self.offsets = OffsetManager(manager, options.offsets, manager.fs, clock, members)
        self.tiers = _LazyTiers(manager, options)
        manager.root.forget_deleted(self.offsets.forget_topic)
        self.clients = OpenClients(manager, self.offsets, clock, options)
        self.measures = Measures(manager, self.offsets, self.transactions)
        self.offset_store = offset_store(self.offsets)
        if manager.writable:
            self.clients.begin()
        committed = options.committed or self.offsets.position
        self.upkeep = Upkeep(manager, options, committed, self.clients.expire, self.clients.settle, self.tiers)
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


class _LazyTiers:
    """The archive of a store, loaded when it is needed: most stores have none.

    Args:
        manager, options: the store's manager and options.
    """

    def __init__(self, manager: LogManager, options: StoreOptions) -> None:
        self._manager = manager
        self._options = options
        self._guard = threading.Lock()
        self._tiers: Tiers | None = None
        if options.archive is not None:
            try:
                self.made()
            except BaseException:
                manager.release()
                raise
        manager.tiers = self
        if manager.writable:
            manager.root.changes.tiers = self

    def made(self) -> Tiers:
        """Returns the archive, even if the store has none yet."""
        from pylog.archive.tiers import Tiers

        with self._guard:
            if self._tiers is None:
                self._tiers = Tiers(self._manager, self._options.archive)
                self._manager.kept.add(self._tiers)
            return self._tiers

    def known(self) -> Tiers | None:
        """Returns the archive; None if the store has none. Cost: one system call, until it has one."""
        if self._tiers is None and not self._manager.fs.exists(join(self._manager.path, ARCHIVE_SETTINGS)):
            return None
        return self.made()

    def tick(self, key: TopicPartition, now_ms: int) -> int:
        """Does what is due in the archive of a partition. Returns how many local segments were deleted."""
        from pylog.archive.tiering import TieredPartition

        known = self.known()
        tier = None if known is None else known.tier(key)
        if tier is None:
            return 0
        log = self._manager.log(*key)
        return TieredPartition(self._manager, log, tier, log.config).tick(now_ms)

    def leave(self, now_ms: int) -> None:
        """Deletes the archives of deleted topics, as far as that is due."""
        known = self.known()
        if known is not None:
            known.leave(now_ms)

    def note_failure(self, key: TopicPartition, error: PylogError) -> None:
        """Notes that the archive prevents the retention of a partition."""
        tier = self.made().tier(key)
        if tier is not None:
            tier.note_failure(error)

    def requests(self) -> Mapping[str, int]:
        """Returns how many requests were sent, by kind, and the bytes."""
        return {} if self._tiers is None else self._tiers.requests()

    def notes(self) -> ArchiveNotes | None:
        """Returns what is noted of deletions; None in a store without an archive."""
        known = self.known()
        return None if known is None else known.notes()

    def deleting(self, topic: str, topic_id: str | None, partitions: Sequence[int], config: TopicConfig) -> None:
        """Notes that the archive of a topic must be deleted."""
        known = self.known()
        if known is not None:
            known.deleting(topic, topic_id, partitions, config)

    def keeping(self, topic: str) -> AbstractContextManager[None]:
        """Has the archive keep what it has of a topic, which is deleted before the context ends. Raises IllegalStateError."""
        return self.made().keeping(topic)

    def not_keeping(self, topic: str) -> None:
        """Has the archive not keep a topic, if a deletion that keeps it has failed."""
        known = self.known()
        if known is not None:
            known.not_keeping(topic)

    def check(self, config: TopicConfig) -> None:
        """Refuses a tiered topic in a store without an archive."""
        if config.remote_storage_enable and self.known() is None:
            message = "remote_storage_enable=True requires an archive: open the store with archive='s3://bucket/prefix' once"
            raise InvalidArgumentError(message)
        if config.remote_storage_enable and is_brokers(self._manager.fs, self._manager.path):
            message = f"{self._manager.path} belongs to a Kafka broker, which would not find the records in pylog's archive"
            raise InvalidArgumentError(f"{message}; leave out remote_storage_enable", path=self._manager.path)

    def tier(self, key: TopicPartition) -> Tier | None:
        """Returns the archive of a partition; None if the store has none. Cost: as `known`."""
        known = self.known()
        return None if known is None else known.tier(key)
