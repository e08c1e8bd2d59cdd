"""`Descriptor`: an open descriptor that is closed at most once, and whose number no running call finds under another file.

A call of another thread may have read the number and not have made its system call yet. If the number were free then, the next
file that is opened would get it, and the call would read, write or cut that file. `Store.close` waits for running calls, but not
forever.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from typing import Final, Self

_STANDARD_ERROR: Final = 2


def above_standard(descriptor: int) -> int:
    """Returns the file under a descriptor above 2: if standard output is closed, `print` would otherwise write into it."""
    if descriptor > _STANDARD_ERROR:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _STANDARD_ERROR + 1)
    finally:
        os.close(descriptor)


class Nowhere:
    """A descriptor with which every read, write, sync and lock of a file fails. It is open as long as the process runs.

    Linux opens a directory for its path only. macOS cannot: there the descriptor is the reading end of a pipe without a writer.

    Args:
        path_only: the system's flag for a descriptor of a path only; 0 if it has none.

    Attributes:
        descriptor: the number; -1 if the process had no free one yet.
    """

    def __init__(self, path_only: int) -> None:
        self._path_only = path_only
        self.descriptor = -1
        self._identity = (0, 0)
        with contextlib.suppress(OSError):
            self._open()

    def _open(self) -> None:
        if self._path_only:
            opened = os.open(os.sep, self._path_only | os.O_DIRECTORY | os.O_CLOEXEC)
        else:
            opened, writing = os.pipe()
            os.close(writing)
        self.descriptor = above_standard(opened)
        self._identity = _identity(self.descriptor)

    def lead(self, descriptor: int) -> bool:
        """Closes the file under a number, which then leads nowhere. Returns False, with the file open, if that is impossible."""
        try:
            if self.descriptor < 0 or _identity(self.descriptor) != self._identity:
                self._open()
        except OSError:  # a program that became a daemon has closed all descriptors, and none is free now
            return False
        os.dup2(self.descriptor, descriptor, inheritable=False)
        return True


def _identity(descriptor: int) -> tuple[int, int]:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


_nowhere = Nowhere(getattr(os, "O_PATH", 0))


class Descriptor:
    """The base of objects that keep a descriptor.

    Attributes:
        descriptor: the number; -1 after `_close`.
    """

    descriptor: int
    _taken: int
    __slots__ = ("_taken", "descriptor")  # read in most calls of an append: as class attributes they would be slower

    def __new__(cls, *_args: object, **_options: object) -> Self:
        """Creates an object without a descriptor, so that one whose construction was interrupted has none to close."""
        self = super().__new__(cls)
        self.descriptor = -1
        self._taken = -1  # a number that `__del__` closes: a call may still use it, or an interrupt ended `_close`
        return self

    def _close(self) -> None:
        """Closes the descriptor. Does nothing if it is closed.

        A running call has another reference to this object. If there is one, the number stays taken until this object goes. It
        leads to no file then: every call with it fails.

        Raises:
            OSError: the last write failed, as some network file systems report it.
        """
        descriptor, self.descriptor = self.descriptor, -1  # first: a call that begins now finds no number
        if descriptor < 0:
            return
        self._taken = descriptor  # an interrupt before the end leaves the file, and its locks, to `__del__`
        if sys.getrefcount(self) <= _ALONE or not _nowhere.lead(descriptor):
            self._taken = -1
            os.close(descriptor)

    def __del__(self) -> None:
        # an interrupt inside `__new__` leaves neither
        for descriptor in (getattr(self, "descriptor", -1), getattr(self, "_taken", -1)):
            if descriptor >= 0:
                os.close(descriptor)


class _Probe(Descriptor):
    """Counts its references where `_close` does."""

    def close(self) -> int:
        """Calls like the methods of other classes."""
        return self._close()

    def _close(self) -> int:  # type: ignore[override]
        return sys.getrefcount(self)


def _alone() -> int:
    probe = _Probe()
    return probe.close()


_ALONE: Final = _alone()
