"""A deletion that is not finished in the archive is told: by metrics, the doctor and the window."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.archive.leaving import LEAVING
from pylog.clock import ManualClock
from pylog.errors import ObjectStoreError
from support.bench.window import browser_of
from support.cli import call
from support.objects import BEFORE, MemoryObjects, every_url

NOW = 1_700_000_000_000
TIERED: dict[str, Any] = {"segment_bytes": 400, "remote_storage_enable": True, "remote_delete_delay_ms": 1000}
UNFINISHED = "the deletion of topic 'orders' that keeps its archive did not finish: the topic still exists"
WAITING = "the archive still has the objects of 2 partitions of deleted topics"


class Shop:
    """A directory with a tiered topic of two partitions that has records in both tiers."""

    def __init__(self, path: Path, memory: MemoryObjects) -> None:
        self.path, self.memory, self.clock = path / "shop", memory, ManualClock(NOW)
        memory.now_ms = self.clock.now_ms
        with self.open() as store:
            store.create_topic("orders", partition_count=2, **TIERED)
            for number in range(24):
                store.log("orders", number % 2).append(b"x" * 80)
            store.archive(include_active=True)

    def open(self, mode: str = "rw") -> pylog.Store:
        return pylog.open(self.path, mode, clock=self.clock, archive=self.memory if mode == "rw" else None)

    def doctor(self) -> list[dict[str, Any]]:
        code, printed, _ = call("doctor", self.path, "--json")
        assert code == 0
        return [each for each in json.loads(printed)["answers"] if each["what"] == "archive"]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with every_url(MemoryObjects()) as memory:
        yield Shop(tmp_path, memory)


def counts(store: pylog.Store) -> tuple[float, ...]:
    """Returns the partitions that wait, the deletions that are unfinished, and the failures."""
    found = {each.name: each.value for each in store.metrics() if each.name.startswith("archive_")}
    names = "archive_waiting_partitions", "archive_unfinished_deletions", "archive_deletion_failures"
    return tuple(found[name] for name in names)


def shown(store: pylog.Store) -> list[str]:
    """Returns what the window's page of health says of the archive."""
    rows = re.findall(r'<td>Archive</td><td class="wide">(.*?)</td>', browser_of(store).get("/health").text)
    return [html.unescape(said) for said in rows]


def test_a_deletion_that_failed_to_keep_its_archive_is_told_until_it_is_done(shop: Shop) -> None:
    with shop.open() as store:
        assert (counts(store), shown(store), shop.doctor()) == ((0, 0, 0), [], [])

        shop.memory.fault = lambda request, key: BEFORE if key.startswith("pylog/store") else None
        with pytest.raises(ObjectStoreError):
            store.delete_topic("orders", keep_archive=True)
        shop.memory.fault = lambda request, key: None
        assert (counts(store), shown(store)) == ((0, 1, 0), [f"{UNFINISHED}; delete it again"])
        assert [(each["verdict"], each["found"], each["advice"]) for each in shop.doctor()] == [
            ("note", UNFINISHED, "delete it again")
        ]
    with shop.open("r") as reader:
        assert (counts(reader), shown(reader)) == ((0, 1, 0), [f"{UNFINISHED}; delete it again"])
    with shop.open() as store:
        store.delete_topic("orders", keep_archive=True)
        assert (counts(store), shown(store), shop.doctor()) == ((0, 0, 0), [], [])


def test_objects_of_deleted_topics_are_told_until_they_are_deleted(shop: Shop) -> None:
    with shop.open() as store:
        store.delete_topic("orders")
        assert counts(store) == (2, 0, 0)
        assert [each["found"] for each in shop.doctor()] == [WAITING]
        shop.memory.fault = lambda request, key: BEFORE
        store.tick()
        store.tick()
        shop.memory.fault = lambda request, key: None
        assert counts(store) == (2, 0, 2)
        [said] = shown(store)
        assert said.startswith(WAITING)
        assert "cannot get memory://archive/pylog/partitions/orders-" in said
        store.tick()  # the manifests name nothing any more, and the delay begins
        assert counts(store) == (2, 0, 2)
        [said] = shown(store)
        assert said.endswith("a store that ticks deletes them once remote_delete_delay_ms is over")
        shop.clock.advance(2000)
        store.tick()
        assert (counts(store), shown(store), shop.doctor()) == ((0, 0, 2), [], [])


def test_a_damaged_note_is_told_and_hides_no_other_metric(shop: Shop) -> None:
    (shop.path / LEAVING).write_bytes(b"{")
    with shop.open("r") as reader:
        names = {each.name for each in reader.metrics()}
        assert "log_end_offset" in names
        assert "archive_waiting_partitions" not in names
        assert f"{LEAVING} is damaged" in shown(reader)[0]
    code, printed, _ = call("doctor", shop.path, "--json")
    [told] = [each for each in json.loads(printed)["answers"] if each["what"] == "archive"]
    assert (code, told["verdict"]) == (1, "problem")
    assert f"{LEAVING} is damaged" in told["found"]


def test_a_store_without_an_archive_has_no_such_metric(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "plain") as store:
        assert not [each for each in store.metrics() if each.name.startswith("archive_")]
        assert shown(store) == []
