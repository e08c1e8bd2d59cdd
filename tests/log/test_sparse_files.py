"""Files with holes, which say that they are large and take no room: what they cost depends on the bytes that are there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import pylog
from support.campaign.lying_files import batches_of

HOLE: Final = 8 << 30
SECONDS: Final = 2.0  # of the processor, for each call: a pass over the zeros takes ten times as long
KINDS: Final = (".index", ".timeindex", ".txnindex", ".snapshot", ".seal", "durable-point", "group-members", "partition.metadata")


def written(root: Path) -> Path:
    """Writes a log of several segments; returns its directory."""
    with pylog.open(root, durability=pylog.Durability.OS) as store:
        store.create_topic("t", segment_bytes=2000, index_interval_bytes=100)
        for number in range(40):
            store.log("t").append(b"%d" % number * 50, key=b"k")
    return root / "t-0"


def read(root: Path, mode: str) -> list[bytes | None]:
    with pylog.open(root, mode) as store:
        return [record.value for record in store.log("t").records()]


def quickly(call: Callable[[], Any]) -> Any:
    """Makes a call, again if it was slow: the first one may have loaded kernels."""
    for attempt in range(2):
        before = time.process_time()
        found = call()
        if time.process_time() - before < SECONDS:
            return found
        assert attempt == 0, f"{time.process_time() - before:.1f} s"
    raise AssertionError


def checked(root: Path, mode: str) -> None:
    with pylog.open(root, mode) as store:
        for call in (store.check, store.verify, lambda: store.verify(records=True)):
            quickly(call)


@pytest.mark.damaged("a segment has a hole after its records")
@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("number", [0, -1], ids=["a sealed segment", "the active segment"])
def test_a_log_of_gigabytes_of_nothing_costs_what_is_there(tmp_path: Path, number: int, mode: str) -> None:
    directory = written(tmp_path / "s")
    expected = read(tmp_path / "s", "r")
    os.truncate(sorted(directory.glob("*.log"))[number], HOLE)
    assert quickly(lambda: read(tmp_path / "s", mode)) == expected
    checked(tmp_path / "s", mode)


@pytest.mark.damaged("a segment has a hole between its records")
@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("before", [0, 7], ids=["after it", "some bytes before its end"])
def test_records_after_a_hole_are_found_even_if_their_batch_begins_with_zeros(tmp_path: Path, before: int, mode: str) -> None:
    log = min(written(tmp_path / "s").glob("*.log"))
    expected = read(tmp_path / "s", "r")
    *first, last = batches_of(log.read_bytes())
    assert not any(last[:7])  # of its offset
    with log.open("r+b") as file:
        file.truncate(sum(map(len, first)))
        file.seek(HOLE)
        file.write(last[before:])  # its first bytes are zeros of the hole, as in a copy by `cp --sparse`
    assert quickly(lambda: read(tmp_path / "s", mode)) == expected
    checked(tmp_path / "s", "r")


@pytest.mark.damaged("a file has a hole")
def test_a_small_file_of_gigabytes_of_nothing_costs_nothing(tmp_path: Path) -> None:
    for number, kind in enumerate(KINDS):
        root = tmp_path / str(number)
        directory = written(root)
        expected = read(root, "r")
        path = next(iter(sorted(directory.glob(f"*{kind}"))), directory / (f"{0:020}{kind}" if kind[0] == "." else kind))
        path.touch()
        os.truncate(path, HOLE)
        assert quickly(lambda root=root: read(root, "rw")) == expected, kind
        checked(root, "r")
