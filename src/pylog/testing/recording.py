"""A file system in memory that records every change and every sync, to simulate a crash at any moment of a run.

`RecordingFileSystem` records the calls in order, each with its call site, and the `mark`s of the test between them.
`pylog.testing.crashes` builds from a recording the states that a crash can leave.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Final, NamedTuple, Self

from pylog.clock import Clock
from pylog.testing.disk import Image
from pylog.testing.memory import RENAME, SYNC, SYNC_DIRECTORY, MemoryFileSystem, Operation

_PASSING_ON: Final = ("pylog.testing.", "pylog.fs.door", "pylog.fs.held")  # modules that only pass calls on
GUARDING: Final = (SYNC, SYNC_DIRECTORY, RENAME)  # kinds that order other operations; a test must fail without each of them


class CallSite(NamedTuple):
    """The place in the source of a call to the disk.

    Attributes:
        kind: kind of the call.
        module, function, line: place of the call; lines count from 1.
        caller: the function that called this module, which tells the purpose of a shared call.
    """

    kind: str
    module: str
    function: str
    line: int
    caller: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.module}.{self.function}:{self.line} for {self.caller}"


Without = Callable[[CallSite], bool]


class Recording:
    """The operations on a disk, in order.

    Attributes:
        start: content of the disk at the beginning, all durable.
        boots: how often the machine was started before.
        operations: the changes and syncs.
        sites: the call site of each operation.
        marks: the facts that a test marked, each with the number of operations before it.
    """

    def __init__(self, start: Image, boots: int) -> None:
        self.start = start
        self.boots = boots
        self.operations: list[Operation] = []
        self.sites: list[CallSite] = []
        self.marks: list[tuple[int, object]] = []

    def __len__(self) -> int:
        return len(self.operations)

    def mark(self, fact: object) -> None:
        """Adds a fact that holds from here on, for the check of crash states."""
        self.marks.append((len(self.operations), fact))

    def known_after(self, count: int) -> object:
        """Returns the last mark before the operation of that number; None without one."""
        known = None
        for position, fact in self.marks:
            if position > count:
                break
            known = fact
        return known


class RecordingFileSystem(MemoryFileSystem):
    """A `MemoryFileSystem` that records. All of its processes share one recording.

    Args:
        clock: as for `MemoryFileSystem`.
        image: as for `MemoryFileSystem`.
        boots: as for `MemoryFileSystem`.
        without: returns True for a call to leave out, to check that a test notices; by default no call is left out.

    Attributes:
        recording: the operations since the creation of the file system, or since its last crash.

    >>> fs = RecordingFileSystem()
    >>> file = fs.create("/a")
    >>> file.write(memoryview(b"abc"), 0)
    >>> [operation.kind for operation in fs.recording.operations]
    ['create', 'write']
    """

    def __init__(
        self, *, clock: Clock | None = None, image: Image | None = None, boots: int = 1, without: Without | None = None
    ) -> None:
        super().__init__(clock=clock, image=image, boots=boots)
        self._without = without
        self.recording = Recording(self.image(), boots)

    def admit(self, operation: Operation) -> bool:
        """Notes the call, unless `without` leaves it out."""
        site = _call_site(operation.kind)
        if self._without is not None and self._without(site):
            return False
        self.recording.operations.append(operation)
        self.recording.sites.append(site)
        return True

    def crash(self) -> Self:
        """Loses the power, like `MemoryFileSystem.crash`. A new recording begins."""
        other = super().crash()
        other.recording = Recording(other.image(), other.disk.boots)
        return other


def _call_site(kind: str) -> CallSite:
    """Returns the caller: the first frame that does not pass the call on, and the first one outside that frame's module."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module(frame).startswith(_PASSING_ON):
        frame = frame.f_back
    assert frame is not None
    caller = frame.f_back
    while caller is not None and (_module(caller) == _module(frame) or _module(caller).startswith(_PASSING_ON)):
        caller = caller.f_back
    asked = "" if caller is None else f"{_module(caller)}.{caller.f_code.co_qualname}"
    return CallSite(kind, _module(frame), frame.f_code.co_qualname, frame.f_lineno, asked)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
