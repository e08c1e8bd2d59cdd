"""`compare`: compares two directories, or two topics: topics, options, partitions and records.

Records are equal if their offsets, timestamps, keys, values and headers are equal; the division into batches is ignored. Records
are compared as Arrow batches of a few megabytes. Batches that differ are compared again, column by column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pylog import limits
from pylog.errors import CorruptionError, PylogError, UnknownTopicOrPartitionError
from pylog.fs import File, FileSystem, OsFileSystem, join
from pylog.log.partition_log import PartitionLog
from pylog.record.types import TopicPartition
from pylog.segment.names import LOG
from pylog.store import Store, manager_of
from pylog.topics.partitions import directory_name
from pylog.topics.topic import Topic

LEFT: Final = "left"
RIGHT: Final = "right"
MOST_DIFFERENCES: Final = 100  # kept per partition, the first ones
_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")
_COMPARED: Final = _COLUMNS[1:]

CompareProgress = Callable[[int], None]


class Difference(NamedTuple):
    """A difference.

    Attributes:
        offset: offset of the record; for `.log` files, the position of the first byte that differs.
        what: names of the columns that differ; or `"only left"`, `"only right"`, or the reason why it cannot be read.
    """

    offset: int
    what: tuple[str, ...]


@dataclass
class PartitionComparison:
    """The comparison of a partition.

    Attributes:
        partition: number of the partition.
        ends: start and end offsets of the left and the right log; different offsets alone are not a difference.
        equal: number of equal records.
        counts: number of records that differ in each column, or exist on one side only.
        differing: number of records that exist on both sides and differ.
        first: the first differences, at most 100.
        unreadable: a sentence for each part that could not be read and is not compared.
    """

    partition: int
    ends: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
    equal: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    differing: int = 0
    first: list[Difference] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """True if everything could be read and nothing differs."""
        return not self.counts and not self.unreadable

    def note(self, offsets: Sequence[int], what: Sequence[tuple[str, ...]]) -> None:
        """Adds differences, in the order of their offsets."""
        for each in what:
            self.counts.update(each)
        room = MOST_DIFFERENCES - len(self.first)
        self.first += [Difference(*pair) for pair in zip(offsets[:room], what[:room], strict=True)]


class OptionDifference(NamedTuple):
    """An option of a topic that differs; None means the default."""

    option: str
    left: Any
    right: Any


@dataclass
class TopicComparison:
    """The comparison of a topic that exists on both sides.

    Attributes:
        left, right: name of the topic on each side.
        options: options that differ.
        only: by side, the numbers of partitions that only this side has.
        partitions: comparisons of the partitions that both sides have.
    """

    left: str
    right: str
    options: list[OptionDifference] = field(default_factory=list)
    only: dict[str, list[int]] = field(default_factory=dict)
    partitions: list[PartitionComparison] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not self.options and not any(self.only.values()) and all(each.same for each in self.partitions)


@dataclass
class Comparison:
    """The comparison of two directories.

    Attributes:
        only: by side, the names of topics that only this side has.
        topics: comparisons of the topics that both sides have.
    """

    only: dict[str, list[str]] = field(default_factory=dict)
    topics: list[TopicComparison] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not any(self.only.values()) and all(each.same for each in self.topics)


def compare(
    left: Store,
    right: Store,
    *,
    topics: Iterable[str] = (),
    renamed: str | None = None,
    by_bytes: bool = False,
    progress: CompareProgress | None = None,
    fs: FileSystem | None = None,
) -> Comparison:
    """Compares two directories, or some of their topics.

    Args:
        left, right: stores, open for reading; the same store twice to compare two of its topics.
        topics: names of the topics to compare; all by default.
        renamed: name of the topic on the right; `topics` must have one name then.
        by_bytes: compare the bytes of the `.log` files instead of the records.
        progress: called with the number of offsets, or bytes, that are done.
        fs: the file system; by default the system's.

    Returns:
        A `Comparison`. Damage counts as a difference and raises no error.

    Raises:
        UnknownTopicOrPartitionError: a named topic exists on neither side; with `renamed`, it does not exist on both.

    Cost: one read of both directories; memory for an Arrow batch of each.

    >>> import pylog, tempfile
    >>> with pylog.open(tempfile.mkdtemp()) as store:
    ...     for name in ("orders", "copy"):
    ...         _ = store.create_topic(name)
    ...         _ = store.log(name).append_many([b"a", b"b"] if name == "copy" else [b"a", b"c"])
    ...     found = compare(store, store, topics=["orders"], renamed="copy").topics[0].partitions[0]
    ...     (found.differing, found.first[0].offset) if not found.same else None
    (2, 0)
    """
    done = _Progress(progress)
    wanted = list(dict.fromkeys(topics))
    if renamed is not None:
        (name,) = wanted
        pairs = [(left.topic(name), right.topic(renamed))]
        only: dict[str, list[str]] = {}
    else:
        known, other = left.topics(), right.topics()
        for name in wanted:
            if name not in known and name not in other:
                raise UnknownTopicOrPartitionError(f"neither {left.path} nor {right.path} has a topic {name!r}", path=left.path)
        names = wanted or sorted(known | other)
        pairs = [(known[name], other[name]) for name in names if name in known and name in other]
        only = {LEFT: [name for name in names if name not in other], RIGHT: [name for name in names if name not in known]}
    return Comparison(only, [_topic(left, right, *pair, done, (fs or OsFileSystem()) if by_bytes else None) for pair in pairs])


class _Progress:
    """Adds up the progress."""

    def __init__(self, progress: CompareProgress | None) -> None:
        self._progress = progress
        self._done = 0

    def add(self, amount: int) -> None:
        self._done += amount
        if self._progress is not None:
            self._progress(self._done)


def _topic(left: Store, right: Store, one: Topic, other: Topic, done: _Progress, fs: FileSystem | None) -> TopicComparison:
    ids, other_ids = _made(left, one), _made(right, other)
    found = TopicComparison(one.name, other.name, list(_options(one, other)))
    found.only = {LEFT: sorted(ids - other_ids), RIGHT: sorted(other_ids - ids)}
    for number in sorted(ids & other_ids):
        result = PartitionComparison(number)
        found.partitions.append(result)
        try:
            if fs is not None:
                _compare_files(fs, result, _directory(left, one, number), _directory(right, other, number), done)
            else:
                logs = manager_of(left).log(one.name, number), manager_of(right).log(other.name, number)
                _compare_records(*logs, result, done)
        except PylogError as error:
            result.unreadable.append(str(error))
    return found


def _made(store: Store, topic: Topic) -> set[int]:
    """Returns the partitions of a topic, except those not created yet. Other errors are reported by the comparison."""
    found = set(topic.partition_ids)
    for number in topic.partition_ids:
        try:
            store.log(topic.name, number)
        except UnknownTopicOrPartitionError:
            found.remove(number)
        except PylogError:
            continue
    return found


def _directory(store: Store, topic: Topic, number: int) -> str:
    return join(store.path, directory_name(TopicPartition(topic.name, number)))


def _options(one: Topic, other: Topic) -> Iterator[OptionDifference]:
    left, right = one.config.changed(), other.config.changed()
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            yield OptionDifference(name.replace("_", "."), left.get(name), right.get(name))


# ---- records -----------------------------------------------------------------------------------------------------------------


class _Side:
    """Reads the records of a log in ranges that end at the same offset on both sides. Skips damage and notes it."""

    def __init__(self, log: PartitionLog, start: int, end: int, unreadable: list[str]) -> None:
        self._log = log
        self._end = end
        self._unreadable = unreadable
        self._frames = self._read(start)
        self._frame: pa.RecordBatch | None = next(self._frames, None)

    def _read(self, start: int | None) -> Iterator[pa.RecordBatch]:
        while start is not None and start < self._end:
            try:
                yield from self._log.scan(start, self._end, columns=_COLUMNS)
                return
            except CorruptionError as error:
                self._unreadable.append(str(error))
                start = error.next_offset

    @property
    def last_offset(self) -> int | None:
        """The last offset read so far; None at the end."""
        return None if self._frame is None else int(self._frame.column(0)[-1].as_py())

    def take(self, last_offset: int) -> pa.RecordBatch | None:
        """Returns the records read so far, up to an offset (inclusive)."""
        if self._frame is None:
            return None
        count = int(np.searchsorted(_offsets(self._frame), last_offset, side="right"))
        rows = self._frame.slice(0, count)
        rest = self._frame.slice(count)
        self._frame = rest if len(rest) else next(self._frames, None)
        return rows


def _offsets(frame: pa.RecordBatch) -> NDArray[np.int64]:
    return frame.column(0).to_numpy()


def _compare_records(left: PartitionLog, right: PartitionLog, found: PartitionComparison, done: _Progress) -> None:
    found.ends = ((left.start_offset, left.end_offset), (right.start_offset, right.end_offset))
    start = _first_compared(left, right, found)
    sides = zip((left, right), found.ends, strict=True)
    one, other = (_Side(log, max(start, ends[0]), ends[1], found.unreadable) for log, ends in sides)
    while (reached := [last for last in (one.last_offset, other.last_offset) if last is not None]) != []:
        frames = one.take(min(reached)), other.take(min(reached))
        _compare_frames(frames[0], frames[1], found)
        done.add(max(len(frame) for frame in frames if frame is not None))


def _first_compared(left: PartitionLog, right: PartitionLog, found: PartitionComparison) -> int:
    """Returns the offset after those that a side has in a broker's remote tier; notes that they are not compared."""
    start = 0
    for side, log in ((LEFT, left), (RIGHT, right)):
        if log.snapshot().remote_offsets:
            remote = f"offsets {log.snapshot().remote_offsets.start} to {log.snapshot().remote_offsets.stop - 1}"
            found.unreadable.append(f"{remote} are in a broker's remote tier on the {side}, and are not compared")
            start = max(start, log.snapshot().remote_offsets.stop)
    return start


