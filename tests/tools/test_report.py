"""The page of `tools.report`: it has what it promises, needs nothing from elsewhere, and nothing in a log becomes markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import pylog
from pylog.record.types import TopicPartition
from pylog.tools.charts import StripSection, bars, strip, text
from pylog.tools.report import page
from pylog.tools.stats import DamagedRange, Lag, PartitionStats, Stats, TopicStats, collect, group_lags

NOON = 1_706_702_400_000
EVIL = "</title></style><script>alert(1)</script><img src=x onerror='alert(2)'>\"&\x1b[31m\u202e"
TABLE = {"table", "thead", "tbody", "tr", "th", "td"}
ALLOWED = {"html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "b", "div", "span", "section"}
ALLOWED |= {"svg", "rect", "details", "summary", *TABLE}
EMPTY_TAGS = {"meta"}


class Page(HTMLParser):
    """Reads a page: its elements, their attributes, its texts; and that every element is closed in turn."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(document)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY_TAGS:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def of(self, kind: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.elements if attributes.get("class") == kind]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    few = pylog.OffsetsConfig(topic_num_partitions=2)
    with pylog.open(tmp_path / "shop", durability=pylog.Durability.OS, offsets=few) as store:
        store.create_topic("orders", partition_count=3, segment_bytes=3000)
        for number in range(40):
            store.log("orders", number % 2).append_many([(None, b"x" * 100, [], NOON + number * 60_000)] * 5)
        store.offsets.commit("billing", {("orders", 0): 60})
        store.offsets.commit(EVIL, {("orders", 0): 10})
    return tmp_path / "shop"


def page_of(path: Path) -> str:
    return page(str(path), collect(str(path)), group_lags(str(path)), NOON)


def test_the_page_has_the_pictures_and_tables_it_promises(shop: Path) -> None:
    found = Page(page_of(shop))
    texts = " ".join(found.texts)
    for heading in (
        "Records over event time",
        "Bytes over event time",
        "Batch sizes",
        "Records in a batch",
        "Compression",
        "Groups",
    ):
        assert heading in texts
    assert "Segments, by offset" in texts
    assert "empty: 1 partition" in texts
    records = found.of("records")
    assert len(records) >= 40, "a bar for each minute"
    heights = {float(each["height"] or 0) for each in records}
    assert max(heights) == pytest.approx(100)
    assert len(found.of("even")) + len(found.of("odd")) >= sum(1 for _ in shop.glob("orders-*/*.log")) - 1
    assert found.of("damaged") == []
    assert "Damaged" not in texts


def test_the_page_needs_nothing_from_elsewhere(shop: Path) -> None:
    document = page_of(shop)
    found = Page(document)
    assert {tag for tag, _ in found.elements} <= ALLOWED
    assert not any(
        name in attributes for _, attributes in found.elements for name in ("src", "href", "onclick", "onload", "srcset")
    )
    assert "url(" not in document
    assert "@import" not in document
    assert "http://" not in document
    assert "https://" not in document
    policy = next(each["content"] for tag, each in found.elements if each.get("http-equiv") == "Content-Security-Policy")
    assert re.fullmatch(r"default-src 'none'; style-src 'sha256-[A-Za-z0-9+/]{43}='", policy)
    assert not any("style" in attributes for _, attributes in found.elements), "the policy allows only the page's own sheet"


def test_nothing_from_a_log_becomes_markup(shop: Path) -> None:
    document = page_of(shop)
    found = Page(document)
    assert "<script" not in document
    assert "\x1b" not in document
    assert "\u202e" not in document
    assert any("<script>alert(1)</script>" in each for each in found.texts), "it is shown as text"


def test_no_name_path_reason_or_error_becomes_markup_wherever_it_stands() -> None:
    range_ = DamagedRange(f"/data/{EVIL}/{EVIL}", 0, 10, 3, 5, EVIL)
    partition = PartitionStats(TopicPartition(EVIL, 0), EVIL, 0, 9, range(0), Stats(), [], [range_], EVIL)
    stats = Stats()
    stats.batch_bytes.add(np.array([10]))
    stats.codecs[EVIL].batches = 1
    document = page(EVIL, [TopicStats(EVIL, [partition], stats)], [Lag(EVIL, EVIL, 0, 1, 2, 1)], NOON)
    found = Page(document)
    assert {tag for tag, _ in found.elements} <= ALLOWED
    assert "<script" not in document
    assert "<img" not in document
    assert "\x1b" not in document
    assert sum("<script>alert(1)</script>" in each for each in found.texts) >= 7


@pytest.mark.damaged("a batch is altered")
def test_damage_is_drawn_red_and_reported(shop: Path) -> None:
    path = next(iter(sorted(shop.glob("orders-0/*.log"))))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found = Page(page_of(shop))
    (drawn,) = [attributes for tag, attributes in found.elements if tag == "rect" and attributes.get("class") == "damaged"]
    assert float(drawn["width"] or 0) >= 4, "wide enough to be seen"
    texts = " ".join(found.texts)
    assert "does not match its checksum" in texts
    assert path.name in texts
    assert re.search(r"damaged: offsets \d+ to \d+", texts)
    assert "--bad:#d92d20" in texts
    assert "rect.damaged,.damaged{fill:var(--bad)" in texts


def test_the_page_of_nothing_is_a_page() -> None:
    assert "0" in Page(page("nothing", [], [], NOON)).texts
    empty = TopicStats("empty", [PartitionStats(TopicPartition("empty", 0), "d")], Stats())
    assert any("empty: 1 partition" in each for each in Page(page("nothing", [empty], [], NOON)).texts)


def test_a_log_of_many_segments_makes_no_large_page(shop: Path) -> None:
    (topic, *_) = (each for each in collect(str(shop)) if each.name == "orders")
    one = topic.partitions[0]
    one.segments = [one.segments[0]._replace(base_offset=10 * at, end_offset=10 * at + 10) for at in range(50_000)]
    one.end_offset = 500_000
    assert len(page("many", [topic], [], NOON)) < 300_000


def test_charts_stay_within_their_box() -> None:
    drawn = strip(
        [StripSection(0, 5, "even", "a"), StripSection(5, 5.0001, "damaged", "b"), StripSection(999, 1000, "odd", "c")],
        0,
        1000,
        "a label",
    )
    places = [(float(x), float(width)) for x, width in re.findall(r'x="([\d.]+)".*?width="([\d.]+)"', drawn)]
    assert len(places) == 3
    assert all(x >= 0 and x + width <= 1000.1 for x, width in places)
    assert bars([], [], "records", "none").count("<rect") == 0
    assert bars([0, 1, 4], ["", "one", "four"], "records", "a label").count("<rect") == 2
    assert text("a\u202eb<") == "a\\u202eb&lt;"
