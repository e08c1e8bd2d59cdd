"""The leader epochs of a partition: which epoch begins at which offset, and their truncation with the log.

Format and rules: storage-format 3.4.1, 6.13. Each leader of a partition has an epoch, which its batches carry.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from pylog import limits, trace
from pylog.directory.checkpoints import checked_number, entries_of, keep_damaged
from pylog.errors import NO_ROOM, CorruptionError, StorageFailedError
from pylog.fs import FileKind, FileSystem, at_most, join, left_out_if_full, remove_derived, set_aside, write_atomically
from pylog.segment.names import LEADER_EPOCH_CHECKPOINT


class EpochEntry(NamedTuple):
    """A leader epoch and its first offset."""

    epoch: int
    start_offset: int


class LeaderEpochCache:
    """The leader epochs of one partition, in memory and in its checkpoint file: Kafka's LeaderEpochFileCache.

    Args:
        fs, directory: the file system and the partition's directory.
        entries: the leader epochs, ascending.
        is_derived: tells whether the next opening can find them in the batches if the file is missing: no broker needs it.

    Attributes:
        entries: the leader epochs now.
        is_left_out: a full disk had no room for the file.
    """

    def __init__(
        self, fs: FileSystem, directory: str, entries: list[EpochEntry], is_derived: Callable[[], bool] = lambda: False
    ) -> None:
        self.entries = entries
        self._fs, self._directory = fs, directory
        self._is_derived = is_derived
        self.is_left_out = False

    @property
    def last(self) -> int:
        """The latest leader epoch; 0 if there is none."""
        return self.entries[-1].epoch if self.entries else 0

    def assign(self, epoch: int, offset: int, written: list[EpochEntry] | None) -> None:
        """Adds the epoch of a batch at an offset. Writes the file if it does not have the entries.

        Args:
            epoch, offset: the batch's epoch and offset.
            written: the entries in the file; None if it is missing or damaged.
        """
        epochs = assign_epoch(self.entries, epoch, offset)
        if epochs != written:
            self._write(epochs)

    def truncate_from_start(self, offset: int) -> None:
        """Truncates the entries after the log start was raised to an offset, and writes the file."""
        self._write(truncate_epochs_start(self.entries, offset))

    def truncate_from_end(self, offset: int) -> list[int]:
        """Removes the entries of a log truncated at an offset, and writes the file. Returns the removed epochs."""
        before = self.entries
        self._write(truncate_epochs_end(before, offset))
        return [entry.epoch for entry in before if entry not in self.entries]

    def complete(self) -> None:
        """Writes the file if a full disk had no room for it, and has now."""
        if self.is_left_out:
            with left_out_if_full():
                self._write_file(self.entries)

    def _write(self, epochs: list[EpochEntry]) -> None:
        """Writes the file. A full disk has no file instead: an old one could hide a loss, or show one that did not happen."""
        try:
            self._write_file(epochs)
        except StorageFailedError as error:
            if error.errno not in NO_ROOM or not error.passes or not self._is_derived():
                raise
            self.is_left_out = True
            path = join(self._directory, LEADER_EPOCH_CHECKPOINT)
            remove_derived(self._fs, path)
            self._fs.sync_directory(self._directory)
            trace.later(trace.EPOCHS_LEFT_OUT, path=path, reason="the disk is full")
        self.entries = epochs

    def _write_file(self, epochs: list[EpochEntry]) -> None:
        write_epochs(self._fs, self._directory, epochs)
        self.is_left_out = False


def parse_epochs(data: bytes, path: str) -> list[EpochEntry]:
    """Parses a `leader-epoch-checkpoint` into ascending entries (storage-format 3.4.1).

    Raises:
        CorruptionError: the file does not parse, or its entries do not ascend.

    >>> parse_epochs(b"0\\n1\\n2 100\\n", "x")
    [EpochEntry(epoch=2, start_offset=100)]
    """
    try:
        pairs = [line.split() for line in entries_of(data)]
        found = [
            EpochEntry(checked_number(epoch, limits.INT32_MAX), checked_number(start, limits.INT64_MAX)) for epoch, start in pairs
        ]
        _check_ascending(found)
    except (ValueError, TypeError, UnicodeDecodeError) as error:
        raise CorruptionError(f"{path} is not a leader epoch checkpoint: {error}", path=path) from error
    return found


EPOCHS: Final = FileKind(
    "a leader epoch checkpoint",
    parse_epochs,
    at_most(limits.MAX_CHECKPOINT_BYTES),
    "remove it, and it is created again from the batches, unless a broker needs it",
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


def tiered_log_start(recorded: int | None, epochs: Sequence[EpochEntry] | None) -> int | None:
    """Returns the log start offset of a log with remote segments; None if nothing tells it.

    A running broker that deletes remote segments raises the first leader epoch's offset at once, its checkpoint within a minute.

    Args:
        recorded: the offset in the checkpoint of log starts; None if it has none.
        epochs: the leader epochs, ascending; None if they are not known.

    >>> tiered_log_start(0, [EpochEntry(3, 42)]), tiered_log_start(50, [EpochEntry(3, 42)]), tiered_log_start(None, None)
    (42, 50, None)
    """
    known = [offset for offset in (recorded, epochs[0].start_offset if epochs else None) if offset is not None]
    return max(known, default=None)


def write_epochs(fs: FileSystem, directory: str, epochs: list[EpochEntry]) -> None:
    """Replaces a partition's leader epochs. A damaged file is kept under another name, because a broker may need its entries."""
    path = join(directory, LEADER_EPOCH_CHECKPOINT)
    data, fault, *_ = EPOCHS.fetch_derived(fs, path)
    if fault is not None:
        trace.later(trace.DAMAGED_KEPT, path=path, kept=set_aside(fs, path), reason=fault)
    try:
        EPOCHS.parsed(data or b"", path)
    except CorruptionError:
        keep_damaged(fs, directory, LEADER_EPOCH_CHECKPOINT, data or b"")
    write_atomically(fs, directory, LEADER_EPOCH_CHECKPOINT, encode_epochs(epochs))


def encode_epochs(epochs: list[EpochEntry]) -> bytes:
    """Returns the content of a `leader-epoch-checkpoint` (storage-format 3.4.1)."""
    lines = ["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in epochs)]
    return ("\n".join(lines) + "\n").encode()


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
