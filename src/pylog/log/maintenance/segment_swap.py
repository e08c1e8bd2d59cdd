"""Replaces source segments by a compacted one. A crash leaves either the old ones or the new one (reliability 4).

First the new segment is written and synced under names that end in `.cleaned`. Then, under the partition's lock and an odd epoch:

1. Its files are renamed to `.swap`, which is the decision. The directory is synced.
2. `.log` is renamed over the first source's, and the files of the other sources are removed, oldest first. The directory is
synced. 3. The remaining files are renamed, the seal among them.

Every offset is in some file at any moment. While sources may be left, the seal, which names them, exists as `.swap`: a process
that opens the log removes them. A broker's loader also finishes the swap, or undoes it.

Compressed batches can grow when they lose records. If they outgrow a segment, several segments replace the sources. Their files
are renamed to `.swap` from the last segment to the first: while a `.cleaned` file of the first is left, a loader removes all of
them. Each seal names the sources from its own segment's base to the next one's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pylog import limits
from pylog.errors import StorageFailedError
from pylog.fs import File, join, remove_derived, write_and_close
from pylog.index.builder import SegmentIndexBuilder
from pylog.index.transaction_index import AbortedTransaction, TransactionIndex
from pylog.log.recovery.loaded import Source
from pylog.log.state import SegmentView
from pylog.log.writing.writer import LogWriter
from pylog.record.batch import Bytes, Table, scan_batches
from pylog.record.format import BASE_OFFSET, LAST_OFFSET, MAGIC, POSITION, SIZE
from pylog.segment.header_digest import HeaderDigest
from pylog.segment.names import CLEANED, INDEX, LOG, SEAL, SWAP, TIME_INDEX, TRANSACTION_INDEX, file_name, files_of
from pylog.segment.seal import encode_seal, make_seal
from pylog.segment.segment import LogSegment, vanished
from pylog.segment.times import AppendTimes

LARGEST_BYTES: Final = limits.MAX_SEGMENT_BYTES  # the largest size of a segment


class CleanedSegment:
    """The output of a compaction that replaces some segments: one segment, or several if one is too small.

    Args:
        source: the partition.
        replaced: the source segments, in order.
        end: the base of the segment after them.

    Raises:
        StorageFailedError: from every method, if the disk is full or fails.
    """

    def __init__(self, source: Source, replaced: Sequence[LogSegment], end: int) -> None:
        self._source = source
        self._replaced = replaced
        self._end = end
        self._outputs = [_Output(source, replaced[0].base_offset)]

    @property
    def size(self) -> int:
        """The size of all its batches, in bytes."""
        return sum(output.size for output in self._outputs)

    def append(self, batches: Bytes) -> None:
        """Appends whole batches."""
        output = self._outputs[-1]
        if output.size + batches.size <= LARGEST_BYTES and self._end - 1 - output.base <= limits.MAX_RELATIVE_OFFSET:
            output.append(batches)
            return
        for table, column in _each(batches):
            first, size = table.item(POSITION, column), table.item(SIZE, column)
            last_offset = table.item(LAST_OFFSET, column)
            if not self._outputs[-1].has_room(size, last_offset):
                whole = table.item(MAGIC, column) == 2  # older batches have no first offset
                base = table.item(BASE_OFFSET, column) if whole else self._outputs[-1].next_offset
                self._outputs.append(_Output(self._source, base))
            self._outputs[-1].append(batches[first : first + size])

    def finish(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Writes the other files, and syncs all. The age is that of the youngest source (storage-format 7.6.13)."""
        for output, end in self._with_ends():
            own = [segment for segment in self._replaced if output.base <= segment.base_offset < end]
            entries = [entry for entry in aborted if output.base <= entry.last_offset < end]
            output.finish(end, self._appended(), own, entries)
        self._source.fs.sync_directory(self._source.directory)  # while a `.cleaned` name exists, nothing is decided

    def _with_ends(self) -> Iterator[tuple[_Output, int]]:
        """Returns its segments, each with the base of the next one."""
        ends = [output.base for output in self._outputs[1:]] + [self._end]
        return zip(self._outputs, ends, strict=True)

    def _appended(self) -> int:
        """Returns when the last record was appended; 0 if unknown, which leaves the file's creation time."""
        return AppendTimes.of_several(segment.appends for segment in self._replaced).file_ms

    def discard(self) -> None:
        """Removes the written files that exist; the partition may have been deleted."""
        for output in self._outputs:
            output.discard()

    def swap_in(self, writer: LogWriter) -> None:
        """Replaces the sources. The caller holds the partition's lock; an error ends all writing."""
        for segment in self._replaced:
            segment.keep()  # for current readers
        directory = self._source.directory
        writer.published.begin_change()
        for output in reversed(self._outputs):
            output.give_suffix(output.names, CLEANED, SWAP)
        self._source.fs.sync_directory(directory)  # from here on it is decided
        for output in self._outputs:
            output.give_suffix(output.names[:1], SWAP, "")
        self._remove_others()
        self._source.fs.sync_directory(directory)  # before the seal, which names the sources, is renamed
        for output in self._outputs:
            output.give_suffix(output.names[1:], SWAP, "")  # no sync: opening the log repeats it
        writer.published.end_change()
        deleted = {segment.base_offset for segment in self._replaced}
        staying = [item for item in writer.state.segments if item[0] not in deleted]
        made = [(output.base, output.opened(self._appended())) for output in self._outputs]
        writer.published.change(segments=SegmentView(sorted([*staying, *made])))

    def _remove_others(self) -> None:
        """Removes the files of all sources whose names are not reused, and their producer snapshots."""
        names = {entry.name for entry in self._source.fs.list(self._source.directory)}
        new_bases = {output.base for output in self._outputs}
        for segment in self._replaced:
            for name in files_of(segment.base_offset, names) if segment.base_offset not in new_bases else ():
                remove_derived(self._source.fs, join(self._source.directory, name))


