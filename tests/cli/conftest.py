"""A shop to run commands on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pylog

HOUR_MS = 3_600_000
NOON = 1_706_702_400_000  # 2024-01-31T12:00Z


@pytest.fixture(scope="session")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop as it is made, to be copied."""
    path = tmp_path_factory.mktemp("cli") / "shop"
    few = pylog.OffsetsConfig(topic_num_partitions=2)
    with pylog.open(path, durability=pylog.Durability.OS, offsets=few) as store:
        store.create_topic("orders", partition_count=2, retention_ms=-1)
        store.log("orders", 0).append_many(
            [(b"42", b"paid", [("source", b"web")], NOON), (b"43", b"shipped", [], NOON + HOUR_MS)]
        )
        store.log("orders", 0).append_many([(b"42", None, [], NOON + 2 * HOUR_MS), (None, b"\xff\x00", [], NOON + 3 * HOUR_MS)])
        store.log("orders", 1).append_many([("é".encode(), b"one\ttwo\n", [("h", None)], NOON)])
        store.create_topic("prices", cleanup_policy="compact", segment_bytes=100)
        for price in (b"1.20", b"1.30", b"1.40"):
            store.log("prices").append(price, key=b"tea", timestamp=NOON)
        store.create_topic("old", retention_ms=HOUR_MS, segment_bytes=100)
        for number in range(3):
            store.log("old").append(b"x" * 15, timestamp=NOON + number)
        store.offsets.commit("billing", {("orders", 0): 3, ("orders", 1): 1})
        store.offsets.commit("shipping", {("orders", 0): 0})
    return path


@pytest.fixture
def shop(stocked: Path, tmp_path: Path) -> Path:
    """A directory with topics `orders` (2 partitions), `prices` (compacted), `old` (to be retained), groups billing, shipping."""
    return shutil.copytree(stocked, tmp_path / "shop")
