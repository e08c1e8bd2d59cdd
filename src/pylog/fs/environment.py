"""The process's environment variables."""

from __future__ import annotations

import os


def environment_variable(name: str) -> str | None:
    """Returns the value of an environment variable; None if it is not set or empty."""
    return os.environ.get(name) or None
