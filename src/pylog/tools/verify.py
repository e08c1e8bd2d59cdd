"""`verify`: reads all files of a directory and reports damage, lost offsets and advice.

The engine finds damage (`verify_store`). This module turns its findings into verdicts on files, offsets and advice. It writes
nothing and takes no lock, so it works while a broker is running, whose unfinished writes are not damage, and on read-only media.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pylog.clock import Clock, SystemClock
from pylog.errors import PylogError
from pylog.fs import FileSystem, OsFileSystem, absolute, base_name, join, parent_of
from pylog.log.checking.report import BEHIND, GOOD, HARMLESS, FileVerdict, Partition, ReadPartition, Report, of_error
from pylog.log.checking.verification import Progress, verify_store
from pylog.log.recovery.findings import Finding
from pylog.opening import open_store
from pylog.record.format import SIZE
from pylog.segment import names
from pylog.segment.batch_walk import is_preallocated, walk
from pylog.store import manager_of
from pylog.tools.names import named_file, segment_at
from pylog.tools.partitions import PartitionDirectory, partition_reader, sizes_of, targets
from pylog.tools.trailing_bytes import trailing_bytes
from pylog.topics.catalog import CATALOG, read_catalog
from pylog.topics.checking import check_catalog
from pylog.topics.signs import is_directory
from pylog.transactions.checking import transaction_findings
from pylog.urls import is_url

SOUND: Final = 0
DAMAGED: Final = 1
UNREADABLE: Final = 3

_LOSES: Final = frozenset({"corrupt", "missing", "unreadable"})  # kinds of findings that make records unreadable
_ADVICE: Final = {
    "corrupt": "restore the file from a copy, or keep everything readable: pylog repair skip {directory}",
    "missing": "restore the file from a copy, or accept the loss: pylog repair skip {directory}",
    "torn": "nothing: the system stopped during a write, and the next writer cuts it off",
    "unreadable": "copy the directory elsewhere first, then check permissions, disk and version",
    "derived": "nothing is lost; rebuild the file: pylog repair skip {directory}",
    "unmade": "nothing: the next writer creates it; if it had records, restore its directory before that",
    "foreign": "nothing: another program has written the file since pylog sealed or closed it",
    BEHIND: "nothing is lost: the next writer moves the bytes aside; or remove them now: pylog repair skip {directory}",
    "leftover": "nothing: the next writer removes it",
    "remote": "nothing: the broker serves these records; pylog reads only local segments",
    "transaction": "nothing is lost: pylog transactions lists, settles and aborts it",
    "undecodable": "read it with the version that wrote it, or restore the directory from a copy",
    "state": "verify again; if the finding stays, another program is changing the directory",
}
_ALL_FILES: Final = (
    "restore the directory from a copy, or accept the loss: the next append begins at the offset that the log had reached"
)
_OF_THE_ARCHIVE: Final = (
    "the archive has this segment, and a repair of the directory does not change it: pylog verify with the archive's URL names "
    "the object; restore that from a copy of the bucket"
)
_ARCHIVE_UNREADABLE: Final = (
    "check that the archive can be reached; if it can, restore the object from a copy of the bucket: pylog verify with the "
    "archive's URL names all objects that are missing"
)
_KNOWN: Final = (names.DURABLE_POINT, names.LEADER_EPOCH_CHECKPOINT, names.PARTITION_METADATA)


class Affected(NamedTuple):
    """A finding with its consequences.

    Attributes:
        finding: the engine's finding: kind, file, position and size in bytes, and a message.
        first_offset, last_offset: offsets whose records cannot be read, inclusive; the last is None if the extent is unknown.
            Both are None if no record is affected.
        advice: what to do next.
    """

    finding: Finding
    first_offset: int | None
    last_offset: int | None
    advice: str


class FileResult(NamedTuple):
    """The verdict on a file: "good", or the kind of its first finding. The size is in bytes."""

    path: str
    size: int
    verdict: str


class Readable(NamedTuple):
    """The readable offsets of a partition: ranges with inclusive ends."""

    directory: str
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Verification:
    """The result of a verification.

    Attributes:
        affected: damage and harmless findings, in the order of the files.
        files: a verdict for each file of Kafka or pylog.
        readable: the readable offsets of each partition with damage.
        report: the engine's report, with counts.
    """

    affected: tuple[Affected, ...] = ()
    files: tuple[FileResult, ...] = ()
    readable: tuple[Readable, ...] = ()
    report: Report = field(default_factory=Report)

    @property
    def ok(self) -> bool:
        """True if there is no damage."""
        return self.exit_code == SOUND

    @property
    def exit_code(self) -> int:
        """0 for no damage, 1 for damage, 3 if something could not be read and there is no other damage."""
        kinds = {each.finding.kind for each in self.affected} - HARMLESS
        if not kinds:
            return SOUND
        return UNREADABLE if kinds == {"unreadable"} else DAMAGED


def verify(
    path: str,
    *,
    records: bool = False,
    rate_limit: float | None = None,
    progress: Progress | None = None,
    alone: bool = False,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> Verification:
    """Verifies a log directory, one partition's directory, or one `.log` file.

    Args:
        path: the directory or file. For a single file, only its batches are checked.
        records: also parse each record, which decompresses all batches.
        rate_limit: maximal rate in bytes per second; None for no limit.
        progress: called with (bytes done, total bytes, path) some hundred times per GiB.
        alone: True if the caller excludes other writers. Bytes after a log's end are not an unfinished write then.
        fs, clock: the file system and the clock; by default the system's.

    Returns:
        A `Verification`. Damage raises no error.

    Raises:
        NotALogDirectoryError, StorageFailedError: the path cannot be read.
        InvalidArgumentError: `rate_limit` is not positive, or the file does not have the name of a segment.

    Cost: about 3 GB/s; memory for one chunk, or the largest batch.

    >>> import pylog, tempfile
    >>> root = tempfile.mkdtemp()
    >>> with pylog.open(root) as store:
    ...     _ = store.create_topic("orders")
    >>> verify(root).ok
    True
    """
    files, time = fs or OsFileSystem(), clock or SystemClock()
    if path.endswith(names.LOG) and not is_directory(files, path):
        return _verify_file(files, path)
    found = targets(files, path)
    reads = [partition_reader(files, target, time) for target in found]
    root = found[0].root if found else absolute(path)
    report = verify_store(files, root, reads, time, rate_limit=rate_limit, progress=progress, records=records)
    for target, read in zip(found, reads, strict=True):
        report = report.with_findings(trailing_bytes(files, target, read, report, alone=alone))
    if found and root == absolute(path):
        report = report.with_findings(_check_catalog(files, root, report))
        report = report.with_findings(_check_transactions(files, root, time))
    return _judged(files, found, reads, report)


def _check_catalog(fs: FileSystem, root: str, report: Report) -> list[Finding]:
    """Checks that everything in `pylog.json` exists. A broker's directory has no such file."""
    try:
        catalog = read_catalog(fs, root)
    except PylogError as error:
        return [of_error(error, join(root, CATALOG))]
    return [finding for finding in check_catalog(fs, root, catalog, quiet=False) if finding not in report.findings]


