"""A topic and a group in memory, whose records and commits have the times that a test wants."""

from __future__ import annotations

from typing import Any

import pylog
from pylog import OffsetsConfig
from pylog.clock import ManualClock
from pylog.fs import FileSystem
from pylog.groups.health import Health, PartitionHealth
from pylog.testing import MemoryFileSystem

NOON = 1_706_702_400_000  # 2024-01-31T12:00Z
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


class GroupCourse:
    """A store with a topic `orders` and a group `billing`. Time passes in `wait` only.

    Args:
        config: of the topic.
    """

    def __init__(self, path: str = "/shop", fs: FileSystem | None = None, **config: Any) -> None:
        self.path = path
        self.fs = MemoryFileSystem() if fs is None else fs
        self.clock = ManualClock(NOON)
        self.store = pylog.open(path, fs=self.fs, clock=self.clock, offsets=OffsetsConfig(topic_num_partitions=1))
        self.store.create_topic("orders", **config)
        self.log = self.store.log("orders")

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    def produce(self, count: int = 1, **options: Any) -> None:
        for _ in range(count):
            self.log.append(b"x" * 50, **options)

    def commit(self, offset: int | None = None, group: str = "billing") -> None:
        self.store.offsets.commit(group, {("orders", 0): self.log.end_offset if offset is None else offset})

    def health(self, **options: Any) -> Health:
        return self.store.group("billing").health(**options)

    def row(self, **options: Any) -> PartitionHealth:
        (found,) = self.health(**options).partitions
        return found

    def verdict(self, **options: Any) -> str:
        return str(self.health(**options).verdict)

    def close(self) -> None:
        self.store.close()
