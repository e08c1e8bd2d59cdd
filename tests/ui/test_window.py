"""The window: its pages show what is in the directory, change nothing, and let nobody else in."""

from __future__ import annotations

import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

import pylog
from pylog import InvalidArgumentError, OffsetsConfig, StorageFailedError, Store
from pylog.clock import ManualClock
from pylog.metrics import Sample
from pylog.monitoring.measured import measures_of
from pylog.store import manager_of
from pylog.testing import MemoryFileSystem
from pylog.ui.app import made_application, shipped
from pylog.ui.matching import Query
from pylog.ui.search import search
from support.golden import data as golden_data
from support.ui import Browser

HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>'
PAGES = ("/", "/topics", "/topics?internal=1", "/groups")
TABS = ("records", "partitions", "segments", "groups", "options")


@pytest.fixture
def store() -> Iterator[Store]:
    with pylog.open("/s", fs=MemoryFileSystem(), offsets=OffsetsConfig(topic_num_partitions=1)) as made:
        made.create_topic("orders", partition_count=2, segment_bytes=1_000)
        made.create_topic("prices", cleanup_policy="compact")
        for number in range(60):
            made.log("orders", number % 2).append(b"value-%d" % number, key=b"key-%d" % (number % 7), timestamp=1_000 + number)
        made.log("prices").append(HOSTILE.encode(), key=HOSTILE.encode(), headers=[(HOSTILE, HOSTILE.encode())])
        made.offsets.commit("billing", {("orders", 0): 10, ("orders", 1): 30})
        made.offsets.commit(HOSTILE, {("prices", 0): 0})
        yield made


def browser_of(store: Store, token: str | None = None) -> Browser:
    return Browser(made_application(measures_of(store).watch(), token=token))


@pytest.fixture
def browser(store: Store) -> Browser:
    return browser_of(store)


class _Elements(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]


# ---- what the pages show -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_page_that_a_page_links_to_is_there(browser: Browser) -> None:
    waiting, seen = ["/"], set()
    while waiting:
        url = waiting.pop()
        seen.add(url)
        answer = browser.get(url)
        assert answer.status in (200, 303), (url, answer.text)
        if answer.headers.get("content-type", "").startswith("text/html"):
            found = {
                link for link in _Elements(answer.text).links if link.startswith("/") and not re.search("cursor|verify", link)
            }
            waiting += sorted(
                each for each in found if each not in seen and each not in waiting and not re.search(r"/\d+$|back$", each)
            )
    assert {f"/topics/orders/{tab}" for tab in TABS} <= seen
    assert "/groups/billing" in seen


def test_the_numbers_are_those_of_the_metrics(store: Store, browser: Browser) -> None:
    samples = store.metrics()
    data = browser.get("/json/").json

    def metric(name: str, **labels: str) -> dict[tuple[str, ...], float]:
        chosen: list[Sample] = [each for each in samples if each.name == name and labels.items() <= each.labels.items()]
        return {(each.labels["topic"], each.labels["partition"]): each.value for each in chosen}

    rows = {(topic["topic"], str(each["partition"])): each for topic in data["topics"] for each in topic["partitions"]}
    for name, field in (("log_start_offset", "start_offset"), ("log_end_offset", "end_offset"), ("log_size_bytes", "bytes")):
        assert {place: row[field] for place, row in rows.items()} == metric(name)
    billing = next(group for group in data["groups"] if group["group"] == "billing")
    lags = {(row["topic"], str(row["partition"])): row["lag"] for row in billing["partitions"]}
    assert lags == metric("group_lag", group="billing")
    assert billing["verdict"] == str(store.group("billing").health().verdict)


