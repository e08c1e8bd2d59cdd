"""Test tools for programs that use pylog: simulated crashes, and failing calls.

    from pylog.testing import MemoryFileSystem

    fs = MemoryFileSystem()
    with pylog.open("/shop", fs=fs) as store:
        ...
    fs = fs.crash()  # a power loss: everything that was not synced is lost
    with pylog.open("/shop", fs=fs) as store:
        ...

* `MemoryFileSystem` keeps everything in memory.
* `RecordingFileSystem` also records each call, and `Moment` builds from the record every state that a crash can leave.
* `FaultyFileSystem` makes the n-th call fail.
* `strategies` has Hypothesis strategies, and is the only module that requires Hypothesis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylog.testing.crashes import Crash, Moment, restarted
from pylog.testing.disk import MappedFileError
from pylog.testing.faults import FAULTS, FaultyFileSystem
from pylog.testing.memory import MemoryFileSystem
from pylog.testing.recording import Recording, RecordingFileSystem

if TYPE_CHECKING:
    from pylog.testing import strategies

__all__ = [
    "FAULTS",
    "Crash",
    "FaultyFileSystem",
    "MappedFileError",
    "MemoryFileSystem",
    "Moment",
    "Recording",
    "RecordingFileSystem",
    "restarted",
    "strategies",
]


def __getattr__(name: str) -> Any:
    """Imports the strategies on first use, because hypothesis is an extra."""
    if name != "strategies":
        raise AttributeError(f"module 'pylog.testing' has no attribute {name!r}")
    import importlib

    return importlib.import_module("pylog.testing.strategies")
