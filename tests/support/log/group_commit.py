"""Appends of several threads, held until all of them wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pylog import Durability
from pylog.log.writing.requests import Request
from pylog.record.builder import BatchEncoder, rows_from_records
from pylog.record.rows import Rows

NOW = 1_700_000_000_000


PATIENCE = 20.0  # seconds, for what takes milliseconds


def wait_until(met: Callable[[], bool]) -> None:
    """Waits for what other threads are about to do."""
    step, passed = 0.001, 0.0
    while not met():
        assert passed < PATIENCE
        threading.Event().wait(step)
        passed += step


def rows(*sent: bytes) -> Rows:
    return rows_from_records(None, sent, None, None, NOW)


def request(size: int = 1, level: Durability = Durability.SYNC) -> Request:
    made = Request([rows(b"x")], BatchEncoder(), level)
    made.size = size
    return made
