"""Takes snapshots: consistent cuts over partitions, without a lock (transactions 9.3).

An attempt reads the states of all transactional ids, then the partitions, then the states again. If no transaction was decided to
commit between the two readings of the states, the snapshot has the transactions that were decided by then: also one whose marker
is still missing in a partition, because its decision is what counts. Otherwise another attempt follows. If attempts fail for
`TIMEOUT_MS`, a store that is open for writing locks the states during the next ones, so that decisions wait for it.

A transaction of one batch is decided by the batch, and not by a state. If it was open at the first reading, the records that have
come to its partition since then are looked through at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

from pylog.arguments import items_of
from pylog.config import OffsetsConfig, TransactionsConfig
from pylog.directory.topic_names import INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC, check_topic_name
from pylog.errors import CorruptionError, PylogTimeoutError, StorageFailedError, UnknownTopicOrPartitionError
from pylog.fs import join
from pylog.log.partition_log import PartitionLog
from pylog.log.reading.good_batches import OffsetRange, good_batches
from pylog.log.state import LogState
from pylog.log_manager import LogManager
from pylog.offsets.arguments import checked_group
from pylog.offsets.image import Image
from pylog.offsets.partition import OffsetsPartition
from pylog.offsets.schema import OFFSETS_TOPIC, group_name, parse_offset, parse_partition_key
from pylog.offsets.topic import OffsetsTopic
from pylog.record.format import PRODUCER_EPOCH, PRODUCER_ID
from pylog.record.types import OffsetAndMetadata, OpenTransaction, TopicPartition
from pylog.segment.names import DURABLE_POINT, LOG, file_name
from pylog.segment.segment import vanished
from pylog.snapshot import PartitionCut, SegmentFile, Snapshot
from pylog.topics.catalog import CATALOG, CATALOGS
from pylog.topics.listing import find_topics
from pylog.topics.signs import META_PROPERTIES
from pylog.topics.topic import Topic
from pylog.transactions.image import TransactionsImage
from pylog.transactions.metadata import TransactionMetadata
from pylog.transactions.states import last_transaction
from pylog.transactions.topic import TransactionsPartition, TransactionsTopic

TIMEOUT_MS: Final = 100  # after the first attempt, which opens the logs
_NAP_S: Final = 0.0002
_TRIES: Final = 20  # to read a partition of `__consumer_offsets` between two appends


class _Decisions(NamedTuple):
    """The decisions of the transactional ids at a moment.

    Attributes:
        token: another one after each decision to commit.
        prepared: the committed transactions that may lack markers, and whether a power loss would keep the decision.
        singles: the open transactions of one batch. The batch commits them, and may be written at any moment.
    """

    token: list[tuple[TransactionsImage, int]]
    prepared: dict[str, tuple[TransactionMetadata, bool]]
    singles: list[TransactionMetadata]

    def is_followed_by(self, later: _Decisions) -> bool:
        """Returns whether nothing was decided between the two."""
        return len(self.token) == len(later.token) and all(
            mine is its and count == now for (mine, count), (its, now) in zip(self.token, later.token, strict=True)
        )

    def included(self, later: _Decisions, seen: Mapping[TopicPartition, LogState]) -> list[TransactionMetadata]:
        """Returns the transactions to include where their markers are missing.

        One whose decision is not durable yet has no marker anywhere, and a power loss may still take it back. After a power loss,
        a store that is open for reading may not know that a decision is durable. A marker shows that it is.

        Args:
            later: the decisions after the partitions were read.
            seen: the partitions.
        """
        undurable = {name: state.identity for name, (state, is_durable) in later.prepared.items() if not is_durable}
        return [
            state
            for name, (state, _) in self.prepared.items()
            if undurable.get(name) != state.identity or _has_marker(state, seen)
        ]


class _TopicList(NamedTuple):
    """The topics of the directory, and a value that changes with them."""

    token: object
    by_name: Mapping[str, Topic]


class _PendingOffset(NamedTuple):
    """An offset that an open transaction would commit.

    Attributes:
        record_offset: the offset of its record.
        transaction: the open transaction. Its producer id alone would not do: the next transaction of an id has the same one.
        log: the partition of `__consumer_offsets` in which the transaction is open.
        partition, committed: the offset.
    """

    record_offset: int
    transaction: OpenTransaction
    log: TopicPartition
    partition: TopicPartition
    committed: OffsetAndMetadata


class _GroupRead(NamedTuple):
    """One group in `__consumer_offsets`: its committed offsets, and those that are pending, in the order of their records."""

    committed: dict[TopicPartition, OffsetAndMetadata]
    pending: list[_PendingOffset]


class SnapshotTaker:
    """Takes the snapshots of a store. Every method may be called from any thread.

    It has images of its own of the internal topics: those of the writers are locked while they append.

    Args:
        manager: the store's manager.
        transactions, offsets: the store's options.
    """

    def __init__(self, manager: LogManager, transactions: TransactionsConfig, offsets: OffsetsConfig) -> None:
        self._manager = manager
        self._states = TransactionsTopic(manager, transactions, manager.clock)
        self._offsets = OffsetsTopic(manager, offsets, manager.fs)
        self._logs: dict[TopicPartition, PartitionLog] = {}  # of a store that is open for reading
        self._known = _TopicList(None, {})
        self._unwritten: dict[str, object] = {}  # what was read of a partition that no pylog has written to, by its directory

    def take(self, topics: Iterable[str] | None, groups: Iterable[str] | None) -> Snapshot:
        """See `Store.snapshot`."""
        wanted = None if topics is None else [check_topic_name(each) for each in items_of("topics", topics, "names")]
        asked = None if groups is None else [checked_group(each) for each in items_of("groups", groups, "names")]
        self._manager.gate.check()
        clock, deadline = self._manager.clock, None
        while (found := self._attempt(wanted, asked)) is None:
            now = clock.monotonic()
            deadline = now + TIMEOUT_MS / 1000 if deadline is None else deadline
            if now >= deadline:
                return self._last_attempt(wanted, asked)
            clock.sleep(_NAP_S)
        return found

    def _last_attempt(self, wanted: list[str] | None, asked: list[bytes] | None) -> Snapshot:
        """Takes a snapshot while no transaction can be decided, where the store may lock the states."""
        with ExitStack() as locked:
            for partition in self._states.all_partitions() if self._manager.writable else ():
                if not self._is_unwritten(partition.directory):
                    locked.enter_context(partition.exclusively())
            attempts = (self._attempt(wanted, asked) for _ in range(_TRIES))  # transactions of one batch may still be written
            found = next((each for each in attempts if each is not None), None)
        if found is None:
            message = f"{self._manager.path}: other programs kept committing transactions, so no snapshot was complete"
            raise PylogTimeoutError(f"{message} within {TIMEOUT_MS} ms; try again, or open the store for writing")
        return found

    def _attempt(self, wanted: list[str] | None, asked: list[bytes] | None) -> Snapshot | None:
        """Returns a snapshot; None if transactions were committed, or topics changed, meanwhile."""
        topics = self._topics()
        taken_ms = self._manager.clock.now_ms()
        before = self._decisions(topics)
        partitions = list(_partitions_of(topics, wanted, self._manager.path))
        files = {key: self._files_of(key) for key in partitions if topics.by_name[key.topic].config.is_compacted}
        seen = dict(self._seen(partitions))  # after the files: a reader notices a file that is replaced from now on
        groups = self._groups(topics, asked)
        after = self._decisions(topics)
        if groups is None or any(_has_more_segments(state, files[key]) for key, state in seen.items() if key in files):
            return None
        if not before.is_followed_by(after) or self._topics().token != topics.token:
            return None
        if any(self._was_written_meanwhile(single, seen) for single in before.singles):
            return None
        included = before.included(after, seen)
        cuts = {key: _cut(key, state, topics.by_name[key.topic].id, included, files.get(key, {})) for key, state in seen.items()}
        offsets = {group_name(name): _with_pending(group, included) for name, group in groups.items()}
        return Snapshot(taken_ms, cuts, offsets, has_all_groups=asked is None)

    # ---- topics and partitions -------------------------------------------------------------------------------------------------

    def _topics(self) -> _TopicList:
        """Returns the topics. In a directory of pylog's own each change of them is a change of the catalog."""
        fs, path = self._manager.fs, self._manager.path
        is_brokers = fs.exists(join(path, META_PROPERTIES))
        data = None if is_brokers else CATALOGS.fetch(fs, join(path, CATALOG))
        known = self._known
        if data is not None and known.token == data:
            return known
        by_name = find_topics(fs, path)
        found = _TopicList({name: topic.partition_ids for name, topic in by_name.items()} if data is None else data, by_name)
        self._known, self._unwritten = found, {}
        return found

    def _seen(self, partitions: Iterable[TopicPartition]) -> Iterator[tuple[TopicPartition, LogState]]:
        for key in partitions:
            state = self._state_now(key)
            if state is not None:
                yield key, state

    def _state_now(self, key: TopicPartition) -> LogState | None:
        """Returns the state of a log; None if it is not created yet, or was just deleted."""
        for _ in range(2):  # the first answer may be that of a log in whose place another process has created a new one
            with suppress(UnknownTopicOrPartitionError):
                return self._state_of(key)
        return None

    def _files_of(self, key: TopicPartition) -> dict[int, SegmentFile]:
        """Returns the files of a log's segments by base offset."""
        try:
            log = self._log(key)
            state = log.snapshot()
            inodes = {entry.name: entry.inode for entry in self._manager.fs.list(log.directory, sizes=LOG)}
        except UnknownTopicOrPartitionError:  # not created yet, or just deleted
            return {}
        except StorageFailedError as error:
            if not vanished(error):
                raise
            return {}  # deleted between the two
        return {base: SegmentFile(inodes.get(file_name(base, LOG), 0), state.size_of(each)) for base, each in state.segments}

    def _state_of(self, key: TopicPartition) -> LogState:
        log = self._log(key)
        unwritten = self._is_unwritten(log.directory)  # before the state is read
        known = self._unwritten.get(log.directory)
        if unwritten and isinstance(known, LogState):
            return known
        state = log.snapshot(committed=True)
        if unwritten:
            self._unwritten[log.directory] = state
        return state

    def _is_unwritten(self, directory: str) -> bool:
        """Returns whether no pylog has written to a partition, so that in a directory of pylog's own it stays as it was read."""
        known = self._known
        return (
            known is not None and isinstance(known.token, bytes) and not self._manager.fs.exists(join(directory, DURABLE_POINT))
        )

    def _log(self, key: TopicPartition) -> PartitionLog:
        if self._manager.writable:
            return self._manager.known_log(key)
        log = self._logs.get(key)
        if log is None or log.is_deleted:
            log = self._logs[key] = self._manager.log(*key)
        return log

    # ---- decisions -------------------------------------------------------------------------------------------------------------

    def _decisions(self, topics: _TopicList) -> _Decisions:
        found = _Decisions([], {}, [])
        topic = topics.by_name.get(TRANSACTION_STATE_TOPIC)
        for number in () if topic is None else topic.partition_ids:
            with suppress(UnknownTopicOrPartitionError):  # not created yet: it has no records
                partition = self._states.partition(number)
                self._take_decisions(partition, found)
        return found

    def _take_decisions(self, partition: TransactionsPartition, into: _Decisions) -> None:
        unwritten = self._is_unwritten(partition.directory)  # before the records are read
        known = self._unwritten.get(partition.directory)
        if unwritten and isinstance(known, TransactionsImage):
            into.token.append((known, known.decisions))
            return
        with partition.image() as image:
            if unwritten and not len(image):
                self._unwritten[partition.directory] = image
            for name, fault in image.faults().items():
                message = f"{partition.directory}: whether the transactional id {name!r} commits is unknown: {fault}"
                raise CorruptionError(message, path=partition.directory)
            into.token.append((image, image.decisions))
            into.prepared.update(partition.prepared_commits(image))
            into.singles.extend(partition.open_singles(image))

    def _was_written_meanwhile(self, single: TransactionMetadata, seen: Mapping[TopicPartition, LogState]) -> bool:
        """Returns whether the batch of a transaction came after its partition was looked at. Others may have read it since."""
        (key,) = single.partitions
        if key not in seen:
            return False
        now = self._state_of(key)
        for batches in good_batches(now, OffsetRange(seen[key].end_offset, now.end_offset)):
            of_it = (batches.table[PRODUCER_ID] == single.producer_id) & (batches.table[PRODUCER_EPOCH] == single.producer_epoch)
            if of_it.any():
                return True
        return False

    # ---- groups ----------------------------------------------------------------------------------------------------------------

    def _groups(self, topics: _TopicList, asked: Collection[bytes] | None) -> dict[bytes, _GroupRead] | None:
        """Returns the groups; None if records were appended all the time while transactions had pending offsets."""
        found: dict[bytes, _GroupRead] = {name: _GroupRead({}, []) for name in asked or ()}
        if asked is not None and not asked:
            return found
        topic = topics.by_name.get(OFFSETS_TOPIC)
        for number in () if topic is None else topic.partition_ids:
            with suppress(UnknownTopicOrPartitionError):  # not created yet: it has no records
                partition = self._offsets.partition(number)
                if not any(self._take_groups(partition, asked, found) for _ in range(_TRIES)):
                    return None
        return found

    def _take_groups(self, partition: OffsetsPartition, asked: Collection[bytes] | None, into: dict[bytes, _GroupRead]) -> bool:
        unwritten = self._is_unwritten(partition.directory)  # before the records are read
        if unwritten and partition.directory in self._unwritten:
            return True  # it has no records
        with partition.image() as image:
            if unwritten and not image.groups:
                self._unwritten[partition.directory] = image
            names = image.groups if asked is None else [name for name in asked if name in image.groups]
            opened = partition.open_transactions() if image.pending else ()
            if opened is None:
                return False
            log = TopicPartition(OFFSETS_TOPIC, partition.number)
            into.update({name: _group_of(image, name, log, opened) for name in list(names)})
        return True


