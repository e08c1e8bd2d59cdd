"""What Kafka's checksums leave open: a digest over the batch headers of a segment, and the `.seal` file that keeps it.

A batch's CRC covers neither its offset, its length nor its leader epoch. The digest is a running CRC-32C over the first 21
bytes of each batch, its CRC among them, so together the two cover every byte (reliability 6.3). A seal holds the digest of a
whole segment, and marks: the digest so far, once per index interval, so that damage is found where it is.

A seal carries the identity of its file. One that belongs to another file, because a broker cut or compacted the segment, is
foreign: it says nothing. Seals are pylog's own and derived; Kafka ignores them.
"""

from __future__ import annotations

import contextlib
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from google_crc32c import extend
from numpy.typing import NDArray

from pylog import limits
from pylog.errors import CorruptionError, UnsupportedFormatError
from pylog.fs import Bytes, FileSystem, read_derived, write_atomically
from pylog.record import kernels
from pylog.record.batch import Table
from pylog.record.checksum import crc32c
from pylog.record.format import ATTRIBUTES_AT, CRC, CRC_AT, LEGACY_CRC_AT, MAGIC, MAGIC_AT, POSITION, PREFIX_SIZE, SIZE
from pylog.record.legacy import legacy_crc_ok
from pylog.segment.log_file import Region
from pylog.segment.names import SEAL, file_name
from pylog.segment.segment import LogSegment

_MAGIC: Final = b"PYSL"
_VERSION: Final = 1
_KIND = struct.Struct("<4sH")
_HEAD = struct.Struct("<4sHHqqqQIIIII")  # … flags, base, end, size, inode, last CRC, batches, digest, bases replaced, marks
_BASE = struct.Struct("<q")
_MARK = struct.Struct("<II")  # position behind a batch, digest up to there; the file has all positions, then all digests
_CRC = struct.Struct("<I")

Numbers = NDArray[np.uint32]


class HeaderDigest:
    """The digest of a segment's batches, as they are appended or read.

    Args:
        interval_bytes: a mark is noted when more than so many bytes of batches lie since the last one.

    Attributes:
        value: CRC-32C of the prefixes so far.
        batches: how many.
        position: in the file, behind the last of them, in bytes.
        last_crc: the last one's own checksum; 0 without one.

    Spec: reliability 6.3. Not thread-safe.

    >>> HeaderDigest().value
    0
    """

    __slots__ = ("_interval_bytes", "_last_prefix", "_marked", "_marks", "batches", "position", "value")

    def __init__(self, interval_bytes: int = limits.DEFAULT_INDEX_INTERVAL_BYTES) -> None:
        self._interval_bytes = interval_bytes
        self.value = 0
        self.batches = 0
        self.position = 0
        self._marked = 0  # position of the last mark
        self._marks = bytearray()
        self._last_prefix = b""

    @property
    def last_crc(self) -> int:
        if not self._last_prefix:
            return 0
        at = CRC_AT if self._last_prefix[MAGIC_AT] == 2 else LEGACY_CRC_AT
        return int.from_bytes(self._last_prefix[at : at + 4], "big")

    @property
    def marks(self) -> tuple[Numbers, Numbers]:
        """The marks so far: positions behind batches, and the digests up to there. Copies, O(n)."""
        positions, digests = np.frombuffer(bytes(self._marks), "<u4").reshape(-1, 2).T
        return np.ascontiguousarray(positions), np.ascontiguousarray(digests)

    def add(self, data: memoryview | Bytes, table: Table, first: int, end: int, shift: int) -> None:
        """Takes batches that follow those already taken.

        Args:
            data: the bytes that the table's positions count from.
            table: of `scan_batches`.
            first, end: the columns to take.
            shift: position in the file of the first byte of `data`.

        Cost: 1 µs for one batch; for many some 20 ns each, and 0.4 µs a mark.
        """
        if end - first == 1:
            start = table.item(POSITION, first)
            self.add_one(data[start : start + PREFIX_SIZE], shift + start + table.item(SIZE, first))
        elif end > first:
            columns = table[:, first:end]
            self._add_many(prefixes(data, columns), (columns[POSITION] + columns[SIZE] + shift).tolist())

    def add_one(self, data: memoryview | Bytes, position: int) -> None:
        """Takes the batch whose bytes `data` begins with, and that ends at a position of the file."""
        prefix = bytes(data[:PREFIX_SIZE])
        self._took(extend(self.value, prefix), prefix, 1, position)
        if position - self._marked > self._interval_bytes:
            self._marks += _MARK.pack(position, self.value)
            self._marked = position

    def _add_many(self, joined: bytes, ends: list[int]) -> None:
        """Takes batches mark by mark."""
        value, marked, first = self.value, self._marked, 0
        while (last := bisect_right(ends, marked + self._interval_bytes, first)) < len(ends):
            value, marked = extend(value, joined[first * PREFIX_SIZE : (last + 1) * PREFIX_SIZE]), ends[last]
            self._marks += _MARK.pack(marked, value)
            first = last + 1
        self._marked = marked
        self._took(extend(value, joined[first * PREFIX_SIZE :]), joined[-PREFIX_SIZE:], len(ends), ends[-1])

    def _took(self, value: int, last_prefix: bytes, batches: int, position: int) -> None:
        assert position > self.position, "batches are added in order"
        self.value, self.position, self._last_prefix = value, position, last_prefix
        self.batches += batches

    def copy(self) -> HeaderDigest:
        """An independent copy. Cost: O(marks), 8 bytes each."""
        made = HeaderDigest(self._interval_bytes)
        for name in self.__slots__:
            setattr(made, name, getattr(self, name))
        made._marks = self._marks[:]
        return made


