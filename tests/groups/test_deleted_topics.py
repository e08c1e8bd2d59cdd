"""A commit belongs to the topic that it was made for: one that arrives while, or after, the topic is deleted never counts."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.offsets.partition import OffsetsPartition

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
        _held_up(monkeypatch, lambda: subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True))
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
