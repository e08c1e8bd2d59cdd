"""Logs the findings and actions of opening a partition: see `pylog.trace`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pylog import trace
from pylog.log.recovery.findings import Finding
from pylog.log.recovery.loaded import Loaded, Source
from pylog.metrics import Counters
from pylog.record.types import TopicPartition

_EVENTS: Final = {"torn": trace.TORN, "corrupt": trace.CORRUPT, "missing": trace.MISSING, "rebuilt": trace.REBUILT}


def trace_loading(source: Source, loaded: Loaded, known: Collection[Finding], counters: Counters) -> None:
    """Logs a line for each finding, and one if the end of the log was scanned, which is counted.

    Args:
        source, loaded: the partition.
        known: findings that were already logged.
        counters: the log's counters.
    """
    for finding in loaded.findings:
        if finding not in known:
            facts = {"path": finding.path, "position": finding.position, "bytes": finding.size, "offset": finding.offset}
            trace.later(_EVENTS[finding.kind], source.partition, **facts, next=finding.next_offset, message=finding.message)
    if loaded.segments and not loaded.clean:
        scanned = _scanned(source, loaded)
        counters.recovered(scanned)
        facts = {"start": loaded.start_offset, "end": loaded.next_offset, "durable": loaded.durable_offset}
        trace.later(trace.RECOVERED, source.partition, **facts, bytes=scanned, reason=_reason(loaded))


def trace_tier(partition: TopicPartition, remote: range) -> None:
    """Logs a line for a log whose first records are only in a broker's remote tier.

    Args:
        partition: the partition.
        remote: the offsets of these records.
    """
    if remote:
        trace.line(trace.IN_TIER, partition, first=remote.start, last=remote.stop - 1, local_start=remote.stop)


def _scanned(source: Source, loaded: Loaded) -> int:
    """Returns the bytes of the scanned segments."""
    sizes = [loaded.file_size]
    if loaded.slot is None:  # with a header, only the last segment is scanned
        following = loaded.segments.bases[1:]
        sizes += [segment.size for segment, base in zip(loaded.segments, following, strict=False) if base > source.recovery_point]
    return sum(sizes)


def _reason(loaded: Loaded) -> str:
    if loaded.slot is None:
        return "no clean-shutdown marker, and no current header"
    return "the last process died, or another process has the log open"
