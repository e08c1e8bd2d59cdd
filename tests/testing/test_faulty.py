"""The faulty file system fails the calls that it was told to, with what a real disk does beside the error."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from pylog.errors import InvalidArgumentError, StorageFailedError
from pylog.testing import FAULTS, FaultyFileSystem, MemoryFileSystem


def faulty() -> tuple[FaultyFileSystem, MemoryFileSystem, Any]:
    """A file system with a file `/a`, durable, and the file."""
    memory = MemoryFileSystem()
    fs = FaultyFileSystem(memory)
    file = fs.create("/a")
    file.write(memoryview(b"0123"), 0)
    file.sync()
    fs.sync_directory("/")
    return fs, memory, file


def call(kind: str, fs: FaultyFileSystem, file: Any) -> Callable[[], object]:
    """A call that a fault of that kind strikes, and that can be repeated."""
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: file.write(memoryview(b"wxyz"), 0),
        "sync": file.sync,
        "truncate": lambda: file.truncate(4),
        "read": lambda: file.read_into(memoryview(bytearray(1)), 0),
        "sync_directory": lambda: fs.sync_directory("/"),
        "create": lambda: fs.create("/new") if not fs.exists("/new") else None,
        "rename": lambda: fs.rename("/a", "/a"),
        "open": lambda: fs.open("/a").close(),
        "stat": lambda: fs.identity("/a"),
        "lock": lambda: fs.lock_owner("/a"),
        "remove": lambda: fs.remove("/new") if fs.exists("/new") else fs.remove("/a"),
    }
    return calls[FAULTS[kind].call]


@pytest.mark.parametrize("kind", FAULTS)
def test_the_call_fails_once_with_its_number(kind: str) -> None:
    fs, _, file = faulty()
    struck = call(kind, fs, file)
    fs.fail(kind)
    with pytest.raises(StorageFailedError) as caught:
        struck()
    assert caught.value.errno == FAULTS[kind].errno
    assert fs.fired == 1
    struck()
    assert fs.fired == 1


@pytest.mark.parametrize("kind", FAULTS)
def test_the_call_fails_until_it_is_healed(kind: str) -> None:
    fs, _, file = faulty()
    struck = call(kind, fs, file)
    fs.fail(kind, forever=True)
    for _ in range(3):
        with pytest.raises(StorageFailedError):
            struck()
    assert fs.fired == 3
    fs.heal()
    struck()


def test_the_nth_call_of_a_kind_is_the_one_that_fails() -> None:
    fs, _, file = faulty()
    fs.fail("write EIO", 3)
    results = []
    for number in range(5):
        file.sync()
        try:
            file.write(memoryview(b"%d" % number), number)
            results.append(True)
        except StorageFailedError:
            results.append(False)
    assert results == [True, True, False, True, True]


def test_only_calls_for_the_files_that_are_meant_count() -> None:
    fs, _, file = faulty()
    other = fs.create("/b.log")
    fs.fail("write EIO", 2, of=".log")
    for _ in range(3):
        file.write(memoryview(b"x"), 0)
    other.write(memoryview(b"x"), 0)
    with pytest.raises(StorageFailedError):
        other.write(memoryview(b"x"), 0)


def test_there_are_seventeen_kinds() -> None:
    assert len(FAULTS) == 17
    with pytest.raises(InvalidArgumentError, match="write ENOSPC"):
        faulty()[0].fail("write ESTALE")


def test_a_failed_write_leaves_nothing_and_a_short_one_its_first_half() -> None:
    for kind, wanted in (("write ENOSPC", b"0123"), ("short write ENOSPC", b"ab23")):
        fs, memory, file = faulty()
        fs.fail(kind)
        with pytest.raises(StorageFailedError):
            file.write(memoryview(b"abcd"), 0)
        assert memory.read("/a", 9) == wanted


def test_records_that_a_failed_sync_left_are_read_but_never_on_the_disk() -> None:
    fs, memory, file = faulty()
    file.write(memoryview(b"xx"), 0)
    fs.fail("sync EIO")
    with pytest.raises(StorageFailedError):
        file.sync()
    file.sync()
    assert fs.read("/a", 9) == b"xx23"
    assert memory.crash().read("/a", 9) == b"0123"


def test_all_ways_to_read_and_to_remove_and_to_create_count() -> None:
    fs, _, _ = faulty()
    ways: dict[str, list[Callable[[], object]]] = {
        "read EIO": [lambda: fs.read("/a", 9), lambda: fs.map("/a")],
        "remove EIO": [lambda: fs.remove("/a"), lambda: fs.remove_tree("/a")],
        "create ENOSPC": [lambda: fs.create("/b"), lambda: fs.make_directory("/b")],
    }
    for kind, calls in ways.items():
        for way in calls:
            fs.fail(kind)
            with pytest.raises(StorageFailedError) as caught:
                way()
            assert caught.value.errno in (errno.EIO, errno.ENOSPC)
            assert "for a test" in str(caught.value)
