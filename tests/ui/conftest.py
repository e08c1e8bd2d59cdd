"""A directory for the tests of the window."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylog


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three records, and a group that has read two of them."""
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("orders")
        store.log("orders").append_many([b"a", b"b", b"c"])
        store.offsets.commit("billing", {("orders", 0): 2})
    return tmp_path / "s"
