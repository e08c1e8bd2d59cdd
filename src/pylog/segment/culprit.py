"""Finds the batch with the altered header in an interval, so that the interval's other batches stay readable.

A seal covers intervals of batches. If an interval fails its check, the usual cause is one flipped bit. The bit that makes the
digest right again when flipped back shows where. A CRC distinguishes any two bits of an interval, so there is only one answer.
"""

from __future__ import annotations

from typing import Final

from google_crc32c import extend

from pylog.record.format import LEADER_EPOCH_AT, LENGTH_AT, OFFSET_AT, POSITION, PREFIX_SIZE, SIZE
from pylog.segment.header_digest import prefixes
from pylog.segment.seal import Altered, Seal
from pylog.segment.segment import LogSegment

_FIELDS: Final = (range(OFFSET_AT, LENGTH_AT), range(LEADER_EPOCH_AT, PREFIX_SIZE))  # a wrong length breaks the walk itself
_BITS: Final = [(byte, 1 << bit) for field in _FIELDS for byte in field for bit in range(8)]
_MOST_BATCHES: Final = 256  # of an interval: searching more would cost more than it is worth


def narrowed(segment: LogSegment, seal: Seal, altered: Altered) -> Altered:
    """Returns the batch of an interval in which one bit was flipped, or the whole interval if something else happened.

    Cost: for each batch of the interval, 136 digests of the batches after it.
    """
    digest, expected = seal.digest_at(altered.start), seal.digest_at(altered.end)
    headers, ranges = _headers(segment, altered)
    if digest is None or expected is None or len(headers) > _MOST_BATCHES or not ranges or ranges[-1].end != altered.end:
        return altered
    for at, header in enumerate(headers):
        rest = b"".join(headers[at + 1 :])
        if any(extend(extend(digest, flipped), rest) == expected for flipped in _flipped(header)):
            return ranges[at]
        digest = extend(digest, header)
    return altered


def _headers(segment: LogSegment, altered: Altered) -> tuple[list[bytes], list[Altered]]:
    """Returns the prefixes of the batches of an interval, and the range of each batch."""
    headers: list[bytes] = []
    ranges: list[Altered] = []
    for region in segment.regions(altered.start, altered.end):
        joined = prefixes(region.buffer, region.table) if region.table.shape[1] else b""
        headers += [joined[first : first + PREFIX_SIZE] for first in range(0, len(joined), PREFIX_SIZE)]
        starts = (region.table[POSITION] + region.shift).tolist()
        ranges += [Altered(start, start + size) for start, size in zip(starts, region.table[SIZE].tolist(), strict=True)]
    return headers, ranges


def _flipped(header: bytes) -> list[bytes]:
    """Returns copies of a header with one bit flipped, for each bit that does not break the walk from batch to batch."""
    return [header[:byte] + bytes((header[byte] ^ bit,)) + header[byte + 1 :] for byte, bit in _BITS]
