"""Loads a partition: turns a directory into segments, ends and findings, in small steps.

After a clean shutdown, loading costs a directory listing, the batch headers after the last index entry, and a few small files.
Otherwise the segments from the durable point (or Kafka's recovery point) on are scanned, with their checksums. A read-only load
writes nothing and repairs only in memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from pylog import limits, trace
from pylog.directory import checkpoints
from pylog.directory.brokers import has_written_since
from pylog.directory.checkpoints import EpochEntry
from pylog.errors import CorruptionError, StorageFailedError, UnknownTopicOrPartitionError
from pylog.fs import DirectoryEntry, FileSystem, join, parent_of, remove_derived
from pylog.index.builder import SegmentIndexBuilder
from pylog.log.durable_point import FAILED, DurablePoint, open_header
from pylog.log.producer_state import Idleness, ProducerStateManager, load_snapshot
from pylog.log.recovery.findings import Finding, is_torn
from pylog.log.recovery.found_segments import FoundSegments
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.recovery.replay import replay_segment
from pylog.log.recovery.sound_tail import sound_tail
from pylog.log.recovery.tier import remote_start
from pylog.record.batch import Table
from pylog.record.format import BASE_OFFSET, LAST_OFFSET, LEADER_EPOCH, POSITION, PRODUCER_ID, SIZE
from pylog.segment.batch_walk import Damage, WalkedRange, is_preallocated, peek, start_offset_at, walk
from pylog.segment.header_digest import HeaderDigest, digest_of
from pylog.segment.names import (
    INDEX,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    SNAPSHOT,
    SWAP,
    TEMPORARY,
    LoadPlan,
    file_name,
    parse,
    plan_load,
)
from pylog.segment.seal import replaced_by
from pylog.segment.segment import LogSegment, inode_of, vanished

_NONE_PENDING: Final = frozenset[str]()


def load(source: Source) -> Loaded:
    """Loads a partition from its directory. Never changes its `.log` files.

    Raises:
        UnknownTopicOrPartitionError: the directory does not exist.
    """
    header = open_header(source.fs, source.directory)  # first, so that all published segments are listed (11a)
    slot, same_boot = (None, False) if header is None else (header.refresh(), header.same_boot)
    if header is not None:
        header.close()
    entries = {entry.name: entry for entry in listing(source)}
    if source.writable and slot is not None and _finish_truncation(source, slot, entries):
        entries = {entry.name: entry for entry in listing(source)}
    _check_regular(source, entries)
    plan = plan_load(
        [name for name, entry in entries.items() if entry.is_file],
        lambda name: _end_of_swap(source, entries[name]),
        lambda name: replaced_by(source.fs, join(source.directory, name)),
    )
    if source.writable:
        _carry_out(source, plan)
    segments, unindexed = _open_segments(source, plan, entries), plan.unindexed(entries)
    loaded = Loaded(segments, snapshots=plan.snapshots, unindexed=unindexed, found=slot)
    _own_slot(source, loaded, same_boot)
    loaded.file_size = loaded.segments[-1].size if loaded.segments else 0
    if not source.writable:
        _end_at_published(loaded)
    _leave_out_zeros(loaded)
    first = loaded.segments.bases[0] if loaded.segments else 0
    loaded.start_offset = max(first, _log_start(source, loaded.slot))
    loaded.next_offset = loaded.start_offset
    _read_epochs(source, loaded)
    loaded.remote_start = remote_start(source.fs, parent_of(source.directory), source.log_start_line, loaded.epochs, first)
    with contextlib.suppress(CorruptionError):  # an unreadable id decides nothing
        loaded.topic_id = checkpoints.read_topic_id(source.fs, source.directory)
    if loaded.segments:
        _load_tail(source, loaded)
    _note_missing_tail(source, loaded)
    loaded.durable_offset = _durable_offset(source, loaded)
    if source.writable:
        _load_producers(source, loaded)
    return loaded


# ---- files -------------------------------------------------------------------------------------------------------------------


def listing(source: Source) -> list[DirectoryEntry]:
    """Lists the files of a partition, `.log` files with their sizes.

    Raises:
        UnknownTopicOrPartitionError: it is not there.
    """
    try:
        return source.fs.list(source.directory, sizes=LOG)
    except StorageFailedError as error:
        raise deleted(source) if vanished(error) else error from error


def deleted(source: Source) -> UnknownTopicOrPartitionError:
    """Returns the error for a partition that another process has deleted."""
    told = f"{source.directory} was deleted by another process; get the log from its store again"
    return UnknownTopicOrPartitionError(told, path=source.directory)


def _end_of_swap(source: Source, entry: DirectoryEntry) -> int:
    """Returns the next offset of a segment that a compaction has finished but not renamed."""
    found = parse(entry.name)
    assert found is not None
    segment = _segment(source, found.offset, entry.name, entry, source.config.index_interval_bytes, _NONE_PENDING)
    return _follow(segment, 0, None, verify=False).next_offset


def _carry_out(source: Source, plan: LoadPlan) -> None:
    """Completes an unfinished deletion or compaction (storage-format 6.9.1 to 6.9.3)."""
    for name in plan.removals:
        _remove_if_there(source.fs, join(source.directory, name))
    if plan.removals:
        source.fs.sync_directory(source.directory)
    for old, new in plan.renames:
        source.fs.rename(join(source.directory, old), join(source.directory, new))
    if plan.removals:
        trace.later(trace.FILES_REMOVED, source.partition, files=plan.removals)
    if plan.renames:
        files = [old for old, _ in plan.renames]
        trace.later(trace.CHANGE_FINISHED, source.partition, files=files, reason="a compaction was not finished")
    if plan.renames:  # sync first: a compaction could otherwise cause the next load to delete the old names
        source.fs.sync_directory(source.directory)
    if plan.cleaned and source.cleaning_lock is not None:
        with source.cleaning_lock.if_free() as free:  # otherwise another process is working on it
            for name in plan.cleaned if free else ():
                source.fs.remove(join(source.directory, name))
            if free:
                trace.later(trace.CLEANING_ENDED, source.partition, files=plan.cleaned, reason="its process died")


def _remove_if_there(fs: FileSystem, path: str) -> None:
    try:
        remove_derived(fs, path)
    except StorageFailedError as error:
        if not vanished(error):  # otherwise a reader has completed its index
            raise


def _finish_truncation(source: Source, slot: DurablePoint, entries: dict[str, DirectoryEntry]) -> bool:
    """Renames the copy of the last segment from an unfinished truncation. Returns whether there was one.

    Otherwise a file that readers may have mapped as a sealed segment would be appended to, and truncated one day.
    """
    name = file_name(slot.active_base, LOG)
    path = join(source.directory, name)
    copy = entries.get(name + TEMPORARY)
    if slot.epoch % 2 == 0 or copy is None or not copy.is_file or name not in entries:
        return False
    if any(each.endswith(LOG) and each > name for each in entries):
        return False
    known = inode_of(source.fs, path + TEMPORARY) == slot.active_inode
    if known:
        trace.later(trace.CHANGE_FINISHED, source.partition, files=[name], reason="a truncation was not finished")
        source.fs.rename(path + TEMPORARY, path)  # made durable before the first write, like everything under an odd epoch
    return known


def _check_regular(source: Source, entries: dict[str, DirectoryEntry]) -> None:
    """Refuses a link or pipe with a segment's name: following it is unsafe, and skipping it would hide records.

    A directory is ignored, as by a broker (interop 1.1.7).
    """
    for name, entry in entries.items():
        found = None if entry.is_file or (entry.is_directory and not entry.is_link) else parse(name)
        if found is not None and found.suffix == LOG and found.state in ("", SWAP):
            path = join(source.directory, name)
            what = "a symbolic link, and not a regular file" if entry.is_link else "not a regular file"
            raise StorageFailedError(f"{path} is {what}, as a segment must be; put the file itself there", path=path)


def _open_segments(source: Source, plan: LoadPlan, entries: dict[str, DirectoryEntry]) -> FoundSegments:
    """Returns all segments. The last one is the active one from the start: a file that will grow must never be mapped."""
    renamed = dict(plan.renames) if source.writable else {}
    bases, found = list(plan.segments), [entries[name] for name in plan.segments.values()]

    interval_bytes, is_plain = source.config.index_interval_bytes, source.writable or not plan.renames

    def make(index: int) -> LogSegment:
        entry = found[index]
        pending = _NONE_PENDING if is_plain else plan.pending(bases[index])
        return _segment(source, bases[index], renamed.get(entry.name, entry.name), entry, interval_bytes, pending)

    segments = FoundSegments(bases, [entry.size for entry in found], make)
    if segments:
        segments[-1].sealed = False
    return segments


def _segment(
    source: Source, base: int, name: str, entry: DirectoryEntry, interval_bytes: int, pending: frozenset[str]
) -> LogSegment:
    return LogSegment(
        source.fs,
        source.directory,
        base,
        size=entry.size,
        mtime_ms=entry.mtime_ms,
        open_files=source.open_files,
        mapped=source.writable,
        writable=source.writable,
        interval_bytes=interval_bytes,
        log_name=name,
        pending=pending,
    )


def _own_slot(source: Source, loaded: Loaded, same_boot: bool) -> None:
    """Uses the header, unless it is stale because another program has written since (reliability 12).

    The signs of that: its segment is missing or another file; a later segment that no roll of this boot explains; a batch of
    another leader epoch after the published end, or for a reader, if a broker was here, any batch there. (A writer walks all
    batches anyway.) If the segment is the same file, its durable end stays valid: no program truncates below it.
    """
    slot = loaded.found
    named = None if slot is None else loaded.segments.find(slot.active_base)
    if slot is None or named is None or named.inode() != slot.active_inode:
        return
    last = named is loaded.segments[-1]
    loaded.known_position = slot.durable_position if last else 0
    following = peek(named, slot.published_position)
    grown = same_boot and not source.writable and named.size > slot.published_position
    stale = (same_boot and not last and slot.epoch % 2 == 0) or (grown and has_written_since(source.fs, source.directory))
    if stale or (following is not None and following.leader_epoch != slot.leader_epoch):
        return
    loaded.slot, loaded.same_boot = slot, same_boot
    if last and same_boot and not slot.flags & FAILED and named.size >= slot.published_position:
        loaded.known_position = slot.published_position


def _log_start(source: Source, slot: DurablePoint | None) -> int:
    """Returns the log start offset, from the header or Kafka's checkpoint, where a flipped bit could delete segments."""
    if slot is None:
        return source.log_start
    return slot.log_start_offset if source.ours else max(source.log_start, slot.log_start_offset)


