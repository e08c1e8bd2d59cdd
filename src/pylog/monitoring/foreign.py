"""The metrics of other exporters, from pylog's own samples: dashboards and alert rules made for them work unchanged.

Names and labels are those of kafka_exporter, kminion and kafka-lag-exporter. A directory is one broker that leads all partitions,
each with one replica in sync. Metrics of brokers' requests, controllers and networks do not exist: zeros would be wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from pylog.errors import InvalidArgumentError
from pylog.metrics import Family, Metric, Sample

Series = list[tuple[Mapping[str, str], float]]
_BY_PARTITION: Final = ("topic", "partition")


class Measurements:
    """Own samples, by name.

    Args:
        samples: as `Store.metrics` returns them.
        store: the path of the store.
    """

    def __init__(self, samples: Iterable[Sample], store: str) -> None:
        self.store = store
        self._found: dict[str, Series] = defaultdict(list)
        for sample in samples:
            self._found[sample.name].append((sample.labels, sample.value))

    def rows(self, name: str, labels: Mapping[str, str], extra: Mapping[str, str] | None = None) -> Series:
        """Returns the samples of a metric, with other names of their labels.

        Args:
            name: the name of pylog's metric.
            labels: the new name of each label to keep.
            extra: labels to add.
        """
        return [({**{new: own[old] for old, new in labels.items()}, **(extra or {})}, value) for own, value in self._found[name]]

    def totals(self, name: str, labels: Mapping[str, str], extra: Mapping[str, str] | None = None) -> Series:
        """Returns the sums over the samples with the same labels."""
        return self._combined(name, labels, extra, sum)

    def largest(self, name: str, labels: Mapping[str, str], extra: Mapping[str, str] | None = None) -> Series:
        """Returns the largest value of the samples with the same labels."""
        return self._combined(name, labels, extra, max)

    def counts(self, name: str, labels: Mapping[str, str], extra: Mapping[str, str] | None = None) -> Series:
        """Returns the number of samples with the same labels."""
        return self._combined(name, labels, extra, len)

    def _combined(
        self,
        name: str,
        labels: Mapping[str, str],
        extra: Mapping[str, str] | None,
        combine: Callable[[list[float]], float],
    ) -> Series:
        found: dict[tuple[str, ...], list[float]] = {}
        for own, value in self._found[name]:
            found.setdefault(tuple(own[old] for old in labels), []).append(value)
        names = list(labels.values())
        return [({**dict(zip(names, key, strict=True)), **(extra or {})}, combine(values)) for key, values in found.items()]

    def partition_counts(self, labels: Mapping[str, str]) -> Series:
        """Returns the number of partitions of each topic, those that cannot be read included."""
        known = {own["topic"] for own, _ in self._found["log_end_offset"]}
        return [row for row in self.counts("log_unreadable", labels) if not known.isdisjoint(row[0].values())]

    def states(self) -> dict[str, str]:
        """Returns the state of each group."""
        return {labels["group"]: labels["state"] for labels, value in self._found["group_state"] if value}


def _gauge(name: str, help: str, rows: Series) -> Family:  # noqa: A002
    return Family(name, Metric("gauge", "", help), rows)


def foreign_families(names: Sequence[str], samples: Iterable[Sample], store: str) -> Iterator[Family]:
    """Yields metrics of other exporters.

    Args:
        names: some of the names in `EXPORTERS`.
        samples: pylog's own.
        store: the path of the store, for labels that name a cluster.

    Raises:
        InvalidArgumentError: there are no names of such an exporter.
    """
    found = Measurements(samples, store)
    for name in check_exporters(names):
        for family in EXPORTERS[name](found):
            if family.samples:
                yield family


def check_exporters(names: Sequence[str]) -> Sequence[str]:
    """Returns the names after checking them.

    Raises:
        InvalidArgumentError: there are no names of such an exporter.
    """
    for name in names:
        if name not in EXPORTERS:
            raise InvalidArgumentError(f"names={name!r} is not one of {', '.join(map(repr, EXPORTERS))}")
    return list(dict.fromkeys(names))


# ---- kafka_exporter ----------------------------------------------------------------------------------------------------------


def _kafka_exporter(found: Measurements) -> Iterator[Family]:
    by_partition, topic = {each: each for each in _BY_PARTITION}, {"topic": "topic"}
    group = {"group": "consumergroup"}
    ends = "log_end_offset"
    ones: Series = [(labels, 1) for labels, _ in found.rows(ends, by_partition)]
    zeros: Series = [(labels, 0) for labels, _ in ones]
    yield _gauge("kafka_exporter_build_info", "The version of pylog.", found.rows("build_info", {"version": "version"}))
    yield _gauge("kafka_brokers", "Number of brokers: a directory counts as one.", [({}, 1)])
    yield _gauge("kafka_broker_info", "The broker.", [({"id": "0", "address": found.store}, 1)])
    yield _gauge("kafka_topic_partitions", "Partitions of a topic.", found.partition_counts(topic))
    yield _gauge("kafka_topic_partition_current_offset", "The log's end.", found.rows(ends, by_partition))
    yield _gauge("kafka_topic_partition_oldest_offset", "The log's start.", found.rows("log_start_offset", by_partition))
    yield _gauge("kafka_topic_partition_leader", "The leader.", zeros)
    yield _gauge("kafka_topic_partition_leader_is_preferred", "1: the leader is the preferred one.", ones)
    yield _gauge("kafka_topic_partition_replicas", "Replicas.", ones)
    yield _gauge("kafka_topic_partition_in_sync_replica", "Replicas in sync.", ones)
    yield _gauge("kafka_topic_partition_under_replicated_partition", "0: it is not under-replicated.", zeros)
    yield from _of_groups(found, group, by_partition)
    for name, own in _LOG_SIZES.items():
        yield _gauge(f"kafka_log_log_{name}", "As the JMX exporter has it.", found.rows(own, by_partition))


_LOG_SIZES: Final = {
    "size": "log_size_bytes",
    "logstartoffset": "log_start_offset",
    "logendoffset": "log_end_offset",
    "numlogsegments": "log_segments",
}


def _of_groups(found: Measurements, group: Mapping[str, str], by_partition: Mapping[str, str]) -> Iterator[Family]:
    topic = {**group, "topic": "topic"}
    millis: Series = [(labels, 1000 * value) for labels, value in found.rows("group_lag_seconds", {**group, **by_partition})]
    prefix = "kafka_consumergroup_"
    yield _gauge(f"{prefix}current_offset", "The committed offset.", found.rows("group_offset", {**group, **by_partition}))
    yield _gauge(f"{prefix}current_offset_sum", "The sum of committed offsets.", found.totals("group_offset", topic))
    yield _gauge(f"{prefix}lag", "Offsets that the group has not read.", found.rows("group_lag", {**group, **by_partition}))
    yield _gauge(f"{prefix}lag_sum", "The sum of the lags.", found.totals("group_lag", topic))
    yield _gauge(f"{prefix}members", "Members.", found.rows("group_members", group))
    yield _gauge(
        f"{prefix}uncommitted_offsets", "As the lag, in Grafana's exporter.", found.rows("group_lag", {**group, **by_partition})
    )
    yield _gauge("kafka_consumer_lag_millis", "The lag in milliseconds, in Grafana's exporter.", millis)


# ---- kminion -----------------------------------------------------------------------------------------------------------------


def _kminion(found: Measurements) -> Iterator[Family]:
    topic = {"topic": "topic_name"}
    by_partition = {**topic, "partition": "partition_id"}
    prefix = "kminion_kafka_"
    counts = found.partition_counts(topic)
    broker = {"broker_id": "0"}
    size = sum(value for _, value in found.rows("log_size_bytes", {}))
    yield _gauge("kminion_exporter_up", "1: the exporter runs.", [({}, 1)])
    yield _gauge(
        f"{prefix}cluster_info", "The directory.", [({"cluster_id": found.store, "broker_count": "1", **_CONTROLLER}, 1)]
    )
    yield _gauge(f"{prefix}broker_info", "The broker.", [({**broker, "address": found.store, "is_controller": "true"}, 1)])
    yield _gauge(
        f"{prefix}topic_info",
        "A topic.",
        [({**labels, "partition_count": str(int(count)), "replication_factor": "1"}, 1) for labels, count in counts],
    )
    for name, own in (("high", "log_end_offset"), ("low", "log_start_offset")):
        yield _gauge(f"{prefix}topic_partition_{name}_water_mark", "An end of the log.", found.rows(own, by_partition))
        yield _gauge(f"{prefix}topic_{name}_water_mark_sum", "The sum of the ends.", found.totals(own, topic))
    yield _gauge(f"{prefix}topic_log_dir_size_total_bytes", "Bytes of a topic.", found.totals("log_size_bytes", topic))
    yield _gauge(f"{prefix}broker_log_dir_size_total_bytes", "Bytes of all topics.", [({**broker, "address": found.store}, size)])
    yield from _kminion_groups(found, topic, by_partition)


_CONTROLLER: Final = {"controller_id": "0", "kafka_version": ""}


def _kminion_groups(found: Measurements, topic: Mapping[str, str], by_partition: Mapping[str, str]) -> Iterator[Family]:
    group = {"group": "group_id"}
    prefix = "kminion_kafka_consumer_group_"
    states = found.states()
    members = found.rows("group_members", group)
    infos: Series = [
        ({**labels, "member_count": str(int(count)), "state": states.get(labels["group_id"], "")}, 1) for labels, count in members
    ]
    yield _gauge(f"{prefix}info", "A group.", infos)
    yield _gauge(f"{prefix}members", "Members of a group.", members)
    yield _gauge(f"{prefix}empty_members", "Members without a partition.", found.rows("group_empty_members", group))
    for name, own in (("members", "group_topic_members"), ("assigned_partitions", "group_assigned_partitions")):
        yield _gauge(f"{prefix}topic_{name}", "What members of a group read of a topic.", found.rows(own, {**group, **topic}))
    yield _gauge(f"{prefix}topic_offset_sum", "The sum of committed offsets.", found.totals("group_offset", {**group, **topic}))
    yield _gauge(f"{prefix}topic_lag", "The sum of the lags.", found.totals("group_lag", {**group, **topic}))
    yield _gauge(f"{prefix}topic_partition_lag", "Offsets not read yet.", found.rows("group_lag", {**group, **by_partition}))


# ---- kafka-lag-exporter ------------------------------------------------------------------------------------------------------


def _lag_exporter(found: Measurements) -> Iterator[Family]:
    cluster = {"cluster_name": found.store}
    nobody = {**cluster, "member_host": "", "consumer_id": "", "client_id": ""}
    by_partition = {each: each for each in _BY_PARTITION}
    group = {"group": "group"}
    prefix = "kafka_consumergroup_group_"
    seconds, lag = "group_lag_seconds", "group_lag"
    yield _gauge("kafka_partition_latest_offset", "The log's end.", found.rows("log_end_offset", by_partition, cluster))
    yield _gauge("kafka_partition_earliest_offset", "The log's start.", found.rows("log_start_offset", by_partition, cluster))
    yield _gauge(f"{prefix}offset", "The committed offset.", found.rows("group_offset", {**group, **by_partition}, nobody))
    yield _gauge(f"{prefix}lag", "Offsets not read yet.", found.rows(lag, {**group, **by_partition}, nobody))
    yield _gauge(
        f"{prefix}lag_seconds", "The age of the first unread record.", found.rows(seconds, {**group, **by_partition}, nobody)
    )
    yield _gauge(f"{prefix}max_lag", "The largest lag.", found.largest(lag, group, cluster))
    yield _gauge(f"{prefix}max_lag_seconds", "The largest lag in time.", found.largest(seconds, group, cluster))
    yield _gauge(f"{prefix}sum_lag", "The sum of the lags.", found.totals(lag, group, cluster))
    yield _gauge(f"{prefix}topic_sum_lag", "The sum of a topic's lags.", found.totals(lag, {**group, "topic": "topic"}, cluster))


EXPORTERS: Final = {"kafka_exporter": _kafka_exporter, "kminion": _kminion, "lag_exporter": _lag_exporter}