def prefixes(data: memoryview | Bytes, table: Table) -> bytes:
    """The first 21 bytes of each batch of a table, one after the other. Cost: 10 ns a batch."""
    count = max(0, len(data) - PREFIX_SIZE + 1)
    every: NDArray[Any] = np.ndarray((count,), f"V{PREFIX_SIZE}", data, strides=(1,))  # one begins at each byte
    return bytes(every[table[POSITION]].tobytes())


def digest_of(segment: LogSegment, end: int, interval_bytes: int = limits.DEFAULT_INDEX_INTERVAL_BYTES) -> HeaderDigest:
    """The digest of a segment's batches below a position, read from its file.

    Args:
        segment: sealed or active.
        end: in bytes, behind a batch.
        interval_bytes: of the marks.

    Raises:
        CorruptionError: there are no whole batches up to `end`.

    Cost: one pass over the headers.
    """
    digest = HeaderDigest(interval_bytes)
    for region in segment.regions(0, end):
        digest.add(region.buffer, region.table, 0, region.table.shape[1], region.shift)
    if digest.position != end:
        message = f"{segment.path}: no batch ends at position {end}; whole batches end at {digest.position}"
        raise CorruptionError(message, path=segment.path, position=digest.position)
    return digest


# ---- the file ----------------------------------------------------------------------------------------------------------------


class Seal(NamedTuple):
    """What a sealed segment is known by.

    Attributes:
        base_offset: the segment's.
        end_offset: the offset behind its last record; the next segment begins there.
        size: bytes of its `.log` file.
        inode: of that file, 0 when it is not known: a file that is shorter and the same has lost its end, another was compacted.
        last_crc: the stored checksum of its last batch, 0 without one.
        batches: how many.
        digest: of all of them.
        replaces: base offsets of the segments that a compaction replaced by this one.
        positions, digests: the marks: rising positions behind batches, and the digests up to there.
    """

    base_offset: int
    end_offset: int
    size: int
    inode: int
    last_crc: int
    batches: int
    digest: int
    replaces: tuple[int, ...]
    positions: Numbers
    digests: Numbers

    def mark_before(self, position: int) -> int:
        """The position of the last mark at or before one, 0 when there is none: where a checked walk can start. O(log n)."""
        count = self.marks_until(position)
        return self.positions.item(count - 1) if count else 0

    def mark_behind(self, position: int) -> int:
        """The position of the first mark behind one; the segment's end when there is none. O(log n)."""
        count = self.marks_until(position)
        return self.positions.item(count) if count < len(self.positions) else self.size

    def digest_at(self, position: int) -> int | None:
        """The digest of the batches before a position; None unless it is 0, a mark or the end. O(log n)."""
        if position in (0, self.size):
            return self.digest if position else 0
        count = self.marks_until(position)
        return self.digests.item(count - 1) if count and self.positions[count - 1] == position else None

    def marks_until(self, position: int) -> int:
        """How many marks lie at or before a position. O(log n): the number is of the array's type, so nothing is converted."""
        return int(self.positions.searchsorted(np.uint32(position), "right"))


