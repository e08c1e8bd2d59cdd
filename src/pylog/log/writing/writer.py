"""Appending to a partition: one mutator, in the order that a crash can stand anywhere in (reliability 4).

append: write the batches → sync → slot → publish → acknowledge. roll: slot with an odd epoch → sync the old segment → write and
sync its indexes and the producer snapshot → make the new file, sync the directory → slot with the new segment and an even epoch.
A failed write is cut off again; a failed sync ends writing for good, because nothing proves what it left on the disk.

Between two calls another process may have written. `is_current` tells, `catch_up` takes what was appended; after any other change
the log is loaded again and gets a new writer. All of that, and every change, happens under the partition's lock.
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
from pylog.directory import checkpoints
from pylog.errors import NO_ROOM, ClosedError, DirectoryReplacedError, StorageFailedError
from pylog.fs import join
from pylog.index.builder import SegmentIndexBuilder
from pylog.log.durable_point import FAILED, DurablePoint, DurablePointFile, SyncPoint, epoch_after, make_header, unsynced_bound
from pylog.log.producer_state import Producer, ProducerStateManager, drop_snapshots, write_snapshot
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.recovery.loader import epochs_of
from pylog.log.state import LogState
from pylog.log.writing.active_file import ActiveFile
from pylog.log.writing.readying import cut_tail, make_durable
from pylog.log.writing.rolling import SegmentUse, batches_before_roll, check_fits_at_all, empty_segment, one_fits, take_back
from pylog.metrics import Counters
from pylog.record import kernels
from pylog.record.batch import Bytes, Table
from pylog.record.builder import Encoded
from pylog.record.few import EncodedBatch
from pylog.record.format import BASE_OFFSET, CRC_GOOD, CRC_STATE, LAST_OFFSET, MAX_TIMESTAMP, POSITION, PRODUCER_ID, SIZE
from pylog.segment.age import note_begun
from pylog.segment.log_file import Region
from pylog.segment.names import LOG, file_name
from pylog.segment.seal import HeaderDigest, digest_and_indexes_of, digest_of, make_seal, write_seal
from pylog.segment.segment import LogSegment


class LogWriter:
    """The mutator of one log, made for a write. Not thread-safe: its log calls it under the partition's lock.

    Making it makes the partition ready for its next byte: a torn tail is set aside and cut, what a dead process left is written
    again and synced, the header says what is true.

    Args:
        source, loaded: the partition, as it was loaded under the same lock.
        state: as published so far.
        publish: takes each new state.
        clock, counters: the log's.

    Raises:
        StorageFailedError: the partition could not be made ready; nothing acknowledged was touched.

    Attributes:
        state: as published last.
        header: the shared header.
        active, file: the segment that is appended to.
        producers: what producers did, up to the end.
        epochs, leader_epoch: the leader epochs, and the one that new batches carry.
        failure: why nothing can be written any more, or None.
        unreported: the error of a flush in the background, for the next call to raise.
        checked_offset: the records before it were acknowledged while the names of the log's files led to them.
        is_catching_up: it has seen a change of another process and not published it yet.
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
        self._held, self._put_ms = source.held, 0  # when it last wrote
        self._publish, self._clock, self._counters = publish, clock, counters
        self.failure: str | None = None
        self._stale = self.is_catching_up = False  # `_stale`: what it knows may not be what is there
        self.unreported: StorageFailedError | None = None
        self.producers = ProducerStateManager() if loaded.producers is None else loaded.producers
        self.epochs = epochs_of(loaded)
        self.leader_epoch = max(loaded.leader_epoch, self.epochs[-1].epoch if self.epochs else 0, 0)
        self._producers_before: dict[int, Producer | None] = {}  # those of what is written and not published
        self.state = state
        self._unsynced_bytes = min(limits.APPEND_CHUNK_BYTES, self._config.segment_bytes)  # of the call under way
        self._syncs = self._rolls = self._amid_roll = False  # the call will sync; a segment was filled; one is being sealed
        self._open_active()
        stale = drop_snapshots(self._fs, self._directory, loaded.snapshots, self._next_offset)
        if stale:
            trace.later(trace.SNAPSHOTS_REMOVED, self._source.partition, end=self._next_offset, files=stale)
        self._assign_epoch()
        self.header = self._take_header()
        header, is_changed = self.header, lambda: self.is_catching_up or self.header.changed()
        self._held.hold_files(header.file, self.file.raw, is_deleted=header.says_deleted, is_changed=is_changed)
        self.checked_offset = self._next_offset  # as far as the names are known to have led to what is acknowledged
        self.set_state(
            active_size=self._written,
            end_offset=self._next_offset,
            durable_offset=self._slot_now.durable_offset,
            start_offset=self._slot_now.log_start_offset,
        )

    # ---- before the first write ----------------------------------------------------------------------------------------------

    def _open_active(self) -> None:
        """Opens the segment to append to, or makes the log's first one."""
        loaded = self._loaded
        active, builder = self.state.active, loaded.builder
        if active is None or builder is None:
            self.state = self._begin_segment(self.state.end_offset)
            return
        self.active, self._builder = active, builder
        note_begun(loaded.segments[-2:], self._clock.now_ms())
        self._written, self._next_offset = loaded.end, loaded.next_offset  # with what is not published yet
        self.file = ActiveFile(self._fs.open(active.path, write=True), self._written)
        cut_tail(self._source, loaded, active, self.file, self._written)
        if not loaded.clean or not self._source.clean:  # who died may have cut it, and not synced that
            make_durable(self._source, loaded, active, self.file, self._written)
        known = loaded.digest if loaded.digest is not None and loaded.digest.position == self._written else None
        self._digest = known or digest_of(active, self._written, self._config.index_interval_bytes)
        self._first_timestamp = active.first_timestamp()

    def _take_header(self) -> DurablePointFile:
        """The header, as it is when it says just what is true, else with a new slot before the first byte (reliability 12)."""
        wanted = self._slot()
        found = self._loaded.slot
        if found is not None and self._loaded.same_boot and wanted.says_the_same(found):
            header = DurablePointFile(self._fs, self._directory, write=True)
            if header.refresh() == found:
                return header
            header.close()
        return make_header(self._fs, self._directory, wanted, self._clock.now_ms())

    def _slot(self) -> DurablePoint:
        """The slot to write before the first append, its epoch new unless nothing has changed, the topic's options included."""
        old = self._loaded.found or DurablePoint()
        same = self._loaded.slot is not None and old.log_start_offset == self.state.start_offset
        return replace(
            DurablePoint(),
            counter=old.counter,
            epoch=epoch_after(old, self._config, same=same),
            unsynced_bytes=self._unsynced_bytes,
            log_start_offset=self.state.start_offset,
            truncation_count=old.truncation_count,
            leader_epoch=self.leader_epoch,
            **self._ends(),
        )

    def _assign_epoch(self) -> None:
        """Records the first offset of the leader epoch that new batches will carry (storage-format 6.13.1)."""
        epochs = checkpoints.assign_epoch(self.epochs, self.leader_epoch, self.state.end_offset)
        if epochs != self._loaded.epochs:
            self.write_epochs(epochs)

    def write_epochs(self, epochs: list[checkpoints.EpochEntry]) -> None:
        """Replaces the leader epochs, in memory and on the disk."""
        checkpoints.write_epochs(self._fs, self._directory, epochs)
        self.epochs = epochs

    # ---- others' writes ------------------------------------------------------------------------------------------------------

    def is_current(self) -> bool:
        """Whether the log is as this writer left it. Cost: two or three system calls.

        The header alone is not enough: who dies in mid-append leaves it as it was.
        """
        slot = self.header.slot
        even = slot is not None and slot.epoch == self.state.epoch and slot.epoch % 2 == 0 and not slot.flags
        return even and not self._stale and not self.header.changed() and self.file.is_as_left(self._written)

    def catch_up(self, *, published: bool = False) -> bool:
        """Takes what another process appended; False when something else happened, or it is not what it should be.

        Args:
            published: only what it has published, while it may be appending more: for reading, without the partition's lock.

        Cost: one pass over the new bytes. After False this writer is of no use, and stays so: load the log again.
        """
        if not self._stale:
            self._stale = self.is_catching_up = True  # whatever is raised meanwhile leaves both so
            self._stale = self.is_catching_up = not self._caught_up(published=published)
        return not self._stale

    def _caught_up(self, *, published: bool) -> bool:
        old, slot = self.header.slot, self.header.refresh()
        if old is None or slot is None or not self.header.same_boot or slot.flags:
            return False
        same = (slot.epoch, slot.active_base, slot.active_inode) == (self.state.epoch, self.active.base_offset, old.active_inode)
        size, position = self.file.raw.size(), slot.published_position
        whole = position == size or (position < size and (published or self.file.is_blank_at(position)))
        if slot.epoch % 2 or not same or not whole or slot.published_position < self._written:
            return False
        for region in self.active.regions(self._written, slot.published_position, verify=True):
            if not self._take(region):
                return False
        if (self._written, self._next_offset) != (slot.published_position, slot.published_offset):
            return False
        self.file.end = size
        self.active.note_others(self._clock.now_ms())
        self._show(self._with_written(slot, slot.durable_offset))
        return True

    def _take(self, region: Region) -> bool:
        """Notes the batches of a region as if they had been written here."""
        table = region.table
        if region.status not in (kernels.OK, kernels.FULL) or np.any(table[CRC_STATE] != CRC_GOOD):
            return False
        count = table.shape[1]
        if count == 0:
            return True
        if table[BASE_OFFSET, 0] != self._next_offset or np.any(table[BASE_OFFSET, 1:] != table[LAST_OFFSET, :-1] + 1):
            return False
        self._note(region.buffer, table, 0, count, region.shift)
        self.producers.replay(region.buffer, table)
        return True

    # ---- append --------------------------------------------------------------------------------------------------------------

    def append(self, encoded: Iterable[Encoded | EncodedBatch], level: Durability, size: int) -> None:
        """Appends finished batches with consecutive offsets from the log's end on; acknowledged when it returns.

        A segment that fills up meanwhile is sealed, and what it holds is published and durable from then on.

        Args:
            encoded: the batches.
            level: of the acknowledgement.
            size: at least the bytes of all batches together.

        Raises:
            StorageFailedError: a write or sync failed. The records from the error's `offset` on are not in the log.
            RecordTooLargeError: a batch is larger than a segment may be.
        """
        self.check_alive()
        self._raise_bound(level, size)
        self._syncs = level.name == "SYNC"
        self._stale = True  # until all is done, or undone: after an interrupt in between the log is loaded again
        try:
            for piece in encoded:
                batch = piece if isinstance(piece, EncodedBatch) else piece.only_batch()
                if batch is not None:
                    self._append_one(batch)
                elif isinstance(piece, Encoded):
                    self._append_piece(piece)
            self._commit(level)
        except BaseException as error:  # an interrupt too: nothing half written may stand before the next append
            if self.failure is None and not self._amid_roll:  # between two segments there is nothing to go back to
                self._settle()
            if isinstance(error, StorageFailedError):
                error.offset = self.state.end_offset
            raise
        self._stale = False

    def _settle(self) -> None:
        """After a failure: what the header says already, others may have read; all else is cut off again."""
        slot = self.header.refresh()
        if slot is not None and self.state.end_offset < self._next_offset == slot.published_offset:
            self._show(self._with_written(slot, slot.durable_offset))
            self._stale = False
        else:
            self._undo()

    def check_alive(self) -> None:
        """Raises after a failed sync: first what a flush in the background met, then ClosedError."""
        error, self.unreported = self.unreported, None
        if error is not None:
            raise error
        if self.failure is not None:
            raise ClosedError(self.failure, path=self._directory)

    def _raise_bound(self, level: Durability, size: int) -> None:
        """Says how far apart two unsynced batches can be from now on, before the first of them is written (reliability 3.1).

        The bound belongs to the segment: the largest in use, lowered by a roll.
        """
        if level.name == "INTERVAL" and self._written - self._slot_now.durable_position + size > limits.FLUSH_BYTES:
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
        """Writes the batches of a piece, rolling wherever a segment is full."""
        first, count = 0, piece.table.shape[1]
        check_fits_at_all(max(piece.table[SIZE].tolist()), self._config, self._directory)
        while first < count:
            now_ms = self._clock.now_ms()
            room = batches_before_roll(self._use(), piece.table[:, first:], self._config, now_ms)
            if room == 0:
                self.roll()
                continue
            self._write(piece, first, first + room, now_ms)
            first += room

    def _append_one(self, batch: EncodedBatch) -> None:
        """The same for a single batch: in plain Python, which takes a fraction of the time."""
        column = batch.column
        check_fits_at_all(column[SIZE], self._config, self._directory)
        now_ms = self._clock.now_ms()
        if not one_fits(self._use(), column, self._config, now_ms):
            self.roll()
        start = self._written
        self._put(batch.data, now_ms)
        if start == 0:
            self._first_timestamp = column[MAX_TIMESTAMP]
        self._digest.add_one(batch.data, start + column[SIZE])
        self._builder.add_one(column, start)
        self._written, self._next_offset = start + column[SIZE], column[LAST_OFFSET] + 1
        if column[PRODUCER_ID] >= 0:
            self._note_producers(batch.data, batch.table)

    def _use(self) -> SegmentUse:
        left = self._builder.entries_left(self._config.segment_index_bytes)
        return SegmentUse(self.active.base_offset, self._written, self._first_timestamp, self.active.appends.begun_ms or 0, left)

    def _write(self, piece: Encoded, first: int, end: int, now_ms: int) -> None:
        """Writes some batches of a piece behind what is written, and indexes them."""
        table = piece.table
        start = table.item(POSITION, first)
        stop = table.item(POSITION, end - 1) + table.item(SIZE, end - 1)
        self._put(piece.data[start:stop], now_ms)
        self._note(piece.data, table, first, end, self._written - start)
        if table.item(PRODUCER_ID, first) >= 0:
            self._note_producers(piece.data, np.ascontiguousarray(table[:, first:end]))

    def _put(self, data: memoryview, now_ms: int) -> None:
        """Writes behind what is written. What will be synced is sent to the disk early: by this call, or by a roll to come."""
        later = limits.WRITE_BACK_BYTES if self._rolls else limits.INT64_MAX
        self.file.put(data, self._written, send_from=0 if self._syncs else later)
        self._put_ms = now_ms
        self._counters.bytes += len(data)
        self.active.appends.note(now_ms)

    def _note(self, data: memoryview | Bytes, table: Table, first: int, end: int, shift: int) -> None:
        """Takes batches that are in the file into the indexes, the digest and the counts."""
        if self._written == 0:
            self._first_timestamp = table.item(MAX_TIMESTAMP, first)
        self._digest.add(data, table, first, end, shift)
        self._builder.add(table, end, first=first, position=shift)
        self._written = shift + table.item(POSITION, end - 1) + table.item(SIZE, end - 1)
        self._next_offset = table.item(LAST_OFFSET, end - 1) + 1

    def _note_producers(self, data: memoryview, table: Table) -> None:
        """Takes what batches in the file say of their producers."""
        self.producers.keep(table[PRODUCER_ID], self._producers_before)
        self.producers.replay(np.frombuffer(data, np.uint8), table)

    def _undo(self) -> None:
        """Cuts off what was written and not published, so that the next append begins where this one did.

        Between an odd and an even epoch: who takes over meanwhile must not take the cut for durable. A header that cannot be told
        so is no reason to stop: what is cut is cut, and the log is loaded again before the next write.
        """
        self._written, self._next_offset = self.state.active_size, self.state.end_offset
        with contextlib.suppress(StorageFailedError):
            if self._slot_now.epoch % 2 == 0:
                self.begin_change()
        try:
            self.file.cut(self._written)
        except StorageFailedError as error:  # for want of room, too: loading the log again would take what stands there
            self.fail(f"a failed append could not be cut off again ({error})")
            return
        try:
            self._digest, builder = digest_and_indexes_of(self.active, self._written, self._config.index_interval_bytes)
            self.header.write_both(epoch=self._slot_now.epoch // 2 * 2 + 2, **self._ends())
        except StorageFailedError:
            return
        self._builder = self.active.builder = builder
        self.producers.put_back(self._producers_before, self._next_offset)
        self.set_state(durable_offset=self._next_offset)
        self._stale = False

    def _commit(self, level: Durability) -> None:
        """Syncs if the level asks for it, then publishes what is written. All that can be is made ready before the sync."""
        durable = level.name == "SYNC"
        position, offset = self._written, self._next_offset
        changes = {"durable_position": position, "durable_offset": offset} if durable else {}
        digest = self._digest.value
        said = self.header.prepared(published_position=position, published_offset=offset, header_digest=digest, **changes)
        state = self._with_written(said.slot, offset if durable else self.state.durable_offset)
        try:
            if durable:
                began = self._clock.monotonic()
                self.file.raw.sync()
                self._counters.synced(self._clock.monotonic() - began)
            self.header.put(said)
            if self._held.check_at(self._put_ms, always=durable):
                self.checked_offset = offset
        except StorageFailedError as error:
            self.break_off(error, "what was written could not be made durable and published")
            raise
        self.file.after_commit(position, position - self.state.active_size, self._config.segment_bytes, synced=durable)
        self._show(state)

    def _with_written(self, slot: DurablePoint, durable_offset: int) -> LogState:
        """The state with everything that is written, under a slot that says so."""
        return self._changed(
            slot,
            active_size=self._written,
            end_offset=self._next_offset,
            durable_offset=durable_offset,
            first_unstable_offset=self.producers.first_unstable_offset,
        )

    def _changed(self, slot: DurablePoint, **changes: Any) -> LogState:
        return replace(self.state, epoch=slot.epoch, truncation_count=slot.truncation_count, **changes)

    def set_state(self, **changes: Any) -> None:
        """Publishes the state with some fields changed."""
        self._show(self._changed(self._slot_now, **changes))

    def _show(self, state: LogState) -> None:
        self._producers_before = {}
        self.producers.end_offset = state.end_offset
        self.state = state
        if state.active is not None:
            state.active.size = state.active_size
        self._publish(state)

    def fail(self, reason: str) -> None:
        """Ends writing for good: nothing is tried again on pages that the system may have marked clean (fsyncgate)."""
        self.failure = f"{self._directory}: {reason}; close the store and open it again, which checks the end of the log"
        trace.later(trace.WRITING_FAILED, self._source.partition, reason=self.failure)
        with contextlib.suppress(StorageFailedError):  # the first failure is the one that is reported
            self.header.write(flags=FAILED)

    def break_off(self, error: StorageFailedError, what: str) -> None:
        """Ends writing after a failure amid a change; for want of room or of descriptors the log is only loaded again."""
        if isinstance(error, DirectoryReplacedError):
            self.failure = str(error)  # and nothing is written: the header may be in the directory that is there now
        elif error.passes:
            self._stale = True
        else:
            self.fail(f"{what} ({error})")

    # ---- roll ----------------------------------------------------------------------------------------------------------------

    def _begin_segment(self, base_offset: int) -> LogState:
        """Makes a new, empty active segment, its name durable, and returns the state with it, for the caller to publish."""
        path = join(self._directory, file_name(base_offset, LOG))
        file = ActiveFile(self._fs.create(path), 0)
        self._fs.sync_directory(self._directory)
        segment = empty_segment(self._source, base_offset, self._clock.now_ms())
        self._builder = segment.builder = SegmentIndexBuilder(base_offset, self._config.index_interval_bytes)
        self.active, self.file = segment, file
        self._digest = HeaderDigest(self._config.index_interval_bytes)
        self._written, self._next_offset, self._first_timestamp = 0, base_offset, -1
        segments = self.state.segments.with_added(base_offset, segment)
        return replace(self.state, segments=segments, active=segment, active_size=0, end_offset=base_offset)

    def roll(self) -> None:
        """Seals the active segment and begins the next one at the log's end (storage-format 6.3.7).

        Raises:
            StorageFailedError: there was no room: the log stays as it was, unless only the header could not be told of its new
                segment: then what was written before is in it. Any other one ends writing.
        """
        full, size, can_undo, self._rolls, self._amid_roll = self.active, self._written, True, True, True
        try:
            self.begin_change()
            if not self.file.trim(size):
                self.file.raw.sync()
            can_undo = False
            begun = self._next_segment()
            if isinstance(begun, LogState):
                self._turn_to(begun, full, size)
            else:
                can_undo = True
                self.end_change()
            self._amid_roll = False
        except StorageFailedError as error:
            if can_undo and error.passes:
                self._amid_roll = False  # so the append does, whose records may be there already
            else:
                self.break_off(error, "a segment could not be sealed")
            raise
        if not isinstance(begun, LogState):
            raise begun

    def _turn_to(self, begun: LogState, sealed: LogSegment, size: int) -> None:
        """Publishes the new segment. It is there, and what lies before it durable, whether the header can be told or not."""
        self.state = begun
        self._held.hold_active(self.file.raw)
        try:
            self.end_change(unsynced_bytes=self._unsynced_bytes, **self._ends())
        finally:
            sealed.seal(size)  # the file closes itself: a flusher may be syncing it
            self.set_state(durable_offset=self._next_offset)

    def _next_segment(self) -> LogState | StorageFailedError:
        """Makes the files that seal the active segment, and the next one; returns why when the disk does not take them."""
        try:
            seal = make_seal(self.active.base_offset, self._next_offset, self._digest, inode=self._slot_now.active_inode)
            write_seal(self._fs, self._directory, seal)
            self._write_derived()
            return self._begin_segment(self._next_offset)
        except StorageFailedError as error:
            self._take_back()
            return error

    def _take_back(self) -> None:
        try:
            take_back(self._fs, self._directory, self._next_offset)
        except StorageFailedError as error:
            if error.errno in NO_ROOM:  # the append cannot be undone before it is gone
                self.fail(f"a segment that could not be begun could not be removed again ({error})")
            raise

    def begin_change(self, *, durably: bool = False, **fields: Any) -> None:
        """Says that segments are made, go or are replaced: others look again when it is over."""
        self._held.check()
        write = self.header.write_both if durably else self.header.write
        write(epoch=self._slot_now.epoch + 1, **fields)

    def end_change(self, **fields: Any) -> None:
        """Says that the change is over."""
        self.header.write_both(epoch=self._slot_now.epoch + 1, **fields)

    def _ends(self) -> dict[str, int]:
        """The slot's fields of a log whose active segment is synced."""
        base, position, offset = self.active.base_offset, self._written, self._next_offset
        return {
            "active_base": base,
            "active_inode": self.file.raw.identity()[1],
            "published_position": position,
            "published_offset": offset,
            "durable_base": base,
            "durable_position": position,
            "durable_offset": offset,
            "header_digest": self._digest.value,
        }

    def _write_derived(self) -> None:
        """The index files of a full or closing segment, its file's time, and the producer snapshot behind it."""
        self.file.set_time(self.active.appends.last(self._clock.now_ms()))
        self._builder.finish()
        self.active.write_indexes(self._builder)
        self.producers.rest(self._next_offset, self._clock.now_ms(), self._config.producer_id_expiration_ms)
        write_snapshot(self._fs, self._directory, self.producers)

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Makes everything published durable.

        Raises:
            StorageFailedError: the sync failed; the log takes no more writes.
        """
        if self.failure is None and self.state.durable_offset < self.state.end_offset:
            self._commit(Durability.SYNC)

    def sync_point(self) -> SyncPoint:
        """What a sync of the active segment would make durable now."""
        return SyncPoint(self.file.raw, self._slot_now.epoch, self._written, self._next_offset)

    def note_durable(self, point: SyncPoint) -> None:
        """Says that a sync of that point succeeded, unless segments have come or gone since."""
        if point.epoch == self._slot_now.epoch and point.offset > self.state.durable_offset:
            self.header.write(durable_position=point.position, durable_offset=point.offset)
            self.set_state(durable_offset=point.offset)

    def close(self) -> bool:
        """Flushes, writes the derived files, closes. Returns whether the partition is left as after a clean shutdown."""
        try:
            if self.failure is None:
                self._held.check()
                self.flush()
                self.file.trim(self._written)
                self._write_derived()
                self.header.write()  # once more, in the other place: a flipped bit in one of them then takes nothing back
        finally:
            self.abandon()
        return self.failure is None

    def abandon(self) -> None:
        """Closes the files and writes nothing: the log is loaded again, or another process goes on with it."""
        self._held.release()
        self.file.close()
        self.header.close()
