"""`pylog metrics`: prints, serves and writes the metrics of a directory, and leaves the directory as it is."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as classic

import pylog
from support.cli import call


def test_metrics_are_printed_in_both_formats_without_counts_of_this_process(shop: Path) -> None:
    done = call("metrics", shop)
    families = {family.name: family for family in classic(done.text)}
    assert done.code == 0
    assert {family.type for family in families.values()} == {"gauge"}
    lags = {each.labels["group"]: each.value for each in families["pylog_group_lag"].samples if each.labels["partition"] == "0"}
    assert lags == {"billing": 1, "shipping": 4}
    assert {each.labels["store"] for each in families["pylog_log_end_offset"].samples} == {str(shop)}
    assert {family.name for family in openmetrics(call("metrics", shop, "--openmetrics").text)} == set(families)


def test_names_topics_and_internal_choose_what_is_printed(shop: Path) -> None:
    assert "kafka_consumergroup_lag{" in call("metrics", shop, "--names", "kafka_exporter, kminion").text
    assert "kminion_exporter_up" in call("metrics", shop, "--names", "kafka_exporter, kminion").text
    done = call("metrics", shop, "--topics", "pri*", "--internal")
    assert set(re.findall(r'topic="([^"]*)"', done.text)) == {"prices"}
    assert 'topic="__consumer_offsets"' in call("metrics", shop, "--internal").text
    assert 'topic="__consumer_offsets"' not in call("metrics", shop).text
    (first, *_) = call("metrics", shop, "--json").json["metrics"]
    assert set(first) == {"name", "labels", "value"}


def test_a_text_file_is_replaced_as_a_whole_and_others_can_read_it(shop: Path, tmp_path: Path) -> None:
    file = tmp_path / "shop.prom"
    file.write_text("old")
    assert call("metrics", shop, "--textfile", file).code == 0
    assert {family.name for family in classic(file.read_text())} >= {"pylog_group_lag", "pylog_build_info"}
    assert [each.name for each in tmp_path.iterdir() if "prom" in each.name] == ["shop.prom"]
    other = tmp_path / "new.prom"
    assert call("metrics", shop, "--textfile", other).code == 0
    assert other.stat().st_mode & 0o044 == 0o044


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "9308"], "is not HOST:PORT"),
        (["--listen", "0.0.0.0:0"], "give a token"),
        (["--names", "burrow"], "kafka_exporter"),
        (["--every", "5"], "--every requires --textfile"),
        (["--textfile", "x", "--every", "0"], "at least 0.1"),
        (["--textfile", "x", "--json"], "cannot be combined"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_done(
    shop: Path, words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("metrics", shop, *words)
    assert (done.code, done.output) == (2, b"")
    assert said in done.complaints
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_it_serves_until_it_is_interrupted_and_sees_appends_of_others(shop: Path) -> None:
    command = [sys.executable, "-m", "pylog", "metrics", str(shop), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().split()[-1]
            with pylog.open(shop) as store:
                store.log("orders").append(b"x")
                store.offsets.commit("new", {("orders", 0): 2})
            with urllib.request.urlopen(url) as answer:
                found = {family.name: family for family in classic(answer.read().decode())}
            lags = {(each.labels["group"], each.labels["partition"]): each.value for each in found["pylog_group_lag"].samples}
            assert lags["new", "0"] == 3
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