def _end_at_published(loaded: Loaded) -> None:
    """Limits a reader to the published records: a segment above the header's is a roll in progress (reliability 11a)."""
    if loaded.slot is None or not loaded.same_boot:
        return
    loaded.segments = loaded.segments.up_to(loaded.slot.active_base)
    active = loaded.segments[-1]
    active.sealed = False
    active.size = min(active.size, loaded.slot.published_position)


def _leave_out_zeros(loaded: Loaded) -> None:
    """Ends the active segment at the header's end, if only zeros follow (`active_file`)."""
    slot, active = loaded.slot, loaded.segments[-1] if loaded.segments else None
    if slot is None or active is None or slot.active_base != active.base_offset or active.size <= slot.published_position:
        return
    if active.file().is_blank(slot.published_position, active.size):
        loaded.preallocated = active.size - slot.published_position
        active.size = slot.published_position


def _read_epochs(source: Source, loaded: Loaded) -> None:
    try:
        loaded.epochs = checkpoints.read_epochs(source.fs, source.directory)
    except CorruptionError as error:
        path = join(source.directory, LEADER_EPOCH_CHECKPOINT)
        loaded.findings.append(Finding("rebuilt", path, 0, 0, 0, None, f"{error}; it is rebuilt from the batches"))


# ---- the end -----------------------------------------------------------------------------------------------------------------


