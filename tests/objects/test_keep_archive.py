"""`delete_topic(keep_archive=True)`: the topic goes, and what is archived of it stays readable."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.archive.archiving import commit_topics
from pylog.archive.leaving import LEAVING, read_leaving
from pylog.clock import ManualClock
from pylog.errors import IllegalStateError, ObjectStoreError, UnknownTopicOrPartitionError
from pylog.testing import MemoryFileSystem
from pylog.topics import changes
from support.cli import call
from support.objects import AFTER, BEFORE, MemoryObjects, every_url

NOW = 1_700_000_000_000
DAY = 86_400_000
URL = "s3://any"
CONFIG: dict[str, Any] = {"segment_bytes": 400, "retention_ms": -1}
TIERED: dict[str, Any] = CONFIG | {"remote_storage_enable": True, "local_retention_bytes": 0, "remote_delete_delay_ms": 0}


class Shop:
    """A store with an archive in memory, and the clock of both."""

    def __init__(self, memory: MemoryObjects) -> None:
        self.memory, self.clock = memory, ManualClock(NOW)
        self.fs = MemoryFileSystem(clock=self.clock)
        memory.now_ms = self.clock.now_ms
        self.copies = 0

    def open(self) -> pylog.Store:
        return pylog.open("/shop", fs=self.fs, clock=self.clock, archive=self.memory)

    def fill(self, store: pylog.Store, topic: str = "orders", value: bytes = b"old") -> None:
        for _ in range(12):
            store.log(topic).append(value + b"x" * 80)

    def archived(self, topic: str = "orders") -> list[bytes | None]:
        """Returns what a restore finds of a topic, without the numbers."""
        self.copies += 1
        where: dict[str, Any] = {"fs": self.fs, "clock": self.clock}
        pylog.restore(URL, f"/copy{self.copies}", topics=[topic], **where)
        with pylog.open(f"/copy{self.copies}", "r", **where) as store:
            return [(record.value or b"")[:3] for record in store.log(topic).records()]

    def sweep_later(self) -> pylog.archive.sweep_plan.SweepReport:  # type: ignore[name-defined]
        self.clock.advance(90 * DAY)
        return pylog.sweep(URL, clock=self.clock)


@pytest.fixture
def shop() -> Iterator[Shop]:
    with every_url(MemoryObjects()) as memory:
        yield Shop(memory)


@pytest.mark.parametrize("options", [CONFIG, TIERED])
def test_the_archive_of_a_deleted_topic_stays(shop: Shop, options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with shop.open() as store:
        store.create_topic("orders", **options)
        store.create_topic("other", **CONFIG)
        shop.fill(store)
        shop.fill(store, "other")
        store.archive(include_active=True)
        store.tick()
        with caplog.at_level(logging.INFO):
            store.delete_topic("orders", keep_archive=True)
        assert [record.levelname for record in caplog.records if "Keeps the archive" in record.message] == ["INFO"]
        assert list(store.topics()) == ["other"]
        assert not shop.fs.exists(f"/shop/{LEAVING}")
        store.tick()
        store.archive(include_active=True)  # writes the next manifest of the store
        shop.fill(store, "other")
        store.archive(include_active=True)
    swept = shop.sweep_later()
    assert not [each for each in swept.objects if each.key.startswith("orders")]
    assert shop.archived() == [b"old"] * 12


def test_without_it_the_archive_of_a_deleted_topic_goes(shop: Shop) -> None:
    with shop.open() as store:
        store.create_topic("orders", **TIERED)
        shop.fill(store)
        store.tick()
        store.delete_topic("orders")
        store.tick()
    assert not [key for key in shop.memory.objects if key.startswith("orders")]


def test_a_new_topic_of_the_name_takes_its_place_when_it_is_archived(shop: Shop) -> None:
    with shop.open() as store:
        store.create_topic("orders", **CONFIG)
        shop.fill(store)
        store.archive(include_active=True)
        store.delete_topic("orders", keep_archive=True)
        store.create_topic("orders", **CONFIG)
        shop.fill(store, value=b"new")
        assert shop.archived() == [b"old"] * 12
        store.archive(include_active=True)
        assert shop.archived() == [b"new"] * 12
        store.delete_topic("orders")  # this one was not kept
        store.archive()
    with pytest.raises(UnknownTopicOrPartitionError):
        shop.archived()


def test_a_commit_of_another_process_between_the_two_steps_undoes_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with shop.open() as store, shop.open() as other:
        store.create_topic("orders", **CONFIG)
        shop.fill(store)
        store.archive(include_active=True)
        forgetting = store._offsets.forgetting

        def beside(name: str) -> Any:
            commit_topics(other._manager, shop.memory, ["orders"])
            return forgetting(name)

        monkeypatch.setattr(store._offsets, "forgetting", beside)
        store.delete_topic("orders", keep_archive=True)
        store.archive()
    assert shop.archived() == [b"old"] * 12


@pytest.mark.parametrize("case", ["no archive", "nothing archived", "no answer", "no such topic"])
def test_a_deletion_that_cannot_keep_the_archive_deletes_nothing(shop: Shop, case: str) -> None:
    given = {} if case == "no archive" else {"archive": shop.memory}
    with pylog.open("/shop", fs=shop.fs, clock=shop.clock, **given) as store:
        store.create_topic("orders", **CONFIG)
        shop.fill(store)
        if case == "no answer":
            store.archive(include_active=True)
            shop.memory.fault = lambda request, key: BEFORE
        kind = {"no answer": ObjectStoreError, "no such topic": UnknownTopicOrPartitionError}.get(case, IllegalStateError)
        with pytest.raises(kind):
            store.delete_topic("missing" if case == "no such topic" else "orders", keep_archive=True)
        assert store.log("orders").append(b"still there") == 12
        shop.memory.fault = lambda request, key: None


def test_the_command_keeps_it(tmp_path: Path) -> None:
    store, archive = str(tmp_path / "shop"), str(tmp_path / "archive")
    with pylog.open(store) as opened:
        opened.create_topic("orders", **CONFIG)
        opened.log("orders").append(b"paid")
        opened.archive(archive, include_active=True)
    found = call("delete", store, "orders", "--keep-archive", "--yes")
    assert (found.code, found.text) == (0, "Deleted topic orders.\n"), found.complaints
    assert call("archive", store).code == 0
    assert "paid" in call("cat", f"file://{archive}", "orders").text


# ---- failures between the steps ----------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of a process."""


