"""The next events of segments: when retention deletes each of them, and how far compaction has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pylog.config import TopicConfig
from pylog.log.maintenance.compaction_policy import LogToClean
from pylog.log.partition_log import PartitionLog
from pylog.text import size_text
from pylog.ui.observation import PartitionSeen, SegmentSeen
from pylog.ui.words import seconds

_REASONS: Final = {
    "start_offset": "due: it is before the log start",
    "size": "due: the partition is too large",
    "time": "due: its records are too old",
    "group_bytes": "due: too large for the retention group",
}


@dataclass(frozen=True)
class Fates:
    """The next events of the segments of a partition.

    Attributes:
        retention: by base offset, when retention deletes a segment.
        compaction: by base offset, whether compaction has cleaned a segment; empty in a topic without compaction.
        to_clean: the clean and the dirty section; None in a topic without compaction.
    """

    retention: dict[int, str]
    compaction: dict[int, str]
    to_clean: LogToClean | None


def fates(seen: PartitionSeen, log: PartitionLog, config: TopicConfig, committed: int | None, now_ms: int) -> Fates:
    """Returns the next events of the segments of a partition.

    Args:
        seen, log: the partition.
        config: the topic's.
        committed: the committed offset of the retention group, if the topic has one.
        now_ms: the wall clock.

    Raises:
        PylogError: the partition cannot be read.

    Cost: O(segments), and a read of those whose age decides.
    """
    plan = log.retain(now_ms, config.retention_group, committed, dry_run=True)
    due = () if plan is None else plan.reasons
    to_clean = log.to_clean() if config.is_compacted else None
    reasons = {segment.base_offset: _REASONS[reason] for segment, reason in zip(seen.segments, due, strict=False)}
    retention = {each.base_offset: reasons.get(each.base_offset) or text for each, text in _later(seen, config, now_ms)}
    compaction = {} if to_clean is None else {each.base_offset: _cleaned(each, to_clean) for each in seen.segments}
    return Fates(retention, compaction, to_clean)


def _later(seen: PartitionSeen, config: TopicConfig, now_ms: int) -> list[tuple[SegmentSeen, str]]:
    """Returns for each segment when retention will delete it, unless it is due already."""
    found, newest, after = [], -1, seen.size
    for each in seen.segments:
        newest, after = max(newest, each.newest_ms), after - each.size
        found.append((each, _when(each, newest, after, config, now_ms)))
    return found


def _when(segment: SegmentSeen, newest_ms: int, after: int, config: TopicConfig, now_ms: int) -> str:
    """Returns when a segment is deleted, by the newest record up to its end, and by the bytes after it."""
    if "delete" not in config.cleanup_policy.split(","):
        return "kept"
    if segment.is_active:
        return "kept while it is active"
    limits = []
    if config.retention_ms >= 0 and newest_ms >= 0:
        limits.append(f"in {seconds(max(0, newest_ms + config.retention_ms - now_ms) / 1000)}")
    if config.retention_bytes >= 0:
        limits.append(f"after {size_text(max(0, config.retention_bytes - after))} more")
    waiting = f", once {config.retention_group} has read it" if config.retention_group else ""
    return (" or ".join(limits) or "kept") + (waiting if limits else "")


def _cleaned(segment: SegmentSeen, to_clean: LogToClean) -> str:
    if segment.end_offset <= to_clean.first_dirty:
        return "clean"
    if segment.is_active:
        return "active"
    return "dirty" if segment.base_offset < to_clean.first_uncleanable else "not yet cleanable"
