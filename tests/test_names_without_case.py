"""On a file system that ignores case, as macOS has it, a topic is found by its own spelling only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pylog
from pylog import Store, TopicPartition, UnknownTopicOrPartitionError
from pylog.fs import write_atomically
from pylog.testing import MemoryFileSystem


class IgnoresCase(MemoryFileSystem):
    """Finds a file by a name in any case, and keeps the name that it was created with."""

    def _found(self, path: str) -> str:
        found = ""
        for part in path.strip("/").split("/"):
            names = [each.name for each in super().list(found or "/")] if super().exists(found or "/") else []
            found += "/" + next((name for name in names if name.lower() == part.lower()), part)
        return found

    def rename(self, path: str, target: str) -> None:
        super().rename(self._found(path), self._found(target))


def _by_any_case(name: str) -> Callable[..., Any]:
    def call(self: IgnoresCase, path: str, *given: Any, **options: Any) -> Any:
        return getattr(MemoryFileSystem, name)(self, self._found(path), *given, **options)

    return call


CALLS = (
    "check_directory",
    "create",
    "exists",
    "identity",
    "link_target",
    "list",
    "lock_directory",
    "lock_owner",
    "make_directory",
)
for each in (*CALLS, "map", "open", "open_locks", "read", "remove", "remove_tree", "sync_directory"):
    setattr(IgnoresCase, each, _by_any_case(each))

ASKED: dict[str, Callable[[Store], object]] = {
    "log": lambda store: store.log("orders").append(b"two"),
    "consumer": lambda store: store.consumer("orders", auto_offset_reset="earliest").poll(10),
    "transaction": lambda store: store.transaction("id").append("orders", b"two"),
    "read_table": lambda store: store.read_table("orders"),
    "snapshot": lambda store: store.snapshot(["orders"]),
    "delete_topic": lambda store: store.delete_topic("orders"),
    "alter_topic": lambda store: store.alter_topic("orders", retention_ms=1),
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("is_open", [True, False])
def test_a_topic_in_another_spelling_does_not_exist(name: str, is_open: bool) -> None:
    fs = IgnoresCase()
    with pylog.open("/shop", fs=fs) as store:
        store.create_topic("Orders")
        store.log("Orders").append(b"one")
        if is_open:
            with pytest.raises(UnknownTopicOrPartitionError):
                ASKED[name](store)
            assert store.start_and_end_offsets([TopicPartition("orders", 0)]) == {TopicPartition("orders", 0): None}
            assert [record.value for record in store.log("Orders").records()] == [b"one"]
    with pylog.open("/shop", fs=fs) as store:
        with pytest.raises(UnknownTopicOrPartitionError):
            ASKED[name](store)
        assert store.log("Orders").append(b"two") == 1
        assert "orders" not in store.topics()


def test_a_topic_of_a_broker_and_one_without_letters_are_found_by_their_own_spelling() -> None:
    fs = IgnoresCase()
    with pylog.open("/shop", fs=fs) as store:
        for name in ("Orders", "7"):
            store.create_topic(name)
            store.log(name).append(b"one")
    fs.remove("/shop/pylog.json")  # as a broker's directory has it
    write_atomically(fs, "/shop", "meta.properties", b"version=1\ncluster.id=shop\nnode.id=1\n")
    with pylog.open("/shop", mode="r", fs=fs) as store:
        assert [store.log(name).end_offset for name in ("Orders", "7")] == [1, 1]
        with pytest.raises(UnknownTopicOrPartitionError):
            store.log("orders")
