"""The last commits of the groups in one partition of `__consumer_offsets`, with their times.

The first call reads the partition from its end back; later calls read new records only. Commits that compaction has removed are
not known; those that were read before stay known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pylog import limits
from pylog.errors import PylogError
from pylog.groups.health import RECENT_COMMITS, PastCommit
from pylog.log.partition_log import PartitionLog
from pylog.offsets.schema import OFFSET, parse_offset
from pylog.record.arrays import number_array, numbers_of

_COLUMNS: Final = ("offset", "timestamp", "key", "value", "producer_id")
_FIRST: Final = 2  # of a key: after the number of its kind
RowNumbers = NDArray[np.int64]


class CommitHistory:
    """The last commits in one partition of `__consumer_offsets`.

    Args:
        log: the partition.
        only: the commits of this group only, with its name as bytes; None for all groups.
        kept: how many commits of a group in a partition, spread over the window; the last ten are kept besides.
    """

    def __init__(self, log: PartitionLog, only: bytes | None = None, kept: int = limits.COMMITS_KEPT) -> None:
        self._log = log
        self._prefix = b"" if only is None else commit_key(only, b"")
        self._kept = kept
        self._forget()

    def _forget(self) -> None:
        self._position: int | None = None  # records below it are read
        self._truncations = -1
        self._known: dict[bytes, list[PastCommit]] = {}
        self._unstable: dict[bytes, list[PastCommit]] = {}  # of records after the start of an open transaction

    def refresh(self, since_ms: int) -> None:
        """Reads new commits, the first time those since a time and at least ten of each group in each partition.

        Raises:
            CorruptionError: a record cannot be read. As `Log.scan`.
        """
        state = self._log.snapshot(committed=True)
        position = self._position
        if position is None or state.truncation_count != self._truncations or not state.start_offset <= position:
            self._forget()
            self._read_back(state.start_offset, state.stable_offset, since_ms)
        elif position < state.stable_offset:
            self._take(self._frames(position, state.stable_offset), since_ms)
        self._position, self._truncations = state.stable_offset, state.truncation_count
        self._unstable = self._read_unstable(state.stable_offset, state.end_offset)

    def commits(self, key: bytes) -> Sequence[PastCommit]:
        """Returns the known commits, oldest first.

        Args:
            key: `commit_key` of a group and a partition.
        """
        known, later = self._known.get(key, []), self._unstable.get(key)
        return known if later is None else [*known, *later]

    # ---- reading -------------------------------------------------------------------------------------------------------------

    def _reader(self, since_ms: int) -> _CommitsRead:
        return _CommitsRead(since_ms, self._prefix, self._kept)

    def _frames(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        return self._log.scan(start, end, columns=_COLUMNS, isolation_level="read_committed")

    def _take(self, frames: Iterable[pa.RecordBatch], since_ms: int) -> None:
        found = self._reader(since_ms)
        found.take(frames)
        for key, commits in found.commits.items():
            self._set(key, commits if key in found.ended else self._known.get(key, []) + commits, since_ms)

    def _set(self, key: bytes, commits: list[PastCommit], since_ms: int) -> None:
        if commits:
            self._known[key] = thinned(commits, since_ms, self._kept)
        else:
            self._known.pop(key, None)

    def _read_back(self, start: int, end: int, since_ms: int) -> None:
        """Reads from the end back, until the window is covered and each group has enough commits."""
        complete: set[bytes] = set()  # keys whose earlier commits do not count: a tombstone follows them
        searched, size = 0, limits.COMMITS_AT_ONCE
        while start < end:
            begin = max(start, end - size)
            found = self._reader(since_ms)
            found.take(self._frames(begin, end))
            for key in found.commits.keys() - complete:
                self._set(key, found.commits[key] + self._known.get(key, []), since_ms)
            complete |= found.ended
            searched += found.record_count
            end, size = begin, 2 * size  # a compacted log has long ranges without records
            if found.oldest_ms < since_ms and (searched >= limits.COMMITS_SEARCHED or self._has_enough(complete)):
                return

    def _has_enough(self, complete: set[bytes]) -> bool:
        return all(len(commits) >= RECENT_COMMITS or key in complete for key, commits in self._known.items())

    def _read_unstable(self, start: int, end: int) -> dict[bytes, list[PastCommit]]:
        """Returns the commits after the start of an open transaction that belong to no transaction."""
        if start >= end:
            return {}
        frames = self._log.scan(start, end, columns=_COLUMNS)
        found = self._reader(0)
        found.take(frame.take(number_array(_plain_rows(frame), pa.int64())) for frame in frames)
        return found.commits


def commit_key(group: bytes, partition_key: bytes) -> bytes:
    """Returns the key of a group's commits for a partition in a `CommitHistory`."""
    return len(group).to_bytes(2, "big") + group + partition_key


