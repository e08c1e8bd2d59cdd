"""A tiered directory and its copy, with one archive between them: the original goes on with it, and neither loses a record."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pylog
from pylog import Durability

ROWS = 10


def values(log: pylog.Log) -> list[bytes]:
    return [record.value or b"" for record in log.records()]


@pytest.mark.parametrize("order", ["sc", "cs", "scs", "csc"])
def test_a_copy_beside_its_original_loses_no_record(tmp_path: Path, order: str) -> None:
    """Segments of the same offsets and the same size: only their content shows that they are not the same."""
    shop, copy = tmp_path / "shop", tmp_path / "copy"
    with pylog.open(shop, archive=str(tmp_path / "archive"), durability=Durability.OS) as store:
        store.create_topic("orders", remote_storage_enable=True, segment_bytes=300, local_retention_bytes=300, retention_ms=-1)
        for number in range(6):
            store.log("orders").append(b"%d" % number * 30)
        store.tick()
    shutil.copytree(shop, copy)
    with pylog.open(shop, durability=Durability.OS) as first, pylog.open(copy, durability=Durability.OS) as second:
        stores = {"s": first, "c": second}
        for name, store in stores.items():
            for number in range(ROWS):
                store.log("orders").append(f"{name}{number}".encode() * 20)
        for name in order:
            stores[name].tick()
        for name, store in stores.items():
            assert values(store.log("orders"))[6:] == [f"{name}{number}".encode() * 20 for number in range(ROWS)]
            assert not store.verify(records=True).findings
        assert first.log("orders").local_start_offset > 6 > second.log("orders").local_start_offset
