"""A store with two topics for a producer, and what their partitions hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pylog
from pylog import Durability
from pylog.store import Store

PATIENCE = 60.0  # seconds that a test waits for what takes milliseconds


def store(tmp_path: Path) -> Iterator[Store]:
    with pylog.open(tmp_path / "s", durability=Durability.OS) as opened:
        opened.create_topic("one")
        opened.create_topic("four", partition_count=4)
        yield opened


def values(store: Store, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in store.log(topic, partition).records()]
