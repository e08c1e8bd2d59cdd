"""Paths as text: what a caller gave, and how paths are put together. No file is touched."""

from __future__ import annotations

import os

from pylog.errors import InvalidArgumentError


def join(*parts: str) -> str:
    """Joins the parts of a path."""
    if len(parts) == 2 and parts[0][-1:] not in ("", "/") and parts[1][:1] != "/":
        return f"{parts[0]}/{parts[1]}"  # in half the time (0.22 and 0.46 µs), and an opening joins two dozen names
    return os.path.join(*parts)


def base_name(path: str) -> str:
    """Returns the last part of a path."""
    return os.path.basename(path)


def resolved(path: str) -> str:
    """Returns an absolute path with all symbolic links resolved, so that all processes lock the same file."""
    return os.path.realpath(path)


def path_of(name: str, value: object) -> str:
    """Returns the path that a caller gave.

    Args:
        name: the argument's name, for the error.
        value: text, or an object with a path, such as `pathlib.Path`.

    Raises:
        InvalidArgumentError: it cannot be a path: it is empty, has a character that no path has, or is no text.

    >>> path_of("directory", "shop")
    'shop'
    >>> path_of("directory", "")
    Traceback (most recent call last):
    pylog.errors.InvalidArgumentError: directory='' is not a path
    """
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or not _is_possible(path):
        raise InvalidArgumentError(f"{name}={value!r} is not a path")
    return path


def _is_possible(path: str) -> bool:
    try:
        return bool(path) and b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def absolute(path: str) -> str:
    """Returns an absolute path; what cannot be a path is refused, as by `path_of`."""
    return os.path.abspath(path_of("path", path))


def rooted(path: str) -> str:
    """Returns a path that stays valid when the process changes its directory. Nothing is resolved: `link/..` stays."""
    try:
        return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    except OSError:  # this process's directory was deleted, and its contents with it: opening the path reports that
        return path


def parent_of(path: str) -> str:
    """Returns the directory that contains a path."""
    return os.path.dirname(os.path.abspath(path))