def _each(batches: Bytes) -> Iterator[tuple[Table, int]]:
    """Yields the batches one by one: table and column."""
    at = 0
    while at < batches.size:
        scan = scan_batches(batches, at)
        for column in range(scan.table.shape[1]):
            yield scan.table, column
        at = scan.position


class _Output:
    """A segment that compaction is writing.

    Attributes:
        base: its base offset.
        size: the bytes written.
        next_offset: the offset after its last batch.
        names: the names of its files, without suffixes; `.log` first.
    """

    def __init__(self, source: Source, base: int) -> None:
        self._source = source
        self.base = base
        self.names: list[str] = []
        self.size = 0
        self.next_offset = base
        interval = source.config.index_interval_bytes
        self._digest, self._builder = HeaderDigest(interval), SegmentIndexBuilder(base, interval)
        for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SEAL):  # left by an abandoned compaction
            path = self._path(suffix)
            if source.fs.exists(path):
                remove_derived(source.fs, path)
        self._file = self._create(LOG)

    def _path(self, suffix: str) -> str:
        return join(self._source.directory, file_name(self.base, suffix) + CLEANED)

    def has_room(self, size: int, last_offset: int) -> bool:
        """Returns whether a batch fits. One always fits into an empty segment."""
        fits = self.size + size <= LARGEST_BYTES and last_offset - self.base <= limits.MAX_RELATIVE_OFFSET
        return fits or not self.size

    def append(self, batches: Bytes) -> None:
        """Appends whole batches."""
        self._file.write(batches.data, self.size)
        self._file.write_back(self.size, batches.size)  # start the write-back before the sync
        at = 0
        while at < batches.size:
            table = (scan := scan_batches(batches, at)).table
            self._digest.add(batches, table, 0, table.shape[1], self.size)
            self._builder.add(table, table.shape[1], position=self.size)
            self.next_offset = table.item(LAST_OFFSET, -1) + 1
            at = scan.position
        self.size += batches.size

    def finish(self, end: int, mtime_ms: int, replaced: Sequence[LogSegment], aborted: Sequence[AbortedTransaction]) -> None:
        """Writes its other files, and syncs all.

        Args:
            end: the base of the segment after it.
            mtime_ms: when its last record was appended; 0 if that is not known.
            replaced: the sources with bases from its own up to `end`.
            aborted: the transactions that end in it.
        """
        if mtime_ms > 0:
            self._file.set_mtime(mtime_ms)
        self._file.sync()
        inode = self._file.identity()[1]
        self._file.close()
        self._builder.finish()
        self._write(INDEX, self._builder.offset_bytes())
        self._write(TIME_INDEX, self._builder.time_bytes())
        old = join(self._source.directory, file_name(self.base, TRANSACTION_INDEX))
        if aborted or self._source.fs.exists(old):  # otherwise the old one would stay
            self._write(TRANSACTION_INDEX, TransactionIndex(self.base, aborted).encoded())
        bases = [segment.base_offset for segment in replaced]
        self._write(SEAL, encode_seal(make_seal(self.base, end, self._digest, bases, inode=inode)))

    def _create(self, suffix: str) -> File:
        file = self._source.fs.create(self._path(suffix))
        self.names.append(file_name(self.base, suffix))
        return file

    def _write(self, suffix: str, data: bytes) -> None:
        write_and_close(self._create(suffix), data)

    def discard(self) -> None:
        """Removes those of its files that exist."""
        self._file.close()
        for name in self.names:
            try:
                self._source.fs.remove(join(self._source.directory, name + CLEANED))
            except StorageFailedError as error:
                if not vanished(error):
                    raise

    def give_suffix(self, names: Sequence[str], old: str, new: str) -> None:
        """Changes the suffix of some of its files."""
        for name in names:
            path = join(self._source.directory, name)
            self._source.fs.rename(path + old, path + new)

    def opened(self, mtime_ms: int) -> LogSegment:
        """Returns the segment, once its files have their final names."""
        source = self._source
        return LogSegment(
            source.fs,
            source.directory,
            self.base,
            size=self.size,
            mtime_ms=mtime_ms,
            open_files=source.open_files,
            mapped=True,
            if_free=source.if_free,
            interval_bytes=source.config.index_interval_bytes,
        )
