"""`verify`: reads all files and compares them with their checksums and digests (reliability 6.4). Changes nothing.

It checks each batch's checksum, gaps between batches, header digests of seals, indexes, transactions and snapshots; on request
each record. It works on read-only stores and while a writer is running: each partition is checked as published at one moment.

Files are read, never mapped: a bad sector is an error of `read`, but a signal that ends the process in a mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from pylog.arguments import check_callable
from pylog.clock import Clock
from pylog.errors import InvalidArgumentError, PylogError, UnknownTopicOrPartitionError
from pylog.fs import FILES, FileSystem, join
from pylog.index import kinds
from pylog.index.transaction_index import AbortedTransaction
from pylog.log.checking.check import check_ends, check_files
from pylog.log.checking.log_watch import LogWatch
from pylog.log.checking.report import (
    CheckpointedOffsets,
    Partition,
    ReadPartition,
    Report,
    about,
    ask,
    of_error,
    read_checkpoints,
)
from pylog.log.producer_state import Producer, ProducerStateManager
from pylog.log.recovery.findings import Finding
from pylog.log.recovery.producer_snapshots import read_snapshot
from pylog.record.control_batch import control_record
from pylog.record.decoder import RecordDecoder
from pylog.record.format import (
    ATTRIBUTES,
    CONTROL_ABORT,
    CONTROL_BIT,
    LAST_OFFSET,
    POSITION,
    PRODUCER_ID,
    SIZE,
)
from pylog.segment.batch_walk import WalkedRange, walk
from pylog.segment.names import SNAPSHOT, TRANSACTION_INDEX, file_name
from pylog.segment.segment import LogSegment

Progress = Callable[[int, int, str], None]
_Spanned = tuple[int, int, int]  # an aborted transaction: producer id, first offset, offset of its marker


def verify_store(
    fs: FileSystem,
    root: str,
    partitions: Iterable[ReadPartition],
    clock: Clock,
    *,
    rate_limit: float | None = None,
    progress: Progress | None = None,
    records: bool = False,
) -> Report:
    """Reads and verifies all partitions.

    Args:
        fs, root: the log directory.
        partitions: functions that return the partitions; called once for the sizes, and again for the state to verify. One that
            was just deleted is no finding.
        clock: for `rate_limit`.
        rate_limit: the largest average rate, in bytes a second; None for no limit.
        progress: called with (bytes done, bytes in total, path) about a hundred times a GiB, without a lock.
        records: true to parse each record too, which decompresses compressed batches.

    Returns:
        A `Report` with a verdict for each `.log` file.

    Raises:
        InvalidArgumentError: `rate_limit` is not positive. Damage raises no error.

    Cost: about 3 GB/s without `records`; memory for one chunk, or the largest batch. Spec: reliability 6.4.
    """
    check_callable("progress", progress)
    if rate_limit is not None and (not isinstance(rate_limit, int | float) or not rate_limit > 0):
        raise InvalidArgumentError(f"rate_limit={rate_limit!r} is not a positive number of bytes a second")
    reads = list(partitions)
    ends, findings = read_checkpoints(fs, root)
    pace = _Pace(clock, sum(map(_size, reads)), rate_limit, progress)
    report = Report().with_findings(findings)
    for read in reads:
        try:
            report += _verified(read, ends, pace, records=records)
        except UnknownTopicOrPartitionError:
            continue  # its topic was deleted meanwhile
        except PylogError as error:
            report += Report(partitions=1).with_findings([of_error(error, root)])
    return report


def _size(read: ReadPartition) -> int:
    try:
        partition = read()
    except PylogError:
        return 0  # reported when it is verified
    whole = partition.whole()
    return sum(whole.state.size_of(segment) for segment, _ in whole.segments())


def _verified(read: ReadPartition, ends: CheckpointedOffsets, pace: _Pace, *, records: bool) -> Report:
    begun = pace.done

    def question(partition: Partition) -> Report:
        pace.done = begun
        return _verify_partition(partition, pace, records=records).with_findings(check_ends(partition, ends))

    return ask(read, question)


class _Pace:
    """Reports progress, and limits the rate.

    Attributes:
        done: the bytes read; reduced if some must be read again.
    """

    def __init__(self, clock: Clock, total: int, rate_limit: float | None, progress: Progress | None) -> None:
        self._clock = clock
        self._total = total
        self._rate_limit = rate_limit
        self._progress = progress
        self._begun = clock.monotonic()
        self._read = 0
        self.done = 0

    def passed(self, size: int, path: str) -> None:
        """Counts bytes, and waits as the rate requires."""
        self.done += size
        self._read += size
        if self._progress is not None:
            self._progress(self.done, max(self.done, self._total), path)
        if self._rate_limit is not None:
            early = self._begun + self._read / self._rate_limit - self._clock.monotonic()
            if early > 0:
                self._clock.sleep(early)


def _verify_partition(partition: Partition, pace: _Pace, *, records: bool) -> Report:
    whole = partition.whole()
    watch, producers = LogWatch(whole), _ProducerWatch(whole)
    verdicts = []
    for segment, following in whole.segments():
        own = private_copy(segment, whole.state.size_of(segment), sealed=not partition.is_active(segment))
        producers.enter(own)
        walked_ranges = _read(own, following, pace, watch, producers, records=records)
        verdicts.append(watch.follow(own, own.size, walked_ranges))
    findings = [*check_files(partition), *partition.past_the_end("torn")]  # if the partition still exists
    if watch.whole:
        findings += producers.findings()
    return (watch.report() + Report(files=tuple(verdicts))).with_findings(findings)


def private_copy(segment: LogSegment, size: int, *, sealed: bool, mapped: bool = False) -> LogSegment:
    """Returns the segment for plain reads, by default without a mapping. Nothing of it is rebuilt or written."""
    copy = LogSegment(
        segment.fs,
        segment.directory,
        segment.base_offset,
        size=size,
        mtime_ms=segment.appends.file_ms,
        open_files=FILES,
        sealed=sealed,
        mapped=mapped,
        log_name=segment.log_name,
        pending=segment.pending,
    )
    copy.builder, copy.vouched, copy.published = segment.builder, segment.vouched, segment.published
    return copy


def _read(
    segment: LogSegment, following: int | None, pace: _Pace, watch: LogWatch, producers: _ProducerWatch, *, records: bool
) -> Iterator[WalkedRange]:
    """Yields the walked ranges of a segment, after checking each."""
    done = 0
    for walked in walk(segment, 0, segment.size, following, verify=True):
        yield walked
        producers.take(walked)
        if records:
            for finding in _bad_records(segment, walked):
                watch.add_finding(finding)
        end = _end_of(walked)
        pace.passed(end - done, segment.path)
        done = end


def _end_of(walked: WalkedRange) -> int:
    if walked.damage is not None:
        return walked.damage.end
    return walked.shift + int(walked.table[POSITION, -1] + walked.table[SIZE, -1])


def _bad_records(segment: LogSegment, walked: WalkedRange) -> Iterator[Finding]:
    """Yields batches whose records do not parse although their checksums are right."""
    first, count = 0, walked.table.shape[1]
    while first < count:
        decoder = RecordDecoder(("offset",), verify=False)
        table = np.ascontiguousarray(walked.table[:, first:])
        try:
            for _ in (*decoder.feed(walked.buffer, table), *decoder.finish()):
                pass
            return
        except PylogError as error:
            batch = int(walked.table[POSITION].searchsorted(error.position or 0))
            position, size, offset = walked.shift + (error.position or 0), int(walked.table[SIZE, batch]), error.offset or 0
            message = f"{segment.path} at position {position}: {error}"
            yield of_error(error, segment.path)._replace(position=position, size=size, offset=offset, message=message)
            first = batch + 1


# ---- producers ---------------------------------------------------------------------------------------------------------------


class _ProducerWatch:
    """Replays the producer state, and compares it with the transaction indexes and the snapshots (storage-format 3.9, 3.10).

    If the first segments were deleted, their producers are unknown, so only state that began in the log is compared.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._start = next((segment.base_offset for segment, _ in partition.segments()), 0)
        self._state = ProducerStateManager(end_offset=self._start)
        self._aborted: list[AbortedTransaction] = []
        self._first_markers: dict[int, tuple[int, int]] = {}  # of each producer: offset and type; it may end what began before
        self._segments: list[tuple[LogSegment, int]] = []  # each with the number of earlier aborted transactions
        self._findings: list[Finding] = []

    def enter(self, segment: LogSegment) -> None:
        """Starts a segment."""
        self._segments.append((segment, len(self._aborted)))
        self._compare_snapshot(segment.base_offset)

    def take(self, walked: WalkedRange) -> None:
        """Replays the next batches."""
        self._note_first_markers(walked)
        self._aborted += self._state.replay(walked.buffer, walked.table)

    def _note_first_markers(self, walked: WalkedRange) -> None:
        buffer, table = walked.buffer, walked.table
        for batch in np.flatnonzero(table[ATTRIBUTES] & CONTROL_BIT).tolist():
            producer_id = table.item(PRODUCER_ID, batch)
            if producer_id not in self._first_markers and (marker := control_record(buffer, table, batch)) is not None:
                self._first_markers[producer_id] = table.item(LAST_OFFSET, batch), marker.type

    def findings(self) -> list[Finding]:
        """Returns the findings, after all segments, if nothing is damaged or compacted."""
        self._compare_snapshot(self._partition.state.end_offset)
        ends = [*(before for _, before in self._segments[1:]), len(self._aborted)]
        for (segment, first), end in zip(self._segments, ends, strict=False):
            self._compare_transactions(segment, self._aborted[first:end])
        return self._findings

    def _compare_transactions(self, segment: LogSegment, aborted: list[AbortedTransaction]) -> None:
        """Compares a transaction index: a missing transaction would be read as committed, an extra one would be hidden.

        The index of the active segment is written when the segment is sealed or closed.
        """
        path = segment.path_of(TRANSACTION_INDEX)
        data, fault, *_ = kinds.TRANSACTIONS.fetch_derived(segment.fs, path, segment.size)
        if fault is not None:
            self._findings.append(about("derived", path, f"cannot be used: {fault}"))
            return
        index, _ = kinds.TRANSACTIONS.parsed(data or b"", path, segment.base_offset)
        ended = [entry for entry in index.entries if entry.last_offset >= self._start]
        known = {(entry.producer_id, max(entry.first_offset, self._start), entry.last_offset) for entry in ended}
        begun_before = {(entry.producer_id, entry.last_offset) for entry in ended if entry.first_offset < self._start}
        found = self._counted_from_start({entry[:3] for entry in aborted}, begun_before)
        wrong = sorted(known ^ found if segment.sealed else known - found)
        if wrong:
            producer, first, last = wrong[0]
            difference = "has a transaction that was not aborted" if wrong[0] in known else "does not have an aborted transaction"
            message = f"{difference}: of producer {producer}, offsets {first} to {last}"
            self._findings.append(about("derived", path, message, offset=first))

    def _counted_from_start(self, found: set[_Spanned], begun_before: set[tuple[int, int]]) -> set[_Spanned]:
        """Returns the transactions; one that began before the log start counts from it, wherever the rest of its data begins."""
        seen = {(producer, self._start if (producer, last) in begun_before else first, last) for producer, first, last in found}
        markers = {each for each in begun_before if self._first_markers.get(each[0]) == (each[1], CONTROL_ABORT)}
        return seen | {(producer, self._start, last) for producer, last in markers}

    def _compare_snapshot(self, offset: int) -> None:
        """Compares a snapshot: it may have no entry for idle producers, and the last batch of all others."""
        path = join(self._partition.directory, file_name(offset, SNAPSHOT))
        try:
            snapshot = read_snapshot(self._partition.fs, self._partition.directory, offset)
        except PylogError:
            return  # `check_files` reports it
        known = {producer.producer_id: producer for producer in self._state.producers}
        for producer in [] if snapshot is None else snapshot.producers:
            replayed = known.get(producer.producer_id)
            unknown = replayed is None and producer.last_offset < self._start
            if not unknown and (replayed is None or not self._agrees(producer, replayed)):
                message = f"has other values for producer {producer.producer_id} than its batches"
                self._findings.append(about("derived", path, message, offset=offset))
                return

    def _agrees(self, kept: Producer, replayed: Producer) -> bool:
        """Returns whether a snapshot agrees with a replay, which lacks all that was before the log start."""
        if 0 <= kept.last_offset < self._start:
            return kept.epoch == replayed.epoch
        of_batch = kept.epoch, kept.last_sequence, kept.last_offset
        begun_before = 0 <= kept.transaction_first_offset < self._start
        return of_batch == (replayed.epoch, replayed.last_sequence, replayed.last_offset) and (
            begun_before or kept.transaction_first_offset == replayed.transaction_first_offset
        )
