"""An archive belongs to one directory: a copy changes nothing of it on any route, and a moved directory takes it over."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.clock import ManualClock
from pylog.errors import ArchiveFencedError, IllegalStateError, ObjectStoreError
from support.cli import call
from support.objects import BEFORE, MemoryObjects, every_url

NOW = 1_700_000_000_000
TIERED: dict[str, Any] = {
    "remote_storage_enable": True,
    "segment_bytes": 300,
    "local_retention_bytes": 1500,
    "retention_ms": -1,
    "remote_delete_delay_ms": 1000,
}
COUNT = 14
FENCED = "belongs to another directory of this store.*nothing was changed"


class Shop:
    """A store, its copy, and the archive in memory."""

    def __init__(self, path: Path, memory: MemoryObjects) -> None:
        self.path, self.memory, self.clock = path, memory, ManualClock(NOW)
        memory.now_ms = self.clock.now_ms

    def open(self, name: str = "shop", **options: Any) -> pylog.Store:
        return pylog.open(self.path / name, clock=self.clock, durability=pylog.Durability.OS, **options)

    def fill(self, store: pylog.Store, count: int = COUNT) -> None:
        for _ in range(count):
            store.log("orders").append(b"x" * 100)

    def copy(self) -> None:
        shutil.copytree(self.path / "shop", self.path / "copy")

    def move(self) -> None:
        """Has the directory where the copy would be, as on a new machine."""
        self.copy()
        shutil.rmtree(self.path / "shop")


def offsets(store: pylog.Store) -> list[int]:
    return [record.offset for record in store.log("orders").records()]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with every_url(MemoryObjects()) as memory:
        yield Shop(tmp_path, memory)


def tiered(shop: Shop, **options: Any) -> None:
    """Archives a tiered topic: most of its records are in the archive only."""
    with shop.open(archive=shop.memory) as store:
        store.create_topic("orders", **TIERED | options)
        shop.fill(store)
        store.tick()
        store.archive()  # names the topics


def stop_tiering(store: pylog.Store) -> None:
    store.alter_topic("orders", remote_storage_enable=False, remote_log_delete_on_disable=True)
    store.tick()
    assert offsets(store) == list(range(COUNT))


def retain(store: pylog.Store) -> None:
    store.alter_topic("orders", retention_bytes=600, local_retention_bytes=-2)
    store.tick()


def delete_topic(store: pylog.Store) -> None:
    store.delete_topic("orders")
    store._manager.clock.advance(5000)  # type: ignore[attr-defined]
    store.tick()


def upload(store: pylog.Store) -> None:
    for _ in range(5):
        store.log("orders").append(b"copy" * 25)
    store.tick()


def retire(store: pylog.Store) -> None:
    before = store.log("orders").local_start_offset
    store.alter_topic("orders", local_retention_bytes=0)
    store.tick()
    assert store.log("orders").local_start_offset == before


RAISE: dict[str, Callable[[pylog.Store], object]] = {
    "archive": lambda store: store.archive(),
    "archive one topic": lambda store: store.archive(topics=["orders"]),
    "delete_records": lambda store: store.log("orders").delete_records(6),
    "delete all records": lambda store: store.log("orders").delete_records(COUNT),
    "truncate": lambda store: store.log("orders").truncate(COUNT - 3),
    "delete_topic, the archive is kept": lambda store: store.delete_topic("orders", keep_archive=True),
}
LOG: dict[str, Callable[[pylog.Store], object]] = {
    "tick uploads": upload,
    "tick retires": retire,
    "retention": retain,
    "delete_topic": delete_topic,
    "tiering stops": stop_tiering,
}


@pytest.mark.parametrize("route", RAISE)
def test_a_call_on_a_copy_of_a_tiered_directory_changes_nothing(shop: Shop, route: str) -> None:
    tiered(shop)
    shop.copy()
    before = dict(shop.memory.objects)
    with shop.open("copy") as store:
        assert offsets(store) == list(range(COUNT))
        with pytest.raises(ArchiveFencedError, match=FENCED) as found:
            RAISE[route](store)
        assert "include_active=True" in str(found.value)
        assert "--take-over" in str(found.value)
        assert offsets(store) == list(range(COUNT))
    assert shop.memory.objects == before


@pytest.mark.parametrize("route", LOG)
def test_a_tick_on_a_copy_of_a_tiered_directory_changes_nothing(shop: Shop, route: str, caplog: pytest.LogCaptureFixture) -> None:
    tiered(shop)
    shop.copy()
    before = dict(shop.memory.objects)
    with shop.open("copy") as store:
        LOG[route](store)
    assert shop.memory.objects == before
    reasons = [vars(record)["pylog"].get("reason", "") for record in caplog.records if record.levelno == logging.WARNING]
    fenced = [each for each in reasons if "belongs to another directory of this store" in each]
    assert fenced
    assert all("take_over=True" in each and f"If {shop.path / 'copy'} is a copy" in each for each in fenced)
    with shop.open() as store:
        assert offsets(store) == list(range(COUNT))
        shop.fill(store, 5)
        store.tick()
        assert store.log("orders").archived_end_offset >= COUNT
    shop.clock.advance(90 * 86_400_000)
    pylog.sweep("s3://any", clock=shop.clock)
    with shop.open("shop", mode="r") as store:
        assert offsets(store) == list(range(COUNT + 5))


def test_objects_that_the_original_has_retired_are_not_deleted_by_its_copy(shop: Shop) -> None:
    tiered(shop)
    with shop.open() as store:
        store.alter_topic("orders", remote_log_copy_disable=True, local_retention_bytes=-2)
        store.log("orders").delete_records(4)
        store.archive()  # nothing else is left to do for the copy
    shop.copy()
    before = dict(shop.memory.objects)
    shop.clock.advance(5000)
    with shop.open("copy") as store:
        store.tick()
    assert shop.memory.objects == before
    with shop.open() as store:
        store.tick()
    assert len(shop.memory.objects) < len(before)


def test_restore_repair_and_a_sweep_change_nothing_that_the_original_needs(shop: Shop) -> None:
    tiered(shop)
    shop.copy()
    before = dict(shop.memory.objects)
    pylog.restore("s3://any", shop.path / "restored", clock=shop.clock)
    pylog.restore("s3://any", shop.path / "hollow", clock=shop.clock, hollow=True)
    damaged = min((shop.path / "copy" / "orders-0").glob("*.log"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    assert call("repair", "skip", str(shop.path / "copy"), "--execute").code == 0
    for name in ("restored", "hollow", "copy"):
        with shop.open(name) as store:
            store.tick()
            assert COUNT - 3 <= len(offsets(store)) < COUNT
    shop.clock.advance(90 * 86_400_000)
    pylog.sweep("s3://any", clock=shop.clock)
    with shop.open() as store:
        assert offsets(store) == list(range(COUNT))
    segments = {key for key in before if key.startswith("orders")}
    assert segments <= set(shop.memory.objects)


# ---- taking over -------------------------------------------------------------------------------------------------------------


def test_a_moved_directory_takes_over_and_the_other_one_changes_nothing_any_more(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    tiered(shop)
    shop.copy()
    with shop.open() as old, shop.open("copy") as moved:
        moved.archive(take_over=True)
        assert [record.levelname for record in caplog.records if "Continues the archive" in record.message] == ["WARNING"]
        with pytest.raises(ArchiveFencedError, match=FENCED):
            old.log("orders").delete_records(4)
        shop.fill(old, 5)
        before = dict(shop.memory.objects)
        old.tick()
        assert shop.memory.objects == before
        moved.log("orders").delete_records(4)
        shop.fill(moved, 5)
        moved.tick()
        assert offsets(moved) == list(range(4, COUNT + 5))
        assert moved.log("orders").archived_end_offset > COUNT
        assert moved.log("orders").local_start_offset > 4
        moved.delete_topic("orders")
        for _ in range(2):
            moved.tick()
            shop.clock.advance(5000)
    assert not [key for key in shop.memory.objects if key.startswith("orders")]


def test_a_command_takes_over(tmp_path: Path) -> None:
    archive = f"file://{tmp_path}/archive"
    with pylog.open(tmp_path / "shop", archive=archive) as store:
        store.create_topic("orders", **TIERED)
        store.log("orders").append(b"paid")
        store.archive(include_active=True)
    shutil.copytree(tmp_path / "shop", tmp_path / "moved")
    refused = call("archive", str(tmp_path / "moved"))
    assert refused.code != 0
    assert "belongs to another directory of this store" in refused.complaints
    for command in ("archive", "backup"):
        found = call(command, str(tmp_path / "moved"), "--take-over")
        assert found.code == 0, found.complaints


def test_a_copy_with_other_records_cannot_take_over(shop: Shop) -> None:
    tiered(shop)
    shop.copy()
    with shop.open() as store:
        shop.fill(store, 5)
        store.tick()
    before = dict(shop.memory.objects)
    with shop.open("copy") as store:
        for _ in range(5):
            store.log("orders").append(b"copy" * 25)
        with pytest.raises(IllegalStateError, match="archived by another copy of this store"):
            store.archive(take_over=True, include_active=True)
    assert shop.memory.objects == before


@pytest.mark.parametrize("at", range(30))
def test_a_takeover_that_fails_is_finished_by_the_next_call(shop: Shop, at: int) -> None:
    tiered(shop)
    shop.move()
    asked = iter(range(1000))
    with shop.open("copy") as store:
        shop.memory.fault = lambda request, key: BEFORE if next(asked) == at else None
        try:
            store.archive(take_over=True)
        except ObjectStoreError:
            shop.memory.fault = lambda request, key: None
            store.archive(take_over=True)
        shop.memory.fault = lambda request, key: None
        store.log("orders").delete_records(4)
        assert offsets(store) == list(range(4, COUNT))


@pytest.mark.parametrize("route", ["tick", "archive"])
def test_an_upload_that_had_begun_is_not_committed_after_a_takeover(shop: Shop, route: str) -> None:
    """At each request of the one that loses the archive: it commits nothing after the other one has it."""
    tiered(shop)
    shop.copy()
    with shop.open() as old, shop.open("copy") as moved:
        shop.fill(old, 5)
        taken: dict[str, bytes] = {}

        def beside(request: str, key: str) -> None:
            if request == "put_new" and key.endswith(".log"):
                shop.memory.fault = lambda request, key: None
                moved.archive(take_over=True)
                taken.update(shop.memory.objects)

        shop.memory.fault = beside
        if route == "tick":
            old.tick()
        else:
            with pytest.raises(ArchiveFencedError, match=FENCED):
                old.archive(include_active=True)
        documents = {key: data for key, data in shop.memory.objects.items() if key.startswith("pylog/")}
        assert documents == {key: data for key, data in taken.items() if key.startswith("pylog/")}
        assert offsets(moved) == list(range(COUNT))


@pytest.mark.parametrize("at", [3, 4, 5])  # requests: the claim was made before them
def test_the_name_of_a_topic_is_not_committed_after_a_takeover(shop: Shop, at: int) -> None:
    tiered(shop)
    shop.copy()
    with shop.open() as old, shop.open("copy") as moved:
        old.create_topic("late", **TIERED)
        asked = iter(range(1000))

        def beside(request: str, key: str) -> None:
            if request == "get" and key.startswith("pylog/store/") and next(asked) == at:
                shop.memory.fault = lambda request, key: None
                moved.archive(take_over=True)

        shop.memory.fault = beside
        with pytest.raises(ArchiveFencedError, match=FENCED):
            old.archive()
        assert moved.archive().ok  # without a word: it has the archive still
        moved.log("orders").delete_records(4)
        assert offsets(moved) == list(range(4, COUNT))


# ---- an archive of its own ---------------------------------------------------------------------------------------------------


def test_a_copy_gets_an_archive_of_its_own(tmp_path: Path) -> None:
    """As the error says it."""
    first, second = f"file://{tmp_path}/first", f"file://{tmp_path}/second"
    with pylog.open(tmp_path / "shop", archive=first) as store:
        store.create_topic("orders", **TIERED)
        for _ in range(COUNT):
            store.log("orders").append(b"x" * 100)
        store.tick()
    shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    with pylog.open(tmp_path / "copy") as copy:
        copy.archive(second, include_active=True)
    pylog.restore(second, tmp_path / "own", hollow=True)
    with pylog.open(tmp_path / "own") as own:
        own.archive(take_over=True)
        own.log("orders").delete_records(4)
        own.tick()
        assert offsets(own) == list(range(4, COUNT))
    with pylog.open(tmp_path / "shop") as store:
        assert offsets(store) == list(range(COUNT))


# ---- backups -----------------------------------------------------------------------------------------------------------------


def backed_up(shop: Shop) -> None:
    with shop.open(archive=shop.memory) as store:
        store.create_topic("orders", segment_bytes=300, retention_ms=-1)
        shop.fill(store)
        store.archive(include_active=True)


@pytest.mark.parametrize("route", ["delete_records", "truncate", "retention", "delete_topic"])
def test_a_copy_whose_records_are_all_on_its_disk_leaves_the_archive_as_it_is(
    shop: Shop, route: str, caplog: pytest.LogCaptureFixture
) -> None:
    backed_up(shop)
    shop.copy()
    before = dict(shop.memory.objects)
    with shop.open("copy") as store:
        {**RAISE, **LOG}[route](store)
        assert route == "delete_topic" or len(offsets(store)) < COUNT
    assert shop.memory.objects == before
    assert any("belongs to another directory" in record.getMessage() for record in caplog.records)
    with shop.open() as store:
        assert offsets(store) == list(range(COUNT))


def test_a_copy_that_has_deleted_records_needs_a_word_of_the_user(shop: Shop) -> None:
    backed_up(shop)
    shop.copy()
    before = dict(shop.memory.objects)
    with shop.open("copy") as store:
        store.log("orders").delete_records(6)
        with pytest.raises(ArchiveFencedError, match=FENCED):
            store.archive()
        assert shop.memory.objects == before
        store.archive(take_over=True)
    pylog.restore("s3://any", shop.path / "restored")
    with pylog.open(shop.path / "restored", "r") as restored:
        assert offsets(restored) == list(range(6, COUNT))


@pytest.mark.parametrize("take_over", [False, True])
def test_a_copy_of_a_compacted_log_that_ends_earlier_changes_nothing(shop: Shop, take_over: bool) -> None:
    with shop.open(archive=shop.memory) as store:
        store.create_topic("state", cleanup_policy="compact", segment_bytes=300, min_cleanable_dirty_ratio=0.0)
        for number in range(COUNT):
            store.log("state").append(b"x" * 100, key=b"%d" % (number % 3))
        store.archive(include_active=True)
    shop.copy()
    with shop.open() as store:
        store.log("state").append(b"new", key=b"new")
        store.archive(include_active=True)
    before = dict(shop.memory.objects)
    with shop.open("copy") as store:
        store.compact("state")
        with pytest.raises(IllegalStateError, match=rf"from offset {COUNT} on, state-0 has other records there"):
            store.archive(include_active=True, take_over=take_over)
    assert shop.memory.objects == before
    with shop.open() as store:
        store.compact("state")
        assert store.archive(include_active=True).segments
