"""`Follower`: keeps the state of a log up to date that other processes write. Takes no lock (reliability 11).

The header has the published end, and an epoch that changes with the segments. While the epoch is the same, new batches after the
old end are added. After any other change the partition is loaded again, read-only, under one epoch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec.structs import replace

from pylog import limits
from pylog.clock import Clock
from pylog.directory.brokers import has_written_since
from pylog.errors import CorruptionError, StorageFailedError, UnknownTopicOrPartitionError
from pylog.log.durable_point import DurablePoint, DurablePointFile, open_header
from pylog.log.producer_state import Producer, ProducerStateManager
from pylog.log.recovery.found_segments import FoundSegments
from pylog.log.recovery.loaded import Loaded, Source, is_of_another_topic
from pylog.log.recovery.loader import deleted, listing, load
from pylog.log.recovery.producer_snapshots import ONLY_OPEN
from pylog.log.recovery.replay import producers_at_end
from pylog.log.state import LogState, SegmentView, first_state
from pylog.record import kernels
from pylog.record.format import BASE_OFFSET, LAST_OFFSET
from pylog.segment.log_file import Region
from pylog.segment.names import LOG
from pylog.segment.segment import vanished

_ATTEMPTS: Final = 50  # while segments change: half a second, then the result of two equal refreshes is used
_NAP: Final = 0.01


class Follower:
    """The reading side of one log, kept up to date. Not thread-safe: its log calls it under its own lock.

    Args:
        source: the partition.
        clock: for waiting while segments change.
        loaded: the result of loading the partition.
        publish: receives each new state.
        header: the partition's, open; None to open it when it is needed.

    Attributes:
        loaded: the result of the last load.
        is_deleted: true if another process has deleted the partition.

    Raises:
        UnknownTopicOrPartitionError: from any refresh after the deletion.
    """

    def __init__(
        self,
        source: Source,
        clock: Clock,
        loaded: Loaded,
        publish: Callable[[LogState], None],
        header: DurablePointFile | None = None,
    ) -> None:
        self._source = dataclasses.replace(source, writable=False) if source.writable else source
        self._clock = clock
        self._publish = publish
        self._header = header
        self._slot: DurablePoint | None = loaded.found
        self._files = [(segment.log_name, segment.size) for segment in loaded.segments]
        self._files_loaded_for: list[tuple[str, int]] | None = None
        self._producers: ProducerStateManager | None = loaded.producers
        self.loaded = loaded
        self.is_deleted = False
        self._replacements = 0  # of segments, detected by names and sizes of files
        self._is_refreshing = True  # until a refresh has succeeded
        self._refreshed_at = 0.0  # in seconds of the clock
        self._judged_size = 0  # of the active segment's file, if larger than its published part
        self._state = first_state(loaded)
        if header is not None:
            source.open_files.opened(self)
        self._publish(self._state)

    @property
    def slot(self) -> DurablePoint | None:
        """The header's slot of the current state; None if the header is not valid."""
        return self._slot if self.loaded.slot is not None and self.loaded.same_boot else None

    def refresh(self, *, wait: bool = False) -> None:
        """Adds the changes of other processes.

        Args:
            wait: true to wait for the end of a running change; otherwise the state before it may be returned.

        Cost: one read if nothing has changed.
        """
        self._is_refreshing = True
        try:
            if self.is_deleted:
                raise deleted(self._source)
            self._take_changes(wait)
        except UnknownTopicOrPartitionError:
            self.is_deleted = True
            raise
        self._refreshed_at = self._clock.monotonic()
        self._is_refreshing = False

    def may_have_changed(self) -> bool:
        """Returns whether another process may have changed the log since the last refresh. For any thread. Cost: one read.

        Without a valid header only the directory shows changes, so it returns true every 50 ms.
        """
        header = self._header
        if self.slot is None:
            return self._is_refreshing or self._clock.monotonic() - self._refreshed_at >= limits.ASK_AGAIN_S
        return header is None or header.changed() or self._is_refreshing  # in this order: the state is published first

    def is_current(self, *, committed: bool = False) -> bool:
        """Returns whether the published state is current, so that a refresh would change nothing. For any thread, without a lock.

        Args:
            committed: the open transactions must be known, too.

        Cost: one pread and one fstat. Where no header counts it is never true.
        """
        header, state = self._header, self._state
        if header is None or (committed and self._producers is None) or self.slot is None:
            return False
        try:
            if header.changed() or (state.active is not None and self._has_unseen_bytes(state.active.file().size())):
                return False
        except StorageFailedError:  # closed by another thread, or deleted
            return False
        return not self._is_refreshing and state is self._state  # last: a refresh publishes its state before it ends

    def _has_unseen_bytes(self, size: int) -> bool:
        """Returns whether the active segment's file has bytes past the published end that were not checked yet."""
        return size > self._state.active_size and size != self._judged_size

    def _take_changes(self, wait: bool) -> None:
        header = self._opened_header()
        slot = None if header is None else header.refresh()
        if slot is not None and wait and self.slot is not None and slot.epoch != self._state.epoch:
            self.reload()
        elif header is not None and slot is not None and slot != self._slot:
            if not self._extend(slot, same_boot=header.same_boot):
                self.reload()
        elif header is None or self.slot is None:
            self._compare_files()
        elif not wait or not self._compare_sealed_files():
            self._check_past_end()

    def _compare_files(self) -> None:
        """Detects changes by the files and the log start, if no header is valid: a broker writes here, or did."""
        files, has_other_start = self._listed(), self._has_other_start()
        if files != self._files or has_other_start or is_of_another_topic(self._source, self.loaded):
            self._replacements += has_other_start or not _has_only_grown(self._files, files)
            self.reload()
            self._files = files

    def _has_other_start(self) -> bool:
        """Returns whether a broker has written another log start offset: its segments may be the same."""
        return self.loaded.slot is None and self._source.log_start_line != self.loaded.recorded_start

    def _compare_sealed_files(self) -> bool:
        """Loads the log again if a broker has deleted or replaced segments without an append, so that the header is still valid.

        Called after a missing file was found. The same files are loaded for once: an interrupted swap has segments under
        other names, which another load does not change.
        """
        sealed = [(segment.log_name, segment.size) for segment in self.loaded.segments][:-1]
        files = self._listed()
        if files == self._files_loaded_for or not _were_replaced(sealed, files):
            return False
        self._files_loaded_for = files
        self._replacements += 1
        self.reload()
        return True

    def _listed(self) -> list[tuple[str, int]]:
        """Returns the current segments in the directory, by name and size."""
        return [(entry.name, entry.size) for entry in listing(self._source) if entry.name.endswith(LOG)]

    def _check_past_end(self) -> None:
        """Loads the log again if a broker has appended to it, which does not change the header."""
        active = self._state.active
        try:
            size = 0 if active is None else active.file().size()
        except StorageFailedError as error:
            if vanished(error):
                return  # a read of it raises
            raise
        if self._has_unseen_bytes(size):
            self._judged_size = size  # unpublished bytes are checked only once
            if has_written_since(self._source.fs, self._source.directory):
                self.reload()

    # ---- appends -------------------------------------------------------------------------------------------------------------

    def _extend(self, slot: DurablePoint, *, same_boot: bool) -> bool:
        """Adds the batches after the known end, if nothing else has changed.

        During a change of segments, published records are not affected yet. The old state is used until the change is complete,
        or a file is missing. So readers do not wait for a roll, which syncs a whole segment.
        """
        old, active = self._slot, self._state.active
        if old is None or active is None or not same_boot or not self.loaded.same_boot or active.builder is None:
            return False
        same = slot.epoch in (old.epoch, old.epoch | 1) and _lasting(slot) == _lasting(old)
        if not same or old.epoch % 2 or old.flags or slot.flags or slot.published_position < self._state.active_size:
            return False
        end, offset = self._state.active_size, self._state.end_offset
        walk = active.file().tables if self._producers is None else active.file().regions  # markers are records
        for region in walk(end, slot.published_position):
            if not self._follows(region, offset):
                return False
            end, offset = region.end, int(region.table[LAST_OFFSET, -1]) + 1 if region.table.shape[1] else offset
            active.builder.add(region.table, region.table.shape[1], position=region.shift)
            if self._producers is not None:
                self._producers.replay(region.buffer, region.table)
        if (end, offset) != (slot.published_position, slot.published_offset):
            return False
        self._slot = slot
        self.loaded.grow(end, offset)
        active.size = end
        if not slot.epoch % 2:
            active.published = end, slot.header_digest
        self._set_state(replace(self._state, active_size=end, end_offset=offset, durable_offset=min(slot.durable_offset, offset)))
        return True

    @staticmethod
    def _follows(region: Region, offset: int) -> bool:
        """Returns whether a region has whole batches that continue from an offset."""
        table = region.table
        if region.status not in (kernels.OK, kernels.FULL):
            return False
        first = np.append(offset, table[LAST_OFFSET, :-1] + 1)[: table.shape[1]]
        return bool((table[BASE_OFFSET] == first).all())

    def _set_state(self, state: LogState) -> None:
        found = self._producers
        unstable, opened = (None, ()) if found is None else (found.first_unstable_offset, found.open_transactions())
        self._state = replace(state, first_unstable_offset=unstable, open_transactions=opened)
        self._publish(self._state)

    # ---- other changes -------------------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Loads the partition again."""
        self.close()  # the header may have been replaced by another file (reliability 13)
        loaded = load_live(self._source, self._clock)
        if not loaded.follows(self.loaded):
            raise deleted(self._source)
        self.loaded, self._slot, self._producers = loaded, loaded.found, None
        self._set_state(replace(first_state(loaded), replacements=self._replacements))

    def know_transactions(self) -> None:
        """Finds the open transactions, which a log opened for reading does on first use."""
        while self._producers is None:
            try:
                self._producers, _ = producers_at_end(self._source.fs, self._source.directory, self.loaded, ONLY_OPEN)
            except (CorruptionError, StorageFailedError):
                if not self._has_other_segments():
                    raise
            else:
                if not self._has_other_segments():
                    self._set_state(self._state)
                    return
                self._producers = None  # it was read from files that have been replaced

    def open_producers(self) -> list[Producer]:
        """Returns the producers with an open transaction, by the first offsets of these."""
        self.know_transactions()
        return [] if self._producers is None else self._producers.open_producers()

    def _has_other_segments(self) -> bool:
        """Refreshes after a read of several files. Returns whether segments were added, deleted or replaced during the read."""
        before = self._state.version
        self.refresh(wait=True)
        return self._state.version != before

    def close(self) -> None:
        """Closes the header."""
        self._source.open_files.closed(self)
        self._header = None

    def release(self) -> bool:
        """Closes the header; the next refresh opens it again."""
        self._header = None
        return True

    def forget(self) -> None:
        """Makes the next refresh load the partition again, because this process has written to it."""
        self._slot = None
        self._is_refreshing = True

    def rest(self) -> None:
        """Releases all segments, because this process writes now. The next refresh loads the partition again.

        A state kept here would keep the files of segments that are deleted meanwhile, and their room on the disk.
        """
        self.forget()
        self._files, self._producers = [], None
        self.loaded = dataclasses.replace(self.loaded, segments=FoundSegments.known([]), builder=None, producers=None)
        self._state = replace(self._state, segments=SegmentView([]), active=None)

    def _opened_header(self) -> DurablePointFile | None:
        header = self._header
        if header is None:
            header = open_header(self._source.fs, self._source.directory)
            if header is not None:
                self._check_topic(header)
                self._header = header
                self._source.open_files.opened(self)
        return header

    def _check_topic(self, header: DurablePointFile) -> None:
        """Closes a header of another topic: one that was just opened can be equal to that of the topic in whose place it is."""
        if is_of_another_topic(self._source, self.loaded):
            header.close()
            raise deleted(self._source)


