"""The only package that touches the operating system's files: pylog reads, writes, syncs, names and locks files through it.

`FileSystem` and `File` are protocols; `OsFileSystem` implements them with the operating system. Tests of crashes, faults and
power losses run the same engine on other implementations (`pylog.testing`), so no higher package may depend on which one it has.

Rules kept here: no write is short (the loop writes everything or raises). Files are created with `O_EXCL`, opened without
following links, and closed on exec. A failed sync is never retried. Only files that never change again are mapped.
"""

from pylog.fs.derived import DerivedFile, MappedFile, is_no_file, remove_derived, set_aside
from pylog.fs.door import Door
from pylog.fs.environment import environment_variable, names_in, user_cache_directory
from pylog.fs.extents import copy_file, copy_range, data_ranges, extend
from pylog.fs.gate import Gate
from pylog.fs.held import HeldDirectory
from pylog.fs.inside import inside
from pylog.fs.kinds import FileKind, at_most, guarded, reason_of
from pylog.fs.living import LiveSet
from pylog.fs.open_files import FILES, WRITERS, OpenFiles
from pylog.fs.outside import replace_file
from pylog.fs.pages import ResidentPages
from pylog.fs.paths import absolute, base_name, join, parent_of, path_of, resolved, rooted
from pylog.fs.processes import ProcessName, parent_process
from pylog.fs.protocols import NAMES_ONLY, Bytes, DirectoryEntry, DirectoryLock, File, FileSystem, LockByte, LockFile, Vouched
from pylog.fs.replacing import left_out_if_full, write_and_close, write_atomically
from pylog.fs.system import OsFileSystem, hold_over_forks, on_fork, process_id

__all__ = [
    "FILES",
    "NAMES_ONLY",
    "WRITERS",
    "Bytes",
    "DerivedFile",
    "DirectoryEntry",
    "DirectoryLock",
    "Door",
    "File",
    "FileKind",
    "FileSystem",
    "Gate",
    "HeldDirectory",
    "LiveSet",
    "LockByte",
    "LockFile",
    "MappedFile",
    "OpenFiles",
    "OsFileSystem",
    "ProcessName",
    "ResidentPages",
    "Vouched",
    "absolute",
    "at_most",
    "base_name",
    "copy_file",
    "copy_range",
    "data_ranges",
    "environment_variable",
    "extend",
    "guarded",
    "hold_over_forks",
    "inside",
    "is_no_file",
    "join",
    "left_out_if_full",
    "names_in",
    "on_fork",
    "parent_of",
    "parent_process",
    "path_of",
    "process_id",
    "reason_of",
    "remove_derived",
    "replace_file",
    "resolved",
    "rooted",
    "set_aside",
    "user_cache_directory",
    "write_and_close",
    "write_atomically",
]
