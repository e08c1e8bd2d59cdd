"""Appends of several threads, held until all of them wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

PATIENCE = 20.0  # seconds, for what takes milliseconds


def wait_until(met: Callable[[], bool]) -> None:
    """Waits for what other threads are about to do."""
    step, passed = 0.001, 0.0
    while not met():
        assert passed < PATIENCE
        threading.Event().wait(step)
        passed += step
