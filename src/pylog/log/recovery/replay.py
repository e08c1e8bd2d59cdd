"""Replays a segment's batches into the state of the producers."""

from __future__ import annotations

import numpy as np

from pylog.index.transaction_index import AbortedTransaction
from pylog.log.producer_state import ProducerStateManager
from pylog.record.format import PRODUCER_ID
from pylog.segment.batch_walk import crc_is_good, possible_markers, walk
from pylog.segment.segment import LogSegment


def replay_segment(segment: LogSegment, size: int, state: ProducerStateManager) -> tuple[list[AbortedTransaction], bool]:
    """Replays a segment's batches at and above the state's end offset.

    Returns:
        The transactions that they abort, and whether the list is complete: damage may hide markers.
    """
    position = segment.locate(max(state.end_offset, segment.base_offset))
    aborted: list[AbortedTransaction] = []
    complete = True
    for stretch in walk(segment, position, size, None):
        aborted += state.replay(stretch.buffer, stretch.table)
        possible = possible_markers(stretch.table) & (stretch.table[PRODUCER_ID] >= 0)
        intact = all(crc_is_good(stretch.buffer, stretch.table, batch) for batch in np.flatnonzero(possible).tolist())
        complete &= intact and stretch.damage is None
    return aborted, complete