def thinned(commits: list[PastCommit], since_ms: int, kept: int = limits.COMMITS_KEPT) -> list[PastCommit]:
    """Returns the last ten commits, and of the earlier ones since a time some that are spread evenly.

    >>> commits = [PastCommit(each, each) for each in range(0, 4_000, 10)]
    >>> found = thinned(commits, 2_000)
    >>> found[0], found[-1], len(found) <= limits.COMMITS_KEPT + 10, thinned(commits[:3], 2_000) == commits[:3]
    (PastCommit(timestamp=2000, offset=2000), PastCommit(timestamp=3990, offset=3990), True, True)
    """
    recent = commits[-RECENT_COMMITS:]
    earlier = [each for each in commits[:-RECENT_COMMITS] if each.timestamp >= since_ms]
    if len(earlier) <= kept:
        return earlier + recent
    at = np.linspace(0, len(earlier) - 1, kept // 2).astype(int)  # half of the room is left for new ones
    return [earlier[each] for each in at.tolist()] + recent


def _plain_rows(frame: pa.RecordBatch) -> RowNumbers:
    """Returns the rows of records that belong to no transaction."""
    return np.flatnonzero(numbers_of(frame.column(4), np.int64) < 0)


# ---- records -----------------------------------------------------------------------------------------------------------------


class _CommitsRead:
    """The commits in some records.

    Args:
        since_ms: the start of the window.
        prefix: the prefix of the keys that count.
        kept: commits of a key, as for `CommitHistory`.

    Attributes:
        commits: by key, oldest first, after the last tombstone.
        ended: keys with a tombstone.
        record_count, oldest_ms: how many records were read, and their smallest timestamp.
    """

    def __init__(self, since_ms: int, prefix: bytes, kept: int) -> None:
        self._since_ms, self._prefix, self._kept = since_ms, prefix, kept
        self.commits: dict[bytes, list[PastCommit]] = {}
        self.ended: set[bytes] = set()
        self.record_count = 0
        self.oldest_ms = limits.INT64_MAX

    def take(self, frames: Iterable[pa.RecordBatch]) -> None:
        """Adds the commits of records in the order of their offsets."""
        for frame in frames:
            if frame.num_rows:
                self._take(frame)

    def _take(self, frame: pa.RecordBatch) -> None:
        encoded = frame.column(2).dictionary_encode("encode")  # a missing key is an entry of the dictionary, too
        numbers = numbers_of(encoded.indices, np.int32)
        stamps, values = numbers_of(frame.column(1), np.int64), frame.column(3)
        deleted = np.array(values.is_null().to_pylist(), bool)
        self.record_count += frame.num_rows
        self.oldest_ms = min(self.oldest_ms, int(stamps.min()))
        order = np.argsort(numbers, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
            key = encoded.dictionary[int(numbers[rows[0]])].as_py()
            if key is None or len(key) < _FIRST or key[0] != 0 or key[1] > OFFSET:
                continue
            if key.startswith(self._prefix, _FIRST):
                self._add(key[_FIRST:], rows, stamps, values, deleted)

    def _add(self, key: bytes, rows: RowNumbers, stamps: RowNumbers, values: pa.Array, deleted: NDArray[np.bool_]) -> None:
        tombstones = np.flatnonzero(deleted[rows])
        if tombstones.size:
            rows = rows[int(tombstones[-1]) + 1 :]
            self.ended.add(key)
            self.commits[key] = []
        needed = _needed(rows, stamps, self._since_ms, self._kept)
        self.commits[key] = thinned(self.commits.get(key, []) + list(_parsed(needed, values)), self._since_ms, self._kept)


def _needed(rows: RowNumbers, stamps: RowNumbers, since_ms: int, kept: int) -> RowNumbers:
    """Returns the rows that `thinned` may keep: values of the others need not be parsed."""
    if len(rows) <= RECENT_COMMITS:
        return rows
    earlier = rows[:-RECENT_COMMITS]
    earlier = earlier[stamps[earlier] >= since_ms]
    if len(earlier) > kept:
        earlier = earlier[np.linspace(0, len(earlier) - 1, kept).astype(int)]
    return np.concatenate([earlier, rows[-RECENT_COMMITS:]])


def _parsed(rows: RowNumbers, values: pa.Array) -> Iterator[PastCommit]:
    """Yields commits. A value that does not parse is skipped, as everywhere."""
    for row in rows.tolist():
        with contextlib.suppress(PylogError):
            committed = parse_offset(values[row].as_py()).committed
            yield PastCommit(committed.commit_timestamp or 0, committed.offset)
