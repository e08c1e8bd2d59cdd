"""Metrics, health, `describe` and the commands have the same numbers, under pylog's names and under those of others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

import pylog
from pylog import InvalidArgumentError, OffsetsConfig, Store
from pylog.metrics import METRICS, Collector, exposition, external
from pylog.monitoring.foreign import EXPORTERS, foreign_families
from pylog.monitoring.page import Choice, page
from pylog.testing import MemoryFileSystem
from support.cli import call
from support.golden import data as golden_data

Values = dict[tuple[str, ...], float]


@pytest.fixture
def store() -> Iterator[Store]:
    with pylog.open("/s", fs=MemoryFileSystem(), offsets=OffsetsConfig(topic_num_partitions=1)) as made:
        made.create_topic("orders", partition_count=2, segment_bytes=200)
        made.create_topic("audit")
        for number in range(2):
            for _ in range(10):
                made.log("orders", number).append(b"x" * 50)
        made.log("orders").delete_records(2)
        made.offsets.commit("billing", {("orders", 0): 4, ("orders", 1): 10, ("audit", 0): 0})
        made.offsets.commit("other", {("orders", 1): 1})
        yield made


def of(store: Store, name: str, *labels: str) -> Values:
    """The values of one of pylog's metrics."""
    return {tuple(each.labels[label] for label in labels): each.value for each in store.metrics() if each.name == name}


def foreign(store: Store, exporter: str, name: str, *labels: str) -> Values:
    """The values of a metric of another exporter, parsed from its text."""
    text = page(store.metrics, Choice([exporter]), "/s", "text")
    samples = [each for family in classic(text) for each in family.samples if each.name == name]
    assert samples, name
    return {tuple(each.labels[label] for label in labels): each.value for each in samples}


PLACE = ("group", "topic", "partition")


def test_metrics_health_describe_and_the_command_have_the_same_numbers() -> None:
    """Kafka's tool says the same of these groups: tests/groups/test_golden_groups.py."""
    case = next(case for case in golden_data.cases() if case.name == "groups")
    with pylog.open(case.log_directory, mode="r") as store:
        described: Values = {}
        judged: Values = {}
        for group in store.groups():
            for row in store.group(group).describe().partitions:
                if row.lag is not None:
                    described[group, row.partition.topic, str(row.partition.partition)] = row.lag
            for each in store.group(group).health().partitions:
                judged[group, each.partition.topic, str(each.partition.partition)] = each.lag
        measured = of(store, "group_lag", *PLACE)
        verdicts = {labels for labels, value in of(store, "group_verdict", "group", "verdict").items() if value}
        assert verdicts == {(group, str(store.group(group).health().verdict)) for group in store.groups()}
    printed = call("groups", "health", case.log_directory, "--json").json["groups"]
    said = {(each["group"], row["topic"], str(row["partition"])): row["lag"] for each in printed for row in each["partitions"]}
    assert measured == judged == described == said
    assert len(measured) > 10


def test_kafka_exporters_names_have_pylogs_numbers(store: Store) -> None:
    topic = ("topic", "partition")
    for theirs, ours in (("current_offset", "log_end_offset"), ("oldest_offset", "log_start_offset")):
        found = foreign(store, "kafka_exporter", f"kafka_topic_partition_{theirs}", *topic)
        assert found == {key: value for key, value in of(store, ours, *topic).items() if key[0] != "__consumer_offsets"}
    place = ("consumergroup", "topic", "partition")
    assert foreign(store, "kafka_exporter", "kafka_consumergroup_lag", *place) == of(store, "group_lag", *PLACE)
    assert foreign(store, "kafka_exporter", "kafka_consumergroup_current_offset", *place) == of(store, "group_offset", *PLACE)
    assert foreign(store, "kafka_exporter", "kafka_consumergroup_lag_sum", *place[:2]) == {
        ("billing", "orders"): 6,
        ("billing", "audit"): 0,
        ("other", "orders"): 9,
    }
    assert foreign(store, "kafka_exporter", "kafka_topic_partitions", "topic") == {("orders",): 2, ("audit",): 1}
    assert foreign(store, "kafka_exporter", "kafka_consumergroup_members", "consumergroup") == {("billing",): 0, ("other",): 0}