def _compare_frames(left: pa.RecordBatch | None, right: pa.RecordBatch | None, found: PartitionComparison) -> None:
    """Compares two ranges of records that end at the same offset."""
    if left is not None and right is not None and left.equals(right):
        found.equal += len(left)
        return
    empty = np.empty(0, np.int64)
    one, other = (empty if frame is None else _offsets(frame) for frame in (left, right))
    both, at, second = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    notes: list[tuple[int, tuple[str, ...]]] = []
    notes += [(offset, ("only left",)) for offset in np.setdiff1d(one, both, assume_unique=True).tolist()]
    notes += [(offset, ("only right",)) for offset in np.setdiff1d(other, both, assume_unique=True).tolist()]
    if left is not None and right is not None and both.size:
        differing = _differing(left.take(pa.array(at)), right.take(pa.array(second)))
        rows = np.flatnonzero(differing.any(axis=0)).tolist()
        names = [
            tuple(name for name, differs in zip(_COMPARED, differing[:, row].tolist(), strict=True) if differs) for row in rows
        ]
        notes += zip(both[rows].tolist(), names, strict=True)
        found.differing += len(rows)
        found.equal += both.size - len(rows)
    notes.sort()
    found.note([offset for offset, _ in notes], [what for _, what in notes])


def _differing(left: pa.RecordBatch, right: pa.RecordBatch) -> NDArray[np.bool_]:
    """Returns which rows differ: one row of the result per column of `_COMPARED`."""
    differ = [_unequal(left.column(name), right.column(name)) for name in _COMPARED[:-1]]
    return np.stack([*differ, _unequal_headers(left.column("headers"), right.column("headers"))])


