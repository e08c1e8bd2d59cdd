"""Kafka's small text files: offset checkpoints, leader epochs, partition metadata, the clean-shutdown marker.

Formats: storage-format 3.4, 3.5, 3.7. Files are replaced atomically. A checkpoint never overstates: a lost or old one costs time,
but no data.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import itertools
import re
import secrets
from bisect import bisect_right
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from pylog import limits, trace
from pylog.errors import CorruptionError, InvalidTopicError, UnsupportedFormatError
from pylog.fs import FileKind, FileSystem, at_most, join, set_aside, write_atomically
from pylog.record.types import TopicPartition
from pylog.segment.names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA

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
            TopicPartition(topic, _number(partition, limits.INT32_MAX)): _number(offset, limits.INT64_MAX)
            for topic, partition, offset in (line.split() for line in _entries(data))
        }
    except (ValueError, UnicodeDecodeError) as error:
        raise CorruptionError(
            f"{path} is not an offset checkpoint: {error}; move it away if no broker needs it", path=path
        ) from error


OFFSETS: Final = FileKind(
    "an offset checkpoint", parse_offsets, at_most(limits.MAX_CHECKPOINT_BYTES), "move it away if no broker needs it"
)


def _number(text: str, high: int) -> int:
    """Parses a number as Kafka's tools do: digits only, at most `high`."""
    found = int(text) if _NUMBER.fullmatch(text) else -1
    if not 0 <= found <= high:
        raise ValueError(f"{text[:40]!r} is not a number from 0 to {high}")
    return found


