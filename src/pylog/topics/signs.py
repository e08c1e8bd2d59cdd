"""How a directory is recognised, and the file names that show that it is a log directory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pylog.directory.checkpoints import CLEAN_SHUTDOWN, CLEANER, HIGH_WATERMARK, LOG_START, RECOVERY_POINT
from pylog.directory.locks import KAFKA_LOCK, PYLOG_LOCK
from pylog.errors import NotALogDirectoryError
from pylog.fs import DirectoryEntry, FileSystem
from pylog.segment.names import TEMPORARY
from pylog.topics.catalog import CATALOG

META_PROPERTIES: Final = "meta.properties"  # which broker it is; in its directories only
ARCHIVE_SETTINGS: Final = "pylog-archive.json"  # the only file that a restore of an archive without topics makes
_CHECKPOINTS: Final = (RECOVERY_POINT, LOG_START, CLEANER, HIGH_WATERMARK)
_SIGNS: Final = frozenset({CATALOG, META_PROPERTIES, ARCHIVE_SETTINGS, CLEAN_SHUTDOWN, KAFKA_LOCK, PYLOG_LOCK, *_CHECKPOINTS})


_OF_THE_SYSTEM: Final = frozenset(
    {"lost+found", ".DS_Store", ".gitignore", ".gitkeep", ".keep"}
)  # in a directory meant to be empty


def is_directory(fs: FileSystem, path: str) -> bool:
    """Returns whether a path is a directory that this process may read."""
    try:
        fs.check_directory(path, write=False)
    except NotALogDirectoryError:
        return False
    return True


def is_unused(entries: Iterable[DirectoryEntry]) -> bool:
    """Returns whether a directory is empty, except for files that file systems and tools put into each directory."""
    return all(entry.name in _OF_THE_SYSTEM for entry in entries)


def is_log_directory(entries: Iterable[DirectoryEntry]) -> bool:
    """Returns whether a directory with these entries belongs to a broker or to pylog.

    A power loss can leave nothing but a file that was being replaced.
    """
    return any(entry.name.removesuffix(TEMPORARY) in _SIGNS for entry in entries)
