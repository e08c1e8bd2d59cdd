"""The directories of partitions whose first segments a Kafka broker has moved to remote storage, or which are only there.

The truth of what is remote is the broker's topic `__remote_log_metadata`. If its records of a partition are in the local
directory from the first one on, they are used; else the tier is listed, and each complete segment counts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol, Self

from pylog import limits, trace
from pylog.directory.checkpoints import CLEAN_SHUTDOWN, LOG_START, Checkpoint
from pylog.directory.leader_epoch_cache import EpochEntry, read_epochs, tiered_log_start, truncate_epochs_start
from pylog.directory.partition_metadata import format_partition_metadata, read_topic_id
from pylog.directory.topic_names import parse_partition_directory
from pylog.errors import (
    CorruptionError,
    InvalidArgumentError,
    ObjectNotFoundError,
    ObjectStoreError,
    ObjectStoreUnavailableError,
)
from pylog.fs import FileSystem, join
from pylog.objects.cache import SMALL_OBJECTS
from pylog.objects.ranges import MissingLog
from pylog.objects.remote_files import BytesInMemory, Folder, Folders, RemoteEntry
from pylog.objects.tier_batches import end_offset, epoch_misfit, epochs_in, epochs_of_batches, position_of
from pylog.objects.tier_metadata import recorded_segments
from pylog.objects.tier_segments import Served, TierSegment, cover, newest, on_lineage
from pylog.objects.tier_source import SegmentObjects, TierLayout, TierPartition
from pylog.record.types import TopicPartition
from pylog.segment.names import (
    INDEX,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    PARTITION_METADATA,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)

_INDEXES: Final = (INDEX, TIME_INDEX, TRANSACTION_INDEX)
_NONE: Final = RemoteEntry(0, small=lambda: None)  # an index that is made from the log when it is needed


class TierView(NamedTuple):
    """The part of a log that was in a tier at one moment. It is small and has no secrets, so it can travel to other processes.

    Attributes:
        topic_id: the partition's topic id.
        parts: the parts of the log that are in the tier, in order; at least one.
        epochs: the log's leader epochs, ascending.
        local_start: base offset of the first local segment; None without a broker's directory.
    """

    topic_id: str
    parts: tuple[Served, ...]
    epochs: tuple[EpochEntry, ...]
    local_start: int | None

    def within(self, start: int, end: int | None) -> Self:
        """Returns the view for a reader of some offsets only. The other parts of the log cannot be read from it.

        Args:
            start: the first offset that is read.
            end: the offset after the last one; None to keep all that follows.
        """
        wanted = [part for part in self.parts if part.end_offset > start and (end is None or part.base_offset < end)]
        kept = [part if part.segment is None else part._replace(segment=part.segment._replace(epochs=())) for part in wanted]
        first, last = self.parts[0].base_offset, self.parts[-1].end_offset
        before = Served(first, kept[0].base_offset if kept else last, None)
        after = Served(kept[-1].end_offset if kept else last, last if self.local_start is not None else 0, None)
        return self._replace(parts=tuple(part for part in (before, *kept, after) if part.base_offset < part.end_offset))


class ViewedFolders(Folders, Protocol):
    """The directories of partitions with a remote tier, and what was found of each."""

    @property
    def views(self) -> Mapping[str, TierView]: ...

    def folder_of_view(self, name: str, view: TierView) -> Folder:
        """Returns the files of a partition, as a view has them. Sends no request."""
        ...


class TierFolders:
    """The partitions of a broker with remote storage. See `Folders` for the methods.

    Args:
        layout: the tier's layout.
        url: the tier's URL, for errors.
        fs, root: the broker's log directory. Its local segments count before those of the tier.

    Attributes:
        views: what was found last, by the name of the partition.
    """

    def __init__(self, layout: TierLayout, url: str, fs: FileSystem, root: str) -> None:
        self._layout = layout
        self._url = url
        self._fs = fs
        self._root = root
        self._log_starts = Checkpoint(fs, root, LOG_START)
        self.views: dict[str, TierView] = {}

    def names(self) -> list[str]:
        """Returns no names: each partition of the broker has a local directory."""
        return []

    def root_files(self) -> Mapping[str, bytes]:
        return {}

    def log_start(self, name: str) -> int | None:
        partition = parse_partition_directory(name)
        return None if partition is None else tiered_log_start(*self._recorded(partition))

    def _recorded(self, partition: TopicPartition) -> tuple[int | None, list[EpochEntry]]:
        """Returns a partition's line in the checkpoint of log starts and its leader epochs, as the broker wrote them last."""
        epochs = read_epochs(self._fs, join(self._root, f"{partition.topic}-{partition.partition}"))
        return self._log_starts.offsets().get(partition), epochs or []

    def folder(self, name: str, local_start: int | None) -> Folder:
        """Returns the segments before the first local one, from the log start offset on.

        Before a running broker has written its log starts, the leader epochs tell where the log begins. If the tier has nothing
        of it then, segments are missing.
        """
        self.views.pop(name, None)
        found = None if local_start is None else self._view(name, local_start)
        if found is None:
            return {}
        self.views[name] = found
        return self.folder_of_view(name, found)

    def folder_of_view(self, name: str, view: TierView) -> Folder:
        assert view.local_start is not None
        return folder_of(self._layout, name, view.parts, view.local_start)

    def _view(self, name: str, local_start: int) -> TierView | None:
        partition = parse_partition_directory(name)
        if partition is None:
            return None
        topic_id = read_topic_id(self._fs, join(self._root, name))
        recorded, epochs = self._recorded(partition)
        start = tiered_log_start(recorded, epochs)
        if start is None or start >= local_start or topic_id is None:
            return None
        of_tier = TierPartition(partition.topic, partition.partition, topic_id)
        found = recorded_segments(self._fs, self._root, of_tier, self._layout)
        if found is None:
            found = self._layout.segments(of_tier)
            trace.line(trace.TIER_LISTED, partition, path=self._url, segments=len(found))
        if recorded is None and not found:
            return None
        segments = [each for each in found if on_lineage(each, epochs, limits.INT64_MAX)]
        _note_left_out(self._layout, found, segments)
        return TierView(topic_id, tuple(cover(segments, start, local_start)), tuple(epochs), local_start)


