"""Takes the samples of a store's metrics, of each partition and of each group's lag; and the table of its topics."""

from __future__ import annotations

from collections.abc import Iterator

from pylog.directory.topic_names import INTERNAL_TOPICS
from pylog.errors import ClosedError, NotALogDirectoryError, PylogError, UnknownTopicOrPartitionError
from pylog.log.partition_log import PartitionLog
from pylog.log.state import LogState
from pylog.log_manager import LogManager
from pylog.metrics import Sample
from pylog.notebook import ShownTable
from pylog.offsets.offset_manager import OffsetManager
from pylog.offsets.schema import OFFSETS_TOPIC
from pylog.record.types import TopicPartition
from pylog.topics.retention_text import retention_text
from pylog.topics.topic import Topic


def samples_of(manager: LogManager, offsets: OffsetManager) -> Iterator[Sample]:
    """All samples of a store. A partition that is deleted meanwhile, or whose directory is not there, has none.

    A partition or a group that cannot be read has a sample that says so, and hides nothing of the others.
    """
    ends: dict[TopicPartition, int] = {}
    faults = _faults_of_offsets(offsets)
    for topic in manager.topics().values():
        for number in topic.partition_ids:
            partition = TopicPartition(topic.name, number)
            yield from _partition_samples(manager, partition, faults.get(partition, (0, 0)), ends)
    yield from _group_samples(offsets, ends)
    yield Sample("background_failures", {}, manager.failures.count)


def _faults_of_offsets(offsets: OffsetManager) -> dict[TopicPartition, tuple[int, int]]:
    """Of partitions of `__consumer_offsets`: whether they cannot be read, and how many records are skipped there."""
    skipped = offsets.skipped_records()
    found = {TopicPartition(OFFSETS_TOPIC, number): (0, count) for number, (count, _) in skipped.items()}
    return found | {TopicPartition(OFFSETS_TOPIC, number): (1, 0) for number in offsets.known_groups()[1]}


def _partition_samples(
    manager: LogManager, partition: TopicPartition, faults: tuple[int, int], ends: dict[TopicPartition, int]
) -> Iterator[Sample]:
    """The samples of one partition, whose end is noted in `ends`."""
    unreadable, skipped = faults
    try:
        log = manager.log(*partition)
        state = log.snapshot()
        samples = list(_log_samples(log, state))
    except ClosedError:
        raise
    except (UnknownTopicOrPartitionError, NotALogDirectoryError):
        return
    except PylogError:
        yield Sample("log_unreadable", _labels(partition), 1)
        return
    ends[partition] = state.end_offset
    yield from samples
    yield Sample("log_unreadable", _labels(partition), max(unreadable, _is_damaged(log)))
    yield Sample("log_skipped_records", _labels(partition), skipped)


def _is_damaged(log: PartitionLog) -> bool:
    """Whether a part of the log is damaged, as far as that was found when it was opened."""
    return any(finding.kind in ("corrupt", "missing") for finding in log.recovery_report)


def _group_samples(offsets: OffsetManager, ends: dict[TopicPartition, int]) -> Iterator[Sample]:
    """How far groups are behind. A group whose own records cannot be read has no sample, and hides no other group."""
    for group in offsets.known_groups()[0]:
        try:
            committed = offsets.fetch(group)
        except ClosedError:
            raise
        except PylogError:
            continue
        for partition, each in committed.items():
            if partition in ends:
                yield Sample("group_lag", {"group": group, **_labels(partition)}, max(0, ends[partition] - each.offset))


def _log_samples(log: PartitionLog, state: LogState) -> Iterator[Sample]:
    counters, labels = log.counters, _labels(log.partition)
    values = {
        "log_start_offset": state.start_offset,
        "log_end_offset": state.end_offset,
        "log_durable_offset": state.durable_offset,
        "log_segments": len(state.segments),
        "log_size_bytes": sum(state.size_of(segment) for _, segment in state.segments),
        "log_appended_records": counters.records,
        "log_appended_bytes": counters.bytes,
        "log_commits": counters.commits,
        "log_syncs": counters.syncs,
        "log_sync_seconds": counters.sync_seconds,
    }
    for name, value in values.items():
        yield Sample(name, labels, value)


def _labels(partition: TopicPartition) -> dict[str, str]:
    return {"topic": partition.topic, "partition": str(partition.partition)}


def table_of(caption: str, manager: LogManager) -> ShownTable:
    """Returns a table of a store's topics for notebooks, without Kafka's internal ones. Cost: 2 ms a partition that is shown."""
    names = [topic for topic in manager.topics().values() if topic.name not in INTERNAL_TOPICS]
    rows = (_row_of(manager, topic) for topic in names)
    return ShownTable(
        caption, ["topic", "partitions", "offsets", "bytes", "retention"], rows, "only the first 50 topics are shown"
    )


def _row_of(manager: LogManager, topic: Topic) -> list[object]:
    sums: list[int | None]
    try:
        extents = [manager.outline(topic.name, number) for number in topic.partition_ids]
        sums = [sum(each.end_offset - each.start_offset for each in extents), sum(sum(each.sizes) for each in extents)]
    except PylogError:  # a partition is damaged, or is being created or deleted
        sums = [None, None]
    return [topic.name, topic.partition_count, *sums, retention_text(topic.config)]
