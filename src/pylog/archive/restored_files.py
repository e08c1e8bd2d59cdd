"""What an unfinished restore has left in a directory, compared with the archive as it is now.

Between two calls the archive may have got more segments, and its log may have been truncated, or its topic deleted and created
again. A file that is not what the archive has now goes, so that no restored log has records of two versions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from google_crc32c import extend

from pylog import trace
from pylog.directory.checkpoints import CLEAN_SHUTDOWN, CLEANER, LOG_START, RECOVERY_POINT
from pylog.directory.topic_names import parse_partition_directory
from pylog.fs import FileSystem, join
from pylog.objects.manifest import RemoteSegment
from pylog.record.types import TopicPartition
from pylog.segment import names
from pylog.topics.catalog import CATALOG

_CHUNK: Final = 8 << 20
_OF_THE_ROOT: Final = (CATALOG, CLEAN_SHUTDOWN, CLEANER, LOG_START, RECOVERY_POINT)  # written again at the end of a restore


def remove_other_partitions(fs: FileSystem, root: str, wanted: Iterable[str]) -> None:
    """Removes the partitions that are not restored any more, and the files of the directory itself that are written last.

    Args:
        fs, root: a directory with an unfinished restore.
        wanted: the names of the directories that are restored.
    """
    kept = frozenset(wanted)
    for entry in fs.list(root):
        path = join(root, entry.name)
        if entry.name in _OF_THE_ROOT:
            fs.remove(path)
        elif entry.is_directory and parse_partition_directory(entry.name) is not None and entry.name not in kept:
            fs.remove_tree(path)
            trace.line(trace.LEFTOVERS_REMOVED, path=path, reason="the archive does not have this partition any more")
    fs.sync_directory(root)


def remove_other_files(fs: FileSystem, directory: str, key: TopicPartition, segments: Iterable[RemoteSegment]) -> frozenset[int]:
    """Removes the files of segments that the archive does not have so, each `.log` first.

    Args:
        fs, directory: a partition with an unfinished restore.
        key: the partition.
        segments: those that the archive has.

    Returns:
        The base offsets of the segments that are there, complete.

    Cost: one read of each `.log` that is there.
    """
    complete = [segment for segment in segments if _is_complete(fs, directory, segment)]
    kept = {
        names.file_name(segment.base_offset, suffix) for segment in complete for suffix in (*names.SEGMENT_SUFFIXES, names.SEAL)
    }
    kept |= {names.file_name(segment.end_offset, names.SNAPSHOT) for segment in complete}
    others = [entry.name for entry in fs.list(directory) if _is_written(entry.name) and entry.name not in kept]
    for name in sorted(others, key=lambda name: (not name.endswith(names.LOG), name)):
        fs.remove(join(directory, name))
    if others:
        fs.sync_directory(directory)
        trace.line(trace.FILES_REMOVED, key, files=others)
    return frozenset(segment.base_offset for segment in complete)


def _is_written(name: str) -> bool:
    return name in {names.DURABLE_POINT, names.ARCHIVED, names.LEADER_EPOCH_CHECKPOINT} or names.parse(name) is not None


def _is_complete(fs: FileSystem, directory: str, segment: RemoteSegment) -> bool:
    path = join(directory, names.file_name(segment.base_offset, names.LOG))
    if not fs.exists(path):
        return False
    file, checksum = fs.open(path), 0
    try:
        if file.size() != segment.size:
            return False
        for start in range(0, segment.size, _CHUNK):
            checksum = extend(checksum, file.read(min(_CHUNK, segment.size - start), start))
    finally:
        file.close()
    return checksum == segment.log_crc32c
