"""Recognises the directory of an archive, which has segments as objects and is no log directory."""

from __future__ import annotations

from typing import Final

from pylog.errors import NotALogDirectoryError
from pylog.fs import FileSystem, join
from pylog.urls import directory_url

STORE_DOCUMENTS: Final = ("pylog", "store")  # the directory of the documents that each archive has


def is_archive(fs: FileSystem, path: str) -> bool:
    """Returns whether a directory is an archive. Cost: one `lstat`."""
    return fs.exists(join(path, *STORE_DOCUMENTS))


def check_no_archive(fs: FileSystem, path: str) -> None:
    """Refuses an archive, which would look like an empty log directory.

    Raises:
        NotALogDirectoryError: the directory is an archive; the message has the URL by which it is read.
    """
    if is_archive(fs, path):
        message = f"{path} is the archive of a store, not a log directory; read it by its URL, {directory_url(path)}"
        raise NotALogDirectoryError(message, path=path)
