"""A directory with a small topic, and calls that it must refuse without a trace."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pylog
from pylog.clock import ManualClock

NOW = 1_700_000_000_000
RECORDS = [b"zero", b"one", b"two", b"three", b"four"]


def listing(directory: Path) -> dict[str, tuple[int, str]]:
    """Every name below a directory with its kind, permissions and content."""
    found = {}
    for path in sorted(directory.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            content = os.readlink(path) if stat.S_ISLNK(mode) else ""
        found[str(path.relative_to(directory))] = (mode, content)
    return found


@contextmanager
def refused(kind: type[pylog.PylogError], *told: str, unchanged: Path) -> Iterator[None]:
    """Expects an error of exactly this class whose message tells all that, and an unchanged directory."""
    before = listing(unchanged)
    with pytest.raises(pylog.PylogError) as caught:
        yield
    assert type(caught.value) is kind, repr(caught.value)
    for part in told:
        assert part in str(caught.value)
    assert len(str(caught.value)) > 10
    assert listing(unchanged) == before


def root(tmp_path: Path) -> Path:
    """A closed store with a topic `t` of five records, each a batch, in two segments."""
    path = tmp_path / "data"
    with pylog.open(path, clock=ManualClock(NOW)) as store:
        log = store.create_topic("t", segment_bytes=230) and store.log("t")
        for value in RECORDS:
            log.append(value)
        assert len(log.segments) == 2
    return path


def store(root: Path) -> Iterator[pylog.Store]:
    with pylog.open(root, clock=ManualClock(NOW)) as opened:
        opened.log("t").append(b"five")
        yield opened


def refused_in_a_child(*calls: Callable[[], object], last: Callable[[], object]) -> int:
    """Makes calls in a forked child, then `last`. Returns how many raised ClosedError."""
    child = os.fork()
    if child == 0:
        refused = 0
        for call in calls:
            try:
                call()
            except pylog.ClosedError:
                refused += 1
        last()
        os._exit(refused)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
