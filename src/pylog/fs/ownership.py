"""Permissions and owners of the files and directories that pylog creates.

A new file gets mode 0666 and a new directory 0777, less the process's umask. If root creates a file or directory in a directory
of another owner, such as a broker's, it gets that directory's owner, group and mode bits (without the execute bits for a file).
Otherwise the owner could no longer use the directory. A file that replaces another keeps that file's mode and owner.

Everything that pylog creates is created here. Modes and owners are changed through open descriptors, so that a user who may
write the directory cannot redirect the change with a link.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from typing import Final

from pylog.fs.open_files import opening

FILE_MODE: Final = 0o666
DIRECTORY_MODE: Final = 0o777
_ROOT: Final = 0
_NEW: Final = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_OLD: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def whose(path: str) -> str:
    """Returns the owner and mode of a path, and this process's user, for an error about permissions; empty if it is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    try:
        owner = f"{pwd.getpwuid(found.st_uid).pw_name}'s (uid {found.st_uid}"
    except KeyError:
        owner = f"another user's (uid {found.st_uid}"
    return f": it is {owner}, {stat.S_IMODE(found.st_mode):04o}), this process is uid {os.geteuid()}"


def create_file(path: str, access: int) -> int:
    """Creates a file, which must not exist, and returns its descriptor.

    Args:
        path: the file.
        access: `os.O_RDWR` or `os.O_WRONLY`.

    Cost: one system call more for root than for other users; two more in a directory of another owner.
    """
    descriptor = opening(os.open, path, access | _NEW, FILE_MODE)
    try:
        if os.geteuid() == _ROOT:
            _take_owner(descriptor, path, FILE_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_directory(path: str) -> None:
    """Creates a directory, which must not exist."""
    os.mkdir(path, DIRECTORY_MODE)
    if os.geteuid() == _ROOT:
        descriptor = opening(os.open, path, _OLD | os.O_DIRECTORY)
        try:
            _take_owner(descriptor, path, DIRECTORY_MODE | stat.S_ISGID)
        finally:
            os.close(descriptor)


def _take_owner(descriptor: int, path: str, mask: int) -> None:
    """Gives an entry that root has just created its directory's owner, group and mode bits, if another user owns that."""
    parent = os.stat(os.path.dirname(path) or os.curdir)
    if parent.st_uid == _ROOT or os.fstat(descriptor).st_uid != _ROOT:
        return
    with contextlib.suppress(PermissionError):  # a file system or a container that does not allow it
        os.fchown(descriptor, parent.st_uid, parent.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(parent.st_mode) & mask)


def replace(source: str, target: str) -> None:
    """Renames a file or directory. A file that replaces another keeps that file's mode, group and owner.

    An owner other than the new file's is kept if this process may change owners, unless the owner is root: an earlier version of
    pylog left root's files in directories of other users.
    """
    with contextlib.suppress(FileNotFoundError):
        old = os.lstat(target)
        if stat.S_ISREG(old.st_mode):
            _keep(source, old)
    os.replace(source, target)


def _keep(source: str, old: os.stat_result) -> None:
    new = os.lstat(source)
    same = (new.st_uid, new.st_gid, stat.S_IMODE(new.st_mode)) == (old.st_uid, old.st_gid, stat.S_IMODE(old.st_mode))
    if same or not stat.S_ISREG(new.st_mode) or (old.st_uid != new.st_uid and old.st_uid == _ROOT):
        return
    with contextlib.suppress(PermissionError):  # a file that belongs to another user
        descriptor = opening(os.open, source, _OLD)
        try:
            if os.fstat(descriptor).st_nlink == 1:  # otherwise the name may be another user's link to a different file
                os.fchown(descriptor, old.st_uid, old.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & DIRECTORY_MODE)
        finally:
            os.close(descriptor)
