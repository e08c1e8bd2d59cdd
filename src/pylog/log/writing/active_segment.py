"""`ActiveSegment`: the segment that is appended to: its file, its indexes and digest, and how far it is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from pylog import limits
from pylog.config import TopicConfig
from pylog.errors import CorruptionError
from pylog.fs import FileSystem, join
from pylog.index.builder import SegmentIndexBuilder
from pylog.index.transaction_index import AbortedTransaction
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.recovery.log_end import altered_message
from pylog.log.writing.active_file import ActiveFile
from pylog.log.writing.readying import cut_tail, make_durable
from pylog.log.writing.rolling import SegmentUse, empty_segment
from pylog.record import kernels
from pylog.record.batch import Bytes, Table
from pylog.record.builder import Encoded
from pylog.record.few import EncodedBatch
from pylog.record.format import BASE_OFFSET, CRC_GOOD, CRC_STATE, LAST_OFFSET, MAX_TIMESTAMP, POSITION, SIZE
from pylog.segment.header_digest import HeaderDigest, digest_and_indexes_of, digest_of
from pylog.segment.log_file import Region
from pylog.segment.names import LOG, file_name
from pylog.segment.seal import make_seal, write_seal
from pylog.segment.segment import LogSegment


@final
class ActiveSegment:
    """The segment that is appended to. Not thread-safe: its `LogWriter` calls it under the partition's lock.

    Args:
        segment, file, builder, digest: the segment, its file, and its indexes and digest up to `size`.
        size: bytes that are written.
        next_offset: the offset of the next record.
        config: the topic's options.

    Attributes:
        segment, file, size, next_offset: as given, and kept up to date. Records after the published end count as written.
        digest: the digest of the batch headers that are written.
        aborted: the transactions that markers in the segment abort, as far as the transaction index lacks them.
    """

    __slots__ = (
        "_builder",
        "_config",
        "_first_timestamp",
        "_sure_entries",
        "aborted",
        "digest",
        "file",
        "next_offset",
        "segment",
        "size",
    )

    def __init__(
        self,
        segment: LogSegment,
        file: ActiveFile,
        builder: SegmentIndexBuilder,
        digest: HeaderDigest,
        size: int,
        next_offset: int,
        config: TopicConfig,
    ) -> None:
        self.segment = segment
        self.file = file
        self.digest = digest
        self.size = size
        self.next_offset = next_offset
        self.aborted: list[AbortedTransaction] = []
        self._builder = builder
        self._config = config
        self._sure_entries = 0  # the number of batches that the indexes can certainly take, or fewer
        self._first_timestamp = segment.first_timestamp() if size else -1  # the largest one of the first batch

    @property
    def base_offset(self) -> int:
        """The segment's base offset."""
        return self.segment.base_offset

    def use(self) -> SegmentUse:
        """Returns how full the segment is, for the decision to roll."""
        segment = self.segment
        left = self._sure_entries = self._builder.entries_left(self._config.segment_index_bytes)
        return SegmentUse(segment.base_offset, self.size, self._first_timestamp, segment.appends.begun_ms or 0, left)

    def surely_takes(self, column: Sequence[int], now_ms: int) -> bool:
        """Returns True for a batch that fits by sizes and timestamps alone, as nearly all do. Of others, `one_fits` decides.

        Args:
            column: the batch's.
            now_ms: the wall clock, in milliseconds.
        """
        config, first, stamp = self._config, self._first_timestamp, column[MAX_TIMESTAMP]
        return (
            self._sure_entries > 0
            and self.size + column[SIZE] <= config.segment_bytes
            and column[LAST_OFFSET] - self.segment.base_offset <= limits.MAX_RELATIVE_OFFSET
            and 0 <= first <= now_ms
            and 0 <= stamp <= first + config.roll_ms
        )

    # ---- append --------------------------------------------------------------------------------------------------------------

    def append_one(self, batch: EncodedBatch, now_ms: int, send_from: int) -> None:
        """Writes and indexes one batch. In plain Python, which takes a fraction of the time of `append`.

        Args:
            batch: the batch.
            now_ms: the wall clock, in milliseconds.
            send_from: the number of unsent bytes from which on the system sends them to the disk at once.
        """
        column, start = batch.column, self.size
        self.file.put(batch.data, start, send_from=send_from)
        self.segment.appends.note(now_ms)
        end = start + column[SIZE]
        if start == 0:
            self._first_timestamp = column[MAX_TIMESTAMP]
        self.digest.add_one(batch.data, end)
        self._builder.add_one(column, start)
        self._sure_entries -= 1  # each batch takes at most one
        self.size, self.next_offset = end, column[LAST_OFFSET] + 1

    def append(self, piece: Encoded, first: int, end: int, now_ms: int, send_from: int) -> int:
        """Writes and indexes the batches `first` to `end - 1` of a piece; returns how many bytes they have."""
        table = piece.table
        start = table.item(POSITION, first)
        stop = table.item(POSITION, end - 1) + table.item(SIZE, end - 1)
        self.file.put(piece.data[start:stop], self.size, send_from=send_from)
        self.segment.appends.note(now_ms)
        self._note(piece.data, table, first, end, self.size - start)
        return int(stop - start)

    def _note(self, data: memoryview | Bytes, table: Table, first: int, end: int, shift: int) -> None:
        """Adds batches that are in the file to the indexes, the digest and the counts."""
        if self.size == 0:
            self._first_timestamp = table.item(MAX_TIMESTAMP, first)
        self.digest.add(data, table, first, end, shift)
        self._builder.add(table, end, first=first, position=shift)
        self._sure_entries -= end - first
        self.size = shift + table.item(POSITION, end - 1) + table.item(SIZE, end - 1)
        self.next_offset = table.item(LAST_OFFSET, end - 1) + 1

    def take(self, region: Region) -> bool:
        """Adds the batches of a region that another process has written. False if they are damaged or do not follow."""
        table = region.table
        if region.status not in (kernels.OK, kernels.FULL) or np.any(table[CRC_STATE] != CRC_GOOD):
            return False
        count = table.shape[1]
        if count == 0:
            return True
        if table[BASE_OFFSET, 0] != self.next_offset or np.any(table[BASE_OFFSET, 1:] != table[LAST_OFFSET, :-1] + 1):
            return False
        self._note(region.buffer, table, 0, count, region.shift)
        return True

    # ---- undo ----------------------------------------------------------------------------------------------------------------

    def step_back(self, size: int, next_offset: int) -> None:
        """Takes back the size and the next offset, before `file.cut` and `index_again`."""
        self.size, self.next_offset = size, next_offset
        self.aborted = [each for each in self.aborted if each.last_offset < next_offset]

    def index_again(self) -> None:
        """Computes digest and indexes again, up to the size."""
        self.digest, builder = digest_and_indexes_of(self.segment, self.size, self._config.index_interval_bytes)
        self._builder = self.segment.builder = builder
        self._sure_entries = 0

    # ---- facts and files -----------------------------------------------------------------------------------------------------

    def ends(self) -> dict[str, int]:
        """Returns the durable point's fields for a segment that is synced to its size."""
        base, position, offset = self.segment.base_offset, self.size, self.next_offset
        return {
            "active_base": base,
            "active_inode": self.file.raw.identity()[1],
            "published_position": position,
            "published_offset": offset,
            "durable_base": base,
            "durable_position": position,
            "durable_offset": offset,
            "header_digest": self.digest.value,
        }

    def write_seal(self, fs: FileSystem, directory: str, inode: int) -> None:
        """Writes the seal of the full segment."""
        write_seal(fs, directory, make_seal(self.segment.base_offset, self.next_offset, self.digest, inode=inode))

    def write_indexes(self, now_ms: int) -> None:
        """Writes the index files of a full or closing segment, and sets its file's time."""
        self.file.set_time(self.segment.appends.last(now_ms))
        self._builder.finish()
        self.segment.write_indexes(self._builder)
        if self.aborted:
            self.segment.add_aborted(self.aborted, complete=True)
            self.aborted = []