class RemoteOnlyFolders:
    """A tier without a broker's directory. See `Folders` for the methods.

    Args:
        layout: the tier's layout.
        url: the tier's URL, for errors.
        topic_ids: which id counts of a topic that was deleted and created again, by topic.

    Attributes:
        views: what was found last, by the name of the partition.
    """

    def __init__(self, layout: TierLayout, url: str, topic_ids: Mapping[str, str]) -> None:
        self._layout = layout
        self._url = url
        self._topic_ids = topic_ids
        self._guard = threading.Lock()
        self._listed: dict[str, TierPartition] | None = None
        self.views: dict[str, TierView] = {}

    def _partitions(self) -> dict[str, TierPartition]:
        with self._guard:
            if self._listed is None:
                self._listed = {f"{each.topic}-{each.partition}": each for each in self._chosen(self._layout.partitions())}
            return self._listed

    def _chosen(self, found: set[TierPartition]) -> Iterator[TierPartition]:
        ids: dict[str, set[str]] = {}
        for each in found:
            ids.setdefault(each.topic, set()).add(each.topic_id)
        for topic, known in ids.items():
            if len(known) > 1 and topic not in self._topic_ids:
                have = f"{self._url} has segments of {len(known)} topics named {topic!r}: {', '.join(sorted(known))}"
                raise InvalidArgumentError(f"{have}; choose one, as in topic_ids={{{topic!r}: {min(known)!r}}}", path=self._url)
        yield from (each for each in found if self._topic_ids.get(each.topic, each.topic_id) == each.topic_id)

    def names(self) -> list[str]:
        """Returns the directories of all partitions. Cost: one listing of the tier."""
        return sorted(self._partitions())

    def root_files(self) -> Mapping[str, bytes]:
        """Returns the files by which a broker's directory is known, after a clean shutdown."""
        return {"meta.properties": b"version=1\n", CLEAN_SHUTDOWN: b'{"version":0,"brokerEpoch":-1}'}

    def log_start(self, name: str) -> int | None:  # noqa: ARG002 - there is no local directory
        return None

    def folder(self, name: str, local_start: int | None) -> Folder:  # noqa: ARG002 - there is no local part
        """Returns all segments of the latest leader's log, and an empty one after them."""
        partition = self._partitions().get(name)
        if partition is None:
            return {}
        found = self._layout.segments(partition)
        last = newest(found)
        if last is None:
            return {}
        _check_end(self._layout.opened(last), last)
        lineage = self._epochs(last, found)
        if not on_lineage(last, lineage, limits.INT64_MAX):
            url = self._layout.opened(last).url
            raise CorruptionError(f"{url} has other leader epochs than its copy of the checkpoint; restore its objects", path=url)
        segments = _of_log(self._layout, found, lineage)
        start = max(min(each.base_offset for each in segments), min(lineage[0].start_offset, last.base_offset))
        parts = cover(segments, start, None)
        self.views[name] = view = TierView(partition.topic_id, tuple(parts), tuple(lineage), None)
        return self.folder_of_view(name, view)

    def folder_of_view(self, name: str, view: TierView) -> Folder:
        start, end = view.parts[0].base_offset, view.parts[-1].end_offset
        epochs = truncate_epochs_start(list(view.epochs), start)
        return {
            **folder_of(self._layout, name, [part for part in view.parts if part.base_offset < end], end),
            file_name(end, LOG): RemoteEntry(0, log=BytesInMemory(join(self._url, name, file_name(end, LOG)))),
            PARTITION_METADATA: _known(format_partition_metadata(view.topic_id)),
            LEADER_EPOCH_CHECKPOINT: _known(_formatted(epochs)),
        }

    def _epochs(self, last: TierSegment, found: Sequence[TierSegment]) -> Sequence[EpochEntry]:
        """Returns the leader epochs of a log, from its last segment's checkpoint.

        If the checkpoint is missing, damaged or empty, begins after the segment or contradicts its batches, returns the first
        offset of each epoch in the segments instead.
        """
        objects = self._layout.opened(last)
        entries = epochs_in(_small_file(objects, LEADER_EPOCH_CHECKPOINT), objects.url)
        if entries and entries[0].start_offset < last.end_offset:
            wrong = _misfit(objects, last, entries)
            if wrong is None:
                return entries
            trace.line(trace.TIER_EPOCHS_WRONG, path=objects.url, reason=wrong, then="the segments count")
        starts: dict[int, int] = {}
        for epoch, start in (entry for segment in found for entry in segment.epochs):
            starts[epoch] = min(start, starts.get(epoch, start))
        return [EpochEntry(epoch, start) for epoch, start in sorted(starts.items())]


