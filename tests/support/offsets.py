"""Stores with committed offsets, and records of their topic that a test plants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pylog
from pylog import OffsetsConfig, TopicPartition
from pylog.clock import ManualClock
from pylog.offsets.schema import (
    OFFSETS_TOPIC,
    partition_of_group,
)
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from support.engines import append_as_another_program

NOW = 1_700_000_000_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FEW = OffsetsConfig(topic_num_partitions=2)


def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def opened(fs: MemoryFileSystem, **how: Any) -> Store:
    return pylog.open("/s", **{"fs": fs, "clock": ManualClock(NOW), "offsets": FEW, **how})


def store(fs: MemoryFileSystem) -> Iterator[Store]:
    """A store with a topic of two partitions, ten records in each."""
    with opened(fs) as made:
        made.create_topic("t", partition_count=2)
        for number in range(2):
            made.log("t", number).append_many([b"x"] * 10)
        yield made


def offsets_log(store: Store, group: str) -> pylog.Log:
    return store.log(OFFSETS_TOPIC, partition_of_group(group, 2))


def planted(store: Store, group: str, *records: tuple[bytes | None, bytes | None]) -> None:
    """Appends records beside the store's own interface, as another program would."""
    append_as_another_program(offsets_log(store, group), *records)


def damage(fs: MemoryFileSystem, path: str, position: int) -> None:
    file = fs.open(path, write=True)
    file.write(memoryview(b"\x77"), position)
    file.close()
