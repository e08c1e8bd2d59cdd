"""A file that is closed while a call of another thread uses it: the call fails, and meets no other file under its number."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.fs import Door, OsFileSystem
from pylog.fs.descriptors import Nowhere
from pylog.fs.locks import OsDirectoryLock, OsLockFile, directory_lock
from pylog.fs.system import OsFile

CALLS: dict[str, Callable[[OsFile], object]] = {
    "read": lambda file: file.read(5, 0),
    "read_into": lambda file: file.read_into(memoryview(bytearray(5)), 0),
    "write": lambda file: file.write(memoryview(b"theirs"), 0),
    "size": lambda file: file.size(),
    "identity": lambda file: file.identity(),
    "truncate": lambda file: file.truncate(0),
    "sync": lambda file: file.sync(),
    "set_mtime": lambda file: file.set_mtime(1000),
}
SYSTEM_CALLS = ("pread", "preadv", "pwrite", "lseek", "fstat", "ftruncate", "fdatasync", "utime")


@contextlib.contextmanager
def closed_as_the_system_is_called(close: Callable[[], object], patch: pytest.MonkeyPatch, module: Any, names: Any) -> Any:
    """Closes a file after a call has read its number, and before it makes its system call."""
    with patch.context() as patched:
        for name in names:

            def instead(*given: Any, name: str = name, **named: Any) -> Any:
                patched.undo()
                close()
                return getattr(module, name)(*given, **named)

            patched.setattr(module, name, instead)
        yield


@pytest.mark.parametrize("name", CALLS)
def test_a_call_on_a_file_that_is_closed_meanwhile_fails_and_meets_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fs = OsFileSystem()
    (tmp_path / "other").write_bytes(b"other")
    file = fs.create(str(tmp_path / "file"))
    number = file.descriptor
    others: list[OsFile] = []

    def close() -> None:
        file.close()
        others.append(fs.open(str(tmp_path / "other"), write=True))  # gets the lowest free number

    with closed_as_the_system_is_called(close, monkeypatch, os, SYSTEM_CALLS), pytest.raises(pylog.StorageFailedError) as told:
        CALLS[name](file)
    assert told.value.errno in (errno.EBADF, errno.EINVAL)
    assert "Bad file" not in str(told.value)
    assert others[0].descriptor != number
    assert (tmp_path / "other").read_bytes() == b"other"


@pytest.fixture
def without_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without O_PATH, as macOS."""
    monkeypatch.setattr("pylog.fs.descriptors._nowhere", Nowhere(0))


@pytest.mark.usefixtures("without_paths")
@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"set_mtime"}))  # which changes a pipe's time
def test_where_no_descriptor_is_of_a_path_only_a_call_on_a_closed_file_meets_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    test_a_call_on_a_file_that_is_closed_meanwhile_fails_and_meets_no_other_file(tmp_path, monkeypatch, name)


@pytest.mark.usefixtures("without_paths")
@pytest.mark.parametrize("name", ["try_lock", "take", "is_current", "give_room", "keep_room"])
def test_where_no_descriptor_is_of_a_path_only_a_closed_lock_file_locks_and_cuts_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    test_a_lock_file_that_is_closed_says_so_and_no_other_file_is_locked_or_cut(tmp_path, monkeypatch, name, meanwhile=True)


@pytest.mark.usefixtures("without_paths")
def test_where_no_descriptor_is_of_a_path_only_the_lock_of_a_directory_that_is_closed_meanwhile_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = directory_lock(str(tmp_path))
    assert isinstance(lock, OsDirectoryLock)
    with closed_as_the_system_is_called(lock.close, monkeypatch, fcntl, ("flock",)), pytest.raises(pylog.ClosedError):
        lock.try_lock(exclusive=True)


