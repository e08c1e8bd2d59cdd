"""Decides whether bytes at the end of a log are a torn tail or damage (reliability 3). Pure functions; nothing is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from pylog.segment.batch_walk import Damage
from pylog.segment.continuity import OF_A_WHOLE_BATCH

_LOSSES: Final = frozenset({"corrupt", "missing"})  # kinds


class Finding(NamedTuple):
    """A fact about a partition's files that its owner should know.

    Attributes:
        kind: "torn" (cut off before the next write, after a copy), "corrupt" (kept, not served), "rebuilt" (a derived file was
            unusable), "missing" (a derived file names records that do not exist).
        path: the file.
        position, size: the affected bytes.
        offset: the first affected offset.
        next_offset: where reading can continue; None if nothing follows.
        message: the finding as a sentence.
    """

    kind: str
    path: str
    position: int
    size: int
    offset: int
    next_offset: int | None
    message: str


def losses_in(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Returns the findings that say that records are damaged or missing."""
    return tuple(each for each in findings if each.kind in _LOSSES)


def is_torn(damage: Damage, *, durable_position: int, last_segment: bool, unsynced_bytes: int) -> bool:
    """Returns whether damaged bytes are an unfinished write at the time of a crash (reliability 3.3).

    Args:
        damage: the first damage in its segment.
        durable_position: bytes below it are known to be synced.
        last_segment: true for the log's last segment; earlier ones were synced by the roll.
        unsynced_bytes: the largest distance of two unsynced batches. 0 if unknown: then any good batch after the damage means
            corruption.

    >>> is_torn(Damage(90, 100, 7, None, ""), durable_position=90, last_segment=True, unsynced_bytes=0)
    True
    >>> is_torn(Damage(90, 100, 7, 8, ""), durable_position=90, last_segment=True, unsynced_bytes=0)
    False
    """
    if damage.position < durable_position or not last_segment or damage.why in OF_A_WHOLE_BATCH:
        return False  # at the end: a whole batch was written there
    return damage.next_offset is None or damage.end - damage.position <= unsynced_bytes
