"""A commit belongs to the topic that it was made for: one that arrives while, or after, the topic is deleted never counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.offsets.offset_manager import OffsetManager
from pylog.offsets.partition import OffsetsPartition
from pylog.topics import changes
from support import warm
from support.cli import call

_DELETE = "import sys, pylog\nwith pylog.open(sys.argv[1]) as store: store.delete_topic('t')"
_DELETE_AND_CREATE = f"{_DELETE}; store.create_topic('t'); store.log('t').append_many([b'new'] * 10)"


def _held_up(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Has something happen when the next commit has its records, and before they are written."""
    append = OffsetsPartition.append
    due = [action]

    def later(self: OffsetsPartition, *given: Any, **named: Any) -> range:
        if due and threading.current_thread() is threading.main_thread():
            due.pop()()
        return append(self, *given, **named)

    monkeypatch.setattr(OffsetsPartition, "append", later)


@pytest.mark.pair("groups", "second process")
@pytest.mark.parametrize("script", [_DELETE, _DELETE_AND_CREATE], ids=["deleted", "deleted and made again"])
def test_a_commit_that_arrives_after_its_topic_was_deleted_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    with pylog.open(str(tmp_path), offsets=pylog.OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t")
        store.log("t").append_many([b"old"] * 10)
        store.offsets.commit("g", {("t", 0): 1})
        _held_up(monkeypatch, lambda: _elsewhere(script, tmp_path))
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            store.offsets.commit("g", {("t", 0): 7})
        if script == _DELETE:
            store.create_topic("t")
        assert store.offsets.position("g", ("t", 0)) is None
        store.offsets.commit("g", {("t", 0): 0})  # one for the new topic counts
        assert store.offsets.position("g", ("t", 0)) == 0


def test_a_commit_that_arrives_after_this_store_deleted_its_topic_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pylog.open(str(tmp_path), offsets=pylog.OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t")
        store.log("t").append_many([b"old"] * 10)
        store.offsets.commit("g", {("t", 0): 1})
        _held_up(monkeypatch, lambda: store.delete_topic("t"))
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            store.offsets.commit("g", {("t", 0): 7})
        store.create_topic("t")
        assert store.offsets.position("g", ("t", 0)) is None


def _with_topic(path: Path) -> pylog.Store:
    store = pylog.open(str(path), offsets=pylog.OffsetsConfig(topic_num_partitions=1))
    if "t" not in store.topics():
        store.create_topic("t")
        store.log("t").append_many([b"old"] * 10)
    return store


def _elsewhere(script: str, path: Path) -> None:
    warm.run(["-c", script, path], check=True)


def _by_command(*arguments: object) -> None:
    outcome = call(*arguments)
    assert outcome.code != 0
    assert "deleted" in outcome.complaints
    raise pylog.UnknownTopicOrPartitionError(outcome.complaints)


def _reset_held_up(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Has something happen when the next reset is planned, and before it takes the lock."""
    change, due = OffsetManager.change, [action]

    def later(self: OffsetManager, *given: Any, **named: Any) -> None:
        if due:
            due.pop()()
        change(self, *given, **named)

    monkeypatch.setattr(OffsetManager, "change", later)


@pytest.mark.pair("groups", "second process")
@pytest.mark.parametrize("script", [_DELETE, _DELETE_AND_CREATE], ids=["deleted", "deleted and made again"])
@pytest.mark.parametrize("how", ["reset", "file", "import", "groups reset", "groups import"])
def test_a_reset_that_arrives_after_its_topic_was_deleted_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, script: str
) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("t,0,7\n" if how == "file" else "g,t,0,7\n")
    with _with_topic(tmp_path / "s") as store:
        store.offsets.commit("g", {("t", 0): 1})
        _reset_held_up(monkeypatch, lambda: _elsewhere(script, tmp_path / "s"))
        ways: dict[str, Callable[[], object]] = {
            "reset": lambda: store.group("g").reset(7),
            "file": lambda: store.group("g").reset(from_file=plan),
            "import": lambda: pylog.import_offsets(store, plan),
            "groups reset": lambda: _by_command("groups", "reset", store.path, "g", "--to-offset", 7, "--execute"),
            "groups import": lambda: _by_command("groups", "import", store.path, plan, "--execute"),
        }
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            ways[how]()
        if script == _DELETE:
            store.create_topic("t")
        assert store.offsets.position("g", ("t", 0)) is None


def test_an_import_never_resets_a_topic_that_was_created_during_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.csv").write_text("g,t,0,7\nh,t,0,7\n")
    with _with_topic(tmp_path / "s") as store:
        store.offsets.commit("g", {("t", 0): 1})
        store.offsets.commit("h", {("t", 0): 1})
        _reset_held_up(monkeypatch, lambda: _elsewhere(_DELETE_AND_CREATE, tmp_path / "s"))
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            pylog.import_offsets(store, tmp_path / "plan.csv")
        assert {group: store.offsets.position(group, ("t", 0)) for group in "gh"} == {"g": None, "h": None}


def _items_held_up(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Has something happen when the next commit was requested, and before its records are made, in whichever thread."""
    items, due = OffsetManager.items, [action]

    def later(self: OffsetManager, *given: Any, **named: Any) -> Any:
        if due:
            due.pop()()
        return items(self, *given, **named)

    monkeypatch.setattr(OffsetManager, "items", later)


def _commit_in_some_way(consumer: pylog.Consumer, how: str) -> BaseException | None:
    try:
        if how == "positions":
            consumer.commit()
        elif how == "offsets":
            consumer.commit({("t", 0): 7})
        elif how == "async":
            return consumer.commit_async({("t", 0): 7}).exception(60)
        elif how == "async positions":
            return consumer.commit_async().exception(60)
        else:
            consumer.close()
    except pylog.PylogError as error:
        return error
    return None


@pytest.mark.pair("groups", "second process")
@pytest.mark.parametrize("how", ["positions", "offsets", "async", "async positions", "automatic"])
@pytest.mark.parametrize("subscribed", [True, False], ids=["subscribed", "assigned"])
def test_a_consumers_commit_that_was_requested_for_a_deleted_topic_never_counts_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subscribed: bool, how: str
) -> None:
    with _with_topic(tmp_path) as store:
        consumer = store.consumer(
            *["t"] * subscribed, group_id="g", enable_auto_commit=how == "automatic", auto_offset_reset="earliest"
        )
        if not subscribed:
            consumer.assign([("t", 0)])
        assert sum(map(len, consumer.poll(5000, max_records=7).values())) == 7
        _items_held_up(monkeypatch, lambda: _elsewhere(_DELETE_AND_CREATE, tmp_path))
        refused = _commit_in_some_way(consumer, how)
        assert isinstance(refused, pylog.PylogError) or how not in ("offsets", "async")  # positions are left out with a warning
        consumer.close(autocommit=False)
        assert store.offsets.position("g", ("t", 0)) is None


_DIE = """
import os, sys, pylog
from pylog.topics import changes
from support.cli import call
from support import warm
from pylog.offsets.offset_manager import OffsetManager
step = sys.argv[2]
if step == "forgotten":
    changes.TopicChanges.note_deleted = lambda *given: os._exit(9)
elif step == "removed":
    OffsetManager.forget_topic = lambda *given: os._exit(9)
else:
    name = {"decided": "rename_deleted", "renamed": "remove_directories"}[step]
    setattr(changes, name, lambda *given: os._exit(9))
with pylog.open(sys.argv[1]) as store:
    store.delete_topic("t")
"""


@pytest.mark.sampled(3)
@pytest.mark.pair("groups", "crash")
@pytest.mark.parametrize("step", ["decided", "renamed", "removed", "forgotten"])
@pytest.mark.parametrize("others", [True, False], ids=["with another store open", "alone"])
def test_a_process_that_dies_while_it_deletes_a_topic_leaves_no_commit_for_the_next_one(
    tmp_path: Path, step: str, others: bool
) -> None:
    store = _with_topic(tmp_path)
    store.offsets.commit("g", {("t", 0): 7})
    store.offsets.commit("h", {("t", 0): 8})
    if not others:
        store.close()
    assert warm.run(["-c", _DIE, tmp_path, step]).returncode == 9
    if others:
        with suppress(pylog.UnknownTopicOrPartitionError):
            store.offsets.commit("g", {("t", 0): 6})  # the topic is deleted, even if this log does not know it yet
    else:
        store = pylog.open(str(tmp_path))
        assert store.offsets.fetch("g") == {}
    with store:
        store.create_topic("t")
        assert {group: store.offsets.position(group, ("t", 0)) for group in "gh"} == {"g": None, "h": None}
        store.offsets.commit("g", {("t", 0): 0})
    with pylog.open(str(tmp_path)) as store:
        assert store.offsets.position("g", ("t", 0)) == 0


@pytest.mark.pair("groups", "second process")
def test_a_topic_created_while_its_predecessor_is_deleted_has_no_commits_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _with_topic(tmp_path) as one, _with_topic(tmp_path) as two:
        one.offsets.commit("g", {("t", 0): 7})
        remove, due = changes.remove_directories, [True]

        def created(*given: Any) -> None:
            if due:
                due.clear()
                two.create_topic("t")
                assert two.offsets.position("g", ("t", 0)) is None
                two.offsets.commit("g", {("t", 0): 0})
            remove(*given)

        monkeypatch.setattr(changes, "remove_directories", created)
        one.delete_topic("t")
        assert two.offsets.position("g", ("t", 0)) == 0
