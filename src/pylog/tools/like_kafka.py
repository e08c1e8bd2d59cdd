"""`dump --like-kafka`: prints files as Kafka's own tool does, byte for byte (groups-and-transactions 8.1, interop 8.1).

The reference is `DumpLogSegments` of Kafka 4.3. Its messages on stderr are collected in `complaints`. Where it fails with an
exception, this module yields the same output and then raises a PylogError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from pylog import limits
from pylog.errors import CorruptionError, InvalidArgumentError, PylogError
from pylog.fs import FileSystem, guarded
from pylog.log.producer_state import Producer
from pylog.log.recovery.producer_snapshots import ENTRIES
from pylog.record import kernels
from pylog.record.batch import Table
from pylog.record.compression import codec_name
from pylog.record.control import ControlRecord, control_type, end_transaction_epoch
from pylog.record.format import (
    ATTRIBUTES,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_GOOD,
    CRC_STATE,
    DELETE_HORIZON_BIT,
    LAST_OFFSET,
    MAGIC,
    POSITION,
    SIZE,
    TRANSACTIONAL_BIT,
)
from pylog.record.legacy import legacy_crc_ok
from pylog.tools.frames import RawBatches, open_log
from pylog.tools.messages import GROUPS, TRANSACTIONS, Layout, decode, json_text
from pylog.tools.names import NamedFile, named_file, read_file
from pylog.tools.records import Row, java_text, rows_by_batch, timestamp_type

DECODERS: Final[Mapping[str, Mapping[int, Layout]]] = {"offsets": GROUPS, "transactions": TRANSACTIONS}
_STAMPS: Final = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
_FLAGS: Final = ("false", "true")
_UNLIMITED: Final = limits.INT32_MAX
_SNAPSHOT_VERSION: Final = 1
_CHUNK_CHARACTERS: Final = 1 << 18


class DumpOptions(NamedTuple):
    """The supported options of Kafka's tool.

    Attributes:
        print_data_log: print keys and values; implies `deep_iteration`.
        deep_iteration: print records, not only batches.
        skip_record_metadata: print only keys and values of records.
        decoder: decoder for keys and values: "offsets", "transactions", or None for text. A decoder implies `print_data_log`.
        max_bytes: number of bytes to read from each `.log` file.
        index_sanity_check: only check whether an index passes Kafka's quick check.
        verify_index_only: compare indexes with their log, and print no entries.
    """

    print_data_log: bool = False
    deep_iteration: bool = False
    skip_record_metadata: bool = False
    decoder: str | None = None
    max_bytes: int = _UNLIMITED
    index_sanity_check: bool = False
    verify_index_only: bool = False

    @property
    def deep(self) -> bool:
        return self.deep_iteration or self.printing

    @property
    def printing(self) -> bool:
        return self.print_data_log or self.decoder is not None


class KafkaDump:
    """Prints files as Kafka's tool does.

    Args:
        fs: the file system.
        options: the options.

    Raises:
        InvalidArgumentError: the decoder does not exist, or `max_bytes` is negative.

    >>> from pylog.fs import OsFileSystem
    >>> dump = KafkaDump(OsFileSystem(), DumpOptions())
    >>> "".join(dump.text("/data/notes.txt")), dump.complaints
    ('Dumping /data/notes.txt\\n', ['Ignoring unknown file /data/notes.txt'])
    """

    def __init__(self, fs: FileSystem, options: DumpOptions) -> None:
        if options.decoder is not None and options.decoder not in DECODERS:
            raise InvalidArgumentError(f"decoder={options.decoder!r} is not one of {', '.join(DECODERS)}")
        if options.max_bytes < 0:
            raise InvalidArgumentError(f"max_bytes={options.max_bytes} is negative")
        self._fs = fs
        self._options = options
        self._layouts = None if options.decoder is None else DECODERS[options.decoder]
        self.complaints: list[str] = []

    def text(self, path: str) -> Iterator[str]:
        """Yields the output for one file, in chunks of whole lines. Memory: one chunk, some megabytes.

        Args:
            path: path of the file; printed as it is given.

        Raises:
            CorruptionError, UnsupportedFormatError, StorageFailedError: the rest of the file cannot be printed.
        """
        yield f"Dumping {path}\n"
        kinds: dict[str, Callable[[NamedFile], Iterator[str]]] = {
            ".log": self._log,
            ".checkpoint": self._log,
            ".index": self._index,
            ".timeindex": self._time_index,
            ".txnindex": self._transactions,
            ".snapshot": self._snapshot,
        }
        file = named_file(path)
        if file.suffix not in kinds:
            self.complaints.append(f"Ignoring unknown file {path}")
            return
        yield from guarded(kinds[file.suffix](file), path)

    # ---- logs ----------------------------------------------------------------------------------------------------------------

    def _log(self, file: NamedFile) -> Iterator[str]:
        yield _title(file)
        options, follower = self._options, _Consecutive()
        frames = open_log(self._fs, file.path, options.max_bytes)
        try:
            for raw in frames:
                lines = _batch_lines(raw)
                yield from _chunks(self._deep(raw, lines, follower) if options.deep else lines)
        finally:
            self._complain(f"Non-consecutive offsets in {file.absolute}", follower.complaints)
        if frames.left > 0 and options.max_bytes == _UNLIMITED:
            yield f"Found {frames.left} invalid bytes at the end of {file.name}\n"

    def _complain(self, title: str, lines: list[str]) -> None:
        self.complaints += [title, *lines] if lines else []

    def _deep(self, raw: RawBatches, lines: list[str], follower: _Consecutive) -> Iterator[str]:
        """Yields the line of each batch and the lines of its records."""
        columns = raw.table[[MAGIC, ATTRIBUTES]].T.tolist()
        for line, (magic, attributes), rows in zip(lines, columns, rows_by_batch(raw.buffer, raw.table), strict=True):
            yield line
            label, control = _STAMPS[timestamp_type(magic, attributes)], bool(attributes & CONTROL_BIT)
            for row in rows:
                follower.take(row.offset)
                yield self._record(row, label, magic, control)

    def _record(self, row: Row, label: str, magic: int, control: bool) -> str:
        parts = []
        if not self._options.skip_record_metadata:
            key, value = (-1 if data is None else len(data) for data in (row.key, row.value))
            message = f"offset: {row.offset} {label}: {row.timestamp} keySize: {key} valueSize: {value}"
            if magic >= 2:
                message += f" sequence: {row.sequence} headerKeys: [{','.join(name for name, _ in row.headers)}]"
            elif row.checksum is not None:
                message += f" isValid: {_FLAGS[row.checksum[1]]} crc: {row.checksum[0]}"
            parts.append(message + _control(row) if control else message)
        if self._options.printing and not control:
            parts += self._contents(row)
        return f"| {' '.join(parts)}\n" if parts else "\n"

    def _contents(self, row: Row) -> list[str]:
        if self._layouts is None:
            named = (("key", row.key), ("payload", row.value))
            return [f"{name}: {java_text(data)}" for name, data in named if data is not None]
        found = decode(self._layouts, row.offset, row.key, row.value)
        if found.value is None:
            return [f"key: {json_text(found.key)}", *([] if isinstance(found.key, str) else ["payload: <DELETE>"])]
        return [f"key: {json_text(found.key)}", f"payload: {json_text(found.value)}"]

    # ---- indexes -------------------------------------------------------------------------------------------------------------

    def _index(self, file: NamedFile) -> Iterator[str]:
        index = _Entries(read_file(self._fs, file.path), file.base_offset, 8)
        log = _Headers(self._fs, file)
        if not len(index):
            yield f"{file.path} is empty.\n"
            return
        if self._options.index_sanity_check:
            yield _sane(file, index.misfit(index.relative(len(index) - 1)))
            return
        wrong: list[str] = []
        try:
            yield from _chunks(self._index_lines(index, log, wrong))
        finally:
            self._complain(f"Mismatches in :{file.absolute}", wrong[::-1])

    def _index_lines(self, index: _Entries, log: _Headers, wrong: list[str]) -> Iterator[str]:
        for number in range(len(index)):
            relative, position = index.relative(number), index.last(number)
            if number and not relative:
                return
            offset = index.base_offset + relative
            found = log.at(position)
            if found is None:
                raise CorruptionError(
                    f"{log.path} has no batch at position {position}, to which its index points", position=position
                )
            if found.last_offset != offset:
                wrong.append(f"  Index offset: {offset}, log offset: {found.last_offset}")
            if not self._options.verify_index_only:
                yield f"offset: {offset} position: {position}\n"

    def _time_index(self, file: NamedFile) -> Iterator[str]:
        index = _Entries(read_file(self._fs, file.path), file.base_offset, 12)
        if self._options.index_sanity_check:
            last = len(index) - 1
            falls = last >= 0 and index.timestamp(last) < index.timestamp(0)
            yield _sane(file, falls or index.misfit(index.last(last) if last >= 0 else 0))
            return
        offsets = _Entries(read_file(self._fs, file.sibling(".index")), file.base_offset, 8)
        watch = _TimeIndexCheck(index, offsets, _Headers(self._fs, file))
        try:
            yield from _chunks(watch.lines(silent=self._options.verify_index_only))
        finally:
            self._complain(f"Found timestamp mismatch in :{file.absolute}", watch.mismatches)
            self._complain(f"Found out of order timestamp in :{file.absolute}", watch.falling)
            self._complain(f"The following indexed offsets are not found in :{file.absolute}", watch.lost)

    # ---- the rest ------------------------------------------------------------------------------------------------------------

    def _transactions(self, file: NamedFile) -> Iterator[str]:
        names = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
        data = np.frombuffer(read_file(self._fs, file.path), np.uint8)
        layout = np.dtype([(names[0], ">i2"), *((name, ">i8") for name in names[1:])])
        for entry in data[: len(data) // layout.itemsize * layout.itemsize].view(layout).tolist():
            yield " ".join(f"{name}: {value}" for name, value in zip(names, entry, strict=True)) + "\n"

    def _snapshot(self, file: NamedFile) -> Iterator[str]:
        data = read_file(self._fs, file.path)
        complaint = _snapshot_complaint(data)
        if complaint is not None:
            self.complaints.append(complaint)
            return
        for producer in ENTRIES.parsed(data, file.path):
            yield _producer_line(producer)


# ---- lines -------------------------------------------------------------------------------------------------------------------


def _chunks(lines: Iterable[str]) -> Iterator[str]:
    """Joins lines into chunks. Yields the lines before an error, too."""
    held: list[str] = []
    size = 0
    try:
        for line in lines:
            held.append(line)
            size += len(line)
            if size > _CHUNK_CHARACTERS:
                yield "".join(held)
                held, size = [], 0
    except PylogError:
        yield "".join(held)
        raise
    yield "".join(held)


def _title(file: NamedFile) -> str:
    if file.suffix == ".log":
        return f"Log starting offset: {file.base_offset}\n"
    if file.name == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot\n"
    offset, _, epoch = file.name.removesuffix(".checkpoint").partition("-")
    if not (offset.isdecimal() and epoch.isdecimal()):
        raise InvalidArgumentError(f"{file.path} is not a KRaft snapshot: its name has no offset and epoch")
    return f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}\n"


def _batch_lines(raw: RawBatches) -> list[str]:
    """Returns a line for each batch."""
    lines = []
    valid = [_FLAGS[flag] for flag in _valid(raw).tolist()]
    for (position, size, base, last, count, *fields), is_valid in zip(raw.table.T.tolist(), valid, strict=True):
        first_stamp, stamp, attributes, magic, epoch, producer, producer_epoch, sequence, crc, _ = fields
        if magic >= 2:
            last_sequence = sequence if sequence < 0 else (sequence + last - base) & limits.INT32_MAX
            horizon = f"[{first_stamp}]" if attributes & DELETE_HORIZON_BIT else ".empty"
            message = (
                f"baseOffset: {base} lastOffset: {last} count: {count} baseSequence: {sequence} lastSequence: {last_sequence} "
                f"producerId: {producer} producerEpoch: {producer_epoch} partitionLeaderEpoch: {epoch} "
                f"isTransactional: {_FLAGS[bool(attributes & TRANSACTIONAL_BIT)]} "
                f"isControl: {_FLAGS[bool(attributes & CONTROL_BIT)]} deleteHorizonMs: OptionalLong{horizon}"
            )
        else:
            message = f"offset: {last}"
        lines.append(
            f"{message} position: {position + raw.shift} {_STAMPS[timestamp_type(magic, attributes)]}: {stamp} size: {size} "
            f"magic: {magic} compresscodec: {codec_name(attributes & CODEC_MASK)} crc: {crc} isvalid: {is_valid}\n"
        )
    return lines


def _valid(raw: RawBatches) -> Table:
    """Returns which batches have a correct checksum."""
    table = raw.table
    found: Table = (table[CRC_STATE] == CRC_GOOD).astype(np.int64)
    for batch in np.flatnonzero(table[MAGIC] < 2).tolist():
        position, size = int(table[POSITION, batch]), int(table[SIZE, batch])
        found[batch] = legacy_crc_ok(raw.buffer[position : position + size])
    return found


def _control(row: Row) -> str:
    kind = control_type(row.key)
    name = ControlRecord(kind).name
    if ControlRecord(kind).ends_transaction:
        return f" endTxnMarker: {name} coordinatorEpoch: {end_transaction_epoch(row.value)}"
    return f" controlType: {name}({kind})"


def _producer_line(producer: Producer) -> str:
    first = producer.transaction_first_offset
    message = (
        f"producerId: {producer.producer_id} producerEpoch: {producer.epoch} coordinatorEpoch: {producer.coordinator_epoch} "
        f"currentTxnFirstOffset: OptionalLong{'.empty' if first < 0 else f'[{first}]'} lastTimestamp: {producer.timestamp}"
    )
    if producer.last_offset >= 0:
        sequence = producer.last_sequence
        first_sequence = sequence if sequence < 0 else (sequence - producer.offset_delta) & limits.INT32_MAX
        message += (
            f" firstSequence: {first_sequence} lastSequence: {sequence} lastOffset: {producer.last_offset} "
            f"offsetDelta: {producer.offset_delta} timestamp: {producer.timestamp}"
        )
    return message + "\n"


def _snapshot_complaint(data: bytes) -> str | None:
    """Returns the message of Kafka's tool for an invalid snapshot; None for a valid one."""
    if len(data) < 10:
        return "Snapshot failed schema validation: null"
    version = int.from_bytes(data[:2], "big", signed=True)
    if version != _SNAPSHOT_VERSION:
        return f"Snapshot contained an unknown file version {version}"
    count, room = int.from_bytes(data[6:10], "big", signed=True), len(data) - 10
    if count > room:
        message = f"Tried to allocate a collection of size {count}, but there are only {room} bytes remaining."
        return f"Snapshot failed schema validation: {message}"
    stored = int.from_bytes(data[2:6], "big")
    computed = int(kernels.checksum(np.frombuffer(data, np.uint8), 6, len(data)))
    if stored != computed:
        return f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}"
    return None


