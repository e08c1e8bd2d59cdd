"""A read-only file system whose segments are objects: the engine reads logs of an object store through it.

It shows each partition as the directory that a local log would have. If it has a local file system too, local names count
first, and the objects have the segments before the local ones.
"""

from __future__ import annotations

import errno
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, NoReturn, Protocol

from pylog import limits
from pylog.errors import NotALogDirectoryError, ObjectNotFoundError, StorageFailedError
from pylog.fs import Bytes, DirectoryEntry, DirectoryLock, File, FileSystem, LockFile, Vouched, join
from pylog.objects.ranges import RangeSource
from pylog.objects.remote_file import Block, LogBytes, RemoteFile, block_size
from pylog.segment.names import LOG, file_name, parse

_NOT_THERE: Final = errno.ENOENT
_MOST_AHEAD: Final = 2 * limits.REMOTE_BLOCKS_AHEAD  # blocks that a walk has begun in the logs after its own: of two walks
BOOT: Final = b"objects"  # one boot: objects never change, so no crash of this machine concerns them


class RemoteEntry(NamedTuple):
    """A file in the directory of a partition.

    Attributes:
        size: in bytes; 0 for a small file whose size is not known.
        small: returns the bytes of a small file; None for a log, or for a file that does not exist after all.
        log: reads a log; None for a small file.
        vouched: what a manifest with checksums says of a log.
        next_base: the base offset of the log after this one; None for a small file, or if there is none.
    """

    size: int
    small: Callable[[], bytes | None] | None = None
    log: RangeSource | None = None
    vouched: Vouched | None = None
    next_base: int | None = None


Folder = Mapping[str, RemoteEntry]


class _LookedUp(NamedTuple):
    """The files of a partition, and for which starts of the local log and of the whole one they were found."""

    local_start: int | None
    log_start: int | None
    folder: Folder


class Folders(Protocol):
    """The directories of partitions that have objects."""

    def names(self) -> list[str]:
        """Returns the names of the directories, besides those of the local file system."""
        ...

    def root_files(self) -> Mapping[str, bytes]:
        """Returns the files of the log directory itself, by name; none if there is a local file system."""
        ...

    def log_start(self, name: str) -> int | None:
        """Returns the log start offset of a partition, as the local directory has it now; None if there is none."""
        ...

    def folder(self, name: str, local_start: int | None) -> Folder:
        """Returns the files of a partition; none for a name that is no partition.

        Args:
            name: the directory's name.
            local_start: base offset of the first local segment; None if there is no local one.

        Raises:
            ObjectStoreError, CorruptionError: the objects cannot be read.
        """
        ...