def _check_transactions(fs: FileSystem, root: str, clock: Clock) -> list[Finding]:
    """Checks the states of transactional ids. A directory that cannot be opened has findings already."""
    with contextlib.suppress(PylogError), open_store(root, "r", fs=fs, clock=clock) as store:
        return transaction_findings(store.transactions, manager_of(store))
    return []


# ---- one file ----------------------------------------------------------------------------------------------------------------


def _verify_file(fs: FileSystem, path: str) -> Verification:
    segment, following = segment_at(fs, named_file(path))
    findings, batches, good_bytes = [], 0, 0
    for walked in walk(segment, 0, segment.size, following, verify=True):
        table, damage = walked.table, walked.damage
        batches += table.shape[1]
        good_bytes += int(table[SIZE].sum())
        if damage is not None:
            kind = BEHIND if is_preallocated(segment, damage) else "corrupt"  # zeros may have replaced a batch
            message = f"{segment.path}: the batch at position {damage.position} (offset {damage.offset}) {damage.why}"
            size = damage.end - damage.position
            findings.append(Finding(kind, segment.path, damage.position, size, damage.offset, damage.next_offset, message))
    verdict = FileVerdict(segment.path, segment.size, batches, False, findings[0].kind if findings else GOOD)
    report = Report(tuple(findings), 0, 1, batches, 0, good_bytes, (verdict,))
    bounds = {segment.path: following}
    affected = tuple(_affected(finding, bounds, parent_of(segment.path)) for finding in findings)
    return Verification(affected, (FileResult(path, segment.size, verdict.verdict),), (), report)


# ---- from findings to offsets and advice -------------------------------------------------------------------------------------


