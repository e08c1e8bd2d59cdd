"""Callbacks of kafka-python's options: each one that is accepted is called."""

from __future__ import annotations

from typing import Any

import pytest

import pylog.compat.kafka as kafka
from compat.conftest import Servers
from pylog.compat.kafka import errors
from pylog.compat.kafka.metrics import AbstractMetricsReporter, KafkaMetric

PLACE = kafka.TopicPartition("orders", 0)


def test_the_default_callback_is_told_of_a_commit_without_one(memory: Servers) -> None:
    with kafka.KafkaProducer(**memory) as producer:
        producer.send("orders", b"a")
    by_default: list[Any] = []
    own: list[Any] = []
    consumer = kafka.KafkaConsumer(
        "orders",
        **memory,
        auto_offset_reset="earliest",
        group_id="billing",
        enable_auto_commit=False,
        default_offset_commit_callback=lambda *given: by_default.append(given),
    )
    consumer.poll()
    consumer.commit_async()
    consumer.commit_async(callback=lambda *given: own.append(given))
    consumer.commit()
    assert [offsets for offsets, _ in (*by_default, *own)] == [{PLACE: kafka.OffsetAndMetadata(1, "", 0)}] * 2
    consumer.close()


def test_reporters_are_told_of_each_metric_and_closed_with_the_client(memory: Servers) -> None:
    calls: list[Any] = []

    class Reporter(AbstractMetricsReporter):
        def init(self, metrics: list[KafkaMetric]) -> None:
            calls.append(metrics)

        def metric_change(self, metric: KafkaMetric) -> None:
            calls.append((metric.metric_name.group, metric.metric_name.name, metric.value()))

        def metric_removal(self, metric: KafkaMetric) -> None:
            raise AssertionError

        def configure(self, configs: Any) -> None:
            raise AssertionError

        def close(self) -> None:
            calls.append("closed")

    for make in (kafka.KafkaProducer, kafka.KafkaConsumer, kafka.KafkaAdminClient):
        calls.clear()
        client = make(**memory, metric_reporters=[Reporter])
        assert calls[0] == []
        if not isinstance(client, kafka.KafkaAdminClient):
            assert len(calls) == 1 + len(client.metrics(raw=True) or ())
        client.close()
        client.close()
        assert calls[-1] == "closed"
        assert calls.count("closed") == 1
    told = {name for group, name, _ in calls[1:-1] if group == "admin-metrics"}
    assert {"request-latency-avg", "connection-count", "throttle-time-max"} <= told
    assert ("kafka-metrics-count", "count", float(len(calls) - 2)) in calls
    for make in (kafka.KafkaConsumer, kafka.KafkaAdminClient):
        with pytest.raises(errors.KafkaConfigurationError, match="metric_reporters=5 is not a list of classes"):
            make(**memory, metric_reporters=5)