class RemoteFileSystem:
    """A file system over objects. See `FileSystem` for the methods; all that change something raise StorageFailedError.

    Args:
        root: the path that stands for the log directory.
        folders: the directories of partitions.
        base: the local file system; None if there are only objects.
    """

    def __init__(self, root: str, folders: Folders, base: FileSystem | None = None) -> None:
        self._root = root.rstrip("/")
        self._folders = folders
        self._base = base
        self._guard = threading.Lock()
        self._known: dict[str, _LookedUp] = {}
        self._ahead: OrderedDict[str, list[Block]] = OrderedDict()  # first blocks of logs, by path

    # ---- names ---------------------------------------------------------------------------------------------------------------

    def _split(self, path: str) -> tuple[str, str] | None:
        """Returns the parts of a path under the root: directory and file; ("", name) for a name in the root itself."""
        if path.rstrip("/") == self._root:
            return "", ""
        if not path.startswith(self._root + "/"):
            return None
        directory, _, name = path[len(self._root) + 1 :].rstrip("/").partition("/")
        return (directory, name) if name else ("", directory)

    def _entry(self, path: str) -> RemoteEntry | None:
        """Returns the file at a path; None if the objects have none."""
        parts = self._split(path)
        if parts is None or "/" in parts[1] or not parts[0]:
            return None
        found = self._folder(parts[0]).get(parts[1])
        if found is None and self._has_moved(*parts):
            self.list(join(self._root, parts[0]), sizes=LOG)
            found = self._folder(parts[0]).get(parts[1])
        return found

    def _has_moved(self, directory: str, name: str) -> bool:
        """Returns whether a file is of a segment that was local when listed and is not now: a broker moved or deleted it."""
        segment = parse(name)
        if self._base is None or segment is None:
            return False
        with self._guard:
            local_start = self._known[directory].local_start if directory in self._known else None
        was_local = local_start is not None and segment.offset >= local_start
        return was_local and not self._is_local(join(self._root, directory, file_name(segment.offset, LOG)))

    def _folder(self, name: str) -> Folder:
        with self._guard:
            known = self._known.get(name)
        if known is not None:
            return known.folder
        if self._base is not None:
            if not self._is_local(join(self._root, name)):
                return {}  # each partition of a tier has a local directory
            self.list(join(self._root, name), sizes=LOG)  # finds the first local segment
            with self._guard:
                return self._known[name].folder if name in self._known else {}
        return self._folder_from(name, None)

    def _folder_from(self, name: str, local_start: int | None) -> Folder:
        with self._guard:
            known = self._known.get(name)
        log_start = self._folders.log_start(name)
        if known is None or known[:2] != (local_start, log_start):
            known = _LookedUp(local_start, log_start, self._folders.folder(name, local_start))
            with self._guard:
                self._known[name] = known
        return known.folder

    def _forget(self, path: str) -> None:
        """Has the next call list the objects of a partition again: one of them is not there."""
        parts = self._split(path)
        with self._guard:
            self._known.pop("" if parts is None else parts[0], None)

    def _is_local(self, path: str) -> bool:
        return self._base is not None and self._base.exists(path)

    # ---- reading -------------------------------------------------------------------------------------------------------------

    def open(self, path: str, *, write: bool = False) -> File:
        if write:
            self._refuse(path)
        local = self._opened_locally(path)
        if local is not None:
            return local
        entry = self._entry(path)
        if entry is None or (entry.log is None and entry.small is None):
            raise self._missing(path)
        if entry.log is None:
            return self._small_file(path, entry)
        log = _Watched(entry.log, partial(self._forget, path))
        return RemoteFile(path, log, entry.size, identity_of(log.url), _Following(self, path, entry))

    def _opened_locally(self, path: str) -> File | None:
        if self._base is None or not self._is_local(path):
            return None
        try:
            return self._base.open(path)
        except StorageFailedError:
            if self._is_local(path):
                raise
            return None  # a broker has moved or deleted it since

    def _small_file(self, path: str, entry: RemoteEntry) -> File:
        data = entry.small() if entry.small is not None else None
        if data is None:
            raise self._missing(path)
        return _SmallFile(path, data)

    def read(self, path: str, limit: int) -> bytes | None:
        parts = self._split(path)
        if self._base is not None and (self._is_local(path) or parts is None):
            found = self._base.read(path, limit)
            if found is not None or parts is None:
                return found
        if parts is not None and not parts[0]:
            data = self._folders.root_files().get(parts[1])
        else:
            entry = self._entry(path)
            data = entry.small() if entry is not None and entry.small is not None else None
        if data is not None and len(data) > limit:
            message = f"{path} has {len(data)} bytes, more than the {limit} that it can have"
            raise StorageFailedError(message, path=path, errno=errno.EFBIG)
        return data

    def exists(self, path: str) -> bool:
        if self._is_local(path):
            return True
        parts = self._split(path)
        if parts is None:
            return False
        if not parts[0]:
            return parts[1] == "" or parts[1] in self._folders.names() or parts[1] in self._folders.root_files()
        entry = self._entry(path)
        return entry is not None and (entry.log is not None or (entry.small is not None and entry.small() is not None))

    def identity(self, path: str) -> tuple[int, int] | None:
        if self._base is not None and (found := self._base.identity(path)) is not None:
            return found
        entry = self._entry(path)
        if entry is not None:
            return 0, identity_of(path if entry.log is None else entry.log.url)
        return (0, identity_of(path)) if self.exists(path) else None

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        parts = self._split(path)
        local = self._base.list(path, sizes=sizes) if self._base is not None else []
        if parts is None or (parts[0] and parts[1]):
            return local
        if not parts[1]:
            names = dict.fromkeys(self._folders.names(), True) | dict.fromkeys(self._folders.root_files(), False)
            found = {
                name: DirectoryEntry(name, is_directory=directory, is_file=not directory, size=0, mtime_ms=0)
                for name, directory in names.items()
            }
            return _merged(found, local)
        starts = [int(entry.name[:20]) for entry in local if entry.name.endswith(LOG) and entry.name[:20].isdigit()]
        folder = self._folder_from(parts[1], min(starts) if starts else None)
        if self._base is None and not folder:
            raise self._missing(path)
        entries = {
            name: DirectoryEntry(name, is_directory=False, is_file=True, size=entry.size, mtime_ms=0, vouched=entry.vouched)
            for name, entry in folder.items()
        }
        return _merged(entries, local)

    def check_directory(self, path: str, *, write: bool, follow: bool = True) -> None:
        if write:
            self._refuse(path)
        if self._base is not None:
            self._base.check_directory(path, write=False, follow=follow)
            return
        parts = self._split(path)
        if parts is None or parts[0] or (parts[1] and parts[1] not in self._folders.names()):
            raise NotALogDirectoryError(f"{path} is not a directory of this archive", path=path)

    def link_target(self, path: str) -> str | None:
        return self._base.link_target(path) if self._base is not None else None

    def lock_owner(self, path: str, start: int = 0, size: int = 0) -> int | None:
        return self._base.lock_owner(path, start, size) if self._base is not None else None

    def boot_id(self) -> bytes:
        return self._base.boot_id() if self._base is not None else BOOT

    def map(self, path: str) -> Bytes:
        if self._base is not None and self._is_local(path):
            return self._base.map(path)
        raise StorageFailedError(f"cannot map {path}: it is an object", path=path, errno=errno.ENODEV)

    # ---- reading ahead -------------------------------------------------------------------------------------------------------

    def fetch_ahead(self, path: str, after: int | None, count: int) -> None:
        """Starts reading the first blocks of the logs after one, so that requests are in flight across the border.

        Args:
            path: the log.
            after: base offset of the log after it; None if there is none.
            count: how many blocks. A log that has fewer is followed by the one after it.
        """
        parts = self._split(path)
        folder = {} if parts is None else self._folder(parts[0])
        while after is not None and count > 0:
            name = file_name(after, LOG)
            entry = folder.get(name)
            if entry is None or entry.log is None or not entry.size:
                return
            following = join(path.rpartition("/")[0], name)
            count -= self._begin(following, _Watched(entry.log, partial(self._forget, following)), entry.size, count)
            after = entry.next_base

    def _begin(self, path: str, log: RangeSource, size: int, count: int) -> int:
        """Starts reading the first blocks of a log, as far as they are not begun. Returns how many it has of those."""
        step = block_size(log.grain)
        starts = range(0, size, step)[:count]
        with self._guard:
            blocks = self._ahead.setdefault(path, [])
            blocks += [Block(log, start, min(start + step, size)) for start in starts[len(blocks) :]]
            while sum(map(len, self._ahead.values())) > _MOST_AHEAD:  # of walks that did not go on
                self._ahead.popitem(last=False)
        return len(starts)

    def taken(self, path: str) -> Sequence[Block]:
        """Returns the first blocks of a log that were fetched ahead."""
        with self._guard:
            return self._ahead.pop(path, [])

    # ---- refusing ------------------------------------------------------------------------------------------------------------

    def _missing(self, path: str) -> StorageFailedError:
        return StorageFailedError(f"{path} does not exist", path=path, errno=_NOT_THERE)

    def _refuse(self, path: str) -> NoReturn:
        message = f"cannot change {path}: an object store is open for reading only; use mode='r'"
        raise StorageFailedError(message, path=path, errno=errno.EROFS)

    def create(self, path: str) -> File:
        self._refuse(path)

    def make_directory(self, path: str) -> None:
        self._refuse(path)

    def rename(self, source: str, target: str) -> None:  # noqa: ARG002 - nothing is renamed
        self._refuse(source)

    def remove(self, path: str) -> None:
        self._refuse(path)

    def remove_tree(self, path: str) -> None:
        self._refuse(path)

    def sync_directory(self, path: str) -> None:
        self._refuse(path)

    def open_locks(self, path: str) -> LockFile:
        self._refuse(path)

    def lock_directory(self, path: str) -> DirectoryLock | None:  # noqa: ARG002 - it has no locks
        return None


