"""What a producer has sent, read again."""

from __future__ import annotations

import threading

PATIENCE = 60.0  # seconds that a test waits for what takes milliseconds


class Gate:
    """Blocks each thread that passes, until it is opened."""

    def __init__(self) -> None:
        self.reached, self._opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self._opened.wait(PATIENCE)

    def open(self) -> None:
        self._opened.set()