def test_kminions_names_have_pylogs_numbers(store: Store) -> None:
    prefix = "kminion_kafka_"
    place = ("group_id", "topic_name", "partition_id")
    assert foreign(store, "kminion", f"{prefix}consumer_group_topic_partition_lag", *place) == of(store, "group_lag", *PLACE)
    assert foreign(store, "kminion", f"{prefix}topic_high_water_mark_sum", "topic_name") == {("orders",): 20, ("audit",): 0}
    assert foreign(store, "kminion", f"{prefix}topic_low_water_mark_sum", "topic_name") == {("orders",): 2, ("audit",): 0}
    sizes = of(store, "log_size_bytes", "topic", "partition")
    total = sum(size for (topic, _), size in sizes.items() if topic == "orders")
    assert foreign(store, "kminion", f"{prefix}topic_log_dir_size_total_bytes", "topic_name")["orders",] == total
    assert foreign(store, "kminion", "kminion_exporter_up") == {(): 1}


def test_kminions_counts_of_members_and_partitions_by_topic(store: Store) -> None:
    consumers = [store.consumer(group_id="billing") for _ in range(3)]
    for each in consumers:
        each.subscribe(["orders"])
    for _ in range(3):
        for each in consumers:
            each.poll(timeout_ms=0)
    prefix, group = "kminion_kafka_consumer_group_", ("billing",)
    assert foreign(store, "kminion", f"{prefix}members", "group_id")[group] == 3
    assert foreign(store, "kminion", f"{prefix}empty_members", "group_id") == {group: 1, ("other",): 0}
    of_topic = {("billing", "orders"): 2}
    assert foreign(store, "kminion", f"{prefix}topic_members", "group_id", "topic_name") == of_topic
    assert foreign(store, "kminion", f"{prefix}topic_assigned_partitions", "group_id", "topic_name") == of_topic
    for each in consumers:
        each.close()


@pytest.mark.damaged("a partition is removed")
def test_a_partition_that_cannot_be_read_still_counts_as_one_of_its_topic(tmp_path: Path) -> None:
    with pylog.open(tmp_path, offsets=OffsetsConfig(topic_num_partitions=1)) as made:
        made.create_topic("orders", partition_count=3)
        for number in range(3):
            made.log("orders", number).append(b"x")
    shutil.rmtree(tmp_path / "orders-1")
    with pylog.open(tmp_path, mode="r") as made:
        assert foreign(made, "kafka_exporter", "kafka_topic_partitions", "topic") == {("orders",): 3}
        assert {key[1] for key in foreign(made, "kminion", "kminion_kafka_topic_info", "topic_name", "partition_count")} == {"3"}


def test_kafka_lag_exporters_names_have_pylogs_numbers(store: Store) -> None:
    prefix = "kafka_consumergroup_group_"
    assert foreign(store, "lag_exporter", f"{prefix}lag", *PLACE) == of(store, "group_lag", *PLACE)
    assert foreign(store, "lag_exporter", f"{prefix}max_lag", "group") == {("billing",): 6, ("other",): 9}
    assert foreign(store, "lag_exporter", f"{prefix}sum_lag", "group") == {("billing",): 6, ("other",): 9}
    seconds = foreign(store, "lag_exporter", f"{prefix}lag_seconds", *PLACE)
    assert seconds["billing", "orders", "1"] == 0
    assert 0 <= seconds["billing", "orders", "0"] < 60


@pytest.mark.parametrize("kind", ["openmetrics", "text"])
def test_all_names_together_are_valid_and_each_family_has_samples_help_and_type(store: Store, kind: str) -> None:
    text = page(store.metrics, Choice(list(EXPORTERS), internal=True), "/s", kind)
    families = list((openmetrics if kind == "openmetrics" else classic)(text))
    names = [family.name for family in families]
    assert len(set(names)) == len(names) > 60
    assert all(family.documentation and family.type in ("gauge", "counter") and family.samples for family in families)
    for family in families:
        rows = [(each.name, *sorted(each.labels.items())) for each in family.samples]
        assert len(set(rows)) == len(rows), family.name
    assert text.endswith("# EOF\n") == (kind == "openmetrics")


def test_counters_keep_their_type_and_help_in_the_format_of_text_files(store: Store) -> None:
    lines = exposition(store.metrics(), "text").splitlines()
    assert "# TYPE pylog_log_appended_records_total counter" in lines
    assert any(line.startswith("# HELP pylog_log_appended_records_total ") for line in lines)
    assert not [line for line in lines if line.startswith(("# UNIT", "# EOF"))]
    with pytest.raises(InvalidArgumentError, match="'openmetrics', 'text'"):
        exposition([], "json")


