"""The metrics of a store: their table, samples of them, and their text format for monitoring systems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final, NamedTuple

import msgspec


class Metric(NamedTuple):
    """A quantity that can be measured.

    Attributes:
        kind: `"gauge"`, which goes up and down, or `"counter"`, which only grows, from 0 when this process opens the log.
        unit: `"bytes"`, `"seconds"` or `""`; the metric's name ends with it.
        help: a sentence.
    """

    kind: str
    unit: str
    help: str


METRICS: Final[Mapping[str, Metric]] = {
    "log_start_offset": Metric("gauge", "", "The smallest offset that can be read."),
    "log_end_offset": Metric("gauge", "", "The offset that the next record will get."),
    "log_durable_offset": Metric("gauge", "", "All records below it outlive a power loss."),
    "log_segments": Metric("gauge", "", "Segments of the log."),
    "log_size_bytes": Metric("gauge", "bytes", "Bytes of the log's records."),
    "log_appended_records": Metric("counter", "", "Records that this process appended."),
    "log_appended_bytes": Metric("counter", "bytes", "Bytes of batches that this process wrote."),
    "log_commits": Metric("counter", "", "Writes by this process of one append or of several together."),
    "log_syncs": Metric("counter", "", "Syncs of this process that appends waited for."),
    "log_sync_seconds": Metric("counter", "seconds", "How long appends of this process waited for syncs."),
    "log_unreadable": Metric("gauge", "", "1 if the log is damaged or cannot be opened, else 0."),
    "log_skipped_records": Metric(
        "gauge", "", "Records of __consumer_offsets that are skipped, because Kafka never writes them."
    ),
    "background_failures": Metric("counter", "", "Errors of background work in this process: flushes, ticks, producers."),
    "group_lag": Metric("gauge", "", "Offsets between what a group has committed and the log's end."),
}


class Sample(NamedTuple):
    """The value of a metric at one time.

    Attributes:
        name: a key of `METRICS`.
        labels: `topic` and `partition`, and for groups `group`; empty for metrics of the whole store.
        value: in the metric's unit.
    """

    name: str
    labels: Mapping[str, str]
    value: float


class Counters(msgspec.Struct):
    """Counts what this process did to a log since it opened the log. Written under the log's lock, read without it."""

    records: int = 0
    bytes: int = 0
    commits: int = 0
    syncs: int = 0
    sync_seconds: float = 0.0

    def wrote(self, records: int) -> None:
        """Counts a published write."""
        self.records += records
        self.commits += 1

    def synced(self, seconds: float) -> None:
        """Counts a sync that an append waited for."""
        self.syncs += 1
        self.sync_seconds += seconds


def exposition(samples: Iterable[Sample]) -> str:
    """Returns samples as text in the OpenMetrics format, which Prometheus and most monitoring systems read.

    Args:
        samples: in any order, as `Store.metrics` returns them.

    Returns:
        Lines of UTF-8 text; names begin with `pylog_`.

    >>> print(exposition([Sample("log_syncs", {"topic": "orders", "partition": "0"}, 3)]), end="")
    # TYPE pylog_log_syncs counter
    # HELP pylog_log_syncs Syncs of this process that appends waited for.
    pylog_log_syncs_total{topic="orders",partition="0"} 3
    # EOF
    """
    order = list(METRICS)
    lines = []
    for name, found in groupby(sorted(samples, key=lambda sample: order.index(sample.name)), key=lambda sample: sample.name):
        metric = METRICS[name]
        lines.append(f"# TYPE pylog_{name} {metric.kind}")
        if metric.unit:
            lines.append(f"# UNIT pylog_{name} {metric.unit}")
        lines.append(f"# HELP pylog_{name} {metric.help}")
        suffix = "_total" if metric.kind == "counter" else ""
        lines += [f"pylog_{name}{suffix}{{{_labels(sample)}}} {sample.value}" for sample in found]
    return "\n".join([*lines, "# EOF", ""])


def _labels(sample: Sample) -> str:
    return ",".join([f'{name}="{_escaped(value)}"' for name, value in sample.labels.items()])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