@pytest.mark.parametrize("path_only", [getattr(os, "O_PATH", 0), 0], ids=["a path", "a pipe"])
def test_the_descriptor_that_leads_nowhere_is_opened_again_after_a_program_has_closed_all(path_only: int) -> None:
    nowhere, (other, writing) = Nowhere(path_only), os.pipe()
    os.dup2(other, nowhere.descriptor)  # closed, and another file has the number
    assert nowhere.lead(writing)
    with pytest.raises(OSError, match=r"Bad file descriptor|Illegal seek"):
        os.pread(writing, 1, 0)
    os.dup2(other, writing)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(nowhere.descriptor, b"x")
    for number in (other, writing, nowhere.descriptor):
        os.close(number)


def test_the_number_of_a_closed_file_is_free_when_no_call_uses_the_file(tmp_path: Path) -> None:
    fs = OsFileSystem()
    (tmp_path / "file").write_bytes(b"x")
    file = fs.open(str(tmp_path / "file"))
    number, used_elsewhere = file.descriptor, [file]
    file.close()
    file.close()
    os.fstat(number)
    del file, used_elsewhere
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(number)


@pytest.mark.parametrize("door", [False, True], ids=["a file", "a file of a store"])
def test_a_file_that_no_other_call_uses_frees_its_number_at_once(tmp_path: Path, door: bool) -> None:
    (tmp_path / "file").write_bytes(b"x")
    fs: Any = Door(OsFileSystem(), str(tmp_path)) if door else OsFileSystem()
    file = fs.open(str(tmp_path / "file"))
    number = (file._file if door else file).descriptor
    file.close()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(number)
    with pytest.raises(pylog.StorageFailedError, match="it is closed"):
        file.read(1, 0)
    file.close()


def test_the_number_of_a_closed_file_stays_taken_also_if_no_descriptor_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsFileSystem().create(str(tmp_path / "file"))
    number, used_elsewhere = file.descriptor, [file]

    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", none_left)
        file.close()
    os.fstat(number)
    with pytest.raises(OSError, match=r"Bad file|Illegal seek"):
        os.pread(number, 1, 0)
    del file, used_elsewhere
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(number)


LOCK_CALLS: dict[str, Callable[[OsLockFile], object]] = {
    "try_lock": lambda file: file.try_lock(0, 1, exclusive=True),
    "unlock": lambda file: file.unlock(0, 1),
    "is_locked": lambda file: file.is_locked(0, 1),
    "is_current": lambda file: file.is_current(),
    "take": lambda file: file.byte(0).try_take(),
    "give_room": lambda file: file.give_room(0),
    "keep_room": lambda file: file.keep_room(100),
}


@pytest.mark.parametrize("meanwhile", [False, True], ids=["before", "meanwhile"])
@pytest.mark.parametrize("name", LOCK_CALLS)
def test_a_lock_file_that_is_closed_says_so_and_no_other_file_is_locked_or_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, meanwhile: bool
) -> None:
    file, path = OsLockFile(str(tmp_path / "locks")), tmp_path / "other"
    path.write_bytes(b"other")
    others: list[OsLockFile] = []

    def close() -> None:
        file.close()
        others.append(OsLockFile(str(path)))

    expected = contextlib.nullcontext() if name.endswith("room") else pytest.raises(pylog.ClosedError)
    module = os if name.endswith("room") or name == "is_current" else fcntl
    names = ("ftruncate", "lseek", "fstat") if module is os else ("fcntl",)
    if not meanwhile:
        close()
    with closed_as_the_system_is_called(close, monkeypatch, module, names) if meanwhile else contextlib.nullcontext(), expected:
        LOCK_CALLS[name](file)
    assert path.read_bytes() == b"other"
    assert OsLockFile(str(path)).try_lock(0, 0, exclusive=True)


def test_a_directory_lock_that_is_closed_says_so(tmp_path: Path) -> None:
    lock = directory_lock(str(tmp_path))
    assert isinstance(lock, OsDirectoryLock)
    lock.close()
    with pytest.raises(pylog.ClosedError, match="open the store again"):
        lock.try_lock(exclusive=True)
