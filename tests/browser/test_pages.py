"""The window in Chromium: pages for all readers, in both colour schemes, wide and narrow, that reach no other machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser

import pylog
from pylog import OffsetsConfig, Store
from support.chromium import NARROW, WIDE, Tab, chromium
from support.cli import call

HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>'
LONG = "a" * 240
NOW = 1_790_000_000_000


class Window(NamedTuple):
    """A window on a store, in a browser."""

    browser: Browser
    url: str
    store: Store

    @property
    def origin(self) -> str:
        return self.url.partition("/?")[0]

    def tab(self, scheme: str = "light", size: tuple[int, int] = WIDE) -> Tab:
        """A tab that has been let in."""
        made = Tab(self.browser, self.origin, scheme, size)
        made.go(self.url.removeprefix(self.origin))
        return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def window(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    path = tmp_path_factory.mktemp("window") / "shop"
    with pylog.open(path, offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        fill(store)
        yield Window(browser, store.serve_ui(port=0).url, store)


def fill(store: Store) -> None:
    """Topics with ordinary, odd and hostile names and records, and groups that read them."""
    store.create_topic("orders", partition_count=2, segment_bytes=2_000, retention_ms=-1)
    store.create_topic(LONG)
    store.create_topic("empty")
    store.create_topic("prices", cleanup_policy="compact")
    for number in range(120):
        value = b'{"customer": {"id": %d}, "state": "paid", "total": %d}' % (number % 7, number)
        store.log("orders", number % 2).append(value, key=b"k%d" % (number % 7), timestamp=NOW + number)
    store.log("orders", 1).append(None, key=b"gone", timestamp=NOW + 200)
    for data in (HOSTILE.encode(), HOSTILE.encode() * 30, bytes(range(256)), b"\xff" * 300, b""):
        store.log("prices").append(data, key=data[:60], headers=[(HOSTILE, data), ("trace", b"1")])
    store.offsets.commit("billing", {("orders", 0): 10, ("orders", 1): 30})
    store.offsets.commit(HOSTILE, {("prices", 0): 0})


PAGES = (
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders?find=(&how=regex",
    "/topics/orders/partitions",
    "/topics/orders/segments",
    "/topics/prices/segments",
    "/topics/orders/producers",
    "/topics/orders/live",
    "/health",
    "/topics/orders/options",
    "/topics/orders/0/3",
    "/topics/orders/0/3?key_as=hex&value_as=text",
    "/topics/orders?key_as=hex&value_as=schema",
    "/topics?order=size",
    "/topics/empty",
    f"/topics/{LONG}",
    "/topics/prices",
    "/topics/prices/0/1",
    "/topics/nothing",
    "/groups",
    "/groups/billing",
    f"/groups/{quote(HOSTILE, safe='')}",
)
LOOKS = [pytest.param("light", WIDE, id="light and wide"), pytest.param("dark", NARROW, id="dark and narrow")]


def own(complaints: list[str]) -> list[str]:
    """Complaints except Chromium's line about an answer that is an error, which some pages are meant to be."""
    return [each for each in complaints if "the server responded with a status of 4" not in each]


@pytest.mark.parametrize(("scheme", "size"), LOOKS)
def test_each_page_is_for_all_readers_and_fits_its_screen_and_reaches_nothing_else(
    window: Window, scheme: str, size: tuple[int, int]
) -> None:
    tab = window.tab(scheme, size)
    wrong: dict[str, list[str]] = {}
    for path in PAGES:
        tab.go(path)
        found = tab.axe() + (["it scrolls sideways"] if tab.is_wider_than_the_screen() else [])
        if found:
            wrong[path] = found
    assert wrong == {}
    assert tab.strayed == []
    assert own(tab.complaints) == []
    tab.close()


@pytest.mark.parametrize(("scheme", "size"), [("dark", WIDE), ("light", NARROW)])
def test_the_main_pages_are_so_in_the_other_colours(window: Window, scheme: str, size: tuple[int, int]) -> None:
    tab = window.tab(scheme, size)
    for path in ("/", "/topics/orders", "/groups/billing"):
        tab.go(path)
        assert tab.axe() == []
        assert not tab.is_wider_than_the_screen()
    tab.close()


