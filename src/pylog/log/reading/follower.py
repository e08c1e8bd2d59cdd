"""What a process that does not write sees of a log that others write: it refreshes, and takes no lock (reliability 11).

The header says where the published end is and whether segments came or went. While its epoch stands still, new batches are taken
from behind the old end; after any other change the partition is loaded again, read-only, under one epoch.
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
from pylog.log.producer_state import ONLY_OPEN, ProducerStateManager
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.recovery.loader import deleted, listing, load, producers_at_end
from pylog.log.state import LogState, first_state
from pylog.record import kernels
from pylog.record.format import BASE_OFFSET, LAST_OFFSET
from pylog.segment.log_file import Region
from pylog.segment.names import LOG
from pylog.segment.segment import vanished

_ATTEMPTS: Final = 50  # while segments come and go: half of a second, then what two refreshes agree on is taken
_NAP: Final = 0.01


class Follower:
    """The reading side of one log, kept up to date. Not thread-safe: its log calls it under its own lock.

    Args:
        source: the partition.
        clock: for waiting while segments come and go.
        loaded: the partition as it was loaded.
        publish: takes each new state.

    Attributes:
        loaded: as it was loaded last.
        gone: another process has deleted the partition.

    Raises:
        UnknownTopicOrPartitionError: from any refresh once it is deleted.
    """

    def __init__(self, source: Source, clock: Clock, loaded: Loaded, publish: Callable[[LogState], None]) -> None:
        self._source = dataclasses.replace(source, writable=False)
        self._clock = clock
        self._publish = publish
        self._header: DurablePointFile | None = None
        self._slot: DurablePoint | None = loaded.found
        self._files = [(segment.log_name, segment.size) for segment in loaded.segments]
        self._producers: ProducerStateManager | None = loaded.producers
        self.loaded = loaded
        self.gone = False
        self._replacements = 0  # of segments, that the names and sizes of files have told of
        self._is_refreshing = True  # until a refresh has succeeded
        self._refreshed_at = 0.0  # the clock's seconds
        self._judged_size = 0  # of the active segment's file, when it was longer than what is published
        self._state = first_state(loaded)
        self._publish(self._state)

    @property
    def slot(self) -> DurablePoint | None:
        """The header's slot that the state was taken from, None where the header does not count."""
        return self._slot if self.loaded.slot is not None and self.loaded.same_boot else None

    def refresh(self, *, wait: bool = False) -> None:
        """Takes what is new.

        Args:
            wait: wait for the end of a change that is under way; without it the log may be seen as it was before.

        Cost: one pread when nothing is.
        """
        self._is_refreshing = True
        try:
            if self.gone:
                raise deleted(self._source)
            self._take_changes(wait)
        except UnknownTopicOrPartitionError:
            self.gone = True
            raise
        self._refreshed_at = self._clock.monotonic()
        self._is_refreshing = False

    def may_have_changed(self) -> bool:
        """Whether another process may have changed the log since the last refresh. Any thread may ask. Cost: one pread.

        Where no header counts there is nothing to ask but the directory: the answer is yes every 50 ms.
        """
        header = self._header
        if self.slot is None:
            return self._is_refreshing or self._clock.monotonic() - self._refreshed_at >= limits.ASK_AGAIN_S
        return header is None or header.changed() or self._is_refreshing  # in this order: the state is published before

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
        """Where no header counts the names and sizes of the files tell: a broker writes here, or did."""
        files = self._listed()
        if files != self._files:
            self._replacements += not _has_only_grown(self._files, files)
            self.reload()
            self._files = files

    def _compare_sealed_files(self) -> bool:
        """Loads the log again if a broker has removed or replaced segments, and appended nothing since: the header counts still.
        Whoever met one that is gone asks.
        """
        sealed = [(segment.log_name, segment.size) for segment in self.loaded.segments][:-1]
        if not _were_replaced(sealed, self._listed()):
            return False
        self._replacements += 1
        self.reload()
        return True

    def _listed(self) -> list[tuple[str, int]]:
        """The segments in the directory now, by name and size."""
        return [(entry.name, entry.size) for entry in listing(self._source) if entry.name.endswith(LOG)]

    def _check_past_end(self) -> None:
        """Loads the log again if a broker goes on with it, which says nothing in the header."""
        active = self._state.active
        try:
            size = 0 if active is None else active.file().size()
        except StorageFailedError as error:
            if vanished(error):
                return  # whoever reads it is told
            raise
        if size > self._state.active_size and size != self._judged_size:
            self._judged_size = size  # what a writer is about to publish, or was when it died, is not looked into twice
            if has_written_since(self._source.fs, self._source.directory):
                self.reload()

    # ---- more of the same ----------------------------------------------------------------------------------------------------

    def _extend(self, slot: DurablePoint, *, same_boot: bool) -> bool:
        """Takes the batches behind the known end, if that is all that has happened.

        While segments are made or go nothing has happened yet to what is published: until that is over, or a file is found to be
        gone, the log is read as it was. A roll syncs a whole segment, and nobody waits for it here.
        """
        old, active = self._slot, self._state.active
        if old is None or active is None or not same_boot or not self.loaded.same_boot or active.builder is None:
            return False
        same = slot.epoch in (old.epoch, old.epoch | 1) and _lasting(slot) == _lasting(old)
        if not same or old.epoch % 2 or old.flags or slot.flags or slot.published_position < self._state.active_size:
            return False
        end, offset = self._state.active_size, self._state.end_offset
        walk = active.file().tables if self._producers is None else active.file().regions  # a marker is in a record
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
        self.loaded.end, self.loaded.next_offset = end, offset
        active.size = end
        self._set_state(replace(self._state, active_size=end, end_offset=offset, durable_offset=min(slot.durable_offset, offset)))
        return True

    @staticmethod
    def _follows(region: Region, offset: int) -> bool:
        """Whether a region holds whole batches that go on from an offset."""
        table = region.table
        if region.status not in (kernels.OK, kernels.FULL):
            return False
        first = np.append(offset, table[LAST_OFFSET, :-1] + 1)[: table.shape[1]]
        return bool((table[BASE_OFFSET] == first).all())

    def _set_state(self, state: LogState) -> None:
        unstable = None if self._producers is None else self._producers.first_unstable_offset
        self._state = replace(state, first_unstable_offset=unstable)
        self._publish(self._state)

    # ---- anything else -------------------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Loads the partition again."""
        self.close()  # the header's name may be another file's by now (reliability 13)
        loaded = load_live(self._source, self._clock)
        if not loaded.follows(self.loaded):
            raise deleted(self._source)
        self.loaded, self._slot, self._producers = loaded, loaded.found, None
        self._set_state(replace(first_state(loaded), replacements=self._replacements))

    def know_transactions(self) -> None:
        """Finds the open transactions: a log opened for reading does so when it is first asked."""
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
                self._producers = None  # read from files that were replaced meanwhile

    def _has_other_segments(self) -> bool:
        """Refreshes after a read of several files. Returns whether segments were added, deleted or replaced meanwhile."""
        before = self._state.version
        self.refresh(wait=True)
        return self._state.version != before

    def close(self) -> None:
        """Closes the header."""
        self._source.open_files.closed(self)
        self._header = None

    def release(self) -> bool:
        """Lets go of the header; the next refresh opens it again."""
        self._header = None
        return True

    def forget(self) -> None:
        """Loads the partition again at the next refresh, because this process has written it meanwhile."""
        self._slot = None
        self._is_refreshing = True

    def _opened_header(self) -> DurablePointFile | None:
        header = self._header
        if header is None:
            header = self._header = open_header(self._source.fs, self._source.directory)
            if header is not None:
                self._source.open_files.opened(self)
        return header


