"""The `.seal` file: the digest of a whole sealed segment (`header_digest`), and its marks.

A seal contains the identity of its file. A seal of another file, because a broker cut or compacted the segment, is foreign: it
proves nothing. Seals are pylog's own derived files; Kafka ignores them.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from google_crc32c import extend
from numpy.typing import NDArray

from pylog import limits
from pylog.errors import CorruptionError, UnsupportedFormatError
from pylog.fs import Bytes, FileKind, FileSystem, write_atomically
from pylog.record import kernels
from pylog.record.batch import Table
from pylog.record.checksum import crc32c
from pylog.record.format import ATTRIBUTES_AT, CRC, MAGIC, POSITION, SIZE
from pylog.record.legacy import legacy_crc_ok
from pylog.segment.header_digest import HeaderDigest, Numbers, digest_of, prefixes
from pylog.segment.log_file import Region
from pylog.segment.names import SEAL, file_name
from pylog.segment.segment import LogSegment
from pylog.text import counted

_MAGIC: Final = b"PYSL"
_VERSION: Final = 1
_KIND = struct.Struct("<4sH")
_HEAD = struct.Struct("<4sHHqqqQIIIII")  # … flags, base, end, size, inode, last CRC, batches, digest, bases replaced, marks
_BASE = struct.Struct("<q")
_MARK = struct.Struct("<II")  # position after a batch, digest up to there; the file has all positions, then all digests
_CRC = struct.Struct("<I")


class Seal(NamedTuple):
    """The content of a `.seal` file, which identifies a sealed segment.

    Attributes:
        base_offset: the segment's.
        end_offset: the offset after its last record; the next segment begins there.
        size: bytes of its `.log` file.
        inode: inode of that file, 0 if unknown. A shorter file with the same inode was cut; with another inode it was compacted.
        last_crc: the stored checksum of its last batch, 0 if there is none.
        batches: number of batches.
        digest: digest of all of them.
        replaces: base offsets of the segments that this one replaced in a compaction.
        positions, digests: the marks: rising positions after batches, and the digests up to there.
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
        """Returns the position of the last mark at or before another, or 0: a checked walk can start there. O(log n)."""
        count = self.marks_until(position)
        return self.positions.item(count - 1) if count else 0

    def mark_after(self, position: int) -> int:
        """Returns the position of the first mark after another, or the segment's end. O(log n)."""
        count = self.marks_until(position)
        return self.positions.item(count) if count < len(self.positions) else self.size

    def digest_at(self, position: int) -> int | None:
        """Returns the digest of the batches before a position; None unless that is 0, a mark or the end. O(log n)."""
        if position in (0, self.size):
            return self.digest if position else 0
        count = self.marks_until(position)
        return self.digests.item(count - 1) if count and self.positions[count - 1] == position else None

    def marks_until(self, position: int) -> int:
        """Returns how many marks are at or before a position. O(log n): the array's own number type avoids a conversion."""
        return int(self.positions.searchsorted(np.uint32(position), "right"))


def make_seal(base_offset: int, end_offset: int, digest: HeaderDigest, replaces: Sequence[int] = (), *, inode: int = 0) -> Seal:
    """Returns the seal of a segment all of whose batches a digest has taken.

    >>> make_seal(0, 0, HeaderDigest()).size
    0
    """
    summary = (digest.position, inode, digest.last_crc, digest.batches, digest.value)
    positions, digests = digest.marks
    step = len(positions) // limits.MAX_SEAL_MARKS + 1  # with fewer marks, damage is located to a longer interval
    positions, digests = positions[::step], digests[::step]
    return Seal(base_offset, end_offset, *summary, tuple(replaces), positions, digests)


def unmarked_seal(base_offset: int, position: int, digest: int) -> Seal:
    """Returns a seal for the batches below a position of an active segment: their digest, and no marks."""
    nothing = np.empty(0, np.uint32)
    return Seal(base_offset, base_offset, position, 0, 0, 0, digest, (), nothing, nothing)


def encode_seal(seal: Seal) -> bytes:
    """Returns the bytes of a `.seal` file.

    >>> parse_seal(encode_seal(make_seal(7, 9, HeaderDigest())), "x").end_offset
    9
    """
    *fields, replaces, positions, digests = seal
    head = _HEAD.pack(_MAGIC, _VERSION, 0, *fields, len(replaces), len(positions))
    body = b"".join((head, *map(_BASE.pack, replaces), positions.astype("<u4").tobytes(), digests.astype("<u4").tobytes()))
    return body + _CRC.pack(crc32c(body))


