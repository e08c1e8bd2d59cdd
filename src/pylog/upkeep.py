"""`Upkeep`: deletes and compacts what the options of a directory's topics no longer keep."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from pylog import limits
from pylog.arguments import checked_int
from pylog.background import Background
from pylog.errors import ArchiveFencedError, InvalidArgumentError, ObjectStoreError, PylogError
from pylog.log.maintenance.cleaner import clean, clean_due
from pylog.log.maintenance.cleaning_round import Compaction, Task
from pylog.log.maintenance.throttler import Throttle
from pylog.log.maintenance.trimming import Retained
from pylog.log_manager import LogManager
from pylog.options import Committed, StoreOptions
from pylog.record.buffers import APPENDS
from pylog.record.types import TopicPartition
from pylog.topics.partitions import for_each_partition
from pylog.topics.topic import check_partition


class Tiering(Protocol):
    """What `tick` does in the archive of a store."""

    def tick(self, key: TopicPartition, now_ms: int) -> int:
        """Does what is due for a partition, and returns how many local segments it has deleted."""
        ...

    def leave(self, now_ms: int) -> None:
        """Deletes the archives of deleted topics, as far as that is due."""
        ...

    def note_failure(self, key: TopicPartition, error: PylogError) -> None:
        """Notes that the archive prevents the retention of a partition."""
        ...


class Upkeep:
    """Retention and compaction of partitions, each by its topic's options as they stand. `Store` documents the methods for users.

    Args:
        manager: the topics and logs.
        options: how the store is opened.
        committed: gives the offset that a retention group will read next; None if it has committed none.
        expire: deletes the committed offsets and the transactional ids that have expired at a time of the wall clock, if due.
        settle: finishes the transactions that dead processes have left.
        tiering: what is due in the store's archive.
    """

    def __init__(
        self,
        manager: LogManager,
        options: StoreOptions,
        committed: Committed,
        expire: Callable[[int], object],
        settle: Callable[[], object],
        tiering: Tiering,
    ) -> None:
        self._manager = manager
        self._committed = committed
        self._expire_unused = expire
        self._settle = settle
        self._tiering = tiering
        self._buffer_size = options.cleaner_dedupe_buffer_size
        self._ending = False
        rate = options.cleaner_io_max_bytes_per_second
        self._throttle = Throttle(manager.clock, rate, lambda: self._ending)  # one for all compactions
        self._ticking = Background(manager.failures)  # not the manager's thread: compaction takes long, and flushes must not wait

    def begin(self, interval_ms: int) -> None:
        """Has `tick` called that often in the background. Releases the directory's locks if that fails."""
        try:
            self._ticking.every("tick", interval_ms, self.tick)
        except BaseException:  # for example, if no thread can be started
            self._manager.release()
            raise

    def end(self) -> None:
        """Ends the work in the background. A compaction that runs is given up. May be called twice."""
        self._ending = True
        self._ticking.end()

    def tick(self, now_ms: int | None = None) -> int:
        """Does what is due, and returns how many segments were deleted."""
        self._manager.check_writable()
        APPENDS.clear()
        now = self._now_ms(now_ms)
        topics = self._manager.current_topics(checks_all=True).values()
        keys = [TopicPartition(topic.name, number) for topic in topics for number in topic.partition_ids]
        compacted = [
            TopicPartition(topic.name, number) for topic in topics if topic.config.is_compacted for number in topic.partition_ids
        ]
        tasks: list[Callable[[], int]] = [partial(self._deleted, key, now) for key in keys]
        tiered = [
            TopicPartition(topic.name, number) for topic in topics if topic.config.is_tiered for number in topic.partition_ids
        ]
        tasks += [partial(self._tiering.tick, key, now) for key in tiered]
        others = [
            partial(self._leave, now),
            partial(self._finish),
            partial(self._expire, now),
            partial(self._compact, compacted, now),
        ]
        return sum(for_each_partition([*tasks, *others]))

    def _now_ms(self, given: int | None) -> int:
        return self._manager.clock.now_ms() if given is None else checked_int("now_ms", given, 0, limits.INT64_MAX)

    def _deleted(self, key: TopicPartition, now_ms: int) -> int:
        try:
            return self._retain(key, now_ms, dry_run=False).segments
        except (ObjectStoreError, ArchiveFencedError) as error:
            self._tiering.note_failure(key, error)
            return 0

    def _finish(self) -> int:
        self._settle()
        return 0  # segments were deleted

    def _leave(self, now_ms: int) -> int:
        self._tiering.leave(now_ms)
        return 0  # segments were deleted

    def _expire(self, now_ms: int) -> int:
        self._expire_unused(now_ms)
        return 0  # segments were deleted

    # ---- retention -----------------------------------------------------------------------------------------------------------

    def retain(
        self, topic: str | None = None, partition: int | None = None, *, now_ms: int | None = None, dry_run: bool = False
    ) -> list[Retained]:
        """Deletes the segments that retention does not keep, or plans that, and returns them by partition."""
        manager = self._manager
        if not dry_run:
            manager.check_writable()
        if topic is None and partition is not None:
            raise InvalidArgumentError(f"partition={partition} requires a topic; give both")
        now = self._now_ms(now_ms)
        topics = manager.topics().values() if topic is None else [manager.topic(topic)]
        if topic is not None and partition is not None:
            check_partition(manager.path, manager.topic(topic), partition)
        numbers = None if partition is None else [partition]
        keys = [TopicPartition(each.name, number) for each in topics for number in numbers or each.partition_ids]
        done = for_each_partition(partial(self._retain, key, now, dry_run=dry_run) for key in keys)
        return [each for each in done if each.segments]

    def _retain(self, key: TopicPartition, now_ms: int, *, dry_run: bool) -> Retained:
        """Applies retention to one partition, or plans it. The group is asked first: no thread holds two partitions' locks."""
        log = self._manager.log(*key)
        while True:
            group = log.config.retention_group
            committed = None if group is None else self._committed(group, key)
            done = log.retain(now_ms, group, committed, dry_run=dry_run)
            if done is not None:
                return done

    # ---- compaction ----------------------------------------------------------------------------------------------------------

    def _compact(self, keys: list[TopicPartition], now_ms: int) -> int:
        """Compacts what is dirty enough, also when some of the partitions cannot be opened."""
        tasks: list[Task] = []

        def add(key: TopicPartition) -> None:
            tasks.append(self._cleaning(key, now_ms))

        try:
            for_each_partition(partial(add, key) for key in keys)
        finally:
            clean_due(tasks, self._manager.uncleanable)
        return 0

    def compact(self, topic: str, partition: int | None = None) -> list[Compaction]:
        """Compacts a topic now, however clean it is."""
        self._manager.check_writable()
        found = self._manager.topic(topic)
        if not found.config.is_compacted:
            policy = found.config.cleanup_policy
            raise InvalidArgumentError(f"topic {topic!r} has cleanup_policy={policy!r}; only topics with 'compact' are compacted")
        keys = [TopicPartition(topic, number) for number in (found.partition_ids if partition is None else [partition])]
        return for_each_partition(partial(clean, self._cleaning(key, self._now_ms(None))) for key in keys)

    def _cleaning(self, key: TopicPartition, now_ms: int) -> Task:
        return self._manager.log(*key).cleaning(self._throttle, self._buffer_size, now_ms)
