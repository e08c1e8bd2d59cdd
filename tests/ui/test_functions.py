"""The window follows, searches, exports, verifies, shows the past of a lag, and changes only what it may."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

import pylog
import pylog.ui
from pylog import OffsetsConfig, Store
from pylog.errors import InvalidArgumentError, ReadOnlyError
from pylog.monitoring.measured import measures_of
from pylog.testing import MemoryFileSystem
from pylog.ui.app import made_application
from pylog.ui.matching import Query, condition_of
from support.cli import call
from support.ui import SAME, Browser, form_token, posted


@pytest.fixture
def store() -> Iterator[Store]:
    with pylog.open("/s", fs=MemoryFileSystem(), offsets=OffsetsConfig(topic_num_partitions=1)) as made:
        made.create_topic("orders", partition_count=2, segment_bytes=1_000)
        for number in range(40):
            value = json.dumps({"customer": {"id": number % 5}, "lines": [{"sku": f"A-{number}"}], "total": number / 2})
            made.log("orders", number % 2).append(value.encode(), key=b"k%d" % (number % 7), timestamp=1_000 + number)
        made.offsets.commit("billing", {("orders", 0): 10, ("orders", 1): 15})
        yield made


def browser_of(store: Store) -> Browser:
    return Browser(made_application(measures_of(store).watch(), token=None))


@pytest.fixture
def browser(store: Store) -> Browser:
    return browser_of(store)


def found(browser: Browser, **query: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = browser.get(f"/topics/orders/records.json?{urlencode(query)}").json["records"]
    return rows


# ---- data, search, export ----------------------------------------------------------------------------------------------------


def test_the_data_of_each_page_is_beside_it_also_of_names_that_end_like_data(store: Store, browser: Browser) -> None:
    store.create_topic("a.json")
    for path in (
        "/topics",
        "/topics/orders",
        "/topics/orders/segments",
        "/topics/orders/producers",
        "/groups/billing",
        "/health",
    ):
        assert browser.get(f"{path}.json").json == browser.get(f"/json{path}").json
    assert browser.get("/.json").json["topics"]
    assert browser.get("/topics/a.json").headers["content-type"].startswith("text/html")
    assert browser.get("/topics/a.json.json").json["records"] == []


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        ("customer.id = 3", range(3, 40, 5)),
        ('customer.id = "3"', ()),
        ("lines[0].sku = A-7", (7,)),
        ("lines[*].sku ~ A-3", (3, *range(30, 40))),
        ("total >= 19", (38, 39)),
        ("customer.id != 0", (each for each in range(40) if each % 5)),
        ("nothing", ()),
        ("total", range(40)),
    ],
)
def test_a_condition_on_a_path_finds_the_values_that_meet_it(browser: Browser, condition: str, numbers: Any) -> None:
    rows = found(browser, how="json", find=condition)
    assert sorted(each["timestamp"] - 1_000 for each in rows) == sorted(numbers)


def test_a_path_is_found_also_if_its_name_is_escaped_and_damaged_json_is_none(store: Store, browser: Browser) -> None:
    for value in (b'{"t\\u006ftal": 1000}', b'{"total": 1000', b"[" * 700, b"\xff", b"", None):
        store.log("orders").append(value)
    assert [each["value"] for each in found(browser, how="json", find="total = 1000")] == ['{"t\\u006ftal": 1000}']


@pytest.mark.parametrize("text", ["= 1", "a =", "a..b = 1", "a[x]", "a b", '"', "a" * 5 + "[" * 5])
def test_what_is_no_condition_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"customer\.id = 42"):
        condition_of(text)
    with pytest.raises(InvalidArgumentError):
        Query(text, "json")


def test_a_search_begins_at_the_last_records_at_an_offset_or_at_an_end(browser: Browser) -> None:
    def offsets(**query: str) -> list[int]:
        return [each["offset"] for each in found(browser, partition="0", **query)]

    assert offsets(direction="forth", **{"from": "-3"}) == [17, 18, 19]
    assert offsets(direction="forth", **{"from": "latest"}) == []
    assert offsets(direction="back", **{"from": "earliest"}) == []
    assert offsets(direction="back", **{"from": "2"}) == [2, 1, 0]
    assert browser.get("/topics/orders?from=-x").status == 400


def test_an_export_has_all_matching_records_in_the_form_of_cat(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t", segment_bytes=4_096)
        odd: tuple[bytes | None, ...] = (b"", None, b'a "b", c\n', b"\xff\x00", "é".encode())
        for number in range(500):
            store.log("t").append(odd[number % 5], key=odd[(number + 1) % 5], timestamp=number, headers=[("h", odd[number % 5])])
    with pylog.open(tmp_path / "s", mode="r") as store:
        browser = browser_of(store)
        answer = browser.get("/topics/t/records.jsonl?direction=forth")
        expected = call("cat", tmp_path / "s", "t", "--format", "jsonl").output
        assert [json.loads(line) for line in answer.text.splitlines()] == [json.loads(line) for line in expected.splitlines()]
        assert answer.headers["content-disposition"].startswith("attachment")
        rows = list(csv.reader(io.StringIO(browser.get("/topics/t/records.csv?direction=forth&find=%22b%22").text)))
        assert len(rows) == 1 + 500 * 3 // 5 - 100, "those with the text in key, value or header"
        assert browser.get("/topics/t/records.csv?how=regex&find=(").status == 400


def test_more_searches_than_four_at_once_wait_and_are_then_refused(
    store: Store, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pylog.ui.window._PATIENCE_S", 0.01)
    begun, go_on = threading.Semaphore(0), threading.Event()

    def slow(*_: Any, **__: Any) -> Any:
        begun.release()
        go_on.wait(10)
        raise InvalidArgumentError("ended")

    monkeypatch.setattr("pylog.ui.window.search", slow)
    threads = [threading.Thread(target=browser.get, args=("/topics/orders",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert begun.acquire(timeout=10)
    refused = browser.get("/topics/orders")
    assert (refused.status, "4 searches are running" in refused.text) == (503, True)
    go_on.set()
    for thread in threads:
        thread.join(10)


@pytest.mark.parametrize("direction", ["back", "forth"])
def test_matches_of_one_read_that_do_not_fit_on_a_page_are_on_the_next_ones(
    store: Store, browser: Browser, direction: str
) -> None:
    store.log("orders").append_many([b"hit-%d" % number for number in range(170)])
    seen: list[int] = []
    page: Any = {"cursor": "", "done": False}
    while not page["done"]:
        url = f"/topics/orders/records.json?find=hit&partition=0&direction={direction}&cursor={page['cursor']}"
        page = browser.get(url).json
        assert len(page["records"]) <= 50
        seen += [each["offset"] for each in page["records"]]
    assert seen == sorted(range(20, 190), reverse=direction == "back")


# ---- following ---------------------------------------------------------------------------------------------------------------


def test_a_tail_has_what_is_new_newest_first_and_counts_what_has_passed(store: Store, browser: Browser) -> None:
    first = browser.get("/topics/orders/live.json").json
    assert [each["timestamp"] for each in first["records"]] == list(range(1_039, 999, -1))
    address = f"/topics/orders/live.json?cursor={first['cursor']}"
    assert browser.get(address).json["records"] == []
    store.log("orders").append_many([b"new-%d" % number for number in range(1_000)])
    later = browser.get(address).json
    assert [each["value"] for each in later["records"]] == [f"new-{number}" for number in range(999, 899, -1)]
    assert later["passed_offsets"] == 900


def test_a_tail_goes_on_after_a_truncation_and_after_records_were_deleted(store: Store, browser: Browser) -> None:
    cursor = browser.get("/topics/orders/live.json").json["cursor"]
    store.log("orders").truncate(5)
    store.log("orders", 1).delete_records(20)
    answer = browser.get(f"/topics/orders/live.json?cursor={cursor}").json
    assert [(each["partition"], each["offset"]) for each in answer["records"]] == [(0, offset) for offset in range(4, -1, -1)]
    assert (answer["passed_offsets"], answer["begun_again"], answer["cursor"]) == (0, [0], "0-5.1-20")
    page = browser.get(f"/topics/orders/live?cursor={cursor}").text
    assert "Partition 0 ended before the last row" in page
    later = browser.get(f"/topics/orders/live.json?cursor={answer['cursor']}").json
    assert (later["records"], later["begun_again"]) == ([], [])


def test_a_tail_shows_the_records_of_a_topic_that_was_created_again_and_says_so(store: Store, browser: Browser) -> None:
    cursor = browser.get("/topics/orders/live.json").json["cursor"]
    store.delete_topic("orders")
    store.create_topic("orders", partition_count=2)
    store.log("orders").append_many([b"first", b"second"])
    answer = browser_of(store).get(f"/topics/orders/live.json?cursor={cursor}").json
    assert [each["value"] for each in answer["records"]] == ["second", "first"]
    assert answer["begun_again"] == [0, 1]


# ---- segments, producers, groups ---------------------------------------------------------------------------------------------


def test_segments_say_when_retention_deletes_them_and_what_is_compacted(store: Store, browser: Browser) -> None:
    page = browser.get("/topics/orders/segments.json").json
    assert set(page["fates"]["0"]["retention"].values()) == {"due: its records are too old"}
    store.create_topic("prices", cleanup_policy="compact", segment_bytes=1_000, min_cleanable_dirty_ratio=0.01)
    for number in range(60):
        store.log("prices").append(b"x" * 40, key=b"k%d" % (number % 3))
    assert "dirty" in browser_of(store).get("/topics/prices/segments.json").json["fates"]["0"]["compaction"].values()
    store.compact("prices")
    assert "clean" in browser_of(store).get("/topics/prices/segments.json").json["fates"]["0"]["compaction"].values()
    assert "% of what can be compacted is dirty" in browser_of(store).get("/topics/prices/segments").text


def test_an_open_transaction_is_named_as_what_holds_the_stable_offset(store: Store, browser: Browser) -> None:
    with store.transaction("billing-id") as transaction:
        transaction.append("orders", b"x", partition=0)
        transaction.flush()
        text = browser.get("/topics/orders/producers").text
        assert "holds the stable offset at 20" in text
        assert "billing-id" in text
        assert "open since offset 20" in text
    assert "No transaction is open." in browser_of(store).get("/topics/orders/producers").text


def test_the_lag_of_the_past_shows_a_stop_that_began_before_the_window_was_opened() -> None:
    fs, minute = MemoryFileSystem(), 60_000
    now = int(datetime.now(UTC).timestamp() * 1000)
    with pylog.open("/s", fs=fs, offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("orders")
        for number in range(60):
            store.log("orders").append(b"x", timestamp=now - (60 - number) * minute)
        browser = browser_of(store)
        store.offsets.commit("billing", {("orders", 0): 40})
        past = browser.get("/groups/billing.json").json["past"]
        assert {round(each["seconds"] / 60) for each in past} == {20}, "the commit is new: nothing is known of the time before"
    from pylog.groups.health import PastCommit
    from pylog.groups.lag_history import lag_history
    from pylog.groups.unread import UnreadRecords
    from pylog.record.types import TopicPartition
    from pylog.store import manager_of

    with pylog.open("/s", fs=fs) as store:
        unread = UnreadRecords(manager_of(store).log("orders", 0))
        commits = [PastCommit(now - (60 - number) * minute, number + 1) for number in range(40)]
        course = lag_history({TopicPartition("orders", 0): commits}, lambda _: unread, now - 60 * minute, now)
    stopped_at = now - 20 * minute
    assert max(each.seconds for each in course if each.timestamp <= stopped_at) <= 1
    assert course[-1].seconds == pytest.approx(20 * 60, abs=90)
    assert course[-1].offsets == 20
    rising = [each.seconds for each in course if each.timestamp > stopped_at + minute]
    assert rising == sorted(rising)


# ---- verifying ---------------------------------------------------------------------------------------------------------------


def test_a_verification_runs_once_at_a_time_shows_its_result_and_can_be_stopped(
    store: Store, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = form_token(browser.get("/health").text)
    assert posted(browser, "/verify/start", form_token=token).status == 303
    deadline = time.monotonic() + 10
    while browser.get("/health.json").json["state"] == "running" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert browser.get("/health.json").json["state"] == "done"
    assert "No damage" in browser.get("/health").text
    release = threading.Event()

    def endless(_: Any, progress: Any) -> Any:
        while not release.wait(0.001):
            progress(1, 2, "/s/orders-0/0.log")

    monkeypatch.setattr(measures_of(store)._manager, "verify", endless)
    assert posted(browser, "/verify/start", form_token=token).status == 303
    assert posted(browser, "/verify/start", form_token=token).status == 409
    assert posted(browser, "/verify/stop", form_token=token).status == 303
    assert browser.get("/health.json").json["state"] == "stopped"
    release.set()


# ---- changing ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def writer(store: Store) -> Browser:
    from contextlib import nullcontext

    return Browser(made_application(measures_of(store).watch(), token=None, writing=lambda: nullcontext(store)))


def plan_of(writer: Browser, name: str, **fields: str) -> tuple[str, str]:
    text = writer.get(f"/change/{name}?{urlencode(fields)}").text
    return text, form_token(text)


def test_offsets_records_and_topics_are_changed_as_planned_and_confirmed(store: Store, writer: Browser) -> None:
    text, token = plan_of(writer, "reset-offsets", group="billing", to="earliest")
    assert "sets the committed offsets" in text
    assert store.group("billing").lag()["orders", 0] == 10, "a plan changes nothing"
    assert posted(writer, "/change/reset-offsets", group="billing", to="earliest", form_token=token).status == 200
    assert store.group("billing").lag()["orders", 0] == 20
    posted(writer, "/change/delete-records", topic="orders", partition="0", before="7", form_token=token)
    assert store.log("orders").start_offset == 7
    refused = posted(writer, "/change/delete-topic", topic="orders", form_token=token)
    assert refused.status == 400
    assert "orders" in store.topics()
    assert posted(writer, "/change/delete-topic", topic="orders", typed="orders", form_token=token).status == 200
    assert "orders" not in store.topics()


def test_a_record_is_copied_whole_to_another_topic(store: Store, writer: Browser, browser: Browser) -> None:
    """So a dead letter goes back to its topic: key, value and headers are the same bytes."""
    store.create_topic("orders.dead", partition_count=3)
    before = store.log("orders").append(b"\xff\x00", key=b"k", headers=[("error", b"bad"), ("none", None)], timestamp=5)
    page = f"/topics/orders/0/{before}"
    assert "Copy to…" in writer.get(page).text
    assert "Copy to…" not in browser.get(page).text
    fields = {"topic": "orders", "partition": "0", "offset": str(before), "to": "orders.dead"}
    text, token = plan_of(writer, "copy-record", **fields)
    assert "appends a copy" in text
    assert sum(store.log("orders.dead", number).end_offset for number in range(3)) == 0, "a plan changes nothing"
    answer = posted(writer, "/change/copy-record", **fields, form_token=token)
    [copy] = [each for number in range(3) for each in store.log("orders.dead", number).records()]
    assert f"copied to orders.dead-{copy.partition}@0" in answer.text
    assert (copy.key, copy.value, copy.headers) == (b"k", b"\xff\x00", (("error", b"bad"), ("none", None)))
    assert copy.timestamp > 5
    for wrong in ({"to": "no"}, {"to": "__consumer_offsets"}, {"offset": "999"}, {"partition": "7"}):
        assert posted(writer, "/change/copy-record", **fields | wrong, form_token=token).status in (400, 404), wrong


def test_an_open_transaction_is_aborted_on_request(store: Store, writer: Browser) -> None:
    transaction = store.transaction("id")
    transaction.append("orders", b"x", partition=0)
    transaction.flush()
    opened = store.transactions.find_open("orders")[0]
    fields = {"topic": "orders", "partition": "0", "producer": str(opened.producer_id), "start": str(opened.start_offset)}
    text, token = plan_of(writer, "end-transaction", **fields)
    assert "aborts the transaction" in text
    assert posted(writer, "/change/end-transaction", **fields, form_token=token).status == 200
    assert store.transactions.find_open("orders") == []
    with pytest.raises(pylog.errors.PylogError):
        transaction.commit()


def test_changes_of_others_sites_without_the_token_or_in_a_window_that_reads_do_nothing(
    store: Store, writer: Browser, browser: Browser
) -> None:
    _, token = plan_of(writer, "delete-topic", topic="orders")
    body = urlencode({"topic": "orders", "typed": "orders", "form_token": token}).encode()
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "none"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {},
    ):
        assert writer.get("/change/delete-topic", "POST", body=body, **headers).status == 403
    assert posted(writer, "/change/delete-topic", topic="orders", typed="orders").status == 403
    assert posted(writer, "/change/delete-topic", topic="orders", typed="orders", form_token="x").status == 403
    assert writer.get("/change/delete-topic", "POST", body=b"a" * (3 << 20), **SAME).status == 413
    assert posted(browser, "/change/delete-topic", topic="orders", typed="orders", form_token=token).status == 403
    assert browser.get("/change/delete-topic?topic=orders").status == 403
    assert "Delete" not in browser.get("/topics/orders").text
    assert "orders" in store.topics()


@pytest.mark.parametrize(
    "fields", [{"partition": "x"}, {"partition": "9"}, {"before": "-1"}, {"before": "9" * 30}, {"topic": "no"}]
)
def test_a_plan_with_a_mistake_says_so(writer: Browser, fields: dict[str, str]) -> None:
    given = {"topic": "orders", "partition": "0", "before": "1", **fields}
    answer = writer.get(f"/change/delete-records?{urlencode(given)}")
    assert answer.status == 400
    assert "form_token" not in answer.text, "nothing to confirm"


def test_a_store_that_is_open_for_reading_serves_no_window_that_writes(tmp_path: Path) -> None:
    pylog.open(tmp_path / "s").close()
    with pylog.open(tmp_path / "s", mode="r") as store, pytest.raises(ReadOnlyError):
        store.serve_ui(port=0, write=True)


# ---- in another application --------------------------------------------------------------------------------------------------


def test_the_application_is_mounted_in_another_one_and_asks_for_no_host_of_its_own(store: Store) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    browser = Browser(Starlette(routes=[Mount("/log", app=pylog.ui.application(store))]))
    answer = browser.get("/log/topics/orders", host="shop.example")
    assert answer.status == 200
    assert set(re.findall(r'(?:href|src|action)="(/[^/"]*)', answer.text)) == {"/log"}
    assert browser.get(f"/log/topics/orders.json?find={quote('A-7')}").json["records"]
    with_token = Browser(pylog.ui.application(store, token="secret", hosts=["shop.example"]))
    assert with_token.get("/", host="shop.example").status == 401
    assert with_token.get("/").status == 400
