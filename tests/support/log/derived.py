"""The derived files of a log as tests write and read them: checkpoints, producer snapshots, seals."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pylog.log.producer_state import ProducerStateManager
from pylog.log.recovery.producer_snapshots import SNAPSHOTS
from pylog.segment.seal import ALTERED, Altered, Seal, SealedReader, foreign_reason, is_foreign

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pylog.record.types import TopicPartition
    from pylog.segment.segment import LogSegment


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Returns the content of an offset checkpoint file."""
    lines = [f"{topic} {partition} {offset}\n" for (topic, partition), offset in sorted(offsets.items())]
    return "".join(["0\n", f"{len(lines)}\n", *lines]).encode()


def parse_snapshot(data: bytes, offset: int, path: str) -> ProducerStateManager:
    """Parses a producer snapshot that `offset` names."""
    return SNAPSHOTS.parsed(data, path, offset, None)


class Mismatch(NamedTuple):
    """The first difference between a `.log` file and its seal.

    Attributes:
        foreign: the seal belongs to another file and proves nothing about this one.
        position, size: the range of bytes; for a foreign seal the whole file.
        why: the fault, in words that follow the file's name.
    """

    foreign: bool
    position: int
    size: int
    why: str


def first_mismatch(segment: LogSegment, seal: Seal) -> Mismatch | None:
    """Compares a segment's batch headers with its seal.

    Returns:
        None if nothing was altered; else the range of the first altered header, to the precision of two marks.
    """
    size = segment.file().size()
    if is_foreign(segment, seal, size):
        return Mismatch(True, 0, size, foreign_reason(seal, size))
    found = next(_altered(segment, seal), None)
    return None if found is None else Mismatch(False, found.start, found.end - found.start, ALTERED)


def _altered(segment: LogSegment, seal: Seal) -> Iterator[Altered]:
    reader, end = SealedReader(seal), 0
    for region in segment.regions(0, seal.size):
        yield from reader.altered(region.buffer, region.table, region.shift)
        end = region.end
    if end < seal.size:  # the bytes after the last batch are no batch
        yield Altered(seal.mark_before(end), seal.mark_after(end))
