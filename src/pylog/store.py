"""`Store`: a Kafka log directory, opened for reading, or for writing under locks that keep brokers out. The public API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Self, Unpack

from pylog import limits, trace
from pylog.archived_store import ArchivedStore
from pylog.clock import Clock
from pylog.config import AlterTopicArguments, CreateTopicArguments, Durability, topic_options
from pylog.factory_made import FactoryMade
from pylog.fs import FileSystem
from pylog.log.checking.report import Report
from pylog.log.checking.verification import Progress
from pylog.log.log import Log
from pylog.log.maintenance.cleaning_round import Compaction
from pylog.log.maintenance.trimming import Retained
from pylog.log.recovery.findings import Finding
from pylog.log_manager import LogManager, created_topic
from pylog.monitoring.measured import MeasuredStore
from pylog.monitoring.tables import table_of
from pylog.notebook import ShownAsTable, ShownTable
from pylog.offsets.store import OffsetStore
from pylog.options import StoreOptions
from pylog.record.types import K, TopicPartition, V
from pylog.store_parts import StoreParts
from pylog.table_reading import TableReadingStore
from pylog.topics.topic import Topic

if TYPE_CHECKING:  # opening a store loads no client: they are a tenth of its start-up time
    from pylog.consumer.consumer import Consumer
    from pylog.consumer.options import ConsumerArguments
    from pylog.groups.admin import Group
    from pylog.open_clients import OpenClients
    from pylog.producer.config import ProducerArguments
    from pylog.producer.producer import Producer
    from pylog.transactions.admin import TransactionAdmin
    from pylog.transactions.transaction import Transaction


class Store(FactoryMade, ArchivedStore, MeasuredStore, TableReadingStore, ShownAsTable, factory="pylog.open"):
    """A Kafka log directory with its topics. Created by `pylog.open`; a context manager.

    A store in mode "rw" keeps Kafka brokers out until it is closed. Other pylog processes may open it too, and append in turn. A
    store in mode "r" takes no lock and writes nothing; it sees other processes' appends. Calls after `close` raise `ClosedError`.

    Attributes:
        path: the directory, as given to `pylog.open`.
        mode: "r" or "rw".
        durability: the level of its topics that have none of their own.

    >>> import pylog, tempfile
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("orders", partition_count=2)
    ...     store.log("orders", 1).append(b"paid")
    0
    """

    def _begin(self, parts: StoreParts, options: StoreOptions) -> None:
        self._parts = parts
        self.path = parts.manager.path
        self.mode = options.mode
        self.durability = options.durability
        self._manager = parts.manager
        self._offsets = parts.offsets
        self._clients = parts.clients
        self._measures = parts.measures
        self._upkeep = parts.upkeep
        trace.line(trace.STORE_OPENED, path=self.path, mode=self.mode)

    def __repr__(self) -> str:
        return f"Store({self.path!r}, mode={self.mode!r})"

    def _table(self) -> ShownTable:
        return table_of(repr(self), self._manager)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- topics --------------------------------------------------------------------------------------------------------------

    def topics(self) -> dict[str, Topic]:
        """Returns the store's topics by name. Cost: one listing of the directory."""
        return self._manager.current_topics()

    def topic(self, name: str) -> Topic:
        """Returns one topic.

        Args:
            name: the topic's name.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist; the message names some that do.
        """
        return self._manager.topic(name)

    def create_topic(
        self, name: str, partition_count: int | None = None, *, exist_ok: bool = False, **config: Unpack[CreateTopicArguments]
    ) -> Topic:
        """Creates a topic, and returns it. Durable when it returns.

        As in Kafka, `tick` deletes the segments whose records are all older than `retention_ms`, by default 7 days; -1 keeps all.
        Kafka's internal topics, such as `__consumer_offsets`, are compacted instead.

        Args:
            name: 1 to 249 of the characters a-z A-Z 0-9 . _ -
            partition_count: number of partitions; by default 1.
            exist_ok: true to return a topic that exists already, as it is. Arguments that are given must be as they are there.
            config: options of `TopicConfig` by name, such as `retention_ms`. Kafka's names with dots are accepted, too, as
                `**{"retention.ms": 5}` or in a mapping `config`.

        Raises:
            InvalidTopicError, InvalidArgumentError, TopicAlreadyExistsError, ReadOnlyError: nothing was written.
            InvalidArgumentError: the same; `remote_storage_enable` in a store without an archive.
            IllegalStateError: the same; a Kafka broker owns the directory, and would set aside topics that it did not create.
            StorageFailedError: the topic may exist or not.
        """
        return created_topic(self._manager, name, partition_count, topic_options(config), exist_ok=exist_ok)

    def add_partitions(self, name: str, partition_count: int) -> Topic:
        """Raises a topic's number of partitions, and returns the topic.

        Args:
            name: the topic.
            partition_count: the new number of partitions, larger than the old one.

        Raises:
            UnknownTopicOrPartitionError, InvalidArgumentError, ReadOnlyError: nothing was written. IllegalStateError: as above.
        """
        return self._manager.add_partitions(name, partition_count)

    def alter_topic(self, name: str, **config: Unpack[AlterTopicArguments]) -> Topic:
        """Changes a topic's configuration, durably, and returns the topic.

        When this returns, the new options apply to all appends, retention, compaction and producers of this store. Other
        processes apply them at their next append or tick. A topic that becomes compacted accepts no more records without a key.
        Existing ones stay until the next compaction deletes them, as in Kafka, and a warning is logged.

        Args:
            name: the topic.
            config: options of `TopicConfig`, named as for `create_topic`; None restores an option's default. Other options stay.

        Raises:
            UnknownTopicOrPartitionError, InvalidArgumentError, ReadOnlyError: nothing was written.
            StoreLockedError: the change was written, but another process held a partition's lock for longer than
                `lock_timeout_ms`; its appends apply the new options later. Call again to wait for it.

        Cost: one durable replacement of a small file, and a short lock of each partition.
        """
        return self._manager.alter_topic(name, **topic_options(config))

    def delete_topic(self, name: str, *, force: bool = False, keep_archive: bool = False) -> None:
        """Deletes a topic, its records, and the offsets that groups have committed for it. Durable when it returns.

        Args:
            name: the topic.
            force: true to abort the open transactions that write to the topic, in all of their partitions. Their programs get
                TransactionAbortedError.
            keep_archive: true to keep what the store's archive has of the topic: it can still be read by URL and restored, until
                a new topic of that name is archived. Records that are not archived are deleted.

        Raises:
            UnknownTopicOrPartitionError, ReadOnlyError: nothing was deleted.
            IllegalStateError: the same; a partition is reached through a symbolic link, or has records in a broker's remote
                storage; or there is no archive of the topic to keep.
            InvalidTransactionStateError: the same; an open transaction of a living process writes to the topic, and `force` is
                false. Or it is an internal topic, and a transaction is open.
            ArchiveFencedError: the same; the archive to keep belongs to another directory of the store.
            ObjectStoreError: the same; a request failed. Only with `keep_archive`, or after a call with it that has failed.
        """
        self._clients.delete_topic(name, force=force, keep_archive=keep_archive)

    # ---- logs ----------------------------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int = 0) -> Log:
        """Returns a partition, opened on its first use.

        Args:
            topic: the name of a topic.
            partition: the number of one of its partitions.

        Returns:
            The `Log`. A store opened for writing returns the same object each time. A store opened for reading checks the
            directory again, to include appends by other processes.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist, or another process has not finished creating it.
            CorruptionError: its directory is missing, but a checkpoint names the partition.
            StorageFailedError: its files cannot be read.

        Cost: one directory listing; after an unclean shutdown, a scan from the durable point on. Later calls: one small read.
        """
        return self._parts.log(topic, partition)

    def start_and_end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int] | None]:
        """Returns the current log start and log end offsets of several partitions.

        Args:
            partitions: the partitions.

        Returns:
            By partition: the offset of the first record, and the offset that the next record will get; None if the partition does
            not exist.

        Raises:
            PylogError: as `log`, except for partitions that do not exist.

        Cost: 40 µs for a partition whose log is open, else 0.4 ms: one directory listing and the headers at the log's end. A log
        is opened only if these are not sufficient, as after a crash.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders")
        ...     _ = store.log("orders").append_many([b"paid", b"sent"])
        ...     store.start_and_end_offsets([pylog.TopicPartition("orders", 0)])
        {TopicPartition(topic='orders', partition=0): (0, 2)}
        """
        return self._manager.start_and_end_offsets(partitions)

    def flush(self) -> None:
        """Makes every record appended so far durable.

        Raises:
            StorageFailedError: a sync failed.
        """
        self._manager.flush()

    # ---- retention and compaction --------------------------------------------------------------------------------------------

    def tick(self, now_ms: int | None = None) -> int:
        """Runs all due maintenance: retention, compaction, expiry of producer state and of committed offsets, deletion of files
        that no reader uses.

        Args:
            now_ms: the wall clock, in milliseconds since 1970; by default, the store's clock.

        Returns:
            The number of segments deleted.

        Raises:
            StorageFailedError: a change failed; the partition accepts no more writes until the store is opened again.
            StoreLockedError: another process held a partition's lock for longer than `lock_timeout_ms`.

        An archive that does not answer raises no error: it is logged, and the next tick tries again.

        Cost: one check of each segment's age. `tick_interval_ms` of `pylog.open` calls it in the background.
        """
        with self._manager.gate:
            return self._upkeep.tick(now_ms)

    def retain(
        self, topic: str | None = None, partition: int | None = None, *, now_ms: int | None = None, dry_run: bool = False
    ) -> list[Retained]:
        """Deletes the segments that retention does not keep, as `tick` does.

        Args:
            topic: the topic; by default, all topics.
            partition: one partition of that topic; by default, all.
            now_ms: the wall clock, in milliseconds since 1970; by default, the store's clock.
            dry_run: true to return what would be deleted, and delete nothing. Works in a store that is open for reading.

        Returns:
            One `Retained` for each partition that loses segments. A retention group that has committed beyond a log's end, which
            was truncated or created again, counts as one that has committed nothing.

        Raises:
            UnknownTopicOrPartitionError: the topic or partition does not exist.
            InvalidArgumentError: a partition without a topic.
            ReadOnlyError: the store is open for reading, and this is not a dry run.
            StorageFailedError: a change failed; the partition accepts no more writes until the store is opened again.
            ArchiveFencedError, ObjectStoreError: a tiered topic has records to delete in an archive, which belongs to another
                directory of the store, or does not answer.

        Cost: O(segments), and reading the largest timestamps of the oldest ones.

        Spec: storage-format 6.11.
        """
        with self._manager.gate:
            return self._upkeep.retain(topic, partition, now_ms=now_ms, dry_run=dry_run)

    def compact(self, topic: str, partition: int | None = None) -> list[Compaction]:
        """Compacts a topic now, whatever its dirty ratio: only the last record of each key stays (storage-format 7).

        Args:
            topic: a topic with "compact" in its `cleanup_policy`.
            partition: one partition; by default, all.

        Returns:
            The result for each partition. The active segment, and records after the start of an open transaction, are never
            compacted.

        Raises:
            InvalidArgumentError: the topic is not compacted. UnknownTopicOrPartitionError: it does not exist.
            IllegalStateError: the first records of a partition are in remote storage.
            CorruptionError: a segment is damaged; it and the segments after it were not changed.
            StorageFailedError: there is no room for the copy. Or a change failed: the partition accepts no more writes.

        Cost: a few hundred megabytes of the log a second, and `cleaner_dedupe_buffer_size` bytes of memory. Appends and reads
        continue.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("prices", cleanup_policy="compact", segment_bytes=100)
        ...     for price in (b"1", b"2", b"3"):
        ...         _ = store.log("prices").append(price, key=b"tea")
        ...     _ = store.compact("prices")
        ...     [record.value for record in store.log("prices").records()]
        [b'2', b'3']
        """
        with self._manager.gate:
            return self._upkeep.compact(topic, partition)

    # ---- integrity -----------------------------------------------------------------------------------------------------------

    @property
    def recovery_report(self) -> tuple[Finding, ...]:
        """The findings in the partitions opened so far: torn tails, damage, derived files that were rebuilt."""
        return self._manager.recovery_report

    def check(self) -> Report:
        """Checks all structural invariants: names, ends, indexes, headers of batches, seals, checkpoints, leftovers.

        Returns:
            A `Report`; its `ok` is true if nothing was found. Changes nothing, and raises no error for damage.

        Cost: one pass over the batch headers of all partitions and their other files.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     store.check().ok
        True
        """
        return self._manager.check()

    def verify(self, rate_limit: float | None = None, progress: Progress | None = None, *, records: bool = False) -> Report:
        """Reads all files and verifies them: checksums of batches, digests of seals, indexes, transactions, snapshots.

        Args:
            rate_limit: the largest average rate, in bytes a second; None for no limit.
            progress: called from time to time with (bytes done, bytes in total, path). No lock is held.
            records: true to parse each record too, which decompresses compressed batches.

        Returns:
            A `Report` with a verdict for each `.log` file. Writers may continue; it reads up to the published log end.

        Raises:
            InvalidArgumentError: `rate_limit` is not positive. Damage raises no error.

        Cost: about 3 GB/s without `records`; memory for one batch.
        """
        return self._parts.verify(rate_limit, progress, records=records)

    # ---- clients -------------------------------------------------------------------------------------------------------------

    def producer(self, **config: Unpack[ProducerArguments[K, V]]) -> Producer[K, V]:
        """Creates a `Producer`, which accepts single records and appends them in batches. It is closed with the store.

        Args:
            config: options of `ProducerConfig` by name, such as `linger_ms`, `batch_size`, `compression`, `partitioner`,
                `value_serializer`. The names are kafka-python's.

        Raises:
            InvalidArgumentError: an option or its value is invalid. ReadOnlyError, ClosedError: the store cannot be written to.

        Cost: one thread.

        >>> import pylog, tempfile
        >>> with pylog.open(tempfile.mkdtemp()) as store:
        ...     _ = store.create_topic("orders")
        ...     with store.producer(value_serializer=str.encode, compression="zstd") as producer:
        ...         producer.send("orders", "paid").result().offset
        0
        """
        return self._clients.producer(config)

    def consumer(self, *topics: str, **options: Unpack[ConsumerArguments[K, V]]) -> Consumer[K, V]:
        """Creates a `Consumer`. It is closed with the store, and commits nothing then.

        Args:
            topics: topic names; none if `Consumer.subscribe` or `Consumer.assign` is called later.
            options: options of `pylog.consumer.options.ConsumerOptions` by name, such as `group_id` and `auto_offset_reset`.
                Names, defaults and meanings are kafka-python's.

        Returns:
            A `Consumer`, which is a context manager. Close it after use.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            InvalidArgumentError: an option does not exist, or its value is out of range.
            ReadOnlyError: the consumer has a group, but the store is open for reading.

        >>> import pylog, tempfile
        >>> store = pylog.open(tempfile.mkdtemp())
        >>> _ = store.create_topic("orders")
        >>> with store.consumer("orders", auto_offset_reset="earliest") as consumer:
        ...     consumer.poll()
        {}
        >>> store.close()
        """
        return self._clients.consumer(topics, options)

    def transaction(
        self,
        transactional_id: str | None = None,
        *,
        timeout_ms: int = 60_000,
        durability: Durability | str | None = None,
        compression: str | None = None,
        buffer_bytes: int = limits.TRANSACTION_BUFFER_BYTES,
    ) -> Transaction:
        """Begins a transaction: its records and offsets become visible to `read_committed` readers all or none.

        Args:
            transactional_id: names the program that writes. A newer instance with the same id fences older ones, and what they
                have left open is aborted. None for atomic writes without an id.
            timeout_ms: how long the transaction may stay open, in milliseconds.
            durability: the durability of the records and of the outcome; by default, the store's.
            compression: the name of a codec; by default, each topic's.
            buffer_bytes: records are written when so many bytes are waiting, and at the commit.

        Returns:
            The `Transaction`, a context manager: the end of the block commits, and an exception aborts.

        Raises:
            InvalidTransactionStateError: the id has an open transaction in this store.
            InvalidArgumentError, ReadOnlyError: an argument is invalid, or the store is open for reading.
            IllegalStateError: a broker's directory that has no transactions yet.
        """
        return self._clients.transactions.transaction(transactional_id, timeout_ms, durability, compression, buffer_bytes)

    @property
    def transactions(self) -> TransactionAdmin:
        """The transactional ids and the open transactions, to list, describe and end them. Cost: none before their first use."""
        return self._parts.transactions()

    # ---- groups --------------------------------------------------------------------------------------------------------------

    @property
    def offsets(self) -> OffsetStore:
        """The committed offsets of consumer groups. Cost: none before their first use."""
        return self._parts.offset_store

    def groups(self) -> list[str]:
        """Returns the sorted names of the consumer groups, including those of brokers. Raises as `OffsetStore.groups`."""
        return self._offsets.groups()

    def group(self, group_id: str) -> Group:
        """Returns one consumer group, to describe, reset or delete it.

        Args:
            group_id: the group's name. The group need not exist.

        Raises:
            InvalidArgumentError: the group id is invalid.
        """
        return self._parts.group(group_id)

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes producers, consumers and metrics servers, flushes and closes the logs, writes the checkpoints and the
        clean-shutdown marker, and releases the locks. May be called twice.

        Sent records are appended. Consumers leave their groups and commit nothing, so uncommitted records are read again. A
        consumer that is in a call of another thread is not closed: its next access to a log raises ClosedError. A call of another
        thread, on any object of the store, ends with its result or with ClosedError; this waits for running calls, for each log
        and for the store 10 seconds at most. `close` of a consumer or producer of a closed store does nothing.

        Raises:
            StorageFailedError: a sync failed. Exceptions of listeners. Everything is closed anyway.
        """
        self._parts.close()


def open_directory(path: str, options: StoreOptions, fs: FileSystem, clock: Clock) -> Store:
    """Opens a directory, for `pylog.open`."""
    made = Store.__new__(Store)
    made._begin(StoreParts(path, options, fs, clock), options)
    return made


def manager_of(store: Store) -> LogManager:
    """Returns the log manager of a store, for commands, tools and Spark: they read partitions as the engine has them."""
    return store._manager


def clients_of(store: Store) -> OpenClients:
    """Returns the clients and transactions of a store, for Spark."""
    return store._clients
