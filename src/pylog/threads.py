"""Starts threads. A process may get no more: of a limit (`ulimit -u`, a container's pids), or of memory."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from pylog.errors import StorageFailedError

T = TypeVar("T")

NO_THREAD: Final = (RuntimeError, MemoryError)  # what Python raises where the system starts no thread


def started(thread: threading.Thread, release: Callable[[], object] = bool) -> None:
    """Starts a thread.

    Args:
        thread: the thread.
        release: called if it does not start. Releases what the thread would have released at its end.

    Raises:
        StorageFailedError: the system starts no more threads. Nothing was begun.
    """
    try:
        thread.start()
    except NO_THREAD as error:
        release()
        raise no_thread(error) from error


def submitted(pool: ThreadPoolExecutor, call: Callable[[], T]) -> Future[T]:
    """Queues a call for the threads of a pool.

    Raises:
        StorageFailedError: the system starts no more threads. If the pool has one already, that one may still make the call.
    """
    try:
        return pool.submit(call)
    except NO_THREAD as error:
        raise no_thread(error) from error


def no_thread(error: Exception) -> StorageFailedError:
    """Returns pylog's error for a thread that the system did not start.

    >>> print(no_thread(RuntimeError("no room")))
    the process cannot start another thread (no room); end some, or raise its limit (ulimit -u)
    """
    message = f"the process cannot start another thread ({error})"
    return StorageFailedError(f"{message}; end some, or raise its limit (ulimit -u)", errno=errno.EAGAIN)