def _judged(fs: FileSystem, found: list[PartitionDirectory], reads: list[ReadPartition], report: Report) -> Verification:
    affected: list[Affected] = []
    files: list[FileResult] = []
    readable: list[Readable] = []
    left = list(report.findings)
    for target, read in zip(found, reads, strict=True):
        own = [finding for finding in left if _is_in(finding.path, target.directory)]
        left = [finding for finding in left if finding not in own]
        try:
            sizes = sizes_of(fs, target)
        except PylogError as error:
            own.append(of_error(error, target.directory))
            sizes = {}
        bounds = _bounds(target, sizes)
        affected_here = [_affected(finding, bounds, target.directory) for finding in own]
        affected_here = [each._replace(advice=_OF_THE_ARCHIVE) if _is_elsewhere(each, sizes) else each for each in affected_here]
        affected += affected_here
        files += _files(target, sizes, own)
        if any(each.first_offset is not None for each in affected_here):
            with contextlib.suppress(PylogError):  # a partition that cannot be opened has a finding already
                readable.append(_readable(read().whole(), affected_here))
    affected += [_affected(finding, {}, finding.path) for finding in left]
    return Verification(tuple(affected), tuple(files), tuple(readable), report)


def _is_elsewhere(each: Affected, sizes: dict[str, int]) -> bool:
    """Returns whether damage was found in a segment that is not in the directory: it was read from the archive."""
    finding = each.finding
    return finding.kind == "corrupt" and finding.path.endswith(names.LOG) and base_name(finding.path) not in sizes and bool(sizes)


def is_in_archive(each: Affected) -> bool:
    """Returns whether damage is in a segment of the archive."""
    return each.advice == _OF_THE_ARCHIVE


def _is_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(join(directory, ""))


def _bounds(target: PartitionDirectory, sizes: Iterable[str]) -> dict[str, int | None]:
    """Returns the base offset of the next segment by the path of each segment; None for the last one."""
    bases = sorted({found.offset for name in sizes if (found := names.parse(name)) and found.suffix == names.LOG})
    paths = [join(target.directory, names.file_name(base, names.LOG)) for base in bases]
    return dict(zip(paths, [*bases[1:], None], strict=False))


def _affected(finding: Finding, bounds: dict[str, int | None], directory: str) -> Affected:
    advice = _ADVICE.get(finding.kind, _ADVICE["state"]).format(directory=directory)
    if finding.kind == "unreadable" and is_url(finding.path):
        advice = _ARCHIVE_UNREADABLE
    if finding.kind == "missing" and finding.path == directory and not bounds:  # a repair would have nothing to change
        advice = _ALL_FILES
    if finding.kind not in _LOSES or not finding.path.endswith(names.LOG):
        return Affected(finding, None, None, advice)
    if finding.next_offset is not None and finding.next_offset <= finding.offset:
        return Affected(finding, None, None, advice)  # bytes that are not the log's, between two batches that follow each other
    after = finding.next_offset if finding.next_offset is not None else _next_base(finding, bounds)
    return Affected(finding, finding.offset, None if after is None else max(after - 1, finding.offset), advice)


def _next_base(finding: Finding, bounds: dict[str, int | None]) -> int | None:
    """Returns the offset at which records continue after the segment of a finding, which may be missing."""
    if finding.path in bounds:
        return bounds[finding.path]
    bases = [base for base in bounds.values() if base is not None]
    first = min((_base_of(path) for path in bounds), default=None)
    later = [base for base in [*bases, first] if base is not None and base > finding.offset]
    return min(later, default=None)


def _base_of(path: str) -> int:
    return named_file(path).base_offset


def _files(target: PartitionDirectory, sizes: dict[str, int], findings: list[Finding]) -> list[FileResult]:
    """Returns a verdict for each file, including missing ones."""
    verdicts: dict[str, str] = {}
    for finding in sorted(findings, key=lambda finding: finding.kind in HARMLESS):
        verdicts.setdefault(finding.path, finding.kind)
    known = [name for name in sizes if names.parse(name) is not None or name in _KNOWN]
    paths = {join(target.directory, name): sizes[name] for name in known}
    paths.update({path: 0 for path in verdicts if path not in paths and path != target.directory})
    return [FileResult(path, size, verdicts.get(path, GOOD)) for path, size in sorted(paths.items())]


def _readable(partition: Partition, affected_here: list[Affected]) -> Readable:
    """Returns the readable offsets of a log."""
    at, end = partition.state.start_offset, partition.state.end_offset
    ranges = []
    lost = [(each.first_offset, each.last_offset) for each in affected_here if each.first_offset is not None]
    for first, last in sorted((first, end - 1 if last is None else last) for first, last in lost):
        if first > at:
            ranges.append((at, min(first, end) - 1))
        at = max(at, last + 1)
    if at < end:
        ranges.append((at, end - 1))
    return Readable(partition.directory, tuple(ranges))
