"""`LogWriter`: appends to one partition. The steps are ordered so that a crash between any two is recoverable (reliability 4).

An append writes the batches, syncs them, writes a slot of the header, publishes the state, and acknowledges. A roll writes a slot
with an odd epoch, syncs the old segment, then writes and syncs its indexes and the producer snapshot. Then it creates the new
file, syncs the directory, and writes a slot with the new segment and an even epoch. A failed write is cut off again. A failed
sync ends writing, because the state of the disk is unknown.

Another process may write between two calls. `is_current` detects that, and `catch_up` adds its appends. After any other change
the log is loaded again and gets a new writer. All of this happens under the partition's lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from msgspec.structs import replace

from pylog import limits, trace
from pylog.clock import Clock
from pylog.config import Durability
from pylog.directory.leader_epoch_cache import LeaderEpochCache
from pylog.errors import NO_ROOM, ClosedError, DirectoryReplacedError, StorageFailedError
from pylog.log.durable_point import FAILED, DurablePoint, SyncPoint, unsynced_bound
from pylog.log.producer_state import Producer, ProducerStateManager, drop_snapshots
from pylog.log.recovery.leader_epochs import epochs_of
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.state import LogState
from pylog.log.writing.active_segment import ActiveSegment, loaded_segment, new_segment
from pylog.log.writing.appends_of_others import take_appends
from pylog.log.writing.readying import first_slot, take_header
from pylog.log.writing.rolling import batches_before_roll, check_fits_at_all, one_fits
from pylog.log.writing.sealing import seal_files, take_back, write_derived
from pylog.metrics import Counters
from pylog.record.batch import Table
from pylog.record.builder import Encoded
from pylog.record.few import EncodedBatch
from pylog.record.format import PRODUCER_ID, SIZE
from pylog.segment.age import note_begun


class LogWriter:
    """The writer of one log. Not thread-safe: the log calls it under the partition's lock.

    Its construction prepares the partition for an append: a torn tail is copied and cut off, records left by a dead process are
    written again and synced, and the header is brought up to date.

    Args:
        source, loaded: the partition, as loaded under the same lock.
        state: the last published state.
        publish: receives each new state.
        clock, counters: the log's.

    Raises:
        StorageFailedError: the preparation failed; acknowledged records are unchanged.

    Attributes:
        state: the last published state.
        header: the shared header.
        active: the active segment.
        producers: the producer state at the log end.
        epochs, leader_epoch: the leader epochs, and that of new batches.
        failure: why no more writes are possible, or None.
        unreported: the error of a background flush, which the next call raises.
        checked_offset: records before it were acknowledged while the log's names led to its files.
        is_catching_up: true while a change of another process is not yet published.
    """

    def __init__(
        self,
        source: Source,
        loaded: Loaded,
        state: LogState,
        publish: Callable[[LogState], None],
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._source, self._loaded = source, loaded
        self._fs, self._directory, self._config = source.fs, source.directory, source.config
        self._held, self._put_ms = source.held, 0  # time of the last write
        self._publish, self._clock, self._counters = publish, clock, counters
        self.failure: str | None = None
        self._stale = self.is_catching_up = False  # `_stale`: its data may not match the files
        self.unreported: StorageFailedError | None = None
        self.producers = ProducerStateManager() if loaded.producers is None else loaded.producers
        self.epochs = LeaderEpochCache(self._fs, self._directory, epochs_of(loaded))
        self.leader_epoch = max(loaded.leader_epoch, self.epochs.last, 0)
        self._producers_before: dict[int, Producer | None] = {}  # saved for records that are not published yet
        self.state = state
        self._unsynced_bytes = min(limits.APPEND_CHUNK_BYTES, self._config.segment_bytes)  # of the current call
        self._syncs = self._rolls = self._amid_roll = False  # the call syncs; a segment was filled; a roll is in progress
        self._open_active()
        stale = drop_snapshots(self._fs, self._directory, loaded.snapshots, self.active.next_offset)
        if stale:
            trace.later(trace.SNAPSHOTS_REMOVED, self._source.partition, end=self.active.next_offset, files=stale)
        self.epochs.assign(self.leader_epoch, self.state.end_offset, loaded.epochs)
        wanted = first_slot(
            loaded, self.state, self.active.ends(), self._config, self.leader_epoch, unsynced_bytes=self._unsynced_bytes
        )
        self.header = take_header(source, loaded, wanted, clock.now_ms())
        header, is_changed = self.header, lambda: self.is_catching_up or self.header.changed()
        self._held.hold_files(header.file, self.active.file.raw, is_deleted=header.says_deleted, is_changed=is_changed)
        self.checked_offset = self.active.next_offset  # acknowledged records before it have had the right names
        self.set_state(
            active_size=self.active.size,
            end_offset=self.active.next_offset,
            durable_offset=self._slot_now.durable_offset,
            start_offset=self._slot_now.log_start_offset,
        )

    # ---- before the first write ----------------------------------------------------------------------------------------------

    def _open_active(self) -> None:
        """Opens the active segment, or creates the log's first one."""
        loaded = self._loaded
        active, builder = self.state.active, loaded.builder
        if active is None or builder is None:
            self.state = self._begin_segment(self.state.end_offset)
            return
        note_begun(loaded.segments[-2:], self._clock.now_ms())
        self.active = loaded_segment(self._source, loaded, active, builder)

    # ---- writes of other processes -------------------------------------------------------------------------------------------

    def is_current(self) -> bool:
        """Whether the log is as this writer left it. Cost: two or three system calls.

        The header alone is not sufficient: a process that dies during an append does not change it.
        """
        slot = self.header.slot
        even = slot is not None and slot.epoch == self.state.epoch and slot.epoch % 2 == 0 and not slot.flags
        return even and not self._stale and not self.header.changed() and self.active.file.is_as_left(self.active.size)

    def catch_up(self, *, published: bool = False) -> bool:
        """Adds the appends of another process. Returns False after any other change, or if the batches are not as expected.

        Args:
            published: true to add only published records, for reads without the partition's lock.

        Cost: one pass over the new bytes. After False this writer cannot be used again: load the log again.
        """
        if not self._stale:
            self._stale = self.is_catching_up = True  # stay set if anything raises
            self._stale = self.is_catching_up = not self._caught_up(published=published)
        return not self._stale

    def _caught_up(self, *, published: bool) -> bool:
        slot = take_appends(self.active, self.header, self.producers, self.state.epoch, published=published)
        if slot is None:
            return False
        self.active.segment.note_others(self._clock.now_ms())
        self._show(self._with_written(slot, slot.durable_offset))
        return True

    # ---- append --------------------------------------------------------------------------------------------------------------

    def append(self, encoded: Iterable[Encoded | EncodedBatch], level: Durability, size: int) -> None:
        """Appends finished batches with consecutive offsets from the log end on. They are acknowledged when it returns.

        A segment that fills up is sealed; its records are then published and durable.

        Args:
            encoded: the batches.
            level: of the acknowledgement.
            size: a lower bound of the bytes of all batches.

        Raises:
            StorageFailedError: a write or sync failed. The records from the error's `offset` on are not in the log.
            RecordTooLargeError: a batch exceeds `segment_bytes`.
        """
        if self.failure is not None or self.unreported is not None:
            self.check_alive()
        self._raise_bound(level, size)
        self._syncs = level.name == "SYNC"
        self._stale = True  # until the append is complete or undone: after an interrupt the log is loaded again
        try:
            for piece in encoded:
                batch = piece if isinstance(piece, EncodedBatch) else piece.only_batch()
                if batch is not None:
                    self._append_one(batch)
                elif isinstance(piece, Encoded):
                    self._append_piece(piece)
            self._commit(level)
        except BaseException as error:  # also for interrupts: no partial batch may precede the next append
            if self.failure is None and not self._amid_roll:  # during a roll it cannot be undone
                self._settle()
            if isinstance(error, StorageFailedError):
                error.offset = self.state.end_offset
            raise
        self._stale = False

    def _settle(self) -> None:
        """Cleans up after a failure: keeps records in the published header, which others may have read; cuts off all others."""
        slot = self.header.refresh()
        if slot is not None and self.state.end_offset < self.active.next_offset == slot.published_offset:
            self._show(self._with_written(slot, slot.durable_offset))
            self._stale = False
        else:
            self._undo()

    def check_alive(self) -> None:
        """Raises after a failed sync: first the error of a background flush, then ClosedError."""
        error, self.unreported = self.unreported, None
        if error is not None:
            raise error
        if self.failure is not None:
            raise ClosedError(self.failure, path=self._directory)

    def _raise_bound(self, level: Durability, size: int) -> None:
        """Writes the largest distance of two unsynced batches to the header, before the first of them (reliability 3.1).

        The bound applies to the segment; a roll lowers it.
        """
        if level.name == "INTERVAL" and self.active.size - self._slot_now.durable_position + size > limits.FLUSH_BYTES:
            self._commit(Durability.SYNC)
        self._unsynced_bytes = unsynced_bound(level, size, self._config.segment_bytes)
        if self._unsynced_bytes > self._slot_now.unsynced_bytes:
            try:
                self.header.write_both(unsynced_bytes=self._unsynced_bytes)
            except StorageFailedError as error:
                self.break_off(error, "the header could not be written")
                raise

    @property
    def _slot_now(self) -> DurablePoint:
        assert self.header.slot is not None
        return self.header.slot

    def _append_piece(self, piece: Encoded) -> None:
        """Writes the batches of a piece, and rolls when the segment is full."""
        first, count = 0, piece.table.shape[1]
        check_fits_at_all(max(piece.table[SIZE].tolist()), self._config, self._directory)
        while first < count:
            now_ms = self._clock.now_ms()
            room = batches_before_roll(self.active.use(), piece.table[:, first:], self._config, now_ms)
            if room == 0:
                self.roll()
                continue
            self._write(piece, first, first + room, now_ms)
            first += room

    def _append_one(self, batch: EncodedBatch) -> None:
        """Writes a single batch, in plain Python, which is much faster for one."""
        column = batch.column
        check_fits_at_all(column[SIZE], self._config, self._directory)
        now_ms = self._clock.now_ms()
        active = self.active
        if not one_fits(active.use(), column, self._config, now_ms):
            self.roll()
            active = self.active
        active.append_one(batch, now_ms, self._send_from())
        self._put_ms = now_ms
        self._counters.bytes += column[SIZE]
        if column[PRODUCER_ID] >= 0:
            self._note_producers(batch.data, batch.table)

    def _write(self, piece: Encoded, first: int, end: int, now_ms: int) -> None:
        """Writes and indexes some batches of a piece."""
        self._counters.bytes += self.active.append(piece, first, end, now_ms, self._send_from())
        self._put_ms = now_ms
        if piece.table.item(PRODUCER_ID, first) >= 0:
            self._note_producers(piece.data, np.ascontiguousarray(piece.table[:, first:end]))

    def _send_from(self) -> int:
        """Returns how many unsent bytes start the write-back: early if a sync follows, in this call or in a roll."""
        return 0 if self._syncs else limits.WRITE_BACK_BYTES if self._rolls else limits.INT64_MAX

    def _note_producers(self, data: memoryview, table: Table) -> None:
        """Replays batches in the file into the producer state."""
        self.producers.keep(table[PRODUCER_ID], self._producers_before)
        self.producers.replay(np.frombuffer(data, np.uint8), table)

    def _undo(self) -> None:
        """Cuts off unpublished records, so that the next append begins where this one did.

        It happens between an odd and an even epoch, because another process must not assume that the truncation is durable. If
        the header cannot be written, it still continues: the log is loaded again before the next write.
        """
        self.active.step_back(self.state.active_size, self.state.end_offset)
        with contextlib.suppress(StorageFailedError):
            if self._slot_now.epoch % 2 == 0:
                self.begin_change()
        try:
            self.active.file.cut(self.active.size)
        except StorageFailedError as error:  # also if the disk is full: a reload would include the failed records
            self.fail(f"a failed append could not be cut off again ({error})")
            return
        try:
            self.active.index_again()
            self.header.write_both(epoch=self._slot_now.epoch // 2 * 2 + 2, **self.active.ends())
        except StorageFailedError:
            return
        self.producers.put_back(self._producers_before, self.active.next_offset)
        self.set_state(durable_offset=self.active.next_offset)
        self._stale = False

    def _commit(self, level: Durability) -> None:
        """Syncs if the level requires it, then publishes the written records. Prepares all it can before the sync."""
        durable = level.name == "SYNC"
        position, offset = self.active.size, self.active.next_offset
        changes = {"durable_position": position, "durable_offset": offset} if durable else {}
        digest = self.active.digest.value
        said = self.header.prepared(published_position=position, published_offset=offset, header_digest=digest, **changes)
        state = self._with_written(said.slot, offset if durable else self.state.durable_offset)
        try:
            if durable:
                began = self._clock.monotonic()
                self.active.file.raw.sync()
                self._counters.synced(self._clock.monotonic() - began)
            self.header.put(said)
            if (durable or self._put_ms != self._held.checked_ms) and self._held.check_at(self._put_ms, always=durable):
                self.checked_offset = offset
        except StorageFailedError as error:
            self.break_off(error, "the written records could not be made durable and published")
            raise
        self.active.file.after_commit(position, position - self.state.active_size, self._config.segment_bytes, synced=durable)
        self._show(state)

    def _with_written(self, slot: DurablePoint, durable_offset: int) -> LogState:
        """Returns the state with all written records, and its slot."""
        return replace(
            self.state,
            epoch=slot.epoch,
            truncation_count=slot.truncation_count,
            active_size=self.active.size,
            end_offset=self.active.next_offset,
            durable_offset=durable_offset,
            first_unstable_offset=self.producers.first_unstable_offset,
        )

    def set_state(self, **changes: Any) -> None:
        """Publishes the state with some fields changed."""
        slot = self._slot_now
        self._show(replace(self.state, epoch=slot.epoch, truncation_count=slot.truncation_count, **changes))

    def _show(self, state: LogState) -> None:
        self._producers_before = {}
        self.producers.end_offset = state.end_offset
        self.state = state
        if state.active is not None:
            state.active.size = state.active_size
        self._publish(state)

    def fail(self, reason: str) -> None:
        """Ends all writing. A sync is never retried, because the system may have marked the pages clean (fsyncgate)."""
        self.failure = f"{self._directory}: {reason}; close the store and open it again, which checks the end of the log"
        trace.later(trace.WRITING_FAILED, self._source.partition, reason=self.failure)
        with contextlib.suppress(StorageFailedError):  # the first failure is reported
            self.header.write(flags=FAILED)

    def break_off(self, error: StorageFailedError, what: str) -> None:
        """Ends writing after a failure during a change. After a lack of space or descriptors, the log is only loaded again."""
        if isinstance(error, DirectoryReplacedError):
            self.failure = str(error)  # and nothing is written: the header may belong to the new directory
        elif error.passes:
            self._stale = True
        else:
            self.fail(f"{what} ({error})")

    # ---- roll ----------------------------------------------------------------------------------------------------------------

    def _begin_segment(self, base_offset: int) -> LogState:
        """Creates an empty active segment with a durable name. Returns the state with it, which the caller must publish."""
        self.active = new_segment(self._source, base_offset, self._clock.now_ms())
        segment = self.active.segment
        segments = self.state.segments.with_added(base_offset, segment)
        return replace(self.state, segments=segments, active=segment, active_size=0, end_offset=base_offset)

    def roll(self) -> None:
        """Seals the active segment and starts the next one at the log end (storage-format 6.3.7).

        Raises:
            StorageFailedError: the disk is full. The log is unchanged, unless only the header could not be written for the new
                segment; then the earlier records are in the log. Any other failure ends writing.
        """
        full, can_undo, self._rolls, self._amid_roll = self.active, True, True, True
        try:
            self.begin_change()
            if not full.file.trim(full.size):
                full.file.raw.sync()
            can_undo = False
            begun = self._next_segment()
            if isinstance(begun, LogState):
                self._turn_to(begun, full)
            else:
                can_undo = True
                self.end_change()
            self._amid_roll = False
        except StorageFailedError as error:
            if can_undo and error.passes:
                self._amid_roll = False  # so that the append also ends, whose records may be in the log
            else:
                self.break_off(error, "a segment could not be sealed")
            raise
        if not isinstance(begun, LogState):
            raise begun

    def _turn_to(self, begun: LogState, sealed: ActiveSegment) -> None:
        """Publishes the new segment. It and all earlier records are durable, even if the header cannot be written."""
        self.state = begun
        self._held.hold_active(self.active.file.raw)
        try:
            self.end_change(unsynced_bytes=self._unsynced_bytes, **self.active.ends())
        finally:
            sealed.segment.seal(sealed.size)  # the file closes itself: a background flush may be using it
            self.set_state(durable_offset=self.active.next_offset)

    def _next_segment(self) -> LogState | StorageFailedError:
        """Writes the files that seal the active segment, and creates the next one. Returns the error if the disk is full."""
        try:
            seal_files(self._source, self.active, self.producers, self._slot_now.active_inode, self._clock)
            return self._begin_segment(self.active.next_offset)
        except StorageFailedError as error:
            self._take_back()
            return error

    def _take_back(self) -> None:
        try:
            take_back(self._fs, self._directory, self.active.next_offset)
        except StorageFailedError as error:
            if error.errno in NO_ROOM:  # the append cannot be undone while it exists
                self.fail(f"an incomplete new segment could not be removed ({error})")
            raise

    def begin_change(self, *, durably: bool = False, **fields: Any) -> None:
        """Marks the start of a change of segments: other processes refresh when it is complete."""
        self._held.check()
        write = self.header.write_both if durably else self.header.write
        write(epoch=self._slot_now.epoch + 1, **fields)

    def end_change(self, **fields: Any) -> None:
        """Marks the end of the change."""
        self.header.write_both(epoch=self._slot_now.epoch + 1, **fields)

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Makes everything published durable.

        Raises:
            StorageFailedError: the sync failed; the log accepts no more writes.
        """
        if self.failure is None and self.state.durable_offset < self.state.end_offset:
            self._commit(Durability.SYNC)

    def sync_point(self) -> SyncPoint:
        """Returns the point that a sync of the active segment would make durable now."""
        return SyncPoint(self.active.file.raw, self._slot_now.epoch, self.active.size, self.active.next_offset)

    def note_durable(self, point: SyncPoint) -> None:
        """Notes a successful sync of a point, unless segments have changed since."""
        if point.epoch == self._slot_now.epoch and point.offset > self.state.durable_offset:
            self.header.write(durable_position=point.position, durable_offset=point.offset)
            self.set_state(durable_offset=point.offset)

    def close(self) -> bool:
        """Flushes, writes the derived files, closes. Returns whether the partition is left as after a clean shutdown."""
        try:
            if self.failure is None:
                self._held.check()
                self.flush()
                self.active.file.trim(self.active.size)
                write_derived(self._source, self.active, self.producers, self._clock)
                self.header.write()  # also the other slot, so that one flipped bit loses nothing
        finally:
            self.abandon()
        return self.failure is None

    def abandon(self) -> None:
        """Closes the files without writing: the log is loaded again, or another process continues."""
        self._held.release()
        self.active.file.close()
        self.header.close()
