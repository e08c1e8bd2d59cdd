"""Loads a partition: turns a directory into segments, ends and findings, in small steps.

After a clean shutdown, loading costs a directory listing, the batch headers after the last index entry, and a few small files.
Otherwise the segments from the durable point (or Kafka's recovery point) on are scanned, with their checksums. A read-only load
writes nothing and repairs only in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pylog import trace
from pylog.directory.brokers import has_written_since
from pylog.directory.leader_epoch_cache import read_epochs
from pylog.directory.partition_metadata import read_topic_id
from pylog.errors import CorruptionError, StorageFailedError, UnknownTopicOrPartitionError
from pylog.fs import DirectoryEntry, FileSystem, join, remove_derived
from pylog.log.durable_point import FAILED, DurablePoint, Truncations, open_header
from pylog.log.recovery.findings import Finding
from pylog.log.recovery.found_segments import FoundSegments
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.recovery.log_end import durable_offset_of, follow_segment, load_tail, published_digest
from pylog.log.recovery.lost_files import note_lost_files
from pylog.log.recovery.replay import load_producers
from pylog.log.recovery.tier import remote_start
from pylog.segment.batch_walk import peek
from pylog.segment.header_digest import HeaderDigest
from pylog.segment.names import (
    ARCHIVED,
    DELETED,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    SEAL,
    SWAP,
    TEMPORARY,
    LoadPlan,
    file_name,
    parse,
    plan_load,
)
from pylog.segment.seal import replaced_by, unmarked_seal, write_seal
from pylog.segment.segment import LogSegment, inode_of, vanished

_NONE_PENDING: Final = frozenset[str]()


def load(source: Source) -> Loaded:
    """Loads a partition from its directory. Never changes its `.log` files.

    Raises:
        UnknownTopicOrPartitionError: the directory does not exist.
    """
    header = _read_header(source)  # first, so that all published segments are listed (11a)
    entries, plan = _settle_files(source, header.slot)
    segments, unindexed = _open_segments(source, plan, entries), plan.unindexed(entries)
    loaded = Loaded(segments, snapshots=plan.snapshots, unindexed=unindexed, found=header.slot, truncations=header.truncations)
    _find_end_of_files(source, loaded, same_boot=header.same_boot)
    start = _find_start(source, loaded, is_archived=ARCHIVED in entries)
    _read_topic_id(source, loaded)
    if loaded.segments:
        load_tail(source, loaded)
    note_lost_files(source, loaded, start, same_boot=header.same_boot, is_archived=ARCHIVED in entries)
    loaded.durable_offset = durable_offset_of(source, loaded)
    if source.writable:
        load_producers(source, loaded)
    return loaded


class _LoadedHeader(NamedTuple):
    """A partition's header; that of a partition without one has no slot."""

    slot: DurablePoint | None = None
    same_boot: bool = False
    truncations: Truncations = Truncations()


def _read_header(source: Source) -> _LoadedHeader:
    header = open_header(source.fs, source.directory)
    if header is None:
        return _LoadedHeader()
    found = _LoadedHeader(header.refresh(), header.same_boot, header.truncations())
    header.close()
    return found


def _settle_files(source: Source, slot: DurablePoint | None) -> tuple[dict[str, DirectoryEntry], LoadPlan]:
    """Finishes changes of a dead process, if the log is open for writing. Returns the files, and which of them form the log."""
    entries = {entry.name: entry for entry in listing(source)}
    finished = source.writable and slot is not None and _finish_truncation(source, slot, entries)
    if finished:
        entries = {entry.name: entry for entry in listing(source)}
    _check_regular(source, entries)
    plan = plan_load(
        [name for name, entry in entries.items() if entry.is_file],
        lambda name: _end_of_swap(source, entries[name]),
        lambda name: replaced_by(source.fs, join(source.directory, name), _size_of_log(entries, name)),
    )
    if source.writable:
        _carry_out(source, plan if finished else _sealed_before_removals(source, plan, entries))
    return entries, plan


def _find_end_of_files(source: Source, loaded: Loaded, *, same_boot: bool) -> None:
    """Decides whether the header counts, and limits the last segment to the bytes that may be batches."""
    _own_slot(source, loaded, same_boot)
    loaded.file_size = loaded.segments[-1].size if loaded.segments else 0
    if not source.writable:
        _end_at_published(loaded)
    _leave_out_zeros(loaded)
    if loaded.segments:
        loaded.segments[-1].published = published_digest(loaded)