def make_seal(base_offset: int, end_offset: int, digest: HeaderDigest, replaces: Sequence[int] = (), *, inode: int = 0) -> Seal:
    """The seal of a segment whose batches a digest has taken, all of them.

    >>> make_seal(0, 0, HeaderDigest()).size
    0
    """
    summary = (digest.position, inode, digest.last_crc, digest.batches, digest.value)
    positions, digests = digest.marks
    step = len(positions) // limits.MAX_SEAL_MARKS + 1  # fewer marks find damage in a longer interval
    positions, digests = positions[::step], digests[::step]
    return Seal(base_offset, end_offset, *summary, tuple(replaces), positions, digests)


def unmarked_seal(base_offset: int, position: int, digest: int) -> Seal:
    """What vouches for the batches below a position of a segment that is appended to: their digest, and nothing else."""
    nothing = np.empty(0, np.uint32)
    return Seal(base_offset, base_offset, position, 0, 0, 0, digest, (), nothing, nothing)


def encode_seal(seal: Seal) -> bytes:
    """The bytes of a `.seal` file.

    >>> parse_seal(encode_seal(make_seal(7, 9, HeaderDigest())), "x").end_offset
    9
    """
    *fields, replaces, positions, digests = seal
    head = _HEAD.pack(_MAGIC, _VERSION, 0, *fields, len(replaces), len(positions))
    body = b"".join((head, *map(_BASE.pack, replaces), positions.astype("<u4").tobytes(), digests.astype("<u4").tobytes()))
    return body + _CRC.pack(crc32c(body))