def parse_seal(data: bytes, path: str) -> Seal:
    """Parses a `.seal` file.

    Raises:
        UnsupportedFormatError: the seal has a later version.
        CorruptionError: the seal is damaged.
    """
    if len(data) < _HEAD.size + _CRC.size or data[:4] != _MAGIC:
        raise CorruptionError(f"{path} is not a seal; remove it, and you lose only its check of the segment", path=path)
    version = _KIND.unpack_from(data)[1]
    if version != _VERSION:
        raise UnsupportedFormatError(f"{path} has version {version}; this pylog supports version {_VERSION}", path=path)
    if crc32c(data[: -_CRC.size]) != _CRC.unpack(data[-_CRC.size :])[0]:
        raise CorruptionError(
            f"{path} does not match its checksum; remove it, and you lose only its check of the segment", path=path
        )
    if _HEAD.unpack_from(data)[2]:
        raise UnsupportedFormatError(f"{path} has flags that this pylog does not support", path=path)
    seal = _fields(data)
    if seal is None:
        raise CorruptionError(f"{path} contradicts itself; remove it, and you lose only its check of the segment", path=path)
    return seal


def _fields(data: bytes) -> Seal | None:
    """Returns a seal from bytes with the right checksum, or None if they are inconsistent."""
    _, _, _, *fields, bases, marks = _HEAD.unpack_from(data)
    marks_at = _HEAD.size + bases * _BASE.size
    if len(data) != marks_at + marks * _MARK.size + _CRC.size:
        return None
    replaces = tuple(base for (base,) in _BASE.iter_unpack(data[_HEAD.size : marks_at]))
    positions, digests = np.frombuffer(data, "<u4", 2 * marks, marks_at).reshape(2, marks)
    seal = Seal._make((*fields, replaces, positions, digests))
    rising = bool((positions[1:] > positions[:-1]).all()) and (not marks or 0 < positions[0] <= positions[-1] <= seal.size)
    return seal if rising and 0 <= seal.size <= limits.MAX_SEGMENT_BYTES else None


