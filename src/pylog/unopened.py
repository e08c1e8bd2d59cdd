"""`UnopenedDirectory`: the topics and partitions of a log directory, from names, checkpoints and batch headers only.

The engine, with its Arrow decoder, is most of the start-up time of a process. Listing topics and planning reads need it only for
a partition in which anything is unusual. This module does not import it; its callers open a store if there is no answer here.
"""

from __future__ import annotations

from typing import Final

from pylog.directory.archives import check_no_archive
from pylog.directory.checkpoints import LOG_START, NEW_MARKER, RECOVERY_POINT, Checkpoint, read_marker
from pylog.errors import StorageFailedError
from pylog.fs import FileSystem, OsFileSystem, join
from pylog.log.reading.fast_outline import FastOutline, fast_outline, is_still_so, stable_offset
from pylog.record.types import TopicPartition
from pylog.segment.names import PARTITION_METADATA
from pylog.topics.listing import find_topics
from pylog.topics.partitions import directory_name
from pylog.topics.topic import Topic

MOST_HEADERS: Final = 2000  # that `stable_offset` reads of a partition: some 10 ms


class UnopenedDirectory:
    """A log directory, read without the engine. Takes no lock, writes nothing, keeps nothing open. Not thread-safe.

    Args:
        path: the directory.
        fs: the file system; by default the operating system's.

    Attributes:
        path, fs: as given.

    Raises:
        NotALogDirectoryError: it is missing, not a directory, or an archive.
    """

    def __init__(self, path: str, fs: FileSystem | None = None) -> None:
        self.path = path
        self.fs = fs = fs or OsFileSystem()
        fs.check_directory(path, write=False)
        marker = read_marker(fs, path)
        if marker is None:
            check_no_archive(fs, path)
        self._ours = marker == NEW_MARKER
        self._checkpoint = Checkpoint(fs, path, LOG_START)
        self._log_starts = self._checkpoint.offsets()
        self._recovery = Checkpoint(fs, path, RECOVERY_POINT)
        self._recovery_points = self._recovery.offsets()

    @property
    def complaint(self) -> str | None:
        """Why a checkpoint cannot be read; None if all can."""
        self._recovery.offsets()
        return self._checkpoint.complaint or self._recovery.complaint

    def topics(self) -> dict[str, Topic]:
        """Returns the topics by name, as `Store.topics`, and refreshes what the checkpoints say."""
        self._log_starts, self._recovery_points = self._checkpoint.offsets(), self._recovery.offsets()
        return find_topics(self.fs, self.path)

    def directory(self, partition: TopicPartition) -> str:
        """Returns the path of a partition's directory."""
        return join(self.path, directory_name(partition))

    def fast_outline(self, partition: TopicPartition) -> FastOutline | None:
        """Returns a partition's outline if names and headers suffice; see `usual_outline`."""
        start, recovered = self._log_starts.get(partition), self._recovery_points.get(partition, 0)
        return usual_outline(self.fs, self.directory(partition), start, recovered, ours=self._ours)

    def is_unwritten(self, partition: TopicPartition) -> bool:
        """Returns True if a partition's directory has no more than its topic's id: no record was ever appended.

        False if it cannot be listed: it was removed, is not created yet, or belongs to another user.
        """
        try:
            entries = self.fs.list(self.directory(partition))
        except StorageFailedError:
            return False
        known = self._log_starts.get(partition) or self._recovery_points.get(partition)
        return not known and all(entry.name == PARTITION_METADATA and entry.is_file for entry in entries)

    def is_still_so(self, partition: TopicPartition, seen: FastOutline) -> bool:
        """Returns whether a partition is unchanged since an earlier outline."""
        return is_still_so(self.fs, self.directory(partition), seen)

    def stable_offset(self, partition: TopicPartition, seen: FastOutline) -> int | None:
        """Returns a partition's last stable offset; None if its batches must be read to know it."""
        found = stable_offset(self.fs, self.directory(partition), seen.outline, MOST_HEADERS)
        return found if self.is_still_so(partition, seen) else None


def usual_outline(
    fs: FileSystem, directory: str, log_start: int | None, recovery_point: int, *, ours: bool
) -> FastOutline | None:
    """Returns a partition's outline, as its open log has it, if its directory, its checkpoints and its headers suffice.

    Args:
        fs, directory: the partition.
        log_start: its entry in the log start checkpoint, or None.
        recovery_point: its entry in the recovery point checkpoint; 0 if there is none.
        ours: as for `fast_outline`.

    Returns:
        The outline; None if the partition must be opened: its first records may be in an archive, in a broker's remote tier or
        lost, or its end is missing.
    """
    seen = fast_outline(fs, directory, log_start or 0, ours=ours)
    if seen is None or seen.outline.end_offset < recovery_point:  # its end is missing
        return None
    first = seen.outline.bases[0]
    if first == 0:  # as most logs
        return seen
    from pylog.log.recovery.tier import may_begin_in_tier, may_have_lost_start

    own_start = 0 if seen.slot is None else seen.slot.log_start_offset
    unusual = may_begin_in_tier(fs, directory, log_start, first)
    return None if unusual or may_have_lost_start(fs, directory, max(log_start or 0, own_start), first) else seen
