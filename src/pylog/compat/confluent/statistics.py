"""The consumer's part of the statistics that `stats_cb` gets: the keys of librdkafka that mean something without a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pylog.compat.clusters import Cluster
from pylog.compat.confluent.events import Counts, topics_of
from pylog.compat.confluent.structs import OFFSET_INVALID
from pylog.errors import PylogError
from pylog.record.types import TopicPartition as NativePartition


class Progress(NamedTuple):
    """How far a consumer is in a partition.

    Attributes:
        position: the offset after the last record that was returned; None if none was.
        stored: the offset for the next commit; None without one.
        committed: the group's committed offset; None without one.
    """

    position: int | None
    stored: int | None
    committed: int | None


def consumer_statistics(
    cluster: Cluster, counts: Counts, partitions: Mapping[NativePartition, Progress], age_us: int, rebalance_count: int
) -> dict[str, Any]:
    """Returns records and bytes, by partition its ends and lag, and the group.

    Args:
        cluster: the store.
        counts: records and bytes that were read.
        partitions: those that are assigned.
        age_us: the client's age in microseconds.
        rebalance_count: the number of assignments by the group.
    """
    records, size = counts.total
    figures = {tuple(each): _figures(cluster, each, progress, counts) for each, progress in partitions.items()}
    state = {"state": "up", "stateage": age_us // 1000, "join_state": "steady" if rebalance_count else "init"}
    return {
        "rxmsgs": records,
        "rxmsg_bytes": size,
        "metadata_cache_cnt": len({each.topic for each in partitions}),
        "topics": topics_of(figures, age_us),  # type: ignore[arg-type]  # a pair
        "cgrp": state
        | {"rebalance_age": 0, "rebalance_cnt": rebalance_count, "rebalance_reason": "", "assignment_size": len(partitions)},
    }


def _figures(cluster: Cluster, partition: NativePartition, progress: Progress, counts: Counts) -> dict[str, Any]:
    records, size = counts.of.get(tuple(partition), (0, 0))  # type: ignore[arg-type]  # a pair
    low, high, stable = _ends(cluster, partition)
    position, stored, committed = (OFFSET_INVALID if each is None else each for each in progress)
    return {
        "fetch_state": "active",
        "next_offset": max(position, 0),
        "app_offset": position,
        "stored_offset": stored,
        "commited_offset": committed,  # librdkafka has both spellings
        "committed_offset": committed,
        "lo_offset": low,
        "hi_offset": high,
        "ls_offset": stable,
        "consumer_lag": _lag(stable, max(position, committed)),
        "consumer_lag_stored": _lag(stable, stored),
        "rxmsgs": records,
        "rxbytes": size,
        "msgs": records,
    }


def _ends(cluster: Cluster, partition: NativePartition) -> tuple[int, int, int]:
    try:
        log = cluster.store.log(*partition)
    except PylogError:  # the topic was deleted
        return (OFFSET_INVALID,) * 3
    return log.start_offset, log.end_offset, log.stable_offset


def _lag(end: int, reached: int) -> int:
    return end - reached if end >= 0 and reached >= 0 else -1
