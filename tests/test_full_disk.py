"""A disk that is full to the last block: what frees room works without room, and the error says what fills the disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
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

    def keep_room(self, size: int) -> bool:
        there = os.stat(self._path).st_size
        room = max(0, self._disk.capacity - self._disk.used())
        return self._file.keep_room(min(size, there + room) // _BLOCK * _BLOCK) and there + room >= size


@pytest.fixture
def disk(tmp_path: Path) -> SmallDisk:
    return SmallDisk(tmp_path, 2_000_000)


def fill(store: Store) -> None:
    for _ in range(1000):
        store.log("t").append_many([os.urandom(1000) for _ in range(10)])


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
    "alter": lambda store: (store.alter_topic("t", retention_bytes=100_000), store.tick()),
    "delete_records": lambda store: store.log("t").delete_records(before=store.log("t").end_offset - 100),
    "truncate": lambda store: store.log("t").truncate(end=250),
    "delete_topic": lambda store: store.delete_topic("t"),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ACTIONS)
def test_calls_that_free_room_work_on_a_full_disk_and_appends_continue(full: Store, disk: SmallDisk, name: str) -> None:
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


@pytest.mark.sampled(6)
@pytest.mark.pair("close", "retention by size", "truncation", "delete_records")
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


@pytest.mark.slow
def test_the_reserve_is_taken_again_after_room_was_freed(full: Store, tmp_path: Path) -> None:
    reserve = tmp_path / "store/pylog.lock"
    kept = reserve.stat().st_size
    assert kept >= 60_000
    full.tick()
    assert reserve.stat().st_size == kept


@pytest.mark.slow
def test_the_reserve_grows_with_the_files_that_name_all_partitions(tmp_path: Path) -> None:
    """It has room for the catalog during a deletion of all of them, and for another checkpoint, at any time."""
    reserve = tmp_path / "store/pylog.lock"
    with pylog.open(tmp_path / "store", durability=Durability.OS) as store:
        assert 60_000 <= reserve.stat().st_size < 70_000
        store.create_topic("n" * 100, partition_count=400)
        grown = reserve.stat().st_size
        assert grown > 400 * 4 * 100
        store.add_partitions("n" * 100, 600)
        assert reserve.stat().st_size > grown + 200 * 4 * 100


def test_the_error_of_a_full_disk_says_what_each_topic_holds_and_which_command_frees_it(full: Store) -> None:
    with pytest.raises(pylog.StorageFailedError, match=r"No space left.*the topics hold t 1\.\d MB, small \d+ B; .*pylog retain"):
        full.log("t").append(os.urandom(10_000))


@pytest.mark.slow
def test_a_change_of_a_log_that_frees_room_is_not_repeated_after_a_failed_sync(
    full: Store, disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the one of the sync, even if its number says that the disk is full."""
    syncs = 0

    def fail(path: str) -> None:
        nonlocal syncs
        syncs += 1
        raise pylog.SyncFailedError(f"cannot sync {path}: No space left on device", path=path, errno=errno.ENOSPC)

    end = full.log("t").end_offset
    full.tick()  # there is room now
    with monkeypatch.context() as patched:
        patched.setattr(disk, "sync_directory", fail)
        with pytest.raises(pylog.SyncFailedError):
            full.log("t").delete_records(before=end - 100)
    assert syncs == 1


# ---- a real file system ------------------------------------------------------------------------------------------------------