def _load_tail(source: Source, loaded: Loaded) -> None:
    """Finds the end of the log."""
    active = loaded.segments[-1]
    loaded.clean = not source.writable or (source.clean if loaded.slot is None else _settled(loaded.slot, active))
    if not loaded.clean:
        _scan_sealed(source, loaded)
    if (source.clean and loaded.clean) or (not source.writable and (loaded.slot is None or loaded.same_boot)):
        _trust_active(source, loaded)
    else:  # without index files all headers are needed, and the checksums cost little more
        _scan_active(source, loaded, verify=True)
        _check_digest(loaded)
    _note_missing_bytes(loaded)


def _check_digest(loaded: Loaded) -> None:
    """Compares batch headers with the digest in the header, which covers fields outside their checksums (reliability 6.3)."""
    active, slot = loaded.segments[-1], loaded.slot
    if slot is None or slot.epoch % 2 or slot.flags or slot.active_base != active.base_offset or loaded.corrupt is not None:
        return
    end = slot.published_position
    sure = loaded.same_boot or slot.durable_position == end  # otherwise a power loss may have changed bytes after the durable end
    if sure and end <= loaded.end and _digest(loaded, end) != slot.header_digest:
        message = f"{active.path}: a batch header below position {end} has a changed offset, length or leader epoch"
        found = Finding("corrupt", active.path, 0, end, active.base_offset, slot.published_offset, message)
        loaded.findings.append(found)
        loaded.corrupt = found


