"""Rebuilds the state of the producers at a log's end: the newest snapshot, and the batches after it."""

from __future__ import annotations

from functools import partial

import numpy as np

from pylog import trace
from pylog.fs import FileSystem
from pylog.index.transaction_index import AbortedTransaction
from pylog.log.producer_state import ProducerStateManager
from pylog.log.recovery.findings import Finding
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.recovery.producer_snapshots import Idleness, load_snapshot
from pylog.record.format import PRODUCER_ID
from pylog.segment.batch_walk import first_bad_crc, possible_markers, walk
from pylog.segment.segment import LogSegment


def replay_segment(segment: LogSegment, size: int, state: ProducerStateManager) -> tuple[list[AbortedTransaction], bool]:
    """Replays a segment's batches at and above the state's end offset.

    Returns:
        The transactions that they abort, and whether the list is complete: damage may hide markers.
    """
    position = segment.locate(max(state.end_offset, segment.base_offset))
    aborted: list[AbortedTransaction] = []
    complete = True
    for walked in walk(segment, position, size, None):
        aborted += state.replay(walked.buffer, walked.table)
        possible = possible_markers(walked.table) & (walked.table[PRODUCER_ID] >= 0)
        bad = first_bad_crc(walked.buffer, walked.table, np.flatnonzero(possible))
        complete &= bad is None and walked.damage is None
    return aborted, complete


def load_producers(source: Source, loaded: Loaded) -> None:
    """Returns the producer state at the end. Also rebuilds the transaction index of a segment whose `.index` was missing."""
    now_ms, expiration_ms = source.clock.now_ms(), source.config.producer_id_expiration_ms
    loaded.producers, complaints = producers_at_end(source.fs, source.directory, loaded, Idleness(now_ms, expiration_ms))
    loaded.producers.noted = lambda timestamp: _noted(now := source.clock.now_ms(), now, timestamp)
    forgotten = loaded.producers.expire(now_ms, expiration_ms)
    if forgotten:
        trace.later(trace.PRODUCERS_EXPIRED, source.partition, producers=len(forgotten), reason="idle when the log was opened")
    loaded.findings += [Finding("rebuilt", source.directory, 0, 0, 0, None, text) for text in complaints]


def producers_at_end(fs: FileSystem, directory: str, loaded: Loaded, idle: Idleness) -> tuple[ProducerStateManager, list[str]]:
    """Loads the newest snapshot and replays the batch headers after it. Cost: those headers; none after a clean shutdown.

    A producer has been idle since its last batch's largest timestamp. If that is missing or in the future, since its segment was
    last written.

    A segment without `.index` has lost its derived files, including the transaction index, so the replay begins there at the
    latest. Of a log that begins in a remote tier, the snapshot at the first local segment tells of the producers before it.
    """
    first = loaded.segments.bases[0] if loaded.segments else 0
    start = first if loaded.remote_start is None else min(first, loaded.remote_start)
    end = min([loaded.next_offset, *loaded.unindexed])
    state, complaints = load_snapshot(fs, directory, loaded.snapshots, start, end, idle)
    for segment, size in loaded.segments_from(state.end_offset):
        state.noted = partial(_noted, segment.appends.last(idle.now_ms), idle.now_ms)
        if loaded.plain and segment is loaded.segments[-1]:
            continue  # already walked, without a producer's batch
        aborted, complete = replay_segment(segment, size, state)
        segment.add_aborted(aborted, complete=complete)
    state.end_offset = loaded.next_offset
    return state, complaints


def _noted(written_ms: int, now_ms: int, timestamp: int) -> int:
    return timestamp if 0 <= timestamp <= now_ms else min(written_ms, now_ms)
