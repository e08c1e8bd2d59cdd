"""The `durable-point` file, a partition's header: the durable end and the published end (reliability 3.1, 12).

Two slots of 128 bytes are written alternately, so that a torn write leaves the other one. The slot with the higher counter is
valid. After the first truncation, a block of 128 bytes with the offsets of the last truncations follows. The file is synced when
it is created, and when a field changes whose old value would be harmful. Otherwise a lost write is safe, because an old slot
understates.

Only pylog uses this file, and it is derived: a directory without one is loaded like Kafka's.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import astuple, replace

from pylog import limits, trace
from pylog.config import Durability, TopicConfig
from pylog.directory.brokers import modified
from pylog.errors import StorageFailedError, UnsupportedFormatError
from pylog.fs import File, FileKind, FileSystem, at_most, is_no_file, join, process_id, set_aside
from pylog.record.checksum import crc32c, crc32c_of_bytes
from pylog.segment.names import DURABLE_POINT

SLOT_SIZE: Final = 128
_MAGIC: Final = b"PYLG"
_VERSION: Final = 1
_SLOT = struct.Struct("<4sHHQQ16sqQqqqqqIIqIiI")  # all but the CRC
assert _SLOT.size == SLOT_SIZE - 4

_CUTS_MAGIC: Final = b"PYLT"
_MOST_CUTS: Final = 9
_CUTS = struct.Struct("<4sHH" + "Iq" * _MOST_CUTS)
CUTS_AT: Final = 2 * SLOT_SIZE

_LAST_COUNTER: Final = 1 << 62  # unreachable when counting from 0

FAILED: Final = 1  # a sync failed: bytes after the durable end are unproven
DELETED: Final = 2  # the partition is being deleted: no more writes

# Marks of topic options, in the upper bits of an epoch number: see `options`.
EPOCH_BITS: Final = 44  # of a header's epoch number; the bits above hold the mark
_MARK_BITS: Final = 20
_NUMBERS: Final = (1 << EPOCH_BITS) - 1


@functools.lru_cache(1024)
def mark_of(config: TopicConfig) -> int:
    """Returns the mark of a version of the options for headers: 20 bits of a hash, never 0."""
    changed = ",".join(f"{name}={value!r}" for name, value in sorted(config.changed().items()))
    return int.from_bytes(hashlib.blake2b(changed.encode(), digest_size=8).digest(), "little") % ((1 << _MARK_BITS) - 1) + 1


def marked(epoch: int, mark: int) -> int:
    """Returns an epoch number with another mark.

    >>> marked(6, 1) == (1 << 44) + 6
    True
    """
    return (epoch & _NUMBERS) | (mark << EPOCH_BITS)


def mark_in(epoch: int) -> int:
    """Returns the mark of an epoch number; 0 in a header written by an older pylog."""
    return epoch >> EPOCH_BITS


class DurablePoint(msgspec.Struct, frozen=True, gc=False):
    """One slot. Positions in bytes, of whole batches, in the segment that the base before them names.

    Attributes:
        flags: a sum of FAILED and DELETED.
        counter: increases with every write.
        epoch: odd while segments are created, deleted or replaced. Its bits from 44 on are the mark of the topic's options that
            the writer applies (`pylog.log.options`).
        boot_mark: hash of the kernel's boot id and of this file's device and inode, so that a copy counts as another boot.
        active_base, active_inode: the active segment.
        published_position, published_offset: the end that readers may see.
        durable_base, durable_position, durable_offset: the synced end.
        unsynced_bytes: the largest distance of two unsynced batches of this segment.
        header_digest: the digest of the active segment's batch headers before the published position (6.3).
        log_start_offset: the log start offset.
        truncation_count: the number of truncations.
        leader_epoch: the leader epoch of new batches.
        pid: the writer's process id.
    """

    flags: int = 0
    counter: int = 0
    epoch: int = 0
    boot_mark: bytes = bytes(16)
    active_base: int = 0
    active_inode: int = 0
    published_position: int = 0
    published_offset: int = 0
    durable_base: int = 0
    durable_position: int = 0
    durable_offset: int = 0
    unsynced_bytes: int = 0
    header_digest: int = 0
    log_start_offset: int = 0
    truncation_count: int = 0
    leader_epoch: int = 0
    pid: int = 0

    def encoded(self) -> bytes:
        """Returns the slot's 128 bytes."""
        body = _SLOT.pack(_MAGIC, _VERSION, *astuple(self))
        return body + crc32c_of_bytes(body).to_bytes(4, "little")

    def has_same_facts_as(self, other: DurablePoint) -> bool:
        """Returns whether a slot of another writer has the same facts; `unsynced_bytes` may differ."""
        return replace(self, boot_mark=other.boot_mark, pid=other.pid, unsynced_bytes=other.unsynced_bytes) == other

    @property
    def idle(self) -> bool:
        """Whether all published records are durable and no change of segments was unfinished."""
        same = self.durable_base == self.active_base and self.durable_position == self.published_position
        return same and self.epoch % 2 == 0 and not self.flags


