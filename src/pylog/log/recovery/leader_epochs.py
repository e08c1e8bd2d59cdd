"""Finds the leader epochs of a loaded log: from their checkpoint, or from the batches."""

from __future__ import annotations

import numpy as np

from pylog.directory.leader_epoch_cache import EpochEntry, assign_epoch, truncate_epochs_start
from pylog.log.recovery.loaded import Loaded
from pylog.record.format import BASE_OFFSET, LEADER_EPOCH
from pylog.segment.batch_walk import walk


def epochs_of(loaded: Loaded) -> list[EpochEntry]:
    """Returns the leader epochs for a writer. Cost: all headers if the checkpoint is missing or damaged.

    A process that raised the log start may have died before it truncated them, while the first segment is below the start. They
    are not truncated to the first segment's base: if an earlier segment is missing without a reason, they show it.
    """
    epochs = _epochs_from_batches(loaded) if loaded.epochs is None else loaded.epochs
    raised = bool(loaded.segments) and loaded.start_offset > loaded.segments.bases[0]
    return truncate_epochs_start(epochs, loaded.start_offset) if raised else epochs


def _epochs_from_batches(loaded: Loaded) -> list[EpochEntry]:
    epochs: list[EpochEntry] = []
    for segment, size in loaded.segments_from(-1):
        for walked in walk(segment, 0, size, None):
            column = walked.table[LEADER_EPOCH]
            for batch in np.flatnonzero(np.diff(column, prepend=-2)).tolist():
                epochs = assign_epoch(epochs, int(column[batch]), int(walked.table[BASE_OFFSET, batch]))
    return epochs
