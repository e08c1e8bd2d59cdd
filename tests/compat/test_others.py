"""The own tests of kafka-python and aiokafka: the table says how each ended, and `python -m support.others` runs them again."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from support.others.__main__ import LEFT_OUT, PASSED, compared, outcomes, table
from support.others.suites import PROJECT, SUITES, Suite

ROWS = table()
LEAST_PASSED = {
    "kafka-python 3.0.12": 54,
    "kafka-python a3b3836": 89,
    "kafka-python 2.3.3": 39,
    "kafka-python 2.0.2": 25,
    "aiokafka 672947a": 101,
}
SMALL = Suite("small", "0.0.1", ("test_small.py",), {"net": "the network"})
TESTS = """
import pytest
from test.testutil import assert_message_count, env_kafka_version, random_string
from kafka.conn import BrokerConnection

@pytest.mark.skipif(env_kafka_version() < (0, 11), reason="too old")
@pytest.mark.parametrize("count", [1, 3])
def test_messages_arrive(kafka_consumer_factory, send_messages, topic, count):
    texts = send_messages(range(count))
    consumer = kafka_consumer_factory(group_id=random_string(5), consumer_timeout_ms=0)
    found = list(consumer)
    assert_message_count(found, count)
    assert [message.value for message in found] == texts

def test_the_network():
    BrokerConnection()
"""


def test_each_test_of_others_passes_or_is_left_out_for_a_reason() -> None:
    assert {row.suite for row in ROWS} == {suite.name for suite in SUITES}
    for row in ROWS:
        assert (row.state, bool(row.reason)) in ((PASSED, False), (LEFT_OUT, True)), row
        assert "Error:" not in row.reason, "say why, not how it failed"


def test_as_many_tests_of_others_pass_as_ever() -> None:
    assert Counter(row.suite for row in ROWS if row.state == PASSED) == LEAST_PASSED


def test_the_page_of_tests_has_the_counts_of_the_table() -> None:
    page = (PROJECT / "docs" / "TORTURE.md").read_text()
    for suite in LEAST_PASSED:
        functions = [row for row in ROWS if row.suite == suite and "::" in row.test]
        integration = [row for row in functions if "integration" in row.test.lower()]
        states = Counter(row.state for row in functions)
        of_integration = f"{sum(row.state == PASSED for row in integration)} of {len(integration)}"
        assert f"| {suite} | {states[PASSED]} | {states[LEFT_OUT]} | {of_integration} |" in page


@pytest.mark.slow
def test_a_suite_is_run_on_the_layer_and_compared_with_the_table(tmp_path: Path) -> None:
    (tmp_path / "test_small.py").write_text(TESTS)
    found = outcomes(SMALL, tmp_path, [], ["--tb=line"])
    assert {name: state for name, (state, _) in found.items()} == {
        "test_small.py::test_messages_arrive": "passed",
        "test_small.py::test_the_network": "failed",
    }
    rows, wrong = compared(SMALL, [], found)
    assert [row.test for row in rows if row.reason == "the network"] == ["net"]
    assert any("BrokerConnection is private" in line for line in wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["2.0.2"], "cannot fetch kafka-python 2.0.2"),
        (["a3b3836"], "needs --checkout DIR: a clone of"),
        (["a3b3836", "--checkout", "."], "has no commit a3b3836"),
    ],
)
def test_without_a_network_the_command_says_what_to_fetch(tmp_path: Path, arguments: list[str], expected: str) -> None:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), str(PROJECT / "tests")]),
        "OTHERS_CACHE": str(tmp_path / "others"),
        "PIP_INDEX_URL": "file:///nowhere",
        "PIP_RETRIES": "0",
    }
    command = [sys.executable, "-m", "support.others", *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert expected in done.stderr


def test_a_source_distribution_put_into_the_cache_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from support.others import suites

    folder = tmp_path / "kafka_python-0.0.1" / "test"
    folder.mkdir(parents=True)
    (folder / "test_small.py").write_text(TESTS)
    cache = tmp_path / "cache"
    cache.mkdir()
    with tarfile.open(cache / "kafka_python-0.0.1.tar.gz", "w:gz") as file:
        file.add(folder.parent, "kafka_python-0.0.1")
    monkeypatch.setattr(suites, "CACHE", cache)
    assert (suites.fetched(SMALL, None) / "test_small.py").read_text() == TESTS