class Truncations(NamedTuple):
    """The lowest offsets that a log was truncated to, for readers that have to know whether their records were deleted.

    A compaction may rewrite or delete a batch, so a missing batch alone does not show that it was truncated.

    Attributes:
        cuts: pairs of a truncation count and an offset, both rising. The truncations after the count before, up to this count,
            did not go below the offset.

    >>> cuts = Truncations().with_cut(1, 500).with_cut(2, 300).with_cut(3, 400)
    >>> cuts.cuts, cuts.lowest(0, 3), cuts.lowest(2, 3), cuts.lowest(3, 4)
    (((2, 300), (3, 400)), 300, 400, 0)
    """

    cuts: tuple[tuple[int, int], ...] = ()

    def with_cut(self, count: int, end: int) -> Truncations:
        """Returns the truncations with one more, to `end`. `count` is the truncation count after it."""
        before = tuple(cut for cut in self.cuts if cut[0] < count)  # a later one was noted, and its process died before its start
        known = count - 1 == (before[-1][0] if before else 0)
        before = before if known else ((count - 1, 0),)  # the last ones were not noted, by an older pylog
        kept = [*(cut for cut in before if cut[1] < end), (count, end)]
        if len(kept) > _MOST_CUTS:
            (_, lowest), (later, _), *kept = kept
            kept = [(later, lowest), *kept]
        return Truncations(tuple(kept))

    def lowest(self, since: int, count: int) -> int:
        """Returns the lowest offset of the truncations from one truncation count to a later one; 0 if it is not known."""
        if since >= count or not self.cuts or self.cuts[-1][0] < count:
            return 0
        return next(end for reached, end in self.cuts if reached > since)

    def encoded(self) -> bytes:
        """Returns the block's 128 bytes."""
        fields = [number for cut in self.cuts for number in cut]
        body = _CUTS.pack(_CUTS_MAGIC, 1, len(self.cuts), *fields, *[0] * (2 * _MOST_CUTS - len(fields)))
        body = body.ljust(SLOT_SIZE - 4, b"\0")
        return body + struct.pack("<I", crc32c(body))


def parse_truncations(data: bytes, _path: str = DURABLE_POINT) -> Truncations:
    """Parses the block of truncations. Returns none if the bytes are not a valid block: then they are unknown.

    >>> cuts = Truncations(((2, 300), (3, 400)))
    >>> parse_truncations(cuts.encoded()) == cuts, parse_truncations(b"")
    (True, Truncations(cuts=()))
    """
    if len(data) != SLOT_SIZE or crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
        return Truncations()
    magic, version, size, *fields = _CUTS.unpack(data[: _CUTS.size])
    cuts = tuple(zip(fields[: 2 * size : 2], fields[1 : 2 * size : 2], strict=True))
    rising = all(before < after for one, other in pairwise(cuts) for before, after in zip(one, other, strict=True))
    possible = magic == _CUTS_MAGIC and version == 1 and size <= _MOST_CUTS and rising and all(cut[1] >= 0 for cut in cuts)
    return Truncations(cuts if possible else ())