def _digest(loaded: Loaded, end: int) -> int:
    """Returns the digest of the active segment's headers below a position."""
    known = loaded.digest
    return known.value if known is not None and known.position == end else digest_of(loaded.segments[-1], end).value


def _note_missing_bytes(loaded: Loaded) -> None:
    """Reports a file that is shorter than its synced end: acknowledged records are lost. Neither pylog nor a broker does that."""
    active = loaded.segments[-1]
    missing = loaded.known_position - active.size
    if missing > 0:
        message = f"{active.path}: the file ends {missing} bytes before the end that was synced"
        found = Finding("corrupt", active.path, active.size, missing, loaded.next_offset, None, message)
        loaded.findings.append(found)
        loaded.corrupt = loaded.corrupt or found


def _settled(slot: DurablePoint | None, active: LogSegment) -> bool:
    """Whether the header proves that no operation was unfinished."""
    same = slot is not None and slot.active_base == active.base_offset
    return slot is not None and same and slot.idle and slot.published_position == active.size


@dataclass
class _Walked:
    """The result of a walk: the end of the last good batch, the offset after it, the last epoch, and the damage."""

    end: int
    next_offset: int
    leader_epoch: int = -1
    damage: list[Damage] = field(default_factory=list)


def _follow(
    segment: LogSegment, position: int, following: int | None, *, verify: bool, take: Callable[[WalkedRange], None] | None = None
) -> _Walked:
    """Walks a segment to its end, and passes each stretch to `take`."""
    found = _Walked(position, start_offset_at(segment, position))
    for stretch in walk(segment, position, segment.size, following, verify=verify):
        table = stretch.table
        if table.shape[1]:
            found.end = stretch.shift + int(table[POSITION, -1] + table[SIZE, -1])
            found.next_offset = int(table[LAST_OFFSET, -1]) + 1
            found.leader_epoch = max(found.leader_epoch, int(table[LEADER_EPOCH, -1]))
        if take is not None:
            take(stretch)
        if stretch.damage is not None:
            found.damage.append(stretch.damage)
    return found


