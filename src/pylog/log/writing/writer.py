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

import numpy as np
from msgspec.structs import replace

from pylog import limits
from pylog.clock import Clock
from pylog.config import Durability
from pylog.directory.leader_epoch_cache import LeaderEpochCache
from pylog.errors import StorageFailedError
from pylog.log.durable_point import unsynced_bound
from pylog.log.producer_state import ProducerStateManager
from pylog.log.recovery.leader_epochs import epochs_of
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.state import LogState
from pylog.log.writing.active_segment import ActiveSegment, loaded_segment, new_segment
from pylog.log.writing.appends_of_others import take_appends
from pylog.log.writing.fail_stop import FailStop
from pylog.log.writing.published_state import PublishedState
from pylog.log.writing.readying import after_lost_files, first_slot, remove_snapshots, take_header
from pylog.log.writing.rolling import batches_before_roll, check_fits_at_all, one_fits
from pylog.log.writing.sealing import next_segment, write_derived
from pylog.metrics import Counters
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
        state, publish: the last published state, and what receives each new one.
        clock, counters: the log's.

    Raises:
        StorageFailedError: the preparation failed; acknowledged records are unchanged.

    Attributes:
        published: the state that readers see, and the shared header.
        header: the shared header.
        stop: whether the log still accepts writes.
        active: the active segment.
        producers: the producer state at the log end.
        epochs, leader_epoch: the leader epochs, and that of new batches.
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
        self._source, self._fs, self._directory, self._config = source, source.fs, source.directory, source.config
        self._held, self.put_ms = source.held, 0  # time of the last write
        self._clock, self._counters = clock, counters
        self._stale = self.is_catching_up = self._rolls = self._is_rolling = False  # `_stale`: its data may not match the files
        self.producers = ProducerStateManager() if loaded.producers is None else loaded.producers
        self.epochs = LeaderEpochCache(self._fs, self._directory, epochs_of(loaded), source.is_own)
        self.leader_epoch = max(loaded.leader_epoch, self.epochs.last, 0)
        bound = self._unsynced_bytes = min(limits.APPEND_CHUNK_BYTES, self._config.segment_bytes)  # of the current call
        self._bounded: Durability | None = None  # the level of the last call, if its bound holds for small calls
        self._send_from = limits.INT64_MAX  # how many unsent bytes start the write-back: few if a sync follows, also in a roll
        state = self._open_active(loaded, after_lost_files(source, loaded, state))
        remove_snapshots(source, loaded, self.active.next_offset)
        self.epochs.assign(self.leader_epoch, state.end_offset, loaded.epochs)
        wanted = first_slot(loaded, state, self.active.ends(), self._config, self.leader_epoch, unsynced_bytes=bound)
        header = self.header = take_header(source, loaded, wanted, clock.now_ms())
        self.published = PublishedState(header, state, self.producers, self._held, publish)
        self.stop = FailStop(source, header)
        held, file = self._held, self.active.file.raw
        held.hold_files(
            header.file, file, is_deleted=header.marks_deleted, is_changed=lambda: self.is_catching_up or header.changed()
        )
        self.checked_offset = self.active.next_offset  # acknowledged records before it have had the right names
        slot = self.published.slot
        self.published.change(
            active_size=self.active.size,
            end_offset=self.active.next_offset,
            durable_offset=slot.durable_offset,
            start_offset=max(slot.log_start_offset, state.start_offset),
        )

    # ---- before the first write ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> LogState:
        """The last published state."""
        return self.published.state

    @property
    def failure(self) -> str | None:
        """Why no more writes are possible, or None."""
        return self.stop.reason

    def _open_active(self, loaded: Loaded, state: LogState) -> LogState:
        """Opens the active segment, or creates the log's first one. Returns the state with it."""
        active, builder = state.active, loaded.builder
        if active is None or builder is None:
            return self._with_segment(state, new_segment(self._source, state.end_offset, self._clock.now_ms()))
        note_begun(loaded.segments[-2:], self._clock.now_ms())
        self.active = loaded_segment(self._source, loaded, active, builder)
        return state

    def _with_segment(self, state: LogState, active: ActiveSegment) -> LogState:
        """Appends to a new segment from now on. Returns the state with it, which the caller must publish."""
        self.active, base = active, active.base_offset
        segments = state.segments.with_added(base, active.segment)
        return replace(state, segments=segments, active=active.segment, active_size=0, end_offset=base)

    # ---- writes of other processes -------------------------------------------------------------------------------------------

    def is_current(self) -> bool:
        """Returns whether the log is as this writer left it, and takes writes. Cost: two or three system calls.

        The header alone is not sufficient: a process that dies during an append does not change it.
        """
        slot, stop, active = self.header.slot, self.stop, self.active
        writes = not self._stale and stop.reason is None and stop.unreported is None
        same = slot is not None and slot.epoch == self.published.state.epoch and slot.epoch % 2 == 0 and not slot.flags
        return writes and same and not self.header.changed() and active.file.is_unchanged_since(active.size)

    def catch_up(self, *, published: bool = False) -> bool:
        """Adds the appends of another process. Returns False after any other change, or if the batches are not as expected.

        Args:
            published: true to add only published records, for reads without the partition's lock.

        Cost: one pass over the new bytes. After False this writer cannot be used again: load the log again.
        """
        if not self._stale:
            self._stale = self.is_catching_up = True  # stay set if anything raises
            self._bounded = None  # the header will have another process's bound
            self._stale = self.is_catching_up = not self._caught_up(published=published)
        return not self._stale

    def _caught_up(self, *, published: bool) -> bool:
        slot = take_appends(self.active, self.header, self.producers, self.state.epoch, published=published)
        if slot is None:
            return False
        self.active.segment.note_others(self._clock.now_ms())
        self.published.show(self.published.with_written(self.active, slot, slot.durable_offset))
        return True

    # ---- append --------------------------------------------------------------------------------------------------------------

    def append(self, encoded: Iterable[Encoded | EncodedBatch], level: Durability, size: int) -> None:
        """Appends finished batches with consecutive offsets from the log end on. They are acknowledged when it returns.

        A segment that fills up is sealed; its records are then published and durable.

        Args:
            encoded: the batches.
            level: the acknowledgement's level.
            size: a lower bound of the bytes of all batches.

        Raises:
            StorageFailedError: a write or sync failed. The records from the error's `offset` on are not in the log.
            RecordTooLargeError: a batch exceeds `segment_bytes`.
        """
        stop = self.stop
        if stop.reason is not None or stop.unreported is not None:
            stop.check()
        if level is not self._bounded or size > limits.APPEND_CHUNK_BYTES:
            self._raise_bound(level, size)
        self._send_from = 0 if level.name == "SYNC" else limits.WRITE_BACK_BYTES if self._rolls else limits.INT64_MAX
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
            if self.failure is None and not self._is_rolling:  # during a roll it cannot be undone
                self._settle()
            if isinstance(error, StorageFailedError):
                error.offset = self.state.end_offset
            raise
        self._stale = False

    def _settle(self) -> None:
        """Cleans up after a failure: keeps records in the published header, which others may have read; cuts off all others."""
        slot = self.header.refresh()
        if slot is not None and self.state.end_offset < self.active.next_offset == slot.published_offset:
            self.published.show(self.published.with_written(self.active, slot, slot.durable_offset))
            self._stale = False
        else:
            self._undo()

    def _raise_bound(self, level: Durability, size: int) -> None:
        """Writes the largest distance of two unsynced batches to the header, before the first of them (reliability 3.1).

        The bound applies to the segment; a roll lowers it.
        """
        if level.name == "INTERVAL" and self.active.size - self.published.slot.durable_position + size > limits.FLUSH_BYTES:
            self._commit(Durability.SYNC)
        self._unsynced_bytes = unsynced_bound(level, size, self._config.segment_bytes)
        self._bounded = None if level.name == "INTERVAL" or size > limits.APPEND_CHUNK_BYTES else level
        if self._unsynced_bytes > self.published.slot.unsynced_bytes:
            try:
                self.header.write_both(unsynced_bytes=self._unsynced_bytes)
            except StorageFailedError as error:
                self.break_off(error, "the header could not be written")
                raise

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
        self.put_ms = now_ms = self._clock.now_ms()
        active = self.active
        if not active.surely_takes(column, now_ms):
            check_fits_at_all(column[SIZE], self._config, self._directory)
            if not one_fits(active.use(), column, self._config, now_ms):
                self.roll()
                active = self.active
        active.append_one(batch, now_ms, self._send_from)
        self._counters.bytes += column[SIZE]
        if column[PRODUCER_ID] >= 0:
            active.aborted += self.producers.replay_one(batch)

    def _write(self, piece: Encoded, first: int, end: int, now_ms: int) -> None:
        """Writes and indexes some batches of a piece."""
        self._counters.bytes += self.active.append(piece, first, end, now_ms, self._send_from)
        self.put_ms = now_ms
        if piece.table.item(PRODUCER_ID, first) >= 0:
            table = np.ascontiguousarray(piece.table[:, first:end])
            self.active.aborted += self.producers.replay_written(piece.data, table)

    def _undo(self) -> None:
        """Cuts off unpublished records, so that the next append begins where this one did.

        It happens between an odd and an even epoch, because another process must not assume that the truncation is durable. If
        the header cannot be written, it still continues: the log is loaded again before the next write.
        """
        self.active.step_back(self.state.active_size, self.state.end_offset)
        with contextlib.suppress(StorageFailedError):
            if self.published.slot.epoch % 2 == 0:
                self.published.begin_change()
        try:
            self.active.file.cut(self.active.size)
        except StorageFailedError as error:  # also if the disk is full: a reload would include the failed records
            self.stop.fail(f"a failed append could not be cut off again ({error})")
            return
        try:
            self.active.index_again()
            self.header.write_both(epoch=self.published.slot.epoch // 2 * 2 + 2, **self.active.ends())
        except StorageFailedError:
            return
        self.producers.put_back(self.active.next_offset)
        self.published.change(durable_offset=self.active.next_offset)
        self._stale = False

    def _commit(self, level: Durability) -> None:
        """Syncs if the level requires it, then publishes the written records. Prepares all it can before the sync."""
        durable, before, active = level.name == "SYNC", self.published.state, self.active
        position, offset, digest = active.size, active.next_offset, active.digest.value
        changes = {"durable_position": position, "durable_offset": offset} if durable else {}
        said = self.header.prepared(published_position=position, published_offset=offset, header_digest=digest, **changes)
        state = self.published.with_written(active, said.slot, offset if durable else before.durable_offset)
        try:
            if durable:
                began = self._clock.monotonic()
                active.file.raw.sync()
                self._counters.synced(self._clock.monotonic() - began)
            self.header.put(said)
            if (durable or self.put_ms != self._held.checked_ms) and self._held.check_at(self.put_ms, always=durable):
                self.checked_offset = offset
        except StorageFailedError as error:
            self.break_off(error, "the written records could not be made durable and published")
            raise
        if durable or active.file.synced:
            active.file.after_commit(position, position - before.active_size, self._config.segment_bytes, synced=durable)
        active.segment.published = position, digest
        self.published.show(state)

    def break_off(self, error: StorageFailedError, what: str) -> None:
        """Ends writing after a failure during a change. After a lack of space or descriptors, the log is only loaded again."""
        self._stale = not self.stop.take(error, what) or self._stale

    # ---- roll ----------------------------------------------------------------------------------------------------------------

    def roll(self) -> None:
        """Seals the active segment and starts the next one at the log end (storage-format 6.3.7).

        Raises:
            StorageFailedError: the disk is full. The log is unchanged, unless only the header could not be written for the new
                segment; then the earlier records are in the log. Any other failure ends writing.
        """
        full, can_undo, self._rolls, self._is_rolling = self.active, True, True, True
        self._send_from = min(self._send_from, limits.WRITE_BACK_BYTES)
        try:
            self.published.begin_change()
            if not full.file.trim(full.size):
                full.file.raw.sync()
            can_undo = False
            begun = next_segment(
                self._source, full, self.producers, self.published.slot.active_inode, self._clock, self.stop.fail
            )
            if isinstance(begun, ActiveSegment):
                self._turn_to(begun, full)
            else:
                can_undo = True
                self.published.end_change()
            self._is_rolling = False
        except StorageFailedError as error:
            if can_undo and error.passes:
                self._is_rolling = False  # so that the append also ends, whose records may be in the log
            else:
                self.break_off(error, "a segment could not be sealed")
            raise
        if isinstance(begun, StorageFailedError):
            raise begun

    def _turn_to(self, begun: ActiveSegment, sealed: ActiveSegment) -> None:
        """Publishes the new segment. It and all earlier records are durable, even if the header cannot be written."""
        self.published.state = self._with_segment(self.state, begun)
        self._held.hold_active(self.active.file.raw)
        try:
            self.published.end_change(unsynced_bytes=self._unsynced_bytes, **self.active.ends())
        finally:
            sealed.segment.seal(sealed.size)  # the file closes itself: a background flush may be using it
            self.published.change(durable_offset=self.active.next_offset)

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Makes everything published durable.

        Raises:
            StorageFailedError: the sync failed; the log accepts no more writes.
        """
        if self.failure is None and self.state.durable_offset < self.state.end_offset:
            self._commit(Durability.SYNC)

    def close(self) -> bool:
        """Flushes, writes the derived files, closes. Returns whether the partition is left as after a clean shutdown."""
        try:
            if self.failure is None:
                self._held.check()
                self.flush()
                self.active.file.trim(self.active.size)
                self.epochs.complete()
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
