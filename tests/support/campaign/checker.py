"""Opens the store that a crash or a fault left, and says what is wrong with it (reliability 8.2, the checker).

`inspect` looks without knowing what should be there: a store that opens, reads, takes one more record at the right offset and
knows again what a producer sent is all right by itself. `judge` compares what was found with what was promised.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import NamedTuple

import msgspec

import pylog
from pylog.directory.checkpoints import CLEAN_SHUTDOWN, CLEANER, LOG_START, RECOVERY_POINT, parse_offsets
from pylog.log.checking.check import TEMPORARY, check_store
from pylog.log.recovery.findings import Finding
from pylog.record.types import TopicPartition
from pylog.segment.names import CLEANED, DELETED, LOG, SWAP, TORN
from pylog.testing import MemoryFileSystem
from pylog.testing.disk import ROOT as DISK_ROOT
from pylog.testing.disk import DirectoryNode, Disk, FileNode, Image, Node
from pylog.testing.models import GAP, Found
from pylog.topics.catalog import CATALOG, Catalog, read_catalog
from pylog.topics.checking import check_catalog
from support.campaign.crashing import bury
from support.campaign.workloads import ROOT, Item, Known, Tail, clock, item, next_sequence, numbered, rows, sequence_of

PROBE_BYTES = 35  # of the record that is appended to see that a log goes on
EXPECTED = ("torn", "rebuilt")  # the kinds of findings that a crash may leave
WRONG = ("corrupt", "missing", "state", "unreadable")  # findings of `check` that it may not; others cost time or room

SoundLogs = dict[bytes, Found]  # by the digest of all that its recovery can depend on
Note = Callable[[str, Found, tuple[Tail, ...], bool], None]


class Outcome(NamedTuple):
    """What a store was found to be.

    Attributes:
        logs: what is in them.
        problems: what is wrong whatever was promised.
        short: of each topic that tells of a loss at its end, that problem.
    """

    logs: dict[str, Found]
    problems: tuple[str, ...]
    short: Mapping[str, str] = MappingProxyType({})


def inspect(fs: MemoryFileSystem, note: Note | None = None, seen: SoundLogs | None = None, *, thorough: bool = False) -> Outcome:
    """Opens a store, reads all of it, and appends to each log. The process that does it is dead afterwards.

    Args:
        fs: a disk with a store, or without one.
        note: is told of each log what was found in it and what of it is torn, before the append and after its acknowledgement.
        seen: what was found in logs that were all right; they are not opened again when what the root says of them is the same.
        thorough: what `store.check()` does too, with the logs that are opened: it takes as long as all the rest.
    """
    logs: dict[str, Found] = {}
    problems: list[str] = []
    short: dict[str, str] = {}
    opened: list[pylog.Log] = []
    before = fs.image()
    store: pylog.Store | None = None
    try:
        store = pylog.open(ROOT, fs=fs, clock=clock())
        marked = fs.exists(f"{ROOT}/{CLEAN_SHUTDOWN}")
        for topic in store.topics():
            key = content_of(before, topic, fs.boot_id())
            if seen is not None and key in seen:
                logs[topic] = seen[key]
                continue
            log = store.log(topic)
            opened.append(log)
            logs[topic] = found_in(log)
            told = list(look_into(topic, log, logs[topic], before, fs, note))
            if marked and any(finding.kind == "torn" for finding in log.recovery_report):
                told.append("a clean-shutdown marker stands over a torn tail: a broker would not look")
            problems += [f"{topic}: {problem}" for problem in told]
            short.update((topic, f"{topic}: {finding.message}") for finding in log.recovery_report if finding.kind == "missing")
            if seen is not None and not told:
                seen[key] = logs[topic]
        problems += leftovers(fs.disk, ROOT)
        if thorough:
            problems += checked(fs, opened)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
        problems.append(told_of(error))
    finally:
        fs.kill()
        if store is not None:
            bury(store)  # else its logs count as open in this process, and each later append tries to release them
    return Outcome(logs, tuple(problems), short)


def checked(fs: MemoryFileSystem, logs: Sequence[pylog.Log]) -> list[str]:
    """What is wrong with some logs, and with the root, as `store.check()` would say."""
    looks = [partial(log._partition_log.for_checks, quiet=True) for log in logs]
    findings = [*check_store(fs, ROOT, looks).findings, *check_catalog(fs, ROOT, read_catalog(fs, ROOT), quiet=True)]
    return [f"check: {finding.message}" for finding in findings if finding.kind in WRONG]


def told_of(error: BaseException) -> str:
    """An error and the last places that it came through."""
    return "".join(traceback.format_exception(error)[-3:])


def content_of(image: Image, topic: str, boot_id: bytes) -> bytes:
    """A digest of all that the recovery of a log can depend on: the partition's files, what the root says of it, the boot."""
    root = image.directories.get(image.directories[DISK_ROOT].get(ROOT.strip("/"), 0), {})
    partition = image.directories.get(root.get(f"{topic}-0", 0), {})
    shared = [each for each in sorted(root.items()) if each[1] in image.files and not each[0].endswith(TEMPORARY)]
    told = [
        *((name, said_of(topic, name, image.files[number])) for name, number in shared),
        *((name, image.files[number]) for name, number in sorted(partition.items()) if number in image.files),
    ]
    return hashlib.blake2b(repr((topic, boot_id, told)).encode(), digest_size=16).digest()