def _partitions_of(topics: _TopicList, wanted: list[str] | None, path: str) -> Iterator[TopicPartition]:
    names = [name for name in topics.by_name if name not in INTERNAL_TOPICS] if wanted is None else wanted
    for name in dict.fromkeys(names):
        topic = topics.by_name.get(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"{path} has no topic {name!r}", path=path)
        for number in topic.partition_ids:
            yield TopicPartition(name, number)


def _has_more_segments(state: LogState, files: Mapping[int, SegmentFile]) -> bool:
    """Returns whether a log has rolled since its files were looked up."""
    return any(base not in files for base, _ in state.segments)


def _cut(
    key: TopicPartition,
    state: LogState,
    topic_id: str | None,
    included: list[TransactionMetadata],
    files: Mapping[int, SegmentFile],
) -> PartitionCut:
    kept, taken = dict[int, int](), dict[int, int]()
    for found in state.open_transactions:
        into = taken if any(_is_of(found, each, key) for each in included) else kept
        into[found.producer_id] = found.first_offset
    ends = state.start_offset, state.end_offset, state.stable_offset
    return PartitionCut(topic_id, *ends, state.truncation_count, kept, taken, files)


def _is_of(found: OpenTransaction, prepared: TransactionMetadata, partition: TopicPartition) -> bool:
    """Returns whether an open transaction of a partition is the one that an id has decided to commit."""
    return partition in prepared.partitions and last_transaction(prepared) == (found.producer_id, found.epoch)


