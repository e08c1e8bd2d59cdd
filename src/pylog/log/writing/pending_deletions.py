"""Files of deleted segments that readers of this process still use."""

from __future__ import annotations

import contextlib
import weakref

from pylog.errors import StorageFailedError
from pylog.fs import FileSystem, remove_derived
from pylog.segment.segment import LogSegment


class PendingDeletions:
    """Renamed files of segments that are no longer in the log. They are removed once the last reader in this process is done."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._waiting: list[tuple[weakref.ref[LogSegment], list[str]]] = []

    def add(self, segment: LogSegment, paths: list[str]) -> None:
        """Adds the renamed files of a segment."""
        self._waiting.append((weakref.ref(segment), paths))

    def add_all(self, others: PendingDeletions) -> None:
        """Adds what another list has."""
        self._waiting += others._waiting

    def sweep(self, *, all_of_them: bool = False) -> None:
        """Removes the files of segments that no reader uses. A removal that fails is tried again later."""
        kept = []
        for segment, paths in self._waiting:
            if all_of_them or segment() is None:
                for path in paths:
                    with contextlib.suppress(StorageFailedError):
                        remove_derived(self._fs, path)
            else:
                kept.append((segment, paths))
        self._waiting = kept
