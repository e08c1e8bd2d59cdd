"""Putting a compacted segment in the place of its sources, so that a crash leaves the old ones or the new one (reliability 4).

The new segment is complete and synced under names that end in `.cleaned`. Then, under the partition's lock and an odd epoch: its
files are renamed to `.swap`, which decides it → directory synced → `.log` renamed over the first source's, the files of the
other sources removed, oldest first → directory synced → the rest renamed, the seal among them. At no moment is an offset in no
file, and as long as sources may be left the seal, which names them, lies there as `.swap`: whoever opens the log removes them. A
broker's loader finishes the swap too, or undoes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pylog.errors import StorageFailedError
from pylog.fs import File, join, remove_derived
from pylog.index.builder import SegmentIndexBuilder
from pylog.index.transaction_index import AbortedTransaction, TransactionIndex
from pylog.log.loaded import Source
from pylog.log.view import SegmentView
from pylog.log.writer import LogWriter
from pylog.record.batch import Bytes, scan_batches
from pylog.segment.names import CLEANED, INDEX, LOG, SEAL, SWAP, TIME_INDEX, TRANSACTION_INDEX, file_name, files_of
from pylog.segment.seal import HeaderDigest, encode_seal, make_seal
from pylog.segment.segment import LogSegment, vanished
from pylog.segment.times import AppendTimes


class CleanedSegment:
    """A segment while compaction writes it.

    Args:
        source: the partition.
        replaced: the segments that it is made from, in order.
        end: the base of the segment behind them.

    Raises:
        StorageFailedError: from every method: there is no room, or something else is wrong.
    """

    def __init__(self, source: Source, replaced: Sequence[LogSegment], end: int) -> None:
        self._source = source
        self._replaced = replaced
        self._end = end
        self._base = replaced[0].base_offset
        self._names: list[str] = []
        self.size = 0
        interval = source.config.index_interval_bytes
        self._digest, self._builder = HeaderDigest(interval), SegmentIndexBuilder(self._base, interval)
        for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SEAL):  # of a compaction that was given up
            path = self._path(suffix)
            if source.fs.exists(path):
                remove_derived(source.fs, path)
        self._file = self._create(LOG)

    def _path(self, suffix: str) -> str:
        return join(self._source.directory, file_name(self._base, suffix) + CLEANED)

    def append(self, batches: Bytes) -> None:
        """Writes whole batches behind those that are there."""
        self._file.write(batches.data, self.size)
        self._file.write_back(self.size, batches.size)  # it will be synced: the disk need not wait until then
        at = 0
        while at < batches.size:
            table = (scan := scan_batches(batches, at)).table
            self._digest.add(batches, table, 0, table.shape[1], self.size)
            self._builder.add(table, table.shape[1], position=self.size)
            at = scan.position
        self.size += batches.size

    def finish(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Writes the files that belong to it, and syncs all. It has the age of its youngest source (storage-format 7.6.13)."""
        if (mtime_ms := self._appended()) > 0:
            self._file.set_mtime(mtime_ms)
        self._file.sync()
        inode = self._file.identity()[1]
        self._file.close()
        self._builder.finish()
        transactions = TransactionIndex(self._base)
        for entry in aborted:
            transactions = transactions.appended(entry)
        self._write(INDEX, self._builder.offset_bytes())
        self._write(TIME_INDEX, self._builder.time_bytes())
        if aborted or self._source.fs.exists(self._replaced[0].path_of(TRANSACTION_INDEX)):  # else the old one would stay
            self._write(TRANSACTION_INDEX, transactions.encoded())
        bases = [segment.base_offset for segment in self._replaced]
        self._write(SEAL, encode_seal(make_seal(self._base, self._end, self._digest, bases, inode=inode)))
        self._source.fs.sync_directory(self._source.directory)  # as long as one name ends so, nothing is decided

    def _appended(self) -> int:
        """When the last record was appended; 0 if that is not known: then the file has the time of its making."""
        return AppendTimes.of_several(segment.appends for segment in self._replaced).file_ms

    def _create(self, suffix: str) -> File:
        file = self._source.fs.create(self._path(suffix))
        self._names.append(file_name(self._base, suffix))
        return file

    def _write(self, suffix: str, data: bytes) -> None:
        file = self._create(suffix)
        try:
            file.write(memoryview(data), 0)
            file.sync()
        finally:
            file.close()

    def discard(self) -> None:
        """Removes what was written, as far as it is there: the partition may have been deleted."""
        self._file.close()
        for name in self._names:
            try:
                self._source.fs.remove(join(self._source.directory, name + CLEANED))
            except StorageFailedError as error:
                if not vanished(error):
                    raise

    def swap_in(self, writer: LogWriter) -> None:
        """Takes the place of the sources. Under the partition's lock; whatever fails ends writing."""
        for segment in self._replaced:
            segment.keep()  # for those who read them now
        directory, log, derived = self._source.directory, self._names[0], self._names[1:]
        writer.begin_change()
        self._rename([log, *derived], CLEANED, SWAP)
        self._source.fs.sync_directory(directory)  # from here on it is decided
        self._rename([log], SWAP, "")
        self._remove_others()
        self._source.fs.sync_directory(directory)  # the seal says no more what is to be removed
        self._rename(derived, SWAP, "")  # whoever opens the log does it too, so nothing waits for the disk
        writer.end_change()
        gone = {segment.base_offset for segment in self._replaced}
        staying = [item for item in writer.state.segments if item[0] not in gone]
        items = sorted([*staying, (self._base, self._opened())])
        writer.set_state(segments=SegmentView(items))

    def _rename(self, names: Sequence[str], old: str, new: str) -> None:
        for name in names:
            path = join(self._source.directory, name)
            self._source.fs.rename(path + old, path + new)

    def _remove_others(self) -> None:
        """Removes the files of all sources but the first, whose names are taken, and the producer snapshots beside them."""
        names = {entry.name for entry in self._source.fs.list(self._source.directory)}
        for segment in self._replaced[1:]:
            for name in files_of(segment.base_offset, names):
                remove_derived(self._source.fs, join(self._source.directory, name))

    def _opened(self) -> LogSegment:
        source = self._source
        return LogSegment(
            source.fs,
            source.directory,
            self._base,
            size=self.size,
            mtime_ms=self._appended(),
            open_files=source.open_files,
            mapped=True,
            writable=True,
            interval_bytes=source.config.index_interval_bytes,
        )