def _unequal(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    """Returns which rows of two columns differ. Nulls are equal."""
    if left.equals(right):
        return np.zeros(len(left), np.bool_)
    both_null = pc.and_(left.is_null(), right.is_null())
    equal = pc.if_else(both_null, True, pc.fill_null(pc.equal(left, right), False))
    return ~equal.to_numpy(zero_copy_only=False)


def _unequal_headers(left: pa.ListArray, right: pa.ListArray) -> NDArray[np.bool_]:
    """Returns which rows of two columns of headers differ. Arrow cannot compare lists row by row: compares their entries."""
    if left.equals(right):
        return np.zeros(len(left), np.bool_)
    unequal = _unequal(left.value_lengths(), right.value_lengths())
    same_length = np.flatnonzero(~unequal)
    one, other = (column.take(pa.array(same_length)) for column in (left, right))
    entries = _unequal(one.flatten().field("key"), other.flatten().field("key"))
    entries |= _unequal(one.flatten().field("value"), other.flatten().field("value"))
    rows = np.repeat(same_length, one.value_lengths().to_numpy())
    unequal[rows[entries]] = True
    return unequal


# ---- bytes -------------------------------------------------------------------------------------------------------------------


def _compare_files(fs: FileSystem, found: PartitionComparison, left: str, right: str, done: _Progress) -> None:
    """Compares the `.log` files of two directories. `equal` and `differing` count files."""
    one, other = (
        {entry.name: entry.size for entry in fs.list(path, sizes=LOG) if entry.name.endswith(LOG)} for path in (left, right)
    )
    for name in sorted(one.keys() | other.keys()):
        if name not in one or name not in other:
            found.note([0], [(f"{name} only {RIGHT if name not in one else LEFT}",)])
            continue
        position = _first_difference(fs, join(left, name), join(right, name), done)
        if position is None:
            found.equal += 1
        else:
            found.differing += 1
            found.note([position], [(name,)])


def _next_data(files: tuple[File, File], position: int) -> int:
    """Returns the next position that is not in a hole of both files, or the end of the shorter one."""
    found = min(file.next_data(position) for file in files)
    return max(position, min(found, *(file.size() for file in files)))


def _first_difference(fs: FileSystem, left: str, right: str, done: _Progress) -> int | None:
    """Returns the position of the first byte in which two files differ; None if they are equal."""
    buffers = [np.empty(limits.READ_CHUNK_BYTES, np.uint8) for _ in range(2)]
    files = fs.open(left), fs.open(right)
    try:
        position = 0
        while True:
            done.add(-position + (position := _next_data(files, position)))
            one, other = (file.read_into(buffer.data, position) for file, buffer in zip(files, buffers, strict=True))
            size = min(one, other)
            unequal = np.flatnonzero(buffers[0][:size] != buffers[1][:size])
            if unequal.size:
                return position + int(unequal[0])
            if one != other:
                return position + size
            if not one:
                return None
            position += one
            done.add(one)
    finally:
        for file in files:
            file.close()