def _has_marker(prepared: TransactionMetadata, seen: Mapping[TopicPartition, LogState]) -> bool:
    """Returns whether a prepared transaction is not open any more in one of its partitions: all of them have data of it."""
    states = [(key, seen[key]) for key in prepared.partitions if key in seen]
    return any(not any(_is_of(found, prepared, key) for found in state.open_transactions) for key, state in states)


def _group_of(image: Image, name: bytes, log: TopicPartition, opened: Iterable[OpenTransaction]) -> _GroupRead:
    group, pending = image.groups[name], list[_PendingOffset]()
    for transaction in opened:
        for (owner, key), entry in image.pending.get(transaction.producer_id, {}).items():
            committed = group.entries.get(key)
            if owner == name and (committed is None or committed.record_offset < entry.record_offset):
                offset = parse_offset(entry.value).committed
                pending.append(_PendingOffset(entry.record_offset, transaction, log, parse_partition_key(key), offset))
    return _GroupRead(dict(group.offsets()), sorted(pending, key=lambda each: each.record_offset))


def _with_pending(group: _GroupRead, included: list[TransactionMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets of a group with those that some transactions have committed."""
    for pending in group.pending:
        if any(_is_of(pending.transaction, each, pending.log) for each in included):
            group.committed[pending.partition] = pending.committed
    return group.committed