CUTS: Final = FileKind("a header's truncations", parse_truncations, at_most(SLOT_SIZE), "they count as unknown")


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A slot and its bytes before the write, with the content of the file after it."""

    slot: DurablePoint
    data: bytes
    whole: bytes


class SyncPoint(NamedTuple):
    """The position and offset that a sync of `file` makes durable, under an epoch of the header."""

    file: File
    epoch: int
    position: int
    offset: int


def unsynced_bound(level: Durability, size: int, segment_bytes: int) -> int:
    """Returns the largest distance of two unsynced batches, in bytes, for an append of `size` bytes at a durability.

    At SYNC it is the size of one call, at INTERVAL the limit that triggers a flush, at OS a whole segment. All small calls
    share one bound, because raising it costs a sync.

    >>> unsynced_bound(Durability.OS, 100, 1 << 30) == 1 << 30
    True
    """
    if level.name == "OS":
        return segment_bytes
    wanted = size if level.name == "SYNC" else max(size, limits.FLUSH_BYTES)
    return min(max(wanted, limits.APPEND_CHUNK_BYTES), segment_bytes)


@functools.lru_cache(maxsize=16)  # an opening reads the same slots several times
def parse_slot(data: bytes, path: str = DURABLE_POINT) -> DurablePoint | None:
    """Parses a slot; None if the bytes are not a valid one.

    Raises:
        UnsupportedFormatError: a later version of pylog wrote it.

    >>> parse_slot(DurablePoint(counter=7).encoded()).counter
    7
    """
    if len(data) != SLOT_SIZE or crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
        return None
    magic, version, *fields = _SLOT.unpack(data[:-4])
    if magic == _MAGIC and version != _VERSION:
        message = f"{path} has version {version}; this pylog reads version {_VERSION}; upgrade pylog to read it"
        raise UnsupportedFormatError(message, path=path)
    slot = DurablePoint(*fields) if magic == _MAGIC else None
    return slot if slot is not None and _is_possible(slot) else None


SLOTS: Final = FileKind("a header of a partition", parse_slot, at_most(limits.MARKER_BYTES), "remove it, and it is created again")


def _is_possible(slot: DurablePoint) -> bool:
    """Returns whether a slot's numbers are possible in a log, and leave room for the next ones.

    Other slots are ignored, even with a good checksum, because the header is derived.
    """
    number = slot.epoch % (1 << EPOCH_BITS)
    counters = slot.counter < _LAST_COUNTER and number < 1 << (EPOCH_BITS - 1) and slot.truncation_count < limits.INT32_MAX
    positions = min(slot.published_position, slot.durable_position) >= 0
    positions &= max(slot.published_position, slot.durable_position) <= limits.MAX_SEGMENT_BYTES
    ends = 0 <= slot.active_base <= slot.published_offset <= limits.INT64_MAX
    reach = slot.published_offset - slot.active_base <= limits.MAX_RELATIVE_OFFSET + 1
    others = 0 <= slot.log_start_offset <= slot.published_offset and slot.durable_base >= 0 and slot.durable_offset >= 0
    return counters and positions and ends and reach and others and slot.leader_epoch >= -1


class DurablePointFile:
    """The open `durable-point` file of a partition, for reading and writing. Not thread-safe.

    Args:
        fs, directory: the partition.
        write: true to write slots, which requires the partition's lock.

    Raises:
        StorageFailedError: the file does not exist or cannot be opened.
        UnsupportedFormatError: from any refresh, if a later version of pylog wrote it.

    Attributes:
        slot: the newest valid slot read, or None. It never goes back to an older slot, which is the only valid one while
            another is being written (reliability 11b).
        boot_mark: the mark of new slots.
    """

    def __init__(self, fs: FileSystem, directory: str, *, write: bool = False) -> None:
        self._file = fs.open(join(directory, DURABLE_POINT), write=write)
        self.boot_mark = _boot_mark(fs, self._file)
        self.slot: DurablePoint | None = None
        self._next_slot = 0  # index of the next slot
        self._seen = b""

    def refresh(self) -> DurablePoint | None:
        """Returns the newest slot. Cost: one read, 2 µs if nothing has changed."""
        data = self._read()
        if data != self._seen:
            self._take(data)
        return self.slot

    def _read(self) -> bytes:
        return self._file.read(2 * SLOT_SIZE, 0)

    def _take(self, data: bytes) -> None:
        """Updates the newest valid slot. If both are invalid, reads again; only if they stay invalid is the header lost."""
        slots = [SLOTS.parsed(data[start : start + SLOT_SIZE], self._file.path) for start in (0, SLOT_SIZE)]
        counters = [-1 if slot is None else slot.counter for slot in slots]
        self._seen, self._next_slot = data, 1 if counters[0] > counters[1] else 0
        newest = slots[1 - self._next_slot]
        if newest is not None and (self.slot is None or newest.counter >= self.slot.counter):
            self.slot = newest
        elif newest is None and self.slot is not None:
            again = self._read()
            if again == data:
                self.slot = None
            else:
                self._take(again)

    def is_refused(self) -> bool:
        """Returns whether the file has other bytes than the zeros of a new one, and no valid slot among them."""
        return self.slot is None and any(self._seen)

    def changed(self) -> bool:
        """Returns whether another process has written since the last refresh or write of this object. Cost: one read."""
        return self._file.read(2 * SLOT_SIZE, 0) != self._seen

    @property
    def file(self) -> File:
        """The open file."""
        return self._file

    def marks_deleted(self) -> bool:
        """Returns whether the file now marks the partition as deleted. Any thread may call it. Cost: one read."""
        data = self._read()
        slots = [SLOTS.parsed(data[start : start + SLOT_SIZE], self._file.path) for start in (0, SLOT_SIZE)]
        return any(slot is not None and slot.flags & DELETED for slot in slots)

    @property
    def same_boot(self) -> bool:
        """Whether the newest slot was written under this boot, in this very file."""
        return self.slot is not None and self.slot.boot_mark == self.boot_mark and any(self.boot_mark)

    def prepared(self, **changes: Any) -> Prepared:
        """Prepares the next slot for `put`, with no other write in between. Cost: about 4 µs."""
        assert self.slot is not None
        slot = replace(self.slot, counter=self.slot.counter + 1, **changes)
        data, start = slot.encoded(), self._next_slot * SLOT_SIZE
        return Prepared(slot, data, self._seen[:start].ljust(start, b"\0") + data + self._seen[start + SLOT_SIZE :])

    def put(self, prepared: Prepared) -> None:
        """Writes the next slot over the older one, without a sync. Cost: 2 µs."""
        self._file.write(memoryview(prepared.data), self._next_slot * SLOT_SIZE)
        self.slot, self._seen = prepared.slot, prepared.whole
        self._next_slot = 1 - self._next_slot

    def write(self, **changes: Any) -> None:
        """Prepares and writes the next slot."""
        self.put(self.prepared(**changes))

    def set_mtime(self, mtime_ms: int) -> None:
        """Sets the file's modification time, in milliseconds since 1970."""
        self._file.set_mtime(mtime_ms)

    def truncations(self) -> Truncations:
        """Returns the last truncations, with those that the last slot read counts. Cost: one read if there are any."""
        if self.slot is None or not self.slot.truncation_count:
            return Truncations()
        return CUTS.parsed(self._file.read(SLOT_SIZE, CUTS_AT), self._file.path) or Truncations()

    def note_truncation(self, end: int) -> None:
        """Writes a truncation to `end`, before a slot counts it and syncs the file."""
        assert self.slot is not None
        cuts = self.truncations().with_cut(self.slot.truncation_count + 1, end)
        self._file.write(memoryview(cuts.encoded()), CUTS_AT)

    def write_both(self, **changes: Any) -> None:
        """Writes both slots and syncs, for facts that a torn slot must not revert (reliability 3.1)."""
        self.write(**changes)
        self.write()
        self._file.sync()

    def begin(self, slot: DurablePoint) -> None:
        """Writes the current facts, with a counter above all readable ones, so that no process uses an older slot."""
        known = self.refresh()
        counter = slot.counter if known is None else max(known.counter, slot.counter)
        self.slot = replace(slot, counter=counter, boot_mark=self.boot_mark, pid=process_id())
        self.write_both()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def open_header(fs: FileSystem, directory: str) -> DurablePointFile | None:
    """Opens a partition's header for reading; None if it has none, or the name is not a regular file."""
    try:
        return DurablePointFile(fs, directory)
    except StorageFailedError as error:
        if error.errno == errno.ENOENT or is_no_file(error):
            return None
        raise


