"""`Monitor`: takes the samples of a store's metrics, of each partition and of each group."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from pylog.errors import ClosedError, PylogError, UnknownTopicOrPartitionError
from pylog.fs.system_info import room_at
from pylog.groups.health import Health, Verdict
from pylog.groups.observer import GroupObserver, ObservedGroup
from pylog.groups.unread import UnreadRecords
from pylog.log.partition_log import PartitionLog
from pylog.log.state import LogState
from pylog.log_manager import LogManager
from pylog.metrics import Sample
from pylog.offsets.offset_manager import OffsetManager
from pylog.offsets.schema import OFFSETS_TOPIC
from pylog.record.types import TopicPartition

_DISTRIBUTION: Final = "pylogdb"  # the name on the package index
GROUP_STATES: Final = ("Empty", "Stable", "Assigning", "Reconciling")
VERDICTS: Final = tuple(each for each in Verdict if each is not Verdict.ERR)  # that one is Burrow's


class Monitor:
    """Takes samples. Keeps open what it reads, so that a second call reads only what has changed.

    Args:
        manager, offsets: the store's manager and offsets.
    """

    def __init__(self, manager: LogManager, offsets: OffsetManager) -> None:
        self._manager = manager
        self._offsets = offsets
        self._guard = threading.Lock()
        self._observer: GroupObserver | None = None

    def samples(self, *, counters: bool = True) -> list[Sample]:
        """Returns all samples. A partition that is deleted meanwhile, or whose directory is not there, has none.

        A partition or a group that cannot be read has a sample that says so, and hides nothing of the others.

        Args:
            counters: false to leave out what this process has counted of each log.
        """
        with self._guard:
            if self._observer is None:
                self._observer = GroupObserver(self._manager, self._offsets)
            else:
                self._observer.observe()
            return list(self._samples(self._observer, counters=counters))

    def _samples(self, observer: GroupObserver, *, counters: bool) -> Iterator[Sample]:
        names, damaged = self._offsets.known_groups()
        groups = list(self._groups(observer, names))  # before the logs are refreshed: a commit is never past the end then
        faults = self._faults_of_offsets(damaged)
        for topic in observer.topics.values():
            for number in topic.partition_ids:
                partition = TopicPartition(topic.name, number)
                yield from _partition_samples(observer, partition, faults.get(partition, (0, 0)), counters=counters)
        for name, state in groups:
            yield from _of_group(observer, name, state)
        yield Sample("background_failures", {}, self._manager.failures.count)
        for kind, count in self._manager.tiers.requests().items():
            is_size = kind in ("sent", "received")
            yield Sample(f"archive_{kind}_bytes", {}, count) if is_size else Sample("archive_requests", {"request": kind}, count)
        yield from _noted_samples(self._manager)
        free = room_at(self._manager.path)
        if free is not None:
            yield Sample("store_free_bytes", {}, free[0])
        with suppress(PackageNotFoundError):  # pylog may be imported from a folder
            yield Sample("build_info", {"version": version(_DISTRIBUTION)}, 1)

    def _faults_of_offsets(self, damaged: Iterable[int]) -> dict[TopicPartition, tuple[int, int]]:
        """Yields, for partitions of `__consumer_offsets`, whether they cannot be read, and how many records are skipped there."""
        skipped = self._offsets.skipped_records()
        found = {TopicPartition(OFFSETS_TOPIC, number): (0, count) for number, (count, _) in skipped.items()}
        return found | {TopicPartition(OFFSETS_TOPIC, number): (1, 0) for number in damaged}

    def _groups(self, observer: GroupObserver, names: Iterable[str]) -> Iterator[tuple[str, ObservedGroup]]:
        """Yields the groups. A group whose own records cannot be read has no sample, and hides no other group."""
        for name in names:
            try:
                found = observer.group(name)
            except ClosedError:
                raise
            except PylogError:
                continue
            if found is not None:
                yield name, found


def _noted_samples(manager: LogManager) -> Iterator[Sample]:
    """Yields the samples of deletions that concern the archive; none in a store without one."""
    try:
        noted = manager.tiers.notes()
    except PylogError:  # each tick raises it, and `background_failures` counts that
        return
    if noted is not None:
        yield Sample("archive_waiting_partitions", {}, noted.waiting)
        yield Sample("archive_unfinished_deletions", {}, len(noted.unfinished))
        yield Sample("archive_deletion_failures", {}, noted.failures)


def _partition_samples(
    observer: GroupObserver, partition: TopicPartition, faults: tuple[int, int], *, counters: bool
) -> Iterator[Sample]:
    labels = {"topic": partition.topic, "partition": str(partition.partition)}
    unreadable, skipped = faults
    try:
        found = observer.unread(partition)
        samples = None if found is None else list(_log_samples(found, labels, counters=counters))
    except ClosedError:
        raise
    except UnknownTopicOrPartitionError:  # deleted meanwhile
        return
    except PylogError:
        yield Sample("log_unreadable", labels, 1)
        return
    if found is not None and samples is not None:
        yield from samples
        yield Sample("log_unreadable", labels, max(unreadable, int(bool(found.losses))))
        yield Sample("log_skipped_records", labels, skipped)


def _log_samples(found: UnreadRecords, labels: dict[str, str], *, counters: bool) -> Iterator[Sample]:
    log, state = found.log, found.state
    values = {
        "log_start_offset": state.start_offset,
        "log_end_offset": state.end_offset,
        "log_durable_offset": state.durable_offset,
        "log_stable_offset": found.stable_offset(),
        "log_segments": len(state.segments),
        "log_size_bytes": sum(state.size_of(segment) for _, segment in state.segments),
        **(_counted(log) if counters else {}),
    }
    for name, value in values.items():
        yield Sample(name, labels, value)
    if log.counters.last_append_ms:
        yield Sample("log_last_append_timestamp_seconds", labels, log.counters.last_append_ms / 1000)
    if log.config.is_compacted:
        yield Sample("log_dirty_ratio", labels, log.to_clean().ratio)
    yield from (Sample(name, labels, value) for name, value in _tier_values(log, state).items())
    newest = max((segment.largest_timestamp() for segment in state.segments.values()[-2:]), default=-1)
    if newest >= 0 and state.start_offset < state.end_offset:
        yield Sample("log_newest_timestamp_seconds", labels, newest / 1000)


def _tier_values(log: PartitionLog, state: LogState) -> dict[str, float]:
    """Returns the samples of a log that has an archive; none of other logs. Sends no request."""
    found = log.tiers.facts()
    if found is None:
        return {}
    seen, waiting = found
    local, first = state.local or state, waiting[0] if waiting else None
    appended_ms = 0 if first is None else first.appends.file_ms
    return {
        "log_local_start_offset": local.start_offset,
        "log_local_size_bytes": sum(local.size_of(segment) for _, segment in local.segments),
        "log_archived_end_offset": seen.archived_end,
        "log_archived_size_bytes": seen.archived_bytes,
        "log_upload_lag_bytes": sum(segment.size for segment in waiting),
        "log_upload_lag_seconds": 0 if first is None else max(0, log.clock.now_ms() - appended_ms) / 1000,
        "log_uploaded_segments": seen.uploaded_segments,
        "log_uploaded_bytes": seen.uploaded_bytes,
        "log_upload_failures": seen.failures,
        "log_retired_segments": seen.retired_segments,
    }


def _counted(log: PartitionLog) -> dict[str, float]:
    """Returns what this process has counted."""
    counters = log.counters
    return {
        "log_appended_records": counters.records,
        "log_appended_bytes": counters.bytes,
        "log_commits": counters.commits,
        "log_syncs": counters.syncs,
        "log_sync_seconds": counters.sync_seconds,
        "log_fetched_records": log.fetches.records,
        "log_fetched_bytes": log.fetches.bytes,
        "log_deleted_segments": counters.deleted_segments,
        "log_deleted_bytes": counters.deleted_bytes,
        "log_compactions": counters.compactions,
        "log_compacted_records": counters.compacted_records,
        "log_recoveries": counters.recoveries,
        "log_recovered_bytes": counters.recovered_bytes,
    }


def _of_group(observer: GroupObserver, name: str, state: ObservedGroup) -> list[Sample]:
    """Returns the samples of a group; none if its commits cannot be read."""
    try:
        return list(_group_samples(name, state, observer.health(name, state)))
    except ClosedError:
        raise
    except PylogError:
        return []


def _group_samples(name: str, state: ObservedGroup, health: Health) -> Iterator[Sample]:
    own = {"group": name}
    yield Sample("group_members", own, len(state.group.members))
    yield from _assignments(name, state)
    last = max((each.commit_timestamp or 0 for each in state.offsets.values()), default=0)
    if last > 0:
        yield Sample("group_last_commit_timestamp_seconds", own, last / 1000)
    yield from (Sample("group_state", {**own, "state": each}, int(each == state.group.state)) for each in GROUP_STATES)
    yield from (Sample("group_verdict", {**own, "verdict": str(each)}, int(each is health.verdict)) for each in VERDICTS)
    for row in health.partitions:
        labels = {"group": name, "topic": row.partition.topic, "partition": str(row.partition.partition)}
        yield Sample("group_offset", labels, row.offset)
        if row.lag is not None:
            yield Sample("group_lag", labels, row.lag)
        if row.lag_records is not None:
            yield Sample("group_lag_records", labels, row.lag_records)
        if row.lag_seconds is not None:
            yield Sample("group_lag_seconds", labels, row.lag_seconds)


def _assignments(name: str, state: ObservedGroup) -> Iterator[Sample]:
    """Yields how many members and partitions of each topic a group has, and how many members have nothing to read."""
    members, own = state.group.members, {"group": name}
    yield Sample("group_empty_members", own, sum(not member.assignment for member in members))
    assigned = Counter(partition.topic for member in members for partition in member.assignment)
    readers = Counter(topic for member in members for topic in {partition.topic for partition in member.assignment})
    for topic, count in sorted(assigned.items()):
        yield Sample("group_topic_members", {**own, "topic": topic}, readers[topic])
        yield Sample("group_assigned_partitions", {**own, "topic": topic}, count)
