"""`Descriptor`: an open descriptor that is closed at most once, and whose number no running call finds under another file.

A call of another thread may have read the number and not have made its system call yet. If the number were free then, the next
file that is opened would get it, and the call would read, write or cut that file. `Store.close` waits for running calls, but not
forever.
"""

from __future__ import annotations

import os
import sys
from typing import Final, Self

_PATH_ONLY: Final = getattr(os, "O_PATH", 0)  # of a descriptor that can be neither read, written nor synced; macOS has none


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
        leads to no file then: every call with it fails. Without a free descriptor it is only closed.

        Raises:
            OSError: the last write failed, as some network file systems report it.
        """
        descriptor, self.descriptor = self.descriptor, -1  # first: a call that begins now finds no number
        if descriptor < 0:
            return
        self._taken = descriptor  # an interrupt before the end leaves the file, and its locks, to `__del__`
        if sys.getrefcount(self) <= _ALONE or not _leads_nowhere(descriptor):
            self._taken = -1
            os.close(descriptor)

    def __del__(self) -> None:
        # an interrupt inside `__new__` leaves neither
        for descriptor in (getattr(self, "descriptor", -1), getattr(self, "_taken", -1)):
            if descriptor >= 0:
                os.close(descriptor)


def _leads_nowhere(descriptor: int) -> bool:
    """Closes the file under a number, which stays taken. Returns False, with the file open, if that is not possible."""
    if not _PATH_ONLY:
        return False
    try:
        nothing = os.open(os.sep, _PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.dup2(nothing, descriptor, inheritable=False)
    finally:
        os.close(nothing)
    return True


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
