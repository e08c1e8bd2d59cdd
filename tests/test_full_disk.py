"""A disk that is full to the last block: what frees room works without room, and the error says what fills the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Durability, Store
from pylog.fs import OsFileSystem

_BLOCK = 4096


def in_blocks(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


class SmallDisk(OsFileSystem):
    """A disk of some bytes: a write that needs another block fails when all are taken."""

    def __init__(self, root: Path, capacity: int) -> None:
        self._root = root
        self.capacity = capacity

    def used(self) -> int:
        files = (Path(parent, name) for parent, _, names in os.walk(self._root) for name in names)
        return sum(in_blocks(file.stat().st_size) for file in files)

    def admit(self, path: str, position: int, size: int) -> None:
        there, wanted = in_blocks(os.stat(path).st_size), in_blocks(position + size)
        if wanted > there and self.used() - there + wanted > self.capacity:
            raise pylog.StorageFailedError(f"cannot write {path}: No space left on device", path=path, errno=errno.ENOSPC)

    def create(self, path: str) -> Any:
        return SmallFile(super().create(path), self)

    def open(self, path: str, *, write: bool = False) -> Any:
        file = super().open(path, write=write)
        return SmallFile(file, self) if write else file

    def open_locks(self, path: str) -> Any:
        return SmallLocks(super().open_locks(path), self, path)


class SmallFile:
    """A file on it."""

    def __init__(self, file: Any, disk: SmallDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: memoryview, position: int) -> None:
        self._disk.admit(self._file.path, position, len(data))
        self._file.write(data, position)


class SmallLocks:
    """A lock file on it, which holds the reserve."""

    def __init__(self, file: Any, disk: SmallDisk, path: str) -> None:
        self._file = file
        self._disk = disk
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def keep_room(self, size: int) -> None:
        there = os.stat(self._path).st_size
        room = max(0, self._disk.capacity - self._disk.used())
        self._file.keep_room(min(size, there + room) // _BLOCK * _BLOCK)


@pytest.fixture
def disk(tmp_path: Path) -> SmallDisk:
    return SmallDisk(tmp_path, 2_000_000)


def fill(store: Store) -> None:
    for _ in range(10_000):
        store.log("t").append(os.urandom(1000))


@pytest.fixture
def full(tmp_path: Path, disk: SmallDisk) -> Iterator[Store]:
    """A store on a disk that its own topic and another program have filled."""
    store = pylog.open(tmp_path / "store", fs=disk, durability=Durability.OS)
    store.create_topic("t", segment_bytes=100_000, retention_bytes=300_000)
    store.create_topic("small")
    store.log("small").append(b"x")
    with pytest.raises(pylog.StorageFailedError):
        fill(store)
    (tmp_path / "others").write_bytes(bytes((disk.capacity - disk.used()) // _BLOCK * _BLOCK))
    yield store
    store.close()


ACTIONS: dict[str, Callable[[Store], object]] = {
    "tick": lambda store: store.tick(),
    "retain": lambda store: store.retain("t"),
    "delete_records": lambda store: store.log("t").delete_records(before=store.log("t").end_offset - 100),
    "truncate": lambda store: store.log("t").truncate(end=250),
    "delete_topic": lambda store: store.delete_topic("t"),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_what_frees_room_works_on_a_full_disk_and_appends_go_on(full: Store, disk: SmallDisk, name: str) -> None:
    before = disk.used()
    ACTIONS[name](full)
    assert disk.used() < before - 500_000
    if name == "delete_topic":
        assert set(full.topics()) == {"small"}
    else:
        end = full.log("t").end_offset
        assert full.log("t").append(b"x" * 1000) == end
    assert full.log("small").append(b"y") == 1
    assert full.verify().ok


@pytest.mark.parametrize("name", ACTIONS)
def test_the_next_store_finds_what_was_done_on_a_full_disk(full: Store, disk: SmallDisk, tmp_path: Path, name: str) -> None:
    ACTIONS[name](full)
    ends = None if name == "delete_topic" else (full.log("t").start_offset, full.log("t").end_offset)
    full.close()
    with pylog.open(tmp_path / "store", fs=disk) as again:
        assert ("t" in again.topics()) == (ends is not None)
        assert ends is None or (again.log("t").start_offset, again.log("t").end_offset) == ends
        assert again.verify().ok


def test_a_store_on_a_full_disk_closes_and_opens_again_with_all_records(full: Store, disk: SmallDisk, tmp_path: Path) -> None:
    end = full.log("t").end_offset
    full.close()
    with pylog.open(tmp_path / "store", fs=disk) as again:
        assert again.log("t").end_offset == end
        again.tick()
        assert again.log("t").append(b"x" * 1000) == end


def test_the_reserve_is_taken_again_after_room_was_freed(full: Store, tmp_path: Path) -> None:
    reserve = tmp_path / "store/pylog.lock"
    kept = reserve.stat().st_size
    assert kept >= 60_000
    full.tick()
    assert reserve.stat().st_size == kept


def test_the_error_of_a_full_disk_says_what_each_topic_holds_and_which_command_frees_it(full: Store) -> None:
    with pytest.raises(pylog.StorageFailedError, match=r"No space left.*the topics hold t 1\.\d MB, small \d+ B; .*pylog retain"):
        full.log("t").append(os.urandom(10_000))
