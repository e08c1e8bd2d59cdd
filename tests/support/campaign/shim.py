"""The door to `shim.c`: faults in the C library's calls, for a process that was started with it preloaded."""

from __future__ import annotations

import ctypes
import enum
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from support.campaign.processes import CampaignError

_SOURCE: Final = Path(__file__).with_name("shim.c")
FOR_EVER: Final = 1 << 40


class Call(enum.IntEnum):
    """Kinds of calls, numbered as in `shim.c`. `ANY` is any of them but `READ`s."""

    WRITE = 0
    SYNC = 1
    CUT = 2
    RENAME = 3
    UNLINK = 4
    CREATE = 5
    READ = 6
    ANY = 7


class Action(enum.IntEnum):
    """What happens to a call, numbered as in `shim.c`."""

    FAIL = 0  # it fails with the errno given
    SHORT = 1  # it writes so many bytes, and says so
    LIE = 2  # it does nothing, and says that it did
    KILL_BEFORE = 3
    KILL_AFTER = 4
    TEAR = 5  # it writes so many bytes, and the process is dead


class Fault(NamedTuple):
    """What to do to which calls.

    Attributes:
        call: which kind is counted.
        action: what is done.
        argument: of the action: an errno, or bytes.
        times: to how many calls from the chosen one on.
        suffix: of the paths whose calls are counted.
        after: how many calls behind the chosen one the first is; None: it is the first of all.
    """

    call: Call
    action: Action
    argument: int = 0
    times: int = 1
    suffix: str = ""
    after: int | None = 0


class Shim:
    """The preloaded shim of this process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        if not hasattr(self._library, "shim_arm"):
            raise CampaignError("this interpreter was started without the shim in LD_PRELOAD")
        self._library.shim_count.restype = ctypes.c_long

    def arm(self, root: str, faults: Iterable[Fault], first: int = 1) -> None:
        """From now on counts the calls on files under a root, and does what the faults say from call `first` (from 1) on."""
        for fault in faults:
            begin = 1 if fault.after is None else first + fault.after
            numbers = map(ctypes.c_long, (begin, fault.times, fault.argument))
            self._library.shim_arm(root.encode(), fault.suffix.encode(), int(fault.call), int(fault.action), *numbers)

    def leave_room(self, root: str, size: int) -> None:
        """From now on all files under a root together can grow by so many bytes; -1: as they like."""
        self._library.shim_leave_room(root.encode(), ctypes.c_long(size))

    @property
    def count(self) -> int:
        """How many calls the first fault has counted."""
        return int(self._library.shim_count())


def compile_shim(directory: Path) -> Path:
    """Compiles the shim and returns the library's path.

    Raises:
        CampaignError: there is no C compiler, or it refuses.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CampaignError(
            "these tests compile a small library: a C compiler is needed. Run ./dev setup, or as root:\n"
            "  Debian, Ubuntu:  apt-get install gcc libc6-dev\n  Fedora, RHEL:    dnf install gcc"
        )
    library = directory / "shim.so"
    command = [compiler, "-Wall", "-Werror", "-O1", "-shared", "-fPIC", str(_SOURCE), "-o", str(library), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CampaignError(f"{' '.join(command)} failed:\n{done.stderr}")
    return library
