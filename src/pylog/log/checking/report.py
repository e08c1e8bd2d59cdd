"""The input of `check` and `verify` (a partition as its log sees it), and their reports: findings, counts, verdicts.

The kinds of findings, in addition to those of recovery ("torn", "corrupt", "missing"):

* "unreadable": the system or pylog could not read it: a bad sector, a codec or version of a later pylog, a decompression bomb.
* "derived": a derived file is missing, damaged, or does not match the batches. It costs time, never data.
* "state": the open log and its files differ: a bug in pylog, or another program has changed the files.
* "leftover": a file that should have been removed.
* "foreign": pylog's metadata of a file is stale, because another program has written it. A segment counts as unsealed.
* "unmade": a partition that was not created yet, and by all signs never existed.
* "undecodable", "transaction": of the states of transactional ids (`transactions.checking`).
* "behind": bytes after the end of a log that is not open, without a record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from pylog.directory.checkpoints import LOG_START, OFFSETS, RECOVERY_POINT, Offsets
from pylog.directory.leader_epoch_cache import EpochEntry, read_epochs
from pylog.errors import CorruptionError, PylogError, StorageFailedError
from pylog.fs import FileSystem, join
from pylog.log.durable_point import DurablePoint, newest_slot
from pylog.log.recovery.findings import Finding
from pylog.log.state import LogState
from pylog.record.types import TopicPartition
from pylog.segment.names import LEADER_EPOCH_CHECKPOINT, LOG
from pylog.segment.seal import Seal, unmarked_seal
from pylog.segment.segment import LogSegment, vanished
from pylog.text import counted, counts_text

GOOD: Final = "good"
BEHIND: Final = "behind"
# Bytes after an end were never acknowledged; records in remote storage are served by the broker.
HARMLESS: Final = frozenset({"foreign", "torn", "unmade", "remote", "transaction", BEHIND})
ATTEMPTS: Final = 3
LONGEST_CHANGE_S: Final = 2.0  # after that, the process that started a change of segments counts as dead
_NAP_S: Final = 0.005
_SHOWN: Final = 100  # findings in a report's text


class Partition(NamedTuple):
    """A snapshot of a partition by its open log.

    Attributes:
        fs, key, directory: the partition.
        state: the published state.
        writable: true if open for writing: the indexes of the active segment are in memory.
        quiet: true if no other process changes it, so that unfinished files are leftovers, or work of this process.
        found: the findings from opening it.
        header_digest: the active segment's header digest (6.3): a position, and the digest up to it; None if unknown.
        compacted_to: compaction may have reached this offset: gaps between segments below it are no loss.
        still: prevents changes by threads of this process too; yields False if one of them is compacting it.
        both: the state of both tiers of a tiered log; None for other logs.
        tiered_start: the start in the header of a log that was tiered: the archive's start is raised first. 0 for other logs.
    """

    fs: FileSystem
    key: TopicPartition
    directory: str
    state: LogState
    writable: bool
    quiet: bool
    found: tuple[Finding, ...] = ()
    header_digest: tuple[int, int] | None = None
    compacted_to: int = 0
    still: Callable[[], AbstractContextManager[bool]] = lambda: nullcontext(True)
    both: LogState | None = None
    tiered_start: int = 0

    def whole(self) -> Partition:
        """Returns the partition with its archived segments."""
        return self if self.both is None else self._replace(state=self.both)

    def archived_gap(self, log_start: int) -> tuple[int, int] | None:
        """Returns the first offsets before the local segments that the archive does not have; None if it has all of them."""
        end = log_start
        for base, segment in () if self.both is None else self.both.segments:
            if base > end:
                return end, base
            if segment.vouched is None:
                return None
            end = max(end, segment.vouched.end_offset)
        return None

    def segments(self) -> list[tuple[LogSegment, int | None]]:
        """Returns the segments, each with the next one's base offset."""
        listed = self.state.segments.values()
        return list(zip(listed, [*(segment.base_offset for segment in listed[1:]), None], strict=False))

    def is_active(self, segment: LogSegment) -> bool:
        """Returns whether a segment, or a copy of it, was the active one."""
        return self.state.active is not None and segment.base_offset == self.state.active.base_offset

    def has_moved(self) -> bool:
        """Returns whether the log has grown since: the files may be newer than the state."""
        active = self.state.active
        torn = [finding.position + finding.size for finding in self.found if finding.kind == "torn"]
        known = {} if active is None else {active.log_name: max([self.state.active_size, *torn])}
        last = next((entry for entry in reversed(self.fs.list(self.directory)) if entry.name.endswith(LOG)), None)
        if self.quiet or last is None or last.size <= known.get(last.name, -1):
            return False
        return active is None or last.name != active.log_name or not active.file().is_blank(known[last.name], last.size)

    def past_the_end(self, kind: str) -> list[Finding]:
        """Returns findings of opening that are after the log end, which no read can reach."""
        active, size = self.state.active, self.state.active_size
        found = (finding for finding in self.found if active is not None and finding.path == active.path)
        return [finding for finding in found if finding.kind == kind and finding.position >= size]

    def was_cut(self) -> bool:
        """Returns whether the log was ever truncated: a truncation inside a batch deletes the whole batch, which leaves a gap."""
        slot = self.slot()
        return slot is not None and slot.truncation_count > 0

    def shape(self) -> object:
        """Returns a value that changes with the segments; findings from before a change are inconclusive."""
        slot = self.slot()
        sealed = [(entry.name, entry.size) for entry in self.fs.list(self.directory) if entry.name.endswith(LOG)][:-1]
        return sealed, None if slot is None else (slot.epoch, slot.truncation_count)

    def is_changing(self) -> bool:
        """Returns whether segments are being added, deleted or replaced, or a process died during that."""
        slot = self.slot()
        return slot is not None and slot.epoch % 2 == 1

    def known_of(self, segment: LogSegment) -> Seal | None:
        """Returns the header's facts about the active segment's batches; None for other segments."""
        if self.header_digest is None or not self.is_active(segment):
            return None
        return unmarked_seal(segment.base_offset, *self.header_digest)

    def short_of(self, offset: int, who: str) -> Finding:
        """Reports that the log ends before an offset that it once had."""
        active, end = self.state.active, self.state.end_offset
        path, position = (self.directory, 0) if active is None else (active.path, self.state.active_size)
        message = f"ends at offset {end}, but according to {who} it reached {offset}"
        return about("missing", path, message, position=position, offset=end)

    def epochs(self) -> tuple[list[EpochEntry] | None, list[Finding]]:
        """Returns the leader epochs; None if the file is missing or damaged, which is a finding."""
        try:
            return read_epochs(self.fs, self.directory), []
        except PylogError as error:
            return None, [of_error(error, join(self.directory, LEADER_EPOCH_CHECKPOINT), "derived")]

    def slot(self) -> DurablePoint | None:
        """Returns the valid slot of the header with the highest counter, even if stale; None if there is none."""
        return newest_slot(self.fs, self.directory)

    def is_own(self, slot: DurablePoint) -> bool:
        """Returns whether a slot refers to the file of the active segment."""
        active = self.state.active
        if active is None or active.base_offset != slot.active_base or not self.fs.exists(active.path):
            return False
        file = self.fs.open(active.path)
        try:
            return file.identity()[1] == slot.active_inode
        finally:
            file.close()


