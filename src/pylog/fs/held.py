"""Guards a directory that is open for writing: its names must still lead to the files that are open.

People restore a backup over a running store, rename its directory, or remove it. The open files stay usable, but their names
no longer lead to them, and each name leads to a file that the store does not know. So every call that creates, renames, cuts or
removes a file by name goes through `HeldDirectory`, which first compares device and inode.

Other pylog processes replace and delete segments too, and so do other threads of this process, under the log's lock. Only the
thread that has this lock can distinguish these changes from a restored backup, because the header counts them. Only that thread
compares the files. All other threads, such as those of readers and of compaction, compare the directory alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pylog.errors import DirectoryReplacedError, StorageFailedError
from pylog.fs.protocols import Bytes, DirectoryEntry, DirectoryLock, File, FileSystem, LockFile

_ENOENT: Final = 2
_WHOLE_CHECK_MS: Final = 64
_LOG: Final = ".log"  # in the names of segments
Identity = tuple[int, int]
_NOTHING: Final = (0, 0)  # of a directory that was removed at that moment


def _never() -> bool:
    return False


def _always() -> bool:
    return True


class HeldDirectory:
    """A file system for the files of one directory. Once the directory is held, changes by name are refused if it was replaced.

    Args:
        fs: the file system. If it is a `HeldDirectory` too, of the directory above, that one is checked as well.
        directory: the directory.

    Attributes:
        below: the file system given.
        checked_ms: the time of the last check before an acknowledgement, in milliseconds.
        is_owner: tells whether the calling thread has the lock under which the files change. By default, there is no lock.
        failure: why the directory takes no more changes; None while it does. It stays set: the owner must close and open again.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self.below = fs
        self._directory = directory
        self._check_above: Callable[[], None] | None = fs.check if isinstance(fs, HeldDirectory) else None
        self._identity: Identity | None = None
        self._header: tuple[str, Identity] | None = None
        self._active: tuple[str, Identity] | None = None
        self._is_deleted: Callable[[], bool] = _never
        self._is_changed: Callable[[], bool] = _never
        self.is_owner: Callable[[], bool] = _always
        self._last_identity: Identity | None = None  # of the directory that was held last
        self._inodes: dict[str, int] = {}  # of the segments that were loaded or created, by name
        self._loader = 0  # the thread that loads the log
        self._watch: Callable[[], None] | None = None
        self.checked_ms = -1
        self._files: list[tuple[str, Identity]] = []  # the header and the active segment
        base = fs.below if isinstance(fs, HeldDirectory) else fs
        self._identify = getattr(base, "base", base).identity  # asked for at each acknowledgement, so directly
        self.failure: str | None = None

    # ---- what is held --------------------------------------------------------------------------------------------------------

    def hold(self, watch: Callable[[], None] | None = None) -> None:
        """Holds the directory that the path leads to now.

        Args:
            watch: is called by each check that succeeds, and may refuse by an error of its own.
        """
        self._watch = watch
        self._identity = self._last_identity = self._identify(self._directory) or _NOTHING

    def hold_files(self, header: File, active: File, *, is_deleted: Callable[[], bool], is_changed: Callable[[], bool]) -> None:
        """Holds the directory and its two files that are open for writing.

        Args:
            header: the shared header. Other processes write into it, but never replace it.
            active: the active segment. Another process that truncates the log may replace it, and says so in the header.
            is_deleted: tells whether another process has marked the directory as deleted.
            is_changed: tells whether another process has written into the header.
        """
        self._header = header.path, header.identity()
        self.hold_active(active)
        self._is_deleted, self._is_changed = is_deleted, is_changed
        self.hold()

    def hold_active(self, active: File) -> None:
        """Holds another active segment."""
        self._active = active.path, active.identity()
        self._files = [held for held in (self._header, self._active) if held is not None]

    def release(self) -> None:
        """Holds nothing any more. A failure stays."""
        self._identity = self._header = self._active = None

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Notes the inodes of the segments that are listed inside: later changes by their names are for these files only."""
        self._loader = threading.get_ident()  # other threads may have listed the directory before
        try:
            yield
        finally:
            self._loader = 0

    # ---- checks --------------------------------------------------------------------------------------------------------------

    def check_alive(self) -> None:
        """Raises DirectoryReplacedError if that was noticed before. Costs no system call."""
        if self.failure is not None:
            raise self._error()

    def check_at(self, now_ms: int, *, always: bool) -> bool:
        """Checks the names before an acknowledgement, unless that was done in the same millisecond. Returns whether it did.

        The names of both files are checked once a millisecond, and all that `check` does every 64 ms: the path of a file leads
        through the directories.

        Args:
            now_ms: the wall clock, in milliseconds.
            always: check at least the active segment's name, which costs one `stat`, about 1 µs.

        Raises:
            DirectoryReplacedError, StorageFailedError: as `check`.
        """
        if now_ms == self.checked_ms:
            if always and self._active is not None and self._identify(self._active[0]) != self._active[1]:
                self.check()
            return always
        recently = now_ms // _WHOLE_CHECK_MS == self.checked_ms // _WHOLE_CHECK_MS
        if not recently or not all(self._identify(path) == identity for path, identity in self._files):
            self.check()
        self.checked_ms = now_ms
        return True

    def check(self) -> None:
        """Checks that all names lead to the files that are held. Cost: one `stat` for each, and those of the directory above.

        A thread without the log's lock checks only the directory.

        Raises:
            DirectoryReplacedError: they do not.
            StorageFailedError: another pylog process has deleted the directory, or is changing its segments. For a thread without
                the lock also if the directory was replaced; the next call with the lock raises DirectoryReplacedError.
        """
        self.check_alive()
        if self._check_above is not None:
            self._check_with_above(self._check_above)
        if not self.is_owner():
            self._check_replaced()
            return
        if self._identity is None:
            return
        for held in ((self._directory, self._identity), self._header):
            if held is not None and (found := self._identify(held[0])) != held[1]:
                self._refuse(held[0], found, self._is_deleted)
        if self._active is not None and (found := self._identify(self._active[0])) != self._active[1]:
            self._refuse(self._active[0], found, self._is_changed)
        if self._watch is not None:
            self._watch()

    def _check_with_above(self, check: Callable[[], None]) -> None:
        try:
            check()
        except DirectoryReplacedError as error:
            self.failure = str(error)
            raise

    def _check_replaced(self) -> None:
        """Checks only the directory, for changes beside those of the log's files. Decides nothing."""
        last = self._last_identity
        if last is not None and self._identify(self._directory) != last:
            message = f"{self._directory} was removed or replaced while it was open; try again"
            raise StorageFailedError(message, path=self._directory, errno=_ENOENT)

    def _check_name(self, path: str) -> None:
        """Checks as `check`, and that a segment's name leads to the file that the log knows under it."""
        self.check()
        known = self._inodes.get(self._name_in(path)) if self.is_owner() else None
        if known is not None and (found := self._identify(path)) is not None and found[1] != known:
            self._refuse(path, found, self._is_changed)

    def _refuse(self, path: str, found: Identity | None, is_others_change: Callable[[], bool]) -> None:
        if is_others_change():
            message = f"{path} was deleted or replaced by another pylog process; try again"
            raise StorageFailedError(message, path=path, errno=_ENOENT)
        what = "the directory" if path == self._directory else path
        how = "removed or moved away" if found is None else "replaced"
        self.failure = (
            f"{self._directory}: {what} was {how} while it was open, as when a backup is restored; nothing more is written: "
            "close the store and open it again"
        )
        raise self._error()

    def _error(self) -> DirectoryReplacedError:
        assert self.failure is not None
        return DirectoryReplacedError(self.failure, path=self._directory)

    def _name_in(self, path: str) -> str:
        """Returns a path's name in the directory; an empty text for a path elsewhere."""
        parent, _, name = path.rpartition("/")
        return name if parent == self._directory else ""

    # ---- changes by name -----------------------------------------------------------------------------------------------------

    def open(self, path: str, *, write: bool = False) -> File:
        if write:
            self._check_name(path)
        return self.below.open(path, write=write)

    def create(self, path: str) -> File:
        self._check_name(path)
        file = self.below.create(path)
        if (name := self._name_in(path)).endswith(_LOG):
            self._inodes[name] = file.identity()[1]
        return file

    def rename(self, source: str, target: str) -> None:
        self._check_name(source)
        name = self._name_in(target)
        found = self._identify(source) if name.endswith(_LOG) else None
        self._forget(source)
        self._forget(target)
        self.below.rename(source, target)
        if found is not None:
            self._inodes[name] = found[1]

    def remove(self, path: str) -> None:
        self._check_name(path)
        self._forget(path)
        self.below.remove(path)

    def _forget(self, path: str) -> None:
        """Compares a name no more: the log itself changes it. The next load notes its file again."""
        if self._active is not None and self._active[0] == path:
            self._active = None
        self._inodes.pop(self._name_in(path), None)

    def remove_tree(self, path: str) -> None:
        self.check()
        self.below.remove_tree(path)

    def make_directory(self, path: str) -> None:
        self.check()
        self.below.make_directory(path)

    # ---- everything else -----------------------------------------------------------------------------------------------------

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        entries = self.below.list(path, sizes=sizes)
        if self._loader == threading.get_ident() and sizes == _LOG and path == self._directory:
            self._inodes = {entry.name: entry.inode for entry in entries if entry.name.endswith(sizes) and entry.is_file}
        return entries

    def map(self, path: str) -> Bytes:
        return self.below.map(path)

    def exists(self, path: str) -> bool:
        return self.below.exists(path)

    def identity(self, path: str) -> Identity | None:
        return self.below.identity(path)

    def link_target(self, path: str) -> str | None:
        return self.below.link_target(path)

    def read(self, path: str, limit: int) -> bytes | None:
        return self.below.read(path, limit)

    def sync_directory(self, path: str) -> None:
        self.below.sync_directory(path)

    def check_directory(self, path: str, *, write: bool, follow: bool = True) -> None:
        self.below.check_directory(path, write=write, follow=follow)

    def open_locks(self, path: str) -> LockFile:
        return self.below.open_locks(path)

    def lock_directory(self, path: str) -> DirectoryLock | None:
        return self.below.lock_directory(path)

    def lock_owner(self, path: str, start: int = 0, size: int = 0) -> int | None:
        return self.below.lock_owner(path, start, size)

    def boot_id(self) -> bytes:
        return self.below.boot_id()