class PinnedFolders:
    """One partition as a view has it: nothing is listed. See `Folders` for the methods.

    Args:
        folders: the tier's folders. If the broker has moved or deleted local segments since the view, they read the tier again.
        name: the partition's name.
        view: the view of it.
    """

    def __init__(self, folders: ViewedFolders, name: str, view: TierView) -> None:
        self._folders = folders
        self._name = name
        self._view = view

    def names(self) -> list[str]:
        """Returns the partition, if there is no local directory."""
        return [self._name] if self._view.local_start is None else []

    def root_files(self) -> Mapping[str, bytes]:
        return self._folders.root_files()

    def log_start(self, name: str) -> int | None:
        return self._folders.log_start(name)

    def folder(self, name: str, local_start: int | None) -> Folder:
        """Returns the files of the partition."""
        if name == self._name and local_start == self._view.local_start:
            return self._folders.folder_of_view(name, self._view)
        return {} if local_start is None else self._folders.folder(name, local_start)


def _of_log(layout: TierLayout, found: Sequence[TierSegment], epochs: Sequence[EpochEntry]) -> list[TierSegment]:
    """Returns the segments that are part of a log. If one would be left out, its batches are asked first.

    Without a broker's directory nothing else tells that offsets of the log are missing.
    """
    known = [each if on_lineage(each, epochs, limits.INT64_MAX) else _as_batches_say(layout.opened(each), each) for each in found]
    kept = [each for each in known if on_lineage(each, epochs, limits.INT64_MAX)]
    _note_left_out(layout, known, kept)
    return kept


