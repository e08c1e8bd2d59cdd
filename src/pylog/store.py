"""`Store`: the public face of a Kafka log directory, opened for reading, or for writing under locks that keep a broker out."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from pylog import trace
from pylog.clock import Clock
from pylog.errors import IllegalStateError
from pylog.fs import FileSystem
from pylog.groups.living_members import LivingMembers
from pylog.log.checking.report import Report
from pylog.log.checking.verification import Progress
from pylog.log.log import Log
from pylog.log.maintenance.cleaner import Compaction
from pylog.log.maintenance.trimming import Retained
from pylog.log.reading.outline import PartitionExtent
from pylog.log.recovery.findings import Finding
from pylog.log_manager import LogManager
from pylog.metrics import Sample
from pylog.monitoring import samples_of
from pylog.offsets.store import OffsetStore
from pylog.options import StoreOptions
from pylog.record.types import TopicPartition
from pylog.topics.topic import Topic
from pylog.upkeep import Upkeep

if TYPE_CHECKING:  # opening a store loads no client: they are a tenth of its start-up time
    from pylog.consumer.consumer import Consumer
    from pylog.consumer.core import Core as ConsumerCore
    from pylog.groups.admin import Group
    from pylog.producer.core import Core
    from pylog.producer.producer import Producer


class Store:
    """One data directory: Kafka's log directory, with its topics. Made by `pylog.open`; a context manager.

    A store opened with mode "rw" keeps Kafka brokers out until it is closed; other pylog processes may open it too, and append
    in turn. One opened with mode "r" takes no lock and writes nothing; it sees what others write.

    Attributes:
        path, mode, durability: as given to `pylog.open`.
        failures: of work in the background.
        departing: of the consumers that were dropped without `close`, those that have not left their groups yet.
    """

    def __init__(self, path: str, options: StoreOptions, fs: FileSystem, clock: Clock) -> None:
        self.path = path
        self.mode = options.mode
        self.durability = options.durability
        self.departing: list[ConsumerCore] = []
        self._clock = clock
        self._producers: list[Core] = []
        self._producers_guard = threading.Lock()
        self._consumers: WeakSet[Consumer] = WeakSet()
        self._manager = manager = LogManager(path, options, fs, clock)
        self.failures = manager.failures
        members = LivingMembers(manager.fs, writable=manager.writable)
        self._offsets = OffsetStore(manager, options.offsets, manager.fs, clock, members)
        committed = options.committed or self._offsets.position
        self._upkeep = Upkeep(manager, options, committed, self._offsets.expire_if_due)
        if manager.writable and options.tick_interval_ms is not None:
            self._begin_ticking(options.tick_interval_ms)
        trace.line(trace.STORE_OPENED, path=path, mode=self.mode)

    def _begin_ticking(self, interval_ms: int) -> None:
        try:
            self._upkeep.begin(interval_ms)
        except BaseException:  # such as that there can be no more threads
            self._manager.release()
            raise

    def __repr__(self) -> str:
        return f"Store({self.path!r}, mode={self.mode!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- topics --------------------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, Topic]:
        """The store's topics, by name. Cost: one listing of the directory.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders", partition_count=2, retention_ms=-1)
        ...     store.topics()["orders"].partition_count
        2
        """
        return self._manager.topics()

    def topic(self, name: str) -> Topic:
        """One topic.

        Raises:
            UnknownTopicOrPartitionError: there is none of that name; the error names some that there are.
        """
        return self._manager.topic(name)

    def create_topic(self, name: str, partition_count: int = 1, **config: Any) -> Topic:
        """Makes a topic. It is durable when this returns.

        Args:
            name: 1 to 249 of the characters a-z A-Z 0-9 . _ -
            partition_count: number of partitions.
            config: options of `TopicConfig` by name, such as `retention_ms`.

        Raises:
            InvalidTopicError, InvalidArgumentError, TopicAlreadyExistsError, ReadOnlyError: nothing was written.
            IllegalStateError: the same; the directory is a Kafka broker's, which sets aside what it did not make itself.
            StorageFailedError: it may exist or not.
        """
        return self._manager.create_topic(name, partition_count, **config)

    def add_partitions(self, name: str, partition_count: int) -> Topic:
        """Raises a topic's number of partitions.

        Args:
            name: the topic.
            partition_count: the new number of partitions, larger than the old one.

        Raises:
            UnknownTopicOrPartitionError, InvalidArgumentError, ReadOnlyError: nothing was written. IllegalStateError: as above.
        """
        return self._manager.add_partitions(name, partition_count)

    def alter_topic(self, name: str, **config: Any) -> Topic:
        """Changes a topic's configuration, durably, and returns the topic.

        The new options count for every append, retention, compaction and producer once this returns: in this store, and in other
        processes, whose logs take them at their next append or tick. No record without a key is acknowledged by a topic that
        has become compacted. Those that are there already stay until the next compaction, which deletes them, as Kafka does; a
        warning is logged then. A topic that is compacted no longer keeps what compaction has left.

        Args:
            name: the topic.
            config: options of `TopicConfig` by name; None is the option's default. The others stay.

        Raises:
            UnknownTopicOrPartitionError, InvalidArgumentError, ReadOnlyError: nothing was written.
            StoreLockedError: the change is written, and another process kept a partition locked for longer than
                `lock_timeout_ms`: its appends take the new options later. Call again to be sure.

        Cost: one small file, replaced durably, and the lock of each partition for a moment.
        """
        return self._manager.alter_topic(name, **config)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and its records, for good when this returns, and then what groups have committed for it.

        Raises:
            UnknownTopicOrPartitionError, ReadOnlyError: nothing was done.
            IllegalStateError: the same; a partition is behind a symbolic link, or begins in a broker's remote tier.
        """
        self._manager.delete_topic(name, self._offsets.forgetting(name))

    # ---- logs ----------------------------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int = 0) -> Log:
        """One partition, opened on its first use.

        Args:
            topic, partition: which.

        Returns:
            The `Log`. A store opened for writing returns the same one each time; one opened for reading looks at the directory
            anew, so that what others appended meanwhile is there.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition, or a store opened for reading finds that it is not made yet.
            CorruptionError: its directory is gone, and a checkpoint names it.
            StorageFailedError: its files cannot be read.

        Cost: a listing of its directory; after an unclean stop, a scan from the durable point on.
        """
        return self._manager.log(topic, partition)

    def outline(self, topic: str, partition: int = 0) -> PartitionExtent:
        """The ends and segments of a partition, for who plans reads of many; nothing stays open. Raises what `log` does.

        Cost: one listing, and the headers at the log's end: half of what `log` costs.
        """
        return self._manager.outline(topic, partition)

    def start_and_end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int] | None]:
        """Where the logs of several partitions start and end now.

        Args:
            partitions: which.

        Returns:
            The offset of the first record and the one that the next record will get; None for a partition that there is not.

        Raises:
            As `log`, but for partitions that there are not.

        Cost: 40 µs a partition whose log is open, and otherwise 0.4 ms: a listing of its directory and the headers at its end. A
        log is opened only if these do not tell, as after a crash.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders")
        ...     _ = store.log("orders").append_many([b"paid", b"sent"])
        ...     store.start_and_end_offsets([pylog.TopicPartition("orders", 0)])
        {TopicPartition(topic='orders', partition=0): (0, 2)}
        """
        return self._manager.start_and_end_offsets(partitions)

    def appending_for(self, query: str) -> AbstractContextManager[object]:
        """Keeps every other thread and process from appending for the same streaming query."""
        return self._manager.query_lock(query)

    def flush(self) -> None:
        """Makes every record appended so far durable.

        Raises:
            StorageFailedError: a sync failed.
        """
        self._manager.flush()

    # ---- retention and compaction --------------------------------------------------------------------------------------------

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
        return self._upkeep.tick(now_ms)

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
        ...     _ = store.create_topic("orders", segment_bytes=100, retention_bytes=140)
        ...     for _ in range(3):
        ...         _ = store.log("orders").append(b"paid")
        ...     [(each.segments, each.new_start_offset) for each in store.retain("orders", dry_run=True)]
        [(1, 1)]
        """
        return self._upkeep.retain(topic, partition, now_ms=now_ms, dry_run=dry_run)

    def compact(self, topic: str, partition: int | None = None) -> list[Compaction]:
        """Compacts a topic now, however clean it is: of each key the last record stays (storage-format 7).

        Args:
            topic: with "compact" in its `cleanup_policy`.
            partition: which; all by default.

        Returns:
            What was done to each partition. The active segment, and what lies behind an open transaction, is never compacted.

        Raises:
            InvalidArgumentError: the topic is not compacted. UnknownTopicOrPartitionError: there is none.
            IllegalStateError: the first part of a partition is in a broker's remote tier.
            CorruptionError: a segment is damaged; nothing of it, nor behind it, was changed.
            StorageFailedError: there is no room for the copy; or a change failed, and the partition takes no more writes.

        Cost: some hundred megabytes a second of the log, and `cleaner_dedupe_buffer_size` of memory; appends and readers go on.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("prices", cleanup_policy="compact", segment_bytes=100)
        ...     for price in (b"1", b"2", b"3"):
        ...         _ = store.log("prices").append(price, key=b"tea")
        ...     _ = store.compact("prices")
        ...     [record.value for record in store.log("prices").records()]
        [b'2', b'3']
        """
        return self._upkeep.compact(topic, partition)

    # ---- integrity -----------------------------------------------------------------------------------------------------------

    @property
    def recovery_report(self) -> tuple[Finding, ...]:
        """What was found in the partitions opened so far: torn tails, damage, derived files that had to be made again."""
        return self._manager.recovery_report

    def check(self) -> Report:
        """Checks all structural invariants: names, ends, indexes, headers of batches, seals, checkpoints, leftovers.

        Returns:
            A `Report`; its `ok` is whether nothing was found. Nothing is changed, and no damage raises. Cost: one pass over the
            batch headers of all partitions, and over the files beside them.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     store.check().ok
        True
        """
        return self._manager.check()

    def verify(self, rate_limit: float | None = None, progress: Progress | None = None, *, records: bool = False) -> Report:
        """Reads everything again: each batch's checksum, the digests of the seals, indexes, transactions, snapshots.

        Args:
            rate_limit: bytes a second at most, over the whole; None is as fast as it goes.
            progress: is called with (bytes done, bytes in all, path) now and then, under no lock.
            records: also parse each record; compressed batches are decompressed for it.

        Returns:
            A `Report` with a verdict for each `.log` file. It works beside writers, up to what is published.

        Raises: InvalidArgumentError when `rate_limit` is not positive. No damage raises.

        Cost: some 3 GB/s without `records`; memory for one batch.
        """
        return self._manager.verify(rate_limit, progress, records=records)

    # ---- clients -------------------------------------------------------------------------------------------------------------

    def producer(self, **config: Any) -> Producer:
        """A `Producer`, which sends records one at a time and appends them in batches. It is closed with the store.

        Args:
            config: options of `ProducerConfig` by name, such as `linger_ms`, `batch_size`, `compression`, `partitioner`,
                `value_serializer`: kafka-python's names.

        Raises:
            InvalidArgumentError: no such option, or no such value of it. ReadOnlyError, ClosedError: nothing can be written.

        Cost: a thread.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders")
        ...     with store.producer(value_serializer=str.encode, compression="zstd") as producer:
        ...         producer.send("orders", "paid").result().offset
        0
        """
        from pylog.producer.config import ProducerConfig
        from pylog.producer.core import Core
        from pylog.producer.producer import Producer

        self._manager.check_writable()
        checked = ProducerConfig.of(config)
        core = Core(self._manager, self._clock, checked, self._forget)
        producer = Producer(self._manager, self._clock, checked, core)
        core.begin()  # now that an interrupt, which drops the producer, ends the thread
        with self._producers_guard:
            self._producers.append(core)
        return producer

    def _forget(self, core: Core) -> None:
        with self._producers_guard:
            if core in self._producers:
                self._producers.remove(core)

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        """A consumer of topics. It is closed with the store, and commits nothing then.

        Args:
            topics: names; none when `Consumer.subscribe` or `Consumer.assign` are called later.
            options: of `pylog.consumer.options.ConsumerOptions` by name, such as `group_id` and `auto_offset_reset`: with the
                names, defaults and meaning of kafka-python.

        Returns:
            A `Consumer`, to be closed; it is a context manager.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            InvalidArgumentError: an option that there is not, or a value out of its range.
            ReadOnlyError: with a group, the store is open for reading.

        >>> import pylog, tempfile
        >>> store = pylog.open(tempfile.mkdtemp())
        >>> _ = store.create_topic("orders")
        >>> with store.consumer("orders", auto_offset_reset="earliest") as consumer:
        ...     consumer.poll()
        {}
        >>> store.close()
        """
        from pylog.consumer.consumer import Consumer
        from pylog.consumer.options import ConsumerOptions

        self._manager.gate.check()
        checked = ConsumerOptions.of(options)
        consumer = Consumer(self._manager, self._offsets, topics, checked, self._clock, self.departing)
        self._consumers.add(consumer)
        return consumer

    # ---- groups --------------------------------------------------------------------------------------------------------------

    @property
    def offsets(self) -> OffsetStore:
        """The committed offsets of consumer groups. Cost: nothing before they are used."""
        return self._offsets

    def groups(self) -> list[str]:
        """The names of the consumer groups, those of brokers too, sorted. As `OffsetStore.groups`."""
        return self._offsets.groups()

    def group(self, group_id: str) -> Group:
        """One consumer group, to be described, reset or deleted; of any name, also one that nobody has used.

        Raises:
            InvalidArgumentError: it is not a group's name.
        """
        from pylog.groups.admin import Group

        return Group(group_id, self._manager, self._offsets, self._clock)

    # ---- metrics -------------------------------------------------------------------------------------------------------------

    def metrics(self) -> list[Sample]:
        """What is to be watched of the store: offsets, sizes, what this process wrote, and the lag of each group.

        Returns:
            A value of each metric in `pylog.metrics.METRICS` for each partition, and of the lag for each partition that a group
            has committed for. `pylog.metrics.exposition` makes the text of them that monitoring systems read.

        Raises:
            ClosedError: the store is closed.

        A partition that is damaged or cannot be read has 1 for `log_unreadable`, and hides nothing of the others.

        Cost: a look at each partition; the first call opens those that are not open, and reads the committed offsets.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders")
        ...     _ = store.log("orders").append_many([b"a", b"b"])
        ...     {sample.name: sample.value for sample in store.metrics()}["log_appended_records"]
        2
        """
        with self._manager.gate.throughout():
            return list(samples_of(self._manager, self._offsets))

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes producers and consumers, flushes and closes the logs, writes the checkpoints and the clean-shutdown marker, lets
        go of the locks. May be called twice.

        What was sent is appended. Consumers leave their groups and commit nothing: what they had in hand is handed out again. One
        that another thread is in a call of is that thread's to close: its next look at a log raises ClosedError.

        Raises:
            StorageFailedError: a sync failed. What a consumer's listener raises. Everything is closed all the same.
        """
        try:
            self._close_clients()
        finally:
            self._close_logs()

    def _close_clients(self) -> None:
        with ExitStack() as last:
            for consumer in list(self._consumers):
                last.callback(_close_unless_busy, consumer)
            for core in list(self.departing):
                last.callback(core.abandon)
            for producer in list(self._producers):  # first: who was told of a record by then finds it in the log
                last.callback(producer.close)

    def _close_logs(self) -> None:
        """Closes all that is below the clients."""
        try:
            self._upkeep.end()
        finally:
            self._manager.close()


def _close_unless_busy(consumer: Consumer) -> None:
    with suppress(IllegalStateError):
        consumer.close(autocommit=False)