def parse_seal(data: bytes, path: str) -> Seal:
    """A seal from the bytes of its file.

    Raises:
        UnsupportedFormatError: it is of a later version.
        CorruptionError: it is damaged.
    """
    if len(data) < _HEAD.size + _CRC.size or data[:4] != _MAGIC:
        raise CorruptionError(f"{path} is not a seal; remove it, which costs only what it proves", path=path)
    version = _KIND.unpack_from(data)[1]
    if version != _VERSION:
        raise UnsupportedFormatError(f"{path} has version {version}; this pylog knows version {_VERSION}", path=path)
    if crc32c(data[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
        raise CorruptionError(f"{path} does not match its checksum; remove it, which costs only what it proves", path=path)
    if _HEAD.unpack_from(data)[2]:
        raise UnsupportedFormatError(f"{path} has flags that this pylog does not know", path=path)
    seal = _fields(data)
    if seal is None:
        raise CorruptionError(f"{path} contradicts itself; remove it, which costs only what it proves", path=path)
    return seal


def _fields(data: bytes) -> Seal | None:
    """A seal from bytes whose checksum is right; None when they make no sense all the same."""
    _, _, _, *fields, bases, marks = _HEAD.unpack_from(data)
    marks_at = _HEAD.size + bases * _BASE.size
    if len(data) != marks_at + marks * _MARK.size + _CRC.size:
        return None
    replaces = tuple(base for (base,) in _BASE.iter_unpack(data[_HEAD.size : marks_at]))
    positions, digests = np.frombuffer(data, "<u4", 2 * marks, marks_at).reshape(2, marks)
    seal = Seal._make((*fields, replaces, positions, digests))
    rising = bool((positions[1:] > positions[:-1]).all()) and (not marks or 0 < positions[0] <= positions[-1] <= seal.size)
    return seal if rising and 0 <= seal.size <= limits.MAX_SEGMENT_BYTES else None


def read_seal(fs: FileSystem, segment: LogSegment) -> Seal | None:
    """A segment's seal, None when it has none.

    Raises:
        UnsupportedFormatError, CorruptionError: as `parse_seal`; and a seal of another segment is damage.
    """
    path = segment.path_of(SEAL)
    data, fault, _ = read_derived(fs, path, limits.MAX_SEAL_BYTES)
    if fault is not None:
        raise CorruptionError(f"{path} cannot be used: {fault}; remove it, which costs only what it proves", path=path)
    if data is None:
        return None
    seal = parse_seal(data, path)
    if seal.base_offset != segment.base_offset:
        raise CorruptionError(f"{path} is the seal of another segment, that of offset {seal.base_offset}", path=path)
    return seal


def replaced_by(fs: FileSystem, path: str) -> tuple[int, ...]:
    """The bases of the segments that a compaction has replaced by one, as its seal says; none when that cannot be read."""
    with contextlib.suppress(CorruptionError, UnsupportedFormatError):
        return parse_seal(read_derived(fs, path, limits.MAX_SEAL_BYTES).data or b"", path).replaces
    return ()


def write_seal(fs: FileSystem, directory: str, seal: Seal) -> None:
    """Writes, or replaces, the seal of a segment; it is synced before it has its name."""
    write_atomically(fs, directory, file_name(seal.base_offset, SEAL), encode_seal(seal))


# ---- checking ----------------------------------------------------------------------------------------------------------------


class Altered(NamedTuple):
    """Bytes between two marks, batch headers among which are not what was sealed. Positions in the file."""

    start: int
    end: int


class SealedReader:
    """Compares the headers of batches with their segment's seal while they are read.

    Batches are given in order. Where they do not go on where the last ones ended (behind damage, or in the middle of a segment),
    comparing begins at the next mark; a walk that starts at `Seal.mark_before` leaves none out.

    Args:
        seal: the segment's; not a foreign one.
        ahead: the segment, to look at the headers up to the next mark when batches end between two: then every batch that was
            given has been compared when `altered` returns. None when the following batches are given anyway.

    Cost: some 10 ns a batch; with `ahead` the headers of an interval more.
    """

    def __init__(self, seal: Seal, ahead: LogSegment | None = None) -> None:
        self._seal = seal
        self._ahead = ahead
        self._position = 0  # everything before was given, or left out
        self._digest: int | None = 0  # of what lies before, None until the next mark

    def altered(self, buffer: Bytes, table: Table, shift: int) -> list[Altered]:
        """The intervals with altered headers among some consecutive batches, in order.

        Args:
            buffer, table, shift: the batches, as a `Region` has them.
        """
        if not table.shape[1]:
            return []
        end = shift + table.item(POSITION, -1) + table.item(SIZE, -1)
        self._go_to(shift + table.item(POSITION, 0))
        positions, digests = self._marks_within(self._position, end)
        state, differs = np.array([-1 if self._digest is None else self._digest]), np.zeros(positions.size, np.uint8)
        status = kernels.compare_marks(buffer, table, shift, positions, digests, state, differs)
        assert status == kernels.OK, "a region's table is of its buffer"
        self._digest, self._position = None if state[0] < 0 else state.item(0), end
        differing = positions[differs.nonzero()[0]].tolist()
        return [Altered(self._seal.mark_before(position - 1), position) for position in differing] + self._look_ahead()

    def _go_to(self, position: int) -> None:
        if position != self._position:
            self._position, self._digest = position, self._seal.digest_at(position)

    def _marks_within(self, position: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The marks behind a position and not behind `end`; the segment's end is one of them."""
        seal = self._seal
        within = slice(seal.marks_until(position), seal.marks_until(end))
        positions, digests = seal.positions[within].astype(np.int64), seal.digests[within].astype(np.int64)
        if position < seal.size <= end and seal.size not in positions[-1:]:
            return np.append(positions, seal.size), np.append(digests, seal.digest)
        return positions, digests

    def _look_ahead(self) -> list[Altered]:
        """Compares the interval that the batches given so far end in."""
        if self._ahead is None or self._digest is None or self._seal.digest_at(self._position) is not None:
            return []
        end = self._seal.mark_behind(self._position)
        digest, position = self._digest, self._position
        for region in self._ahead.regions(position, end):
            digest, position = extend(digest, prefixes(region.buffer, region.table)), region.end
        if position == end and digest == self._seal.digest_at(end):
            return []
        self._digest = None  # told: nothing more of it is compared
        return [Altered(self._seal.mark_before(end - 1), end)]


class Mismatch(NamedTuple):
    """The first thing about a `.log` file that its seal does not say.

    Attributes:
        foreign: the seal belongs to another file; nothing is said about this one.
        position, size: the bytes concerned; of a foreign seal all of the file.
        why: what is wrong, in words that follow the file's name.
    """

    foreign: bool
    position: int
    size: int
    why: str


def first_mismatch(segment: LogSegment, seal: Seal) -> Mismatch | None:
    """Compares a segment's batch headers with its seal.

    Returns:
        None when all are what was sealed; else where the first that is not may lie, to the interval between two marks. Bytes
        behind the headers are for the batches' own checksums.

    Cost: one pass over the headers.
    """
    size = segment.file().size()
    if is_foreign(segment, seal, size):
        return Mismatch(True, 0, size, foreign_reason(seal, size))
    found = next(_altered(segment, seal), None)
    return None if found is None else Mismatch(False, found.start, found.end - found.start, ALTERED)


ALTERED: Final = "has batch headers that are not what was sealed"


def _altered(segment: LogSegment, seal: Seal) -> Iterator[Altered]:
    reader, end = SealedReader(seal), 0
    for region in segment.regions(0, seal.size):
        yield from reader.altered(region.buffer, region.table, region.shift)
        end = region.end
    if end < seal.size:  # what follows is no batch
        yield Altered(seal.mark_before(end), seal.mark_behind(end))


def is_foreign(segment: LogSegment, seal: Seal, size: int) -> bool:
    """Whether a seal belongs to another `.log` file than the one that is there: a broker cut it, or compacted it.

    The file has another size, or it ends with another batch, a good one. A last batch that only has another offset is damage.

    Args:
        segment: whose file is there.
        seal: as it was found.
        size: of the file, in bytes.

    Cost: the headers behind the last mark, and one batch's checksum when it is another.
    """
    if size != seal.size:
        return True
    for region in segment.regions(seal.mark_before(max(0, size - 1)), size):
        if region.end == size and region.table.shape[1] and region.table[CRC, -1] != seal.last_crc:
            return _ends_well(region)
    return False


def has_lost_its_end(segment: LogSegment, seal: Seal, size: int) -> bool:
    """Whether the file is the very one that was sealed, and shorter now. A compaction makes another file; who cuts this one loses
    what was in it.

    Args:
        segment, seal, size: as for `is_foreign`.

    Cost: one pass over the headers, of a file that is shorter.
    """
    if size >= seal.size or not seal.inode or segment.inode() != seal.inode:
        return False
    mark = seal.mark_before(size)
    with contextlib.suppress(CorruptionError):
        return digest_of(segment, mark).value == (seal.digest_at(mark) or 0)
    return False


def _ends_well(region: Region) -> bool:
    """Whether the last batch of a region has the checksum that it says."""
    table = region.table
    position, size = int(table[POSITION, -1]), int(table[SIZE, -1])
    if table[MAGIC, -1] < 2:
        return legacy_crc_ok(region.buffer[position : position + size])
    return bool(kernels.checksum(region.buffer, position + ATTRIBUTES_AT, position + size) == table[CRC, -1])


def foreign_reason(seal: Seal, size: int) -> str:
    """Why a seal is not its file's, in words that follow the file's name."""
    if size != seal.size:
        return f"has {size} bytes, its seal is of a file with {seal.size}: another program has written since"
    return "ends with another batch than the one that was sealed: another program has written since"
