"""A file system in memory that writes down every change and every sync, so that each moment of a run can be crashed.

`RecordingFileSystem` keeps the calls in order, each with the place in the engine that made it, and `mark`s of what the outside
knew by then. `pylog.testing.crashes` makes from them the states that a crash could have left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Final, NamedTuple, Self

from pylog.clock import Clock
from pylog.testing.disk import Image
from pylog.testing.memory import RENAME, SYNC, SYNC_DIRECTORY, MemoryFileSystem, Operation

GUARDING: Final = (SYNC, SYNC_DIRECTORY, RENAME)  # the kinds that order others: what each of them is for must be seen by a test


class CallSite(NamedTuple):
    """A place in the source that asks something of the disk.

    Attributes:
        kind: of the call.
        module, function, line: where it is made; lines count from 1.
        caller: the function that called that module: what the call is for, when many share it.
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
    """What happened, in order, to a disk that held `start` when it began.

    Attributes:
        start: the disk at the beginning, all of it durable.
        boots: how often the machine had been started.
        operations: the changes and syncs.
        sites: where each of them came from.
        marks: what was known outside, each with the number of operations before it.
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
        """Notes what the outside knows from here on, for whoever judges the crash states."""
        self.marks.append((len(self.operations), fact))

    def until(self, count: int) -> Recording:
        """A recording of its first operations, to be gone on with; the marks are left to who goes on."""
        other = Recording(self.start, self.boots)
        other.operations, other.sites = self.operations[:count], self.sites[:count]
        return other

    def shorten(self, size: int) -> None:
        """Lets the last operation, a write, have had only `size` bytes."""
        last = self.operations[-1]
        self.operations[-1] = last._replace(data=last.data[:size])

    def known_after(self, count: int) -> object:
        """The last mark made before the operation of that number; None without one."""
        known = None
        for position, fact in self.marks:
            if position > count:
                break
            known = fact
        return known


class RecordingFileSystem(MemoryFileSystem):
    """A `MemoryFileSystem` that records. All its processes write into one recording.

    Args:
        clock, image, boots: as there.
        without: whether a call is left out, to see that somebody notices; by default none is.

    Attributes:
        recording: what happened since it was made, or since its last crash.

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
        """Writes the call down, unless it comes from a site that is to be left out."""
        site = _call_site(operation.kind)
        if self._without is not None and self._without(site):
            return False
        self.recording.operations.append(operation)
        self.recording.sites.append(site)
        return True

    def crash(self) -> Self:
        """As `MemoryFileSystem.crash`; what happens afterwards is another recording."""
        other = super().crash()
        other.recording = Recording(other.image(), other.disk.boots)
        return other


def _call_site(kind: str) -> CallSite:
    """Who called: the first frame outside this package, and the first one outside that frame's module."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module(frame).startswith("pylog.testing."):
        frame = frame.f_back
    assert frame is not None
    caller = frame.f_back
    while caller is not None and (_module(caller) == _module(frame) or _module(caller).startswith("pylog.testing.")):
        caller = caller.f_back
    asked = "" if caller is None else f"{_module(caller)}.{caller.f_code.co_qualname}"
    return CallSite(kind, _module(frame), frame.f_code.co_qualname, frame.f_lineno, asked)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