@pytest.mark.parametrize("direction", ["back", "forth"])
@pytest.mark.parametrize("find", ["", "value-1", "key-3"])
def test_the_pages_of_a_search_have_each_matching_record_once(store: Store, browser: Browser, find: str, direction: str) -> None:
    wanted = {
        (record.partition, record.offset)
        for number in range(2)
        for record in store.log("orders", number).records()
        if find.encode() in (record.value or b"") or find.encode() in (record.key or b"")
    }
    found: list[tuple[int, int]] = []
    url = f"/json/topics/orders/records?find={find}&direction={direction}"
    page = browser.get(url).json
    while True:
        found += [(each["partition"], each["offset"]) for each in page["records"]]
        if page["done"]:
            break
        page = browser.get(f"{url}&cursor={page['cursor']}").json
    assert len(found) == len(set(found))
    assert set(found) == wanted


def test_records_are_shown_by_time_over_all_partitions(browser: Browser) -> None:
    times = [each["timestamp"] for each in browser.get("/json/topics/orders/records").json["records"]]
    assert times == sorted(times, reverse=True)
    forth = browser.get("/json/topics/orders/records?direction=forth&from=1970-01-01T00:00:01.020").json["records"]
    assert [each["timestamp"] for each in forth][:2] == [1020, 1021]


def test_a_full_page_has_reached_its_last_row(store: Store, browser: Browser) -> None:
    last = browser.get("/json/topics/orders/records").json["records"][-1]
    assert last["timestamp"] == 1010, "the 50th of 60, of both partitions"
    assert "back to 1970-01-01 00:00:01.010: 50 found. 10 are left." in browser.get("/topics/orders").text


def test_a_search_says_how_far_it_got(browser: Browser) -> None:
    text = browser.get("/topics/orders?find=no-such-record").text
    assert "Searched 60 offsets" in text
    assert "0 found" in text
    assert "That is all." in text


def test_large_records_are_read_a_few_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.ui.search._READ_BYTES", 10_000)
    store.create_topic("large", segment_bytes=1 << 20)
    for number in range(40):
        store.log("large").append(bytes([number]) * 3_000)
    asked: list[tuple[int, int]] = []
    log = manager_of(store).log("large", 0)
    scan = log.scan

    def noted(low: int, high: int, **options: Any) -> Iterator[Any]:
        asked.append((low, high))
        return scan(low, high, **options)

    monkeypatch.setattr(log, "scan", noted)
    page = search({0: log}, Query("nothing"), {0: 40}, ManualClock(0))
    assert page.is_done
    assert page.searched == 40
    assert max(high - low for low, high in asked) <= 4
    assert sorted(offset for low, high in asked for offset in range(low, high)) == list(range(40))


def test_headers_are_searched_and_regular_expressions_are_those_of_re2(browser: Browser) -> None:
    assert len(browser.get("/json/topics/prices/records?how=regex&find=on(error|load)%3Dalert").json["records"]) == 1
    assert len(browser.get(f"/json/topics/prices/records?how=equals&find={quote(HOSTILE)}").json["records"]) == 1
    refused = browser.get("/topics/prices?how=regex&find=(")
    assert refused.status == 400
    assert "regular expression" in refused.text


def test_a_record_has_a_page_with_its_neighbours(browser: Browser) -> None:
    answer = browser.get("/topics/orders/0/3")
    assert "value-6" in answer.text
    assert "/topics/orders/0/4" in answer.text
    assert browser.get("/topics/orders/0/99").status == 404


def test_what_is_typed_into_the_head_leads_to_a_page(browser: Browser) -> None:
    def target(typed: str) -> str:
        return browser.get(f"/go?to={quote(typed)}").headers["location"]

    assert target("orders-1@1,0") == "/topics/orders/1/10"
    assert target("orders") == "/topics/orders"
    assert target("billing") == "/groups/billing"
    assert target("http://evil.example/") == "/topics?find=http%3A%2F%2Fevil.example%2F", "which says that there is none"


