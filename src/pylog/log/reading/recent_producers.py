"""The producers of the newest batches of a log, from their headers."""

from __future__ import annotations

from pylog import limits
from pylog.log.producer_state import Producer, ProducerStateManager
from pylog.log.recovery.replay import replay_segment
from pylog.log.state import LogState
from pylog.segment.segment import LogSegment


def recent_producers(state: LogState) -> list[Producer]:
    """Returns the idempotent and transactional producers of the newest segments, by producer id.

    Raises:
        StorageFailedError: a file cannot be read. A damaged batch ends the replay of its segment.

    Cost: the headers of the newest segments, `limits.RECENT_BYTES` at most, and of the last one in any case.
    """
    chosen: list[LogSegment] = []
    left = limits.RECENT_BYTES
    for _, segment in reversed(list(state.segments)):
        left -= state.size_of(segment)
        if chosen and left < 0:
            break
        chosen.append(segment)
    found = ProducerStateManager(end_offset=chosen[-1].base_offset if chosen else 0)
    for segment in reversed(chosen):
        replay_segment(segment, state.size_of(segment), found)
    return found.producers