def _entries(data: bytes) -> list[str]:
    """Returns the lines after the version and the count of a checkpoint file; an empty file has none (storage-format 3.5.2)."""
    if data.count(b"\n") > limits.MAX_CHECKPOINT_LINES + 2:
        raise ValueError(f"it has more than {limits.MAX_CHECKPOINT_LINES} lines")
    lines = data.decode().splitlines()
    version, count, *entries = lines if len(lines) > 1 else [*lines, "0", "0"][:2]
    if _number(version, limits.INT32_MAX) != 0:
        raise ValueError(f"version {version} is unknown")
    if _number(count, limits.INT32_MAX) != len(entries):
        raise ValueError(f"it has {len(entries)} entries instead of {count}")
    return entries


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Returns the content of an offset checkpoint file."""
    return _text_of([_line_of(*item) for item in sorted(offsets.items())])


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
        offsets: of a sound file; empty if the file is damaged.
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
            told = f"{fault}; move it away if no broker needs it"
            self._content = content = _Content(None, complaint=told, refused=too_large)
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
        going = set(removed) - changed.keys()
        if not any(content.offsets.get(key) != offset for key, offset in changed.items()) and not going & content.offsets.keys():
            return
        if content.refused:
            told = f"{self.path} cannot be changed: {content.complaint}"
            raise UnsupportedFormatError(told, path=self.path)
        if content.complaint is not None and content.data is not None:
            _set_aside(self._fs, self._root, self._name, content.data or b"")
        write_atomically(self._fs, self._root, self._name, _text_of(_rewritten(content.lines, changed, going)))

    def note(self, changed: Offsets) -> bool:
        """Changes optional lines. Returns False, with a warning in the log, if the file must not be changed."""
        try:
            self.update(changed)
        except UnsupportedFormatError as error:
            trace.later(trace.CHECKPOINT_REFUSED, path=self.path, error=str(error))
            return False
        return True


def _rewritten(lines: Iterable[_Line], changed: Offsets, going: Container[TopicPartition]) -> list[_Line]:
    """Returns the lines with some changed, some removed, and new ones at the end."""
    kept = [
        _line_of(line.partition, changed[line.partition]) if changed.get(line.partition, line.offset) != line.offset else line
        for line in lines
        if line.partition not in going
    ]
    present = {line.partition for line in kept}
    return kept + [_line_of(*item) for item in sorted(changed.items()) if item[0] not in present]


def _text_of(lines: Collection[_Line]) -> bytes:
    return ("\n".join(["0", str(len(lines)), *(line.text for line in lines)]) + "\n").encode()


def _set_aside(fs: FileSystem, directory: str, name: str, data: bytes) -> None:
    """Keeps a copy of a damaged file before it is replaced: another program may need its lines."""
    there = {entry.name for entry in fs.list(directory)}
    aside = next(each for number in itertools.count() if (each := f"{name}.damaged.{number}") not in there)
    write_atomically(fs, directory, aside, data)
    trace.later(trace.DAMAGED_KEPT, path=join(directory, name), kept=join(directory, aside), bytes=len(data))


def is_told_of(fs: FileSystem, root: str, partition: TopicPartition) -> bool:
    """Returns whether a checkpoint names a partition, which therefore existed. Creation and deletion remove its lines."""
    return any(partition in Checkpoint(fs, root, name).offsets() for name in (RECOVERY_POINT, LOG_START, CLEANER))


# ---- leader epochs -----------------------------------------------------------------------------------------------------------


class EpochEntry(NamedTuple):
    """A leader epoch and its first offset."""

    epoch: int
    start_offset: int


def parse_epochs(data: bytes, path: str) -> list[EpochEntry]:
    """Parses a `leader-epoch-checkpoint` into ascending entries (storage-format 3.4.1).

    Raises:
        CorruptionError: the file does not parse, or its entries do not ascend.

    >>> parse_epochs(b"0\\n1\\n2 100\\n", "x")
    [EpochEntry(epoch=2, start_offset=100)]
    """
    try:
        pairs = [line.split() for line in _entries(data)]
        found = [EpochEntry(_number(epoch, limits.INT32_MAX), _number(start, limits.INT64_MAX)) for epoch, start in pairs]
        _check_ascending(found)
    except (ValueError, TypeError, UnicodeDecodeError) as error:
        raise CorruptionError(f"{path} is not a leader epoch checkpoint: {error}", path=path) from error
    return found


EPOCHS: Final = FileKind(
    "a leader epoch checkpoint",
    parse_epochs,
    at_most(limits.MAX_CHECKPOINT_BYTES),
    "remove it, and it is made again from the batches, unless a broker needs it",
)


def _check_ascending(found: list[EpochEntry]) -> None:
    if any(low.epoch >= high.epoch or low.start_offset >= high.start_offset for low, high in pairwise(found)):
        raise ValueError("its entries do not ascend")


def read_epochs(fs: FileSystem, directory: str) -> list[EpochEntry] | None:
    """Reads a partition's leader epochs; None if there is no file.

    Raises:
        CorruptionError: the file is damaged.
    """
    path = join(directory, LEADER_EPOCH_CHECKPOINT)
    data, fault, *_ = EPOCHS.fetch_derived(fs, path)
    if fault is not None:
        raise CorruptionError(f"{path} cannot be used: {fault}", path=path)
    return None if data is None else EPOCHS.parsed(data, path)


def write_epochs(fs: FileSystem, directory: str, epochs: list[EpochEntry]) -> None:
    """Replaces a partition's leader epochs. A damaged file is kept under another name, because a broker may need its entries."""
    path = join(directory, LEADER_EPOCH_CHECKPOINT)
    data, fault, *_ = EPOCHS.fetch_derived(fs, path)
    if fault is not None:
        trace.later(trace.DAMAGED_KEPT, path=path, kept=set_aside(fs, path), reason=fault)
    try:
        EPOCHS.parsed(data or b"", path)
    except CorruptionError:
        _set_aside(fs, directory, LEADER_EPOCH_CHECKPOINT, data or b"")
    lines = ["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs)]
    write_atomically(fs, directory, LEADER_EPOCH_CHECKPOINT, ("\n".join(lines) + "\n").encode())


def assign_epoch(epochs: list[EpochEntry], epoch: int, offset: int) -> list[EpochEntry]:
    """Returns the entries after a batch of `epoch` at `offset` (storage-format 6.13.1); the same list if nothing changes.

    >>> assign_epoch([EpochEntry(0, 0)], 2, 50)
    [EpochEntry(epoch=0, start_offset=0), EpochEntry(epoch=2, start_offset=50)]
    """
    if epoch < 0 or (epochs and epochs[-1].epoch == epoch and offset >= epochs[-1].start_offset):
        return epochs
    kept = [entry for entry in epochs if entry.epoch < epoch and entry.start_offset < offset]
    return [*kept, EpochEntry(epoch, offset)]


def truncate_epochs_end(epochs: list[EpochEntry], offset: int) -> list[EpochEntry]:
    """Returns the entries of a log truncated at `offset` (storage-format 6.13.2); the same list if nothing changes.

    >>> truncate_epochs_end([EpochEntry(0, 0), EpochEntry(2, 50)], 50)
    [EpochEntry(epoch=0, start_offset=0)]
    """
    if not epochs or epochs[-1].start_offset < offset:
        return epochs
    return [entry for entry in epochs if entry.start_offset < offset]


def truncate_epochs_start(epochs: list[EpochEntry], offset: int) -> list[EpochEntry]:
    """Returns the entries of a log that now starts at `offset` (storage-format 6.13.2); the same list if nothing changes.

    The epoch of the record at `offset` then begins there.

    >>> truncate_epochs_start([EpochEntry(0, 0), EpochEntry(2, 50), EpochEntry(3, 90)], 60)
    [EpochEntry(epoch=2, start_offset=60), EpochEntry(epoch=3, start_offset=90)]
    """
    epoch = epoch_for_offset(epochs, offset)
    if epoch is None or epochs[0].start_offset == offset:
        return epochs
    return [EpochEntry(epoch, offset), *(entry for entry in epochs if entry.start_offset > offset)]


def epoch_for_offset(epochs: list[EpochEntry], offset: int) -> int | None:
    """Returns the leader epoch of the record at `offset`; None before the first entry. O(log n). Spec: storage-format 6.13.3.

    >>> epochs = [EpochEntry(0, 0), EpochEntry(2, 50)]
    >>> epoch_for_offset(epochs, 49), epoch_for_offset(epochs, 50), epoch_for_offset([], 0)
    (0, 2, None)
    """
    following = bisect_right(epochs, offset, key=lambda entry: entry.start_offset)
    return epochs[following - 1].epoch if following else None


# ---- topic ids, names --------------------------------------------------------------------------------------------------------

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION_DIRECTORY = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})")