def _scan_sealed(source: Source, loaded: Loaded) -> None:
    """Checks sealed segments that may not have been synced. pylog syncs a segment before it creates the next one."""
    if loaded.slot is not None:
        return
    for segment, following in zip(loaded.segments[:-1], loaded.segments[1:], strict=True):
        if following.base_offset > source.recovery_point:
            found = _follow(segment, 0, following.base_offset, verify=True)
            _judge(source, loaded, segment, found, durable_position=0, last=False)


def _trust_active(source: Source, loaded: Loaded) -> None:
    """Finds the end after a clean shutdown, or for a reader: from the index and the headers after its last entry."""
    active = loaded.segments[-1]
    unindexed = not source.fs.exists(active.path_of(INDEX))  # its writer has it in memory; a rebuilt index confirms nothing
    if unindexed or (source.writable and active.times_lag()):  # appends would turn an empty index into one with a gap
        _scan_active(source, loaded, verify=False)
        return
    position = active.locate(limits.INT64_MAX)
    builder = SegmentIndexBuilder.reopened(active.offset_index(), active.time_index(), source.config.index_interval_bytes)
    indexed = active.offset_index().last.offset if position else -1

    def take(table: Table, shift: int) -> None:
        first = int(np.searchsorted(table[LAST_OFFSET], indexed, side="right"))
        builder.add(table, table.shape[1], first=first, position=shift)

    tail = sound_tail(active, position, _end_told(loaded))
    if tail is not None:
        take(tail, 0)
        last = tail[:, -1].tolist()
        found = _Walked(last[POSITION] + last[SIZE], last[LAST_OFFSET] + 1, max(-1, last[LEADER_EPOCH]))
    else:
        found = _follow(active, position, _end_told(loaded), verify=False, take=lambda each: take(each.table, each.shift))
    if found.damage and position and found.end == position:  # the index entry is inside the damage: walk all of it
        _scan_active(source, loaded, verify=False)
    else:
        _settle(source, loaded, found, builder)


def _scan_active(source: Source, loaded: Loaded, *, verify: bool) -> None:
    """Walks the whole active segment and rebuilds its indexes."""
    active = loaded.segments[-1]
    builder = SegmentIndexBuilder(active.base_offset, source.config.index_interval_bytes)

    digest = loaded.digest = HeaderDigest(source.config.index_interval_bytes)
    loaded.plain = True

    def take(stretch: WalkedRange) -> None:  # all that is made of headers, in one pass
        table = stretch.table
        builder.add(table, table.shape[1], position=stretch.shift)
        digest.add(stretch.buffer, table, 0, table.shape[1], stretch.shift)
        loaded.plain = loaded.plain and not (table[PRODUCER_ID] >= 0).any()

    found = _follow(active, 0, _end_told(loaded), verify=verify, take=take)
    if found.damage:
        loaded.digest = None
    _settle(source, loaded, found, builder)


def _settle(source: Source, loaded: Loaded, found: _Walked, builder: SegmentIndexBuilder) -> None:
    """Applies the result of a walk of the active segment. Synced bytes are never a torn tail."""
    active = loaded.segments[-1]
    loaded.builder = active.builder = builder
    loaded.leader_epoch = found.leader_epoch
    end = max(found.next_offset, active.base_offset, loaded.start_offset, _offset_told(loaded, found.end))
    loaded.end, loaded.next_offset = found.end, end
    _judge(source, loaded, active, found, durable_position=loaded.known_position, last=True)
    if loaded.torn is not None and found.end > loaded.end:  # batches after the gap are cut off too
        loaded.builder = active.builder = active.indexed_to(loaded.end)


def _end_told(loaded: Loaded) -> int | None:
    """Returns the offset after the active segment's last batch, if the header has it, as a limit for earlier batches."""
    return _offset_told(loaded, loaded.segments[-1].size) or None


