"""The process's environment variables, and what they say of the user's directories."""

from __future__ import annotations

import os
import sys


def environment_variable(name: str) -> str | None:
    """Returns the value of an environment variable; None if it is not set or empty."""
    return os.environ.get(name) or None


def user_cache_directory(program: str) -> str:
    """Returns the directory where a program keeps its cache for this user, whether or not it exists."""
    if sys.platform == "darwin":
        return os.path.expanduser(f"~/Library/Caches/{program}")
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), program)


def names_in(directory: str) -> list[str]:
    """Returns the names in a directory that is no part of a store; none if it cannot be read."""
    try:
        return os.listdir(directory)
    except OSError:
        return []
