"""Stores with a clock that the test moves."""

from __future__ import annotations

from typing import Any

import pylog
from pylog.clock import ManualClock
from pylog.testing import MemoryFileSystem

HOUR = 3_600_000
NOW = 1_700_000_000_000
ANY_TIME = {"message_timestamp_after_max_ms": 2**63 - 1}


def clock() -> ManualClock:
    return ManualClock(NOW)


def fs(clock: ManualClock) -> MemoryFileSystem:
    return MemoryFileSystem(clock=clock)


def opened(fs: Any, clock: ManualClock, **options: Any) -> pylog.Store:
    return pylog.open("/d", fs=fs, clock=clock, durability=pylog.Durability.OS, **options)


def values(log: pylog.Log) -> list[bytes | None]:
    return [record.value for record in log.records()]