def filled(shop: Shop, options: dict[str, Any]) -> None:
    """Archives a topic with all of its records."""
    with shop.open() as store:
        store.create_topic("orders", **options)
        shop.fill(store)
        store.archive(include_active=True)


def keep(shop: Shop, step: int, how: str) -> bool:
    """Deletes a topic and keeps its archive. One request fails, and all after it. Returns whether the topic is deleted."""
    numbers = itertools.count()

    def fault(request: str, key: str) -> str | None:
        number = next(numbers)
        return None if number < step else how if number == step else BEFORE

    with shop.open() as store:
        shop.memory.fault = fault
        try:
            store.delete_topic("orders", keep_archive=True)
        except ObjectStoreError:
            assert "orders" in store.topics()
        finally:
            shop.memory.fault = lambda request, key: None
        return "orders" not in store.topics()


def later(shop: Shop, call: Callable[[pylog.Store], object]) -> None:
    """Does something in another process, and what is due after that."""
    with shop.open() as store:
        call(store)
        store.tick()
        store.archive(include_active=True)
        assert "orders" in store.topics() or not any(each.kept for each in read_leaving(store._manager))
    shop.sweep_later()


@pytest.mark.parametrize("how", [BEFORE, AFTER])
@pytest.mark.parametrize("options", [CONFIG, TIERED])
@pytest.mark.parametrize("then", ["keeps it", "does not keep it", "nothing"])
def test_a_deletion_whose_request_fails_is_repeated_or_given_up(options: dict[str, Any], how: str, then: str) -> None:
    """At each step: nothing is deleted. The next deletion decides whether the archive is kept."""
    for step in range(100):
        with every_url(MemoryObjects()) as memory:
            shop = Shop(memory)
            filled(shop, options)
            if keep(shop, step, how):
                assert shop.archived() == [b"old"] * 12
                break
            if then == "nothing":
                with shop.open() as store:
                    store.tick()
                    assert len(list(store.log("orders").records())) == 12
            else:
                later(shop, lambda store: store.delete_topic("orders", keep_archive=then == "keeps it"))
            if then == "does not keep it":
                assert not [key for key in memory.objects if key.startswith("orders")]
                with pytest.raises(UnknownTopicOrPartitionError):
                    shop.archived()
            else:
                assert shop.archived() == [b"old"] * 12
    assert 3 < step < 100


@pytest.mark.parametrize("options", [CONFIG, TIERED])
def test_a_process_that_dies_between_the_two_steps_leaves_the_topic(
    shop: Shop, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(shop, options)
    with shop.open() as store, monkeypatch.context() as patched:
        patched.setattr(store._offsets, "forgetting", raise_killed)
        with pytest.raises(Killed):
            store.delete_topic("orders", keep_archive=True)
    later(shop, lambda store: store.log("orders").append(b"old"))
    assert shop.archived() == [b"old"] * 13
    later(shop, lambda store: store.delete_topic("orders"))
    assert not [key for key in shop.memory.objects if key.startswith("orders")]


def raise_killed(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("options", [CONFIG, TIERED])
@pytest.mark.parametrize("step", ["note_removed", "remove_directories", "rename_deleted"])
def test_a_process_that_dies_after_the_decision_leaves_the_archive(
    shop: Shop, options: dict[str, Any], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(shop, options)
    with shop.open() as store, monkeypatch.context() as patched:
        patched.setattr(changes, step, raise_killed)
        with pytest.raises(Killed):
            store.delete_topic("orders", keep_archive=True)
    later(shop, lambda store: None)
    assert shop.archived() == [b"old"] * 12


def test_what_a_failed_deletion_has_left_to_delete_is_kept_by_the_next_one(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(shop, TIERED)
    with shop.open() as store:
        with monkeypatch.context() as patched:
            patched.setattr(changes, "decide_deletion", raise_killed)
            with pytest.raises(Killed):
                store.delete_topic("orders")
        assert shop.fs.exists(f"/shop/{LEAVING}")
        store.delete_topic("orders", keep_archive=True)
    later(shop, lambda store: None)
    assert shop.archived() == [b"old"] * 12


def test_a_deletion_that_is_not_to_keep_the_archive_any_more_needs_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(shop, CONFIG)
    with shop.open() as store, monkeypatch.context() as patched:
        patched.setattr(store._offsets, "forgetting", raise_killed)
        with pytest.raises(Killed):
            store.delete_topic("orders", keep_archive=True)
    with shop.open() as store:
        shop.memory.fault = lambda request, key: BEFORE
        with pytest.raises(ObjectStoreError):
            store.delete_topic("orders")
        assert "orders" in store.topics()
        shop.memory.fault = lambda request, key: None
