"""Appending to a partition: one mutator, in the order that a crash can stand anywhere in (reliability 4).

append: write the batches → sync → slot → publish → acknowledge. roll: slot with an odd epoch → sync the old segment → write and
sync its indexes and the producer snapshot → make the new file, sync the directory → slot with the new segment and an even epoch.
A failed write is cut off again; a failed sync ends writing for good, because nothing proves what it left on the disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any

from pylog import limits
from pylog.clock import Clock
from pylog.config import Durability
from pylog.errors import ClosedError, RecordTooLargeError, StorageFailedError
from pylog.fs import join
from pylog.index.builder import SegmentIndexBuilder
from pylog.index.skiplist import SkipList
from pylog.log import checkpoints
from pylog.log.durable_point import FAILED, DurablePoint, Slot
from pylog.log.loader import Loaded, Source, epochs_from_batches
from pylog.log.producer_state import ProducerState, write_snapshot
from pylog.log.rolling import SegmentUse, batches_before_roll
from pylog.log.state import LogState
from pylog.log.walk import Damage
from pylog.record.batch import Table, scan_batches
from pylog.record.builder import Encoded
from pylog.record.format import LAST_OFFSET, MAX_TIMESTAMP, POSITION, SIZE
from pylog.segment.names import LOG, TORN, file_name
from pylog.segment.segment import LogSegment

LOGGER = logging.getLogger("pylog")


class LogWriter:
    """The mutator of one log, made for its first write. Not thread-safe: its log calls it under a lock.

    Making it makes the partition ready for its first byte: a torn tail is set aside and cut, the durable point is written.

    Args:
        source, loaded: the partition, as it was opened.
        state: as published so far.
        publish: takes each new state.
        clock: for segments whose records have no timestamps.
        durability: the level when a call names none.

    Raises:
        StorageFailedError: the partition could not be made ready; nothing acknowledged was touched.

    Attributes:
        state: as published last.
        leader_epoch: stamped on new batches.
    """

    def __init__(
        self,
        source: Source,
        loaded: Loaded,
        state: LogState,
        publish: Callable[[LogState], None],
        clock: Clock,
        durability: Durability,
    ) -> None:
        self._fs = source.fs
        self._directory = source.directory
        self._config = source.config
        self._source = source
        self._publish = publish
        self._clock = clock
        self._durability = durability
        self._loaded = loaded
        self._failure: str | None = None
        self._producers = ProducerState() if loaded.producers is None else loaded.producers
        self._epochs = epochs_from_batches(loaded) if loaded.epochs is None else loaded.epochs
        self.leader_epoch = max(loaded.leader_epoch, self._epochs[-1].epoch if self._epochs else 0, 0)
        self.state = state
        self._unsynced_bytes = min(limits.APPEND_CHUNK_BYTES, self._config.segment_bytes)  # of the call under way
        self._open_active()
        self._assign_epoch()
        self._point = DurablePoint(self._fs, self._directory, self._slot())
        self._set_state(durable_offset=self.state.end_offset)

    # ---- before the first write ----------------------------------------------------------------------------------------------

    def _open_active(self) -> None:
        """Opens the segment to append to, or makes the log's first one."""
        loaded = self._loaded
        active, builder = self.state.active, loaded.builder
        self._created_ms = self._clock.now_ms()
        if active is None or builder is None:
            self.state = self._begin_segment(self.state.end_offset)
            return
        self._active, self._builder = active, builder
        self._file = self._fs.open(active.path, write=True)
        self._written, self._next_offset = loaded.end, loaded.next_offset  # with what is not published yet
        if loaded.torn is not None:
            self._set_aside(loaded.torn)
        if not loaded.clean:  # what the scan kept may be in memory only
            self._file.sync()
            self._fs.sync_directory(self._directory)
        self._first_timestamp = self._timestamp_of_first_batch()

    def _set_aside(self, torn: Damage) -> None:
        """Keeps the bytes of a torn tail in a file of their own, then cuts them off; each step is synced before the next."""
        path = self._new_torn_path()
        aside = self._fs.create(path)
        try:
            for position in range(torn.position, torn.end, limits.READ_CHUNK_BYTES):
                part = self._active.file().read(position, min(limits.READ_CHUNK_BYTES, torn.end - position))
                aside.write(part.data, position - torn.position)
            aside.sync()
        finally:
            aside.close()
        self._fs.sync_directory(self._directory)
        self._file.truncate(torn.position)
        self._file.sync()
        told = next(finding.message for finding in self._loaded.findings if finding.kind == "torn")
        LOGGER.warning("%s; they are kept in %s", told, path)

    def _new_torn_path(self) -> str:
        numbers = itertools.count()
        paths = (join(self._directory, file_name(self._active.base_offset, f"{TORN}.{number}")) for number in numbers)
        return next(path for path in paths if not self._fs.exists(path))

    def _timestamp_of_first_batch(self) -> int:
        scan = scan_batches(self._active.file().read(0, min(limits.READ_CHUNK_BYTES, self._written)), capacity=1)
        return int(scan.table[MAX_TIMESTAMP, 0]) if scan.table.shape[1] else -1

    def _slot(self) -> Slot:
        """A slot that says what is true before the first write."""
        old = self._loaded.slot or Slot()
        return Slot(
            counter=old.counter,
            epoch=old.epoch + old.epoch % 2,
            active_base=self._active.base_offset,
            active_inode=self._file.identity()[1],
            published_position=self._written,
            published_offset=self._next_offset,
            durable_base=self._active.base_offset,
            durable_position=self._written,
            durable_offset=self._next_offset,
            unsynced_bytes=self._unsynced_bytes,
            log_start_offset=self.state.start_offset,
            truncation_count=old.truncation_count,
            leader_epoch=self.leader_epoch,
        )

    def _assign_epoch(self) -> None:
        """Records the first offset of the leader epoch that new batches will carry (storage-format 6.13.1)."""
        epochs = checkpoints.assign_epoch(self._epochs, self.leader_epoch, self.state.end_offset)
        if epochs is not self._epochs or self._loaded.epochs is None:
            checkpoints.write_epochs(self._fs, self._directory, epochs)
            self._epochs = epochs

    # ---- append --------------------------------------------------------------------------------------------------------------

    def append(self, encoded: Iterator[Encoded], durability: Durability | None, size: int) -> range:
        """Appends finished batches with consecutive offsets from the log's end on; acknowledged when it returns.

        A segment that fills up meanwhile is sealed, and what it holds is published and durable from then on.

        Args:
            encoded: the batches.
            durability: the level of the acknowledgement; None is the log's.
            size: at least the bytes of all batches together.

        Raises:
            StorageFailedError: a write or sync failed. The records from the error's `offset` on are not in the log.
            RecordTooLargeError: a batch is larger than a segment may be.
        """
        if self._failure is not None:
            raise ClosedError(self._failure, path=self._directory)
        level = durability or self._durability
        first = self.state.end_offset
        self._raise_bound(level, size)
        try:
            for piece in encoded:
                self._check_sizes(piece.table)
                self._append_piece(piece)
            self._commit(level)
        except BaseException as error:  # an interrupt too: nothing half written may stand before the next append
            if self._failure is None:
                self._undo()
            if isinstance(error, StorageFailedError):
                error.offset = self.state.end_offset
            raise
        return range(first, self.state.end_offset)

    def _raise_bound(self, level: Durability, size: int) -> None:
        """Says how far apart two unsynced batches can be from now on, before the first of them is written (reliability 3.1).

        At SYNC one call's bytes, at OS all of a segment. The bound belongs to the segment: the largest in use, lowered by a roll.
        """
        wanted = self._config.segment_bytes if level is Durability.OS else size
        self._unsynced_bytes = min(max(wanted, limits.APPEND_CHUNK_BYTES), self._config.segment_bytes)
        if self._unsynced_bytes > self._point.slot.unsynced_bytes:
            self._point.write_both(unsynced_bytes=self._unsynced_bytes)

    def _check_sizes(self, table: Table) -> None:
        largest = int(table[SIZE].max())
        if largest > self._config.segment_bytes:
            raise RecordTooLargeError(
                f"a batch of {largest} bytes is more than segment_bytes={self._config.segment_bytes}; "
                "raise that option of the topic, or send less",
                path=self._directory,
            )

    def _append_piece(self, piece: Encoded) -> None:
        """Writes the batches of a piece, rolling wherever a segment is full."""
        first, count = 0, piece.table.shape[1]
        while first < count:
            room = batches_before_roll(self._use(), piece.table[:, first:], self._config, self._clock.now_ms())
            if room == 0:
                self._roll()
                continue
            self._write(piece, first, first + room)
            first += room

    def _use(self) -> SegmentUse:
        left = self._builder.entries_left(self._config.segment_index_bytes)
        return SegmentUse(self._active.base_offset, self._written, self._first_timestamp, self._created_ms, left)

    def _write(self, piece: Encoded, first: int, end: int) -> None:
        """Writes some batches of a piece behind what is written, and indexes them."""
        table = piece.table
        start = int(table[POSITION, first])
        stop = int(table[POSITION, end - 1] + table[SIZE, end - 1])
        self._file.write(piece.data[start:stop], self._written)
        if self._written == 0:
            self._first_timestamp = int(table[MAX_TIMESTAMP, first])
        self._builder.add(table, end, first=first, position=self._written - start)
        self._written += stop - start
        self._next_offset = int(table[LAST_OFFSET, end - 1]) + 1

    def _undo(self) -> None:
        """Cuts off what was written and not published, so that the next append begins where this one did."""
        self._written, self._next_offset = self.state.active_size, self.state.end_offset
        try:
            self._file.truncate(self._written)
            self._file.sync()
            if self._point.slot.published_position != self._written:  # it was interrupted behind its commit
                durable = {"durable_position": self._written, "durable_offset": self._next_offset}
                self._point.write_both(published_position=self._written, published_offset=self._next_offset, **durable)
        except StorageFailedError as error:
            self._fail(f"a failed append could not be cut off again ({error})")
            return
        self._builder = self._active.builder = self._builder_of(self._active, self._written)

    def _builder_of(self, segment: LogSegment, size: int) -> SegmentIndexBuilder:
        builder = SegmentIndexBuilder(segment.base_offset, self._config.index_interval_bytes)
        for region in segment.regions(0, size):
            builder.add(region.table, region.table.shape[1], position=region.shift)
        return builder

    def _commit(self, level: Durability) -> None:
        """Syncs if the level asks for it, then publishes what is written."""
        changes = {"published_position": self._written, "published_offset": self._next_offset}
        if level is Durability.SYNC:
            changes |= {"durable_position": self._written, "durable_offset": self._next_offset}
        try:
            if level is Durability.SYNC:
                self._file.sync()
            self._point.write(**changes)
        except StorageFailedError as error:
            self._fail(f"a sync failed ({error}), so what is on the disk is not known")
            raise
        self._producers.end_offset = self._next_offset
        self._set_state(
            active_size=self._written,
            end_offset=self._next_offset,
            durable_offset=self._next_offset if level is Durability.SYNC else self.state.durable_offset,
        )

    def _set_state(self, **changes: Any) -> None:
        self.state = dataclasses.replace(self.state, **changes)
        self._active.size = self.state.active_size
        self._publish(self.state)

    def _fail(self, reason: str) -> None:
        """Ends writing for good: nothing is tried again on pages that the system may have marked clean (fsyncgate)."""
        self._failure = f"{self._directory}: {reason}; close the store and open it again, which checks the end of the log"
        LOGGER.error(self._failure)
        with contextlib.suppress(StorageFailedError):  # the first failure is the one that is reported
            self._point.write(flags=FAILED)

    # ---- roll ----------------------------------------------------------------------------------------------------------------

    def _begin_segment(self, base_offset: int) -> LogState:
        """Makes a new, empty active segment, its name durable, and returns the state with it, for the caller to publish."""
        path = join(self._directory, file_name(base_offset, LOG))
        file = self._fs.create(path)
        self._fs.sync_directory(self._directory)
        segment = LogSegment(
            self._fs,
            self._directory,
            base_offset,
            size=0,
            mtime_ms=self._clock.now_ms(),
            open_files=self._source.open_files,
            sealed=False,
            mapped=True,
            writable=True,
            interval_bytes=self._config.index_interval_bytes,
        )
        self._builder = segment.builder = SegmentIndexBuilder(base_offset, self._config.index_interval_bytes)
        self._active, self._file = segment, file
        self._written, self._next_offset, self._first_timestamp = 0, base_offset, -1
        self._created_ms = self._clock.now_ms()
        segments = self.state.segments
        if len(segments):
            segments.insert(base_offset, segment)
        else:  # a log's first segment: making a list needs no kernel, inserting into one does
            segments = SkipList([(base_offset, segment)])
        return dataclasses.replace(self.state, segments=segments, active=segment, active_size=0, end_offset=base_offset)

    def _roll(self) -> None:
        """Seals the active segment and begins the next one at the log's end (storage-format 6.3.7)."""
        sealed, file, size = self._active, self._file, self._written
        try:
            self._point.write(epoch=self._point.slot.epoch + 1)
            file.sync()
            self._write_derived()
            begun = self._begin_segment(self._next_offset)
            self._point.write_both(**self._rolled())
        except StorageFailedError as error:
            self._fail(f"a segment could not be sealed ({error})")
            raise
        sealed.seal(size)
        file.close()
        self.state = begun
        self._set_state(durable_offset=self._next_offset)

    def _rolled(self) -> dict[str, int]:
        """The slot's fields of a log whose active segment is new and empty."""
        base = self._next_offset
        return {
            "epoch": self._point.slot.epoch + 1,
            "active_base": base,
            "active_inode": self._file.identity()[1],
            "published_position": 0,
            "published_offset": base,
            "durable_base": base,
            "durable_position": 0,
            "durable_offset": base,
            "unsynced_bytes": self._unsynced_bytes,
        }

    def _write_derived(self) -> None:
        """The index files of a full or closing segment, and the producer snapshot behind it."""
        self._builder.finish()
        self._active.write_indexes(self._builder)
        self._producers.end_offset = self._next_offset
        write_snapshot(self._fs, self._directory, self._producers)

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Makes everything published durable.

        Raises:
            StorageFailedError: the sync failed; the log takes no more writes.
        """
        if self._failure is None and self.state.durable_offset < self.state.end_offset:
            self._commit(Durability.SYNC)

    def close(self) -> bool:
        """Flushes, writes the derived files, closes. Returns whether the partition is left as after a clean shutdown."""
        try:
            if self._failure is None:
                self.flush()
                self._write_derived()
        finally:
            self._file.close()
            self._point.close()
        return self._failure is None