@pytest.mark.damaged("the segment's bytes are overwritten")
def test_a_damaged_partition_is_named_and_hides_no_other(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("good")
        store.create_topic("bad")
        store.log("good").append(b"x")
        store.log("bad").append(b"x")
    path = tmp_path / "s" / "bad-0" / "00000000000000000000.log"
    path.write_bytes(bytes(path.stat().st_size))
    with pylog.open(tmp_path / "s", mode="r") as store:
        browser = browser_of(store)
        assert browser.get("/topics/good").status == 200
        for url in ("/", "/topics/bad", "/topics/bad/segments", "/topics/bad/0/0"):
            assert browser.get(url).status in (200, 404, 500)
        assert "good" in browser.get("/topics").text


@pytest.mark.damaged("a partition is removed")
def test_a_partition_without_a_directory_has_unknown_numbers_and_the_others_are_shown(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("orders", partition_count=2)
        for number in range(2):
            store.log("orders", number).append_many([b"x"] * 9)
        store.offsets.commit("billing", {("orders", 0): 2, ("orders", 1): 2})
    shutil.rmtree(tmp_path / "s" / "orders-1")
    with pylog.open(tmp_path / "s", mode="r") as store:
        browser = browser_of(store)
        sound, lost = browser.get("/topics/orders/partitions").text.partition("<tbody>")[2].split("</tr>")[:2]
        assert (">9<" in sound, "unknown" in sound) == (True, False)
        assert (">0<" in lost, "unknown" in lost) == (False, True)
        assert "1 damaged" in browser.get("/topics").text
        found = browser.get("/groups/billing.json").json["partitions"]
        assert [(each["lag"], each["lag_records"]) for each in found] == [(7, 7), (None, None)]


@pytest.mark.parametrize("case", [each for each in golden_data.cases() if each.name == "groups"], ids=lambda case: case.version)
def test_every_page_of_a_brokers_directory_is_shown(case: Any) -> None:
    with pylog.open(case.log_directory, mode="r") as store:
        browser = browser_of(store)
        for url in PAGES:
            assert browser.get(url).status == 200
        for name in store.topics():
            for tab in TABS:
                assert browser.get(f"/topics/{name}/{tab}").status == 200, (name, tab)
        for group in store.groups():
            assert browser.get(f"/groups/{quote(group, safe='')}").status == 200


# ---- what is hostile ---------------------------------------------------------------------------------------------------------


def test_hostile_names_keys_values_and_headers_make_no_element(browser: Browser) -> None:
    pages = [
        "/",
        "/topics",
        "/groups",
        "/topics/prices",
        "/topics/prices/groups",
        "/topics/prices/0/0",
        f"/groups/{quote(HOSTILE, safe='')}",
    ]
    for url in pages:
        answer = browser.get(url)
        assert answer.status == 200, url
        elements = _Elements(answer.text)
        assert "img" not in elements.names
        assert elements.names.count("script") == 1  # its own
        assert not [name for name in elements.attributes if name.startswith("on") or name == "style"]
        assert not [link for link in elements.links if urlsplit(link).scheme or urlsplit(link).netloc]
    echoed = browser.get(f"/topics/orders?find={quote(HOSTILE)}&from={quote(HOSTILE)}").text
    assert _Elements(echoed).names.count("script") == 1


def test_each_answer_forbids_scripts_of_others_and_frames(browser: Browser) -> None:
    for url in ("/", "/static/ui.css", "/static/nothing", "/topics/none", "/json/"):
        headers = browser.get(url).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


def test_another_host_name_is_refused(browser: Browser) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example:8055", "", "[::1", "localhost.evil"):
        assert browser.get("/", host=host).status == 400
    for host in ("localhost", "127.0.0.1:1", "[::1]:8055", "LOCALHOST:8055"):
        assert browser.get("/", host=host).status == 200


def test_without_the_token_nothing_is_shown(store: Store) -> None:
    browser = browser_of(store, "secret")
    for headers in ({}, {"authorization": "Bearer wrong"}, {"cookie": "pylog-ui=wrong"}, {"cookie": "\xff=;"}):
        for url in ("/", "/topics/orders", "/json/", "/static/ui.js", "/?token=wrong"):
            answer = browser.get(url, **headers)
            assert answer.status == 401, url
            assert "orders" not in answer.text
    let_in = browser.get("/topics/orders?find=a%26b&token=secret")
    assert (let_in.status, let_in.headers["location"]) == (303, "/topics/orders?find=a%26b")
    assert "HttpOnly" in let_in.headers["set-cookie"]
    assert "SameSite=Strict" in let_in.headers["set-cookie"]
    assert browser.get("/", cookie=let_in.headers["set-cookie"].partition(";")[0]).status == 200
    assert browser.get("/", authorization="Bearer secret").status == 200


def test_a_redirect_with_a_token_never_leaves_the_window(store: Store) -> None:
    browser = browser_of(store, "secret")
    for path in ("//evil.example/", "/\\evil.example", "/%0d%0aSet-Cookie:%20a=b"):
        target = browser.get(f"{path}?token=secret").headers["location"]
        assert target.startswith("/")
        assert not target.startswith(("//", "/\\"))
        assert "\n" not in target


def test_only_reading_methods_are_answered_and_nothing_is_written(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t")
        store.log("t").append(b"x")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("*")}
    with pylog.open(tmp_path / "s", mode="r") as store:
        browser = browser_of(store)
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert browser.get("/topics", method).status in (403, 405)
            assert browser.get("/topics", method, **{"sec-fetch-site": "same-origin"}).status == 405
        for url in ("/", "/topics/t", "/topics/t/segments", "/groups", "/topics/t?find=x&delete=1"):
            browser.get(url)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "s").rglob("*")} == before


@pytest.mark.parametrize(
    "url",
    [
        "/topics/orders?cursor=0-99999999999999999999999",
        "/topics/orders?cursor=7-1",
        "/topics/orders?cursor=0-" + "9" * 5_000,
        "/topics/orders?partition=" + "9" * 5_000,
        "/topics/orders/0/" + "9" * 5_000,
        "/topics/orders/" + "9" * 5_000 + "/0",
        "/topics/orders/0/x",
        "/topics/orders?from=99999999999999999999",
        "/topics/orders?from=0001-01-01",
        "/topics/orders?partition=-1",
        "/topics/orders?how=eval",
        "/topics/orders/0/99999999999999999999",
        "/topics/%00",
        "/topics/../../etc/passwd",
        "/groups/%ff%fe",
        "/static/..%2fapp.py",
        "/json/topics/none",
        "/nothing",
        "/?" + "a" * 70_000,
    ],
)
def test_odd_requests_are_refused_with_a_sentence(browser: Browser, url: str) -> None:
    answer = browser.get(url)
    assert answer.status in (200, 400, 404, 414)
    assert answer.body


def test_pages_work_below_another_applications_path(browser: Browser) -> None:
    text = browser.get("/log/topics/orders", root="/log").text
    links = [link for link in _Elements(text).links if not link.startswith("#")]
    assert links
    assert all(link.startswith("/log") for link in links)


# ---- a server ----------------------------------------------------------------------------------------------------------------


def test_a_store_serves_its_window_until_it_is_closed(store: Store) -> None:
    server = store.serve_ui(port=0)
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(server.url, timeout=10) as answer:
        assert b"orders" in answer.read()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(server.url.partition("?")[0], timeout=10)
    refused.value.close()
    assert refused.value.code == 401
    store.close()
    with pytest.raises(urllib.error.URLError):
        opener.open(server.url, timeout=10)


def test_an_address_that_others_reach_needs_a_chosen_token(store: Store) -> None:
    with pytest.raises(InvalidArgumentError, match="token"):
        store.serve_ui(port=0, host="0.0.0.0")
    with store.serve_ui(port=0) as server, pytest.raises(StorageFailedError, match=str(server.port)):
        store.serve_ui(port=server.port)


def test_the_scripts_and_styles_name_no_other_machine() -> None:
    for name in ("ui.css", "ui.js"):
        assert not re.search(rb"https?:|//[a-z]|@import|eval|innerHTML", shipped(name))
