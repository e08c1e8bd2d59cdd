"""`FullDisk`: deletes records and topics even if the disk has no block left, and reports what fills it.

Each change of a directory writes a small file first: a checkpoint, the catalog. That order is what makes a crash harmless, so it
also holds on a full disk. A store keeps a reserve of some blocks for it in `pylog.lock`. A call that frees room gives the reserve
back to the file system, is repeated, and takes the reserve again. After a crash, files that the call left may have the reserve's
blocks. Opening the store and its logs removes them, and then takes the rest of the reserve.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from pylog.clock import Clock
from pylog.directory.locks import StoreLocks
from pylog.errors import NO_ROOM, PylogError, StorageFailedError
from pylog.fs import NAMES_ONLY, FileSystem, join
from pylog.segment.names import LOG
from pylog.text import size_text
from pylog.topics.listing import partitions_in
from pylog.topics.partitions import directory_name

T = TypeVar("T")
_MOST_TOPICS: Final = 5
_COUNT_AGAIN_S: Final = 10.0


class FullDisk:
    """Keeps a store usable on a full disk: the reserve, and the sizes for the error.

    Args:
        fs, root: the directory.
        clock: limits how often sizes are counted.
        locks: hold the reserve; None in a store that is open for reading.
    """

    def __init__(self, fs: FileSystem, root: str, clock: Clock, locks: StoreLocks | None) -> None:
        self._fs = fs
        self._root = root
        self._clock = clock
        self._locks = locks
        self._advice = ""
        self._counted_at: float | None = None

    def freeing(self, action: Callable[[], T], first: Callable[[], object] | None = None, *, syncs_again: bool = False) -> T:
        """Runs a call that frees room. If there is no room for its own small files, runs it again with the reserve.

        Args:
            action: the call. It leaves everything as it was, or can be repeated, if it fails for lack of room.
            first: a call that frees room with less room than `action` needs, run before the repetition.
            syncs_again: true to repeat the call also after a failed sync. Not for a change of a log, as its writer has ended.

        Raises:
            StorageFailedError: there is no room even with the reserve.
        """
        try:
            done = action()
        except StorageFailedError as error:
            if error.errno not in NO_ROOM or not (error.passes or syncs_again) or self._locks is None:
                raise
            self._locks.give_room()
        else:
            self.complete_reserve()
            return done
        try:
            if first is not None:
                first()
            return action()
        except StorageFailedError as error:
            self.explain(error)
            raise
        finally:
            self._locks.keep_room()

    def complete_reserve(self) -> None:
        """Takes the rest of a reserve for which the disk had no room. Call it after anything that may have freed some."""
        if self._locks is not None:
            self._locks.complete_room()

    def explain(self, error: Exception) -> None:
        """Adds to the error of a full disk how much each topic holds, and which command frees room."""
        if not isinstance(error, StorageFailedError) or error.errno not in NO_ROOM or self._locks is None:
            return
        now = self._clock.monotonic()
        if self._counted_at is None or now - self._counted_at > _COUNT_AGAIN_S:
            self._counted_at, self._advice = now, self._what_fills_it()
        message = str(error)
        if self._advice and self._advice not in message:
            error.args = (f"{message}; {self._advice}",)

    def _what_fills_it(self) -> str:
        try:
            sizes = self._sizes()
        except PylogError:
            return ""
        most = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
        held = ", ".join(f"{topic} {size_text(size)}" for topic, size in most[:_MOST_TOPICS])
        more = f" and {len(most) - _MOST_TOPICS} more" if len(most) > _MOST_TOPICS else ""
        return (
            f"the topics hold {held or 'nothing'}{more}; lower a topic's retention_ms or retention_bytes with `pylog config` and "
            f"run `pylog retain {self._root}`, or run `pylog delete`"
        )

    def _sizes(self) -> dict[str, int]:
        """Returns the bytes in the segments of each topic. Cost: one listing for each partition."""
        sizes: dict[str, int] = {}
        for partition in partitions_in(self._fs, self._root, self._fs.list(self._root, sizes=NAMES_ONLY)).values():
            entries = self._fs.list(join(self._root, directory_name(partition)), sizes=LOG)
            size = sum(entry.size for entry in entries if entry.name.endswith(LOG))
            sizes[partition.topic] = sizes.get(partition.topic, 0) + size
        return sizes
