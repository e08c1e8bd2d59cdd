"""What pages show about records, groups, archives and the directory itself, and what a window hides."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import closing, nullcontext
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pylog
from pylog import OffsetsConfig, Store
from pylog.clock import ManualClock
from pylog.errors import InvalidArgumentError
from pylog.monitoring.measured import measures_of
from pylog.opening import open_store
from pylog.testing import MemoryFileSystem
from pylog.ui.app import made_application
from pylog.ui.matching import Query
from support.cli import call
from support.ui import Browser, form_token, posted

NOW = 1_700_000_000_000


def browser_of(store: Store, **options: Any) -> Browser:
    return Browser(made_application(measures_of(store).watch(), token=None, **options))


@pytest.fixture
def store() -> Iterator[Store]:
    with pylog.open("/s", fs=MemoryFileSystem(), offsets=OffsetsConfig(topic_num_partitions=1)) as made:
        made.create_topic("orders", compression_type="zstd")
        made.log("orders").append_many([b'{"card": "4111 %d"}' % number for number in range(10)])
        made.log("orders").append(b"secret", key=b"last", headers=[("trace", b"hush")])
        yield made


# ---- records -----------------------------------------------------------------------------------------------------------------


def test_a_record_has_the_facts_of_its_batch(store: Store) -> None:
    facts = browser_of(store).get("/topics/orders/0/3.json").json["facts"]
    assert facts["Batch"].startswith("offsets 0 to 9, ")
    assert {name: facts[name] for name in ("Records", "Compression", "Format", "Timestamps")} == {
        "Records": "10",
        "Compression": "zstd",
        "Format": "2",
        "Timestamps": "of the producer",
    }
    assert re.fullmatch("0x[0-9a-f]{8}, right", facts["CRC"])
    assert "Transaction" not in facts


def test_a_record_says_what_became_of_its_transaction(store: Store) -> None:
    outcomes = {}
    for name, end in (("kept", "commit"), ("dropped", "abort"), ("open", None)):
        transaction = store.transaction(name)
        transaction.append("orders", name.encode(), partition=0)
        transaction.flush()
        offset = store.log("orders").end_offset - 1
        if end is not None:
            getattr(transaction, end)()
        outcomes[name] = browser_of(store).get(f"/topics/orders/0/{offset}.json").json["facts"]
    assert [facts["Transaction"].partition(":")[0] for facts in outcomes.values()] == [
        "committed",
        "aborted",
        "open, or after an open one",
    ]
    assert "sequence 0" in outcomes["kept"]["Producer"]
    store.transactions.abort("open")


def test_keys_and_values_are_downloaded_as_files_that_no_browser_shows(store: Store) -> None:
    answer = browser_of(store).get("/topics/orders/0/10/value")
    assert (answer.body, answer.headers["content-type"]) == (b"secret", "application/octet-stream")
    assert answer.headers["content-disposition"] == "attachment; filename*=utf-8''orders-0-10.value"
    assert browser_of(store).get("/topics/orders/0/10/key").body == b"last"
    assert browser_of(store).get("/topics/orders/0/10/header").status == 404


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_found_records_are_exported_in_columns_as_cat_writes_them(tmp_path: Path, form: str) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t", segment_bytes=50_000)
        odd = (b"", None, b"\xff\x00", b"text")
        rows = [(odd[(each + 1) % 4], odd[each % 4], [("h", odd[each % 4])], each) for each in range(2_500)]
        for begin in range(0, 2_500, 100):
            store.log("t").append_many(rows[begin : begin + 100])
    with pylog.open(tmp_path / "s", mode="r") as store:
        given = browser_of(store).get(f"/topics/t/records.{form}?direction=forth").body
        expected = call("cat", tmp_path / "s", "t", "--format", form).output
        read = {
            "arrow": lambda data: pa.ipc.open_stream(data).read_all(),
            "parquet": lambda data: pq.read_table(io.BytesIO(data)),
        }
        assert read[form](given).to_pylist() == read[form](expected).to_pylist()
        empty = browser_of(store).get(f"/topics/t/records.{form}?find=nowhere").body
        assert read[form](empty).num_rows == 0


def test_slow_readers_of_exports_hold_no_search_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pylog.ui.window._PATIENCE_S", 0.01)
    from pylog.ui.window import Window

    watch = measures_of(store).watch()
    window, seen = Window(watch), watch.observation()
    request: Any = type("Request", (), {"path_params": {"topic": "orders"}, "query_params": {}})()
    slow = [window.export(request, seen, "jsonl")[1] for _ in range(4)]
    for parts in slow:
        next(parts)  # and then its reader takes no more
    assert len(window.records(request, seen).data()["records"]) == 11  # type: ignore[index]
    with pytest.raises(Exception, match="4 exports are running"):
        next(window.export(request, seen, "jsonl")[1])
    for parts in slow:
        parts.close()  # type: ignore[attr-defined]
    next(window.export(request, seen, "jsonl")[1])


# ---- hiding ------------------------------------------------------------------------------------------------------------------

PAGES = (
    "/topics/orders",
    "/topics/orders/live",
    "/topics/orders/0/10",
    "/topics/orders.json",
    "/topics/orders/live.json",
    "/topics/orders/0/10.json",
    "/topics/orders/records.jsonl",
    "/topics/orders/records.csv",
    "/topics/orders/records.parquet",
    "/topics/orders/records.arrow",
    "/topics/orders?find=secret",
    "/topics/orders/0/10/value",
)


@pytest.mark.parametrize("page", PAGES)
def test_a_window_that_hides_values_shows_and_finds_none(store: Store, page: str) -> None:
    answer = browser_of(store, hide_values=True).get(page)
    shown = answer.body.replace(b"find=secret", b"").replace(b'value="secret"', b"")  # what was asked for
    assert b"secret" not in shown
    assert b"4111" not in shown
    assert b"hush" not in shown


def test_a_window_that_hides_values_shows_keys_and_sizes_and_says_so(store: Store) -> None:
    browser = browser_of(store, hide_values=True)
    rows = browser.get("/topics/orders/records.json?find=last").json["records"]
    assert [(row["key"], row["value"], row["headers"]) for row in rows] == [
        ("last", "hidden: 6 bytes", [["trace", "hidden: 4 bytes"]])
    ]
    assert browser.get("/topics/orders/records.json?find=secret").json["records"] == []
    assert browser.get("/topics/orders/records.json?find=hush").json["records"] == []
    assert "values hidden" in browser.get("/").text
    assert browser.get("/topics/orders/0/10/value").status == 400
    with pytest.raises(InvalidArgumentError, match="does not search them"):
        Query("card", "json", in_values=False)


# ---- topics and groups -------------------------------------------------------------------------------------------------------


def names_in(text: str) -> list[str]:
    return re.findall(r'<td class="name"><a href="[^"]*">([^<]*)</a>', text)


def test_topics_are_found_by_their_names_and_put_in_order(store: Store) -> None:
    store.create_topic("payments")
    store.log("payments").append(b"x")
    browser = browser_of(store)
    assert names_in(browser.get("/topics").text) == ["orders", "payments"]
    assert names_in(browser.get("/topics?find=PAY").text) == ["payments"]
    assert names_in(browser.get("/topics?order=size").text) == ["orders", "payments"]
    assert names_in(browser.get("/topics?order=newest&internal=1").text)[0] == "payments"
    assert browser.get("/topics?order=x").status == 400
    assert "No topic has &lt;b&gt; in its name" in browser.get("/topics?find=%3Cb%3E").text


def test_a_click_on_a_column_puts_topics_in_its_order_and_another_one_turns_it(store: Store) -> None:
    store.create_topic("few", partition_count=3)
    for number in range(3):
        store.log("few", number).append(b"x", timestamp=NOW)
    browser = browser_of(store)
    by_column = {
        "Topic": ["orders", "few"],  # from the largest name: the list is by name already
        "Partitions": ["few", "orders"],
        "Records": ["orders", "few"],
        "Size": ["orders", "few"],
        "Newest record": ["orders", "few"],
    }
    for title, wanted in by_column.items():
        found = re.search(rf'<a href="([^"]+)">{title}', browser.get("/topics?find=e").text)
        assert found is not None, title
        once = browser.get(unescape(found[1])).text
        assert names_in(once) == wanted, title
        marked = re.search(r'aria-sort="(\w+)"><a href="([^"]+)">' + title, once)
        assert marked is not None, title
        twice = browser.get(unescape(marked[2])).text
        assert names_in(twice) == wanted[::-1], title
        assert (marked[1] == "descending") == ('aria-sort="ascending"' in twice)


def test_lists_show_readers_with_their_verdict_trend_rate_and_last_commit() -> None:
    clock = ManualClock(NOW)
    with open_store("/s", fs=MemoryFileSystem(clock=clock), clock=clock, offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("orders")
        for minute in range(10):
            store.log("orders").append_many([b"x"] * 30)
            store.offsets.commit("billing", {("orders", 0): 3 * minute})
            clock.advance(60_000)
        browser = browser_of(store)
        group, topic, overview = (browser.get(page).text for page in ("/groups", "/topics", "/"))
        assert "↗ growing" in group
        assert 'data-label="last commit"><time title="2023-11-14T22:22:20.000Z">1 min ago' in group
        assert '<a href="/topics/orders/groups">1 group</a><span class="verdict warn"' in topic
        assert "1 of 1" in overview
        assert "groups: falling behind 1" in overview
        assert '<h2>Offsets behind</h2><div class="picture">' in browser.get("/groups/billing").text


def test_a_group_is_deleted_once_its_name_is_typed(store: Store) -> None:
    store.offsets.commit("billing", {("orders", 0): 3})
    writer = browser_of(store, writing=lambda: nullcontext(store))
    text = writer.get("/change/delete-group?group=billing").text
    assert "orders-0" in text
    token = form_token(text)
    assert posted(writer, "/change/delete-group", group="billing", form_token=token).status == 400
    assert store.groups() == ["billing"]
    assert posted(writer, "/change/delete-group", group="billing", typed="billing", form_token=token).status == 200
    assert store.groups() == []


def test_the_first_page_says_what_a_power_loss_would_take_and_how_long_the_disk_lasts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.log("orders").append(b"x", durability="os")
    monkeypatch.setattr("pylog.ui.taking.room_at", lambda _: (1_000_000, 2_000_000))
    watch = measures_of(store).watch()
    browser = Browser(made_application(watch, token=None))
    assert "offsets are not durable yet, the oldest of" in browser.get("/").text
    before = watch.observation()
    store.log("orders").append_many([b"y" * 1_000] * 50)
    watch.forget()
    while watch.observation().at_ms == before.at_ms:
        watch.forget()
    grown = watch.observation()
    assert grown.growth == pytest.approx((grown.size - before.size) * 1000 / (grown.at_ms - before.at_ms))
    assert grown.seconds_to_full == pytest.approx(1_000_000 / grown.growth)


# ---- metrics, archives -------------------------------------------------------------------------------------------------------


def test_metrics_are_those_of_the_command_in_the_format_that_is_asked_for(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("orders")
        store.log("orders").append_many([b"x"] * 5)
        store.offsets.commit("billing", {("orders", 0): 2})
    with pylog.open(tmp_path / "s", mode="r") as store:
        browser = browser_of(store)
        plain = browser.get("/metrics")
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        moving = re.compile(r"(?m)^pylog_(store_free_bytes|group_lag_seconds|group_verdict).*$")
        assert moving.sub("", plain.text) == moving.sub("", call("metrics", tmp_path / "s").text)
        assert browser.get("/metrics", accept="application/openmetrics-text").text.endswith("# EOF\n")
        assert 'href="/metrics"' in browser.get("/health").text


def test_segments_say_which_of_them_are_in_the_archive_and_what_waits(tmp_path: Path) -> None:
    tiered = {"remote_storage_enable": True, "local_retention_bytes": 0, "retention_ms": -1, "segment_bytes": 200}
    clock = ManualClock(NOW)
    with open_store(tmp_path / "s", archive=str(tmp_path / "archive"), clock=clock) as store:
        store.create_topic("orders", **tiered, remote_delete_delay_ms=0)
        for _ in range(9):
            store.log("orders").append(b"x" * 60)
        store.tick()
        for _ in range(4):
            store.log("orders").append(b"y" * 60)
        clock.advance(120_000)
        browser = browser_of(store)
        text, samples = browser.get("/topics/orders/segments").text, {each.name: each.value for each in store.metrics()}
        [seen] = browser.get("/topics/orders/segments.json").json["partitions"]
        assert {name: seen["tier"][name] for name in ("archived_end", "archived_bytes", "local_start", "local_bytes")} == {
            "archived_end": samples["log_archived_end_offset"],
            "archived_bytes": samples["log_archived_size_bytes"],
            "local_start": samples["log_local_start_offset"],
            "local_bytes": samples["log_local_size_bytes"],
        }
        assert seen["tier"]["waiting_bytes"] == samples["log_upload_lag_bytes"] > 0
        assert "wait for the archive, since 2 min" in text
        assert [text.count(f'data-label="where">{where}<') > 0 for where in ("archive", "disk")] == [True, True]
        store.alter_topic("orders", remote_log_copy_disable=True, local_retention_bytes=-2)
        clock.advance(3_000)
        [seen] = browser.get("/topics/orders/segments.json").json["partitions"]
        samples = {each.name: each.value for each in store.metrics()}
        assert seen["tier"]["waiting_bytes"] == samples["log_upload_lag_bytes"] == samples["log_upload_lag_seconds"] == 0


def test_an_archive_is_shown_from_its_url(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("orders", partition_count=2, segment_bytes=500)
        for number in range(20):
            store.log("orders", number % 2).append(b"value-%d" % number)
        store.offsets.commit("billing", {("orders", 0): 4})
        store.archive(str(tmp_path / "archive"), include_active=True)
    with pylog.open((tmp_path / "archive").as_uri(), mode="r") as opened:
        browser = browser_of(opened)
        for page in (
            "/",
            "/topics",
            "/topics/orders/segments",
            "/topics/orders/producers",
            "/groups/billing",
            "/health",
            "/metrics",
        ):
            assert browser.get(page).status == 200, page
        rows = browser.get("/topics/orders/records.json?find=value-1").json["records"]
        assert sorted(row["value"] for row in rows) == sorted(f"value-{number}" for number in (1, *range(10, 20)))
        assert browser.get("/groups/billing.json").json["lag"] == 6


# ---- others ------------------------------------------------------------------------------------------------------------------


def test_pages_go_on_while_a_topic_is_deleted_and_made_again(store: Store) -> None:
    watch = measures_of(store).watch()
    browser = Browser(made_application(watch, token=None))
    assert browser.get("/topics/orders").status == 200
    store.delete_topic("orders")  # the observation still has it
    for page in ("", "/live", "/segments", "/partitions", "/producers", "/0/3", "/0/3/value", "/records.jsonl"):
        assert browser.get(f"/topics/orders{page}").status in (200, 404), page
    watch.forget()
    assert browser.get("/topics/orders").status == 404
    store.create_topic("orders")
    watch.forget()
    assert browser.get("/topics/orders").status == 200


def test_a_store_that_is_closed_beneath_pages_is_said_and_nothing_hangs(store: Store) -> None:
    browser = browser_of(store)
    browser.get("/")
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.extend(browser.get("/topics/orders").status for _ in range(20))) for _ in range(4)
    ]
    with closing(store):
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 80
    assert set(answers) <= {200, 503}
    for page in ("/", "/groups", "/health", "/metrics", "/topics/orders/records.csv", "/go?to=orders"):
        assert browser.get(page).status == 503, page
