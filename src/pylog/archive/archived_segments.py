"""The segments of a manifest as segments of a log: the engine reads them by their objects, and cannot tell them from others."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from pylog import limits
from pylog.archived_files import segment_files
from pylog.errors import ObjectStoreError, PylogError
from pylog.fs import FILES, Vouched, parent_of
from pylog.objects.layout import ArchivedPartition
from pylog.objects.manifest import Manifest, RemoteSegment
from pylog.objects.objects import ObjectStore
from pylog.objects.ranges import RangeSource
from pylog.objects.remote_files import Folder, RemoteEntry, RemoteFileSystem
from pylog.segment.names import LOG, file_name
from pylog.segment.segment import LogSegment


class OnePartition:
    """The directory of one partition that has objects. See `Folders` for the methods.

    Args:
        files: the partition's files.
    """

    def __init__(self, files: Folder) -> None:
        self._files = files

    def names(self) -> list[str]:
        """Returns no directory: only the files of the partition are read."""
        return []

    def root_files(self) -> Mapping[str, bytes]:
        """Returns no file."""
        return {}

    def log_start(self, name: str) -> int | None:  # noqa: ARG002 - the files say it
        return None

    def folder(self, name: str, local_start: int | None) -> Folder:  # noqa: ARG002 - there is one
        """Returns the files of the partition."""
        return self._files


class ExplainedLog:
    """A log in the archive whose errors tell which records cannot be read, and from where.

    Args:
        source: reads the log.
        partition: the segment's partition.
        segment: in the manifest.
    """

    def __init__(self, source: RangeSource, partition: ArchivedPartition, segment: RemoteSegment) -> None:
        self._source = source
        self._segment = segment
        self._name = f"{partition.topic}-{partition.partition}"
        self.url = source.url
        self.grain = source.grain

    def read(self, position: int, end: int) -> memoryview | bytes:
        """Returns a range. Raises ObjectStoreError."""
        try:
            return self._source.read(position, end)
        except ObjectStoreError as error:
            raise unreadable(error, self._name, self._segment.base_offset, self._segment.end_offset) from error


def unreadable(error: PylogError, name: str, start: int, end: int) -> ObjectStoreError:
    """Returns the error for records that are only in the archive, if a request for them failed."""
    kind = type(error) if isinstance(error, ObjectStoreError) else ObjectStoreError
    message = f"cannot read offsets {start} to {end - 1} of {name}, which are only in the archive: {error}"
    advice = f"the local log begins at offset {end} or later"
    found = kind(f"{message}; {advice}", url=getattr(error, "url", ""), key=getattr(error, "key", ""))
    found.offset = start
    return found


def segments_of(objects: ObjectStore, partition: ArchivedPartition, manifest: Manifest, directory: str) -> dict[str, LogSegment]:
    """Returns the segments of a manifest by their ids, in order. Sends no request.

    Args:
        objects: the archive.
        partition: the manifest's partition.
        manifest: names the segments.
        directory: the partition's, for the paths in messages.
    """
    files: dict[str, RemoteEntry] = {}
    for segment, after in zip_longest(manifest.segments, manifest.segments[1:]):
        found = dict(segment_files(objects, partition, segment, None if after is None else after.base_offset))
        log = file_name(segment.base_offset, LOG)
        entry = found[log]
        assert entry.log is not None
        files |= found | {log: entry._replace(log=ExplainedLog(entry.log, partition, segment))}
    fs = RemoteFileSystem(parent_of(directory), OnePartition(files))
    return {segment.segment_id: _segment(fs, directory, segment, files) for segment in manifest.segments}


def standing_segment(source: RangeSource, directory: str, start: int, end: int) -> LogSegment:
    """Returns a segment that stands for records of which only the archive knows where they are. Each read of it raises.

    Args:
        source: raises.
        directory: the partition's.
        start, end: the offsets of the records.
    """
    entry = RemoteEntry(1, log=source, vouched=Vouched(end, limits.INT64_MAX))
    return _opened(
        RemoteFileSystem(parent_of(directory), OnePartition({file_name(start, LOG): entry})), directory, start, entry, 0
    )


def _segment(fs: RemoteFileSystem, directory: str, segment: RemoteSegment, files: Mapping[str, RemoteEntry]) -> LogSegment:
    entry = files[file_name(segment.base_offset, LOG)]
    return _opened(fs, directory, segment.base_offset, entry, segment.modified_ms)


def _opened(fs: RemoteFileSystem, directory: str, base_offset: int, entry: RemoteEntry, modified_ms: int) -> LogSegment:
    made = LogSegment(fs, directory, base_offset, size=entry.size, mtime_ms=modified_ms, open_files=FILES, mapped=False)
    made.vouched = entry.vouched
    return made
