"""Finds the batches of an active segment whose headers are not as they were published.

No checksum of Kafka covers a batch's base offset. A seal covers those of a sealed segment; in the active one only the digest in
the log's header does, which is of all batches together. Offsets that changed always leave a gap, or batches that overlap. So a
walk that meets one of these has the headers compared with the digest, once. Without a gap nothing is compared.

If the digest differs, the offsets that pylog gave show which batches changed: it numbers records without a gap.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from google_crc32c import extend

from pylog.record.batch import Table
from pylog.record.format import BASE_OFFSET, LAST_OFFSET, MAGIC, POSITION, SIZE
from pylog.segment.header_digest import prefixes
from pylog.segment.log_file import Region
from pylog.segment.seal import Altered
from pylog.segment.segment import LogSegment

REWRITTEN: Final = "has another base offset than the one that was published"


class Compared(NamedTuple):
    """The result of a comparison, kept with the segment.

    Attributes:
        published: the position and the digest that the headers were compared with.
        position, digest, next_offset: how far they are as published: later comparisons go on from there.
        altered: the batches that changed; neighbours are one range.
    """

    published: tuple[int, int]
    position: int
    digest: int
    next_offset: int
    altered: tuple[Altered, ...] = ()


def altered_headers(segment: LogSegment) -> tuple[Altered, ...]:
    """Returns the batches of an active segment that have other offsets than those published; empty if that is unknown.

    Cost: the first call walks over all headers of the segment, later ones over those that were added.
    """
    published = segment.published
    if published is None:
        return ()
    known: Compared | None = segment.compared
    if known is None or known.published != published:
        known = segment.compared = _compared(segment, published, known)
    return known.altered


def _compared(segment: LogSegment, published: tuple[int, int], before: Compared | None) -> Compared:
    if before is None or before.position > published[0]:
        before = Compared(published, 0, 0, segment.base_offset)
    position, digest, offset, altered = before.position, before.digest, before.next_offset, list[Altered]()
    for region in segment.regions(position, published[0]):
        if not region.table.shape[1] or (region.table[MAGIC] != 2).any():
            break
        digest = extend(digest, prefixes(region.buffer, region.table))
        counted, offset = _counted(region.table, offset)
        _add_altered(altered, region, counted)
        position = region.end
    if position != published[0]:  # a batch is damaged in another way, which the walk finds
        return before._replace(published=published)
    if digest != published[1]:
        return before._replace(published=published, altered=tuple(altered))
    return Compared(published, position, digest, offset)


def _counted(table: Table, offset: int) -> tuple[Table, int]:
    """Returns the base offsets of batches that continue from an offset without a gap, and the offset after them."""
    ends = offset + np.cumsum(table[LAST_OFFSET] - table[BASE_OFFSET] + 1)
    return np.append(offset, ends[:-1]), int(ends[-1])


def _add_altered(altered: list[Altered], region: Region, counted: Table) -> None:
    for batch in np.flatnonzero(region.table[BASE_OFFSET] != counted).tolist():
        start = region.shift + region.table.item(POSITION, batch)
        end = start + region.table.item(SIZE, batch)
        if altered and altered[-1].end == start:
            start = altered.pop().start
        altered.append(Altered(start, end))