@cache
def said_of(topic: str, name: str, data: bytes) -> object:
    """What a file of the root says of one topic; one that is damaged may say anything, and is taken as it is."""
    try:
        if name == CATALOG:
            catalog = msgspec.json.decode(data, type=Catalog)
            return catalog.topics.get(topic), catalog.deleting
        if name in (RECOVERY_POINT, LOG_START, CLEANER):
            return parse_offsets(data, name).get(TopicPartition(topic, 0))
    except (ValueError, pylog.CorruptionError):
        pass
    return data


def found_in(log: pylog.Log) -> Found:
    """All records of a log, and gaps."""
    start = log.start_offset
    records = {one.offset: (one.value, one.timestamp) for one in log.records()}
    return Found(start, tuple(records.get(offset, GAP) for offset in range(start, log.end_offset)))


def look_into(topic: str, log: pylog.Log, found: Found, before: Image, fs: MemoryFileSystem, note: Note | None) -> Iterator[str]:
    """What is wrong with a log that was just opened and read."""
    report = log.recovery_report
    yield from (finding.message for finding in report if finding.kind not in EXPECTED)
    if found.records and found.records[-1] is GAP:
        yield f"its end is {log.end_offset}, and there is no record before it"
    tails = tuple(torn_tails(report, before, fs))
    if note is not None:
        note(topic, found, tails, False)
    yield from retry(log, found)
    yield from probe(topic, log, found)
    yield from lost_tails(tails, fs.disk)
    yield from leftovers(fs.disk, f"{ROOT}/{topic}-0")
    if note is not None:
        note(topic, found, tails, True)


def probe(topic: str, log: pylog.Log, found: Found) -> Iterator[str]:
    """Appends a record behind what was found, and reads it (I4)."""
    value, timestamp = probe_of(topic, found)
    done = log.append_batch(rows([(value, timestamp)]), producer=numbered(next_sequence(found.records) or None))
    if done.offsets != range(found.end, found.end + 1) or done.duplicate:
        yield f"the next record should have got offset {found.end}, and was acknowledged as {done}"
        return
    read = log.read(found.end)
    if (read.offset, read.value, read.timestamp) != (found.end, value, timestamp):
        yield f"the record at offset {found.end} reads otherwise than it was appended"


def probe_of(topic: str, found: Found) -> Item:
    """The record that is appended to a log in which that was found."""
    return item(topic, found.end, PROBE_BYTES, sequence=next_sequence(found.records) or None)


def retry(log: pylog.Log, found: Found) -> Iterator[str]:
    """Sends the producer's last record again, as a program does that was not told whether it got through (I7)."""
    last = next_sequence(found.records) - 1
    if last < 0:
        return
    offset = found.start + [sequence_of(record) for record in found.records].index(last)
    done = log.append_batch(rows([found.records[offset - found.start]]), producer=numbered(last))
    if not done.duplicate or done.offsets != range(offset, offset + 1):
        yield f"the producer's batch at offset {offset} was sent again and acknowledged as {done}"


def torn_tails(report: Sequence[Finding], before: Image, fs: MemoryFileSystem) -> Iterator[Tail]:
    """What the findings call torn, byte for byte."""
    for finding in report:
        if finding.kind == "torn":
            yield Tail(finding.path, finding.position, before.files[fs.disk.node(finding.path).number][finding.position :])


def lost_tails(tails: Sequence[Tail], disk: Disk) -> Iterator[str]:
    """Torn tails that are neither where they were nor kept aside (I9). Zeros at the end may be those that were written ahead."""
    for path, position, data in tails:
        directory, _, name = path.rpartition("/")
        aside = name.removesuffix(LOG) + TORN
        node = disk.find(path)
        kept = [
            one.data for known, one in names_in(disk, directory).items() if known.startswith(aside) and isinstance(one, FileNode)
        ]
        if isinstance(node, FileNode):
            kept.append(node.data[position:])
        if data.rstrip(b"\0") not in [one.rstrip(b"\0") for one in kept]:
            yield f"{len(data)} bytes from position {position} of {path} on were called torn, and are lost"


def names_in(disk: Disk, path: str) -> Mapping[str, Node]:
    """What is in a directory."""
    found = disk.find(path)
    return found.names if isinstance(found, DirectoryNode) else {}


def leftovers(disk: Disk, path: str) -> list[str]:
    """What was to go, and is still there after somebody has opened a store or a log."""
    return [f"{path}/{name} is left over" for name in names_in(disk, path) if name.endswith(("-delete", CLEANED, DELETED, SWAP))]


def judge(outcome: Outcome, known: Known, after: str) -> list[str]:
    """What is wrong with what was found, in sentences.

    Args:
        outcome: what was found.
        known: what was promised.
        after: what happened in between, `PROCESS_DEATH` or `POWER_LOSS`.
    """
    excused = {outcome.short.get(topic) for topic, expected in known.items() if expected.short}
    told = [problem for problem in outcome.problems if problem not in excused]
    for topic, expected in known.items():
        found = outcome.logs.get(topic)
        if found is not None and expected.may_exist:
            told += [f"{topic}: {problem}" for problem in expected.log.problems(found, after)]
        elif found is not None:
            told.append(f"topic {topic} is back")
        elif not expected.may_lack:
            told.append(f"topic {topic} is gone")
    return told + [f"nobody made topic {topic}" for topic in outcome.logs.keys() - known.keys()]
