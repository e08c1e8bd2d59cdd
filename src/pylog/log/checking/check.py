"""`check`: checks the invariants of an open store (reliability 6.5). Changes nothing.

One pass over the batch headers of each partition compares the segments with their derived files and with the state of the open
log. `verification` makes the same pass over every byte. Damage is a finding, never an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pylog.directory.checkpoints import LOG_START, RECOVERY_POINT
from pylog.errors import PylogError, StorageFailedError, UnknownTopicOrPartitionError
from pylog.fs import DirectoryEntry, FileSystem, join, parent_of
from pylog.log.checking.log_watch import DERIVED_SUFFIXES, LogWatch
from pylog.log.checking.report import (
    CheckpointedOffsets,
    Partition,
    ReadPartition,
    Report,
    about,
    ask,
    of_error,
    read_checkpoints,
)
from pylog.log.durable_point import SLOT_SIZE, DurablePoint, open_header
from pylog.log.recovery.findings import Finding
from pylog.log.recovery.lost_files import end_in_header
from pylog.log.recovery.producer_snapshots import read_snapshot
from pylog.log.recovery.tier import has_tier
from pylog.segment import names
from pylog.segment.batch_walk import walk
from pylog.text import counted

TEMPORARY: Final = ".tmp"
UNFINISHED: Final = "is left over from an unfinished operation"


def check_store(fs: FileSystem, root: str, partitions: Iterable[ReadPartition]) -> Report:
    """Checks all invariants of a store's partitions. Prints and changes nothing, and raises no error for damage.

    Args:
        fs, root: the log directory.
        partitions: the partitions to check. One that cannot be opened is a finding; one that was just deleted is not.

    Returns:
        A `Report` without verdicts.

    Cost: one pass over the batch headers, and over the derived files. Spec: reliability 6.5.
    """
    ends, findings = read_checkpoints(fs, root)
    report = Report().with_findings(findings)

    def question(partition: Partition) -> Report:
        return check_partition(partition).with_findings(check_ends(partition, ends))

    for read in partitions:
        try:
            report += ask(read, question)
        except UnknownTopicOrPartitionError:
            continue
        except PylogError as error:
            report += Report(partitions=1).with_findings([of_error(error, root)])
    return report


def check_partition(partition: Partition) -> Report:
    """Checks all invariants of one partition, as `check_store`."""
    watch = LogWatch(partition)
    for segment, following in partition.segments():
        size = partition.state.size_of(segment)
        watch.follow(segment, size, walk(segment, 0, size, following))
    return watch.report().with_findings([*check_files(partition), *_check_state(partition, watch)])


# ---- files of a partition ----------------------------------------------------------------------------------------------------


def check_files(partition: Partition) -> Iterator[Finding]:
    """Checks the files of a partition's directory: sizes, names, snapshots, the header."""
    try:
        slot = partition.slot()  # before the sizes, which only grow
        entries = {entry.name: entry for entry in partition.fs.list(partition.directory) if entry.is_file}
        yield from _check_sizes(partition, entries)
        yield from _check_names(partition, entries)
        yield from _check_snapshots(partition, entries)
        if names.DURABLE_POINT in entries:
            yield from _check_header(partition, slot, entries)
    except StorageFailedError as error:
        yield of_error(error, partition.directory)


def _check_sizes(partition: Partition, entries: Mapping[str, DirectoryEntry]) -> Iterator[Finding]:
    """Checks that each segment's file exists and has the size of the log's state."""
    for segment, _ in partition.segments():
        entry, size = entries.get(segment.log_name), partition.state.size_of(segment)
        if entry is None:
            if partition.quiet:  # otherwise retention may have deleted it
                yield about("missing", segment.path, "does not exist", size=size, offset=segment.base_offset)
        elif entry.size < size:
            message = f"has {counted(entry.size, 'byte')}, but the log has {size}"
            lost = {"position": entry.size, "size": size - entry.size, "offset": segment.base_offset}
            yield about("missing", segment.path, message, **lost)
        elif entry.size > size and segment is not partition.state.active:
            message = f"has {counted(entry.size, 'byte')}, but the log had {size} when it was sealed"
            yield about("state", segment.path, message, position=size, size=entry.size - size)


def _check_names(partition: Partition, entries: Mapping[str, DirectoryEntry]) -> Iterator[Finding]:
    """Checks for unfinished files, files of deleted segments, and unknown segments."""
    bases = {segment.base_offset for segment, _ in partition.segments()}
    for name in entries if partition.quiet else ():
        path, found = join(partition.directory, name), names.parse(name)
        if name.endswith((TEMPORARY, names.CLEANED, names.SWAP)):
            yield about("leftover", path, UNFINISHED)
        elif found is not None and not found.state and found.offset not in bases:
            if found.suffix == names.LOG:
                yield about("state", path, "is a segment that is not in the log", size=entries[name].size, offset=found.offset)
            elif found.suffix in DERIVED_SUFFIXES:
                yield about("leftover", path, "is left over from a deleted segment", offset=found.offset)


def _check_snapshots(partition: Partition, entries: Mapping[str, DirectoryEntry]) -> Iterator[Finding]:
    """Checks that each producer snapshot is readable and named by an offset up to the log end (storage-format 3.10)."""
    end, beyond = partition.state.end_offset, -1
    for name in entries:
        found, path = names.parse(name), join(partition.directory, name)
        if found is None or found.suffix != names.SNAPSHOT or found.state:
            continue
        beyond = max(beyond, found.offset)
        try:
            read_snapshot(partition.fs, partition.directory, found.offset)
        except PylogError as error:
            yield of_error(error, path, "derived")._replace(size=entries[name].size)
    if beyond > end and not partition.has_moved():
        yield partition.short_of(beyond, names.file_name(beyond, names.SNAPSHOT))