def newest_slot(fs: FileSystem, directory: str) -> DurablePoint | None:
    """Returns the valid slot of a partition's header with the highest counter, even if stale; None if there is none."""
    path = join(directory, DURABLE_POINT)
    data = SLOTS.fetch_start(fs, path, 2 * SLOT_SIZE).data or b""
    slots = [SLOTS.parsed(data[start : start + SLOT_SIZE], path) for start in (0, SLOT_SIZE)]
    return max((slot for slot in slots if slot is not None), key=lambda slot: slot.counter, default=None)


def epoch_after(old: DurablePoint, config: TopicConfig, *, same: bool) -> int:
    """Returns the epoch for a new writer: a new one, unless nothing has changed.

    Args:
        old: the newest slot.
        config: the topic's options.
        same: true if the slot matches the log.
    """
    mark = mark_of(config)
    same = same and old.epoch % 2 == 0 and mark_in(old.epoch) == mark
    return old.epoch if same else marked((old.epoch | 1) + 1, mark)


def make_header(fs: FileSystem, directory: str, slot: DurablePoint, seed: int) -> DurablePointFile:
    """Opens a partition's header for writing, with an exact slot. Creates the file if it is missing.

    Args:
        fs, directory: the partition, under its lock.
        slot: the current facts.
        seed: for the counter and epoch of a new file, which no process must have cached.
    """
    path = join(directory, DURABLE_POINT)
    new = not fs.exists(path)
    if new:
        fs.create(path).close()
    try:
        header = DurablePointFile(fs, directory, write=True)
    except StorageFailedError as error:
        if not is_no_file(error):
            raise
        trace.later(trace.REBUILT, path=path, reason=f"it is not a file, and was renamed to {set_aside(fs, path)}")
        return make_header(fs, directory, slot, seed)
    if header.refresh() is None:
        if header.is_refused():
            trace.later(trace.REBUILT, path=path, reason="it has no valid slot")
        new = True  # created by a process that died before its name was durable, or by a full disk
        mixed = hashlib.blake2b(header.boot_mark + b"%d" % seed, digest_size=5).digest()
        start = int.from_bytes(mixed, "little")
        slot = replace(slot, counter=start, epoch=marked(2 * start, mark_in(slot.epoch)))
    header.begin(slot)
    if new:
        fs.sync_directory(directory)
    return header


