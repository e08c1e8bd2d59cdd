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

# What the dashboards of other exporters ask for: metrics, labels and functions, in our words.
OTHERS: Final = {
    "Grafana 7589 and Strimzi's exporter dashboard": (
        'sum by (topic) (rate(kafka_topic_partition_current_offset{instance=~".+", topic=~".+"}[5s]))',
        'sum by (consumergroup, topic) (kafka_consumergroup_lag{instance=~".+", topic=~".+"})',
        'sum by (consumergroup, topic) (delta(kafka_consumergroup_current_offset{instance=~".+", topic=~".+"}[5s]))',
        'sum by (topic) (kafka_topic_partitions{instance=~".+", topic=~".+"})',
        'count(count by (consumergroup) (kafka_consumergroup_members{namespace="ns", strimzi_io_cluster="c"} >= 0))',
        'max(kafka_topic_partition_oldest_offset{namespace="ns", strimzi_io_cluster="c"})',
    ),
    "kafka-lag-exporter": (
        'topk(50, kafka_consumergroup_group_max_lag_seconds{namespace="ns", cluster_name=~".+", group!=""})',
        'topk(25, kafka_consumergroup_group_lag_seconds{namespace="ns", cluster_name=~".+", group!=""})',
        'kafka_consumergroup_group_max_lag{namespace="ns", cluster_name=~".+", group!=""}',
        'kafka_consumergroup_group_lag{namespace="ns", cluster_name=~".+", group!=""}',
        'sum(kafka_consumergroup_group_offset{namespace="ns", cluster_name=~".+", group!=""})',
        "sum(0 * kafka_consumergroup_group_offset + on (topic, partition) group_left () kafka_partition_latest_offset)",
    ),
    "kminion": (
        'sum by (topic_name) (rate(kminion_kafka_topic_high_water_mark_sum{namespace="ns"}[5s]))',
        "kminion_kafka_consumer_group_topic_lag",
        "kminion_kafka_topic_log_dir_size_total_bytes",
        'kminion_kafka_consumer_group_info{state=~".+"}',
    ),
    "the JMX exporter's sizes": ("sum by (topic) (kafka_log_log_size)", "kafka_log_log_numlogsegments"),
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
            labels = "namespace: ns, strimzi_io_cluster: c"
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


def test_a_store_under_load_raises_no_alert(server: Prometheus) -> None:
    assert server.alerts() == set()
    assert [each["health"] for each in server.targets()] == ["up"]