def _offset_told(loaded: Loaded, position: int) -> int:
    """Returns the header's log end for a position, if it has one: a truncation inside a batch leaves a gap before it."""
    slot, active = loaded.slot, loaded.segments[-1]
    if slot is None or slot.active_base != active.base_offset:
        return 0
    if loaded.same_boot and position == slot.published_position:
        return slot.published_offset
    return slot.durable_offset if position == slot.durable_position else 0


def _judge(source: Source, loaded: Loaded, segment: LogSegment, found: _Walked, *, durable_position: int, last: bool) -> None:
    """Turns the damage of a walk into findings: at most one torn tail, everything else is corruption."""
    if source.foreign or not found.damage:
        return
    first = found.damage[0]
    told = _offset_told(loaded, first.position)  # after a gap left by a truncation: the log end must not go back
    offset = max(first.offset, loaded.start_offset, told)
    synced = offset < source.recovery_point  # a broker has synced these offsets
    torn = is_torn(
        first,
        durable_position=segment.size if synced else durable_position,
        last_segment=last,
        unsynced_bytes=_unsynced_bytes(loaded),
    )
    if torn:
        loaded.end, loaded.next_offset = first.position, offset
        _note_torn(loaded, segment, first)
        return
    *_, behind = found.damage
    unsynced = loaded.slot is not None and first is not behind and behind.position >= durable_position
    if unsynced and is_preallocated(segment, behind):
        loaded.preallocated = segment.size - found.damage.pop().position
    findings = [_finding("corrupt", segment, damage) for damage in found.damage]
    loaded.findings += findings
    loaded.corrupt = loaded.corrupt or findings[0]


def _note_torn(loaded: Loaded, segment: LogSegment, first: Damage) -> None:
    """Judges the bytes after the end. If pylog is not the writer, or a batch was published there, zeros are a lost batch."""
    behind = loaded.slot is not None and loaded.slot.published_position <= first.position
    if behind and segment.file().is_blank(first.position, segment.size):
        loaded.preallocated = segment.size - first.position
        segment.size = first.position
    else:
        loaded.torn = first._replace(end=segment.size)
        loaded.findings.append(_finding("torn", segment, loaded.torn))


def _unsynced_bytes(loaded: Loaded) -> int:
    """Returns the largest distance of unsynced batches. Only a power loss leaves a gap before them, not a dying process."""
    return 0 if loaded.slot is None or loaded.same_boot else loaded.slot.unsynced_bytes


def _finding(kind: str, segment: LogSegment, damage: Damage) -> Finding:
    size = damage.end - damage.position
    told = {
        "torn": f"the write of offset {damage.offset} was incomplete: {size} bytes from position {damage.position} on",
        "corrupt": f"the batch at position {damage.position} (offset {damage.offset}) {damage.why}; {size} bytes are not served",
    }[kind]
    return Finding(kind, segment.path, damage.position, size, damage.offset, damage.next_offset, f"{segment.path}: {told}")


def _durable_offset(source: Source, loaded: Loaded) -> int:
    """Returns the synced end: from the durable point, else all of it after a clean shutdown, else Kafka's recovery point.

    Another process may have written since the store was opened with a clean-shutdown marker.
    """
    known = loaded.next_offset if source.clean else source.recovery_point
    if loaded.slot is not None:
        known = loaded.slot.durable_offset
    return min(max(known, loaded.start_offset), loaded.next_offset)


def _note_missing_tail(source: Source, loaded: Loaded) -> None:
    """Reports a loss if a snapshot, named by an earlier log end, or the synced recovery point is past the end."""
    live = not source.writable and loaded.slot is not None and loaded.same_boot  # a roll in progress writes one for its segment
    if source.foreign or live or loaded.corrupt is not None:  # the damage is reported instead
        return
    told = {offset: join(source.directory, file_name(offset, SNAPSHOT)) for offset in loaded.snapshots[-1:]}
    told[source.recovery_point] = "the recovery point checkpoint"
    last = max(told)
    if last > loaded.next_offset:
        message = f"{source.directory}: {told[last]} says that the log reached offset {last}, but it ends at {loaded.next_offset}"
        loaded.findings.append(Finding("missing", source.directory, 0, 0, loaded.next_offset, None, message))


