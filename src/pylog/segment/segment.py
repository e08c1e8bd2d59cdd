"""One segment of a log: a `.log` file with its indexes (storage-format 3.3, 4, 5).

A sealed segment never changes: its indexes are read from their files, or rebuilt from the batch headers if a file is missing or
damaged. The active segment's indexes are built in memory as it grows, and written when it is sealed or closed. Positions from
an index are hints: they are checked, and if one does not fit, the segment is walked from its start.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

import numpy as np

from pylog import limits, trace
from pylog.errors import StorageFailedError
from pylog.fs import Bytes, FileSystem, OpenFiles, Vouched, join, write_atomically
from pylog.index import kinds
from pylog.index.builder import SegmentIndexBuilder
from pylog.index.offset_index import OffsetIndex, OffsetPosition
from pylog.index.time_index import TimeIndex, TimestampOffset
from pylog.index.transaction_index import ENTRY_SIZE as TRANSACTION_ENTRY_SIZE
from pylog.index.transaction_index import AbortedTransaction, TransactionIndex
from pylog.record import kernels
from pylog.record.batch import scan_batches
from pylog.record.format import (
    BASE_OFFSET,
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP,
    SIZE,
)
from pylog.record.header import header_column
from pylog.segment.log_file import LogFile, Region
from pylog.segment.names import INDEX, LOG, SWAP, TIME_INDEX, TRANSACTION_INDEX, file_name
from pylog.segment.times import AppendTimesAtFirstUse, Examined
from pylog.text import counted

_HEADERS: Final = 8192  # bytes in which the headers after an index entry are read: two of Kafka's intervals
_MISFIT: Final = "its entries do not fit the batches"


class LogSegment:
    """One segment, sealed or active.

    Args:
        fs: the file system.
        directory: the partition's directory.
        base_offset: no record of the segment has a smaller offset.
        size: bytes of whole batches in a sealed segment.
        mtime_ms: when its file last changed, in milliseconds.
        open_files: counts it while it has its file open, and may ask it to release that.
        sealed: whether the segment is closed for appends.
        mapped: whether its file may be mapped once the segment is sealed.
        if_free: enters the partition's lock if it is free, under which rebuilt indexes are written; None if they are not.
        interval_bytes: the index interval for rebuilt indexes.
        log_name: the `.log` file's name if it is not the usual one (when a swap must be completed).
        pending: the suffixes of its other files that still have a swap's name although the `.log` file has its final name.

    Opening a partition makes one object for each of its segments, so attributes that most never set are those of the class.
    """

    appends = AppendTimesAtFirstUse()
    examined: Examined | None = None  # the result of `age`'s reading of its timestamps
    published: tuple[int, int] | None = None  # of the active one: an end in its log's header, and the digest up to there
    compared: Any = None  # of the active one: the result of comparing its headers with that
    sealed_by: tuple[Any, bool] | None = None  # its seal or None, and whether its end is lost; set by a walk
    builder: SegmentIndexBuilder | None = None  # only of the active segment, whose indexes it builds
    index_is_of_headers = False  # rebuilt from the batch headers, so it is no evidence about them
    index_ends_early = False  # the same, and damage ended it before the segment's end
    vouched: Vouched | None = None
    _file: LogFile | None = None
    _identity: tuple[int, int] | None = None  # of the file, if its name led to it before and after it was opened
    _kept = _is_index_mapped = False
    _offset_index: OffsetIndex | None = None
    _time_index: TimeIndex | None = None
    _transactions: TransactionIndex | None = None
    _transactions_whole = False  # what its file had could be read, and was not empty

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        *,
        size: int,
        mtime_ms: int,
        open_files: OpenFiles,
        sealed: bool = True,
        mapped: bool = False,
        if_free: Callable[[], AbstractContextManager[bool]] | None = None,
        interval_bytes: int = limits.DEFAULT_INDEX_INTERVAL_BYTES,
        log_name: str | None = None,
        pending: Collection[str] = (),
    ) -> None:
        self.fs = fs
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.mtime_ms = mtime_ms
        self.sealed = sealed
        self.log_name = log_name or file_name(base_offset, LOG)
        self.pending = pending
        self._suffix = "" if self.log_name.endswith(LOG) else self.log_name.partition(LOG)[2]
        self._mapped = mapped
        self._if_free = if_free
        self._interval_bytes = interval_bytes
        self._open_files = open_files

    def __repr__(self) -> str:
        return f"LogSegment({self.path}, {counted(self.size, 'byte')}, {'sealed' if self.sealed else 'active'})"

    @property
    def path(self) -> str:
        """The path of the `.log` file."""
        return join(self.directory, self.log_name)

    def path_of(self, suffix: str) -> str:
        """Returns the path of another of its files."""
        state = self._suffix or (SWAP if suffix in self.pending else "")  # the final name may still belong to another segment
        return join(self.directory, file_name(self.base_offset, suffix) + state)

    # ---- bytes ---------------------------------------------------------------------------------------------------------------

    def file(self) -> LogFile:
        """Returns the open `.log` file. Keep the reference while reading, because the segment may release its own."""
        file = self._file
        if file is None:
            is_asked = self.sealed and self._if_free is not None  # only then are rebuilt indexes written
            identity = self.fs.identity(self.path) if is_asked else None
            file = self._file = LogFile(self.fs, self.path, mapped=self._mapped and self.sealed)
            self._identity = identity if is_asked and identity == self.fs.identity(self.path) else None
            self._open_files.opened(self)
        return file

    def release(self) -> bool:
        """Releases the open file and mapped indexes; the next use opens them again. A reader keeps those that it is using."""
        if not self._kept:
            self._file = None
            if self._is_index_mapped:
                self._offset_index = self._time_index = None
        return True

    def keep(self) -> None:
        """Opens all its files, for readers that still use it: their names will be deleted or reused."""
        self._kept = True
        self.file()
        self.offset_index()
        self.transactions()

    def inode(self) -> int:  # differs for each file that ever has this name
        """Returns the inode of its `.log` file."""
        return inode_of(self.fs, self.path)

    def regions(self, position: int, end: int | None = None, *, verify: bool = False) -> Iterator[Region]:
        """Yields its batches from a batch's position on; see `LogFile.regions`."""
        return self.file().regions(position, self.size if end is None else end, verify=verify)

    # ---- indexes -------------------------------------------------------------------------------------------------------------

    def offset_index(self) -> OffsetIndex:
        """Returns its offset index. Cost: O(1) after the first use."""
        builder = self.builder  # read once: sealing sets it to None
        if builder is not None:
            return builder.offset_index()
        index = self._offset_index
        return index if index is not None else self._load_indexes()[0]

    def time_index(self) -> TimeIndex:
        """Returns its time index. Cost: O(1) after the first use."""
        builder = self.builder
        if builder is not None:
            return builder.time_index()
        index = self._time_index
        return index if index is not None else self._load_indexes()[1]

    def transactions(self) -> TransactionIndex:
        """Returns its aborted transactions; empty if there is no `.txnindex`."""
        index = self._transactions
        if index is None:
            path = self.path_of(TRANSACTION_INDEX)
            data, fault, *_ = kinds.TRANSACTIONS.fetch_derived(self.fs, path, self.size)
            if fault is not None:
                trace.later(trace.REBUILT, path=self.directory, reason=fault)
            index, damaged = kinds.TRANSACTIONS.parsed(data or b"", path, self.base_offset)
            self._transactions_whole = bool(data) and not damaged and len(data or b"") % TRANSACTION_ENTRY_SIZE == 0
            self._transactions = index
        return index

    def sound_transactions(self) -> TransactionIndex | None:
        """Returns its aborted transactions; None if the `.txnindex` was missing, empty or damaged when it was read."""
        index = self.transactions()
        return index if self._transactions_whole else None

    def add_aborted(self, found: list[AbortedTransaction], *, complete: bool) -> None:
        """Adds aborted transactions that a replay found and its `.txnindex` lacks, also to the file if that may be written.

        Args:
            found: the transactions.
            complete: no damage has hidden another one. Otherwise the file stays: it would pass for a complete one.
        """
        index = self.transactions()
        known = index.entries[-1].last_offset if index.entries else -1
        missing = [entry for entry in found if entry.last_offset > known]
        index = self._transactions = index.extended(missing)
        self._transactions_whole &= complete or not missing
        if missing and complete and self._if_free is not None:
            write_atomically(self.fs, self.directory, file_name(self.base_offset, TRANSACTION_INDEX), index.encoded())

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Loads the indexes from their files; rebuilds both if one is missing or damaged."""
        (offset_bytes, wrong), (time_bytes, wrong_times) = self._index_bytes(INDEX), self._index_bytes(TIME_INDEX)
        if offset_bytes is not None and time_bytes is not None:
            offset_index, bad_offsets = kinds.OFFSETS.parsed(offset_bytes, self.path_of(INDEX), self.base_offset, self.size)
            time_index, bad_times = kinds.TIMES.parsed(time_bytes, self.path_of(TIME_INDEX), self.base_offset)
            if not bad_offsets and not bad_times and (self.vouched or self._plausible(offset_index, time_index)):
                self._offset_index, self._time_index = offset_index, time_index
                self._is_index_mapped = self._mapped and self.sealed
                return offset_index, time_index
            wrong, wrong_times = None if bad_times else _MISFIT, _MISFIT
        if self.sealed:  # the indexes of an active segment may be in its writer's memory only
            trace.later(trace.REBUILT, path=self.path_of(INDEX if wrong else TIME_INDEX), reason=wrong or wrong_times)
        return (builder := self.rebuild_indexes()).offset_index(), builder.time_index()

    def _index_bytes(self, suffix: str) -> tuple[Bytes | None, str | None]:
        path, kind = self.path_of(suffix), kinds.OFFSETS if suffix == INDEX else kinds.TIMES
        if self._mapped and self.sealed:
            found, fault = kind.map_derived(self.fs, path, self.size)
        else:
            data, fault, *_ = kind.fetch_derived(self.fs, path, self.size)
            found = None if data is None else np.frombuffer(data, np.uint8)
        return found, "it is missing" if found is None and fault is None else fault

    def _plausible(self, offset_index: OffsetIndex, time_index: TimeIndex) -> bool:
        """Returns whether the last entries match the file; earlier entries are checked when they are used."""
        if len(offset_index) and not self._fits(offset_index.last):
            return False
        if not len(time_index):
            return self.size == 0
        if not self._names(time_index.last, offset_index):
            return False
        return not self.sealed or not _outgrown(self, time_index, offset_index.last.position)

    def _names(self, entry: TimestampOffset, offset_index: OffsetIndex) -> bool:
        """Returns whether a time entry's batch has the entry's timestamp as its largest. Legacy batches cannot be checked."""
        start = position = offset_index.lookup(entry.offset).position
        chunk = memoryview(b"")
        while self.size - position >= HEADER_SIZE:
            if len(chunk) < position - start + HEADER_SIZE:
                start, chunk = position, self.file().read(position, min(_HEADERS, self.size - position)).data
            if len(chunk) < HEADER_SIZE:
                return False  # the name now belongs to another, shorter file
            base, length, _, magic, _, _, delta, _, largest, *_ = HEADER.unpack_from(chunk, position - start)
            if magic != 2 or length < HEADER_SIZE - LOG_OVERHEAD or delta < 0:
                return magic in (0, 1)
            if base + delta >= entry.offset:
                return bool(base <= entry.offset and largest == entry.timestamp)
            position += LOG_OVERHEAD + length
        return False

    def indexed_to(self, size: int) -> SegmentIndexBuilder:
        """Returns indexes of its batches below a position, built in memory. Cost: one pass over their headers."""
        builder = SegmentIndexBuilder(self.base_offset, self._interval_bytes)
        for region in self.regions(0, size):
            builder.add(region.table, region.table.shape[1], position=region.shift)
        return builder

    def rebuild_indexes(self) -> SegmentIndexBuilder:
        """Rebuilds both indexes from the batch headers, and writes them if they may be written.

        Damage ends the indexes early; records after it are found by searching. Cost: one pass over the headers.
        """
        builder, file = SegmentIndexBuilder(self.base_offset, self._interval_bytes), self.file()
        for region in file.regions(0, self.size):
            count = ordered_batches(region, self.base_offset)
            builder.add(region.table, count, position=region.shift)
            self.index_ends_early = count < region.table.shape[1] or region.status not in (kernels.OK, kernels.FULL)
            if count < region.table.shape[1]:
                break
        builder.finish()
        self.index_is_of_headers, self._is_index_mapped = True, False
        self._offset_index, self._time_index = builder.offset_index(), builder.time_index()
        if self._if_free is not None and self.sealed:
            with contextlib.suppress(StorageFailedError), self._if_free() as free:  # a full disk does not stop reads
                if free and file is self._file and self._identity == self.fs.identity(self.path):
                    self.write_indexes(builder)  # else another file has replaced it, or may do so now
        return builder

    def write_indexes(self, builder: SegmentIndexBuilder) -> None:
        """Replaces both index files; each is synced before it gets its name."""
        for suffix, data in ((INDEX, builder.offset_bytes()), (TIME_INDEX, builder.time_bytes())):
            write_atomically(self.fs, self.directory, file_name(self.base_offset, suffix), data)

    # ---- finding -------------------------------------------------------------------------------------------------------------

    def locate(self, offset: int) -> int:
        """Returns a batch's position such that no record of `offset` or later begins before it. Cost: O(log n).

        The index's answer is checked; if it is wrong, the indexes are rebuilt.
        """
        entry = self.offset_index().lookup(offset)
        if entry.position == 0 or self.vouched or self._fits(entry):
            return entry.position
        if self.builder is None:
            self.rebuild_indexes()
            entry = self.offset_index().lookup(offset)
            if self._fits(entry):
                return entry.position
        return 0

    def times_lag(self) -> bool:
        """Returns whether the time index has lost its end: its last timestamp is below the last indexed batch's."""
        entry = self.offset_index().last
        head = self.file().read(entry.position, HEADER_SIZE)
        if entry.position == 0 or len(head) < HEADER_SIZE or head[MAGIC_AT] != 2:
            return False
        return int(HEADER.unpack(head.data)[8]) > self.time_index().last.timestamp

    def time_entry(self, timestamp: int) -> TimestampOffset:
        """Returns the last time entry at or before a timestamp: records with a larger one come after its offset. Cost: O(log n).

        If an entry does not match its batch, the indexes are rebuilt.
        """
        entry = self.time_index().lookup(timestamp)
        unchecked = self.builder is None and not self.vouched
        if unchecked and entry.timestamp >= 0 and not self._names(entry, self.offset_index()):
            self.rebuild_indexes()
            entry = self.time_index().lookup(timestamp)
        return entry

    def _fits(self, entry: OffsetPosition) -> bool:
        """Returns whether an entry can refer to the batch at its position. Cost: its header, if it is of magic 2."""
        head = self.file().read(entry.position, max(0, min(HEADER_SIZE, self.size - entry.position)))
        column = header_column(head, entry.position)
        if column is not None:
            whole = entry.position + column[SIZE] <= self.size
            return whole and self._in_reach(entry, column[BASE_OFFSET], column[BASE_OFFSET], column[LAST_OFFSET])
        head = self.file().read(entry.position, min(limits.READ_CHUNK_BYTES // 16, max(0, self.size - entry.position)))
        scan = scan_batches(head, 0, capacity=1)
        if scan.table.shape[1] == 0:
            return scan.status == kernels.TORN and self._long_batch_fits(head, entry)
        first, last = int(scan.table[BASE_OFFSET, 0]), int(scan.table[LAST_OFFSET, 0])
        return self._in_reach(entry, first if scan.table[MAGIC, 0] == 2 else last, first, last)

    def _in_reach(self, entry: OffsetPosition, lowest: int, first: int, last: int) -> bool:
        """Returns whether a batch with these offsets belongs to the segment, and an entry can refer to it."""
        return self.base_offset <= lowest and first <= entry.offset and last <= entry.offset + limits.MAX_RELATIVE_OFFSET

    def _long_batch_fits(self, head: Bytes, entry: OffsetPosition) -> bool:
        """Does the same check for a batch larger than the bytes read, by its offset field."""
        if len(head) < 17:
            return False
        size = 12 + int.from_bytes(head[8:12].tobytes(), "big", signed=True)
        base = int.from_bytes(head[:8].tobytes(), "big", signed=True)
        return len(head) < size <= self.size - entry.position and self.base_offset <= base <= entry.offset

    def largest_timestamp(self) -> int:
        """Returns its largest timestamp in milliseconds, -1 if it has none. Compaction may have removed that record."""
        known = self.builder or self.vouched
        return known.max_timestamp if known is not None else self.time_index().last.timestamp

    def note_others(self, now_ms: int) -> None:
        """Notes that appends of another process to it were discovered, at this time in milliseconds."""
        self.appends.note_others(now_ms, partial(modification_time, self.fs, self.directory, self.log_name))

    def first_timestamp(self) -> int:
        """Returns the largest timestamp of its first batch in milliseconds, -1 if there is none."""
        scan = scan_batches(self.file().read(0, min(limits.READ_CHUNK_BYTES, self.size)), capacity=1)
        return int(scan.table[MAX_TIMESTAMP, 0]) if scan.table.shape[1] else -1

    # ---- life ----------------------------------------------------------------------------------------------------------------

    def seal(self, size: int) -> None:
        """Closes it for appends: from now on it never changes. Its index files must have been written."""
        assert self.builder is not None
        self._offset_index, self._time_index = self.builder.offset_index(), self.builder.time_index()
        self.size = size
        self.sealed = True
        self.builder = None
        self._file = None

    def renamed(self, suffix: str) -> None:
        """Notes that its files have another suffix, so that readers can still open them."""
        self.log_name += suffix
        self._suffix += suffix

    def close(self) -> None:
        """Closes its files for good."""
        if self._file is not None:
            self._open_files.closed(self)
        self._file = self._offset_index = self._time_index = self._transactions = None  # what is mapped is unmapped


def ordered_batches(region: Region, base_offset: int) -> int:
    """Returns how many leading batches of a region an index can hold: offsets must rise and stay near the base."""
    last = region.table[LAST_OFFSET]
    bad = (last < base_offset) | (last - base_offset > limits.MAX_RELATIVE_OFFSET) | (np.diff(last, prepend=-1) <= 0)
    return int(np.argmax(bad)) if bad.any() else int(last.size)


def _outgrown(segment: LogSegment, time_index: TimeIndex, position: int) -> bool:
    """Returns whether batches after a position have a larger timestamp than the last entry: the index has lost its end."""
    last = time_index.last.timestamp
    return any(int(region.table[MAX_TIMESTAMP].max(initial=-1)) > last for region in segment.regions(position))


def modification_time(fs: FileSystem, directory: str, name: str) -> int:
    """Returns the modification time of a file in milliseconds; 0 if it does not exist."""
    return max((entry.mtime_ms for entry in fs.list(directory, sizes=name) if entry.name == name), default=0)


def inode_of(fs: FileSystem, path: str) -> int:
    """Returns the inode of a file. Cost: one `stat`.

    Raises:
        StorageFailedError: there is no file, with the errno ENOENT.
    """
    identity = fs.identity(path)
    if identity is None:
        raise StorageFailedError(f"cannot open {path}: it does not exist", path=path, errno=errno.ENOENT)
    return identity[1]


def vanished(error: StorageFailedError) -> bool:
    """Returns whether a failed open means that the file was deleted, by retention or compaction in another process."""
    return error.errno == errno.ENOENT
