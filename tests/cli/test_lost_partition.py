"""Every command that lists shows the other partitions if one cannot be read, names that one, and ends with code 1."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pylog
from support.cli import call

pytestmark = pytest.mark.damaged("a partition is removed")
SAID = "orders-1 is missing, but a checkpoint lists the partition"


@pytest.fixture
def lacking(tmp_path: Path) -> Path:
    """Three partitions of ten records each, of which a group has read two; the directory of the second one is gone."""
    path = tmp_path / "s"
    with pylog.open(path) as store:
        store.create_topic("orders", partition_count=3, segment_bytes=1_000, retention_bytes=0)
        for number in range(3):
            store.log("orders", number).append_many([b"x" * 400] * 10)
        store.offsets.commit("billing", {("orders", number): 2 for number in range(3)})
    shutil.rmtree(path / "orders-1")
    return path


def test_topics_and_describe_show_the_others(lacking: Path) -> None:
    done = call("topics", lacking, "--json")
    (orders,) = (each for each in done.json["topics"] if each["topic"] == "orders")
    assert (done.code, orders["offsets"], orders["damaged_partitions"]) == (1, 20, [1])
    [failed] = orders["errors"]
    assert failed["partition"] == 1
    assert SAID in failed["error"]
    assert done.complaints.count(SAID) == 1
    for more in ((), ("--segments",), ("--json",)):
        done = call("describe", lacking, "orders", *more)
        assert (done.code, done.complaints.count(SAID)) == (1, 1)
    first, second, third = done.json["partitions"]
    assert [each["partition"] for each in (first, second, third)] == [0, 1, 2]
    assert (first["error"], third["error"]) == (None, None)
    assert (second["start_offset"], second["end_offset"], second["bytes"], second["segments"]) == (None, None, None, [])
    assert SAID in second["error"]
    row = next(line for line in call("describe", lacking, "orders").text.splitlines() if line.strip().startswith("1 "))
    assert row.split() == ["1", "-", "-", "-", "-", "-"]


@pytest.mark.parametrize("names", [(), ("billing",)])
def test_a_group_is_described_and_judged_in_the_others(lacking: Path, names: tuple[str, ...]) -> None:
    done = call("groups", "describe", lacking, *names, "--json")
    described = done.json["groups"][0]["partitions"]
    assert [each["lag"] for each in described] == [8, None, 8]
    assert (described[0]["error"], described[2]["error"]) == (None, None)
    assert SAID in described[1]["error"]
    assert (done.code, done.complaints.count(SAID)) == (1, 1)
    assert "orders-1: its end and the lags are unknown" in done.complaints
    rows = call("groups", "health", lacking, *names, "--json").json["groups"][0]["partitions"]
    assert [each["lag"] for each in rows] == [8, None, 8]
    lost = rows[1]
    assert (lost["verdict"], lost["lag_records"], lost["lag_seconds"], lost["catch_up_seconds"]) == ("DAMAGED", None, None, None)
    assert SAID in lost["why"]


def test_what_a_group_has_committed_is_exported_without_a_look_at_the_logs(lacking: Path) -> None:
    assert call("groups", "export", lacking, "billing").text == "orders,0,2\norders,1,2\norders,2,2\n"


def test_retention_and_open_transactions_are_told_of_the_others(lacking: Path) -> None:
    done = call("retain", lacking, "--dry-run", "--json")
    assert (done.code, done.complaints.count(SAID)) == (1, 1)
    assert [each["partition"] for each in done.json["partitions"]] == [0, 2]
    done = call("transactions", "hanging", lacking, "--json")
    assert (done.code, done.json, done.complaints.count(SAID)) == (1, {"hanging": []}, 1)
    assert "no hanging transactions" not in call("transactions", "hanging", lacking).complaints


def test_statistics_count_the_others_and_the_lags_of_groups_there(lacking: Path) -> None:
    done = call("stats", lacking, "orders", "--json")
    assert (done.code, len(done.json["groups"])) == (1, 2)
    said = "orders-1 is not counted: its directory is missing; run pylog verify"
    assert done.complaints.count(said) == 1
    [orders] = done.json["topics"]
    assert [(each["partition"], each["error"]) for each in orders["partitions"]] == [(0, None), (1, said), (2, None)]
    assert orders["records"] == 20


def test_a_topic_that_lost_all_its_directories_is_counted_as_lost_and_not_denied(lacking: Path) -> None:
    for number in (0, 2):
        shutil.rmtree(lacking / f"orders-{number}")
    done = call("stats", lacking, "orders", "--json")
    assert done.code == 1
    assert [each["error"] is None for each in done.json["topics"][0]["partitions"]] == [False] * 3


def test_the_topic_can_be_deleted(lacking: Path) -> None:
    done = call("delete", lacking, "orders", "--yes")
    assert (done.code, done.text) == (0, "Deleted topic orders.\n")
    assert SAID in done.complaints


def test_metrics_name_it_and_have_no_lag_of_it(lacking: Path) -> None:
    text = call("metrics", lacking).text
    assert 'topic="orders",partition="1"} 1\n' in text.partition("TYPE pylog_log_unreadable ")[2].partition("# ")[0]
    lags = text.partition("TYPE pylog_group_lag gauge")[2].partition("# ")[0]
    assert ('partition="0"' in lags, 'partition="1"' in lags) == (True, False)