def test_internal_topics_are_left_out_unless_asked_for_except_for_damage_there(tmp_path: Path) -> None:
    with pylog.open(tmp_path, offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t")
        store.log("t").append(b"x")
        store.offsets.commit("g", {("t", 0): 0})
        assert {each.labels.get("topic") for each in external(store.metrics())} == {"t", None}
        assert "__consumer_offsets" in page(store.metrics, Choice(internal=True), "s", "text")
    file = tmp_path / "__consumer_offsets-0" / f"{0:020d}.log"
    file.write_bytes(b"\x77" * file.stat().st_size)
    with pylog.open(tmp_path, mode="r") as store:
        found = [each for each in external(store.metrics()) if each.labels.get("topic") == "__consumer_offsets"]
    assert [(each.name, each.value) for each in found] == [("log_unreadable", 1)]


def test_the_page_of_a_store_with_a_damaged_log_has_only_numbers(tmp_path: Path) -> None:
    """A scrape with one value that is no number is refused as a whole: Prometheus would report the store as down."""
    with pylog.open(tmp_path, offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t")
        store.log("t").append_many([b"x"] * 10)
        store.offsets.commit("g", {("t", 0): 4})
    (tmp_path / "t-0" / f"{0:020d}.log").unlink()
    with pylog.open(tmp_path, mode="r") as store:
        for choice in (Choice(internal=True), Choice(tuple(EXPORTERS))):
            text = page(store.metrics, choice, "s", "text")
            assert list(classic(text))
            assert not {"True", "False"} & set(text.split())
        assert 'pylog_log_unreadable{topic="t",partition="0"} 1\n' in exposition(store.metrics(), "text")


def test_patterns_choose_topics_and_the_groups_in_them(store: Store) -> None:
    samples = list(Choice(topics=["or*"]).of(store.metrics()))
    assert {each.labels["topic"] for each in samples if "topic" in each.labels} == {"orders"}
    assert {each.labels["topic"] for each in samples if each.name == "group_lag"} == {"orders"}
    kinds = {METRICS[each.name].kind for each in Choice(counters=False).of(store.metrics())}
    assert kinds == {"gauge"}


def test_a_registry_of_prometheus_client_collects_a_store(store: Store) -> None:
    registry = CollectorRegistry()
    registry.register(Collector(store, labels={"store": "shop"}))
    place = {"store": "shop", "group": "billing", "topic": "orders", "partition": "0"}
    assert registry.get_sample_value("pylog_group_lag", place) == 6
    appended = {"store": "shop", "topic": "orders", "partition": "0"}
    assert registry.get_sample_value("pylog_log_appended_records_total", appended) == 10
    text = generate_latest(registry).decode()
    assert 'topic="__consumer_offsets"' not in text
    own = exposition(external(store.metrics()), "text", labels={"store": "shop"})

    def names(text: str) -> set[str]:
        return {each.name for family in classic(text) for each in family.samples}

    assert names(text) == names(own)


def test_a_group_that_has_read_all_has_zero_seconds_and_an_unknown_lag_has_no_sample(store: Store) -> None:
    store.log("audit").append(b"x", timestamp=-1)
    seconds = of(store, "group_lag_seconds", *PLACE)
    assert seconds["billing", "orders", "1"] == 0
    assert ("billing", "audit", "0") not in seconds
    assert of(store, "group_lag", *PLACE)["billing", "audit", "0"] == 1


def test_a_second_call_sees_what_others_have_appended_committed_deleted_and_created_again(tmp_path: Path) -> None:
    with pylog.open(tmp_path, offsets=OffsetsConfig(topic_num_partitions=1)) as writer, pylog.open(tmp_path, mode="r") as store:
        assert of(store, "log_end_offset", "topic") == {}
        writer.create_topic("t")
        writer.log("t").append_many([b"x"] * 5)
        writer.offsets.commit("g", {("t", 0): 2})
        assert of(store, "group_lag", *PLACE) == {("g", "t", "0"): 3}
        writer.log("t").append_many([b"x"] * 5)
        writer.offsets.commit("g", {("t", 0): 4})
        assert of(store, "group_lag", *PLACE) == of(store, "group_lag_records", *PLACE) == {("g", "t", "0"): 6}
        writer.delete_topic("t")
        assert of(store, "group_lag", *PLACE) == {}
        writer.create_topic("t")
        writer.log("t").append(b"x")
        writer.offsets.commit("g", {("t", 0): 0})
        assert of(store, "group_lag", *PLACE) == of(store, "group_lag_records", *PLACE) == {("g", "t", "0"): 1}
        writer.log("t").truncate(0)
        assert of(store, "group_lag", *PLACE) == {("g", "t", "0"): 0}


def test_unknown_names_of_an_exporter_are_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidArgumentError, match="'kafka_exporter', 'kminion', 'lag_exporter'"):
        list(foreign_families(["burrow"], [], "s"))
