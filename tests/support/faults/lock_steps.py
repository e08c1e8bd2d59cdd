"""Openers of a directory that run one at a time and stop before a system call of their locks, while lock files are removed.

The locks are the system's own. Only the order is chosen: each opener is a thread that goes on when it is told to. A change of a
`flock` from alone to shared is two calls here, as it is in the kernel: in between the opener holds nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pylog
from pylog.clock import ManualClock
from pylog.directory.locks import KAFKA_LOCK, PYLOG_LOCK, StoreLocks
from pylog.fs import OsFileSystem

REMOVED: Final = ((PYLOG_LOCK,), (KAFKA_LOCK,), (PYLOG_LOCK, KAFKA_LOCK))
PATIENCE: Final = 30.0  # seconds, for what takes milliseconds
_LEAP_S: Final = 0.2  # of each nap, so that nobody waits long for one that is stopped
_OF_LOCKS: Final = ("open_locks", "lock_directory", "lock_owner", "open", "create", "read", "exists", "list", "boot_id")
_LOCKING: Final = ("try_lock", "unlock", "is_locked", "is_current")
_OF_FILES: Final = (*_LOCKING, "keep_room", "give_room", "truncate", "write", "read", "close")


class _Stepping:
    """An object whose calls are steps."""

    def __init__(self, of: Any, step: Callable[[str], None]) -> None:
        self._of = of
        self._step = step

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if name not in _OF_FILES:
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._step(name)
            return found(*given, **named)

        return call


class _SteppingDirectory(_Stepping):
    """The lock of a directory: a change of its mode lets go first."""

    def try_lock(self, *, exclusive: bool) -> bool:
        fcntl.flock(self._of.descriptor, fcntl.LOCK_UN)
        self._step("change")
        taken: bool = self._of.try_lock(exclusive=exclusive)
        return taken


class SteppingFileSystem(OsFileSystem):
    """The system's files. What opening does with the root's small files are steps.

    Args:
        step: is told the name of each such call before it is made.
        directory_locks: false for a system whose directories have no locks, such as NFS.
    """

    def __init__(self, step: Callable[[str], None], *, directory_locks: bool = True) -> None:
        self._step = step
        self._has = directory_locks

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in _OF_LOCKS:
            return found
        step = super().__getattribute__("_step")

        def call(*given: Any, **named: Any) -> Any:
            step(name)
            made = found(*given, **named)
            if name == "lock_directory":
                return _SteppingDirectory(made, step) if self._has else None
            return _Stepping(made, step) if name in ("open_locks", "open", "create") else made

        return call


class LeapingClock(ManualClock):
    """A clock whose naps are long.

    Attributes:
        napping: is called in each nap.
    """

    napping: Callable[[], object] = staticmethod(lambda: None)

    def sleep(self, seconds: float) -> None:
        """Moves the clock forward."""
        super().sleep(max(seconds, _LEAP_S))
        self.napping()


class Opener:
    """A process that opens a directory for writing, and stops when it is told to.

    Attributes:
        steps: how many it has made.
        locks: those of the open directory; None before, and if it was refused.
        wrong: what it raised that is no refusal.
        is_over: whether it is in, or was refused.
    """

    def __init__(self, root: Path, *, exclusive: bool, directory_locks: bool = True) -> None:
        self._root = root
        self._directory_locks = directory_locks
        self.exclusive = exclusive
        self.clock = LeapingClock()
        self.steps = 0
        self.locks: StoreLocks | None = None
        self.wrong: BaseException | None = None
        self.is_over = False
        self._stop_at = 0
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self._go.acquire()
        try:
            fs = SteppingFileSystem(self._step, directory_locks=self._directory_locks)
            self.locks = StoreLocks(fs, str(self._root), self.clock, exclusive=self.exclusive, timeout_ms=1000)
        except pylog.StoreLockedError:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is a finding
            self.wrong = error
        self.is_over = True
        self._stopped.release()

    def _step(self, _name: str) -> None:
        if threading.current_thread() is not self._thread or self.is_over:
            return  # of a later call
        self.steps += 1
        if self.steps == self._stop_at:
            self._stopped.release()
            self._go.acquire()

    def advance(self, steps: int | None = None) -> None:
        """Makes some steps; all, without a number."""
        if self.is_over:
            return
        if not self._thread.is_alive():
            self._thread.start()
        self._stop_at = -1 if steps is None else self.steps + steps
        self._go.release()
        assert self._stopped.acquire(timeout=PATIENCE), "an opener does not come to an end"

    def close(self) -> None:
        self.advance()
        if self.locks is not None:
            self.locks.close()


def remove(root: Path, names: tuple[str, ...], *, again: bool = False) -> None:
    """Removes lock files; with `again`, an empty file has the name then."""
    for name in names:
        (root / name).unlink(missing_ok=True)
        if again:
            (root / name).touch()


@contextlib.contextmanager
def openers(root: Path, modes: str, *, directory_locks: bool = True) -> Iterator[list[Opener]]:
    """Some openers, a letter for each: `s` shares the directory, `x` is exclusive. They are closed at the end.

    In the end those that are in are compared, and the directory can be opened by another one.
    """
    made = [Opener(root, exclusive=mode == "x", directory_locks=directory_locks) for mode in modes]
    try:
        yield made
        for each in made:
            each.advance()
        check_apart(made)
    finally:
        for each in made:
            each.close()
    last = Opener(root, exclusive=True, directory_locks=directory_locks)
    last.advance()
    assert last.locks is not None, last.wrong
    last.close()


def check_apart(made: list[Opener]) -> None:
    """No two are in that would not be let in together; those that are in take turns."""
    for each in made:
        if each.wrong is not None:
            raise each.wrong
    inside = [each for each in made if each.locks is not None]
    assert len(inside) <= 1 or not any(each.exclusive for each in inside), "somebody is in beside an exclusive store"
    for one in inside:
        assert one.locks is not None
        with one.locks.partition("t-0"):
            for other in inside:
                assert other is one or not other.locks.partition("t-0").try_enter(), "two writers do not take turns"  # type: ignore[union-attr]


def walk(root: Path, seed: int, *, directory_locks: bool = True) -> str:
    """Some openers in an order that a seed chooses, with removals in between. Returns what was done, for a message.

    Without locks on directories only `pylog.lock` is removed: nothing protects a directory that has lost both files there.
    """
    rng = random.Random(seed)
    modes = "".join(rng.choice("sssx") for _ in range(rng.choice([2, 3, 3, 4])))
    told = [f"seed {seed}: {modes}"]
    with openers(root, modes, directory_locks=directory_locks) as made:
        try:
            while not all(each.is_over for each in made):
                number = rng.randrange(len(made))
                steps = rng.choice([1, 2, 3, 5, 10, 40])
                made[number].advance(steps)
                told.append(f"{number}+{steps}")
                if rng.random() < 0.3:
                    names, again = rng.choice(REMOVED if directory_locks else REMOVED[:1]), rng.random() < 0.3
                    remove(root, names, again=again)
                    told.append(f"remove {names} {again}")
                if rng.random() < 0.05 and made[number].is_over and made[number].locks is not None:
                    made[number].locks.close()  # type: ignore[union-attr]
                    made[number].locks = None
                    told.append(f"close {number}")
            check_apart(made)
        except AssertionError as error:
            raise AssertionError(f"{error}: {told}") from error
    return " ".join(told)
