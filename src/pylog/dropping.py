"""Closes clients that are dropped without `close`, each in its own thread, and names them in a `ResourceWarning`.

A finalizer may run in any thread and between any two steps, even while that thread holds a lock that closing needs. So a
finalizer takes no lock and waits for nothing: `has_been_dropped` starts a thread, which does both.
"""

from __future__ import annotations

import logging
import threading
import warnings
from _thread import start_new_thread
from collections.abc import Callable

LOGGER = logging.getLogger("pylog")


def has_been_dropped(client: object, name: str, finish: Callable[[], object]) -> None:
    """Closes a client that its program no longer refers to. The client's `__del__` calls this.

    Args:
        client: the dropped object.
        name: a description of the client, for the warning.
        finish: closes the client. It runs in another thread and must not refer to `client`.

    Cost: two threads that end with `finish`.
    """
    try:
        start_new_thread(_begin, (name, finish))
    except (RuntimeError, MemoryError):  # no thread can start: the interpreter is ending, or there are too many threads
        LOGGER.debug("%s was dropped without close, and no thread could start to close it", name)
    message = f"{name} was dropped without close(); close it, or use it in a with statement"
    warnings.warn(message, ResourceWarning, stacklevel=3, source=client)


def _begin(name: str, finish: Callable[[], object]) -> None:
    """Starts the thread that debuggers show. `Thread.start` takes locks, which the finalizer's thread may hold."""

    def run() -> None:
        try:
            finish()
        except Exception:
            LOGGER.exception("%s was dropped without close(), and closing it failed", name)

    # with a name and `daemon` given, `Thread` does not look up the current thread, and registers nothing for it
    threading.Thread(target=run, name="pylog-dropped", daemon=True).start()
