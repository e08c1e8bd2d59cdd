"""The metrics of a consumer, under kafka-python's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pylog.compat.kafka.metrics import Meter, Metrics, now, zero
from pylog.consumer.core import ConsumerCore
from pylog.record.types import TopicPartition


class ConsumerMetrics(Metrics):
    """The metrics of one consumer. What only a network has is 0.

    Args:
        core: the consumer's core; never the consumer, which is collected when it is dropped.
        config: the consumer's options.

    Attributes:
        commits: seconds of its commits.
        sizes: bytes of the keys and values of each fetch.
    """

    def __init__(self, core: ConsumerCore, config: Mapping[str, Any]) -> None:
        self.commits = Meter()
        self._seconds = Meter()  # of each poll that returned records
        self._records = Meter()
        self.sizes = Meter()
        self._joins = Meter()
        self._polls = Meter()
        self._polled_at = now()
        self._member_id = ""
        self._core = core
        super().__init__(config, self._table(config["metric_group_prefix"]))

    def polled(self, seconds: float) -> None:
        """Notes a poll, in which heartbeats are sent and a group is joined.

        Args:
            seconds: how long it took.
        """
        self._polls.add(seconds)
        self._polled_at = now()
        member = self._core.assignment.identity.member
        if member is not None and member.member_id not in ("", self._member_id):
            self._member_id = member.member_id
            self._joins.add(seconds)

    def fetched(self, found: Mapping[TopicPartition, list[Any]], seconds: float) -> None:
        """Notes a poll that returned records.

        Args:
            found: the records by partition.
            seconds: how long it took.
        """
        self._seconds.add(seconds)
        self._records.add(sum(map(len, found.values())))

    def _table(self, prefix: str) -> Any:
        seconds, records, size, commits, joins = self._seconds, self._records, self.sizes, self.commits, self._joins
        return {
            "kafka-metrics-count": {"count": lambda: 26.0},
            f"{prefix}-metrics": dict.fromkeys(("connection-close-rate", "connection-count", "connection-creation-rate"), zero),
            f"{prefix}-fetch-manager-metrics": {
                "bytes-consumed-rate": size.rate,
                "fetch-latency-avg": lambda: seconds.average * 1000,
                "fetch-latency-max": lambda: seconds.largest * 1000,
                "fetch-rate": seconds.frequency,
                "fetch-size-avg": lambda: size.average,
                "fetch-size-max": lambda: size.largest,
                "records-consumed-rate": records.rate,
                "records-lag-max": self._lag,
                "records-per-request-avg": lambda: records.average,
            },
            f"{prefix}-coordinator-metrics": {
                "assigned-partitions": lambda: float(len(self._core.assignment.partitions)),
                "commit-latency-avg": lambda: commits.average * 1000,
                "commit-latency-max": lambda: commits.largest * 1000,
                "commit-rate": commits.frequency,
                "heartbeat-rate": self._polls.frequency,
                "join-rate": joins.frequency,
                "join-time-avg": lambda: joins.average * 1000,
                "join-time-max": lambda: joins.largest * 1000,
                "last-heartbeat-seconds-ago": lambda: now() - self._polled_at,
                **dict.fromkeys(("heartbeat-response-time-max", "sync-rate", "sync-time-avg", "sync-time-max"), zero),
            },
        }

    def _lag(self) -> float:
        """Returns the largest number of records that a partition has after the position."""
        lags = [
            self._core.log(partition.partition).end_offset - partition.position
            for partition in list(self._core.assignment.partitions.values())
            if partition.position is not None
        ]
        return float(max(lags, default=0))
