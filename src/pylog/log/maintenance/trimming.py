"""The steps that shorten a log: at its start for retention and `delete_records`, at its end for `truncate` (reliability 4).

All steps run under the partition's lock, between an odd and an even epoch of the header. A crash after any step leaves files that
loading handles: files are renamed before they are removed, and numbers are lowered durably first.

No file that a reader may have mapped is changed: segments are renamed and unlinked, and a sealed one that must become shorter is
copied and replaced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from itertools import groupby, islice
from typing import NamedTuple

import numpy as np

from pylog import trace
from pylog.config import TopicConfig
from pylog.fs import join, left_out_if_full, remove_derived
from pylog.index import kinds
from pylog.index.transaction_index import ENTRY_SIZE as TRANSACTION_ENTRY_SIZE
from pylog.log.maintenance.retention_policy import Decision, Reason, RetainedSegment, deletable
from pylog.log.recovery.loaded import Source
from pylog.log.state import LogState, SegmentView
from pylog.log.writing.pending_deletions import PendingDeletions
from pylog.log.writing.undecided import open_from
from pylog.log.writing.writer import LogWriter
from pylog.record.format import LAST_OFFSET, POSITION
from pylog.record.types import TopicPartition
from pylog.segment.age import examine as examine_age
from pylog.segment.age import is_older
from pylog.segment.header_digest import digest_of
from pylog.segment.names import DELETED, SEAL, SNAPSHOT, TEMPORARY, TRANSACTION_INDEX, files_of, parse
from pylog.segment.segment import LogSegment, inode_of

# ---- at the start ------------------------------------------------------------------------------------------------------------


def raise_start(writer: LogWriter, source: Source, offset: int, reason: str) -> None:
    """Raises the log start; deletes no bytes. The checkpoint, which is authoritative, is written first.

    On a full disk it is left out where the log start is that of a segment.
    """
    assert source.root_lock is not None
    state, first = writer.state, writer.state.segments.first
    old = state.whole_start
    if offset > writer.state.durable_offset:
        writer.flush()  # the log start must not be past the durable end
    with source.root_lock.entered(), left_out_if_full(_is_plain_start(writer, source, offset)):
        source.log_starts.update({source.partition: offset})
    writer.published.begin_change(log_start_offset=offset)
    writer.epochs.truncate_from_start(offset)
    writer.published.end_change()
    is_remote = first is not None and offset < first[0]  # in a tiered log
    writer.published.change(start_offset=max(offset, state.start_offset), remote_start=offset if is_remote else None)
    trace.later(trace.START_RAISED, source.partition, old=old, new=offset, reason=reason)


def _is_plain_start(writer: LogWriter, source: Source, offset: int) -> bool:
    """Returns whether the checkpoint is optional for a log start: without an entry a log begins with its first segment.

    In a broker's directory an entry below the first segment would mean that remote storage has the other records.
    """
    found = writer.state.segments.floor(offset)
    if found is None or found[0] != offset:
        return False
    return source.log_start_line is None or source.is_own()


class Retained(NamedTuple):
    """The segments that retention deletes from one partition.

    Attributes:
        partition: the partition.
        reasons: why each segment is deleted, oldest first: `start_offset`, `size`, `time` or `group_bytes`.
        bytes: in the `.log` files of these segments.
        start_offset: the log start offset before.
        new_start_offset: the log start offset afterwards.
    """

    partition: TopicPartition
    reasons: tuple[Reason, ...]
    bytes: int
    start_offset: int
    new_start_offset: int

    @property
    def segments(self) -> int:
        """The number of deleted segments."""
        return len(self.reasons)

    def of_nothing(self) -> Retained:
        """Returns a result without deletions."""
        return self._replace(reasons=(), bytes=0, new_start_offset=self.start_offset)


def planned(
    source: Source,
    state: LogState,
    now_ms: int,
    committed: int | None,
    config: TopicConfig | None = None,
    kept_from: int | None = None,
) -> Retained:
    """Returns the segments that retention would delete from a log.

    Args:
        source, state: the log.
        now_ms: wall clock.
        committed: the committed offset of the topic's `retention_group`, or None. An offset past the log end belongs to a log
            that was truncated or created again, and counts as None.
        config: the topic's options; by default, those of the log.
        kept_from: as for `decide`.
    """
    return plan_of(source, state, decide(state, config or source.config, now_ms, committed, kept_from))


def apply_retention(
    writer: LogWriter, source: Source, pending: PendingDeletions, now_ms: int, committed: int | None, *, only_start: bool = False
) -> Retained:
    """Deletes the segments that retention does not keep.

    Args:
        writer, source, pending: the log's writer and segments, and its pending deletions.
        now_ms: wall clock.
        committed: as for `planned`.
        only_start: true to delete only segments below the log start.
    """
    config = dataclasses.replace(source.config, retention_ms=-1, retention_bytes=-1) if only_start else source.config
    decision = decide(
        writer.state, config, now_ms, committed, None if only_start else open_from(writer.producers.open_producers(), now_ms)
    )
    plan = plan_of(source, writer.state, decision)
    if decision.count:
        if decision.roll_first:
            writer.roll()
        _delete_oldest(writer, source, pending, decision)
        pending.sweep()
        writer.epochs.complete()
    return plan


def plan_of(source: Source, state: LogState, decision: Decision) -> Retained:
    """Returns what a decision deletes from a log."""
    deleted = [segment for _, segment in islice(state.segments, decision.count)]
    size, start = sum(map(state.size_of, deleted)), state.start_offset
    return Retained(source.partition, decision.reasons, size, start, max(start, decision.new_start_offset))


def decide(state: LogState, config: TopicConfig, now_ms: int, committed: int | None, kept_from: int | None) -> Decision:
    """Returns the segments that retention would delete by a topic's options. As `planned`.

    Deletes nothing if the first records are in remote storage: only the broker knows which local segments are copied.

    Args:
        state, config: the log's state and config.
        now_ms, committed: as for `planned`.
        kept_from: an offset from which all records are kept, because a transaction is open there; None without one.
    """
    if state.remote_offsets:
        return Decision((), False, state.start_offset)
    sizes = [(segment, state.size_of(segment)) for _, segment in state.segments]
    for segment, _ in sizes:
        segment.appends.last(now_ms)  # read now, to notice an impossible file time before earlier segments are deleted
    facts = [RetainedSegment(segment.base_offset, size, partial(is_older, segment, size)) for segment, size in sizes]
    limit = state.end_offset if kept_from is None else kept_from
    ends = {"start_offset": state.start_offset, "end_offset": state.end_offset, "high_watermark": limit}
    known = None if committed is not None and committed > state.end_offset else committed
    return deletable(facts, config, **ends, now_ms=now_ms, committed=known)


def examine(state: LogState, config: TopicConfig, now_ms: int) -> None:
    """Reads the timestamps that decide what retention deletes, so that appends need not wait while they are read.

    The segments keep the result. Under the locks only what has been appended since is read.
    """
    if config.retention_ms < 0 or "delete" not in config.cleanup_policy.split(",") or state.remote_offsets:
        return
    for _, segment in state.segments:
        if not examine_age(segment, state.size_of(segment), config.retention_ms, now_ms):
            return


class Retirement(NamedTuple):
    """Local segments that are deleted because the archive has them.

    Attributes:
        segments: how many, the oldest.
        reason, limit: `local_retention_ms` or `local_retention_bytes`, and its value.
    """

    segments: int
    reason: str
    limit: int


def retire(writer: LogWriter, source: Source, pending: PendingDeletions, plan: Sequence[Retirement]) -> None:
    """Deletes the oldest local segments, which are in the archive. The log start stays."""
    assert source.root_lock is not None
    state = writer.state
    start = state.whole_start
    deleted = [segment for _, segment in islice(state.segments, sum(each.segments for each in plan))]
    kept = [item for item in state.segments if item[1] not in deleted]
    with source.root_lock.entered():  # the sign that records before the first segment are not lost
        source.log_starts.update({source.partition: start})
    writer.published.begin_change(log_start_offset=start)
    _rename_away(source, pending, deleted)
    writer.published.end_change()
    _trace_retired(source.partition, state, plan)
    local_start = max(state.start_offset, kept[0][0])
    remote_start = start if start < kept[0][0] else None
    writer.published.change(segments=SegmentView(kept), start_offset=local_start, remote_start=remote_start)
    pending.sweep()


def _trace_retired(partition: TopicPartition, state: LogState, plan: Sequence[Retirement]) -> None:
    segments = iter(state.segments.values())
    for part in plan:
        for segment in islice(segments, part.segments):
            facts = {"first": segment.base_offset, "end": state.end_of(segment), "bytes": state.size_of(segment)}
            trace.later(trace.SEGMENT_RETIRED, partition, **facts, reason=part.reason, **{part.reason: part.limit})


def _delete_oldest(writer: LogWriter, source: Source, pending: PendingDeletions, decision: Decision) -> None:
    deleted = [segment for _, segment in islice(writer.state.segments, decision.count)]
    start = max(decision.new_start_offset, writer.state.start_offset)
    if start > writer.state.start_offset:
        raise_start(writer, source, start, "retention")
    deletions = _deletions(writer.state, source.config, decision, deleted)
    writer.published.begin_change()
    _rename_away(source, pending, deleted)
    writer.published.end_change()
    for facts in deletions:
        trace.later(trace.SEGMENTS_DELETED, source.partition, **facts)
    kept = [item for item in writer.state.segments if item[1] not in deleted]
    writer.published.change(segments=SegmentView(kept))


def _deletions(
    state: LogState, config: TopicConfig, decision: Decision, deleted: Sequence[LogSegment]
) -> list[dict[str, object]]:
    """Yields the facts for log lines: one for each range of deleted segments with the same reason."""
    if not trace.wanted(trace.SEGMENTS_DELETED):
        return []
    found: list[dict[str, object]] = []
    at = 0
    for reason, members in groupby(decision.reasons):
        segments = deleted[at : (at := at + len(list(members)))]
        following = deleted[at].base_offset if at < len(deleted) else max(decision.new_start_offset, segments[-1].base_offset)
        facts = {
            "first": segments[0].base_offset,
            "end": following,
            "segments": len(segments),
            "bytes": sum(map(state.size_of, segments)),
            "newest": max(segment.largest_timestamp() for segment in segments),
            "reason": reason.value,
        }
        found.append(facts | _limit(reason, config))
    return found


def _limit(reason: Reason, config: TopicConfig) -> dict[str, object]:
    """Returns the option that a reason comes from, and its value."""
    names = {Reason.SIZE: "retention_bytes", Reason.TIME: "retention_ms", Reason.GROUP_BYTES: "retention_group_max_bytes"}
    return {names[reason]: getattr(config, names[reason])} if reason in names else {}


def _rename_away(source: Source, pending: PendingDeletions, deleted: list[LogSegment]) -> None:
    """Renames the files of segments for deletion, `.log` first, durably. Loaders ignore the new names."""
    names = {entry.name for entry in source.fs.list(source.directory)}
    for segment in deleted:
        renamed: list[str] = []
        for name in files_of(segment.base_offset, names):
            old, new = join(source.directory, name), join(source.directory, name + DELETED)
            source.fs.rename(old, new)
            renamed.append(new)
        source.fs.sync_directory(source.directory)  # one by one: a crash must not leave a gap between two segments
        segment.renamed(DELETED)
        pending.add(segment, renamed)


# ---- at the end --------------------------------------------------------------------------------------------------------------


def truncate(writer: LogWriter, source: Source, pending: PendingDeletions, end: int) -> None:
    """Truncates the log: deletes records from `end` on; the next record gets that offset. The log must be loaded again.

    Args:
        writer, source, pending: the log's writer and segments, and its pending deletions.
        end: below the log end; inside a batch, the whole batch is deleted, which leaves a gap (storage-format 6.5.2).
    """
    before = writer.state
    later = [segment for _, segment in writer.state.segments if segment.base_offset > end]
    found = writer.state.segments.floor(end)
    assert found is not None  # `end` is not below the log start
    target = found[1]
    position = _position_of(target, writer.state.size_of(target), end)
    copy = _shortened(source, target, position) if _may_be_mapped(source, writer, target) else None
    lowered = _lowered(target, position, end, inode_of(source.fs, copy or target.path))
    writer.flush()
    _lower_checkpoints(source, end)  # they may be too low at any time
    _remove_snapshots(source, end)  # one past the end would look like a loss
    _cut_transactions(source, target, end)
    writer.published.begin_truncation(end, **lowered)
    deleted = PendingDeletions(source.fs)  # added at the end: if a step fails, the next load has to see them
    _rename_away(source, deleted, list(reversed(later)))
    if copy is None:
        writer.active.file.cut(position)
        writer.active.file.set_time(target.appends.file_ms)
    else:
        source.fs.rename(copy, target.path)
    _remove_indexes(source, target)
    cut = writer.epochs.truncate_from_end(end)
    if cut:
        trace.later(trace.EPOCHS_CUT, source.partition, epochs=cut, end=end)
    writer.published.end_change()
    pending.add_all(deleted)
    size = before.size_of(target) - position + sum(map(before.size_of, later))
    facts = {"first": end, "end": before.end_offset, "offsets": before.end_offset - end, "bytes": size, "segments": len(later)}
    trace.later(trace.TRUNCATED, source.partition, **facts, reason="truncate was called")


def _lowered(target: LogSegment, position: int, end: int, inode: int) -> dict[str, int]:
    """Returns the fields of the header once the log ends at a position of a segment, which is then the active one."""
    return {
        "active_base": target.base_offset,
        "active_inode": inode,
        "published_position": position,
        "published_offset": end,
        "durable_base": target.base_offset,
        "durable_position": position,
        "durable_offset": end,
        "header_digest": digest_of(target, position).value,
    }


def _position_of(segment: LogSegment, size: int, end: int) -> int:
    """Returns the position of the first batch that reaches `end`, or the end of the segment."""
    for region in segment.regions(segment.locate(end), size):
        reaching = np.flatnonzero(region.table[LAST_OFFSET] >= end)
        if reaching.size:
            return region.shift + int(region.table[POSITION, reaching[0]])
    return size


def _lower_checkpoints(source: Source, end: int) -> None:
    assert source.root_lock is not None
    with source.root_lock.entered():
        for checkpoint in (source.recovery_points, source.cleaned):
            known = checkpoint.offsets().get(source.partition, 0)
            if known > end:
                checkpoint.update({source.partition: end})
                facts = {"path": checkpoint.path, "old": known, "new": end}
                trace.later(trace.CHECKPOINT_LOWERED, source.partition, **facts, reason="the log is truncated")


def _remove_snapshots(source: Source, end: int) -> None:
    """Removes producer snapshots past the end, because new records will reach their offsets."""
    names = [entry.name for entry in source.fs.list(source.directory)]
    parsed = [(name, found) for name in names if (found := parse(name)) is not None]
    deleted = [name for name, found in parsed if found.suffix == SNAPSHOT and not found.state and found.offset > end]
    for name in deleted:
        remove_derived(source.fs, join(source.directory, name))
    source.fs.sync_directory(source.directory)
    if deleted:
        trace.later(trace.SNAPSHOTS_REMOVED, source.partition, end=end, files=deleted)


def _cut_transactions(source: Source, target: LogSegment, end: int) -> None:
    """Takes the transactions that end at or after `end` out of the transaction index of the last remaining segment.

    The others stay: loading finds only those after the newest snapshot, which may be inside the segment. The file is cut, because
    a new one needs room, which a full disk does not have.
    """
    path = target.path_of(TRANSACTION_INDEX)
    data, *_ = kinds.TRANSACTIONS.fetch_derived(source.fs, path, target.size)
    if not data:
        return remove_derived(source.fs, path)
    index, _ = kinds.TRANSACTIONS.parsed(data, path, target.base_offset)
    kept = sum(entry.last_offset < end for entry in index.entries)
    file = source.fs.open(path, write=True)
    try:
        file.truncate(kept * TRANSACTION_ENTRY_SIZE)
        file.sync()
    finally:
        file.close()


def _remove_indexes(source: Source, target: LogSegment) -> None:
    """Removes the other derived files of the last remaining segment; loading rebuilds them."""
    names = {entry.name for entry in source.fs.list(source.directory)}
    for name in files_of(target.base_offset, names):
        if name != target.log_name and parse(name) is not None and not name.endswith((SNAPSHOT, TRANSACTION_INDEX)):
            remove_derived(source.fs, join(source.directory, name))
    source.fs.sync_directory(source.directory)


def _may_be_mapped(source: Source, writer: LogWriter, target: LogSegment) -> bool:
    """Returns whether a reader may have mapped a segment: it is or was sealed, before a truncation failed and left it the last.

    The seal tells of the latter: a truncation renames a segment's `.log` before its seal, so both are still there.
    """
    return target is not writer.active.segment or source.fs.exists(target.path_of(SEAL))


def _shortened(source: Source, target: LogSegment, position: int) -> str:
    """Copies a sealed file, which readers may have mapped, instead of truncating it. Returns the copy's path.

    A copy is made even if no byte is removed: as the active segment it may be truncated later, while current readers still map
    the old file. The copy is made before any other change, and the header refers to it from then on: after a truncation inside a
    batch only the header has the log end, and a process that finds the copy next to the old last segment completes the
    truncation (`loader`).
    """
    temporary = target.path + TEMPORARY
    if source.fs.exists(temporary):
        source.fs.remove(temporary)
    copy = source.fs.create(temporary)
    try:
        target.file().copy_to(copy, 0, position)
        if target.appends.file_ms > 0:
            copy.set_mtime(target.appends.file_ms)
        copy.sync()
    finally:
        copy.close()
    return temporary
