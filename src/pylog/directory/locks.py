"""The locks of a store that writes: against brokers, against another machine, between processes and threads (reliability 10).

`.lock` is Kafka's. pylog holds it shared, so a broker cannot start and other pylog processes can. All other locks are bytes of
`pylog.lock`, which is never deleted: one for the root's files, one that every writing store holds (with `exclusive`, all bytes),
and two for each partition, chosen by a hash of its directory's name. Each byte also has a mutex, because threads share the
descriptor.

Locks do not expire; waiting for one does. No thread holds the locks of two partitions. The lock of a streaming query is
outermost, the root's is innermost, and no user code runs under any of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, Self
from weakref import WeakValueDictionary

from pylog import limits
from pylog.clock import Clock
from pylog.errors import PylogError, StorageFailedError, StoreLockedError
from pylog.fs import DirectoryLock, FileKind, FileSystem, LockByte, LockFile, at_most, join

KAFKA_LOCK: Final = ".lock"
PYLOG_LOCK: Final = "pylog.lock"
_ROOT: Final = 0
_PRESENCE: Final = 1
_PARTITIONS: Final = 2
_BYTES: Final = 1 << 40  # partition locks; two partitions with the same byte only wait for each other
_OPENING_S: Final = 1.0  # the longest time between the locks that a process takes as it opens a store
_SESSIONS: Final = itertools.count(1)  # one for each time that a lock is entered
_NAPS: Final = (0.00002, 0.00005, *[0.00003] * 150, 0.0002, 0.0005, 0.001)  # short ones first: most appends take 0.03 ms
_QUEUES: Final = 1 << 50  # distance of the byte that the next waiting process holds; see `ByteLock`
_ASK_S: Final = 0.00015  # between two checks for a waiting process: more often would slow down each append
_GIVE_WAY_S: Final = 0.002  # longer than a nap of a process that waits
_STOPPED_S: Final = 0.2  # until the next check, if the waiting process did not take its turn: it may be stopped


def _boot_id(data: bytes, _path: str) -> bytes:
    return data


BOOTS: Final = FileKind("a lock file", _boot_id, at_most(limits.MAX_LOCK_FILE_BYTES), "remove it while no process uses the store")


def is_owned(lock: threading.RLock) -> bool:
    """True if this thread holds a lock. An interrupted `acquire` may have taken it without returning."""
    return bool(lock._is_owned())  # type: ignore[attr-defined]


def under(lock: threading.RLock, action: Callable[..., None], *given: Any, wait: bool, timeout: float = -1) -> bool:
    """Runs an action under a lock. Without `wait`, only if this thread holds the lock or it is free. Interrupts release it."""
    if is_owned(lock):
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


class Queue(NamedTuple):
    """The byte that the next waiting process holds.

    Attributes:
        byte: the byte.
        is_held: tells whether another process holds it. Cost: 1 µs.
    """

    byte: LockByte
    is_held: Callable[[], bool]


class ByteLock:
    """One byte of `pylog.lock` and its mutex; a reentrant context manager.

    The system gives a free byte to the process that asks first, so a process that appends in a loop would keep it from all
    others. So a process that waits holds a second byte, its queue. A process that enters checks this byte from time to time, and
    lets the waiting process take its turn. A waiting process that is stopped delays the others by one part in a hundred.

    Args:
        byte: the byte; None if an exclusive store holds all of them.
        what: the name of what it protects, for messages.
        clock: for waiting.
        timeout: seconds to wait.
        queue: of the processes that wait; None if they do not take turns.

    Raises:
        StoreLockedError: on entering, if another process or thread holds the lock for longer than the timeout.
    """

    def __init__(self, byte: LockByte | None, what: str, clock: Clock, timeout: float, queue: Queue | None = None) -> None:
        self._byte = byte
        self._queue = queue
        self._ask_at = 0.0 if queue is not None else math.inf  # when to check the queue next
        self._what = what
        self._clock = clock
        self._timeout = timeout
        self._mutex = threading.RLock()
        self._is_inside: Callable[[], bool] = self._mutex._is_owned  # type: ignore[attr-defined]
        self._depth = 0
        self.session = 0

    @property
    def depth(self) -> int:
        """The number of times this thread has entered."""
        return self._depth if self._is_inside() else 0

    def __enter__(self) -> Self:
        if not self.enter():
            raise self.refused()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.leave()

    def enter(self, began: float = 0.0) -> bool:
        """Enters. Returns False if the lock was not free before the timeout.

        Args:
            began: the clock's seconds when the caller began to wait, if it has waited for something else before; 0 for now.
        """
        if self._is_inside() and self._depth:
            self._depth += 1
        elif self._begin(True, began):
            self._depth = 1
        else:
            return False
        return True

    def leave(self) -> None:
        """Leaves, after each `enter`."""
        self._depth -= 1
        if not self._depth:
            self._leave()

    def is_late(self, began: float) -> bool:
        """Whether a caller has waited for the whole timeout."""
        return self._clock.monotonic() - began >= self._timeout

    def try_enter(self) -> bool:
        """Enters if the lock is free or held by this thread; does not wait."""
        if not self.depth and not self._begin(False):
            return False
        self._depth += 1
        return True

    def _begin(self, wait: bool, began: float = 0.0) -> bool:
        """Takes the mutex and the byte. Returns False, with neither taken, if one is held. An interrupt also leaves neither."""
        taken = False
        try:
            held = self._mutex.acquire(False)
            if not held and wait:
                began = began or self._clock.monotonic()
                held = self._mutex.acquire(timeout=max(began + self._timeout - self._clock.monotonic(), 0))
            if held:
                self._depth = 0
                byte = self._byte
                if self._clock.monotonic() >= self._ask_at:
                    self._take_turns(wait)
                taken = byte is None or byte.try_take() or (wait and self._wait_for(byte, began))
            if taken:
                self.session = next(_SESSIONS)
            return taken
        finally:
            if not taken:
                self.restore(0)

    def _wait_for(self, byte: LockByte, began: float) -> bool:
        """Waits in short naps for a byte that another process holds, for the rest of the timeout."""
        deadline = (began or self._clock.monotonic()) + self._timeout
        queue, naps, nap = self._queue, iter(_NAPS), 0.0
        is_next = queue is None
        try:
            while self._clock.monotonic() < deadline:
                if queue is not None and not is_next:
                    is_next = queue.byte.try_take()
                nap = next(naps, nap)
                self._clock.sleep(nap)
                if byte.try_take():
                    return True
            return False
        finally:
            if queue is not None:
                queue.byte.let_go()  # also after an interrupt that came as it was taken

    def _take_turns(self, wait: bool) -> None:
        """Lets another process that waits take the byte first. `wait` is false for a caller that must not wait."""
        queue, now = self._queue, self._clock.monotonic()
        self._ask_at = now + _ASK_S
        if queue is None or not queue.is_held():
            return
        until, nap = now + _GIVE_WAY_S, _NAPS[0]
        while wait and queue.is_held():
            if self._clock.monotonic() >= until:
                self._ask_at = until + _STOPPED_S
                return
            self._clock.sleep(nap)

    def refused(self) -> StoreLockedError:
        """Returns the error for a caller that has waited for the whole timeout."""
        return StoreLockedError(
            f"another process or thread has been changing {self._what} for {self._timeout:g} s; try again, or raise "
            "lock_timeout_ms",
            path=self._what,
        )

    def restore(self, depth: int) -> None:
        """Leaves until this thread has entered `depth` times. An interrupt may come as `__exit__` begins: the code that catches
        it must call this, or other threads would wait for a thread that has left.
        """
        if self._is_inside():
            self._depth = depth
            if not depth:
                self._leave()

    def _leave(self) -> None:
        self.session = 0
        try:
            if self._byte is not None:
                self._byte.let_go()
        except StorageFailedError:
            pass  # closed by a fork: this process no longer holds the lock
        self._mutex.release()

    @contextlib.contextmanager
    def if_free(self) -> Iterator[bool]:
        """Yields whether the lock is free, also of this thread. If so, it stays held until the context ends."""
        inside = self.depth > 0
        with self.entered_if_free() as free:
            yield free and not inside

    @contextlib.contextmanager
    def entered(self, began: float = 0.0) -> Iterator[None]:
        """Enters, and leaves even if an interrupt comes as `leave` begins. For callers that do not call `restore`.

        Args:
            began: as for `enter`.
        """
        with self._restored():
            if not self.enter(began):
                raise self.refused()
            try:
                yield
            finally:
                self.leave()

    @contextlib.contextmanager
    def entered_if_free(self) -> Iterator[bool]:
        """Enters if the lock is free, without waiting. Yields whether it did."""
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
            except BaseException:  # an interrupt as `__exit__` began
                self.restore(before)
                raise


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
        self.was_alone = False
        self._directory = fs.lock_directory(root)
        self._file: LockFile | None = None
        self._kafka: LockFile | None = None
        try:
            self._kafka = self._lock_out_brokers()
            self._file = fs.open_locks(join(root, PYLOG_LOCK))
            self._enter(self._file)
        except BaseException:
            self.close()
            raise
        self.root = self._lock_of(_ROOT, root)
        self.keep_room()

    # ---- the reserve of a full disk ------------------------------------------------------------------------------------------

    def keep_room(self) -> None:
        """Keeps some blocks of the disk in `pylog.lock`, after the boot id, as far as there is room."""
        if self._file is not None:
            self._file.keep_room(limits.RESERVE_BYTES)

    def give_room(self) -> None:
        """Gives these blocks back to the file system."""
        if self._file is not None:
            self._file.give_room(len(self._fs.boot_id()))

    # ---- pylog's lock --------------------------------------------------------------------------------------------------------

    def _enter(self, file: LockFile) -> None:
        """Takes this store's place among the writers of the directory.

        The bytes of `pylog.lock` exclude each other only if all writers have the same file open, and anybody can remove a file.
        Nobody can remove the directory's own lock. So if that lock shows another writer, its presence must show in this file too.
        """
        deadline = self._clock.monotonic() + min(self._timeout, _OPENING_S)
        while True:
            alone = self._try_alone()
            if (alone or (not self._exclusive and file.is_locked(_PRESENCE, 1))) and self._is_present(file):
                if not self._exclusive and self._directory is not None:
                    self._share(self._directory, deadline)
                self.was_alone = self.was_alone and alone
                return
            if self._is_taken(file):
                raise self._other_writer()
            if self._clock.monotonic() > deadline:
                raise StoreLockedError(
                    f"a pylog process that has {self._root} open for writing holds a {PYLOG_LOCK} that was removed since; close "
                    "it there, or open the store with mode='r'",
                    path=self._root,
                )
            self._wait_for_presence()

    def _try_alone(self) -> bool:
        """Returns whether no other writer holds the directory's own lock, or held `.lock` where directories have none."""
        return self.was_alone if self._directory is None else self._directory.try_lock(exclusive=True)

    def _wait_for_presence(self) -> None:
        """Waits until another writer may show in `pylog.lock`.

        Where directories have no lock, `.lock` is left meanwhile: else two stores that open at once would wait for each other.
        """
        if self._directory is None and self._kafka is not None:
            self._kafka.close()
        self._clock.sleep(_NAPS[-1])
        if self._directory is None:
            self._kafka = self._lock_out_brokers()

    def _is_present(self, file: LockFile) -> bool:
        start, size = (0, 0) if self._exclusive else (_PRESENCE, 1)
        return file.try_lock(start, size, exclusive=self._exclusive)

    def _is_taken(self, file: LockFile) -> bool:
        """Returns whether a lock in the file itself excludes this store."""
        if self._is_present(file):
            file.unlock(0, 0)
            return False
        return True

    def _share(self, directory: DirectoryLock, deadline: float) -> None:
        """Holds the directory's own lock together with others. An opening process holds it alone for a moment."""
        while not directory.try_lock(exclusive=False):
            if self._clock.monotonic() > deadline:
                raise self._other_writer()
            self._clock.sleep(_NAPS[-1])

    def _other_writer(self) -> StoreLockedError:
        other = "another pylog process or store" if self._exclusive else "a pylog process that opened it with exclusive=True"
        told = f"{other} has {self._root} open for writing; close it there, or open the store with mode='r'"
        return StoreLockedError(told, path=self._root)

    # ---- Kafka's lock --------------------------------------------------------------------------------------------------------

    def _lock_out_brokers(self) -> LockFile:
        """Holds `.lock` shared. If no process holds it, writes this machine's boot id to it first (reliability 10)."""
        path = join(self._root, KAFKA_LOCK)
        deadline = self._clock.monotonic() + self._timeout
        while True:
            file = self._fs.open_locks(path)
            try:
                if self._is_kept_out(file):
                    return file
            except PylogError:
                file.close()  # otherwise the lock would last as long as the error object
                raise
            file.close()
            owner = self._fs.lock_owner(path)
            if owner or self._clock.monotonic() > deadline:
                raise self._broker_is_there(owner)
            self._clock.sleep(_NAPS[-1])

    def _is_kept_out(self, file: LockFile) -> bool:
        """Takes the lock, shared, which keeps brokers out. Returns False if a broker holds it."""
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
        there = BOOTS.read(self._fs, join(self._root, PYLOG_LOCK)) or b""
        if there.rstrip(b"\0") not in (b"", self._fs.boot_id()):
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
        if self._kafka.is_current():
            return
        file = self._fs.open_locks(join(self._root, KAFKA_LOCK))
        if not file.try_lock(0, 0, exclusive=False):
            owner = self._fs.lock_owner(join(self._root, KAFKA_LOCK))
            file.close()
            raise self._broker_is_there(owner)
        self._kafka = file  # the old one is closed, and so unlocked, with its last user

    def alone(self) -> bool:
        """Returns whether no other process has the directory open for writing. If so, none can open it until `close`."""
        assert self._kafka is not None
        assert self._file is not None
        shared_file = self._kafka.is_current() and self._file.is_current()  # else others may hold other files
        alone = shared_file and self._kafka.try_lock(0, 0, exclusive=True)
        return alone and (self._exclusive or not self._file.is_locked(_PRESENCE, 1))

    @contextlib.contextmanager
    def alone_meanwhile(self) -> Iterator[bool]:
        """Yields whether no other process has the directory open for writing. If so, none can open it until the context ends."""
        alone = self.alone()
        try:
            yield alone
        finally:
            assert self._kafka is not None
            self._kafka.try_lock(0, 0, exclusive=False)

    # ---- bytes ---------------------------------------------------------------------------------------------------------------

    def partition(self, directory: str) -> ByteLock:
        """Returns the lock for changes of a partition: append, roll, retention, truncation, recovery."""
        return self._byte(directory, 0)

    def cleaner(self, directory: str) -> ByteLock:
        """Returns the lock for compaction of a partition."""
        return self._byte(directory, 1)

    def query(self, name: str) -> ByteLock:
        """Returns the lock for appends of a streaming query. It is taken before any partition's lock."""
        return self._byte(name, 0)

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
        at = start + _QUEUES
        queue = Queue(self._file.byte(at), partial(self._file.is_locked, at, 1))
        return ByteLock(self._file.byte(start), what, self._clock, self._timeout, queue)

    def close(self) -> None:
        """Releases all locks, as the operating system does when the process ends."""
        for lock in (self._file, self._kafka, self._directory):
            if lock is not None:
                lock.close()