def _check_header(partition: Partition, slot: DurablePoint | None, entries: Mapping[str, DirectoryEntry]) -> Iterator[Finding]:
    """Checks the `durable-point` file against the files, unless another program has written since (reliability 12)."""
    path = join(partition.directory, names.DURABLE_POINT)
    if slot is None:
        size = entries[names.DURABLE_POINT].size
        if size >= SLOT_SIZE and partition.state.end_offset > 0:  # otherwise its creator may have died during the first write
            yield about("derived", path, "has no valid slot", size=size)
    elif slot.durable_base == slot.active_base and slot.durable_position > slot.published_position:
        yield about("derived", path, f"has {slot.durable_position} bytes durable, and {slot.published_position} published")
    elif names.file_name(slot.active_base, names.LOG) not in entries:
        reached = end_in_header(partition.fs, partition.directory, slot, same_boot=_is_of_this_boot(partition))
        if reached > partition.state.end_offset and not partition.has_moved():
            yield partition.short_of(reached, names.DURABLE_POINT)
    elif partition.state.active is not None and slot.durable_base == slot.active_base and partition.is_own(slot):
        name, needed = names.file_name(slot.active_base, names.LOG), slot.durable_position
        size = entries[name].size if name in entries else needed
        if size < needed:
            end = partition.state.end_offset
            message = f"has {counted(size, 'byte')}, and {needed} were synced: the records from offset {end} on are missing"
            lost = {"position": size, "size": needed - size, "offset": end}
            yield about("missing", partition.state.active.path, message, **lost)


def _is_of_this_boot(partition: Partition) -> bool:
    header = open_header(partition.fs, partition.directory)
    if header is None:
        return False
    header.close()
    return header.same_boot


def _check_state(partition: Partition, watch: LogWatch) -> Iterator[Finding]:
    """Checks that the published state is consistent, and matches the batches."""
    state, directory = partition.state, partition.directory
    try:
        state.segments.check()
    except AssertionError as error:
        yield about("state", directory, f"has a broken list of segments: {error}")
    ends = (state.start_offset, state.durable_offset, state.end_offset)
    if not 0 <= ends[0] <= ends[1] <= ends[2] or not state.start_offset <= state.stable_offset <= state.end_offset:
        message = f"start {ends[0]}, durable {ends[1]}, stable {state.stable_offset}, end {ends[2]}"
        yield about("state", directory, f"has ends that contradict each other: {message}")
    if state.active is None or watch.damaged:
        return
    if watch.end != state.active_size:
        message = f"has batches up to position {watch.end}, but the log publishes {state.active_size} bytes"
        yield about("state", state.active.path, message, position=watch.end)
    if watch.next_offset > state.end_offset:
        message = f"has batches up to offset {watch.next_offset}, but the log ends at {state.end_offset}"
        yield about("state", state.active.path, message, offset=state.end_offset)


# ---- checkpoints -------------------------------------------------------------------------------------------------------------


def check_ends(partition: Partition, ends: CheckpointedOffsets) -> Iterator[Finding]:
    """Checks that the checkpoints do not overstate the log start and the log end."""
    state, key, log_start = partition.state, partition.key, ends.log_starts.get(partition.key, 0)
    if ends.recovery_points.get(key, 0) > state.end_offset:
        now, _ = read_checkpoints(partition.fs, ends.root)  # read again: a truncation may have lowered both
        reached = now.recovery_points.get(key, 0)
        if reached > state.end_offset and not partition.has_moved():
            yield partition.short_of(reached, RECOVERY_POINT)
    if log_start > state.start_offset and partition.quiet:
        log_start = _start_now(partition, ends)  # the topic may have been deleted and created again since
    if log_start > state.start_offset and partition.quiet:
        message = f"gives {partition.directory} the start {log_start}, after its start {state.start_offset}"
        yield about("state", join(ends.root, LOG_START), message, offset=log_start)
    yield from _check_start(partition, ends, log_start)


def _start_now(partition: Partition, ends: CheckpointedOffsets) -> int:
    """Returns the log start in the checkpoint as it is now."""
    now, _ = read_checkpoints(partition.fs, ends.root)
    return now.log_starts.get(partition.key, 0)


def _check_start(partition: Partition, ends: CheckpointedOffsets, log_start: int) -> Iterator[Finding]:
    """Reports missing first segments as lost, unless the log start or the first leader epoch is after them (6.13.2)."""
    epochs, _ = partition.epochs()
    first = next((segment for segment, _ in partition.segments()), None)
    if epochs and first is not None and max(epochs[0].start_offset, log_start) < first.base_offset:
        log_start = max(log_start, _start_now(partition, ends), partition.tiered_start)  # it may have been raised since
    if epochs and first is not None and max(epochs[0].start_offset, log_start) < first.base_offset:
        offset = epochs[0].start_offset
        if partition.both is not None:
            gap = partition.archived_gap(partition.both.start_offset)
            if gap is not None:
                message = f"has no offsets {gap[0]} to {gap[1] - 1}: they are neither on the disk nor in the archive"
                yield about("missing", partition.directory, message, offset=gap[0])
            return
        if partition.state.remote_offsets and has_tier(partition.fs, parent_of(partition.directory)):
            start, last = max(log_start, partition.state.remote_offsets.start), first.base_offset - 1
            yield about("remote", partition.directory, f"has offsets {start} to {last} in a broker's remote tier", offset=start)
            return
        path = join(partition.directory, names.file_name(offset, names.LOG))
        message = f"is missing: the leader epochs begin at offset {offset}, but the first segment at {first.base_offset}"
        yield about("missing", path, message, offset=offset)
