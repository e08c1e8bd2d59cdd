"""Files with holes, which say that they are large and take no room: what they cost depends on the bytes that are there."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import pylog
from pylog.fs import OsFileSystem, copy_file, copy_range
from support.campaign.lying_files import batches_of
from support.cli import call

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


def on_disk(directory: Path) -> int:
    """The bytes that the files of a directory take on the disk."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


@pytest.mark.damaged("a segment has a hole between its records")
@pytest.mark.parametrize("policy", ["truncate", "skip"])
def test_a_repair_copies_only_the_bytes_that_are_there_and_keeps_holes(tmp_path: Path, policy: str) -> None:
    log = min(written(tmp_path / "s").glob("*.log"))
    *first, last = batches_of(log.read_bytes())
    with log.open("r+b") as file:
        file.truncate(sum(map(len, first)))
        file.seek(HOLE)
        file.write(last)
    backup = tmp_path / "kept"
    outcome = quickly(lambda: call("repair", policy, str(tmp_path / "s"), "--execute", "--backup", str(backup)))
    assert outcome.code == 0
    (copied,) = backup.rglob(log.name)
    assert copied.stat().st_size == HOLE + len(last)
    assert on_disk(tmp_path) < 4 << 20
    with pylog.open(tmp_path / "s", "r") as store:
        assert len(list(store.log("t").records())) == {"truncate": len(first), "skip": 40}[policy]


@pytest.mark.damaged("a segment has a hole after its records")
def test_a_torn_tail_after_a_hole_is_kept_aside_at_the_cost_of_what_is_there(tmp_path: Path) -> None:
    log = max(written(tmp_path / "s").glob("*.log"))
    expected = read(tmp_path / "s", "r")
    (tmp_path / "s" / ".kafka_cleanshutdown").unlink()
    with log.open("r+b") as file:
        file.seek(HOLE)
        file.write(b"\1" * 40)

    def appended() -> None:
        with pylog.open(tmp_path / "s") as store:
            store.log("t").append(b"next")

    quickly(appended)
    assert read(tmp_path / "s", "r")[:40] == expected
    assert on_disk(tmp_path) < 4 << 20


@pytest.mark.damaged("a segment has a hole between its records")
def test_a_truncation_copies_the_bytes_that_are_there(tmp_path: Path) -> None:
    directory = written(tmp_path / "s")
    log = min(directory.glob("*.log"))
    *first, last = batches_of(log.read_bytes())
    with log.open("r+b") as file:
        file.truncate(sum(map(len, first)))
        file.seek(1 << 30)
        file.write(last)

    def truncated() -> None:
        with pylog.open(tmp_path / "s") as store:
            store.log("t").truncate(len(first) + 1)

    quickly(truncated)
    assert on_disk(tmp_path) < 4 << 20


def test_files_with_the_same_holes_are_compared_by_what_is_there(tmp_path: Path) -> None:
    written(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for name in "ab":
        os.truncate(max((tmp_path / name / "t-0").glob("*.log")), HOLE)
    assert quickly(lambda: call("compare", str(tmp_path / "a"), str(tmp_path / "b"), "--bytes")).code == 0
    with max((tmp_path / "b" / "t-0").glob("*.log")).open("r+b") as file:
        file.seek(HOLE - 5)
        file.write(b"x")
    outcome = quickly(lambda: call("compare", str(tmp_path / "a"), str(tmp_path / "b"), "--bytes"))
    assert outcome.code == 1
    assert f"position {HOLE - 5}" in outcome.text


@pytest.mark.parametrize("start", [0, 5000])
def test_a_copy_has_the_bytes_and_the_holes_of_its_source(tmp_path: Path, start: int) -> None:
    pieces = {0: b"a" * 10, 1 << 20: b"b" * 200_000, 1 << 30: b"c", (1 << 30) + 70_000: b"d" * 4096}
    size = 3 << 30
    with (tmp_path / "source").open("wb") as file:
        for position, data in pieces.items():
            file.seek(position)
            file.write(data)
        file.truncate(size)
    fs = OsFileSystem()
    source, target = fs.open(str(tmp_path / "source")), fs.create(str(tmp_path / "target"))
    quickly(lambda: copy_range(source, start, size, target, 0) if start else copy_file(source, target))
    assert target.size() == size - start
    for position, data in pieces.items():
        if position >= start:
            assert target.read(len(data) + 100, position - start) == source.read(len(data) + 100, position)
    assert (tmp_path / "target").stat().st_blocks * 512 < 16 * sum(map(len, pieces.values()))
    source.close()
    target.close()
