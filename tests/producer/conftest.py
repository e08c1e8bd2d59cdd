"""A store on a file system that can be interfered with, for what goes wrong with producers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog import Durability
from pylog.store import Store
from support.faults.neighbours import HookedFileSystem


@pytest.fixture
def fs() -> HookedFileSystem:
    return HookedFileSystem()


@pytest.fixture
def store(tmp_path: Path, fs: HookedFileSystem) -> Iterator[Store]:
    with pylog.open(tmp_path / "s", fs=fs, durability=Durability.OS) as opened:
        opened.create_topic("t")
        opened.log("t").append(b"first")
        yield opened