BEGIN = """
import gc, os, sys, pylog
root, action = sys.argv[1:]
os.chdir(root)

def fill_up():
    with open("others", "wb", buffering=0) as others:
        try:
            while others.write(bytes(4096)):
                pass
        except OSError:
            pass
    assert os.statvfs(".").f_bavail == 0, os.statvfs(".")

"""
FILL_AND_FREE = """
with pylog.open("store", durability=pylog.Durability.OS) as store:
    store.create_topic("t", segment_bytes=100_000, retention_bytes=300_000)
    store.create_topic("small")
    store.log("small").append(b"x")
    try:
        while True:
            store.log("t").append(os.urandom(1000))
    except pylog.StorageFailedError as error:
        assert "the topics hold t" in str(error), error
    gc.collect()  # the frames of the error hold files
    end = store.log("t").end_offset
    fill_up()
    free = {
        "tick": store.tick,
        "retain": lambda: store.retain("t"),
        "alter": lambda: (store.alter_topic("t", retention_bytes=100_000), store.tick()),
        "delete_records": lambda: store.log("t").delete_records(before=end - 100),
        "truncate": lambda: store.log("t").truncate(end=250),
        "delete_topic": lambda: store.delete_topic("t"),
        "close": lambda: None,
    }
    free[action]()
    if action != "close":
        assert os.statvfs(".").f_bavail * os.statvfs(".").f_bsize > 500_000, os.statvfs(".")
        assert store.log("small").append(b"y") == 1
with pylog.open("store") as again:
    assert again.verify().ok
    assert ("t" in again.topics()) == (action != "delete_topic")
    if action == "close":
        assert again.log("t").end_offset == end
        again.tick()
        assert again.log("t").append(b"more") == end
print("freed")
"""
MANY = """
name, count = "n" * 30, 5000
with pylog.open("store", durability=pylog.Durability.OS) as store:
    store.create_topic(name, partition_count=count, segment_bytes=100_000, retention_bytes=300_000)
told = "".join(f"{name} {number} 0\\n" for number in range(count))
for file in ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint"):
    with open(f"store/{file}", "w") as checkpoint:
        checkpoint.write(f"0\\n{count}\\n{told}")
with pylog.open("store", durability=pylog.Durability.OS) as store:
    log = store.log(name)
    try:
        while True:
            log.append(os.urandom(10_000))
    except pylog.StorageFailedError:
        pass
    end = log.end_offset
    fill_up()
    if action == "retain":  # another store does it, as `pylog retain`: this one closes, and the next one opens, without room
        store.close()
        store = pylog.open("store", durability=pylog.Durability.OS)
        log = store.log(name)
        assert log.end_offset == end
    free = {
        "delete_records": lambda: log.delete_records(before=end - 10),
        "retain": lambda: store.retain(name, 0),
        "truncate": lambda: log.truncate(end=50),
        "delete_topic": lambda: store.delete_topic(name),
    }
    free[action]()
    assert os.statvfs(".").f_bavail * os.statvfs(".").f_bsize > 1_000_000, os.statvfs(".")
    assert (name in store.topics()) == (action != "delete_topic")
    if action != "delete_topic":
        assert log.append(b"more") == log.end_offset - 1
    store.close()
print("freed")
"""
REFUSALS = ("Operation not permitted", "Permission denied", "No space left", "unshare failed", "must be superuser")


@pytest.mark.slow
@pytest.mark.parametrize("action", [*ACTIONS, "close"])
def test_a_real_file_system_of_4_mb_that_is_full_to_the_last_block_is_freed_or_the_kernel_refuses_to_make_one(
    tmp_path: Path, action: str, record_property: Callable[[str, object], None]
) -> None:
    _check_freed(tmp_path, "4m", FILL_AND_FREE, action, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("action", ["delete_records", "retain", "truncate", "delete_topic"])
def test_a_full_disk_is_freed_although_the_files_that_name_5000_partitions_have_to_be_written_first(
    tmp_path: Path, action: str, record_property: Callable[[str, object], None]
) -> None:
    _check_freed(tmp_path, "40m", MANY, action, record_property)


def _check_freed(tmp_path: Path, size: str, code: str, action: str, record: Callable[[str, object], None]) -> None:
    """Runs a program in a file system of its own; notes it if the kernel refuses to make one."""
    mount = f'mount -t tmpfs -o size={size} tmpfs "{tmp_path}"'
    asked = _run_unshared(mount)
    if asked is None or asked.returncode:
        reason = "there is no unshare" if asked is None else asked.stderr.strip()
        record("no small file system can be made here", reason)  # the tests above have a model of one
        assert asked is None or any(each in reason for each in REFUSALS), reason
        return
    program = tmp_path.with_name(f"{tmp_path.name}.py")
    program.write_text(BEGIN + code)
    done = _run_unshared(f'{mount} && exec "{sys.executable}" "{program}" "{tmp_path}" {action}')
    assert done is not None
    assert (done.returncode, done.stdout) == (0, "freed\n"), done.stderr


def _run_unshared(script: str) -> subprocess.CompletedProcess[str] | None:
    """Runs a script of the shell with mounts of its own; None where there is no command for that."""
    try:
        return subprocess.run(["unshare", "-rm", "sh", "-c", script], check=False, capture_output=True, text=True, timeout=300)
    except FileNotFoundError:
        return None
