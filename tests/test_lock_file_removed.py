"""Lock files that are removed under their holder, as by `rsync --delete`, `git clean` or a cleaner: nobody else gets in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pylog
from pylog.directory.locks import KAFKA_LOCK, PYLOG_LOCK
from pylog.fs import OsFileSystem
from pylog.store import manager_of

OPEN = """
import sys, pylog
try:
    pylog.open(sys.argv[1], exclusive=sys.argv[2] == "exclusive").close()
    print("open")
except pylog.StoreLockedError:
    print("locked")
"""
REMOVED = [(PYLOG_LOCK,), (KAFKA_LOCK,), (PYLOG_LOCK, KAFKA_LOCK)]


def another(path: Path, how: str) -> str:
    command = [sys.executable, "-c", OPEN, str(path), how]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def remove(path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (path / name).unlink()


@pytest.mark.slow
@pytest.mark.pair("close", "second process")
@pytest.mark.parametrize("names", REMOVED)
@pytest.mark.parametrize(("first", "second"), [("exclusive", "shared"), ("exclusive", "exclusive"), ("shared", "exclusive")])
def test_no_second_writer_is_let_in_that_the_lock_files_would_have_kept_out(
    tmp_path: Path, names: tuple[str, ...], first: str, second: str
) -> None:
    with pylog.open(tmp_path, exclusive=first == "exclusive"):
        remove(tmp_path, names)
        assert another(tmp_path, second) == "locked"
        assert another(tmp_path, second) == "locked"
    assert another(tmp_path, second) == "open"


def test_a_second_writer_that_could_not_take_turns_is_refused(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        remove(tmp_path, (PYLOG_LOCK,))
        with pytest.raises(pylog.StoreLockedError, match="was removed"):
            pylog.open(tmp_path, lock_timeout_ms=100)
        assert store.log("t").append(b"x") == 0
    pylog.open(tmp_path).close()


def test_writers_that_share_the_same_lock_file_still_take_turns_without_the_brokers_lock_file(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        remove(tmp_path, (KAFKA_LOCK,))
        with pylog.open(tmp_path) as other:
            assert other.log("t").append(b"theirs") == 0
            assert store.log("t").append(b"ours") == 1
            assert not manager_of(store).locks.alone()  # type: ignore[union-attr]


def test_a_removed_brokers_lock_file_is_made_again_and_held(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        remove(tmp_path, (KAFKA_LOCK,))
        store.log("t").append(b"x")
        assert OsFileSystem().lock_owner(str(tmp_path / KAFKA_LOCK)) is not None


def test_a_broker_that_started_meanwhile_ends_the_writing(tmp_path: Path) -> None:
    with pylog.open(tmp_path, lock_timeout_ms=200) as store:
        store.create_topic("t")
        store.log("t").append(b"x")
        remove(tmp_path, (KAFKA_LOCK,))
        broker = OsFileSystem().open_locks(str(tmp_path / KAFKA_LOCK))
        assert broker.try_lock(0, 0, exclusive=True)
        with pytest.raises(pylog.StoreLockedError, match="broker"):
            store.tick()
        broker.close()


def test_a_file_system_without_locks_on_directories_falls_back_to_the_brokers_lock(tmp_path: Path) -> None:
    class Without(OsFileSystem):
        def lock_directory(self, path: str) -> None:  # type: ignore[override]
            """As NFS."""

    with pylog.open(tmp_path, fs=Without()):
        with pylog.open(tmp_path, fs=Without()):
            pass
        remove(tmp_path, (PYLOG_LOCK,))
        with pytest.raises(pylog.StoreLockedError):
            pylog.open(tmp_path, fs=Without(), lock_timeout_ms=100)
    pylog.open(tmp_path, fs=Without(), exclusive=True).close()


@pytest.mark.slow
def test_a_forked_child_keeps_no_lock_of_its_parents_directory(tmp_path: Path) -> None:
    store = pylog.open(tmp_path, exclusive=True)
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    store.close()
    assert another(tmp_path, "exclusive") == "open"
    os.write(go[1], b"x")
    os.waitpid(child, 0)
