"""Which process is which, and whether it still lives: told by names that other processes can read."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from typing import NamedTuple


class ProcessName(NamedTuple):
    """A process, told from every other one that ever has its number.

    Attributes:
        host: a digest of the machine's name.
        boot: a digest of what changes when it restarts.
        namespace: of the process numbers: containers of one machine each have their own.
        pid: its number there.
        started: when it began, in ticks since the machine did; 0 where the system does not tell.
    """

    host: str
    boot: str
    namespace: int
    pid: int
    started: int

    def __str__(self) -> str:
        return "-".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> ProcessName | None:
        """The name that a text is; None if it is none.

        >>> ProcessName.parse("a1-b2-4026531836-17-99").pid
        17
        """
        words = text.split("-")
        if len(words) != len(cls._fields) or not all(word.isdecimal() for word in words[2:]):
            return None
        return cls(words[0], words[1], *map(int, words[2:]))

    def is_alive(self, boot_id: bytes) -> bool | None:
        """Whether it lives; None of a process that this one cannot see: on another machine, or in another container.

        Args:
            boot_id: this machine's, from the file system.
        """
        here = _name(os.getpid(), boot_id)
        if self.host != here.host or (self.boot == here.boot and self.namespace != here.namespace):
            return None
        if self.boot != here.boot:
            return False
        return _exists(self.pid) and self.started == _started(self.pid)


def parent_process(boot_id: bytes) -> ProcessName:
    """The process that started this one."""
    return _name(os.getppid(), boot_id)


def _name(pid: int, boot_id: bytes) -> ProcessName:
    return ProcessName(_digest(socket.gethostname().encode()), _digest(boot_id), _namespace(), pid, _started(pid))


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=5).hexdigest()


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _started(pid: int) -> int:
    """When a process began, in ticks; 0 where the system does not tell, or there is none."""
    if sys.platform == "darwin":
        return 0
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
