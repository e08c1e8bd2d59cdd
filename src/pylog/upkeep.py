"""`Upkeep`: the half of a `Store` that deletes and compacts what its topics' options no longer keep."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pylog import trace
from pylog.clients import Clients
from pylog.errors import InvalidArgumentError, PylogError
from pylog.log import trimmer
from pylog.log.cleaner import Cleaning, Task, Throttle, clean, clean_due
from pylog.log.trimming import Retained
from pylog.log.upkeep import cleaning_of, mutator_of, retention_plan
from pylog.record.types import TopicPartition
from pylog.topics.partitions import for_each_partition
from pylog.topics.topic import Topic, check_partition

if TYPE_CHECKING:
    from pylog.options import StoreOptions


class Upkeep(Clients):
    """Retention and compaction of a store's partitions, each by its topic's options as they stand."""

    _options: StoreOptions
    _throttle: Throttle
    _spoiled: set[TopicPartition]

    def tick(self, now_ms: int | None = None) -> int:
        """Does what is due: retention, compaction of what is dirty enough, idle producers forgotten, files removed that nobody
        reads any more, committed offsets deleted that have expired.

        Args:
            now_ms: the wall clock, in milliseconds; the store's clock by default.

        Returns:
            How many segments were deleted.

        Raises:
            StorageFailedError: a change failed; the partition takes no more writes until the store is opened again.

        Cost: a look at each segment's age; `tick_interval_ms` of `pylog.open` calls it in the background.
        """
        self._check_writable()
        now = self._clock.now_ms() if now_ms is None else now_ms
        topics = self.topics().values()
        keys = [TopicPartition(topic.name, number) for topic in topics for number in topic.partition_ids]
        compacted = [
            TopicPartition(topic.name, number) for topic in topics if topic.config.is_compacted for number in topic.partition_ids
        ]
        tasks = [partial(self._deleted, key, now) for key in keys]
        others = [partial(self._expire_offsets, now), partial(self._compact, compacted, now)]
        return sum(for_each_partition([*tasks, *others]))

    def _deleted(self, key: TopicPartition, now_ms: int) -> int:
        return self._retain(key, now_ms, dry_run=False).segments

    def _expire_offsets(self, now_ms: int) -> int:
        self.offsets.expire_if_due(now_ms)
        return 0  # segments were deleted

    # ---- retention -----------------------------------------------------------------------------------------------------------

    def retain(
        self, topic: str | None = None, partition: int | None = None, *, now_ms: int | None = None, dry_run: bool = False
    ) -> list[Retained]:
        """Deletes the segments that retention does not keep, as `tick` does, and returns what it deleted.

        Args:
            topic: the topic; all topics by default.
            partition: one partition of that topic; all by default.
            now_ms: the wall clock, in milliseconds; the store's clock by default.
            dry_run: delete nothing, and return what would be deleted. Works in a store that is open for reading.

        Returns:
            One `Retained` for each partition that loses segments. A retention group that has committed beyond a log's end, which
            was truncated or created again, counts as one that has committed nothing.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic or partition. InvalidArgumentError: a partition without a topic.
            ReadOnlyError: the store is open for reading, and this is not a dry run.
            StorageFailedError: a change failed; the partition takes no more writes until the store is opened again.

        Cost: O(segments), and the largest timestamps of those that decide.

        Spec: storage-format 6.11.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders", segment_bytes=100, retention_bytes=150)
        ...     for _ in range(3):
        ...         _ = store.log("orders").append(b"paid")
        ...     [(each.segments, each.new_start_offset) for each in store.retain("orders", dry_run=True)]
        [(1, 1)]
        """
        if not dry_run:
            self._check_writable()
        if topic is None and partition is not None:
            raise InvalidArgumentError(f"partition={partition} names a partition of no topic; give its topic too")
        now = self._clock.now_ms() if now_ms is None else now_ms
        topics = self.topics().values() if topic is None else [self.topic(topic)]
        if topic is not None and partition is not None:
            check_partition(self.path, self.topic(topic), partition)
        numbers = None if partition is None else [partition]
        keys = [TopicPartition(each.name, number) for each in topics for number in numbers or each.partition_ids]
        done = for_each_partition(partial(self._retain, key, now, dry_run=dry_run) for key in keys)
        return [each for each in done if each.segments]

    def _retain(self, key: TopicPartition, now_ms: int, *, dry_run: bool) -> Retained:
        """Applies retention to one partition, or plans it. The group is asked first: no thread holds two partitions' locks."""
        log, ask = self.log(*key), self._options.committed or self.offsets.position
        while True:
            group = log.config.retention_group
            committed = None if group is None else ask(group, key)
            given = now_ms, group, committed
            done = retention_plan(log, *given) if dry_run else trimmer.retain(mutator_of(log), *given)
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
            clean_due(tasks, self._spoiled)
        return 0

    def clean(self, topic: str, partition: int | None = None) -> list[Cleaning]:
        """Compacts a topic now, however clean it is: of each key the last record stays (storage-format 7).

        Args:
            topic: with "compact" in its `cleanup_policy`.
            partition: which; all by default.

        Returns:
            What was done to each partition. The active segment, and what lies behind an open transaction, is never compacted.

        Raises:
            InvalidArgumentError: the topic is not compacted. UnknownTopicOrPartitionError: there is none.
            CorruptionError: a segment is damaged; nothing of it, nor behind it, was changed.
            StorageFailedError: there is no room for the copy; or a change failed, and the partition takes no more writes.

        Cost: some hundred megabytes a second of the log, and `cleaner_dedupe_buffer_size` of memory; appends and readers go on.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("prices", cleanup_policy="compact", segment_bytes=100)
        ...     for price in (b"1", b"2", b"3"):
        ...         _ = store.log("prices").append(price, key=b"tea")
        ...     _ = store.clean("prices")
        ...     [record.value for record in store.log("prices").records()]
        [b'2', b'3']
        """
        self._check_writable()
        found = self.topic(topic)
        if not found.config.is_compacted:
            policy = found.config.cleanup_policy
            raise InvalidArgumentError(f"topic {topic!r} has cleanup_policy={policy!r}; only topics with 'compact' are compacted")
        keys = [TopicPartition(topic, number) for number in (found.partition_ids if partition is None else [partition])]
        return for_each_partition(partial(clean, self._cleaning(key, self._clock.now_ms())) for key in keys)

    def _cleaning(self, key: TopicPartition, now_ms: int) -> Task:
        return cleaning_of(self.log(*key), self._throttle, self._options.cleaner_dedupe_buffer_size, now_ms)


def warn_of_compaction(store: Clients, before: Topic, after: Topic) -> None:
    """Logs what compaction will do to records without a key, if a topic that may hold some is compacted from now on."""
    if after.config.is_compacted and not before.config.is_compacted and _has_records(store, after):
        then = "the next compaction deletes records without a key; set cleanup_policy back before that to keep them"
        trace.line(trace.TOPIC_COMPACTED, topic=after.name, then=then)


def _has_records(store: Clients, topic: Topic) -> bool:
    """Whether a topic may hold records. Cost: as `Store.log` for each partition."""
    for number in topic.partition_ids:
        try:
            log = store.log(topic.name, number)
            if log.start_offset < log.end_offset:
                return True
        except PylogError:  # it may
            return True
    return False
