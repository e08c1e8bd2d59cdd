"""The files in a log directory itself: Kafka's offset checkpoints, and the clean-shutdown marker.

Formats: storage-format 3.5, 3.7. Files are replaced atomically. A checkpoint never overstates: a lost or old one costs time,
but no data.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Collection, Container, Iterable, Iterator
from typing import Final, NamedTuple

from pylog import limits, trace
from pylog.errors import CorruptionError, UnsupportedFormatError
from pylog.fs import FileKind, FileSystem, at_most, join, write_atomically
from pylog.record.types import TopicPartition
from pylog.text import counted

RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
LOG_START: Final = "log-start-offset-checkpoint"
CLEANER: Final = "cleaner-offset-checkpoint"
HIGH_WATERMARK: Final = "replication-offset-checkpoint"  # written by brokers; pylog only reads it
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
NEW_MARKER: Final = b'{"version":0,"brokerEpoch":-1}'

_NUMBER: Final = re.compile(r"\+?[0-9]{1,19}")
Offsets = dict[TopicPartition, int]


def parse_offsets(data: bytes, path: str) -> Offsets:
    """Parses an offset checkpoint file (storage-format 3.5).

    Raises:
        CorruptionError: an unknown version, a line that is not `<topic> <partition> <offset>`, or a wrong count.

    >>> parse_offsets(b"0\\n1\\norders 0 42\\n", "x")
    {TopicPartition(topic='orders', partition=0): 42}
    """
    try:
        return {
            TopicPartition(topic, checked_number(partition, limits.INT32_MAX)): checked_number(offset, limits.INT64_MAX)
            for topic, partition, offset in (line.split() for line in entries_of(data))
        }
    except (ValueError, UnicodeDecodeError) as error:
        raise CorruptionError(
            f"{path} is not an offset checkpoint: {error}; move it away if no broker needs it", path=path
        ) from error


OFFSETS: Final = FileKind(
    "an offset checkpoint", parse_offsets, at_most(limits.MAX_CHECKPOINT_BYTES), "move it away if no broker needs it"
)


def checked_number(text: str, high: int) -> int:
    """Parses a number as Kafka's tools do: digits only, at most `high`."""
    found = int(text) if _NUMBER.fullmatch(text) else -1
    if not 0 <= found <= high:
        raise ValueError(f"{text[:40]!r} is not a number from 0 to {high}")
    return found


def entries_of(data: bytes) -> list[str]:
    """Returns the lines after the version and the count of a checkpoint file; an empty file has none (storage-format 3.5.2)."""
    if data.count(b"\n") > limits.MAX_CHECKPOINT_LINES + 2:
        raise ValueError(f"it has more than {limits.MAX_CHECKPOINT_LINES} lines")
    lines = data.decode().splitlines()
    version, count, *entries = lines if len(lines) > 1 else [*lines, "0", "0"][:2]
    if checked_number(version, limits.INT32_MAX) != 0:
        raise ValueError(f"version {version} is unknown")
    if checked_number(count, limits.INT32_MAX) != len(entries):
        raise ValueError(f"it has {counted(len(entries), 'entry')} instead of {count}")
    return entries


class _Line(NamedTuple):
    """One line of an offset checkpoint."""

    partition: TopicPartition
    offset: int
    text: str


def _line_of(partition: TopicPartition, offset: int) -> _Line:
    return _Line(partition, offset, f"{partition.topic} {partition.partition} {offset}")


class _Content(NamedTuple):
    """The content of a checkpoint file, as one immutable value.

    Attributes:
        data: the bytes; None if the file is missing, or too large to read.
        lines: in file order; of a damaged file, the readable ones.
        offsets: the offsets of a sound file; empty if the file is damaged.
        complaint: the fault of the file; None if it is sound.
        refused: true if the file must not be replaced, because a later program may need it.
    """

    data: bytes | None
    lines: tuple[_Line, ...] = ()
    offsets: Offsets = {}  # noqa: RUF012 - never changed
    complaint: str | None = None
    refused: bool = False


def _content_of(data: bytes | None, path: str) -> _Content:
    lines = tuple(_readable_lines(data or b""))
    try:
        return _Content(data, lines, OFFSETS.parsed(data or b"", path))
    except CorruptionError as error:
        later = re.match(rb"\s*([1-9][0-9]{0,8})\r?\n", data or b"") is not None
        return _Content(data, lines, {}, str(error), later)


def _readable_lines(data: bytes) -> Iterator[_Line]:
    """Yields the lines after the version and the count, and skips damaged ones."""
    if data.count(b"\n") > limits.MAX_CHECKPOINT_LINES + 2:
        return
    for text in data.decode(errors="replace").splitlines()[2:]:
        with contextlib.suppress(ValueError):
            topic, partition, offset = text.split()
            yield _Line(TopicPartition(topic, int(partition)), int(offset), text)


