"""Two stores and a process beside them that write one partition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pylog
from pylog.store import Store
from support.faults.neighbours import Neighbour

SMALL: dict[str, Any] = {"segment_bytes": 600, "index_interval_bytes": 100, "retention_ms": -1}


def neighbour() -> Iterator[Neighbour]:
    """One process for all tests that let it live."""
    with Neighbour() as other:
        yield other


def other(neighbour: Neighbour, path: Path) -> Iterator[Neighbour]:
    """The same, with the store open."""
    neighbour.run("store = pylog.open(path, lock_timeout_ms=20_000)", path=str(path))
    yield neighbour
    neighbour.run("store.close()")


def path(tmp_path: Path) -> Path:
    """A directory with one topic, of small segments."""
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t", **SMALL)
    return tmp_path / "s"


def one(path: Path) -> Iterator[Store]:
    with pylog.open(path) as store:
        yield store


def two(path: Path) -> Iterator[Store]:
    with pylog.open(path) as store:
        yield store