def test_hostile_records_and_names_make_no_element_and_run_nothing(window: Window) -> None:
    tab = window.tab()
    for path in (
        "/",
        "/groups",
        "/topics/prices",
        "/topics/prices/groups",
        "/topics/prices/0/0",
        f"/topics/orders?find={quote(HOSTILE)}",
        f"/topics/{quote(HOSTILE, safe='')}",
        f"/groups/{quote(HOSTILE, safe='')}",
    ):
        page = tab.go(path)
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 1
        assert page.locator("[style]").count() == 0
        assert page.evaluate("[...document.querySelectorAll('*')].every(e => [...e.attributes].every(a => !/^on/.test(a.name)))")
    assert own(tab.complaints) == []
    assert tab.strayed == []
    tab.close()


def test_a_script_that_got_into_a_page_would_not_run(window: Window) -> None:
    tab = window.tab()
    page = tab.go("/topics/orders")
    page.evaluate(
        """() => {
            document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.ran = 1' }));
            document.body.append(Object.assign(document.createElement('img'), { src: 'https://evil.example/x' }));
        }"""
    )
    page.wait_for_timeout(50)
    assert page.evaluate("window.ran") is None
    assert any("Content Security Policy" in each for each in tab.complaints)
    assert tab.strayed == [], "the policy stops it before it is asked for"
    tab.close()


