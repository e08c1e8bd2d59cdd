"""Options of kafka-python's clients that contradict each other, and its sticky partitioner."""

from __future__ import annotations

import pytest

import pylog.compat.kafka as kafka
from compat.conftest import Servers
from pylog.compat.kafka import errors


@pytest.mark.parametrize(
    "options",
    [
        {"fetch_max_wait_ms": 50_000, "request_timeout_ms": 40_000},
        {"request_timeout_ms": 50_000, "connections_max_idle_ms": 40_000},
    ],
)
def test_times_that_each_version_refuses_are_refused(memory: Servers, options: dict[str, int]) -> None:
    with pytest.raises(errors.KafkaConfigurationError, match="is not less than"):
        kafka.KafkaConsumer(**memory, **options)


def test_times_that_only_version_2_accepts_are_accepted(memory: Servers) -> None:
    kafka.KafkaConsumer(**memory, fetch_max_wait_ms=50_000, connections_max_idle_ms=float("inf")).close()
    kafka.KafkaConsumer(**memory, fetch_max_wait_ms="ignored, so any value").close()


def test_a_short_session_timeout_is_accepted_with_the_heartbeat_of_the_default(memory: Servers) -> None:
    for options in (
        {"group_id": "g", "session_timeout_ms": 6_000},
        {"group_id": "g", "session_timeout_ms": 3_001},
        {"session_timeout_ms": 1_000},
    ):
        with kafka.KafkaConsumer("orders", **memory, **options) as consumer:
            assert consumer.poll() == {}
            assert consumer.config["heartbeat_interval_ms"] == 3_000
    with pytest.raises(errors.KafkaConfigurationError, match="is not less than session_timeout_ms=3000"):
        kafka.KafkaConsumer("orders", **memory, group_id="g", session_timeout_ms=3_000)


class Available:
    """What a partitioner is given, with some partitions unavailable."""

    def __init__(self, every: set[int], available: set[int]) -> None:
        self.every, self.available = every, available

    def topics(self) -> set[str]:
        return {"orders"}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self.every if topic == "orders" else None

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        return self.available if topic == "orders" else None


def test_the_sticky_partitioner_stays_until_a_batch_is_full_and_avoids_unavailable_partitions() -> None:
    sticky = kafka.partitioner.StickyPartitioner()  # type: ignore[attr-defined]
    cluster = Available({0, 1, 2}, {0, 1, 2})

    def chosen() -> int:
        found: int = sticky.partition("orders", None, None, b"x", b"x", cluster)
        return found

    first = chosen()
    assert {chosen() for _ in range(20)} == {first}
    sticky.on_new_batch("orders", cluster, first)
    second = chosen()
    assert second != first
    sticky.on_new_batch("orders", cluster, first)  # of a batch that was full before
    assert chosen() == second
    cluster.available = {0, 1, 2} - {second}
    assert chosen() != second
    cluster.available = {second}
    assert chosen() == second
    sticky.on_new_batch("orders", cluster, second)
    assert chosen() == second
    with pytest.raises(ValueError, match="not found"):
        sticky.partition("missing", None, None, b"x", b"x", cluster)