ReadPartition = Callable[[], Partition]


class CheckpointedOffsets(NamedTuple):
    """The checkpoints of a log directory: synced ends and log starts."""

    root: str
    recovery_points: Offsets
    log_starts: Offsets


def read_checkpoints(fs: FileSystem, root: str) -> tuple[CheckpointedOffsets, list[Finding]]:
    """Reads the checkpoints, with the findings; a damaged one counts as empty."""
    read: list[Offsets] = []
    findings = []
    for path in (join(root, RECOVERY_POINT), join(root, LOG_START)):
        try:
            data, fault, *_ = OFFSETS.fetch_derived(fs, path)
            if fault is not None:
                raise CorruptionError(f"{path} cannot be used: {fault}", path=path)
            read.append(OFFSETS.parsed(data or b"", path))
        except PylogError as error:
            read.append({})
            findings.append(of_error(error, path, "derived"))
    return CheckpointedOffsets(root, *read), findings


@dataclass(frozen=True)
class FileVerdict:
    """The verdict on one `.log` file.

    Attributes:
        path: the file.
        size: its valid bytes.
        batches: the number of good batches.
        sealed: true if its own seal confirms all of its bytes.
        verdict: "good", or the kind of the first finding about it.
    """

    path: str
    size: int
    batches: int
    sealed: bool
    verdict: str

    def __str__(self) -> str:
        sealed = ", sealed" if self.sealed else ""
        return f"{self.verdict}: {self.path} ({counted(self.size, 'byte')}, {counted(self.batches, 'batch')}{sealed})"