def _lasting(slot: DurablePoint) -> tuple[int, int, int, int]:
    """What appends leave as it is, and a roll as long as it is under way."""
    return slot.active_base, slot.active_inode, slot.log_start_offset, slot.truncation_count


def _has_only_grown(before: list[tuple[str, int]], now: list[tuple[str, int]]) -> bool:
    """Whether all that has happened to a log's segments, by name and size, is that the last one grew, and more were made."""
    if not before:
        return True
    *sealed, (last, size) = before
    return now[: len(sealed)] == sealed and any(name == last and grown >= size for name, grown in now[len(sealed) :][:1])


def _were_replaced(sealed: list[tuple[str, int]], now: list[tuple[str, int]]) -> bool:
    """Whether sealed segments went at the log's front, or became others, as a broker's do; not whether some are missing."""
    sizes = dict(now)
    return any(name not in sizes for name, _ in sealed[:1]) or any(sizes.get(name, size) != size for name, size in sealed)


def load_live(source: Source, clock: Clock) -> Loaded:
    """A partition that others may be changing: under one even epoch, or as it is when a process died in a change.

    Raises:
        UnknownTopicOrPartitionError: it is not there.
        StorageFailedError: it cannot be read.
    """
    for _ in range(_ATTEMPTS):
        try:
            loaded = load(source)
        except StorageFailedError as error:
            if not vanished(error):
                raise
        else:
            if _is_of_one_epoch(loaded.found, _slot_now(source)):
                return loaded
        clock.sleep(_NAP)
    return load(source)


def _is_of_one_epoch(before: DurablePoint | None, after: DurablePoint | None) -> bool:
    """Whether no segments came or went between two looks at the header, nor were about to."""
    if before is None or after is None:
        return before is after
    return before.epoch == after.epoch and after.epoch % 2 == 0


def _slot_now(source: Source) -> DurablePoint | None:
    header = open_header(source.fs, source.directory)
    if header is None:
        return None
    slot = header.refresh()
    header.close()
    return slot