def _find_start(source: Source, loaded: Loaded, *, is_archived: bool) -> int:
    """Sets the log start offsets, here and in remote storage. Returns the one that is written down."""
    first = loaded.segments.bases[0] if loaded.segments else 0
    start = _log_start(source, loaded)
    loaded.start_offset = loaded.next_offset = max(first, start)
    _read_epochs(source, loaded)
    loaded.remote_start = _remote_start(source, loaded, start, first, is_archived=is_archived)
    return start


def _read_topic_id(source: Source, loaded: Loaded) -> None:
    try:
        loaded.topic_id = read_topic_id(source.fs, source.directory)
    except CorruptionError as error:  # an unreadable id decides nothing
        trace.later(trace.IGNORED, path=error.path, reason=str(error))


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
    message = f"{source.directory} was deleted by another process; get the log from its store again"
    return UnknownTopicOrPartitionError(message, path=source.directory)


def _end_of_swap(source: Source, entry: DirectoryEntry) -> int:
    """Returns the next offset of a segment that a compaction has finished but not renamed."""
    found = parse(entry.name)
    assert found is not None
    segment = _segment(source, found.offset, entry.name, entry, source.config.index_interval_bytes, _NONE_PENDING)
    return follow_segment(segment, 0, None, verify=False).next_offset


def _sealed_before_removals(source: Source, plan: LoadPlan, entries: Mapping[str, DirectoryEntry]) -> LoadPlan:
    """Gives the last segment a seal if a truncation has deleted those after it and has failed before its end.

    Readers may have mapped it while it was sealed, so it must never be truncated in place. Later, its seal is the sign of that. A
    segment that a broker has sealed has none: it gets one of no batches, which the next roll replaces. If that cannot be written,
    the deleted segments stay, and the next load tries again.
    """
    last = max(plan.segments, default=-1)
    parsed = {name: found for name in plan.removals if (found := parse(name)) is not None and found.suffix == LOG}
    later = [name for name, found in parsed.items() if found.state == DELETED and found.offset > last]
    if not later or last < 0 or file_name(last, SEAL) in entries:
        return plan
    try:
        write_seal(source.fs, source.directory, unmarked_seal(last, 0, HeaderDigest().value))
    except StorageFailedError:
        return plan._replace(removals=[name for name in plan.removals if name not in later])
    return plan


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
            for name in plan.cleaned if free else ():  # listed before: a compaction may have ended since
                _remove_if_there(source.fs, join(source.directory, name))
            if free:
                trace.later(trace.CLEANING_ENDED, source.partition, files=plan.cleaned, reason="its process died")


def _remove_if_there(fs: FileSystem, path: str) -> None:
    try:
        remove_derived(fs, path)
    except StorageFailedError as error:
        if not vanished(error):  # otherwise a reader has completed its index
            raise


def _size_of_log(entries: Mapping[str, DirectoryEntry], seal: str) -> int:
    """Returns the size of the `.log` file that a seal belongs to, under either of its names; 0 if there is none."""
    log = seal.replace(SEAL, LOG)
    return max((entries[name].size for name in (log, log.removesuffix(SWAP)) if name in entries), default=0)


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
    segment = LogSegment(
        source.fs,
        source.directory,
        base,
        size=entry.size,
        mtime_ms=entry.mtime_ms,
        open_files=source.open_files,
        mapped=source.writable,
        if_free=source.if_free,
        interval_bytes=interval_bytes,
        log_name=name,
        pending=pending,
    )
    if entry.vouched is not None:
        segment.vouched = entry.vouched
    return segment


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


def _log_start(source: Source, loaded: Loaded) -> int:
    """Returns the log start offset, from the header or Kafka's checkpoint, where a flipped bit could delete segments."""
    slot = loaded.slot
    if slot is not None and source.ours:
        return slot.log_start_offset
    loaded.recorded_start = source.log_start_line
    return max(loaded.recorded_start or 0, 0 if slot is None else slot.log_start_offset)


def _remote_start(source: Source, loaded: Loaded, local: int, first: int, *, is_archived: bool) -> int | None:
    """Returns the log start offset if the first records are in the store's archive, or in a broker's remote storage."""
    tier = source.tier() if loaded.segments and (is_archived or local < first) else None
    start = None if tier is None else tier.log_start(local, first)
    if start is not None:
        return start
    return remote_start(source.fs, source.directory, source.log_start_line, loaded.epochs, first)


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
        loaded.epochs = read_epochs(source.fs, source.directory)
    except CorruptionError as error:
        path = join(source.directory, LEADER_EPOCH_CHECKPOINT)
        loaded.findings.append(Finding("rebuilt", path, 0, 0, 0, None, f"{error}; it is rebuilt from the batches"))
