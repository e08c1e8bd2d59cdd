"""Reads a broker's records of its remote segments from the local partitions of `__remote_log_metadata`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from pylog.directory.topic_names import parse_partition_directory
from pylog.errors import CorruptionError, UnsupportedFormatError
from pylog.fs import FILES, DirectoryEntry, FileSystem, join
from pylog.objects.tier_records import TOPIC, RecordedSegment, fold
from pylog.objects.tier_segments import TierSegment
from pylog.objects.tier_source import TierLayout, TierPartition
from pylog.record import kernels
from pylog.record.decoder import RecordDecoder
from pylog.segment.names import LOG, file_name, plain_plan
from pylog.segment.segment import LogSegment


def recorded_segments(fs: FileSystem, root: str, partition: TierPartition, layout: TierLayout) -> list[TierSegment] | None:
    """Returns a partition's complete segments, by the broker's records.

    Args:
        fs, root: the broker's log directory.
        partition: the log's partition.
        layout: names the objects.

    Returns:
        The segments. None if the records are not here, do not reach back to their start, or are damaged.

    Cost: one pass over the records of each partition of `__remote_log_metadata` that is here.
    """
    found = _recorded(fs, root, partition)
    return None if found is None else [_of_tier(each, layout) for each in found]


def recorded_bases(fs: FileSystem, root: str, name: str, topic_id: str | None) -> list[int]:
    """Returns the base offsets of a partition's complete remote segments, by the broker's records; none if they are not here.

    Args:
        fs, root: the broker's log directory.
        name: the name of the partition's directory.
        topic_id: its topic's id.

    Cost: as `recorded_segments`.
    """
    partition = parse_partition_directory(name)
    if partition is None or topic_id is None:
        return []
    found = _recorded(fs, root, TierPartition(partition.topic, partition.partition, topic_id))
    return [each.base_offset for each in found or ()]


def _recorded(fs: FileSystem, root: str, partition: TierPartition) -> list[RecordedSegment] | None:
    for entry in fs.list(root):
        if entry.is_directory and entry.name.startswith(TOPIC + "-"):
            found = _folded(fs, join(root, entry.name))
            if found is not None and partition in found:
                return found[partition]
    return None


def _of_tier(found: RecordedSegment, layout: TierLayout) -> TierSegment:
    stem = layout.stem(found.partition, found.base_offset, found.segment_id, found.custom)
    return TierSegment(found.segment_id, found.base_offset, found.end_offset, found.size, found.epochs, stem)


def _folded(fs: FileSystem, directory: str) -> dict[TierPartition, list[RecordedSegment]] | None:
    try:
        entries = {entry.name: entry for entry in fs.list(directory, sizes=LOG)}
        plan = plain_plan(sorted(entries))
        if plan is None or 0 not in plan.segments:
            return None
        return fold(_values(fs, directory, [(base, entries[name]) for base, name in plan.segments.items()]))
    except (CorruptionError, UnsupportedFormatError):
        return None


def _values(fs: FileSystem, directory: str, segments: list[tuple[int, DirectoryEntry]]) -> Iterator[bytes]:
    """Yields the values of a partition's records. Raises CorruptionError at damage that is not an unfinished end."""
    for number, (base, entry) in enumerate(segments):
        segment = LogSegment(fs, directory, base, size=entry.size, mtime_ms=0, open_files=FILES)
        decoder = RecordDecoder(("value",), verify=True)
        try:
            for region in segment.regions(0, entry.size):
                yield from _column(decoder.feed(region.buffer, region.table))
                if region.status not in (kernels.OK, kernels.FULL) and number < len(segments) - 1:
                    path = join(directory, file_name(base, LOG))
                    raise CorruptionError(f"{path} is damaged at position {region.end}", path=path, position=region.end)
            yield from _column(decoder.finish())
        finally:
            segment.close()


def _column(frames: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    for frame in frames:
        yield from (value for value in frame.column(0).to_pylist() if value is not None)
