"""Takes the samples of a store's metrics: of each partition, and of what each group has still to read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pylog.errors import NotALogDirectoryError, UnknownTopicOrPartitionError
from pylog.log.log import Log
from pylog.log.state import LogState
from pylog.metrics import Sample
from pylog.record.types import TopicPartition

if TYPE_CHECKING:
    from pylog.clients import Clients


def samples_of(store: Clients) -> Iterator[Sample]:
    """All samples of a store. A partition that is deleted meanwhile, or whose directory is not to be had, has none."""
    ends: dict[TopicPartition, int] = {}
    for topic in store.topics().values():
        for number in topic.partition_ids:
            with contextlib.suppress(UnknownTopicOrPartitionError, NotALogDirectoryError):
                log = store.log(topic.name, number)
                state = log.look()
                ends[log.partition] = state.end_offset
                yield from _log_samples(log, state)
    for group in store.groups():
        for place, committed in store.offsets.fetch(group).items():
            if place in ends:
                yield Sample("group_lag", {"group": group, **_labels(place)}, max(0, ends[place] - committed.offset))


def _log_samples(log: Log, state: LogState) -> Iterator[Sample]:
    counters, labels = log.counters, _labels(log.partition)
    values = {
        "log_start_offset": state.start_offset,
        "log_end_offset": state.end_offset,
        "log_durable_offset": state.durable_offset,
        "log_segments": len(state.segments),
        "log_size_bytes": sum(state.size_of(segment) for _, segment in state.segments),
        "log_appended_records": counters.records,
        "log_appended_bytes": counters.bytes,
        "log_commits": counters.commits,
        "log_syncs": counters.syncs,
        "log_sync_seconds": counters.sync_seconds,
    }
    for name, value in values.items():
        yield Sample(name, labels, value)


def _labels(place: TopicPartition) -> dict[str, str]:
    return {"topic": place.topic, "partition": str(place.partition)}
