"""Writes the user's own files outside any store: reports and plans."""

from __future__ import annotations

import contextlib
import os
import stat

from pylog.errors import InvalidArgumentError
from pylog.fs import ownership
from pylog.fs.paths import resolved
from pylog.fs.system import reported


def replace_file(path: str, data: bytes) -> None:
    """Replaces a whole file, or creates it. The file keeps its mode and owner, and no other file is touched.

    A link is followed: its target is replaced.

    After a crash the file has either its old or its new content.

    Raises:
        InvalidArgumentError: the name belongs to something that is not a regular file.
        StorageFailedError: the file cannot be written.
    """
    target = resolved(path)
    _check_replaceable(target)
    temporary = f"{target}.{os.urandom(8).hex()}.tmp"
    with reported("write", target):
        try:
            with open(ownership.create_file(temporary, os.O_WRONLY), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            ownership.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _check_replaceable(target: str) -> None:
    """Refuses to replace anything but a regular file."""
    with reported("inspect", target):
        try:
            mode = os.lstat(target).st_mode
        except FileNotFoundError:
            return
    if not stat.S_ISREG(mode):
        raise InvalidArgumentError(f"{target} is not a regular file, so it is not replaced; give another path", path=target)
