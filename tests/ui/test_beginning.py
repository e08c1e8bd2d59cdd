"""The first observation of a large store is made by a thread; pages show meanwhile what is known."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import OffsetsConfig, Store
from pylog.monitoring.measured import measures_of
from pylog.ui import beginning, watch
from pylog.ui.app import made_application
from pylog.unopened import UnopenedDirectory
from support.ui import Browser

GROUPS = 6


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with pylog.open(tmp_path / "s", offsets=OffsetsConfig(topic_num_partitions=2)) as made:
        made.create_topic("orders", partition_count=3)
        made.log("orders", 1).append_many([b"x"] * 40)
        for number in range(GROUPS):
            made.offsets.commit(f"g{number}", {("orders", 1): number})
    with pylog.open(tmp_path / "s", mode="r") as opened:
        yield opened


@pytest.fixture
def held(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """Each group is read only when the test lets it."""
    let = threading.Semaphore(0)
    read = beginning.group_seen

    def waiting(*arguments: Any) -> Any:
        assert let.acquire(timeout=30)
        return read(*arguments)

    monkeypatch.setattr(beginning, "group_seen", waiting)
    monkeypatch.setattr(watch, "_LARGE", 2)
    yield let
    let.release(GROUPS)


def test_the_first_pages_show_topics_at_once_and_how_many_groups_are_read(store: Store, held: threading.Semaphore) -> None:
    browser = Browser(made_application(measures_of(store).watch(), token=None))
    first = browser.get("/").text
    assert f"Reading the groups: 0 of {GROUPS}" in first
    assert 'data-live="500"' in first
    assert (
        '<td class="n" data-label="records"><span title="offsets: the records are not counted">≤ 40</span></td>'
        in browser.get("/topics").text
    )
    held.release(GROUPS)
    whole = browser.get("/groups").text  # waits for all of them
    assert [f">g{number}<" in whole for number in range(GROUPS)] == [True] * GROUPS
    assert "Reading the groups" not in browser.get("/").text


def test_what_a_thread_has_begun_is_what_one_observation_has(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = Browser(made_application(measures_of(store).watch(), token=None)).get("/.json").json
    monkeypatch.setattr(watch, "_LARGE", 2)
    by_a_thread = Browser(made_application(measures_of(store).watch(), token=None)).get("/.json").json
    assert [topic["partitions"] for topic in by_a_thread["topics"]] == [topic["partitions"] for topic in at_once["topics"]]
    assert [(each["group"], each["lag"], each["verdict"]) for each in by_a_thread["groups"]] == [
        (each["group"], each["lag"], each["verdict"]) for each in at_once["groups"]
    ]


@pytest.mark.damaged("a partition is removed")
def test_a_large_store_in_which_a_partition_has_no_directory_is_shown(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_LARGE", 2)
    shutil.rmtree(tmp_path / "s" / "orders-1")
    browser = Browser(made_application(measures_of(store).watch(), token=None))
    page = browser.get("/topics/orders/partitions")
    assert (page.status, "orders-1 is missing" in page.text, "orders-2" in page.text) == (200, True, True)
    assert browser.get("/groups/g1.json").json["verdict"] == "DAMAGED"


def test_topics_of_which_not_all_partitions_are_known_at_once_are_not_shown_as_smaller_ones(
    store: Store, held: threading.Semaphore, monkeypatch: pytest.MonkeyPatch
) -> None:
    outline = UnopenedDirectory.fast_outline
    monkeypatch.setattr(
        UnopenedDirectory, "fast_outline", lambda self, each: None if each == ("orders", 1) else outline(self, each)
    )
    browser = Browser(made_application(measures_of(store).watch(), token=None))
    assert "orders" not in browser.get("/topics").text.partition("<main")[2]
    held.release(GROUPS)
    browser.get("/groups")
    assert "≤ 40" in browser.get("/topics").text or ">40<" in browser.get("/topics").text


def test_a_store_that_is_closed_meanwhile_ends_it(store: Store, held: threading.Semaphore) -> None:
    looked = measures_of(store).watch()
    assert looked.observation(whole=False).reading == (0, GROUPS, 0)
    store.close()
    held.release(GROUPS)
    with pytest.raises(pylog.errors.ClosedError):
        looked.observation()
    looked.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "pylog-ui-beginning"]
