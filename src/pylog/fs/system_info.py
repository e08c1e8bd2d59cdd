"""Reports what the operating system knows about a path: its file system, the free space, the processes that have it open.

The engine does not depend on it. Facts that a system does not report are None, or left out.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

# On these, locks or syncs or both do not reach beyond one machine. Others run over FUSE, so their properties are unknown.
NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs", "webdav"}
)
VOLATILE: Final = frozenset({"tmpfs", "ramfs"})

_LINUX: Final = re.compile(r"\S+ \S+ \S+ \S+ (?P<point>\S+) (?P<options>\S+) .*?- (?P<type>\S+) ")
_DARWIN: Final = re.compile(r".*? on (?P<point>.+) \((?P<type>\w+)(?P<options>.*)\)")


class Mount(NamedTuple):
    """A mounted file system.

    Attributes:
        point: the directory where it is mounted.
        type: the file system's type, such as "ext4" or "nfs4".
        read_only: whether it is mounted read-only.
    """

    point: str
    type: str
    read_only: bool


class Process(NamedTuple):
    """A process: its number and the name of its program."""

    pid: int
    name: str


def parse_mounts(text: str) -> list[Mount]:
    """Returns the mounts in Linux's `/proc/self/mountinfo`, or in the output of `mount` on macOS.

    >>> parse_mounts("22 1 8:1 / /data rw,noatime shared:1 - ext4 /dev/sda1 rw\\n/dev/disk1 on / (apfs, local, read-only)")
    [Mount(point='/data', type='ext4', read_only=False), Mount(point='/', type='apfs', read_only=True)]
    """
    found = []
    for line in text.splitlines():
        parts = _LINUX.match(line) or _DARWIN.match(line)
        if parts is not None:
            options = re.split(r"[, ]+", parts["options"])
            point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), parts["point"])
            found.append(Mount(point, parts["type"], "ro" in options or "read-only" in options))
    return found


def mount_of(path: str) -> Mount | None:
    """Returns the file system that a path is on."""
    real = os.path.realpath(path)
    mounts = [mount for mount in parse_mounts(_mounts()) if _is_below(real, mount.point)]
    return max(mounts, key=lambda mount: len(mount.point), default=None)


def _is_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _mounts() -> str:
    if sys.platform == "darwin":
        return subprocess.run(["/sbin/mount"], capture_output=True, check=False, text=True).stdout
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def room_at(path: str) -> tuple[int, int] | None:
    """Returns the bytes free for this user where a path is, and the bytes in all."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def is_read_only(path: str) -> bool:
    """Returns whether a path is on a file system that cannot be written to; False if the path has just been removed."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def may_write(path: str) -> bool:
    """Returns whether this process may write a directory."""
    return os.access(path, os.W_OK)


def holders_of(path: str) -> list[Process]:
    """Returns the other processes that have a file open and that this user may see. Linux only."""
    real = os.path.realpath(path)
    return [Process(pid, _name_of(pid)) for pid in _pids() if pid != os.getpid() and real in _open_files(pid)]


def _pids() -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def _open_files(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):  # another user's process, or one that has ended
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def _name_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
