"""No public call with a wrong type raises anything but a PylogError: what a random sweep over all of them found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

import pylog
from pylog.testing import MemoryFileSystem


def opened() -> pylog.Store:
    store = pylog.open("/s", fs=MemoryFileSystem(), durability="os", offsets=pylog.OffsetsConfig(topic_num_partitions=1))
    store.create_topic("t", partition_count=2)
    store.log("t").append_many([b"a", b"b"])
    store.offsets.commit("g", {("t", 0): 1})
    return store


def consuming(store: pylog.Store, ask: Callable[[pylog.Consumer], object]) -> None:
    with store.consumer("t", group_id="g") as consumer:
        ask(consumer)


WRONG: Final[dict[str, Callable[[pylog.Store], object]]] = {
    "the offsets of no store are exported": lambda _: pylog.export_offsets({}, "/f"),  # type: ignore[arg-type]
    "the offsets of no store are imported": lambda _: pylog.import_offsets(None, "/f"),  # type: ignore[arg-type]
    "offsets expire at no time": lambda store: store.offsets.expire("now"),  # type: ignore[arg-type]
    "partitions are one number": lambda store: store.start_and_end_offsets(5),  # type: ignore[arg-type]
    "a partition is a topic": lambda store: store.start_and_end_offsets(["t"]),  # type: ignore[list-item]
    "committed offsets of a number": lambda store: store.offsets.fetch("g", 5),  # type: ignore[arg-type]
    "offsets of a number are deleted": lambda store: store.offsets.delete("g", 5),  # type: ignore[arg-type]
    "times of a list": lambda store: consuming(store, lambda each: each.offsets_for_times([("t", 0)])),  # type: ignore[arg-type]
    "a callback is text": lambda store: consuming(store, lambda each: each.commit_async(callback="x")),  # type: ignore[arg-type]
    "a key has a lone surrogate": lambda store: store.log("t").append(b"x", "\ud800"),  # type: ignore[arg-type]
    "a file system is a number": lambda _: pylog.open("/s", fs=5),  # type: ignore[arg-type]
    "a clock is a number": lambda _: pylog.open("/s", fs=MemoryFileSystem(), clock=5),  # type: ignore[arg-type]
    "an answer is a number": lambda _: pylog.open("/s", fs=MemoryFileSystem(), committed=5),  # type: ignore[arg-type]
    "offsets are nothing": lambda _: pylog.open("/s", fs=MemoryFileSystem(), offsets=0),  # type: ignore[arg-type]
    "transactions are a list": lambda _: pylog.open("/s", fs=MemoryFileSystem(), transactions=[]),  # type: ignore[arg-type]
    "columns are a number": lambda _: pylog.read_table("/s", "t", columns=5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_type_is_refused_at_the_call(call: Callable[[pylog.Store], object]) -> None:
    with opened() as store, pytest.raises(pylog.InvalidArgumentError):
        call(store)
