"""The locks of a store that writes: against brokers, against another machine, between processes and threads (reliability 10).

`.lock` is Kafka's: pylog holds it shared, so a broker cannot start and other pylog processes can. All other locks are bytes of
`pylog.lock`, which is never deleted: one for the root's files, one that every writing store holds (all of it: `exclusive`), and
two a partition, found by a hash of its directory's name. In front of each byte stands a mutex: threads share the descriptor.

No lock is broken by time; waiting has an end. No thread holds two partitions' locks, a streaming query's is outermost, the root's
is innermost, and no code of the user runs under any.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

from pylog import limits
from pylog.clock import Clock
from pylog.errors import PylogError, StorageFailedError, StoreLockedError
from pylog.fs import FileSystem, LockByte, LockFile, join

KAFKA_LOCK: Final = ".lock"
PYLOG_LOCK: Final = "pylog.lock"
_ROOT: Final = 0
_PRESENCE: Final = 1
_PARTITIONS: Final = 2
_BYTES: Final = 1 << 40  # of partition locks: two names that share one only wait for each other
_NAPS: Final = (0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001)


def is_owned(lock: threading.RLock) -> bool:
    """Whether this thread has a lock. What took it may have been interrupted before it could note that."""
    return bool(lock._is_owned())  # type: ignore[attr-defined]


def under(lock: threading.RLock, action: Callable[..., None], *given: Any, wait: bool) -> None:
    """Does something under a lock, if this thread has it, it is free, or is to be waited for. No interrupt leaves it taken."""
    if is_owned(lock):
        action(*given)
        return
    taken: list[bool] = []
    try:
        taken.extend(map(lock.acquire, (wait,)))  # one step: an interrupt finds it taken and known to be, or neither
        if taken[0]:
            action(*given)
    finally:  # nothing is called here before it is released: an interrupt may come behind each call
        if taken and taken[0]:
            lock.release()


class ByteLock:
    """One byte of `pylog.lock` and the mutex before it; a context manager that its thread may enter again.

    Args:
        byte: None where an exclusive store has all of them.
        what: it protects.
        clock: for waiting.
        timeout: in seconds: how long.

    Raises:
        StoreLockedError: on entering, when another process or thread keeps it for longer than the store waits.
    """

    def __init__(self, byte: LockByte | None, what: str, clock: Clock, timeout: float) -> None:
        self._byte = byte
        self._what = what
        self._clock = clock
        self._timeout = timeout
        self._mutex = threading.RLock()
        self._is_inside: Callable[[], bool] = self._mutex._is_owned  # type: ignore[attr-defined]
        self._depth = 0

    @property
    def depth(self) -> int:
        """How often this thread is inside."""
        return self._depth if self._is_inside() else 0

    def __enter__(self) -> Self:
        if self._is_inside() and self._depth:
            self._depth += 1
        elif self._begin(True):
            self._depth = 1
        else:
            raise self._refused()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._leave()

    def try_enter(self) -> bool:
        """Enters if nobody else is inside, without waiting."""
        if not self.depth and not self._begin(False):
            return False
        self._depth += 1
        return True

    def _begin(self, wait: bool) -> bool:
        """Takes the mutex and the byte; False, with neither, when somebody has them. An interrupt leaves neither, too."""
        taken = False
        try:
            waited = 0.0
            held = self._mutex.acquire(False)
            if not held and wait:
                began = self._clock.monotonic()
                held = self._mutex.acquire(timeout=self._timeout)
                waited = self._clock.monotonic() - began
            if held:
                self._depth = 0
                byte = self._byte
                taken = byte is None or byte.try_take() or (wait and self._wait_for(byte, self._timeout - waited))
            return taken
        finally:
            if not taken:
                self.restore(0)

    def _wait_for(self, byte: LockByte, seconds: float) -> bool:
        """Takes the byte that another process has, waiting for it in short naps: for what the mutex has left of the timeout."""
        deadline = self._clock.monotonic() + seconds
        naps = iter(_NAPS)
        nap = 0.0
        while self._clock.monotonic() < deadline:
            nap = next(naps, nap)
            self._clock.sleep(nap)
            if byte.try_take():
                return True
        return False

    def _refused(self) -> StoreLockedError:
        return StoreLockedError(
            f"another process or thread has been changing {self._what} for {self._timeout:g} s; try again, or raise "
            "lock_timeout_ms",
            path=self._what,
        )

    def restore(self, depth: int) -> None:
        """Makes it what it was when this thread was inside `depth` times. An interrupt may come as `__exit__` begins: whoever
        catches it calls this, or everybody else would wait for a thread that has left.
        """
        if self._is_inside():
            self._depth = depth
            if not depth:
                self._leave()

    def _leave(self) -> None:
        try:
            if self._byte is not None:
                self._byte.let_go()
        except StorageFailedError:
            pass  # closed by a fork meanwhile: the lock is not this process's any more
        self._mutex.release()

    @contextlib.contextmanager
    def if_free(self) -> Iterator[bool]:
        """Whether nobody is inside, this thread neither; if so nobody else can enter until the context ends."""
        inside = self.depth > 0
        with self.entered_if_free() as free:
            yield free and not inside

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Enters, and leaves also when an interrupt comes as `__exit__` begins: for all who do not call `restore` themselves."""
        with self._restored(), self:
            yield

    @contextlib.contextmanager
    def entered_if_free(self) -> Iterator[bool]:
        """Enters if nobody else is inside, without waiting; whether it did."""
        with self._restored():
            yield self.try_enter()

    @contextlib.contextmanager
    def _restored(self) -> Iterator[None]:
        before = self.depth
        try:
            yield
        finally:
            try:
                self.restore(before)
            except BaseException:  # an interrupt as it began
                self.restore(before)
                raise


