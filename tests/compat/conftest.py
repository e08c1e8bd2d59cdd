"""A cluster in memory, or in a directory, for each test of the layers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pylog.compat.clusters import CLUSTERS, MEMORY, ClusterSettings

_NUMBERS = itertools.count()
Servers = dict[str, Any]


@pytest.fixture
def memory() -> Iterator[Servers]:
    """The options that lead a client to a new cluster in memory."""
    name = f"test-{next(_NUMBERS)}"
    yield {"bootstrap_servers": f"pylog+memory://{name}"}
    CLUSTERS.forget(MEMORY + name)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Servers]:
    """The options that lead a client to a new cluster in a directory."""
    path = tmp_path / "kafka"
    yield {"bootstrap_servers": f"pylog://{path}"}
    CLUSTERS.forget(str(path))


@pytest.fixture
def settings() -> Iterator[Callable[..., None]]:
    """Changes the settings of `install` for one test."""
    before = CLUSTERS.settings

    def change(**given: Any) -> None:
        CLUSTERS.settings = ClusterSettings(**given)

    yield change
    CLUSTERS.close()
    CLUSTERS.settings = before
