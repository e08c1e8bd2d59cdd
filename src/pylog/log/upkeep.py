"""What a store asks of its logs that no caller of the store may: retention and compaction, which the topic's options decide."""

from __future__ import annotations

from functools import partial

from pylog.log.log import Log
from pylog.log.maintenance.cleaner import Task, Throttle
from pylog.log.maintenance.trimming import Retained, planned
from pylog.log.writing.partition_writer import PartitionWriter


def mutator_of(log: Log) -> PartitionWriter:
    """The changing side of a log that is open for writing, for its store. Raises ReadOnlyError, ClosedError."""
    return log._writing_side()


def cleaning_of(log: Log, throttle: Throttle, buffer_size: int, now_ms: int) -> Task:
    """A log as compaction takes it (see `Task`). Raises as `mutator_of`."""
    look = partial(log.look, committed=True, settled=True)
    return Task(log._writing_side(), log._source, look, throttle, buffer_size, now_ms)


def retention_plan(log: Log, now_ms: int, group: str | None, committed: int | None) -> Retained | None:
    """What `PartitionWriter.retain` would delete now; None if the topic's retention waits for another group. Writes nothing."""
    config = log.config
    plan = planned(log._source, log.look(), now_ms, committed, config)
    return plan if config.retention_group == group else None
