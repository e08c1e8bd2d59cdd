"""The metrics of a store: their table, samples of them, and their text format for monitoring systems."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from pylog.errors import InvalidArgumentError

FORMATS: Final = ("openmetrics", "text")
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
_FAULTS: Final = frozenset({"log_unreadable", "log_skipped_records"})


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
    "log_durable_offset": Metric("gauge", "", "Records below it survive a power loss."),
    "log_stable_offset": Metric("gauge", "", "The first offset of the earliest open transaction, else the log's end."),
    "log_segments": Metric("gauge", "", "Segments of the log."),
    "log_size_bytes": Metric("gauge", "bytes", "Bytes of the log's records, including those that are only in the archive."),
    "log_local_start_offset": Metric("gauge", "", "The smallest offset on the disk, for a log that has an archive."),
    "log_local_size_bytes": Metric("gauge", "bytes", "Bytes of the log's records on the disk, for a log that has an archive."),
    "log_archived_end_offset": Metric("gauge", "", "The offset after the last archived record."),
    "log_archived_size_bytes": Metric("gauge", "bytes", "Bytes of the log's records in the archive."),
    "log_upload_lag_bytes": Metric("gauge", "bytes", "Bytes of sealed segments that can be archived and are not yet."),
    "log_upload_lag_seconds": Metric("gauge", "seconds", "The age of the last append to the first of these segments, else 0."),
    "log_uploaded_segments": Metric("counter", "", "Segments that this process archived by `tick`."),
    "log_uploaded_bytes": Metric("counter", "bytes", "Bytes of the records in these segments."),
    "log_upload_failures": Metric("counter", "", "Ticks of this process that could not complete the log's archive."),
    "log_retired_segments": Metric("counter", "", "Local segments that this process deleted because the archive has them."),
    "log_appended_records": Metric("counter", "", "Records that this process appended."),
    "log_appended_bytes": Metric("counter", "bytes", "Bytes of batches that this process wrote."),
    "log_commits": Metric("counter", "", "Writes by this process of one append or of several together."),
    "log_syncs": Metric("counter", "", "Syncs of this process that appends waited for."),
    "log_sync_seconds": Metric("counter", "seconds", "How long appends of this process waited for syncs."),
    "log_last_append_timestamp_seconds": Metric(
        "gauge", "seconds", "When this process appended last, in seconds since 1970; missing before its first append."
    ),
    "log_fetched_records": Metric("counter", "", "Records that consumers of this process fetched."),
    "log_fetched_bytes": Metric("counter", "bytes", "Bytes of keys, values and columns of these records, in memory."),
    "log_deleted_segments": Metric("counter", "", "Segments that this process deleted: retention and delete_records."),
    "log_deleted_bytes": Metric("counter", "bytes", "Bytes of the records in these segments."),
    "log_compactions": Metric("counter", "", "Compactions by this process."),
    "log_compacted_records": Metric("counter", "", "Records that these compactions removed."),
    "log_dirty_ratio": Metric("gauge", "", "The share of a compacted topic's log that no compaction has cleaned."),
    "log_recoveries": Metric("counter", "", "Times that this process checked the end of a log that was not closed cleanly."),
    "log_recovered_bytes": Metric("counter", "bytes", "Bytes that these checks read."),
    "log_unreadable": Metric("gauge", "", "1 if the log is damaged, records are missing, or it cannot be opened; else 0."),
    "log_skipped_records": Metric(
        "gauge", "", "Records of __consumer_offsets that are skipped, because Kafka never writes them."
    ),
    "background_failures": Metric("counter", "", "Errors of background work in this process: flushes, ticks, producers."),
    "log_newest_timestamp_seconds": Metric("gauge", "seconds", "The largest timestamp in the log, in seconds since 1970."),
    "group_offset": Metric("gauge", "", "The offset that a group has committed."),
    "group_last_commit_timestamp_seconds": Metric("gauge", "seconds", "When a group committed last, in seconds since 1970."),
    "group_lag": Metric("gauge", "", "The log's end less the offset that a group has committed."),
    "group_lag_records": Metric("gauge", "", "Records that a group has not read, without markers and gaps."),
    "group_lag_seconds": Metric("gauge", "seconds", "The age of the first record that a group has not read, else 0."),
    "group_members": Metric("gauge", "", "Members of a group."),
    "group_empty_members": Metric("gauge", "", "Members of a group that have no partition to read."),
    "group_topic_members": Metric("gauge", "", "Members of a group that read a topic."),
    "group_assigned_partitions": Metric("gauge", "", "Partitions of a topic that members of a group read."),
    "group_state": Metric("gauge", "", "1 for the state that a group has, 0 for the others."),
    "group_verdict": Metric("gauge", "", "1 for the verdict on a group, as `pylog groups health` has it, 0 for the others."),
    "archive_requests": Metric("counter", "", "Requests of this process to the archive, by kind: get, put, head, delete, list."),
    "archive_sent_bytes": Metric("counter", "bytes", "Bytes that this process sent to the archive."),
    "archive_received_bytes": Metric("counter", "bytes", "Bytes that this process received from the archive."),
    "archive_waiting_partitions": Metric("gauge", "", "Partitions of deleted topics whose objects are still in the archive."),
    "archive_unfinished_deletions": Metric(
        "gauge", "", "Topics whose deletion, which keeps the archive, has begun and is not complete."
    ),
    "archive_deletion_failures": Metric(
        "counter", "", "Ticks of this process that could not delete the objects of deleted topics."
    ),
    "store_free_bytes": Metric("gauge", "bytes", "Bytes that are free on the disk of the store."),
    "build_info": Metric("gauge", "", "1, with the version of pylog."),
}


class Sample(NamedTuple):
    """The value of a metric at one time.

    Attributes:
        name: a key of `METRICS`.
        labels: `topic` and `partition`, for groups `group`, `state` or `verdict`, for requests `request`; empty for other metrics
            of the whole store.
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
    last_append_ms: int = 0
    deleted_segments: int = 0
    deleted_bytes: int = 0
    compactions: int = 0
    compacted_records: int = 0
    recoveries: int = 0
    recovered_bytes: int = 0

    def wrote(self, records: int, now_ms: int) -> None:
        """Counts a published write at a time of the wall clock, in milliseconds."""
        self.records += records
        self.commits += 1
        self.last_append_ms = now_ms

    def synced(self, seconds: float) -> None:
        """Counts a sync that an append waited for."""
        self.syncs += 1
        self.sync_seconds += seconds

    def deleted(self, segments: int, size: int) -> None:
        """Counts deleted segments, and the bytes of their records."""
        self.deleted_segments += segments
        self.deleted_bytes += size

    def compacted(self, removed: int) -> None:
        """Counts a compaction, and the records that it removed."""
        self.compactions += 1
        self.compacted_records += removed

    def recovered(self, size: int) -> None:
        """Counts a check of the log's end, and the bytes that were checked."""
        self.recoveries += 1
        self.recovered_bytes += size


