"""A real Prometheus takes the rules, the dashboard and the metrics that pylog ships, and gets data for each expression.

`prometheus` and `promtool` come from Debian's package; `./dev setup` fetches it.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import pylog
from pylog import OffsetsConfig, Store
from pylog.cli.ops import shipped
from support.cli import call
from support.prometheus import Prometheus, promtool, running

HERE: Final = Path(__file__).resolve().parent
VARIABLES: Final = {"__rate_interval": "5s", "store": ".*", "topic": ".*", "group": ".*"}

# The panels and variables of the public dashboards, in our words: the same metrics, labels and functions.
BY: Final = "namespace, cluster_name, topic, partition"
CLUSTER: Final = 'namespace="ns", cluster_name=~".+"'
KEPT: Final = 'namespace="ns", cluster_name=~".+", group=~".+", group!=""'
GROUPS_KEPT: Final = 'consumergroup=~".+", topic=~".+"'
MIXIN: Final = 'topic!="__consumer_offsets", job="integrations/kafka", kafka_cluster=~"c", topic=~".+"'
MIXIN_GROUP: Final = f'{MIXIN}, consumergroup!="", consumergroup=~".+"'
OTHERS: Final = {
    "Grafana 7589": (
        'sum by (topic) (rate(kafka_topic_partition_current_offset{instance=~".+", topic=~".+"}[5s]))',
        'sum by (consumergroup, topic) (kafka_consumergroup_lag{instance=~".+", topic=~".+"})',
        'sum by (topic) (delta(kafka_topic_partition_current_offset{instance=~".+", topic=~".+"}[5s]) / 5)',
        'sum by (consumergroup, topic) (delta(kafka_consumergroup_current_offset{instance=~".+", topic=~".+"}[5s]) / 5)',
        'sum by (topic) (kafka_topic_partitions{instance=~".+", topic=~".+"})',
        "count by (job) (kafka_consumergroup_current_offset)",
        'count by (instance) (kafka_consumergroup_current_offset{job=~".+"})',
        'count by (topic) (kafka_topic_partition_current_offset{instance=~".+", topic!="__consumer_offsets"})',
    ),
    "Strimzi's exporter dashboard": (
        'count(kafka_topic_partitions{topic=~".+"})',
        'sum(kafka_topic_partitions{topic=~".+"})',
        'sum(kafka_topic_partition_replicas{topic=~".+"})',
        'sum(kafka_topic_partition_in_sync_replica{topic=~".+"})',
        'sum(kafka_topic_partition_under_replicated_partition{topic=~".+"})',
        'sum by (topic) (rate(kafka_topic_partition_current_offset{topic=~".+"}[5s]))',
        f"sum by (consumergroup, topic) (delta(kafka_consumergroup_current_offset{{{GROUPS_KEPT}}}[5s]) / 60)",
        f"sum by (consumergroup, topic) (kafka_consumergroup_lag{{{GROUPS_KEPT}}})",
        f"sum by (consumergroup, partition, topic) (kafka_consumergroup_current_offset{{{GROUPS_KEPT}}})",
        f"sum by (consumergroup, partition, topic) (kafka_consumergroup_lag{{{GROUPS_KEPT}}})",
        'sum by (topic) (kafka_topic_partitions{topic=~".+"})',
        'sum by (partition, topic) (kafka_topic_partition_current_offset{topic=~".+"})',
        'sum by (partition, topic) (kafka_topic_partition_oldest_offset{topic=~".+"})',
        "count by (namespace) (kafka_exporter_build_info)",
        'count by (strimzi_io_cluster) (kafka_exporter_build_info{namespace="ns"})',
        'count by (consumergroup) (kafka_consumergroup_current_offset{namespace="ns", strimzi_io_cluster="c"})',
        'count by (topic) (kafka_topic_partition_current_offset{namespace="ns", strimzi_io_cluster="c"})',
    ),
    "kafka-lag-exporter": (
        f"topk(50, kafka_consumergroup_group_max_lag_seconds{{{KEPT}}})",
        f"topk(25, kafka_consumergroup_group_lag_seconds{{{KEPT}}})",
        f"topk(50, kafka_consumergroup_group_max_lag{{{KEPT}}})",
        f"topk(25, kafka_consumergroup_group_lag{{{KEPT}}})",
        f"kafka_consumergroup_group_max_lag_seconds{{{KEPT}}}",
        f"kafka_consumergroup_group_max_lag{{{KEPT}}}",
        f"max by (group) (kafka_consumergroup_group_lag_seconds{{{KEPT}}})",
        f"sum(kafka_consumergroup_group_offset{{{KEPT}}})",
        f"sum(kafka_consumergroup_group_offset{{{KEPT}}} * 0 + on ({BY}) group_left kafka_partition_latest_offset{{{CLUSTER}}})",
        "count by (namespace, cluster_name, group) (kafka_consumergroup_group_lag)",
    ),
    "Grafana's kafka-mixin, topics": (
        f"max by (job, kafka_cluster, topic, partition) (kafka_log_log_logstartoffset{{{MIXIN}}})",
        f"max by (job, kafka_cluster, topic, partition) (kafka_log_log_logendoffset{{{MIXIN}}})",
        f"max by (job, kafka_cluster, topic, partition) (kafka_log_log_size{{{MIXIN}}})",
        f"sum by (job, kafka_cluster, topic, partition) (rate(kafka_topic_partition_current_offset{{{MIXIN}}}[5s]))",
        f"sum by (job, kafka_cluster, topic) (rate(kafka_topic_partition_current_offset{{{MIXIN}}}[5s]))",
        f"avg by (job, kafka_cluster, consumergroup, topic) (rate(kafka_consumergroup_current_offset{{{MIXIN_GROUP}}}[5s]))",
        f"sum by (job, kafka_cluster, consumergroup, topic) (kafka_consumergroup_uncommitted_offsets{{{MIXIN_GROUP}}})",
        f"avg by (job, kafka_cluster, consumergroup, topic) (kafka_consumer_lag_millis{{{MIXIN_GROUP}}})",
    ),
    "kminion": (
        'sum by (topic_name) (rate(kminion_kafka_topic_high_water_mark_sum{namespace="ns"}[5s]))',
        "kminion_kafka_consumer_group_topic_lag",
        "kminion_kafka_topic_log_dir_size_total_bytes",
        'kminion_kafka_consumer_group_info{state=~".+"}',
    ),
    "the JMX exporter's sizes": ("sum by (topic) (kafka_log_log_size)", "kafka_log_log_numlogsegments"),
}
# The panels of the same dashboards that stay empty, and why.
EMPTY: Final = {
    'count(kafka_topic_partition_leader_is_preferred{topic=~".+"} < 1)': "no partition is led by another broker than the first",
    'sum(kafka_cluster_partition_atminisr{topic=~".+"})': "a directory has no replicas that a minimum could be set for",
    'sum(kafka_cluster_partition_underminisr{topic=~".+"})': "the same",
    "sum(rate(jvm_memory_bytes_used[5s]))": "the memory of kafka-lag-exporter's own JVM",
    "sum(rate(jvm_gc_collection_seconds_sum[5s]))": "its garbage collection",
    "sum(rate(jvm_gc_collection_seconds_count[5s]))": "the same",
    f"sum(rate(kafka_server_brokertopicmetrics_bytesinpersec{{{MIXIN}}}[5s]))": "bytes of requests, which a directory has not",
    f"sum(rate(kafka_server_brokertopicmetrics_bytesoutpersec{{{MIXIN}}}[5s]))": "the same",
}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rules")
    assert call("ops", "write", "rules", directory).code == 0
    return directory / "pylog-rules.yml"


def test_promtool_takes_the_shipped_rules(rules: Path) -> None:
    code, said = promtool("check", "rules", rules)
    assert code == 0, said
    assert f"{len(re.findall(r'alert:', rules.read_text()))} rules found" in said


def test_each_shipped_rule_fires_when_it_should_and_only_then(rules: Path) -> None:
    (rules.parent / "cases.yml").write_text((HERE / "pylog-rules-test.yml").read_text())
    code, said = promtool("test", "rules", rules.parent / "cases.yml")
    assert code == 0, said


def test_every_shipped_rule_has_a_case() -> None:
    cases = (HERE / "pylog-rules-test.yml").read_text()
    alerts = re.findall(r"alert: (\w+)", shipped("pylog-rules.yml").decode())
    assert [each for each in alerts if f"alertname: {each}" not in cases] == []


def test_promtool_takes_the_text_of_the_metrics_under_all_names(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("orders")
        store.log("orders").append(b"x")
        store.offsets.commit("billing", {("orders", 0): 1})
    own = call("metrics", tmp_path / "s").text
    code, said = promtool("check", "metrics", text=own)
    assert code == 0, said
    text = call("metrics", tmp_path / "s", "--names", "kafka_exporter,kminion,lag_exporter").text
    code, said = promtool("check", "metrics", text=text)
    suffix = 'should not have "_sum" suffix'  # the names of other exporters
    assert [line for line in said.splitlines() if not line.endswith(suffix)] == []


# ---- a server ----------------------------------------------------------------------------------------------------------------


class _Load(threading.Thread):
    """Appends, syncs and reads until it is stopped."""

    def __init__(self, store: Store) -> None:
        super().__init__(name="load")
        self._store = store
        self.stopped = threading.Event()

    def run(self) -> None:
        with self._store.consumer("orders", group_id="billing", auto_offset_reset="earliest") as consumer:
            while not self.stopped.wait(0.2):
                self._store.log("orders").append_many([b"x" * 100] * 10, durability="sync")
                self._store.log("prices").append(b"1", key=b"k")
                consumer.poll(100)
                consumer.commit()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, rules: Path) -> Iterator[Prometheus]:
    """Prometheus beside a store under load, after some scrapes."""
    root = tmp_path_factory.mktemp("prometheus")
    with pylog.open(root / "s", offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("orders")
        store.create_topic("prices", cleanup_policy="compact")
        served = store.serve_metrics(0, names=["kafka_exporter", "kminion", "lag_exporter"])
        load = _Load(store)
        load.start()
        try:
            labels = "namespace: ns, strimzi_io_cluster: c, kafka_cluster: c, job: integrations/kafka"
            with running(root, f"127.0.0.1:{served.port}", rules, labels) as prometheus:
                _wait_for_scrapes(prometheus)
                yield prometheus
        finally:
            load.stopped.set()
            load.join()


def _wait_for_scrapes(prometheus: Prometheus) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if prometheus.query("rate(pylog_log_commits_total[5s]) > 0") and prometheus.query("count_over_time(up[30s]) > 6"):
            return
        time.sleep(0.25)
    raise AssertionError(prometheus.targets())


def _expressions(node: Any) -> Iterator[str]:
    """The expressions of a dashboard."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "expr":
                yield value
            else:
                yield from _expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from _expressions(value)


