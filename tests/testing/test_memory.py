"""The file system in memory: what a power loss leaves, processes that die, mapped files that nobody may cut."""

from __future__ import annotations

import gc

import pytest

import pylog
from pylog.clock import ManualClock
from pylog.errors import StorageFailedError, StoreLockedError
from pylog.testing import MappedFileError, MemoryFileSystem


def put(fs: MemoryFileSystem, path: str, data: bytes, *, sync: bool = False, sync_directory: bool = False) -> None:
    file = fs.open(path, write=True) if fs.exists(path) else fs.create(path)
    file.write(memoryview(data), 0)
    if sync:
        file.sync()
    if sync_directory:
        fs.sync_directory("/")


# ---- power -------------------------------------------------------------------------------------------------------------------


def test_a_power_loss_keeps_only_synced_bytes_under_synced_names() -> None:
    fs = MemoryFileSystem()
    put(fs, "/both", b"1", sync=True, sync_directory=True)
    put(fs, "/name only", b"2", sync_directory=True)
    put(fs, "/bytes only", b"3", sync=True)
    fs = fs.crash()
    assert [(entry.name, fs.read("/" + entry.name, 9)) for entry in fs.list("/")] == [("both", b"1"), ("name only", b"")]


def test_a_power_loss_takes_back_what_was_not_synced() -> None:
    fs = MemoryFileSystem()
    put(fs, "/a", b"old old old", sync=True, sync_directory=True)
    put(fs, "/a", b"new")
    file = fs.open("/a", write=True)
    file.truncate(5)
    assert fs.read("/a", 99) == b"new o"
    assert fs.crash().read("/a", 99) == b"old old old"


def test_a_sync_covers_writes_gaps_and_cuts() -> None:
    fs = MemoryFileSystem()
    put(fs, "/a", b"0123456789", sync=True, sync_directory=True)
    file = fs.open("/a", write=True)
    file.truncate(4)
    file.write(memoryview(b"x"), 8)
    file.write(memoryview(b"y"), 1)
    file.sync()
    assert fs.crash().read("/a", 99) == b"0y23\0\0\0\0x"


@pytest.mark.parametrize("step", ["rename", "remove"])
def test_changes_of_names_are_lost_until_the_directory_is_synced(step: str) -> None:
    fs = MemoryFileSystem()
    put(fs, "/a", b"1", sync=True, sync_directory=True)
    if step == "rename":
        fs.rename("/a", "/b")
    else:
        fs.remove("/a")
    before = fs.process()
    fs.sync_directory("/")
    assert [entry.name for entry in before.crash().list("/")] == (["b"] if step == "rename" else [])
    fs = MemoryFileSystem()
    put(fs, "/a", b"1", sync=True, sync_directory=True)
    fs.rename("/a", "/b") if step == "rename" else fs.remove("/a")
    assert fs.crash().read("/a", 9) == b"1"


def test_numbers_are_never_given_out_twice() -> None:
    fs = MemoryFileSystem()
    put(fs, "/a", b"1", sync=True)
    lost = fs.open("/a").identity()
    fs = fs.crash()
    put(fs, "/a", b"1")
    assert fs.open("/a").identity() != lost


def test_a_restart_is_another_boot_and_a_process_is_not() -> None:
    fs = MemoryFileSystem()
    assert fs.process().boot_id() == fs.boot_id()
    assert fs.crash().boot_id() != fs.boot_id()


def test_after_a_power_loss_no_process_goes_on() -> None:
    fs = MemoryFileSystem()
    put(fs, "/a", b"1")
    file, other = fs.open("/a"), fs.process()
    fs.crash()
    for call in (file.size, lambda: fs.exists("/a") and fs.open("/a"), lambda: other.list("/")):
        with pytest.raises(StorageFailedError):
            call()


def test_forgotten_writes_are_not_on_the_disk_whatever_later_syncs_say() -> None:
    """fsyncgate: a failed sync marks pages clean, so only what is written again gets to the disk."""
    fs = MemoryFileSystem()
    put(fs, "/a", b"aa", sync=True, sync_directory=True)
    file = fs.open("/a", write=True)
    file.write(memoryview(b"bb"), 0)
    file.forget_writes()
    file.write(memoryview(b"c"), 1)
    file.sync()
    assert fs.read("/a", 9) == b"bc"
    assert fs.crash().read("/a", 9) == b"ac"


def test_modification_times_are_the_clocks() -> None:
    clock = ManualClock(1000)
    fs = MemoryFileSystem(clock=clock)
    put(fs, "/a", b"1")
    clock.advance(5)
    put(fs, "/b", b"1")
    assert [entry.mtime_ms for entry in fs.list("/")] == [1000, 1005]


# ---- processes ---------------------------------------------------------------------------------------------------------------


def test_a_killed_process_leaves_its_bytes_and_none_of_its_locks() -> None:
    fs = MemoryFileSystem()
    put(fs, "/a", b"1")
    held, other = fs.open_locks("/lock"), fs.process()
    assert held.try_lock(0, 0, exclusive=True)
    waiting = other.open_locks("/lock")
    assert not waiting.try_lock(0, 1, exclusive=False)
    fs.kill()
    assert waiting.try_lock(0, 1, exclusive=True)
    assert other.read("/a", 9) == b"1"
    for call in (lambda: fs.list("/"), lambda: held.try_lock(0, 1, exclusive=False)):
        with pytest.raises(StorageFailedError):
            call()


def test_a_store_that_is_open_exclusively_keeps_other_processes_out() -> None:
    fs = MemoryFileSystem()
    pylog.open("/s", fs=fs, exclusive=True)
    with pytest.raises(StoreLockedError):
        pylog.open("/s", fs=fs.process(), lock_timeout_ms=0)
    fs.kill()
    with pylog.open("/s", fs=fs.process(), exclusive=True) as store:
        assert store.topics() == {}


# ---- mappings ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_mapped_file_is_not_cut_while_a_view_lives() -> None:
    fs = MemoryFileSystem()
    put(fs, "/a", b"0123456789")
    file, view = fs.open("/a", write=True), fs.map("/a")[2:4]
    with pytest.raises(MappedFileError, match="10 of its bytes are mapped"):
        file.truncate(9)
    file.truncate(20)
    del view
    file.truncate(3)
    assert fs.read("/a", 99) == b"012"


@pytest.mark.slow
def test_mapped_bytes_are_not_changed_and_others_may_be() -> None:
    fs = MemoryFileSystem()
    put(fs, "/a", b"0123")
    file, view = fs.open("/a", write=True), fs.map("/a")
    with pytest.raises(MappedFileError, match="changed"):
        file.write(memoryview(b"x"), 1)
    file.write(memoryview(b"1"), 1)
    file.write(memoryview(b"456"), 4)
    assert view.tobytes() == b"0123"


@pytest.mark.slow
def test_a_view_that_only_garbage_keeps_or_a_dead_process_had_does_not_count() -> None:
    fs = MemoryFileSystem()
    put(fs, "/a", b"0123")
    other = fs.process()
    kept = other.map("/a")
    garbage: list[object] = [fs.map("/a")]
    garbage.append(garbage)
    gc.disable()
    try:
        del garbage
        other.kill()
        fs.open("/a", write=True).truncate(0)
    finally:
        gc.enable()
    assert kept.tobytes() == b"0123"
