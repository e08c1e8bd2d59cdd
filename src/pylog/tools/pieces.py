"""The pieces of a repaired `.log` file: bytes of the old one, empty batches, and markers in place of lost ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pylog.record.builder import BatchEncoder
from pylog.record.checksum import crc32c
from pylog.record.control import end_transaction_record
from pylog.record.few import few_rows
from pylog.record.format import HEADER_CHECKED, HEADER_FRONT, HEADER_SIZE, LOG_OVERHEAD
from pylog.record.types import MarkerBatch
from pylog.text import counted

_ENCODER: Final = BatchEncoder()
_COORDINATOR_EPOCH: Final = 0  # a coordinator of any epoch may write the next marker


class KeptBytes(NamedTuple):
    """Bytes of a `.log` file that the repair keeps."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class EmptyBatch(NamedTuple):
    """An empty batch that replaces removed records. Offsets are inclusive."""

    first_offset: int
    last_offset: int
    leader_epoch: int

    @property
    def size(self) -> int:
        return HEADER_SIZE

    def encoded(self) -> bytes:
        """Returns the batch: a header with a count of 0 and no timestamps.

        >>> len(EmptyBatch(5, 9, 0).encoded())
        61
        """
        checked = HEADER_CHECKED.pack(0, self.last_offset - self.first_offset, -1, -1, -1, -1, -1, 0)
        front = (self.first_offset, HEADER_SIZE - LOG_OVERHEAD, self.leader_epoch, 2, crc32c(checked))
        return HEADER_FRONT.pack(*front) + checked


class EndMarker(NamedTuple):
    """A marker that ends a transaction whose own marker is lost.

    Attributes:
        offset, leader_epoch: the marker's.
        producer_id, epoch: the producer's id, and the epoch that the lost marker had.
        committed: True for COMMIT, False for ABORT.
        timestamp: timestamp of the transaction's last record that stays.
    """

    offset: int
    leader_epoch: int
    producer_id: int
    epoch: int
    committed: bool
    timestamp: int

    @property
    def size(self) -> int:
        return len(self.encoded())

    def encoded(self) -> bytes:
        """Returns the batch.

        >>> EndMarker(5, 0, 7, 1, True, 1_700_000_000_000).size
        78
        """
        rows = few_rows([(self.timestamp, *end_transaction_record(_COORDINATOR_EPOCH, committed=self.committed), ())])
        numbers = MarkerBatch(self.producer_id, self.epoch, -1)
        (batch,) = _ENCODER.encode(rows, self.offset, self.leader_epoch, numbers, whole=True)
        return bytes(batch.data)

    def __str__(self) -> str:
        """Says what the repair does."""
        kind = "COMMIT" if self.committed else "ABORT"
        return f"write {kind} at offset {self.offset} in place of a lost marker of producer {self.producer_id}"


ContentPart = KeptBytes | EmptyBatch | EndMarker


class SegmentPlan(NamedTuple):
    """The change of one `.log` file.

    Attributes:
        base_offset, path, size: the file before the repair; size in bytes.
        pieces: content of the new file; None if the file is removed.
    """

    base_offset: int
    path: str
    size: int
    pieces: tuple[ContentPart, ...] | None

    @property
    def new_size(self) -> int:
        return sum(piece.size for piece in self.pieces or ())

    def __str__(self) -> str:
        """Says what the repair does."""
        if self.pieces is None:
            return f"remove {self.path} ({counted(self.size, 'byte')})"
        kept = sum(piece.size for piece in self.pieces if isinstance(piece, KeptBytes))
        fillers = sum(isinstance(piece, EmptyBatch) for piece in self.pieces)
        placed = f", with {counted(fillers, 'empty batch')} in place of removed records" if fillers else ""
        return f"rewrite {self.path}: keep {kept} of its {counted(self.size, 'byte')}{placed}"

    def with_markers(self, markers: list[EndMarker]) -> SegmentPlan:
        """Returns the plan with markers, sorted by offset, in place of parts of its empty batches."""
        return self._replace(pieces=self.pieces and tuple(part for piece in self.pieces for part in split(piece, markers)))


def split(piece: ContentPart, markers: list[EndMarker]) -> list[ContentPart]:
    """Returns a piece with markers in place of a part of it, if it is an empty batch that has their offsets.

    Args:
        piece: the piece.
        markers: sorted by offset.

    >>> marker = EndMarker(6, 0, 7, 1, True, 0)
    >>> [part[0] for part in split(EmptyBatch(5, 9, 0), [marker])]
    [5, 6, 7]
    """
    if not isinstance(piece, EmptyBatch):
        return [piece]
    parts: list[ContentPart] = []
    first = piece.first_offset
    for marker in markers:
        if first <= marker.offset <= piece.last_offset:
            parts += [piece._replace(first_offset=first, last_offset=marker.offset - 1)] if first < marker.offset else []
            parts.append(marker._replace(leader_epoch=piece.leader_epoch))
            first = marker.offset + 1
    return [*parts, piece._replace(first_offset=first)] if first <= piece.last_offset else parts


def has_place(marker: EndMarker, segments: Iterable[SegmentPlan]) -> bool:
    """Returns whether an empty batch of a plan has a marker's offset."""
    pieces = (piece for segment in segments for piece in segment.pieces or ())
    return any(isinstance(piece, EmptyBatch) and piece.first_offset <= marker.offset <= piece.last_offset for piece in pieces)
