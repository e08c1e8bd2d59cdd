"""Pages, metrics and commands have the same numbers: of transactions, an archive, and a directory whose records are in one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import OffsetsConfig
from pylog.metrics import Sample
from pylog.monitoring.measured import measures_of
from pylog.tools.stats import group_lags
from pylog.ui.app import made_application
from support.cli import call
from support.ui import Browser

OFFSETS = OffsetsConfig(topic_num_partitions=1)
Numbers = dict[tuple[str, int], dict[str, Any]]


@pytest.fixture(params=["local", "archive", "hollow"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A directory or archive with many segments, ended and open transactions, and a group that is behind."""
    with pylog.open(tmp_path / "s", offsets=OFFSETS) as store:
        store.create_topic("orders", partition_count=2, segment_bytes=500)
        store.create_topic("paid")
        for number in range(40):
            store.log("orders", number % 2).append(b"value-%d" % number)
        for name, end in (("kept", "commit"), ("dropped", "abort"), ("open", None)):
            transaction = store.transaction(name)
            transaction.append("paid", name.encode(), partition=0)
            transaction.flush()
            if end is not None:
                getattr(transaction, end)()
        store.offsets.commit("billing", {("orders", 0): 4, ("orders", 1): 20})
        store.log("orders").delete_records(2)
        store.archive(str(tmp_path / "archive"), include_active=True)
    archive = (tmp_path / "archive").as_uri()
    if request.param == "hollow":
        pylog.restore(archive, tmp_path / "copy", hollow=True)
    return {"local": str(tmp_path / "s"), "archive": archive, "hollow": str(tmp_path / "copy")}[request.param]


def numbers_of(page: Mapping[str, Any]) -> Numbers:
    wanted = ("start_offset", "stable_offset", "end_offset", "bytes")
    return {(page["topic"], each["partition"]): {name: each[name] for name in wanted} for each in page["partitions"]}


def measured(samples: list[Sample], topic: str, partition: int) -> dict[str, Any]:
    mine = {each.name: each.value for each in samples if each.labels == {"topic": topic, "partition": str(partition)}}
    names = {"start_offset": "log_start_offset", "stable_offset": "log_stable_offset", "end_offset": "log_end_offset"}
    return {name: mine[metric] for name, metric in {**names, "bytes": "log_size_bytes"}.items()}


@pytest.mark.sampled(5)
def test_pages_metrics_and_commands_have_the_same_numbers(place: str) -> None:
    described = {name: call("describe", place, name, "--json").json for name in ("orders", "paid")}
    listed = {each["topic"]: each for each in call("topics", place, "--json").json["topics"]}
    [group] = call("groups", "describe", place, "billing", "--json").json["groups"]
    with pylog.open(place, mode="r") as store:
        browser, samples = Browser(made_application(measures_of(store).watch(), token=None)), store.metrics()
        for topic, command in described.items():
            page = browser.get(f"/topics/{topic}/partitions.json").json
            numbers = numbers_of(page)
            assert numbers == numbers_of(command)
            assert numbers == {(topic, number): measured(samples, topic, number) for _, number in numbers}
            assert page["bytes"] == listed[topic]["bytes"]
            assert page["offsets"] == listed[topic]["offsets"]
        seen = browser.get("/groups/billing.json").json
        lags = {(each["topic"], each["partition"]): each["lag"] for each in seen["partitions"]}
        assert lags == {(each["topic"], each["partition"]): each["lag"] for each in group["partitions"]}
        assert lags == {
            (each.labels["topic"], int(each.labels["partition"])): each.value for each in samples if each.name == "group_lag"
        }
        assert seen["lag"] == sum(lags.values()) > 0
        assert seen["verdict"] == str(store.group("billing").health().verdict)


def test_a_group_past_the_end_of_a_log_has_kafkas_negative_lag_on_every_route(tmp_path: Path) -> None:
    """`kafka-consumer-groups` prints the log's end less the committed offset. What is unread in other partitions stays so."""
    place, partition = str(tmp_path), ("orders", 0)
    with pylog.open(tmp_path, offsets=OFFSETS) as store:
        store.create_topic("orders", partition_count=2)
        for number in range(2):
            store.log("orders", number).append_many([b"x"] * 20)
        store.offsets.commit("billing", {("orders", 0): 15, ("orders", 1): 16})
        store.log("orders").truncate(10)
    [described] = call("groups", "describe", place, "billing", "--json").json["groups"]
    [judged] = call("groups", "health", place, "billing", "--json").json["groups"]
    [line, _] = [each.split() for each in call("groups", "describe", place, "billing").lines if each.startswith("billing")]
    found = {"describe": described["partitions"][0]["lag"], "health": judged["partitions"][0]["lag"], "table": int(line[5])}
    with pylog.open(tmp_path, mode="r") as store:
        page = Browser(made_application(measures_of(store).watch(), token=None)).get("/groups/billing.json").json
        lags = {int(each.labels["partition"]): each.value for each in store.metrics() if each.name == "group_lag"}
        group = store.group("billing")
        found |= {"window": page["partitions"][0]["lag"], "metrics": lags[0], "API": group.lag()[partition]}
        found |= {"API, health": group.health().partitions[0].lag, "API, description": group.describe().partitions[0].lag}
    found["stats"] = next(each.lag for each in group_lags(place) if each.partition == 0)
    assert found == dict.fromkeys(found, -5)
    assert page["lag"] == lags[1] == 4