def most_bytes(size: int) -> int:
    """Returns the most bytes of a seal: a mark for each batch of its segment, and the segments that it replaced.

    >>> most_bytes(0) < 1 << 20 < most_bytes(1 << 30) <= limits.MAX_SEAL_BYTES
    True
    """
    return min(limits.MAX_SEAL_BYTES, limits.LEAST_SEAL_LIMIT_BYTES + _MARK.size * (size // limits.LEAST_BATCH_BYTES))


SEALS: Final = FileKind("a seal", parse_seal, most_bytes, "remove it, and you lose only its check of the segment")


def read_seal(fs: FileSystem, segment: LogSegment) -> Seal | None:
    """Reads a segment's seal. Returns None if it has none.

    Raises:
        UnsupportedFormatError, CorruptionError: as for `parse_seal`; a seal of another segment counts as damage.
    """
    path = segment.path_of(SEAL)
    data, fault, *_ = SEALS.fetch_derived(fs, path, segment.size)
    if fault is not None:
        raise CorruptionError(f"{path} cannot be used: {fault}; remove it, and you lose only its check of the segment", path=path)
    if data is None:
        return None
    seal = SEALS.parsed(data, path)
    if seal.base_offset != segment.base_offset:
        raise CorruptionError(f"{path} is the seal of another segment, which begins at offset {seal.base_offset}", path=path)
    return seal


def replaced_by(fs: FileSystem, path: str, size: int) -> tuple[int, ...]:
    """Returns the base offsets that a compaction replaced by one segment, from its seal; none if the seal is unreadable."""
    with contextlib.suppress(CorruptionError, UnsupportedFormatError):
        return SEALS.parsed(SEALS.fetch_derived(fs, path, size).data or b"", path).replaces
    return ()


def write_seal(fs: FileSystem, directory: str, seal: Seal) -> None:
    """Writes or replaces a segment's seal. It is synced before it gets its name."""
    write_atomically(fs, directory, file_name(seal.base_offset, SEAL), encode_seal(seal))


# ---- checking ----------------------------------------------------------------------------------------------------------------


class Altered(NamedTuple):
    """Bytes between two marks that contain altered batch headers. Positions in the file."""

    start: int
    end: int


class SealedReader:
    """Compares batch headers with their segment's seal as they are read.

    Batches are given in order. If they do not continue the previous ones (after damage, or in the middle of a segment), comparing
    starts at the next mark; a walk that starts at `Seal.mark_before` misses none.

    Args:
        seal: the segment's seal, not a foreign one.
        ahead: the segment. If batches end between two marks, the headers up to the next mark are read from it, so that `altered`
            has compared every given batch when it returns. None if the following batches will be given anyway.

    Cost: about 10 ns a batch; with `ahead` the headers of one interval more.
    """

    def __init__(self, seal: Seal, ahead: LogSegment | None = None) -> None:
        self._seal = seal
        self._ahead = ahead
        self._position = 0  # everything before it was given, or skipped
        self._digest: int | None = 0  # of the batches before it; None until the next mark

    def altered(self, buffer: Bytes, table: Table, shift: int) -> list[Altered]:
        """Returns the intervals with altered headers among some consecutive batches, in order.

        Args:
            buffer, table, shift: the batches, as in a `Region`.
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
        """Returns the marks after a position and up to `end`; the segment's end counts as a mark."""
        seal = self._seal
        within = slice(seal.marks_until(position), seal.marks_until(end))
        positions, digests = seal.positions[within].astype(np.int64), seal.digests[within].astype(np.int64)
        if position < seal.size <= end and seal.size not in positions[-1:]:
            return np.append(positions, seal.size), np.append(digests, seal.digest)
        return positions, digests

    def _look_ahead(self) -> list[Altered]:
        """Compares the interval in which the given batches end."""
        if self._ahead is None or self._digest is None or self._seal.digest_at(self._position) is not None:
            return []
        end = self._seal.mark_after(self._position)
        digest, position = self._digest, self._position
        for region in self._ahead.regions(position, end):
            digest, position = extend(digest, prefixes(region.buffer, region.table)), region.end
        if position == end and digest == self._seal.digest_at(end):
            return []
        self._digest = None  # reported: the remainder is not compared
        return [Altered(self._seal.mark_before(end - 1), end)]


ALTERED: Final = "has batch headers that differ from the seal"


def is_foreign(segment: LogSegment, seal: Seal, size: int) -> bool:
    """Returns whether a seal belongs to another `.log` file than the existing one, because a broker cut or compacted it.

    The file has another size, or ends with another good batch. A last batch that differs only in its offset is damage.

    Args:
        segment: the segment with the existing file.
        seal: the seal as it was read.
        size: size of the file, in bytes.

    Cost: the headers after the last mark, and one batch's checksum if the last batch differs.
    """
    if size != seal.size:
        return True
    for region in segment.regions(seal.mark_before(max(0, size - 1)), size):
        if region.end == size and region.table.shape[1] and region.table[CRC, -1] != seal.last_crc:
            return _ends_well(region)
    return False


def has_lost_its_end(segment: LogSegment, seal: Seal, size: int) -> bool:
    """Returns whether the file is the sealed one, but shorter. A compaction writes another file; cutting this one loses records.

    Args:
        segment, seal, size: as for `is_foreign`.

    Cost: for a shorter file, one pass over the headers.
    """
    if size >= seal.size or not seal.inode or segment.inode() != seal.inode:
        return False
    mark = seal.mark_before(size)
    with contextlib.suppress(CorruptionError):
        return digest_of(segment, mark).value == (seal.digest_at(mark) or 0)
    return False


def _ends_well(region: Region) -> bool:
    """Returns whether the last batch of a region matches its stored checksum."""
    table = region.table
    position, size = int(table[POSITION, -1]), int(table[SIZE, -1])
    if table[MAGIC, -1] < 2:
        return legacy_crc_ok(region.buffer[position : position + size])
    return bool(kernels.checksum(region.buffer, position + ATTRIBUTES_AT, position + size) == table[CRC, -1])


def foreign_reason(seal: Seal, size: int) -> str:
    """Returns why a seal does not belong to its file, in words that follow the file's name."""
    if size != seal.size:
        return f"has {counted(size, 'byte')}, but its seal is for a file of {seal.size}: another program has changed it since"
    return "ends with a different batch than the sealed file: another program has changed it since"