def test_the_keyboard_alone_opens_a_topic_searches_it_reads_a_record_and_goes_back(window: Window) -> None:
    tab = window.tab()
    page = tab.go("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("/")
    page.keyboard.type("orders")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/orders")
    page.locator("input[name=find]").focus()
    page.keyboard.type("customer")
    page.keyboard.press("Enter")
    page.wait_for_url("**find=customer**")
    page.locator("main td a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/orders/*/*")
    here = page.url
    page.keyboard.press("[")
    page.wait_for_url(lambda url: url != here)
    page.go_back()  # a browser without a head has no keys of its own
    page.wait_for_url(here)
    assert own(tab.complaints) == []
    tab.close()


def test_a_click_on_a_column_puts_the_topics_in_its_order_and_a_second_one_turns_it(window: Window) -> None:
    tab = window.tab()
    page = tab.go("/topics")
    page.get_by_role("columnheader", name="Size").get_by_role("link").click()
    page.wait_for_selector("th[aria-sort=descending]:has-text('Size')")
    largest = page.locator("tbody tr:first-child .name").text_content()
    page.get_by_role("columnheader", name="Size").get_by_role("link").click()
    page.wait_for_selector("th[aria-sort=ascending]:has-text('Size')")
    assert page.locator("tbody tr:last-child .name").text_content() == largest
    assert tab.axe() == []
    assert (own(tab.complaints), tab.strayed) == ([], [])
    tab.close()


def test_a_narrow_page_has_its_pages_in_a_list_that_opens(window: Window) -> None:
    tab = window.tab("dark", NARROW)
    page = tab.go("/topics")
    assert page.get_by_role("link", name="Groups").count() == 0
    page.locator("summary:has-text('Topics')").click()
    assert tab.axe() == []
    assert not tab.is_wider_than_the_screen()
    page.get_by_role("link", name="Groups").click()
    page.wait_for_url("**/groups")
    wide = window.tab()
    assert wide.go("/topics").locator("header summary").is_hidden()
    assert (own(tab.complaints), tab.strayed) == ([], [])
    wide.close()
    tab.close()


def test_a_record_is_changed_in_a_form_and_appended_once_its_plan_is_confirmed(window: Window) -> None:
    log = window.store.log("empty")
    with window.store.serve_ui(port=0, write=True) as server:
        tab = window._replace(url=server.url).tab("dark", NARROW)
        page = tab.go("/topics/prices/0/2")
        page.get_by_text("As a new record…").click()
        page.get_by_label("Topic", exact=True).fill("empty")
        value = page.get_by_label("Value: the same")
        value.fill(value.input_value() + "\nmore")
        page.get_by_role("button", name="Show the plan").click()
        page.wait_for_selector(":text('This appends a record')")
        assert log.end_offset == 0
        assert tab.axe() == []
        assert not tab.is_wider_than_the_screen()
        page.get_by_role("button", name="Do it").click()
        page.wait_for_selector(":text('The record is empty-0@0')")
        source, made = window.store.log("prices").read(2), log.read(0)
        assert (made.key, made.value, made.headers) == (source.key, (source.value or b"") + b"\nmore", source.headers)
        assert (own(tab.complaints), tab.strayed) == ([], [])
        tab.close()


def test_a_question_mark_shows_the_keys(window: Window) -> None:
    tab = window.tab("dark", NARROW)
    page = tab.go("/topics/orders")
    page.keyboard.press("?")
    page.wait_for_selector("#keys[open] :text('next and the previous row')")
    assert tab.axe() == []
    assert not tab.is_wider_than_the_screen()
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()
    page.locator("input[name=find]").focus()
    page.keyboard.type("?")
    assert not page.locator("#keys").is_visible(), "it is text in a field"
    page.get_by_role("button", name="Keys").click()
    page.get_by_role("button", name="Close").click()
    assert not page.locator("#keys").is_visible()
    assert (own(tab.complaints), tab.strayed) == ([], [])
    tab.close()


def test_new_records_come_in_on_top_and_wait_while_the_reader_reads(window: Window) -> None:
    log = window.store.log("orders")
    tab = window.tab()
    page = tab.go("/topics/orders/live")
    log.append(b"first news")
    page.wait_for_selector("tbody tr:first-child :text('first news')")
    page.locator("tbody a").first.focus()
    log.append(b"second news")
    page.wait_for_selector("#pace:has-text('Paused')")
    assert page.locator(":text('second news')").count() == 0
    page.keyboard.press("Escape")
    page.wait_for_selector("tbody tr:first-child :text('second news')")
    log.append_many([b"many %d" % number for number in range(1_000)])
    page.wait_for_selector("#pace:has-text('more have passed')")
    assert page.locator("tbody tr").count() <= 200
    assert (own(tab.complaints), tab.strayed) == ([], [])
    tab.close()


def test_a_page_whose_window_does_not_answer_says_that_it_is_old(window: Window) -> None:
    with window.store.serve_ui(port=0) as server:
        tab = window._replace(url=server.url).tab()
        page = tab.go("/groups")
        page.wait_for_selector(".asof:has-text('as of')")
        assert page.locator(":text('not refreshed')").count() == 0
    page.wait_for_selector(".asof:has-text('not refreshed')")
    tab.close()


def test_a_verification_is_started_and_shows_its_result(window: Window) -> None:
    tab = window.tab()
    page = tab.go("/health")
    page.get_by_role("button", name="Verify all files").click()
    page.wait_for_selector("#verify :text('No damage')")
    assert tab.axe() == []
    assert (own(tab.complaints), tab.strayed) == ([], [])
    tab.close()


def test_a_window_that_only_reads_has_no_button_to_change_and_one_that_may_asks_first(window: Window) -> None:
    reading = window.tab()
    assert reading.go("/topics/orders").get_by_text("Delete…").count() == 0
    assert reading.page.get_by_text("read-only").count() == 1
    reading.close()
    window.store.create_topic("doomed")
    with window.store.serve_ui(port=0, write=True) as server:
        changing = window._replace(url=server.url)
        tab = changing.tab()
        page = tab.go("/topics/doomed")
        page.get_by_text("Delete…").click()
        page.wait_for_selector(":text('permanently')")
        assert tab.axe() == []
        page.get_by_label("Type doomed to confirm").fill("doomed")
        page.get_by_role("button", name="Do it").click()
        page.wait_for_selector(":text('is deleted')")
        assert "doomed" not in window.store.topics()
        assert (own(tab.complaints), tab.strayed) == ([], [])
        tab.close()


def test_another_host_name_shows_nothing(window: Window) -> None:
    port = window.origin.rpartition(":")[2]
    tab = Tab(window.browser, f"http://other.localhost:{port}")
    tab.go(window.url.removeprefix(window.origin))
    assert "orders" not in (tab.page.content())
    assert "not one of this window's" in tab.page.content()
    tab.close()


def test_the_report_of_stats_keeps_its_own_policy(browser: Browser, window: Window, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    assert call("stats", window.store.path, "--html", target).code == 0
    for scheme, size in (("light", WIDE), ("dark", NARROW)):
        tab = Tab(browser, "file://", scheme, size)
        tab.go(str(target))
        assert tab.axe() == []
        assert not tab.is_wider_than_the_screen()
        assert tab.page.locator("rect.records").count() > 0
        assert tab.page.locator("[style], script, img").count() == 0
        assert tab.page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") == "1080px", "its style is applied"
        assert (tab.complaints, tab.strayed) == ([], [])
        tab.close()