def mark_failed(fs: FileSystem, directory: str) -> None:
    """Marks in the header that a sync failed before there was a writer. Under the partition's lock."""
    with _marking(fs, directory) as header:
        if header is not None and header.same_boot:
            header.write(flags=FAILED)


def mark_options(fs: FileSystem, directory: str, mark: int) -> None:
    """Makes every writer of a partition load it again with the topic's current options. Under the partition's lock.

    A partition without a header has no writer. The file keeps its modification time, which shows whether a broker has written
    since.
    """
    with _marking(fs, directory) as header:
        if header is not None and header.slot is not None and header.slot.epoch % 2 == 0 and not header.slot.flags:
            before = modified(fs, directory, DURABLE_POINT)
            header.write(epoch=marked(header.slot.epoch + 2, mark))
            header.set_mtime(before)


def mark_deleted(fs: FileSystem, directory: str) -> None:
    """Marks a partition as deleted in its header, if it has one, which prevents writes. Under the partition's lock."""
    with _marking(fs, directory) as header:
        if header is not None:
            header.write_both(flags=DELETED)


@contextmanager
def _marking(fs: FileSystem, directory: str) -> Iterator[DurablePointFile | None]:
    """Opens a partition's header for writing, if it has one with a valid slot."""
    try:
        header = DurablePointFile(fs, directory, write=True)
    except StorageFailedError as error:
        if error.errno != errno.ENOENT and not is_no_file(error):
            raise
        yield None
        return
    try:
        yield None if header.refresh() is None else header
    finally:
        header.close()


def _boot_mark(fs: FileSystem, file: File) -> bytes:
    """Returns 16 bytes that identify this file under this boot; zeros if the system has no boot id."""
    boot = fs.boot_id()
    return hashlib.blake2b(boot + b"%d %d" % file.identity(), digest_size=16).digest() if boot else bytes(16)