class Checkpoint:
    """An offset checkpoint of a log directory. It is read again after another process has replaced it.

    The content is one value, so no thread sees the bytes of one version with the offsets of another.

    Args:
        fs, root, name: the file system, the log directory and the file name; the file may be missing.
    """

    def __init__(self, fs: FileSystem, root: str, name: str) -> None:
        self.path = join(root, name)
        self._fs = fs
        self._root = root
        self._name = name
        self._content = _Content(None)

    @property
    def complaint(self) -> str | None:
        """The fault of the file, or None. An unreadable file counts as empty (storage-format 3.5.3)."""
        return self._content.complaint

    def offsets(self) -> Offsets:
        """Returns the offsets of all lines. Cost: reads the file, and parses it only if it has changed."""
        return self._read().offsets

    def _read(self) -> _Content:
        content = self._content
        data, fault, too_large, _ = OFFSETS.fetch_derived(self._fs, self.path)
        if fault is not None:
            message = f"{fault}; move it away if no broker needs it"
            self._content = content = _Content(None, complaint=message, refused=too_large)
            return content
        was_read = content.data is not None or content.complaint is None
        if data != content.data or not was_read:
            self._content = content = _content_of(data, self.path)
        return content

    def update(self, changed: Offsets, removed: Iterable[TopicPartition] = ()) -> None:
        """Changes some lines and keeps the others. Writes the file only if it changes. The caller holds the root's lock.

        Raises:
            UnsupportedFormatError: the file has a later version, or is too large. Nothing was changed.
        """
        content = self._read()  # read again: another process may have written it
        dropped = set(removed) - changed.keys()
        is_changed = any(content.offsets.get(key) != offset for key, offset in changed.items())
        if not is_changed and not dropped & content.offsets.keys():
            return
        if content.refused:
            message = f"{self.path} cannot be changed: {content.complaint}"
            raise UnsupportedFormatError(message, path=self.path)
        if content.complaint is not None and content.data is not None:
            keep_damaged(self._fs, self._root, self._name, content.data or b"")
        data = OFFSETS.checked(_text_of(_rewritten(content.lines, changed, dropped)), self.path)
        write_atomically(self._fs, self._root, self._name, data)

    def note(self, changed: Offsets) -> bool:
        """Changes optional lines. Returns False, with a warning in the log, if the file must not be changed."""
        try:
            self.update(changed)
        except UnsupportedFormatError as error:
            trace.later(trace.CHECKPOINT_REFUSED, path=self.path, error=str(error))
            return False
        return True


def _rewritten(lines: Iterable[_Line], changed: Offsets, removed: Container[TopicPartition]) -> list[_Line]:
    """Returns the lines with some changed, some removed, and new ones at the end."""
    kept = [
        _line_of(line.partition, changed[line.partition]) if changed.get(line.partition, line.offset) != line.offset else line
        for line in lines
        if line.partition not in removed
    ]
    present = {line.partition for line in kept}
    return kept + [_line_of(*item) for item in sorted(changed.items()) if item[0] not in present]


def _text_of(lines: Collection[_Line]) -> bytes:
    return ("\n".join(["0", str(len(lines)), *(line.text for line in lines)]) + "\n").encode()


def keep_damaged(fs: FileSystem, directory: str, name: str, data: bytes) -> None:
    """Keeps a copy of a damaged file before it is replaced: another program may need its lines."""
    existing = {entry.name for entry in fs.list(directory)}
    aside = next(each for number in itertools.count() if (each := f"{name}.damaged.{number}") not in existing)
    write_atomically(fs, directory, aside, data)
    trace.later(trace.DAMAGED_KEPT, path=join(directory, name), kept=join(directory, aside), bytes=len(data))


def is_in_checkpoints(fs: FileSystem, root: str, partition: TopicPartition) -> bool:
    """Returns whether a checkpoint names a partition, which therefore existed. Creation and deletion remove its lines."""
    return any(partition in Checkpoint(fs, root, name).offsets() for name in (RECOVERY_POINT, LOG_START, CLEANER))


def _marker(data: bytes, _path: str) -> bytes:
    return data


MARKER: Final = FileKind("a clean-shutdown marker", _marker, at_most(limits.MARKER_BYTES), "remove it")


def read_marker(fs: FileSystem, root: str) -> bytes | None:
    """Returns the content of a directory's clean-shutdown marker; None if it has none that can be read."""
    path = join(root, CLEAN_SHUTDOWN)
    data, fault, *_ = MARKER.fetch_derived(fs, path)
    if fault is not None:
        trace.later(trace.IGNORED, path=path, reason=fault)
    return data
