"""The window beside a broker that writes: its numbers lie between two answers of the broker, and equal Kafka's tools at rest."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pylog
from pylog.monitoring.measured import measures_of
from pylog.ui.app import made_application
from pylog.ui.watch import Watch
from support.kafka.harness import Broker, Message
from support.ui import Browser

TABS = ("records", "live", "partitions", "segments", "groups", "producers", "options")
PAGES = ("/", "/topics?internal=1", "/groups", "/health", "/groups/billing", *(f"/topics/orders/{tab}" for tab in TABS))
SMALL = {"segment.bytes": "1048576", "retention.ms": "-1"}
OFTEN = {  # what the broker else does after half a minute, or a minute
    "log.initial.task.delay.ms": "300",
    "log.retention.check.interval.ms": "300",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
    "file.delete.delay.ms": "300",
}


class _Window:
    """The window on a directory. Each request gets a new observation."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._browser = Browser(made_application(watch, token=None))

    def page(self, url: str) -> str:
        self._watch.forget()
        answer = self._browser.get(url)
        assert answer.status == 200, (url, answer.text)
        assert "say bad" not in answer.text, (url, re.findall('<p class="say bad">.*?</p>', answer.text))
        return answer.text

    def data(self, url: str) -> Any:
        self._watch.forget()
        return self._browser.get(f"/json{url}").json

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """The start and the end of each partition."""
        rows = self.data(f"/topics/{topic}/partitions")["partitions"]
        return {each["partition"]: (each["start_offset"], each["end_offset"]) for each in rows}

    def lags(self, group: str) -> dict[tuple[str, int], tuple[int, int, int]]:
        """The committed offset, the end and the lag of each partition of a group."""
        rows = self.data(f"/groups/{group}").get("partitions", ())
        return {(each["topic"], each["partition"]): (each["offset"], each["offset"] + each["lag"], each["lag"]) for each in rows}


@contextmanager
def written(running: Broker, seconds: int) -> Iterator[threading.Thread]:
    """Kafka's own load producer writes in a process of its own. The block ends when it does."""
    arguments = ["--topic", "orders", "--num-records", str(seconds * 500), "--throughput", "500", "--record-size", "1500"]
    statuses: list[int] = []

    def produce() -> None:
        statuses.append(running.run_tool("producer-perf-test", *arguments).status)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield thread
    finally:
        thread.join()
    assert statuses == [0]


def of_the_tool(running: Broker, group: str) -> dict[tuple[str, int], tuple[int, int, int]]:
    """The rows of `kafka-consumer-groups --describe`: the committed offset, the end and the lag."""
    text = running.run_tool("consumer-groups", "--describe", "--group", group).check().stdout
    rows = [line.split() for line in text.splitlines() if line.startswith(group)]
    return {(row[1], int(row[2])): (int(row[3]), int(row[4]), int(row[5])) for row in rows}


def test_pages_beside_a_broker_that_writes_have_the_brokers_numbers(tmp_path: Path, broker: Any) -> None:
    running: Broker = broker(tmp_path / "logs")
    running.create_topic("orders", partitions=3, config=SMALL)
    running.produce("orders", [Message(b"first", key=b"a", partition=number) for number in range(3)])
    running.consume_in_group("billing", "orders", 3, leave=False)
    rounds = 0
    with pylog.open(running.log_dir, mode="r") as store:
        window = _Window(measures_of(store).watch())
        assert "a broker has it open" in window.page("/")
        with written(running, 12) as writer:
            while writer.is_alive():
                before = running.offsets("orders")
                shown = window.offsets("orders")
                after = running.offsets("orders")
                for number, (_, end) in shown.items():
                    assert before[number][1] <= end <= after[number][1], number
                running.consume_in_group("billing", "orders", 10, leave=False)
                committed, seen = running.committed("billing"), window.lags("billing")
                assert {place: row[0] for place, row in seen.items()} == committed
                assert all(row[2] >= 0 for row in seen.values())
                for url in PAGES:
                    window.page(url)
                rounds += 1
        assert rounds, "each page was opened while the broker was written to"
        assert window.offsets("orders") == running.offsets("orders")
        assert window.lags("billing") == of_the_tool(running, "billing")
        [last] = window.data("/topics/orders/records?partition=1&from=-1&direction=forth")["records"]
        assert last["offset"] == running.offsets("orders")[1][1] - 1


def test_pages_follow_what_a_broker_changes_besides_records(tmp_path: Path, broker: Any) -> None:
    running: Broker = broker(tmp_path / "logs", config=OFTEN)
    running.create_topic("orders", config=SMALL)
    running.create_topic("short", config=SMALL)
    with pylog.open(running.log_dir, mode="r") as store:
        window = _Window(measures_of(store).watch())
        assert set(window.offsets("orders")) == {0}
        running.produce("orders", [Message(b"x" * 250_000)] * 20)
        running.delete_records("orders", 0, 15)
        until(lambda: window.offsets("orders") == running.offsets("orders") == {0: (15, 20)})
        until(lambda: len(window.data("/topics/orders/segments")["partitions"][0]["segments"]) <= 3)  # files are deleted
        running.produce("orders", [Message(b"open")], transactional_id="t", transaction="leave open")
        assert "holds the stable offset at 20" in window.page("/topics/orders/producers")
        running.delete_topic("short")
        until(lambda: "short" not in window.page("/topics"))
        running.create_topic("later")
        until(lambda: "later" in window.page("/topics"))
        running.stop()
        assert "has it open" not in window.page("/topics")


def until(holds: Any) -> None:
    """Waits until something holds."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
