"""What the end of a log is worth: whole batches, a torn tail, or damage (reliability 3). Decisions only; nothing is written."""

from __future__ import annotations

from typing import NamedTuple

from pylog.segment.batch_walk import Damage
from pylog.segment.continuity import OUT_OF_REACH


class Finding(NamedTuple):
    """Something about a partition's files that its owner should know.

    Attributes:
        kind: "torn" (cut before the next write, and kept aside), "corrupt" (kept, not served), "rebuilt" (a derived file that
            was not usable), "missing" (a derived file names records that are not there).
        path: the file.
        position, size: the bytes concerned.
        offset: the first offset concerned.
        next_offset: where reading can go on, None when nothing follows.
        message: all of that as a sentence.
    """

    kind: str
    path: str
    position: int
    size: int
    offset: int
    next_offset: int | None
    message: str


def is_torn(damage: Damage, *, durable_position: int, last_segment: bool, unsynced_bytes: int) -> bool:
    """Whether bytes that are not batches are the tail of a write that was under way when the system stopped (reliability 3.3).

    Args:
        damage: the first of them in its segment.
        durable_position: everything below is known to have been synced.
        last_segment: whether the segment is the log's last one; those before it were synced when it was made.
        unsynced_bytes: how far apart two batches can be that were not synced yet; 0 when nothing is known of the writer, so that
            any good batch behind the damage makes it corruption.

    >>> is_torn(Damage(90, 100, 7, None, ""), durable_position=90, last_segment=True, unsynced_bytes=0)
    True
    >>> is_torn(Damage(90, 100, 7, 8, ""), durable_position=90, last_segment=True, unsynced_bytes=0)
    False
    """
    if damage.position < durable_position or not last_segment or damage.why == OUT_OF_REACH:
        return False  # the last: a whole batch, which somebody wrote
    return damage.next_offset is None or damage.end - damage.position <= unsynced_bytes
