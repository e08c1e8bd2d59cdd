"""The instruments that pylog is tested with, for programs that build on it and want to know what a crash does to them.

    from pylog.testing import MemoryFileSystem

    fs = MemoryFileSystem()
    with pylog.open("/shop", fs=fs) as store:
        ...
    fs = fs.crash()  # the power is lost: what was not synced is gone
    with pylog.open("/shop", fs=fs) as store:
        ...

`MemoryFileSystem` keeps everything in memory; `RecordingFileSystem` also writes down each call, and `crashes` makes from that
every state which a crash can leave; `FaultyFileSystem` lets the n-th call fail; `LogModel` says what must be there afterwards.
`strategies` are for Hypothesis, which only they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylog.testing.crashes import Crash, Moment, PartialWrite, restarted
from pylog.testing.disk import Image, MappedFileError
from pylog.testing.faults import FAULTS, FaultKind, FaultyFileSystem
from pylog.testing.memory import MemoryFileSystem, Operation
from pylog.testing.models import Found, LogModel, Promise
from pylog.testing.recording import CallSite, Recording, RecordingFileSystem

if TYPE_CHECKING:
    from pylog.testing import strategies

__all__ = [
    "FAULTS",
    "CallSite",
    "Crash",
    "FaultKind",
    "FaultyFileSystem",
    "Found",
    "Image",
    "LogModel",
    "MappedFileError",
    "MemoryFileSystem",
    "Moment",
    "Operation",
    "PartialWrite",
    "Promise",
    "Recording",
    "RecordingFileSystem",
    "restarted",
    "strategies",
]


def __getattr__(name: str) -> Any:
    """Imports the strategies when they are first asked for: hypothesis is an extra."""
    if name != "strategies":
        raise AttributeError(f"module 'pylog.testing' has no attribute {name!r}")
    import importlib

    return importlib.import_module("pylog.testing.strategies")
