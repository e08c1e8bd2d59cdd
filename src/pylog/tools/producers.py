"""Finds the highest leader epochs and producer ids of a directory, which its next writer must not reuse."""

from __future__ import annotations

from typing import NamedTuple

from pylog.clock import Clock
from pylog.fs import FileSystem
from pylog.record.format import LEADER_EPOCH, PRODUCER_ID
from pylog.record.types import TopicPartition
from pylog.tools.headers import walked_ranges
from pylog.tools.partitions import partition_reader, targets


class Numbers(NamedTuple):
    """The highest numbers of a log directory.

    Attributes:
        leader_epochs: the highest leader epoch of each partition.
        next_producer_id: the highest producer id plus one; 0 if no batch has one.
    """

    leader_epochs: dict[TopicPartition, int]
    next_producer_id: int


def highest_numbers(fs: FileSystem, root: str, clock: Clock) -> Numbers:
    """Returns the highest leader epochs and the next producer id of a log directory.

    Raises:
        StorageFailedError: a file cannot be read.

    Cost: one read of all logs; memory for one chunk.
    """
    epochs: dict[TopicPartition, int] = {}
    producer_id = -1
    for target in targets(fs, root):
        highest = 0
        for _, walked in walked_ranges(partition_reader(fs, target, clock)()):
            highest = max(highest, int(walked.table[LEADER_EPOCH].max(initial=0)))
            producer_id = max(producer_id, int(walked.table[PRODUCER_ID].max(initial=-1)))
        epochs[target.key] = highest
    return Numbers(epochs, producer_id + 1)
