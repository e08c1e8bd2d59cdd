"""What readers see of a tiered log: the archived segments, and the local ones after them. And what it can upload."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pylog.log.recovery.archive_tier import Tier
from pylog.log.state import LogState, SegmentView
from pylog.segment.segment import LogSegment


class BothTiers:
    """Adds archived segments to the states of a local log. Not thread-safe; a wrong order of calls costs only time.

    Args:
        tier: returns the partition's archive.
    """

    def __init__(self, tier: Callable[[], Tier | None]) -> None:
        self._tier = tier
        self._known: tuple[SegmentView, int, SegmentView] | None = None  # local view, log start, both

    def shown(self, state: LogState) -> LogState:
        """Returns the state that readers see. Cost: none for a log that is complete here; else a copy of the state."""
        start, tier = state.remote_start, self._tier()
        if start is None or tier is None or state.segments.first is None:
            return state
        known = self._known
        if known is None or known[0] is not state.segments or known[1] != start:
            first_base = state.segments.first[0]
            remote = [(segment.base_offset, segment) for segment in tier.segments(start, first_base)]
            known = self._known = state.segments, start, SegmentView([*remote, *state.segments])
        return replace(state, segments=known[2], start_offset=start, remote_start=None, local=state)


def archivable(state: LogState, archived_end: int) -> list[tuple[LogSegment, int]]:
    """Returns the segments to upload, each with the offset at which the next one begins: sealed, durable, all transactions ended.

    Args:
        state: the log's state, with its open transactions.
        archived_end: the offset after the last archived record; -1 if nothing was archived.
    """
    limit, local = min(state.stable_offset, state.durable_offset), state.local or state
    found = [(segment, local.end_of(segment)) for _, segment in local.segments if segment is not local.active]
    return [(segment, end) for segment, end in found if max(archived_end, local.start_offset) < end <= limit]