def _note_left_out(layout: TierLayout, found: Sequence[TierSegment], kept: Sequence[TierSegment]) -> None:
    for each in set(found).difference(kept):
        trace.line(trace.TIER_LEFT_OUT, path=layout.opened(each).url, first=each.base_offset, end=each.end_offset)


def _as_batches_say(objects: SegmentObjects, segment: TierSegment) -> TierSegment:
    """Returns a segment with the leader epochs of its batches, if they contradict its description."""
    wrong = _misfit(objects, segment, segment.epochs)
    if wrong is None:
        return segment
    trace.line(trace.TIER_EPOCHS_WRONG, path=objects.url, reason=wrong, then="the batches count")
    return segment._replace(epochs=epochs_of_batches(objects, segment.size))


def _misfit(objects: SegmentObjects, segment: TierSegment, epochs: Sequence[EpochEntry]) -> str | None:
    """Returns how leader epochs contradict a segment, as `epoch_misfit`; None if its log is missing or damaged."""
    with suppress(CorruptionError, ObjectNotFoundError):
        return epoch_misfit(objects, segment.base_offset, segment.size, epochs)
    return None


def _check_end(objects: SegmentObjects, last: TierSegment) -> None:
    """Refuses a description of the last segment that ends before its last batch. A damaged log is left to its readers.

    Raises:
        CorruptionError: it does.
    """
    end = last.end_offset
    with suppress(CorruptionError, ObjectNotFoundError):
        end = end_offset(objects, last.base_offset, last.size)
    if end > last.end_offset:
        message = f"{objects.url} ends at offset {end}, but its description at {last.end_offset}; restore its objects"
        raise CorruptionError(message, path=objects.url, offset=last.end_offset, next_offset=end)


def _formatted(epochs: Sequence[EpochEntry]) -> bytes:
    lines = ["0", str(len(epochs)), *(f"{entry.epoch} {entry.start_offset}" for entry in epochs)]
    return "\n".join(lines).encode() + b"\n"


def _known(data: bytes) -> RemoteEntry:
    return RemoteEntry(len(data), small=lambda: data)


def folder_of(layout: TierLayout, name: str, parts: Sequence[Served], end: int) -> dict[str, RemoteEntry]:
    """Returns the files of a part of a log.

    Args:
        layout: the tier's layout.
        name: the partition's name, for errors.
        parts: from `cover`.
        end: the offset after the last part.
    """
    files: dict[str, RemoteEntry] = {}
    for part in parts:
        following = part.end_offset if part.end_offset < end else None
        if part.segment is None:
            path = join(name, file_name(part.base_offset, LOG))
            missing = MissingLog(path, name, part.base_offset, part.end_offset, "are in no segment of the broker's remote tier")
            files[file_name(part.base_offset, LOG)] = RemoteEntry(MissingLog.size, log=missing, next_base=following)
            files[file_name(part.base_offset, INDEX)] = _NONE
            continue
        objects, segment = layout.opened(part.segment), part.segment
        size = segment.size
        if part.end_offset < segment.end_offset:  # its last batches are in the next segment too
            size = position_of(objects, segment.base_offset, size, part.end_offset)
        files[file_name(part.base_offset, LOG)] = RemoteEntry(size, log=objects, next_base=following)
        is_whole = size == segment.size
        for suffix in _INDEXES:
            of_whole = RemoteEntry(0, small=partial(_small_file, objects, suffix))
            files[file_name(part.base_offset, suffix)] = of_whole if is_whole or suffix == TRANSACTION_INDEX else _NONE
        if is_whole:
            files[file_name(part.end_offset, SNAPSHOT)] = RemoteEntry(0, small=partial(_small_file, objects, SNAPSHOT))
    return files


def _small_file(objects: SegmentObjects, suffix: str) -> bytes | None:
    """Returns a small file that can be created again from the log: none if it is damaged or missing."""
    try:
        return SMALL_OBJECTS.get(f"{objects.url} {suffix}", partial(objects.small_file, suffix))
    except ObjectStoreUnavailableError:
        raise
    except (CorruptionError, ObjectStoreError) as error:
        trace.line(trace.IGNORED, path=objects.url.removesuffix(LOG) + suffix, reason=str(error))
        return None