class _Consecutive:
    """Collects offsets that are not the previous one plus one."""

    def __init__(self) -> None:
        self._last = -1
        self.complaints: list[str] = []

    def take(self, offset: int) -> None:
        if offset != self._last + 1:
            self.complaints.append(f"  {self._last} is followed by {offset}")
        self._last = offset


# ---- indexes: entries and the batches that they point to -----------------------------------------------------------------------


def _sane(file: NamedFile, misfit: bool) -> str:
    if misfit:
        message = "does not pass Kafka's sanity check: its last entry or its size is invalid"
        raise CorruptionError(f"{file.path} {message}", path=file.path)
    return f"{file.path} passed sanity check.\n"


class _Entries:
    """The entries of an index file, valid or not, as Kafka maps them."""

    def __init__(self, data: bytes, base_offset: int, size: int) -> None:
        self._data = data
        self._size = size
        self.base_offset = base_offset

    def __len__(self) -> int:
        return len(self._data) // self._size

    def relative(self, number: int) -> int:
        """Returns the first four bytes of an entry of an offset index."""
        return self._int(number, 0, 4)

    def timestamp(self, number: int) -> int:
        """Returns the first eight bytes of an entry of a time index."""
        return self._int(number, 0, 8)

    def last(self, number: int) -> int:
        """Returns the last four bytes of an entry: a position, or a relative offset."""
        return self._int(number, self._size - 4, 4)

    def _int(self, number: int, at: int, size: int) -> int:
        start = number * self._size + at
        return int.from_bytes(self._data[start : start + size], "big", signed=True)

    def misfit(self, last_relative: int) -> bool:
        """Returns True if Kafka rejects the file: an incomplete entry, or a last offset below the base offset."""
        return len(self._data) % self._size != 0 or last_relative < 0

    def position_for(self, relative: int) -> int:
        """Returns the position of the last entry at or below an offset. Searches as Kafka does: the warm end first."""
        if not len(self):
            return 0
        hot = max(0, len(self) - 1 - 8192 // self._size)
        if self.relative(hot) < relative:
            return self.last(self._search(hot, len(self) - 1, relative))
        if self.relative(0) > relative:
            return 0
        return self.last(self._search(0, hot, relative))

    def _search(self, low: int, high: int, relative: int) -> int:
        while low < high:
            middle = (low + high + 1) >> 1
            found = self.relative(middle)
            if found > relative:
                high = middle - 1
            elif found < relative:
                low = middle
            else:
                return middle
        return low


class _Headers:
    """Reads the batches that an index points to."""

    def __init__(self, fs: FileSystem, file: NamedFile) -> None:
        self.path = file.sibling(".log")
        self._frames = open_log(fs, self.path)

    def at(self, position: int) -> _IndexedBatch | None:
        """Returns the batch at a position; None if the file ends before the batch does."""
        if position > self._frames.size:
            raise CorruptionError(f"{self.path} ends before position {position}, to which its index points", position=position)
        raw = self._frames.one(position)
        return None if raw is None else _IndexedBatch(raw)


class _IndexedBatch:
    """A batch that an index points to."""

    def __init__(self, raw: RawBatches) -> None:
        self._raw = raw
        self.last_offset = int(raw.table[LAST_OFFSET, 0])
        self.end = raw.shift + int(raw.table[POSITION, 0] + raw.table[SIZE, 0])

    def largest_timestamp(self) -> int:
        return max((row.timestamp for rows in rows_by_batch(self._raw.buffer, self._raw.table) for row in rows), default=-1)


class _TimeIndexCheck:
    """Compares a time index with the batches that it points to."""

    def __init__(self, index: _Entries, offsets: _Entries, log: _Headers) -> None:
        self._index, self._offsets, self._log = index, offsets, log
        self.mismatches: list[str] = []
        self.falling: list[str] = []
        self.lost: list[str] = []

    def lines(self, *, silent: bool) -> Iterator[str]:
        before = -1
        for number in range(len(self._index)):
            stamp, relative = self._index.timestamp(number), self._index.last(number)
            if number and not relative:
                return
            offset = self._index.base_offset + relative
            self._compare(stamp, offset, self._batch_of(relative, offset), before)
            if not silent:
                yield f"timestamp: {stamp} offset: {offset}\n"
            before = stamp

    def _batch_of(self, relative: int, offset: int) -> _IndexedBatch | None:
        """Returns the first batch whose last offset is at or after an offset."""
        found = self._log.at(self._offsets.position_for(relative))
        while found is not None and found.last_offset < offset:
            found = self._log.at(found.end)
        return found

    def _compare(self, stamp: int, offset: int, found: _IndexedBatch | None, before: int) -> None:
        if found is None or found.last_offset != offset:
            log_offset = -1 if found is None else found.last_offset
            self.lost.append(f"Indexed offset: {offset}, found log offset: {log_offset}")
            return
        largest = found.largest_timestamp()
        if largest != stamp:
            self.mismatches.append(f"  Index timestamp: {stamp}, log timestamp: {largest}")
        if before >= stamp:
            self.falling.append(f"  Index timestamp: {stamp}, Previously indexed timestamp: {before}")
