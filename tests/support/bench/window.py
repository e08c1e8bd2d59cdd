"""Measures the window: many partitions and groups, searches, and a tail of a busy topic: `./dev window-figures`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

import pylog
from pylog import OffsetsConfig, Store
from pylog.log.partition_log import PartitionLog
from pylog.monitoring.measured import measures_of
from pylog.store import manager_of
from pylog.ui.app import made_application
from pylog.ui.matching import Query, matches
from pylog.ui.search import COLUMNS, search
from support.ui import Browser

TOPICS, PARTITIONS, GROUPS = 20, 50, 50
RATE = 1_000_000  # records a second of a busy topic


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def browser_of(store: Store) -> Browser:
    return Browser(made_application(measures_of(store).watch(), token=None))


def many(path: Path) -> None:
    """The first page and a refresh, in seconds of CPU."""
    with pylog.open(path, offsets=OffsetsConfig(topic_num_partitions=4)) as store:
        for topic in range(TOPICS):
            store.create_topic(f"t{topic}", partition_count=PARTITIONS)
            for number in range(PARTITIONS):
                store.log(f"t{topic}", number).append_many([b"x"] * 5)
        for group in range(GROUPS):
            store.offsets.commit(f"g{group}", {(f"t{group % TOPICS}", number): 3 for number in range(PARTITIONS)})
    with pylog.open(path, mode="r") as store:
        watch = measures_of(store).watch()
        browser = Browser(made_application(watch, token=None))
        for name, page in (
            ("first page", "/"),
            ("all groups", "/groups"),
            ("refresh", "/"),
            ("first scrape", "/metrics"),
            ("scrape", "/metrics"),
        ):
            begun = time.process_time()
            browser.get(page)
            say(f"{TOPICS * PARTITIONS:,} partitions, {GROUPS} groups: {name} {time.process_time() - begun:.2f} s of CPU")
            if name != "first page":
                watch.forget()


def searches(store: Store) -> None:
    """A search over all records, against `scan` and the same filter."""
    store.create_topic("t", segment_bytes=64 << 20)
    for chunk in range(60):
        values = [b'{"id": %d, "state": "paid", "text": "%s"}' % (chunk * 10_000 + each, b"y" * 60) for each in range(10_000)]
        store.log("t").append_many(values)
    log = manager_of(store).log("t", 0)
    for query in (Query('"id": 123456,', backwards=False), Query('"id": 123456,'), Query("id = 123456", "json")):
        plain, paged = (min(_cpu(run, log, query) for _ in range(3)) for run in (_scan, _search))
        direction = "backwards" if query.backwards else "forwards"
        say(f"search, {query.how}, {direction}: {paged:.2f} s of CPU, {plain / paged:.2f} of scan and filter")


def _cpu(run: object, log: PartitionLog, query: Query) -> float:
    begun = time.process_time()
    run(log, query)  # type: ignore[operator]
    return time.process_time() - begun


def _scan(log: PartitionLog, query: Query) -> None:
    for frame in log.scan(columns=COLUMNS):
        frame.filter(matches(frame, query))


def _search(log: PartitionLog, query: Query) -> None:
    cursor, done = {0: log.end_offset if query.backwards else 0}, False
    while not done:
        page = search({0: log}, query, cursor, log.clock)
        cursor, done = page.cursor, page.is_done


class WindowProcess:
    """`pylog ui` on a directory, in a process of its own, whose seconds of CPU and memory are its own too."""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-m", "pylog", "ui", str(directory), "--port", "0", "--token", "t"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._origin = self._process.stdout.readline().partition("/?")[0]
        self._seen = psutil.Process(self._process.pid)

    def get(self, path: str) -> Any:
        asked = urllib.request.Request(self._origin + path, headers={"authorization": "Bearer t"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer)

    def cpu(self) -> float:
        used = self._seen.cpu_times()
        return float(used.user + used.system)

    def megabytes(self) -> int:
        return int(self._seen.memory_info().rss) >> 20

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)


def busy(store: Store, directory: Path, seconds: float) -> None:
    """A tail of a topic that gets a million records a second, by a window in another process."""
    log, batch = store.log("t"), [b"z" * 60] * 5_000
    appended, sizes, ages = 0, list[int](), list[float]()
    with closing(WindowProcess(directory)) as window:
        url = "/topics/t/live.json"
        url = f"/topics/t/live.json?cursor={window.get(url)['cursor']}"
        begun, first = time.monotonic(), window.cpu()
        while (passed := time.monotonic() - begun) < seconds:
            turn = time.monotonic() + 0.5
            while time.monotonic() < turn:
                if appended < RATE * (time.monotonic() - begun):
                    log.append_many(batch)
                    appended += len(batch)
                else:
                    time.sleep(0.005)
            found = window.get(url)
            ages.append(time.time() - found["records"][0]["timestamp"] / 1000)
            url = f"/topics/t/live.json?cursor={found['cursor']}"
            sizes.append(window.megabytes())
            if len(sizes) % 20 == 0:
                store.retain()
        share = 100 * (window.cpu() - first) / passed
    memory = f"{sizes[0]} MB at first, {sizes[len(sizes) // 2]} MB in the middle, {sizes[-1]} MB at last, at most {max(sizes)} MB"
    say(f"tail: {appended / passed:,.0f} records a second for {passed:.0f} s, {len(sizes)} polls")
    say(f"tail: {share:.1f} % of a core in the window's process, {memory}; the newest row is {max(ages):.2f} s old at most")


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.1, help="how long the busy topic is watched; the target is 10")
    parser.add_argument("--only", choices=("many", "one"), help="measure only many partitions, or only one topic")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        if given.only != "one":
            many(Path(directory) / "many")
        if given.only == "many":
            return
        with pylog.open(Path(directory) / "one", durability="os") as store:
            searches(store)
            store.alter_topic("t", retention_bytes=256 << 20)
            busy(store, Path(directory) / "one", 60 * given.minutes)


if __name__ == "__main__":
    main()
