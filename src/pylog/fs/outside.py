"""Files of the user's own, outside of any store: a report, a plan."""

from __future__ import annotations

import contextlib
import os
import stat

from pylog.errors import InvalidArgumentError
from pylog.fs import ownership
from pylog.fs.system import reported, resolved


def replace_file(path: str, data: bytes) -> None:
    """Replaces a file as a whole, or creates it. It keeps its mode and owner, and no neighbour is touched.

    A link is followed: the file that it leads to is replaced.

    After a crash it is the old one or the new one.

    Raises:
        InvalidArgumentError: there is something of that name that is no file.
        StorageFailedError: it cannot be written.
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
    """Refuses to replace something that is no file."""
    with reported("look at", target):
        try:
            mode = os.lstat(target).st_mode
        except FileNotFoundError:
            return
    if not stat.S_ISREG(mode):
        raise InvalidArgumentError(f"{target} is no file, and would be replaced; name one, or print to it", path=target)