def _lasting(slot: DurablePoint) -> tuple[int, int, int, int]:
    """Returns the facts that appends, and a roll in progress, do not change."""
    return slot.active_base, slot.active_inode, slot.log_start_offset, slot.truncation_count


def _has_only_grown(before: list[tuple[str, int]], now: list[tuple[str, int]]) -> bool:
    """Returns whether, by names and sizes, only the last segment has grown and new ones were added."""
    if not before:
        return True
    *sealed, (last, size) = before
    return now[: len(sealed)] == sealed and any(name == last and grown >= size for name, grown in now[len(sealed) :][:1])


def _were_replaced(sealed: list[tuple[str, int]], now: list[tuple[str, int]]) -> bool:
    """Returns whether sealed segments were deleted at the log start or replaced, as by a broker. Ignores other missing ones."""
    sizes = dict(now)
    return any(name not in sizes for name, _ in sealed[:1]) or any(sizes.get(name, size) != size for name, size in sealed)


def load_live(source: Source, clock: Clock) -> Loaded:
    """Loads a partition that other processes may change. As `load_to_follow`."""
    loaded, header = load_to_follow(source, clock)
    if header is not None:
        header.close()
    return loaded


def load_to_follow(source: Source, clock: Clock) -> tuple[Loaded, DurablePointFile | None]:
    """Loads a partition that other processes may change: under one even epoch, or as a process left it that died in a change.

    Returns:
        The partition, and its open header; None if it has none, or if its segments changed during each attempt.

    Raises:
        UnknownTopicOrPartitionError: the partition does not exist.
        StorageFailedError: its files cannot be read.
    """
    for _ in range(_ATTEMPTS):
        try:
            loaded = load(source)
        except StorageFailedError as error:
            if not vanished(error):
                raise
        else:
            header = open_header(source.fs, source.directory)
            if _is_of_one_epoch(loaded.found, None if header is None else header.refresh()):
                return loaded, header
            if header is not None:
                header.close()
        clock.sleep(_NAP)
    return load(source), None


def _is_of_one_epoch(before: DurablePoint | None, after: DurablePoint | None) -> bool:
    """Returns whether no segments changed between two reads of the header, and no change was in progress."""
    if before is None or after is None:
        return before is after
    return before.epoch == after.epoch and after.epoch % 2 == 0
