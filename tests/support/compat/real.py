"""The real kafka-python, which warns while it is imported."""

from __future__ import annotations

import importlib
import warnings
from typing import Any


def real(name: str) -> Any:
    """Returns a module of the real package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(name)
