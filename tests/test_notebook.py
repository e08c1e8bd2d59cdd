"""What notebooks show of a store, a topic, a partition and a group: small tables, escaped, that never raise."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.notebook import MOST_ROWS, ShownTable
from pylog.testing import MemoryFileSystem

HOSTILE = "<script>alert('')<script>\x1b[31m\u202e&\"\n"


class Cells(HTMLParser):
    """The elements of a piece of HTML, and its texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def shown(thing: Any) -> list[str]:
    """The texts of an object's table."""
    cells = Cells(thing._repr_html_())
    assert cells.tags <= {"table", "caption", "tr", "th", "td"}
    return cells.texts


@pytest.fixture
def store() -> Iterator[pylog.Store]:
    with pylog.open(f"/{HOSTILE}", fs=MemoryFileSystem(), durability="os") as store:
        store.create_topic("orders", partition_count=2, retention_bytes=4096)
        store.log("orders", 1).append_many([b"x"] * 7)
        store.offsets.commit(HOSTILE, {("orders", 1): 3})
        yield store


def test_a_store_shows_its_topics_without_internal_ones_and_its_path_is_escaped(store: pylog.Store) -> None:
    caption, *texts = shown(store)
    assert "<script>" in caption
    assert "\x1b" not in caption
    assert "\u202e" not in caption
    assert texts[:5] == ["topic", "partitions", "offsets", "bytes", "retention"]
    assert texts[5:8] == ["orders", "2", "7"]
    assert texts[9:] == ["records are deleted after 7 days and beyond 4096 bytes a partition"]


def test_a_topic_shows_its_retention_and_the_options_that_were_set(store: pylog.Store) -> None:
    texts = shown(store.topic("orders"))
    assert texts[0] == "Topic orders"
    assert texts[-2:] == ["retention_bytes", "4,096"]


def test_a_log_shows_its_segments_and_a_group_its_lag(store: pylog.Store) -> None:
    assert shown(store.log("orders", 1))[4:6] == ["0", "7"]
    group = shown(store.group(HOSTILE))
    assert "<script>" in group[0]
    assert group[1:] == ["topic", "partition", "committed", "log end", "lag", "orders", "1", "3", "7", "4"]


def test_an_object_without_a_table_shows_its_repr_and_never_raises(store: pylog.Store) -> None:
    log, nobody = store.log("orders"), store.group("nobody")
    assert nobody._repr_html_() == "<pre>Group(&#x27;nobody&#x27;)</pre>"
    store.close()
    for thing in (store, log, store.group("nobody")):
        assert Cells(thing._repr_html_()).tags <= {"pre", "table", "caption", "tr", "th", "td"}
    assert store._repr_html_().startswith("<pre>Store(")


def test_a_store_opened_for_reading_and_one_with_a_damaged_partition_show_their_topics(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "shop") as made:
        made.create_topic("orders")
        made.create_topic("prices")
        made.log("prices").append(b"x")
    (log,) = (tmp_path / "shop" / "prices-0").glob("*.log")
    log.unlink()
    log.mkdir()
    with pylog.open(tmp_path / "shop", mode="r") as store:
        assert "orders" in shown(store)
        assert "prices" in shown(store)


def test_a_table_has_fifty_rows_at_most_and_reads_no_more() -> None:
    rows = iter([[number] for number in range(1000)])
    texts = Cells(ShownTable("many", ["number"], rows).html()).texts
    assert (len(texts), texts[-1]) == (MOST_ROWS + 3, "only the first 50 are shown")
    assert next(rows) == [MOST_ROWS + 1]
