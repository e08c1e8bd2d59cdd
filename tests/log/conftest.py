"""Fixtures that several tests of logs share. A file with another `store` or `fs` has a fixture of that name itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog.store import Store
from support.faults.neighbours import HookedFileSystem, Neighbour


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def fs() -> HookedFileSystem:
    """A file system whose calls a test can stop at, or have fail."""
    return HookedFileSystem()


@pytest.fixture
def log(store: Store) -> pylog.Log:
    """The log of partition 0 of the topic `t` in the `store` of the file."""
    return store.log("t")


@pytest.fixture(scope="module")
def process() -> Iterator[Neighbour]:
    """Another process that runs what a test sends it."""
    with Neighbour() as started:
        yield started