def _filled(expression: str) -> str:
    return re.sub(r"\$(\w+)", lambda found: VARIABLES[found[1]], expression)


def test_each_expression_of_the_shipped_dashboard_gives_data(server: Prometheus) -> None:
    expressions = set(_expressions(json.loads(shipped("pylog-dashboard.json"))))
    assert len(expressions) > 20
    assert [each for each in sorted(expressions) if not server.query(_filled(each))] == []


def test_each_variable_of_the_shipped_dashboard_has_values(server: Prometheus) -> None:
    asked = [each for each in json.loads(shipped("pylog-dashboard.json"))["templating"]["list"] if each["type"] == "query"]
    assert len(asked) == 3
    for each in asked:
        metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", each["definition"]).groups()  # type: ignore[union-attr]
        assert server.query(f"count by ({label}) ({_filled(metric)})"), each["name"]


@pytest.mark.parametrize("exporter", OTHERS)
def test_what_dashboards_of_other_exporters_ask_for_gives_data(server: Prometheus, exporter: str) -> None:
    assert [each for each in OTHERS[exporter] if not server.query(each)] == []


def test_panels_that_are_said_to_stay_empty_do(server: Prometheus) -> None:
    assert [each for each in EMPTY if server.query(each)] == []


def test_a_store_under_load_raises_no_alert(server: Prometheus) -> None:
    assert server.alerts() == set()
    assert [each["health"] for each in server.targets()] == ["up"]
