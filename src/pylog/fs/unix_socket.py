"""A Unix socket that only its owner may open."""

from __future__ import annotations

import contextlib
import os
import socket
import stat

from pylog.errors import StorageFailedError

_MODE_MASK = 0o177


def private_listener(path: str, backlog: int) -> socket.socket:
    """Listens on a Unix socket of mode 0600. Replaces one on which nobody listens any more.

    Raises:
        StorageFailedError: it cannot: something else has this name, or another process listens there.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_dead(path)
        mask = os.umask(_MODE_MASK)  # bind creates the file, which never has another mode
        try:
            listener.bind(path)
        finally:
            os.umask(mask)
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        message = f"cannot listen on {path}: {error.strerror or error}; give a path that is not used"
        raise StorageFailedError(message, path=path, errno=error.errno) from error
    return listener


def _remove_dead(path: str) -> None:
    """Removes a socket whose process has ended."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode) and not _is_answered(path):
            os.unlink(path)


def _is_answered(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(path) == 0


def remove_listener(path: str) -> None:
    """Removes the file of a socket on which this process has listened."""
    with contextlib.suppress(OSError):
        os.unlink(path)