class StoreLocks:
    """All locks of one store.

    Args:
        fs, root: the log directory.
        clock: for waiting.
        exclusive: keep every other writer out until `close`, and lock nothing more.
        timeout_ms: how long to wait for a lock that another process holds.

    Attributes:
        root: the lock of the files in the log directory itself.
        was_alone: no other process had the directory open for writing when this one opened it.

    Raises:
        StoreLockedError: a broker, a pylog on another machine, or an exclusive one has the directory open for writing.
    """

    def __init__(self, fs: FileSystem, root: str, clock: Clock, *, exclusive: bool, timeout_ms: int) -> None:
        self._fs = fs
        self._root = root
        self._clock = clock
        self._guard = threading.Lock()
        self._bytes: dict[int, ByteLock] = {}
        self._exclusive = exclusive
        self._timeout = timeout_ms / 1000
        self.was_alone = False
        self._kafka = self._lock_out_brokers()
        self._file = fs.open_locks(join(root, PYLOG_LOCK))
        start, size = (0, 0) if exclusive else (_PRESENCE, 1)
        if not self._file.try_lock(start, size, exclusive=exclusive):
            self.close()
            other = "another pylog process or store" if exclusive else "a pylog process that opened it with exclusive=True"
            raise StoreLockedError(
                f"{other} has {root} open for writing; close it there, or open the store with mode='r'", path=root
            )
        self.root = self._lock_of(_ROOT, root)

    # ---- Kafka's lock --------------------------------------------------------------------------------------------------------

    def _lock_out_brokers(self) -> LockFile:
        """Holds `.lock` shared. Who can have it alone for a moment writes down this machine's boot id (reliability 10)."""
        path = join(self._root, KAFKA_LOCK)
        deadline = self._clock.monotonic() + self._timeout
        while True:
            file = self._fs.open_locks(path)
            try:
                if self._is_kept_out(file):
                    return file
            except PylogError:
                file.close()  # else it would be held for as long as the error is
                raise
            file.close()
            owner = self._fs.lock_owner(path)
            if owner or self._clock.monotonic() > deadline:
                raise self._broker_is_there(owner)
            self._clock.sleep(_NAPS[-1])

    def _is_kept_out(self, file: LockFile) -> bool:
        """Takes the lock, shared, if nobody has it exclusively."""
        if file.try_lock(0, 0, exclusive=True) and file.is_current():
            self.was_alone = True
            self._write_boot_id()
            file.try_lock(0, 0, exclusive=False)
            return True
        if file.try_lock(0, 0, exclusive=False) and file.is_current():
            self._check_machine(file)
            return True
        return False

    def _broker_is_there(self, owner: int | None) -> StoreLockedError:
        who = f"a Kafka broker (process {owner})" if owner else "a Kafka broker"
        return StoreLockedError(
            f"{who} has {self._root} open for writing; stop it, or open the store with mode='r'",
            path=self._root,
            pid=owner or None,
        )

    def _write_boot_id(self) -> None:
        path, boot = join(self._root, PYLOG_LOCK), self._fs.boot_id()
        file = self._fs.open(path, write=True) if self._fs.exists(path) else self._fs.create(path)
        try:
            file.truncate(0)
            file.write(memoryview(boot), 0)
        finally:
            file.close()

    def _check_machine(self, lock: LockFile) -> None:
        there = self._fs.read(join(self._root, PYLOG_LOCK), limits.MAX_CHECKPOINT_BYTES)
        if there and there != self._fs.boot_id():
            lock.close()
            raise StoreLockedError(
                f"a pylog process on another machine has {self._root} open for writing; locks do not reach from one to the "
                "other, so only one machine at a time may write",
                path=self._root,
            )

    def alone(self) -> bool:
        """Whether no other process has the directory open for writing; if so none can open it until `close`."""
        return self._kafka.try_lock(0, 0, exclusive=True)

    @contextlib.contextmanager
    def alone_meanwhile(self) -> Iterator[bool]:
        """Whether no other process has the directory open for writing; if so none can open it until the context ends."""
        alone = self.alone()
        try:
            yield alone
        finally:
            self._kafka.try_lock(0, 0, exclusive=False)

    # ---- bytes ---------------------------------------------------------------------------------------------------------------

    def partition(self, directory: str) -> ByteLock:
        """The lock of whoever changes a partition: append, roll, retention, truncation, recovery."""
        return self._byte(directory, 0)

    def cleaner(self, directory: str) -> ByteLock:
        """The lock of whoever compacts a partition."""
        return self._byte(directory, 1)

    def query(self, name: str) -> ByteLock:
        """The lock of whoever appends for a streaming query; taken before any partition's."""
        return self._byte(name, 0)

    def _byte(self, directory: str, which: int) -> ByteLock:
        digest = hashlib.blake2b(directory.encode(), digest_size=8).digest()
        start = _PARTITIONS + int.from_bytes(digest, "little") % _BYTES * 2 + which
        with self._guard:
            if start not in self._bytes:
                self._bytes[start] = self._lock_of(start, join(self._root, directory))
            return self._bytes[start]

    def _lock_of(self, start: int, what: str) -> ByteLock:
        return ByteLock(None if self._exclusive else self._file.byte(start), what, self._clock, self._timeout)

    def close(self) -> None:
        """Lets go of everything; the operating system does the same when the process ends."""
        self._file.close()
        self._kafka.close()