# ---- producers ---------------------------------------------------------------------------------------------------------------


def _load_producers(source: Source, loaded: Loaded) -> None:
    """Returns the producer state at the end. Also rebuilds the transaction index of a segment whose `.index` was missing."""
    now_ms, expiration_ms = source.clock.now_ms(), source.config.producer_id_expiration_ms
    loaded.producers, complaints = producers_at_end(source.fs, source.directory, loaded, Idleness(now_ms, expiration_ms))
    loaded.producers.noted = lambda timestamp: _noted(now := source.clock.now_ms(), now, timestamp)
    forgotten = loaded.producers.expire(now_ms, expiration_ms)
    if forgotten:
        trace.later(trace.PRODUCERS_EXPIRED, source.partition, producers=len(forgotten), reason="idle when the log was opened")
    loaded.findings += [Finding("rebuilt", source.directory, 0, 0, 0, None, text) for text in complaints]


def producers_at_end(fs: FileSystem, directory: str, loaded: Loaded, idle: Idleness) -> tuple[ProducerStateManager, list[str]]:
    """Loads the newest snapshot and replays the batch headers after it. Cost: those headers; none after a clean shutdown.

    A producer has been idle since its last batch's largest timestamp. If that is missing or in the future, since its segment was
    last written.

    A segment without `.index` has lost its derived files, including the transaction index, so the replay begins there at the
    latest.
    """
    start = loaded.segments.bases[0] if loaded.segments else 0
    end = min([loaded.next_offset, *loaded.unindexed])
    state, complaints = load_snapshot(fs, directory, loaded.snapshots, start, end, idle)
    for segment, size in _behind(loaded, state.end_offset):
        state.noted = partial(_noted, segment.appends.last(idle.now_ms), idle.now_ms)
        if loaded.plain and segment is loaded.segments[-1]:
            continue  # already walked, without a producer's batch
        aborted, complete = replay_segment(segment, size, state)
        segment.add_aborted(aborted, complete=complete)
    state.end_offset = loaded.next_offset
    return state, complaints


def _noted(written_ms: int, now_ms: int, timestamp: int) -> int:
    return timestamp if 0 <= timestamp <= now_ms else min(written_ms, now_ms)


def _behind(loaded: Loaded, offset: int) -> list[tuple[LogSegment, int]]:
    """Yields the segments with records at or above an offset, with the valid bytes of each."""
    if offset >= loaded.next_offset or not loaded.segments:
        return []
    ends = [*loaded.segments.bases[1:], loaded.next_offset]
    sizes = [segment.size for segment in loaded.segments[:-1]] + [loaded.end]
    return [(segment, size) for segment, end, size in zip(loaded.segments, ends, sizes, strict=True) if end > offset]


def epochs_of(loaded: Loaded) -> list[EpochEntry]:
    """Returns the leader epochs for a writer. Cost: all headers if the checkpoint is missing or damaged.

    A process that raised the log start may have died before it truncated them, while the first segment is below the start. They
    are not truncated to the first segment's base: if an earlier segment is missing without a reason, they show it.
    """
    epochs = _epochs_from_batches(loaded) if loaded.epochs is None else loaded.epochs
    raised = bool(loaded.segments) and loaded.start_offset > loaded.segments.bases[0]
    return checkpoints.truncate_epochs_start(epochs, loaded.start_offset) if raised else epochs


def _epochs_from_batches(loaded: Loaded) -> list[EpochEntry]:
    epochs: list[EpochEntry] = []
    for segment, size in _behind(loaded, -1):
        for stretch in walk(segment, 0, size, None):
            column = stretch.table[LEADER_EPOCH]
            for batch in np.flatnonzero(np.diff(column, prepend=-2)).tolist():
                epochs = checkpoints.assign_epoch(epochs, int(column[batch]), int(stretch.table[BASE_OFFSET, batch]))
    return epochs