def is_topic_name(name: str) -> bool:
    """Returns whether Kafka's rule for topic names allows a name (storage-format 3.2.2)."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def check_topic_name(name: str) -> str:
    """Returns a topic name after checking Kafka's rule (storage-format 3.2.2).

    Raises:
        InvalidTopicError: the name is not allowed.

    >>> check_topic_name("orders.paid")
    'orders.paid'
    """
    if not isinstance(name, str) or not is_topic_name(name):
        raise InvalidTopicError(
            f"{name!r} is not a topic name; a name has 1 to {limits.MAX_TOPIC_NAME_CHARACTERS} of the characters "
            "a-z A-Z 0-9 . _ - and is neither '.' nor '..'"
        )
    return name


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Returns the partition that a directory is named after, or None (storage-format 3.2).

    >>> parse_partition_directory("my-topic-3")
    TopicPartition(topic='my-topic', partition=3)
    """
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or not _TOPIC_NAME.fullmatch(match[1]) or match[1] in (".", "..") or int(match[2]) > limits.INT32_MAX:
        return None
    return TopicPartition(match[1], int(match[2]))


def new_topic_id() -> str:
    """Returns a random topic id: 16 bytes as 22 characters of base64url that do not begin with '-' (storage-format 3.4.3)."""
    while True:
        text = base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def format_partition_metadata(topic_id: str) -> bytes:
    """Returns the content of a `partition.metadata` file, which has no newline at its end (storage-format 3.4.2)."""
    return f"version: 0\ntopic_id: {topic_id}".encode()


def read_topic_id(fs: FileSystem, directory: str) -> str | None:
    """Reads the topic id of a partition's directory; None if it has none (brokers before 2.8, or not yet written).

    Raises:
        CorruptionError: the file does not parse.
    """
    path = join(directory, PARTITION_METADATA)
    data, fault, *_ = METADATA.fetch_derived(fs, path)
    if fault is not None:
        raise CorruptionError(f"{path} cannot be used: {fault}", path=path)
    return METADATA.parsed(data, path) if data else None


def parse_topic_id(data: bytes, path: str) -> str:
    """Parses a `partition.metadata` file (storage-format 3.4.2). Raises CorruptionError if it is not one."""
    match = re.fullmatch(rb"version:\s*\d+\r?\ntopic_id:\s*([A-Za-z0-9_-]{22})\s*", data)
    if match is None:
        raise CorruptionError(f"{path} is not partition metadata", path=path)
    try:
        base64.urlsafe_b64decode(match[1] + b"==")
    except binascii.Error as error:
        raise CorruptionError(f"{path} has no topic id", path=path) from error
    return match[1].decode()


METADATA: Final = FileKind("partition metadata", parse_topic_id, at_most(limits.MARKER_BYTES), "restore it")


def _marker(data: bytes, _path: str) -> bytes:
    return data


MARKER: Final = FileKind("a clean-shutdown marker", _marker, at_most(limits.MARKER_BYTES), "remove it")


def read_marker(fs: FileSystem, root: str) -> bytes | None:
    """Returns the content of a directory's clean-shutdown marker; None if it has none that can be read."""
    return MARKER.fetch_derived(fs, join(root, CLEAN_SHUTDOWN)).data
