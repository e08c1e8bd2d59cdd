"""Makes a path of a name that a file holds, or refuses the name."""

from __future__ import annotations

import os
from typing import Final

from pylog.errors import CorruptionError

_LONGEST_NAME: Final = 255  # bytes: of every file system that pylog runs on


def inside(directory: str, name: str, source: str) -> str:
    """Returns the path of a file or directory that another file names. It is an entry of `directory` itself.

    Every name that is read from a file becomes a path here. The file system then refuses a symbolic link of this name.

    Args:
        directory: the directory that must hold the file.
        name: the name as it was read.
        source: the file that holds the name, for the error.

    Raises:
        CorruptionError: the name is empty, `.` or `..`, absolute or too long, or has a separator, a control character, or a
            character that no file name has.

    >>> inside("/data", "pylog-staging.ab.batches", "/data/pylog-query.ab.json")
    '/data/pylog-staging.ab.batches'
    >>> inside("/d", "../other", "/d/query.json")
    Traceback (most recent call last):
        ...
    pylog.errors.CorruptionError: /d/query.json names '../other', which is not a file of /d; nothing was read or written there
    """
    if not _is_name(name):
        shown = ascii(name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "...")
        message = f"{source} names {shown}, which is not a file of {directory}; nothing was read or written there"
        raise CorruptionError(message, path=source)
    return os.path.join(directory, name)


def _is_name(name: str) -> bool:
    if name in ("", ".", "..") or "/" in name or os.sep in name or not name.isprintable():
        return False
    return len(name.encode(errors="replace")) <= _LONGEST_NAME
