"""Measures the window: many partitions and groups, searches, and a tail of a busy topic: `./dev window-figures`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

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


def busy(store: Store, seconds: float) -> None:
    """A tail of a topic that gets as many records as the machine can append."""
    browser, url, log = browser_of(store), "/topics/t/live.json", store.log("t")
    batch, appended, used, polls = [b"z" * 60] * 5_000, 0, 0.0, 0
    sizes = list[int]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        turn = time.monotonic() + 0.5
        while time.monotonic() < turn:
            log.append_many(batch)
            appended += len(batch)
        begun = time.process_time()
        url = f"/topics/t/live.json?cursor={browser.get(url).json['cursor']}"
        used, polls = used + time.process_time() - begun, polls + 1
        sizes.append(psutil.Process().memory_info().rss >> 20)
    rate, share = appended / seconds, 100 * used / seconds
    memory = f"{sizes[0]} MB at first, {sizes[-1]} MB at last"
    say(f"tail: {rate:,.0f} records a second, {polls} polls, {share:.1f} % of a core, {memory}")


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=0.1, help="how long the busy topic is watched; the target is 10")
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory() as directory:
        many(Path(directory) / "many")
        with pylog.open(Path(directory) / "one", durability="os") as store:
            searches(store)
            store.alter_topic("t", retention_bytes=256 << 20)
            busy(store, 60 * minutes)


if __name__ == "__main__":
    main()