class FetchCounters:
    """Counts what the consumers of this process fetched from a log. Methods may be called from any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self.records = self.bytes = 0

    def fetched(self, records: int, size: int) -> None:
        """Counts records, and their bytes in memory."""
        with self._guard:
            self.records += records
            self.bytes += size


class Family(NamedTuple):
    """A metric and its samples, as formats list them.

    Attributes:
        name: the whole name, without `_total`.
        metric: its kind, unit and help.
        samples: pairs of labels and a value. Labels that are one object for several samples are formatted once.
    """

    name: str
    metric: Metric
    samples: Sequence[tuple[Mapping[str, str], float]]


def families(samples: Iterable[Sample], labels: Mapping[str, str] | None = None) -> list[Family]:
    """Returns samples by metric, in the order of `METRICS`, with `pylog_` before each name.

    Args:
        samples: in any order.
        labels: added to each sample, before its own.
    """
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {name: [] for name in METRICS}
    whole: dict[int, Mapping[str, str]] = {}  # of the labels of several samples
    kept = list(samples)  # so that no other object gets the identity of labels
    for sample in kept:
        own = sample.labels
        found[sample.name].append((whole.setdefault(id(own), {**labels, **own}) if labels else own, sample.value))
    return [Family(f"pylog_{name}", METRICS[name], rows) for name, rows in found.items() if rows]


def exposition(
    samples: Iterable[Sample],
    format: str = "openmetrics",  # noqa: A002 - as in `cat --format`
    *,
    labels: Mapping[str, str] | None = None,
) -> str:
    """Returns samples as text that Prometheus and most monitoring systems read.

    Args:
        samples: in any order, as `Store.metrics` returns them.
        format: "openmetrics", or "text" for Prometheus's older format, which the text files of its node_exporter have.
        labels: added to each sample, such as `{"store": "shop"}`.

    Returns:
        Lines of text; names begin with `pylog_`.

    Raises:
        InvalidArgumentError: there is no such format.

    Cost: a few microseconds for each sample.

    >>> samples = [Sample("log_syncs", {"topic": "orders", "partition": "0"}, 3)]
    >>> print(exposition(samples), end="")
    # TYPE pylog_log_syncs counter
    # HELP pylog_log_syncs Syncs of this process that appends waited for.
    pylog_log_syncs_total{topic="orders",partition="0"} 3
    # EOF
    >>> print(exposition(samples, "text"), end="")
    # HELP pylog_log_syncs_total Syncs of this process that appends waited for.
    # TYPE pylog_log_syncs_total counter
    pylog_log_syncs_total{topic="orders",partition="0"} 3
    """
    return formatted(families(samples, labels), format)


def formatted(of: Iterable[Family], format: str = "openmetrics") -> str:  # noqa: A002
    """Returns families of metrics as text. As `exposition`."""
    if format not in FORMATS:
        raise InvalidArgumentError(f"format={format!r} is not one of {', '.join(map(repr, FORMATS))}")
    lines: list[str] = []
    texts: dict[int, str] = {}
    kept = list(of)
    for family in kept:
        total = f"{family.name}_total" if family.metric.kind == "counter" else family.name
        lines += _openmetrics_head(family) if format == "openmetrics" else _text_head(total, family.metric)
        for labels, value in family.samples:
            text = texts.get(id(labels))
            if text is None:
                text = texts[id(labels)] = "{" + ",".join([f'{name}="{_escaped(each)}"' for name, each in labels.items()]) + "}"
            lines.append(f"{total}{text} {value}")
    return "\n".join([*lines, "# EOF", ""] if format == "openmetrics" else [*lines, ""])


def _openmetrics_head(family: Family) -> list[str]:
    metric = family.metric
    unit = [f"# UNIT {family.name} {metric.unit}"] if metric.unit else []
    return [f"# TYPE {family.name} {metric.kind}", *unit, f"# HELP {family.name} {metric.help}"]


def _text_head(name: str, metric: Metric) -> list[str]:
    return [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]


def _escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


class Measured(Protocol):
    """A store."""

    def metrics(self) -> Iterable[Sample]: ...


class Collector:
    """Collects the metrics of a store for a registry of `prometheus_client`, in a program that serves its own metrics.

    Args:
        store: an open `Store`.
        labels: added to each sample, such as `{"store": "shop"}`.
        internal: true to include Kafka's internal topics, such as `__consumer_offsets`.

    Register it with `prometheus_client.REGISTRY.register(Collector(store))`. Each scrape calls `Store.metrics`.

    >>> import pylog, tempfile
    >>> from prometheus_client import CollectorRegistry
    >>> store = pylog.open(tempfile.mkdtemp())
    >>> _ = store.create_topic("orders")
    >>> registry = CollectorRegistry()
    >>> registry.register(Collector(store))
    >>> registry.get_sample_value("pylog_log_end_offset", {"topic": "orders", "partition": "0"})
    0
    >>> store.close()
    """

    def __init__(self, store: Measured, *, labels: Mapping[str, str] | None = None, internal: bool = False) -> None:
        self._store = store
        self._labels = labels
        self._internal = internal

    def collect(self) -> Iterator[Any]:
        """Yields families of `prometheus_client`. Raises as `Store.metrics`."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
        samples = self._store.metrics()
        for family in families(samples if self._internal else external(samples), self._labels):
            found = kinds[family.metric.kind](family.name, family.metric.help, unit=family.metric.unit)
            for labels, value in family.samples:
                found.add_sample(family.name + ("_total" if family.metric.kind == "counter" else ""), labels, value)
            yield found

    def describe(self) -> list[Any]:
        """Returns nothing: a registry then does not collect when the collector is registered."""
        return []


def external(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yields samples without those of Kafka's internal topics, except samples that report damage there."""
    for sample in samples:
        if sample.labels.get("topic") not in _INTERNAL or (sample.value and sample.name in _FAULTS):
            yield sample
