"""The locks of a store that writes: against brokers, against another machine, between processes and threads (reliability 10).

`.lock` is Kafka's. pylog holds it shared, so a broker cannot start and other pylog processes can. All other locks are bytes of
`pylog.lock`, which is never deleted: one for the root's files, one that every writing store holds (with `exclusive`, all bytes),
four for each partition and one for each streaming query, chosen by hashes of names, and one for each owner of transactions. Each
byte except those of owners also has a mutex, because threads share the descriptor.

Locks do not expire; waiting for one does. No thread holds the locks of two partitions. The lock of a streaming query is
outermost, the root's is innermost, and no user code runs under any of them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from pylog import limits
from pylog.clock import Clock
from pylog.directory.byte_lock import LONGEST_NAP_S, ByteLock
from pylog.errors import NO_ROOM, PylogError, StorageFailedError, StoreLockedError
from pylog.fs import NAMES_ONLY, DirectoryLock, File, FileKind, FileSystem, LockByte, LockFile, at_most, join

KAFKA_LOCK: Final = ".lock"
PYLOG_LOCK: Final = "pylog.lock"
_ROOT: Final = 0
_PRESENCE: Final = 1
_PARTITIONS: Final = 2
OWNERS: Final = range(1 << 42, 1 << 43)  # of transactions: bytes drawn at random (transactions 3.4)
ANONYMOUS_OWNERS: Final = range(1 << 43, 1 << 44)  # of transactions without an id: the lowest free byte
EVERYTHING: Final = 1 << 60  # a byte that is locked only by a store that holds all bytes
_BYTES: Final = 1 << 40  # partition locks. Two partitions with the same byte only wait for each other.
_LINE_BYTES: Final = 160  # of the reserve for each partition, besides its name
_OPENING_S: Final = 1.0  # the longest time between the locks that a process takes as it opens a store
_QUEUES: Final = 1 << 50  # distance of the byte that the next waiting process holds; see `byte_lock`


def _boot_id(data: bytes, _path: str) -> bytes:
    return data


BOOTS: Final = FileKind("a lock file", _boot_id, at_most(limits.MAX_BOOT_ID_BYTES), "remove it while no process uses the store")


def held_by_me(lock: threading.RLock) -> bool:
    """Returns whether this thread holds a lock. An interrupted `acquire` may have taken it without returning."""
    return bool(lock._is_owned())  # type: ignore[attr-defined]


def run_locked(lock: threading.RLock, action: Callable[..., None], *given: Any, wait: bool, timeout: float = -1) -> bool:
    """Runs an action under a lock. Without `wait`, only if this thread holds the lock or it is free. Interrupts release it."""
    if held_by_me(lock):
        action(*given)
        return True
    taken: list[bool] = []
    try:
        taken.extend(map(lock.acquire, (wait,), (timeout,)))  # one step: an interrupt cannot come between taking and noting it
        if taken[0]:
            action(*given)
        return taken[0]
    finally:  # release first: an interrupt may follow any other call
        if taken and taken[0]:
            lock.release()


def _reserve_for(names: Iterable[str]) -> int:
    """Returns the bytes to keep for calls that free room in a directory with these names.

    The catalog has a partition's name twice while it is deleted, with 60 characters more, and a checkpoint has it once. There is
    no bound: a partition's directory takes many times as much of the disk.
    """
    return max(limits.RESERVE_BYTES, limits.RESERVE_BYTES // 2 + sum(4 * len(name) + _LINE_BYTES for name in names))


def _is_shared(file: LockFile) -> bool:
    """Takes a lock file, shared. Returns False if it is locked, or has lost its name."""
    return file.try_lock(0, 0, exclusive=False) and file.is_current()


class StoreLocks:
    """All locks of one store.

    Args:
        fs, root: the log directory.
        clock: for waiting.
        exclusive: true to keep every other writer out until `close`; no further locks are then taken.
        timeout_ms: milliseconds to wait for a lock that another process holds.

    Attributes:
        root: the lock of the files in the log directory itself.
        was_alone: true if no other process had the directory open for writing when this one opened it.

    Raises:
        StoreLockedError: a broker, a pylog process on another machine, or an exclusive store has the directory open for writing.
    """

    def __init__(self, fs: FileSystem, root: str, clock: Clock, *, exclusive: bool, timeout_ms: int) -> None:
        self._fs = fs
        self._root = root
        self._clock = clock
        self._guard = threading.Lock()
        # each as long as a log or a `with` statement uses it, so that no lock outlives a deleted topic
        self._bytes: WeakValueDictionary[int, ByteLock] = WeakValueDictionary()
        self._exclusive = exclusive
        self._timeout = timeout_ms / 1000
        self.was_alone = self._lacks_boot_id = self._lacks_room = False
        self._reserve = 0
        self._is_alone = 0  # how many calls rely on it that no other process can open the directory
        self._directory = fs.lock_directory(root)
        self._file: LockFile | None = None
        self._kafka: LockFile | None = None
        try:
            self._kafka = self._lock_out_brokers(self._is_kept_out)
            self._enter()
            self.root = self._lock_of(_ROOT, root)
            self.keep_room()
        except BaseException:
            self.close()
            raise

    # ---- the reserve of a full disk ------------------------------------------------------------------------------------------

    def keep_room(self) -> None:
        """Keeps some blocks of the disk in `pylog.lock`, after the boot id, as far as there is room.

        They grow with the files that name all partitions: a checkpoint or the catalog is written before the old one is removed.
        Cost: one listing of the directory.
        """
        if self._lacks_boot_id:
            self._write_boot_id()
        self._reserve = _reserve_for(entry.name for entry in self._fs.list(self._root, sizes=NAMES_ONLY))
        self._lacks_room = True
        self.complete_room()

    def complete_room(self) -> None:
        """Takes the rest of these blocks if the disk had no room for them before. Cost: two system calls, or none."""
        if self._lacks_room and self._file is not None:
            self._lacks_room = not self._file.keep_room(self._reserve)

    def give_room(self) -> None:
        """Gives these blocks back to the file system, until `keep_room`."""
        self._lacks_room = False  # another thread must not take them meanwhile
        if self._file is not None:
            self._file.give_room(limits.MAX_BOOT_ID_BYTES)

    # ---- pylog's lock --------------------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        """Takes this store's place among the writers of the directory.

        The bytes of `pylog.lock` exclude each other only if all writers have the same file open, and a file can be removed.
        The directory's own lock cannot be removed. So if that lock shows another writer, its presence must show in this file too.
        A store that shares the directory's own lock was without it for a moment, in which another store could be alone. So it is
        in only if its file still has the name then: of two files only one can have it.
        """
        deadline = self._clock.monotonic() + min(self._timeout, _OPENING_S)
        while True:
            self._file = self._fs.open_locks(join(self._root, PYLOG_LOCK))
            if self._is_in(self._file, deadline):
                return
            if self._clock.monotonic() > deadline:
                raise StoreLockedError(
                    f"a pylog process that has {self._root} open for writing holds a {PYLOG_LOCK} that was removed since; close "
                    "it there, or open the store with mode='r'",
                    path=self._root,
                )
            self._file.close()
            self._wait_for_presence()

    def _is_in(self, file: LockFile, deadline: float) -> bool:
        """Takes all locks of a writer. Returns False if they have to be taken again, on the file that has the name by then."""
        alone = self._try_alone()
        if not alone and (self._exclusive or not file.is_locked(_PRESENCE, 1)):
            self._check_free(file)
            return False
        if not self._is_present(file):
            raise self._other_writer()
        if not self._exclusive and self._directory is not None:
            self._share(self._directory, deadline)
        if not file.is_current():
            if self._directory is not None:
                self._directory.close()
                self._directory = self._fs.lock_directory(self._root)
            return False
        self.was_alone = self.was_alone and alone
        return True

    def _try_alone(self) -> bool:
        """Returns whether no other writer holds the directory's own lock, or held `.lock` where directories have none."""
        return self.was_alone if self._directory is None else self._directory.try_lock(exclusive=True)

    def _wait_for_presence(self) -> None:
        """Waits until another writer may show in `pylog.lock`.

        Where directories have no lock, `.lock` is left meanwhile: else two stores that open at once would wait for each other.
        """
        if self._directory is None and self._kafka is not None:
            self._kafka.close()
        self._clock.sleep(LONGEST_NAP_S)
        if self._directory is None:
            self._kafka = self._lock_out_brokers(self._is_kept_out)

    def _is_present(self, file: LockFile) -> bool:
        start, size = (0, 0) if self._exclusive else (_PRESENCE, 1)
        return file.try_lock(start, size, exclusive=self._exclusive)

    def _check_free(self, file: LockFile) -> None:
        """Raises an error if a lock in the file excludes this store. Takes none: another store would take it for a writer's."""
        if file.is_locked(*((0, 0) if self._exclusive else (EVERYTHING, 1))):
            raise self._other_writer()

    def _share(self, directory: DirectoryLock, deadline: float) -> None:
        """Holds the directory's own lock together with others. An opening process holds it alone for a moment."""
        while not directory.try_lock(exclusive=False):
            if self._clock.monotonic() > deadline:
                raise self._other_writer()
            self._clock.sleep(LONGEST_NAP_S)

    def _other_writer(self) -> StoreLockedError:
        other = "another pylog process or store" if self._exclusive else "a pylog process that opened it with exclusive=True"
        message = f"{other} has {self._root} open for writing; close it there, or open the store with mode='r'"
        return StoreLockedError(message, path=self._root)

    # ---- Kafka's lock --------------------------------------------------------------------------------------------------------

    def _lock_out_brokers(self, take: Callable[[LockFile], bool]) -> LockFile:
        """Opens `.lock` and takes it, and waits while another store has its moment alone (reliability 10).

        Args:
            take: takes it. Returns False if it is locked, or if the file has lost its name.

        Raises:
            StoreLockedError: a broker holds it.
        """
        path = join(self._root, KAFKA_LOCK)
        deadline = self._clock.monotonic() + self._timeout
        while True:
            file = self._fs.open_locks(path)
            try:
                if take(file):
                    return file
            except PylogError:
                file.close()  # otherwise the lock would last as long as the error object
                raise
            file.close()
            owner = self._fs.lock_owner(path)
            if owner or self._clock.monotonic() > deadline:
                raise self._broker_running(owner)
            self._clock.sleep(LONGEST_NAP_S)

    def _is_kept_out(self, file: LockFile) -> bool:
        """Takes the lock, shared, which keeps brokers out. If no process holds it, writes this machine's boot id first."""
        self.was_alone = False
        if file.try_lock(0, 0, exclusive=True) and file.is_current():
            self.was_alone = True
            self._write_boot_id()
            file.try_lock(0, 0, exclusive=False)
            return True
        if _is_shared(file):
            self._check_machine(file)
            return True
        return False

    def _broker_running(self, owner: int | None) -> StoreLockedError:
        who = f"a Kafka broker (process {owner})" if owner else "a Kafka broker"
        return StoreLockedError(
            f"{who} has {self._root} open for writing; stop it, or open the store with mode='r'",
            path=self._root,
            pid=owner or None,
        )

    def _write_boot_id(self) -> None:
        """Writes this machine's boot id over an old one. The reserve after it keeps its blocks.

        Without room there is no id: the locks exclude the same processes, and `keep_room` tries again.
        """
        file = self._opened_or_created(join(self._root, PYLOG_LOCK))
        self._lacks_boot_id = True
        try:
            file.write(memoryview(self._fs.boot_id().ljust(limits.MAX_BOOT_ID_BYTES, b"\0")), 0)
            self._lacks_boot_id = False
        except StorageFailedError as error:
            if error.errno not in NO_ROOM:
                raise
            file.truncate(0)  # the id of an earlier boot would be taken for another machine's
        finally:
            file.close()

    def _opened_or_created(self, path: str) -> File:
        """Opens a file for writing, or creates it, even if it is removed and created by others meanwhile."""
        while True:
            for call in (partial(self._fs.open, path, write=True), partial(self._fs.create, path)):
                try:
                    return call()
                except StorageFailedError as error:
                    if error.errno not in (errno.ENOENT, errno.EEXIST):
                        raise

    def _check_machine(self, lock: LockFile) -> None:
        start = BOOTS.fetch_start(self._fs, join(self._root, PYLOG_LOCK), limits.MAX_BOOT_ID_BYTES)  # the rest is the reserve
        if (start.data or b"").rstrip(b"\0") not in (b"", self._fs.boot_id()):
            lock.close()
            raise StoreLockedError(
                f"a pylog process on another machine has {self._root} open for writing; locks do not work between machines, so "
                "only one machine at a time may write; close the store there, or open it with mode='r'",
                path=self._root,
            )

    def keep_brokers_out(self) -> None:
        """Takes `.lock` again if the file was removed. Cost: two system calls.

        Raises:
            StoreLockedError: a broker has started meanwhile.
        """
        assert self._kafka is not None
        if not self._kafka.is_current():
            self._kafka = self._lock_out_brokers(_is_shared)  # the old one is closed, and so unlocked, with its last user

    def alone(self) -> bool:
        """Returns whether no other process has the directory open for writing. If so, none can open it until `close`."""
        assert self._kafka is not None
        assert self._file is not None
        with self._guard:
            shared_file = self._kafka.is_current() and self._file.is_current()  # else others may hold other files
            alone = shared_file and self._kafka.try_lock(0, 0, exclusive=True)
            alone = alone and (self._exclusive or not self._file.is_locked(_PRESENCE, 1))
            self._is_alone += alone
            return alone

    @contextlib.contextmanager
    def alone_meanwhile(self) -> Iterator[bool]:
        """Yields whether no other process has the directory open for writing. If so, none can open it until the context ends."""
        alone = self.alone()
        try:
            yield alone
        finally:
            self._end_alone(alone)

    def _end_alone(self, was_alone: bool) -> None:
        """Lets other processes in again, unless another thread relies on it that none can come."""
        assert self._kafka is not None
        with self._guard:
            self._is_alone -= was_alone
            if not self._is_alone:
                self._kafka.try_lock(0, 0, exclusive=False)

    # ---- bytes ---------------------------------------------------------------------------------------------------------------

    def partition(self, directory: str) -> ByteLock:
        """Returns the lock for changes of a partition: append, roll, retention, truncation, recovery."""
        return self._byte(directory, 0)

    def cleaner(self, directory: str) -> ByteLock:
        """Returns the lock for compaction of a partition."""
        return self._byte(directory, 1)

    def archiver(self, directory: str) -> ByteLock:
        """Returns the lock for changes of a partition's archive. It is taken before the partition's lock."""
        return self._byte(f"archive of {directory}", 0)

    def uploader(self, directory: str) -> ByteLock:
        """Returns the lock of uploads of a partition: two processes do not upload the same. It is taken before the archiver's."""
        return self._byte(f"uploads of {directory}", 0)

    def query(self, name: str) -> ByteLock:
        """Returns the lock for appends of a streaming query. It is taken before any partition's lock."""
        return self._byte(name, 0)

    def owner(self, at: int) -> LockByte | None:
        """Returns the byte of an owner of transactions; None if this store is exclusive, because then it holds all bytes."""
        assert self._file is not None
        return None if self._exclusive else self._file.byte(at)

    def _byte(self, directory: str, which: int) -> ByteLock:
        digest = hashlib.blake2b(directory.encode(), digest_size=8).digest()
        start = _PARTITIONS + int.from_bytes(digest, "little") % _BYTES * 2 + which
        with self._guard:
            found = self._bytes.get(start)
            if found is None:
                found = self._bytes[start] = self._lock_of(start, join(self._root, directory))
            return found

    def _lock_of(self, start: int, what: str) -> ByteLock:
        assert self._file is not None
        if self._exclusive:
            return ByteLock(None, what, self._clock, self._timeout)
        return ByteLock(self._file.byte(start), what, self._clock, self._timeout, self._file.byte(start + _QUEUES))

    def close(self) -> None:
        """Releases all locks, as the operating system does when the process ends."""
        for lock in (self._file, self._kafka, self._directory):
            if lock is not None:
                lock.close()
