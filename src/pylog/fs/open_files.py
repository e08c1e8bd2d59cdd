"""Counts what this process keeps open, over all its stores, and releases files when there is no descriptor left.

A process begins with 1,024 descriptors on Linux and 256 on macOS, and other libraries need some of them. So pylog keeps open at
most a half of what `RLIMIT_NOFILE` allows at that moment: a quarter for reading, and a quarter for partitions that are ready for
writing. A sealed segment of a store that is open for writing is mapped, which needs no descriptor but counts anyway: the
number of a process's mappings is limited, too (`vm.max_map_count`).

Every call that makes a descriptor goes through `opening`. If the system refuses it one, all files that are kept open are released
and the call is repeated.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

from pylog import limits
from pylog.errors import PylogError, StorageFailedError

T = TypeVar("T")
_NONE_LEFT: Final = (errno.EMFILE, errno.ENFILE)
_MOST: Final = 1 << 20  # of a process without a limit
_READING: Final = 4  # files for reading: a fourth of the limit
_WRITING: Final = 8  # partitions ready for writing have two descriptors each: together a fourth


def limit() -> int:
    """Returns how many descriptors this process may have. It is asked each time, because `setrlimit` changes it."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if soft == resource.RLIM_INFINITY else min(soft, _MOST)


class FileOwner(Protocol):
    """An object that keeps a file open until it is asked to release it."""

    def release(self) -> bool:
        """Releases the file, for the next use to open it again. Returns False if it cannot be done now."""
        ...


class OpenFiles:
    """Limits how many owners keep files open: beyond the limit the one that opened first is released.

    It keeps no owner alive: a deleted segment is freed when its last reader drops it. No lock is held while an owner is released,
    because that owner may open other files.

    Args:
        bound: returns the limit as it is now.
    """

    def __init__(self, bound: Callable[[], int]) -> None:
        self._bound = bound
        self._open: OrderedDict[int, weakref.ref[FileOwner]] = OrderedDict()
        self._guard = threading.RLock()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, owner: FileOwner) -> None:
        """Adds an owner that has opened its file."""
        self._add(owner)
        excess = len(self._open) - self._bound()
        if excess > 0:
            self.release(excess, but=owner)

    def closed(self, owner: FileOwner) -> None:
        """Removes an owner that has closed its file."""
        with self._guard:
            self._open.pop(id(owner), None)

    def release(self, count: int | None = None, *, but: FileOwner | None = None) -> None:
        """Releases owners, those first that opened first. An owner that cannot release now stays, and the next one is asked.

        Args:
            count: how many; None: all.
            but: this one stays.
        """
        wanted = len(self._open) if count is None else count
        for _ in range(len(self._open)):  # each once, whatever is put back
            if wanted <= 0:
                return
            owner = self._next_to_release()
            if owner is not None and (owner is but or not _released(owner)):
                self._add(owner)  # it is asked again later
            else:
                wanted -= 1

    def _next_to_release(self) -> FileOwner | None:
        """Takes out the owner that opened first; None if it does not exist any more."""
        with self._guard:
            return self._open.popitem(last=False)[1]() if self._open else None

    def _add(self, owner: FileOwner) -> None:
        with self._guard:
            self._open.pop(id(owner), None)
            self._open[id(owner)] = weakref.ref(owner, partial(self._dropped, id(owner)))

    def _dropped(self, key: int, dead: weakref.ref[FileOwner]) -> None:
        """Removes an owner that was collected without `closed`."""
        with self._guard:
            if self._open.get(key) is dead:
                del self._open[key]

    def forked(self) -> None:
        """Forgets the parent's files in a forked child, whose lock another thread of the parent may have held."""
        self._guard = threading.RLock()
        self._open = OrderedDict()


def _released(owner: FileOwner) -> bool:
    try:
        return owner.release()
    except PylogError:  # its own store reports that to its next caller; this caller only needs a descriptor
        return False


FILES: Final = OpenFiles(lambda: max(1, min(limits.OPEN_FILES, limit() // _READING)))  # segments and headers, for reading
WRITERS: Final = OpenFiles(lambda: max(1, min(limits.OPEN_WRITERS, limit() // _WRITING)))  # partitions ready for writing


def _forked() -> None:
    FILES.forked()
    WRITERS.forked()


os.register_at_fork(after_in_child=_forked)


# ---- no descriptor left ------------------------------------------------------------------------------------------------------


class _Releasing(threading.local):
    """Whether this thread is releasing files: what it opens for that must not release others again."""

    is_active = False


_releasing: Final = _Releasing()


def opening(call: Callable[..., T], *given: object, also: tuple[int, ...] = ()) -> T:
    """Makes a call that opens a descriptor. If there is none left, releases files and makes the call again.

    Args:
        call, given: the call.
        also: other numbers of errors that mean that too much is open, such as ENOMEM of a mapping.

    Raises:
        OSError: as the call. If nothing helped, its errno is EMFILE or ENFILE, and `advice` says what to do.
    """
    try:
        return call(*given)
    except OSError as error:
        if error.errno not in _NONE_LEFT + also or _releasing.is_active:
            raise
    for step in (FILES.release, lambda: WRITERS.release((len(WRITERS) + 1) // 2), WRITERS.release, FILES.release):
        _release(step)
        try:
            return call(*given)
        except OSError as error:
            if error.errno not in _NONE_LEFT + also:
                raise
    gc.collect()  # clients and iterators that were dropped without `close` keep files, too
    return call(*given)


def _release(step: Callable[[], None]) -> None:
    _releasing.is_active = True
    try:
        step()
    finally:
        _releasing.is_active = False


def advice(error: OSError) -> str | None:
    """Returns why no descriptor was left and what helps, for a message; None for any other error.

    >>> advice(OSError(errno.ENFILE, ""))
    'all programs together have as many files open as the system allows (fs.file-max); close some, or raise that'
    """
    if error.errno == errno.EMFILE:
        return (
            f"this process has as many files open as it may have ({limit()}); raise the limit with `ulimit -n` before it starts, "
            "or close files, stores and sockets that it does not need"
        )
    if error.errno == errno.ENFILE:
        return "all programs together have as many files open as the system allows (fs.file-max); close some, or raise that"
    return None


def raise_if_none_left(error: OSError, path: str) -> None:
    """Raises a StorageFailedError if an error says that no descriptor was left. For a caller that takes others for an answer.

    Args:
        error: the error of the call that opens the file.
        path: the file.
    """
    why = advice(error)
    if why is not None:
        raise StorageFailedError(f"cannot open {path}: {why}", path=path, errno=error.errno) from error


def system_file(path: str) -> bytes | None:
    """Returns the content of one of the system's own small files, or None if the system has none or does not give it.

    Raises:
        StorageFailedError: no descriptor is left. That is no answer: a process that is alive would be taken for a dead one.
    """
    try:
        return opening(_content, path)
    except OSError as error:
        raise_if_none_left(error, path)
        return None


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