def _merged(found: Mapping[str, DirectoryEntry], local: Sequence[DirectoryEntry]) -> list[DirectoryEntry]:
    """Returns entries in the order of names. Local ones count before others of the same name."""
    return sorted({**found, **{entry.name: entry for entry in local}}.values(), key=lambda entry: entry.name)


class BytesInMemory:
    """Bytes in memory as a log: an empty active segment, or a small file.

    Args:
        url: for errors.
        data: the bytes.
    """

    grain: int = 1

    def __init__(self, url: str, data: bytes = b"") -> None:
        self.url = url
        self._data = data

    def read(self, position: int, end: int) -> LogBytes:
        """Returns a range of the bytes."""
        return memoryview(self._data)[position:end]


class _Watched:
    """A log that tells when its object is not there: the owner of the tier may have deleted it since.

    Args:
        source: reads the log.
        is_missing: called then.
    """

    def __init__(self, source: RangeSource, is_missing: Callable[[], None]) -> None:
        self.url = source.url
        self.grain = source.grain
        self._source = source
        self._is_missing = is_missing

    def read(self, position: int, end: int) -> LogBytes:
        """Returns a range. Raises as its source."""
        try:
            return self._source.read(position, end)
        except ObjectNotFoundError:
            self._is_missing()
            raise


class _SmallFile(RemoteFile):
    """A small file, open for reading. Its bytes are those of now: another store may have others at the same path.

    Args:
        path: its path.
        data: its bytes.
    """

    def __init__(self, path: str, data: bytes) -> None:
        super().__init__(path, BytesInMemory(path, data), len(data), identity_of(path))

    def _range(self, position: int, end: int) -> LogBytes:
        self.check()
        return self._source.read(position, end)


class _Following:
    """The logs after one. See `NextLog`."""

    def __init__(self, fs: RemoteFileSystem, path: str, entry: RemoteEntry) -> None:
        self._fs = fs
        self._path = path
        self._after = entry.next_base

    def prefetch(self, count: int) -> None:
        self._fs.fetch_ahead(self._path, self._after, count)

    def taken(self) -> Sequence[Block]:
        return self._fs.taken(self._path)


def identity_of(text: str) -> int:
    """Returns a number that stands for an object as an inode does for a file: the same in each process.

    >>> identity_of("s3://logs/a") == identity_of("s3://logs/b")
    False
    """
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