def loaded_segment(source: Source, loaded: Loaded, segment: LogSegment, builder: SegmentIndexBuilder) -> ActiveSegment:
    """Returns the active segment of a loaded log, ready for the next append. It includes batches that are not published yet."""
    size, interval = loaded.end, source.config.index_interval_bytes
    known = loaded.digest if loaded.digest is not None and loaded.digest.position == size else None
    digest = known or digest_of(segment, size, interval)
    if segment.published is not None and segment.published[0] == size and segment.published[1] != digest.value:
        message = f"{altered_message(segment, size)}; the partition is open only for reading until it is repaired"
        raise CorruptionError(message, path=segment.path, position=0, offset=segment.base_offset)
    file = ActiveFile(source.fs.open(segment.path, write=True), size)
    cut_tail(source, loaded, segment, file, size)
    if not loaded.clean or not source.clean:  # a process that died may have cut the file without a sync
        make_durable(source, loaded, segment, file, size)
    return ActiveSegment(segment, file, builder, digest, size, loaded.next_offset, source.config)


def new_segment(source: Source, base_offset: int, now_ms: int) -> ActiveSegment:
    """Creates an empty active segment. The name of its file is durable when this returns."""
    file = ActiveFile(source.fs.create(join(source.directory, file_name(base_offset, LOG))), 0)
    source.fs.sync_directory(source.directory)
    segment, interval = empty_segment(source, base_offset, now_ms), source.config.index_interval_bytes
    builder = segment.builder = SegmentIndexBuilder(base_offset, interval)
    return ActiveSegment(segment, file, builder, HeaderDigest(interval), 0, base_offset, source.config)
