"""Every file system keeps the same contract: the system's own, the one in memory, the recording and the faulty ones."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pylog.errors import ClosedError, NotALogDirectoryError, PylogError, StorageFailedError
from pylog.fs import FileSystem, OsFileSystem, join
from pylog.fs.door import Door
from pylog.testing import FaultyFileSystem, MemoryFileSystem, RecordingFileSystem

Here = tuple[Any, str]  # a file system, and a directory in it that is empty


def in_memory(fs: Any, _: Path) -> Here:
    fs.make_directory("/d")
    return fs, "/d"


KINDS: dict[str, Callable[[Path], Here]] = {
    "system": lambda path: (OsFileSystem(), str(path)),
    "memory": lambda path: in_memory(MemoryFileSystem(), path),
    "recording": lambda path: in_memory(RecordingFileSystem(), path),
    "faulty": lambda path: in_memory(FaultyFileSystem(MemoryFileSystem()), path),
    "faulty over system": lambda path: (FaultyFileSystem(OsFileSystem()), str(path)),
}


@pytest.fixture(params=KINDS)
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Here:
    return KINDS[request.param](tmp_path)


def written(here: Here, name: str, data: bytes) -> str:
    fs, directory = here
    path = join(directory, name)
    file = fs.create(path)
    file.write(memoryview(data), 0)
    file.close()
    return path


def content(here: Here, name: str) -> bytes | None:
    return here[0].read(join(here[1], name), 1 << 20)


def fails(number: int | set[int], call: Callable[[], object]) -> None:
    with pytest.raises(StorageFailedError) as caught:
        call()
    assert caught.value.errno in ({number} if isinstance(number, int) else number)


# ---- files -------------------------------------------------------------------------------------------------------------------


def test_written_bytes_are_read_from_any_position(here: Here) -> None:
    path = written(here, "a", b"0123456789")
    file = here[0].open(path)
    for position, size, wanted in ((0, 10, b"0123456789"), (3, 4, b"3456"), (8, 5, b"89"), (10, 3, b""), (50, 1, b"")):
        buffer = bytearray(size)
        assert file.read_into(memoryview(buffer), position) == len(wanted)
        assert buffer[: len(wanted)] == wanted
        assert file.read(size, position) == wanted
    assert (file.size(), file.path) == (10, path)


def test_a_gap_before_a_write_is_zeros(here: Here) -> None:
    path = written(here, "a", b"ab")
    file = here[0].open(path, write=True)
    file.write(memoryview(b"z"), 5)
    file.write(memoryview(b"B"), 1)
    assert content(here, "a") == b"aB\0\0\0z"


def test_a_file_is_cut_and_lengthened(here: Here) -> None:
    path = written(here, "a", b"abcdef")
    file = here[0].open(path, write=True)
    file.truncate(2)
    assert content(here, "a") == b"ab"
    file.truncate(4)
    assert content(here, "a") == b"ab\0\0"


def test_two_openings_of_a_file_see_the_same_bytes_and_the_same_identity(here: Here) -> None:
    path = written(here, "a", b"1")
    one, other = here[0].open(path, write=True), here[0].open(path)
    one.write(memoryview(b"2"), 0)
    buffer = bytearray(1)
    other.read_into(memoryview(buffer), 0)
    assert buffer == b"2"
    assert one.identity() == other.identity()
    written(here, "b", b"1")
    assert here[0].open(join(here[1], "b")).identity() != one.identity()


def test_a_file_open_for_reading_takes_no_writes(here: Here) -> None:
    file = here[0].open(written(here, "a", b"1"))
    fails(errno.EBADF, lambda: file.write(memoryview(b"2"), 0))
    fails({errno.EBADF, errno.EINVAL}, lambda: file.truncate(0))
    assert content(here, "a") == b"1"


def test_a_closed_file_is_of_no_use(here: Here) -> None:
    file = here[0].open(written(here, "a", b"1"))
    file.close()
    file.close()
    fails(errno.EBADF, file.size)
    fails(errno.EBADF, lambda: file.read_into(memoryview(bytearray(1)), 0))
    fails(errno.EBADF, lambda: file.read(1, 0))


def test_a_mapping_shows_the_whole_file_and_cannot_be_written(here: Here) -> None:
    view = here[0].map(written(here, "a", b"mapped"))
    assert view.tobytes() == b"mapped"
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    assert here[0].map(written(here, "empty", b"")).size == 0


def test_a_mapping_outlives_its_name(here: Here) -> None:
    path = written(here, "a", b"mapped")
    view = here[0].map(path)
    here[0].remove(path)
    assert view.tobytes() == b"mapped"


def test_a_small_file_is_read_whole_up_to_a_limit(here: Here) -> None:
    path = written(here, "a", b"12345")
    assert here[0].read(path, 5) == b"12345"
    with pytest.raises(StorageFailedError, match=r"limit (of 4 bytes|for a file of this kind is 4)"):
        here[0].read(path, 4)
    assert here[0].read(join(here[1], "none"), 4) is None


# ---- names -------------------------------------------------------------------------------------------------------------------


def test_a_directory_lists_its_names_in_order_with_what_they_are(here: Here) -> None:
    fs, directory = here
    for name in ("b", "a.log", "A"):
        written(here, name, name.encode())
    fs.make_directory(join(directory, "c"))
    entries = [(entry.name, entry.is_directory, entry.is_file) for entry in fs.list(directory)]
    assert entries == [("A", False, True), ("a.log", False, True), ("b", False, True), ("c", True, False)]
    assert [entry.size for entry in fs.list(directory) if entry.is_file] == [1, 5, 1]


def test_a_new_file_must_not_exist(here: Here) -> None:
    path = written(here, "a", b"kept")
    fails(errno.EEXIST, lambda: here[0].create(path))
    fails(errno.EEXIST, lambda: here[0].make_directory(path))
    assert content(here, "a") == b"kept"


def test_missing_files_are_reported_with_number_and_path(here: Here) -> None:
    fs, directory = here
    path = join(directory, "none")
    calls = [fs.open, fs.map, fs.list, fs.remove, fs.remove_tree, fs.sync_directory, lambda name: fs.rename(name, path + "2")]
    for call in calls:
        with pytest.raises(StorageFailedError) as caught:
            call(path)
        assert (caught.value.errno, caught.value.path) == (errno.ENOENT, path)
    fails(errno.ENOENT, lambda: fs.create(join(path, "a")))
    fails(errno.ENOENT, lambda: fs.make_directory(join(path, "a")))
    assert not fs.exists(path)


def test_a_file_is_no_directory_and_a_directory_no_file(here: Here) -> None:
    fs, directory = here
    path = written(here, "a", b"1")
    fs.make_directory(join(directory, "d"))
    fails(errno.ENOTDIR, lambda: fs.list(path))
    fails(errno.ENOTDIR, lambda: fs.create(join(path, "x")))
    fails(errno.ENOTDIR, lambda: fs.sync_directory(path))
    fails({errno.EISDIR, errno.EPERM}, lambda: fs.remove(join(directory, "d")))
    fails({errno.EINVAL, errno.EISDIR}, lambda: fs.open(join(directory, "d")))
    assert not fs.exists(join(path, "x"))


def test_a_rename_replaces_its_target_and_keeps_the_file(here: Here) -> None:
    fs, directory = here
    old, new = written(here, "a", b"new"), written(here, "b", b"old")
    identity = fs.open(old).identity()
    fs.rename(old, new)
    assert [entry.name for entry in fs.list(directory)] == ["b"]
    assert content(here, "b") == b"new"
    assert fs.open(new).identity() == identity


def test_a_rename_onto_itself_changes_nothing(here: Here) -> None:
    path = written(here, "a", b"1")
    here[0].rename(path, path)
    assert content(here, "a") == b"1"


def test_a_directory_is_renamed_with_its_content_but_not_over_something(here: Here) -> None:
    fs, directory = here
    source, target = join(directory, "s"), join(directory, "t")
    fs.make_directory(source)
    fs.make_directory(target)
    written((fs, source), "a", b"1")
    written((fs, target), "b", b"2")
    fails({errno.ENOTEMPTY, errno.EEXIST}, lambda: fs.rename(source, target))
    fails(errno.ENOTDIR, lambda: fs.rename(source, join(target, "b")))
    fails(errno.EISDIR, lambda: fs.rename(join(target, "b"), source))
    fails(errno.EINVAL, lambda: fs.rename(source, join(source, "inside")))
    fs.remove(join(target, "b"))
    fs.rename(source, target)
    assert fs.read(join(target, "a"), 10) == b"1"
    assert not fs.exists(source)


def test_a_tree_is_removed_with_all_that_is_in_it(here: Here) -> None:
    fs, directory = here
    for path in ("x", "x/y"):
        fs.make_directory(join(directory, path))
        written((fs, join(directory, path)), "a", b"1")
    fs.remove_tree(join(directory, "x"))
    assert fs.list(directory) == []
    fails(errno.ENOTDIR, lambda: fs.remove_tree(written(here, "a", b"1")))


def test_syncing_is_allowed_at_any_time(here: Here) -> None:
    fs, directory = here
    path = written(here, "a", b"1")
    fs.open(path).sync()
    fs.sync_directory(directory)
    assert content(here, "a") == b"1"


def test_bytes_can_be_sent_to_the_disk_early_and_the_sender_never_gets_a_failure(here: Here) -> None:
    """The sync tells: what is only a hint must not take the error from it, nor fail for a file that a thread has closed."""
    file = here[0].open(written(here, "f", b"abcdef"), write=True)
    file.write_back(0, 6)
    file.write_back(4, 1 << 40)
    assert content(here, "f") == b"abcdef"
    file.sync()
    file.close()
    file.write_back(0, 6)


def test_only_a_directory_can_be_used_as_one(here: Here) -> None:
    fs, directory = here
    fs.check_directory(directory, write=True)
    for path in (join(directory, "none"), written(here, "a", b"")):
        with pytest.raises(NotALogDirectoryError):
            fs.check_directory(path, write=False)


# ---- locks -------------------------------------------------------------------------------------------------------------------


def test_locks_of_two_openings_conflict_where_they_overlap(here: Here) -> None:
    fs, directory = here
    one, other = (fs.open_locks(join(directory, "lock")) for _ in range(2))
    assert one.try_lock(2, 4, exclusive=True)
    assert not other.try_lock(5, 1, exclusive=False)
    assert not other.try_lock(0, 0, exclusive=True)
    assert other.try_lock(6, 10, exclusive=True)
    assert other.try_lock(0, 2, exclusive=False)
    assert not one.try_lock(0, 0, exclusive=False)
    assert one.try_lock(0, 1, exclusive=False)
    other.close()
    assert one.try_lock(0, 0, exclusive=True)
    one.close()


def test_a_held_range_is_changed_and_let_go_of_in_parts(here: Here) -> None:
    fs, directory = here
    one, other = (fs.open_locks(join(directory, "lock")) for _ in range(2))
    assert one.try_lock(0, 10, exclusive=True)
    assert one.try_lock(3, 2, exclusive=False)
    one.unlock(8, 0)
    results = [other.try_lock(at, 1, exclusive=False) for at in range(10)]
    assert results == [False] * 3 + [True] * 2 + [False] * 3 + [True] * 2
    assert not one.try_lock(3, 1, exclusive=True)
    one.close()
    other.close()


def test_a_lock_file_knows_whether_its_name_still_leads_to_it(here: Here) -> None:
    fs, directory = here
    path = join(directory, "lock")
    old = fs.open_locks(path)
    assert old.is_current()
    fs.remove(path)
    assert not old.is_current()
    new = fs.open_locks(path)
    assert new.is_current()
    assert old.try_lock(0, 0, exclusive=True)
    assert new.try_lock(0, 0, exclusive=True)
    old.close()
    new.close()


def test_a_held_lock_is_noticed(here: Here) -> None:
    fs, directory = here
    path = join(directory, "lock")
    assert fs.lock_owner(path) is None
    file = fs.open_locks(path)
    assert fs.lock_owner(path) is None
    assert file.try_lock(0, 1, exclusive=False)
    assert fs.lock_owner(path) == 0
    file.close()
    assert fs.lock_owner(path) is None


def test_errors_are_of_pylogs_hierarchy(here: Here) -> None:
    fs, directory = here
    for call in (fs.open, fs.list, fs.remove, lambda path: fs.check_directory(path, write=True)):
        with pytest.raises(PylogError):
            call(join(directory, "none"))
    assert isinstance(fs.boot_id(), bytes)
    assert os.sep == "/"


def test_a_store_reaches_each_call_of_a_file_system_through_its_door() -> None:
    """The door that a store shuts at its end stands before every call, also before those that are added."""
    calls = {name for name in vars(FileSystem) if not name.startswith("_")}
    assert calls <= set(dir(Door))


def test_a_shut_door_closes_the_files_that_were_opened_for_reading(tmp_path: Path) -> None:
    """A method that somebody kept reads nothing either: its descriptor may be another file's by then."""
    (tmp_path / "a").write_bytes(b"12345")
    door = Door(OsFileSystem(), str(tmp_path))
    file = door.open(str(tmp_path / "a"))
    kept = file.read
    assert kept(5, 0) == file.read(5, 0) == b"12345"
    door.shut()
    for use in (lambda: file.read(5, 0), lambda: file.read_into(memoryview(bytearray(5)), 0), file.size, file.identity):
        with pytest.raises(ClosedError):
            use()
    with pytest.raises(StorageFailedError):
        kept(5, 0)
