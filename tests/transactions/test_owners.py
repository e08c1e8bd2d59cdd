"""Owners of transactions: a byte is locked while its process lives, and others see that without taking it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pylog
from pylog.directory.locks import ANONYMOUS_OWNERS, OWNERS
from pylog.errors import ClosedError
from pylog.fs import LockByte
from pylog.store import Store, manager_of
from pylog.testing import MemoryFileSystem
from pylog.transactions.owners import AnonymousOwner, TransactionOwners
from support import warm

TAKE = """
import sys, pylog
from pylog.store import manager_of
from pylog.transactions.owners import TransactionOwners
store = pylog.open(sys.argv[1])
owners = TransactionOwners(manager_of(store).locks.owner)
print(owners.take(), owners.take_anonymous().number, flush=True)
sys.stdin.read()
"""


def owners_of(store: Store) -> TransactionOwners:
    locks = manager_of(store).locks
    assert locks is not None
    return TransactionOwners(locks.owner)


@contextmanager
def another_process(path: Path) -> Iterator[tuple[warm.Started, int, int]]:
    """A process with an owner: its byte, and the number of its anonymous one."""
    with warm.Started(["-c", TAKE, path]) as process:
        byte, number = map(int, process.stdout.readline().split())
        yield process, byte, number


@pytest.mark.pair("crash", "second process")
def test_an_owner_lives_as_long_as_its_process(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store, another_process(tmp_path) as (process, byte, number):
        owners = owners_of(store)
        assert (owners.is_alive(byte), owners.is_own(byte), number) == (True, False, 0)
        assert owners.take_anonymous() == AnonymousOwner(ANONYMOUS_OWNERS.start + 1, 1)
        os.kill(process.pid, signal.SIGSTOP)  # a stopped process lives
        assert owners.is_alive(byte)
        process.kill()
        assert not owners.is_alive(byte)
        assert owners.take_anonymous().number == 0


@pytest.mark.parametrize("fs", ["real", "memory"])
def test_stores_see_each_others_owners_and_their_own(tmp_path: Path, fs: str) -> None:
    files = {"fs": MemoryFileSystem()} if fs == "memory" else {}
    path = "/data" if fs == "memory" else str(tmp_path)
    with pylog.open(path, **files) as store, pylog.open(path, **files) as other:
        mine, theirs = owners_of(store), owners_of(other)
        byte = mine.take()
        assert (mine.is_own(byte), theirs.is_own(byte)) == (True, False)
        assert mine.is_alive(byte)
        assert theirs.is_alive(byte)
        assert [mine.take_anonymous().number, theirs.take_anonymous().number, mine.take_anonymous().number] == [0, 1, 2]
        mine.release(byte)
        theirs.release(byte)  # not its own
        assert not mine.is_alive(byte)
        assert not theirs.is_alive(byte)
        kept = theirs.take()
        other.close()
        assert not mine.is_alive(kept)


def test_a_byte_that_is_locked_for_another_reason_is_no_living_owner(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store, pylog.open(tmp_path):  # which holds the byte 1
        owners = owners_of(store)
        for byte in (-1, 0, 1, 2, OWNERS.start - 1, ANONYMOUS_OWNERS.stop, 2**63 - 1):
            assert not owners.is_alive(byte)


def test_an_exclusive_store_has_the_only_living_owners(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        dead = owners_of(store).take()
    with pylog.open(tmp_path, exclusive=True) as store:
        owners = owners_of(store)
        byte = owners.take()
        assert (owners.is_alive(byte), owners.is_alive(dead)) == (True, False)
        assert (owners.take_anonymous().number, owners.take_anonymous().number) == (0, 1)


def test_a_closed_store_takes_no_owner(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        owners = owners_of(store)
    for call in (owners.take, owners.take_anonymous, lambda: owners.is_alive(OWNERS.start)):
        with pytest.raises(ClosedError):
            call()


def test_a_forked_child_keeps_no_owner_of_its_parent(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store, pylog.open(tmp_path) as other:
        owners, others = owners_of(store), owners_of(other)
        byte = owners.take()
        child = os.fork()
        if not child:
            signal.pause()
        try:
            assert others.is_alive(byte)
            owners.release(byte)
            assert not others.is_alive(byte)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_no_two_threads_take_one_anonymous_owner() -> None:
    class Taken:
        """A byte that this store can take any number of times, as the system lets it."""

        def __init__(self, at: int) -> None:
            self.at = at

        def try_take(self) -> bool:
            return True

        def release(self) -> None: ...

        def is_held(self) -> bool:
            return False

    def lock_byte(at: int) -> LockByte:
        return Taken(at)

    owners, found = TransactionOwners(lock_byte), []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda: found.extend([owners.take_anonymous().number for _ in range(50)])) for _ in "abcd"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(found) == list(range(200))
