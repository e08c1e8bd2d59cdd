"""Owners of transactions: bytes of `pylog.lock` that a process keeps locked as long as it lives (transactions 3.4).

The records of an open or prepared transaction name its owner's byte. Another process asks the system whether the byte is locked,
without taking it. The system releases the locks of a process that dies, and no byte is locked after a restart.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from pylog.directory.locks import ANONYMOUS_OWNERS, BOOTS, EVERYTHING, OWNERS, PYLOG_LOCK
from pylog.errors import StorageFailedError, StoreLockedError
from pylog.fs import FileSystem, LockByte, join

ANONYMOUS: Final = "pylog-anonymous-"  # with a number, the id of transactions without one


def lives_elsewhere(fs: FileSystem, root: str, byte: int) -> bool | None:
    """Returns whether an owner lives, for a store that is open for reading and has no lock file. Cost: three system calls.

    Args:
        fs, root: the directory's file system and path.
        byte: the owner's byte in the lock file.

    Returns:
        None if it cannot be found out: this user may not read the lock file, or an exclusive store holds all bytes.
    """
    path = join(root, PYLOG_LOCK)
    try:
        if BOOTS.fetch_start(fs, path, 1).data is None:
            return False  # no pylog has ever written here, or the directory is a copy without its locks
    except StorageFailedError:
        return None
    if byte not in OWNERS and byte not in ANONYMOUS_OWNERS:
        return False
    if fs.lock_owner(path, EVERYTHING, 1) is not None:
        return None
    return fs.lock_owner(path, byte, 1) is not None


class AnonymousOwner(NamedTuple):
    """The owner of transactions without an id: its byte, and the number of its place among these owners (transactions 2.6)."""

    byte: int
    number: int


class TransactionOwners:
    """The owners of one store, and a check of those of other stores. May be used by several threads.

    A store's own locks do not conflict with each other, so its own bytes are kept in memory. A byte is claimed there first, by
    one step of a dict, so that two threads do not take the same one.

    Args:
        lock_byte: gives a byte of the lock file; None if the store is exclusive, so that no other owner can be alive.

    >>> owners = TransactionOwners(lambda at: None)
    >>> byte = owners.take()
    >>> owners.is_alive(byte), owners.is_alive(byte - 1)
    (True, False)
    """

    def __init__(self, lock_byte: Callable[[int], LockByte | None]) -> None:
        self._lock_byte = lock_byte
        self._own: dict[int, object] = {}

    def take(self) -> int:
        """Returns a byte drawn at random, locked until `release` or until the store closes.

        Raises:
            ClosedError: the store is closed.
        """
        while True:  # another owner has a drawn byte once in 2^42 times
            byte = OWNERS.start + secrets.randbelow(len(OWNERS))
            if self._try_take(byte):
                return byte

    def take_anonymous(self) -> AnonymousOwner:
        """Returns the owner with the lowest number that is free. So there are only as many as run at the same time.

        Cost: 1 µs for each that is taken.

        Raises:
            ClosedError: the store is closed.
        """
        for number, byte in enumerate(ANONYMOUS_OWNERS):
            if self._try_take(byte):
                return AnonymousOwner(byte, number)
        raise StoreLockedError("all owners of transactions without an id are taken")  # 2^43 of them

    def _try_take(self, byte: int) -> bool:
        claim = object()
        if self._own.setdefault(byte, claim) is not claim:
            return False
        taken = False
        try:
            lock = self._lock_byte(byte)
            taken = lock is None or lock.try_take()
            return taken
        finally:
            if not taken:  # also after an error or an interrupt
                del self._own[byte]

    def release(self, byte: int) -> None:
        """Unlocks a byte: its transactions may now be ended by others. Does nothing if it is not this store's."""
        if byte not in self._own:
            return
        lock = self._lock_byte(byte)
        if lock is not None:
            lock.release()
        self._own.pop(byte, None)

    def is_own(self, byte: int) -> bool:
        """Returns whether this store has taken a byte."""
        return byte in self._own

    def is_alive(self, byte: int) -> bool:
        """Returns whether an owner lives: this store's, or one of another store, also in this process. Cost: 1 µs.

        A byte that no owner can have, as in a damaged record, has no owner. Others of these bytes are locked for other reasons.

        Raises:
            ClosedError: the store is closed.
        """
        if byte in self._own:
            return True
        if byte not in OWNERS and byte not in ANONYMOUS_OWNERS:
            return False
        lock = self._lock_byte(byte)
        return lock is not None and lock.is_held()
