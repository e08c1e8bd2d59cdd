"""`Snapshot`: a consistent cut over partitions, as a value. `transactions.snapshots` takes it (transactions 9.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pylog.arguments import check_kind
from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from pylog.record.types import OffsetAndMetadata, TopicPartition
from pylog.text import counted


class OffsetsNow(NamedTuple):
    """The facts of a log that decide whether it still has all records of a snapshot.

    Attributes:
        topic_id: its topic's id; None if it has none.
        start_offset, end_offset: the log start and log end.
        truncated_to: the lowest offset that it was truncated to since the snapshot was taken.
        compacted_to: compaction has deleted records that others below this offset supersede.
        is_rewritten: compaction has replaced a segment since the snapshot was taken. It notes `compacted_to` only later, and
            never if its process dies before.
        is_compacted: the topic is compacted.
    """

    topic_id: str | None
    start_offset: int
    end_offset: int
    truncated_to: int
    compacted_to: int
    is_rewritten: bool = False
    is_compacted: bool = False


class SegmentFile(NamedTuple):
    """A segment's file. A file that replaces it may get its inode when that is free again, and is smaller then.

    Attributes:
        inode: the `.log` file's inode; 0 for a segment without one.
        size: in bytes, of what could be read.
    """

    inode: int
    size: int


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"


@dataclass(frozen=True, slots=True)
class PartitionCut:
    """One partition of a snapshot.

    Attributes:
        topic_id: the id of the partition's topic; None if it has none.
        start_offset, end_offset: the log start and log end.
        stable_offset: where `read_committed` reading would have ended.
        truncation_count: the number of truncations so far.
        left_out: the open transactions, by producer id: the offset of the first record. Their records are not in the snapshot.
        included: the same of transactions that were decided to commit, and had no marker in this partition yet.
        files: the files of a compacted topic's segments by base offset.
    """

    topic_id: str | None
    start_offset: int
    end_offset: int
    stable_offset: int
    truncation_count: int
    left_out: Mapping[int, int] = field(default_factory=dict)
    included: Mapping[int, int] = field(default_factory=dict)
    files: Mapping[int, SegmentFile] = field(default_factory=dict)

    def is_left_out(self, producer_id: int, offset: int) -> bool | None:
        """Returns whether a transactional record is left out; None if the marker of its transaction decides."""
        for known, answer in ((self.left_out, True), (self.included, False)):
            if producer_id in known and offset >= known[producer_id]:
                return answer
        return None

    def check(self, partition: TopicPartition, now: OffsetsNow) -> None:
        """Checks that a log still has all records of the snapshot.

        Args:
            partition: the log's partition.
            now: facts of the log.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted, and another one of its name was created.
            OffsetOutOfRangeError: retention, `delete_records`, a truncation or compaction has deleted some of them.
        """
        if None not in (now.topic_id, self.topic_id) and now.topic_id != self.topic_id:
            raise UnknownTopicOrPartitionError(
                f"the topic of {_name(partition)} was deleted after the snapshot was taken{_AGAIN}"
            )
        kept_to = min(now.end_offset, now.truncated_to)
        if now.start_offset > self.start_offset:
            self._refuse(partition, f"the records below offset {now.start_offset} were deleted", self.start_offset)
        if kept_to < self.end_offset:
            self._refuse(partition, f"the log was truncated to offset {kept_to}", kept_to)
        if now.compacted_to > self.end_offset:
            self._refuse(partition, f"the log was compacted up to offset {now.compacted_to}", self.start_offset)
        if now.is_rewritten:
            self._refuse(partition, "segments of the log were compacted", self.start_offset)
        if now.is_compacted and not self.files and self.start_offset < self.end_offset:
            self._refuse(partition, "the policy of its topic was changed to compact", self.start_offset)

    def _refuse(self, partition: TopicPartition, change: str, offset: int) -> None:
        held = f"the snapshot has the offsets {self.start_offset} to {self.end_offset - 1} of {_name(partition)}"
        raise OffsetOutOfRangeError(f"{held}, and since it was taken {change}{_AGAIN}", offset=offset)


_AGAIN = "; take another snapshot"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent cut over partitions: it has whole transactions only. Taken by `Store.snapshot`.

    A transaction is in the snapshot with all its records and committed offsets, or with none. If one transaction has read what
    another one wrote, the snapshot has not the first without the second. Records that were appended without a transaction are in
    it up to the end offset of their partition.

    A snapshot can be pickled, and used by other stores and processes that open the same directory. It holds no lock and keeps no
    files: retention, truncation and compaction may delete its records. Reading them then raises OffsetOutOfRangeError.

    Attributes:
        taken_ms: when it was taken, in milliseconds since 1970.
        cuts: its partitions.
        groups: committed offsets by group.
        has_all_groups: whether groups that are not in `groups` have no committed offsets.

    >>> import pylog, tempfile
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     _ = store.create_topic("orders")
    ...     _ = store.log("orders").append(b"paid")
    ...     snapshot = store.snapshot()
    ...     _ = store.log("orders").append(b"sent")
    ...     [record.value for record in store.log("orders").records(snapshot=snapshot)]
    [b'paid']
    """

    taken_ms: int
    cuts: Mapping[TopicPartition, PartitionCut]
    groups: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]] = field(default_factory=dict)
    has_all_groups: bool = False

    def __repr__(self) -> str:
        return f"Snapshot({counted(len(self.cuts), 'partition')}, taken_ms={self.taken_ms})"

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions, sorted."""
        return tuple(sorted(self.cuts))

    @property
    def end_offsets(self) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition. Records below it may be left out: those of open transactions."""
        return {partition: cut.end_offset for partition, cut in self.cuts.items()}

    @property
    def stable(self) -> dict[TopicPartition, int]:
        """The last stable offset of each partition: positions to consume on from.

        Without the promise of a snapshot: an open transaction hides the records after it in one partition, and not in others.
        """
        return {partition: cut.stable_offset for partition, cut in self.cuts.items()}

    def offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the committed offsets of a group, with those that the snapshot's transactions have committed.

        Args:
            group_id: the group's name.

        Returns:
            The offsets by partition; none for a group that has none.

        Raises:
            InvalidArgumentError: the snapshot was taken without this group.
        """
        check_kind("group_id", group_id, str, "a group's name")
        found = self.groups.get(group_id)
        if found is None and not self.has_all_groups:
            message = f"the snapshot was taken without the offsets of the group {group_id!r}"
            raise InvalidArgumentError(f"{message}; name it in `groups` when you take one")
        return dict(found or {})


def cut_given(snapshot: object, partition: TopicPartition) -> PartitionCut:
    """Returns the cut of a partition, of the snapshot that a caller has given."""
    if not isinstance(snapshot, Snapshot):
        raise InvalidArgumentError(f"snapshot={snapshot!r} is not a Snapshot; take one with `Store.snapshot`")
    found = snapshot.cuts.get(partition)
    if found is None:
        message = f"the snapshot does not have the partition {_name(partition)}; take one of its topic"
        raise UnknownTopicOrPartitionError(message)
    return found
