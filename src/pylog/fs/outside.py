"""Files of the user's own, outside of any store: a report, a plan."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Final

from pylog.errors import InvalidArgumentError
from pylog.fs.system import reported, resolved

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(path: str, data: bytes) -> None:
    """Replaces a file as a whole, or makes it; of a link, that which it leads to. It keeps its mode, and no neighbour is touched.

    After a crash it is the old one or the new one.

    Raises:
        InvalidArgumentError: there is something of that name that is no file.
        StorageFailedError: it cannot be written.
    """
    target = resolved(path)
    mode = _mode_of(target)
    temporary = f"{target}.{os.urandom(8).hex()}.tmp"
    with reported("write", target):
        try:
            with open(os.open(temporary, _FLAGS, 0o666), "wb") as file:
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _mode_of(target: str) -> int | None:
    """The permissions of the file that is there; None where there is none."""
    with reported("look at", target):
        try:
            mode = os.lstat(target).st_mode
        except FileNotFoundError:
            return None
    if not stat.S_ISREG(mode):
        raise InvalidArgumentError(f"{target} is no file, and would be replaced; name one, or print to it", path=target)
    return stat.S_IMODE(mode)
