"""Finds out while a log is loaded that records are missing which it once had: files of its directory were removed.

A partition without `.log` files may be new. Four files name offsets that a log had reached, and differ from the log only if its
files were removed or cut: a producer snapshot by its name, Kafka's recovery point and high watermark, and pylog's header. The
first leader epoch and the log start offset name the first one. A broker replaces missing files by empty ones, without a word.

A log without any `.log` file begins at the offset that it had reached by the recovery point or by pylog's header, once it is
written to. A group that had not read the lost records would otherwise miss as many new ones, and nothing would show that.
"""

from __future__ import annotations

from pylog.directory.brokers import has_written_since
from pylog.directory.checkpoints import HIGH_WATERMARK, Checkpoint
from pylog.fs import FileSystem, join, parent_of
from pylog.log.durable_point import DurablePoint
from pylog.log.recovery.findings import Finding
from pylog.log.recovery.loaded import Loaded, Source
from pylog.segment.names import DURABLE_POINT, LOG, SNAPSHOT, file_name


def note_lost_files(source: Source, loaded: Loaded, log_start: int, *, same_boot: bool, is_archived: bool) -> None:
    """Reports records that are missing at the start and at the end of a log.

    Args:
        source, loaded: the partition. Nothing is reported while a broker runs, which changes files and checkpoints in turn.
        log_start: the log start offset by the header or the checkpoint.
        same_boot: whether the header was written under this boot of the operating system.
        is_archived: whether records may be in an archive only.
    """
    if source.foreign:
        return
    if not is_archived:
        _note_missing_start(source, loaded, log_start)
    live = not source.writable and loaded.slot is not None and loaded.same_boot  # a roll in progress writes a snapshot first
    if not live and loaded.corrupt is None:  # the damage is reported instead
        _note_missing_end(source, loaded, same_boot=same_boot, is_archived=is_archived)


def _note_missing_start(source: Source, loaded: Loaded, log_start: int) -> None:
    epochs, bases = loaded.epochs, loaded.segments.bases
    if not epochs or not bases or loaded.remote_start is not None:
        return
    start = max(epochs[0].start_offset, log_start)
    if start < bases[0]:
        path = join(source.directory, file_name(start, LOG))
        message = f"{source.directory}: the log starts at offset {start}, but its first segment at {bases[0]}: files were removed"
        loaded.findings.append(Finding("missing", path, 0, 0, start, bases[0], message))


def _note_missing_end(source: Source, loaded: Loaded, *, same_boot: bool, is_archived: bool) -> None:
    recorded = {source.recovery_point: "the recovery point checkpoint"}
    slot = loaded.found
    if slot is not None and loaded.segments.find(slot.active_base) is None:
        end = end_in_header(source.fs, source.directory, slot, same_boot=same_boot)
        recorded.setdefault(end, join(source.directory, DURABLE_POINT))
    if not loaded.segments and not is_archived:
        loaded.reached = max(recorded)  # a broker syncs a snapshot first, and its high watermark may be that of a deleted topic
        if slot is None:
            recorded.setdefault(_high_watermark(source), "the high watermark checkpoint")
    recorded = {offset: join(source.directory, file_name(offset, SNAPSHOT)) for offset in loaded.snapshots[-1:]} | recorded
    last = max(recorded)
    if last > loaded.next_offset:
        left = f"it ends at {loaded.next_offset}" if loaded.segments else "it has no segment: its files were removed"
        message = f"{source.directory}: {recorded[last]} says that the log reached offset {last}, but {left}"
        loaded.findings.append(Finding("missing", source.directory, 0, 0, loaded.next_offset, None, message))


def _high_watermark(source: Source) -> int:
    """Returns the offset below which a broker had served records; 0 if none is known. pylog changes no high watermark."""
    return Checkpoint(source.fs, parent_of(source.directory), HIGH_WATERMARK).offsets().get(source.partition, 0)


def end_in_header(fs: FileSystem, directory: str, slot: DurablePoint, *, same_boot: bool) -> int:
    """Returns the log end by a header whose active segment is gone; 0 if it may be another program that removed the segment.

    Args:
        fs, directory: the partition.
        slot: the header's newest slot.
        same_boot: whether it was written under this boot. If not, only what was synced must have survived.
    """
    if slot.epoch % 2 or has_written_since(fs, directory):
        return 0
    return slot.published_offset if same_boot else slot.durable_offset
