"""`pylog-archive.json`: which archive a directory has, and what identifies the directory there. It has no credentials."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Final

import msgspec

from pylog import limits
from pylog.directory.documents import decoded
from pylog.errors import CorruptionError, IllegalStateError, StorageFailedError
from pylog.fs import FileKind, FileSystem, at_most, join, write_atomically
from pylog.topics.signs import ARCHIVE_SETTINGS
from pylog.urls import escaped

RESTORING: Final = "pylog-restore.json"  # in a directory whose restore is not finished


class ArchiveSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `pylog-archive.json`.

    Attributes:
        store_id: the store's id, random; a copy and a restored directory have the same.
        url: the URL of the archive that is used unless another one is given; empty if there was none yet.
        writer: this directory's id as a writer, random; a copy and a restored directory get another one.
        device, inode: the device and inode of the directory that the writer belongs to.
    """

    store_id: str
    url: str = ""
    writer: str = ""
    device: int = 0
    inode: int = 0


_DECODER: Final = msgspec.json.Decoder(ArchiveSettings)


def _parse(data: bytes, path: str) -> ArchiveSettings:
    return decoded(_DECODER, data, partial(_damaged, path))


def _damaged(path: str, why: str) -> CorruptionError:
    return CorruptionError(f"{path} is damaged ({why}); remove it, and give the URL of the archive again", path=path)


KNOWN: Final = FileKind("the settings of an archive", _parse, at_most(limits.MARKER_BYTES), "remove it, and give the URL again")


def _any_bytes(data: bytes, _path: str) -> bytes:
    return data


PLANS: Final = FileKind("the plan of a restore", _any_bytes, at_most(limits.META_PROPERTIES_BYTES), "remove the directory")


def read_settings(fs: FileSystem, root: str) -> ArchiveSettings | None:
    """Reads the settings of a directory; None if it was never archived. Raises CorruptionError if they are damaged."""
    path = join(root, ARCHIVE_SETTINGS)
    data = KNOWN.fetch(fs, path)
    if data is None:
        return None
    found = KNOWN.parsed(data, path)
    return msgspec.structs.replace(found, url=escaped(found.url))


def check_restored(fs: FileSystem, root: str, *, write: bool) -> None:
    """Raises IllegalStateError if the directory has an unfinished restore.

    Raises:
        NotALogDirectoryError: it is no directory that this process may use.

    Cost: one system call.
    """
    try:
        is_unfinished = fs.exists(join(root, RESTORING))
    except StorageFailedError:
        fs.check_directory(root, write=write)  # says what is wrong with the directory, if that is why
        raise
    if is_unfinished:
        message = f"{root} has an unfinished restore: call pylog.restore with the same arguments to finish it, or remove it"
        raise IllegalStateError(message, path=root)


def settings_of(fs: FileSystem, root: str, url: str) -> ArchiveSettings:
    """Returns the settings of a directory that is being archived, and writes them if they are new.

    A copy of a directory has the original's file, but not its inode: it becomes another writer.
    """
    known = read_settings(fs, root)
    device, inode = fs.identity(root) or (0, 0)
    if known is not None and known.writer and (known.device, known.inode) == (device, inode) and known.url:
        return known
    is_mine = known is not None and known.writer and (known.device, known.inode) == (device, inode)
    found = ArchiveSettings(
        store_id=known.store_id if known is not None else secrets.token_hex(16),
        url=(known.url if known is not None else "") or url,
        writer=known.writer if known is not None and is_mine else secrets.token_hex(16),
        device=device,
        inode=inode,
    )
    write_settings(fs, root, found)
    return found


def write_settings(fs: FileSystem, root: str, settings: ArchiveSettings) -> None:
    """Replaces the settings."""
    write_atomically(fs, root, ARCHIVE_SETTINGS, msgspec.json.format(msgspec.json.encode(settings), indent=1) + b"\n")
