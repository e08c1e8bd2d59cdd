"""Small files that are replaced as a whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from pylog.errors import NO_ROOM, StorageFailedError
from pylog.fs.derived import is_no_file, remove_derived, set_aside
from pylog.fs.protocols import File, FileSystem


def _rename_over(fs: FileSystem, source: str, target: str) -> None:
    """Gives a file the name of another, which it replaces. A directory that has that name is set aside."""
    for is_last in (False, True):
        try:
            fs.rename(source, target)
        except StorageFailedError as error:
            if is_last or not is_no_file(error):
                raise
            set_aside(fs, target)
        else:
            return


def write_and_close(file: File, data: bytes) -> None:
    """Writes a new file's content, syncs it and closes it. Its directory is not synced."""
    try:
        file.write(memoryview(data), 0)
        file.sync()
    finally:
        file.close()


def write_atomically(fs: FileSystem, directory: str, name: str, data: bytes) -> None:
    """Replaces a small file. After a crash it has its old or its new content, never a mixture (reliability 4, checkpoints).

    Temporary file, sync, rename, directory sync. A temporary file left by an earlier crash is replaced. A directory that has the
    file's name is set aside.
    """
    target = os.path.join(directory, name)
    temporary = target + ".tmp"
    if fs.exists(temporary):
        remove_derived(fs, temporary)
    try:
        write_and_close(fs.create(temporary), data)
        _rename_over(fs, temporary, target)
    except StorageFailedError:
        with contextlib.suppress(StorageFailedError):  # on a full disk the temporary file would waste space
            fs.remove(temporary)
        raise
    fs.sync_directory(directory)


@contextlib.contextmanager
def left_out_if_full(is_optional: bool = True) -> Iterator[None]:
    """Leaves out the write of an optional file if the disk is full, and only then."""
    try:
        yield
    except StorageFailedError as error:
        if not is_optional or error.errno not in NO_ROOM or not error.passes:
            raise
