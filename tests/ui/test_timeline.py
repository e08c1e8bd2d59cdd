"""The timeline of a topic: its bars have the records of their times, and lead to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

import pylog
from pylog import Store
from pylog.clock import ManualClock
from pylog.monitoring.measured import measures_of
from pylog.testing import MemoryFileSystem
from pylog.ui import timeline
from pylog.ui.app import made_application
from support.ui import Browser

BEGIN = 1_700_000_000_000
MINUTE = 60_000
LARGE = b"x" * 5_000  # each batch has an entry in the time index


@pytest.fixture
def store() -> Iterator[Store]:
    with pylog.open("/s", fs=MemoryFileSystem()) as made:
        made.create_topic("orders", partition_count=2, segment_bytes=50_000)
        yield made


def browser_of(store: Store) -> Browser:
    return Browser(made_application(measures_of(store).watch(), token=None))


def bars(store: Store, topic: str = "orders") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = browser_of(store).get(f"/topics/{topic}/records.json").json["timeline"]
    return found


@pytest.mark.parametrize(("most", "fault"), [(8 << 20, 0), (0, 2)], ids=["from headers", "from indexes"])
def test_each_bar_has_the_records_of_its_time(store: Store, monkeypatch: pytest.MonkeyPatch, most: int, fault: int) -> None:
    monkeypatch.setattr(timeline, "_LARGE_LOG_BYTES", most)
    for number in range(600):
        store.log("orders", number % 2).append(LARGE, timestamp=BEGIN + number * number * 100)
    found = bars(store)
    assert (len(found), found[0]["begin_ms"]) == (timeline.BARS, BEGIN)
    stamps = [each.timestamp for number in range(2) for each in store.log("orders", number).records()]
    for each in found:
        there = sum(each["begin_ms"] <= stamp < each["end_ms"] for stamp in stamps)
        assert abs(each["records"] - there) <= fault, "a batch of each partition may have no entry in the time index"
    assert sum(each["records"] for each in found) == 600


def test_a_bar_leads_to_the_first_record_of_its_time(store: Store) -> None:
    for number in range(50):
        store.log("orders").append(LARGE, timestamp=BEGIN + number * MINUTE)
    browser = browser_of(store)
    links = re.findall(r'<a href="([^"]+)" aria-label="[^"]+: about', browser.get("/topics/orders").text)
    begins = [each["begin_ms"] for each in bars(store) if each["records"]]
    assert len(links) == len(begins) == 50
    for link, begin in zip(links, begins, strict=True):
        first = browser.get(unescape(link).replace("/records?", "/records.json?")).json["records"][0]
        assert first["timestamp"] >= begin > first["timestamp"] - MINUTE


def test_deleted_records_are_not_drawn_and_new_ones_are_after_a_while(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        store.log("orders").append(LARGE, timestamp=BEGIN + number * MINUTE)
    store.log("orders").delete_records(5)
    browser = browser_of(store)

    def drawn() -> int:
        found = browser.get("/topics/orders/records.json").json["timeline"]
        return sum(each["records"] for each in found)

    assert drawn() == 15
    store.log("orders").append(LARGE, timestamp=BEGIN)
    assert drawn() == 15
    monkeypatch.setattr(timeline, "_FRESH_S", 0.0)
    assert drawn() == 16


def test_topics_without_records_or_times_have_none(store: Store) -> None:
    assert bars(store) == []
    store.log("orders").append(b"x", timestamp=BEGIN)
    assert [each["records"] for each in bars(store)] == [1]
    assert "about 1 record" in browser_of(store).get("/topics/orders").text
    assert "svg" not in browser_of(store).get("/topics/orders?cursor=0-1.1-0").text, "only the first page of a search has it"


def test_a_topic_that_was_created_again_shows_its_own_bars_and_rates_at_once() -> None:
    """The window keeps bars for ten seconds, and rates as long as it is open."""
    clock = ManualClock(BEGIN)
    with pylog.open("/s", fs=MemoryFileSystem(), clock=clock) as store:
        watch = measures_of(store).watch()
        browser = Browser(made_application(watch, token=None))

        def page() -> tuple[int, tuple[float, ...]]:
            clock.advance(3_000)
            found = browser.get("/topics/orders/records.json").json["timeline"]
            return sum(each["records"] for each in found), watch.observation().topics["orders"].rates

        store.create_topic("orders")
        assert page() == (0, ())
        store.log("orders").append_many([b"x"] * 30)
        watch.forget()
        clock.advance(10_000)
        assert page()[0] == 30
        assert page()[1] != ()
        store.delete_topic("orders")
        store.create_topic("orders")
        store.log("orders").append(b"y")
        assert page() == (1, ())
        assert page() == (1, (0.0,))
