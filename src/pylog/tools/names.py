"""Recognises files by their names, in any directory."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pylog.directory.checkpoints import CLEANER, HIGH_WATERMARK, LOG_START, OFFSETS, RECOVERY_POINT
from pylog.directory.leader_epoch_cache import EPOCHS
from pylog.directory.partition_metadata import METADATA
from pylog.errors import InvalidArgumentError, StorageFailedError
from pylog.fs import FILES, FileKind, FileSystem, absolute, base_name, join, parent_of
from pylog.index import kinds
from pylog.log.durable_point import SLOTS
from pylog.log.recovery.producer_snapshots import SNAPSHOTS
from pylog.segment.names import (
    DURABLE_POINT,
    INDEX,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    PARTITION_METADATA,
    SEAL,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse,
)
from pylog.segment.seal import SEALS
from pylog.segment.segment import LogSegment

AnyKind = FileKind[..., Any]
_BY_SUFFIX: Final[dict[str, AnyKind]] = {
    INDEX: kinds.OFFSETS,
    TIME_INDEX: kinds.TIMES,
    TRANSACTION_INDEX: kinds.TRANSACTIONS,
    SNAPSHOT: SNAPSHOTS,
    SEAL: SEALS,
}
_BY_NAME: Final[dict[str, AnyKind]] = {
    **dict.fromkeys((RECOVERY_POINT, LOG_START, CLEANER, HIGH_WATERMARK), OFFSETS),
    LEADER_EPOCH_CHECKPOINT: EPOCHS,
    PARTITION_METADATA: METADATA,
    DURABLE_POINT: SLOTS,
}


class NamedFile(NamedTuple):
    """A file that the user named.

    Attributes:
        path: path as the user gave it.
        name: last part of the path.
        suffix: the name from its last dot on; empty without a dot.
    """

    path: str
    name: str
    suffix: str

    @property
    def absolute(self) -> str:
        """The absolute path."""
        return absolute(self.path)

    @property
    def base_offset(self) -> int:
        """The offset at the start of the name.

        Raises:
            InvalidArgumentError: the name does not start with a number.
        """
        number = self.name.partition(".")[0]
        if not (number.isascii() and number.isdecimal()):
            raise InvalidArgumentError(
                f"the name of {self.path} does not start with an offset, as the names of segment files do", path=self.path
            )
        return int(number)

    def sibling(self, suffix: str) -> str:
        """Returns the path of another file of the same segment."""
        return join(parent_of(self.path), self.name.partition(".")[0] + suffix)


def named_file(path: str) -> NamedFile:
    """Returns the file with a path.

    >>> named_file("/data/orders-0/00000000000000000042.log").base_offset
    42
    """
    name = base_name(path)
    return NamedFile(path, name, name[name.rfind(".") :] if "." in name else "")


def read_file(fs: FileSystem, path: str) -> bytes:
    """Reads a whole file, of a kind that is not a log.

    Raises:
        StorageFailedError: the file does not exist or cannot be read.
    """
    data = _kind_of(path).fetch(fs, path, _size_of_log(fs, path))
    if data is None:
        raise StorageFailedError(f"there is no file {path}; give the path of an existing file", path=path, errno=2)
    return data


def _kind_of(path: str) -> AnyKind:
    """Returns the kind of a file by its name. Files of other names count as small."""
    file = named_file(path)
    return _BY_NAME.get(file.name) or _BY_SUFFIX.get(file.suffix) or METADATA


def _size_of_log(fs: FileSystem, path: str) -> int:
    """Returns the size of the `.log` file that a file belongs to; of a snapshot the offset in its name; else 0."""
    file = named_file(path)
    if file.suffix not in _BY_SUFFIX:
        return 0
    if file.suffix == SNAPSHOT:
        return file.base_offset
    log = base_name(file.sibling(LOG))
    return next((entry.size for entry in fs.list(parent_of(path), sizes=LOG) if entry.name == log and entry.is_file), 0)


def segment_at(fs: FileSystem, file: NamedFile) -> tuple[LogSegment, int | None]:
    """Opens a `.log` file as a read-only segment. Also returns the base offset of the next segment, or None for the last one.

    Raises:
        StorageFailedError: the file cannot be read.
        InvalidArgumentError: its name has no offset.
    """
    directory, base = parent_of(file.path), file.base_offset
    numbered = [(parse(entry.name), entry) for entry in fs.list(directory, sizes=LOG) if entry.is_file]
    later = [found.offset for found, _ in numbered if found and found.suffix == LOG and not found.state and found.offset > base]
    own = [entry for _, entry in numbered if entry.name == file.name]
    if not own:
        raise StorageFailedError(f"there is no file {file.path}; give the path of an existing file", path=file.path, errno=2)
    segment = LogSegment(
        fs,
        directory,
        base,
        size=own[0].size,
        mtime_ms=own[0].mtime_ms,
        open_files=FILES,
        sealed=bool(later),
        log_name=file.name,
    )
    return segment, min(later, default=None)
