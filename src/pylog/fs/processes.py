"""Identifies processes by names that other processes can read, and finds out whether a process is alive."""

from __future__ import annotations

import functools
import hashlib
import os
import socket
import subprocess
import sys
from typing import NamedTuple

from pylog.fs.open_files import system_file
from pylog.limits import INT32_MAX


class ProcessName(NamedTuple):
    """Identifies a process uniquely, even if its process number is used again.

    Attributes:
        host: a digest of the host name.
        boot: a digest of an id that changes when the machine restarts.
        namespace: the namespace of the process number: each container of a machine has its own.
        pid: the process number in that namespace.
        started: when the process started, in ticks since the machine did; 0 if the system does not report it.
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
        """Returns the name that a text encodes, or None if it encodes none.

        >>> ProcessName.parse("a1-b2-4026531836-17-99").pid
        17
        """
        words = text.split("-")
        if len(words) != len(cls._fields) or not all(word.isdecimal() for word in words[2:]):
            return None
        if int(words[3]) > INT32_MAX:  # the system has no such process, and its calls take no such number
            return None
        return cls(words[0], words[1], *map(int, words[2:]))

    def is_alive(self, boot_id: bytes) -> bool | None:
        """Returns whether the process is alive; None if it runs on another machine or in another container, and so is invisible.

        Args:
            boot_id: this machine's boot id, from the file system.
        """
        here = _name(os.getpid(), boot_id)
        if self.host != here.host or (self.boot == here.boot and self.namespace != here.namespace):
            return None
        if self.boot != here.boot:
            return False
        return _exists(self.pid) and self.started == _started(self.pid)


def parent_process(boot_id: bytes) -> ProcessName:
    """Returns the process that started this one."""
    return _name(os.getppid(), boot_id)


@functools.cache
def boot_id() -> bytes:
    """Returns an id of this run of the operating system; empty if it has none. Read once: it cannot change during a process."""
    if sys.platform == "darwin":
        done = subprocess.run(["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, check=False)
        return done.stdout.strip()
    return (system_file("/proc/sys/kernel/random/boot_id") or b"").strip()


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
    """Returns when a process started, in ticks; 0 if the system does not report it, or the process does not exist."""
    if sys.platform == "darwin":
        return 0
    try:
        return int((system_file(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()[19])
    except (IndexError, ValueError):
        return 0


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
