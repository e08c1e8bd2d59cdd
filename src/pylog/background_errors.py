"""The file in which a store notes errors of its background work, so that `pylog doctor` in another process finds them.

It is derived: a missing or unreadable file only costs the note. A store that ticks in the background, and
closes without such an error, removes it.
"""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec

from pylog import limits
from pylog.clock import Clock
from pylog.errors import CorruptionError
from pylog.fs import FileKind, FileSystem, at_most, join, process_id, remove_derived, write_atomically

BACKGROUND_ERRORS: Final = "pylog-background-errors.json"
_MOST_CHARACTERS: Final = 600  # of the message: up to six bytes each, and a reader takes 4 KiB


class BackgroundErrors(msgspec.Struct, frozen=True):
    """What one process noted.

    Attributes:
        count: the number of errors of that process so far.
        time_ms: when the last one was noted, in milliseconds since 1970.
        process: the id of that process.
        message: the last error.
    """

    count: int
    time_ms: int
    process: int
    message: str


_DECODER: Final = msgspec.json.Decoder(BackgroundErrors)  # created at import: see `pylog.topics.catalog`


def _parse(data: bytes, _path: str) -> BackgroundErrors:
    return _DECODER.decode(data)


NOTES: Final = FileKind("a note of background errors", _parse, at_most(limits.MARKER_BYTES), "remove it")


def write_background_errors(fs: FileSystem, root: str, clock: Clock, count: int, error: BaseException) -> None:
    """Notes an error. Raises nothing: the work that failed matters more. Only counts that are powers of two are written."""
    if count & (count - 1):
        return
    message = f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS].encode(errors="backslashreplace").decode()[:_MOST_CHARACTERS]
    with contextlib.suppress(Exception):
        noted = BackgroundErrors(count, clock.now_ms(), process_id(), message)
        write_atomically(fs, root, BACKGROUND_ERRORS, msgspec.json.encode(noted))


def read_background_errors(fs: FileSystem, root: str) -> BackgroundErrors | None:
    """Returns the note; None if there is none, or none that can be read."""
    path = join(root, BACKGROUND_ERRORS)
    data = NOTES.fetch_derived(fs, path).data
    with contextlib.suppress(CorruptionError):
        return None if data is None else NOTES.parsed(data, path)
    return None


def remove_background_errors(fs: FileSystem, root: str) -> None:
    """Removes the note, if there is one."""
    path = join(root, BACKGROUND_ERRORS)
    if fs.exists(path):
        remove_derived(fs, path)