@dataclass(frozen=True)
class Report:
    """The result of a check of a store, or of a part of it.

    Attributes:
        findings: in the order of the files.
        partitions, segments, batches, bytes: the checked amounts; only good ones count.
        records: in those batches; an entry of format 0 or 1 counts as one.
        files: a verdict for each `.log` file that was read.

    >>> report = Report(partitions=1)
    >>> report.ok, str(report)
    (True, 'nothing wrong in 1 partition: 0 segments, 0 batches, 0 records, 0 bytes')
    """

    findings: tuple[Finding, ...] = ()
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    files: tuple[FileVerdict, ...] = ()

    @property
    def ok(self) -> bool:
        """True if nothing is wrong. A torn tail or a foreign seal is a finding, but not wrong."""
        return all(finding.kind in HARMLESS for finding in self.findings)

    def __add__(self, other: Report) -> Report:
        return Report(
            self.findings + other.findings,
            self.partitions + other.partitions,
            self.segments + other.segments,
            self.batches + other.batches,
            self.records + other.records,
            self.bytes + other.bytes,
            self.files + other.files,
        )

    def with_findings(self, findings: Iterable[Finding]) -> Report:
        """Returns the report with more findings."""
        return replace(self, findings=(*self.findings, *findings))

    def __str__(self) -> str:
        counts = counts_text({"segment": self.segments, "batch": self.batches, "record": self.records, "byte": self.bytes})
        message = counted(len(self.findings), "finding") if self.findings else "nothing wrong"
        lines = [f"{message} in {counted(self.partitions, 'partition')}: {counts}"]
        lines += [f"  {finding.kind}: {finding.message}" for finding in self.findings[:_SHOWN]]
        if len(self.findings) > _SHOWN:
            lines.append(f"  and {len(self.findings) - _SHOWN} more")
        return "\n".join(lines)


def ask(read: ReadPartition, question: Callable[[Partition], Report]) -> Report:
    """Runs a check of a partition. Repeats it if something is wrong and the partition may have changed during the check.

    If only threads of this process can have changed it, they are blocked during the second check.

    Raises:
        UnknownTopicOrPartitionError: its topic was deleted meanwhile.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return _answered(read, question)
        except StorageFailedError as error:
            if not vanished(error):
                raise
    return _answered(read, question)  # `read` raises if the topic was deleted


def _answered(read: ReadPartition, question: Callable[[Partition], Report]) -> Report:
    partition = read()
    if not partition.quiet:
        return _agreed(read, question)
    report = question(partition)
    if not report.ok:
        with partition.still() as idle:  # a running compaction has unfinished files
            report = question(read()._replace(quiet=idle))
    return report


def _agreed(read: ReadPartition, question: Callable[[Partition], Report]) -> Report:
    """Runs a check of a partition that other processes may change.

    A finding after a change of segments may only be an old name with a new file. If they change all the time, findings that two
    checks agree on are returned.
    """
    report, partition = Report(), read()
    for number in range(ATTEMPTS):
        before, reported = _shape_at_rest(partition) if number else partition.shape(), report.findings
        partition = read()  # again: the previous state may be older than the files
        report = question(partition)
        if report.ok or (partition.shape() == before and (number or not partition.is_changing())):
            break
        if number:
            report = replace(report, findings=tuple(finding for finding in report.findings if finding in reported))
    return report


def _shape_at_rest(partition: Partition) -> object:
    """Waits for the end of a change of segments, during which old and new files exist, and returns the partition's shape."""
    pause, waited = threading.Event(), 0.0
    while waited < LONGEST_CHANGE_S and partition.is_changing():
        pause.wait(_NAP_S)
        waited += _NAP_S
    return partition.shape()


def about(kind: str, path: str, message: str, *, position: int = 0, size: int = 0, offset: int = 0) -> Finding:
    """Returns a finding about a file. Its message is the path and a text.

    >>> about("leftover", "/data/t-0/x.tmp", "is left over").message
    '/data/t-0/x.tmp is left over'
    """
    return Finding(kind, path, position, size, offset, None, f"{path} {message}")


def of_error(error: PylogError, path: str, kind: str = "") -> Finding:
    """Returns a finding from an error.

    Args:
        error: the error.
        path: the file, if the error names none.
        kind: by default "corrupt" for damage, and "unreadable" for all other errors.
    """
    usual = "corrupt" if isinstance(error, CorruptionError) else "unreadable"
    next_offset = error.next_offset if isinstance(error, CorruptionError) else None
    return Finding(kind or usual, error.path or path, error.position or 0, 0, error.offset or 0, next_offset, str(error))
