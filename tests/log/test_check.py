"""`check` is silent about sound stores, and names each thing that is not as it should be."""

from __future__ import annotations

import hashlib
import itertools
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import pylog
from pylog.clock import ManualClock
from pylog.directory.checkpoints import LOG_START, RECOVERY_POINT, format_offsets
from pylog.errors import UnknownTopicOrPartitionError
from pylog.fs import DirectoryEntry, OsFileSystem
from pylog.index.builder import SegmentIndexBuilder
from pylog.index.skiplist import SkipList
from pylog.index.time_index import TimeIndex
from pylog.index.transaction_index import AbortedTransaction
from pylog.log.checking.check import MOST_FINDINGS, check_ends, check_partition, check_store
from pylog.log.checking.report import LOOKS, Partition, Report, about, ask, of_error, read_ends
from pylog.log.durable_point import SLOT_SIZE, DurablePoint, parse_slot
from pylog.log.producer_state import ProducerStateManager, encode_snapshot
from pylog.log.recovery.findings import Finding
from pylog.record.batch import scan_batches
from pylog.record.format import BASE_OFFSET, LAST_OFFSET, POSITION, SIZE
from pylog.record.types import TopicPartition
from pylog.segment.names import INDEX, LOG, SEAL, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, file_name
from pylog.segment.seal import digest_of, make_seal, write_seal
from pylog.testing import MemoryFileSystem, Moment, RecordingFileSystem
from pylog.tools.verify import verify
from pylog.topics.catalog import Catalog, CatalogTopic, read_catalog
from pylog.topics.checking import check_catalog
from support.faults.neighbours import HookedFileSystem
from support.golden.data import GoldenPartition, case, partitions

FS = OsFileSystem()
SMALL = {"segment_bytes": 600, "index_interval_bytes": 100}
T0 = TopicPartition("t", 0)


def partition_of(log: pylog.Log, root: Path, **changes: Any) -> Partition:
    """A partition as its log sees it."""
    directory = str(root / f"{log.partition.topic}-{log.partition.partition}")
    return Partition(FS, log.partition, directory, log._state, True, True, log.recovery_report)._replace(**changes)


def checked(log: pylog.Log, root: Path, **changes: Any) -> Report:
    return check_store(FS, str(root), [lambda: partition_of(log, root, **changes)])


def filled(root: Path, records: int = 30, **config: int) -> None:
    """A store with some small segments, each but the last one sealed."""
    with pylog.open(root) as store:
        store.create_topic("t", **(config or SMALL))
        log = store.log("t")
        for number in range(records):
            log.append(b"value %d" % number, timestamp=1_000 + number)
        seal_all(log)


def seal_all(log: pylog.Log) -> None:
    segments = log.look().segments.values()
    for segment, following in itertools.pairwise(segments):
        digest = digest_of(segment, segment.size, 100)
        write_seal(FS, segment.directory, make_seal(segment.base_offset, following.base_offset, digest))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sound") / "store"
    filled(root)
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    """A closed store of 30 records in four segments or more, for a test to damage."""
    return shutil.copytree(sound, tmp_path / "store")


@pytest.fixture
def directory(root: Path) -> Path:
    return root / "t-0"


def bases(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def findings(root: Path, **changes: Any) -> list[Finding]:
    """What `check` says of a store that is open for reading, taken for one that nobody else has open."""
    with pylog.open(root, mode="r") as store:
        return list(checked(store.log("t"), root, **({"writable": False} | changes)).findings)


def told(root: Path, **changes: Any) -> list[tuple[str, str]]:
    return [(finding.kind, Path(finding.path).name) for finding in findings(root, **changes)]


# ---- sound stores ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", partitions(), ids=lambda partition: partition.id)
def test_directories_of_brokers_are_sound(golden: GoldenPartition) -> None:
    with pylog.open(golden.log_directory, mode="r") as store:
        log = store.log(golden.topic, golden.partition)
        report = checked(log, golden.log_directory, writable=False, quiet=False)
        assert report.findings == ()
        assert (report.partitions, report.segments) == (1, len(log.segments))
        assert report.bytes == sum(path.stat().st_size for path in golden.directory.glob("*.log"))


def test_a_store_is_sound_while_it_is_written_and_after_it_was_closed(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t", **SMALL)
        log = store.log("t")
        assert checked(log, tmp_path).ok, "empty"
        for number in range(30):
            log.append(b"value %d" % number, timestamp=1_000 + number % 7)
            assert checked(log, tmp_path).findings == (), number
        seal_all(log)
        report = checked(log, tmp_path)
        assert report.findings == ()
        assert (report.segments, report.batches, report.records) == (len(log.segments), 30, 30)
        assert report.bytes == sum(path.stat().st_size for path in (tmp_path / "t-0").glob("*.log"))
    assert told(tmp_path) == []
    with pylog.open(tmp_path) as store:
        assert checked(store.log("t"), tmp_path).findings == ()
        store.log("t").append(b"more")
        assert checked(store.log("t"), tmp_path).findings == ()


def test_counts_are_those_of_the_batch_headers(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        store.log("t").append_many([b"a", b"b", b"c"])
        store.log("t").append(b"d")
        report = checked(store.log("t"), tmp_path)
    assert (report.partitions, report.segments, report.batches, report.records) == (1, 1, 2, 4)


def listing(root: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.mark.damaged("it was damaged on purpose")
def test_checking_changes_no_file_damaged_or_not(root: Path, directory: Path) -> None:
    with pylog.open(root) as store:
        log = store.log("t")
        log.append(b"so that the marker is gone already")
        (directory / file_name(0, INDEX)).write_bytes(b"no index")
        (directory / file_name(0, TIME_INDEX)).unlink()
        before = listing(root)
        assert not checked(log, root).ok
        assert listing(root) == before


# ---- files -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [file_name(0, LOG) + ".cleaned", file_name(0, INDEX) + ".tmp", "leader-epoch-checkpoint.tmp"])
def test_what_was_not_finished_is_a_leftover_once_nobody_is_at_work(root: Path, directory: Path, name: str) -> None:
    (directory / name).write_bytes(b"")
    assert told(root) == [("leftover", name)]
    assert told(root, quiet=False) == []


def test_a_swap_that_was_not_finished_is_a_leftover(root: Path, directory: Path) -> None:
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        name = file_name(0, LOG) + ".swap"
        (directory / name).write_bytes(b"")
        assert [(found.kind, Path(found.path).name) for found in checked(log, root).findings] == [("leftover", name)]


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX, TRANSACTION_INDEX, SEAL])
def test_a_file_whose_segment_is_gone_is_a_leftover(root: Path, directory: Path, suffix: str) -> None:
    name = file_name(bases(directory)[-1] + 1, suffix)
    (directory / name).write_bytes(b"")
    assert told(root) == [("leftover", name)]


def test_files_that_are_nobody_s_business_are_none_of_check_s(root: Path, directory: Path) -> None:
    (directory / "notes.txt").write_bytes(b"")
    (directory / (file_name(0, LOG) + ".torn.0")).write_bytes(b"")
    (directory / file_name(1 << 40, INDEX)).mkdir()
    assert told(root) == []


def test_a_segment_that_the_log_does_not_know_is_told(root: Path, directory: Path) -> None:
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        name = file_name(1000, LOG)
        (directory / name).write_bytes(b"somebody's")
        (found,) = checked(log, root).findings
        assert (found.kind, Path(found.path).name, found.size, found.offset) == ("state", name, 10, 1000)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_segment_whose_file_is_gone_is_missing(root: Path, directory: Path, which: int) -> None:
    with pylog.open(root, mode="r") as store:
        log, before = store.log("t"), bases(directory)
        name = file_name(before[which], LOG)
        (directory / name).unlink()
        report = checked(log, root)
        assert ("missing", name) in [(found.kind, Path(found.path).name) for found in report.findings]
        assert report.segments == len(before), "the others were looked at"
        assert checked(log, root, writable=False, quiet=False).ok, "somebody else's retention took it"


@pytest.mark.parametrize("which", [0, -1])
def test_a_file_that_is_shorter_than_its_log_believes_is_missing_records(root: Path, directory: Path, which: int) -> None:
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        path = directory / file_name(bases(directory)[which], LOG)
        size = path.stat().st_size - 5
        with path.open("r+b") as file:
            file.truncate(size)
        found = [(found.position, found.size) for found in checked(log, root).findings if found.kind == "missing"]
        assert (size, 5) in found


def test_a_sealed_file_that_has_grown_is_told_and_one_that_is_appended_to_is_not(root: Path, directory: Path) -> None:
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        for base in (bases(directory)[0], bases(directory)[-1]):
            with (directory / file_name(base, LOG)).open("ab") as file:
                file.write(b"more")
        (found,) = checked(log, root).findings
        assert (found.kind, Path(found.path).name, found.size) == ("state", file_name(0, LOG), 4)


# ---- damage ------------------------------------------------------------------------------------------------------------------


def flip(path: Path, position: int, bits: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bits
    path.write_bytes(data)


def test_a_damaged_header_is_corrupt_and_says_where_reading_goes_on(root: Path, directory: Path) -> None:
    table = scan_batches(np.frombuffer((directory / file_name(0, LOG)).read_bytes(), np.uint8)).table
    position = int(table[POSITION, 2])
    flip(directory / file_name(0, LOG), position + 16, 4)
    (found,) = findings(root)
    assert (found.kind, found.position, found.size) == ("corrupt", position, int(table[SIZE, 2]))
    assert (found.offset, found.next_offset) == (2, 3)


def test_an_altered_header_that_fits_its_neighbours_is_corrupt_because_of_the_seal(root: Path, directory: Path) -> None:
    """The last batch of a segment with another leader epoch: nothing else says that it is not what was written."""
    path = directory / file_name(0, LOG)
    table = scan_batches(np.frombuffer(path.read_bytes(), np.uint8)).table
    last = int(table[POSITION, -1])
    flip(path, last + 15, 1)
    (found,) = findings(root)
    assert (found.kind, Path(found.path).name) == ("corrupt", path.name)
    assert found.position <= last < found.position + found.size
    assert found.offset == int(table[LAST_OFFSET, np.searchsorted(table[POSITION], found.position)])
    (directory / file_name(0, SEAL)).unlink()
    assert [(found.kind, Path(found.path).name) for found in findings(root)] == [("derived", "leader-epoch-checkpoint")]


@pytest.mark.parametrize("wrong", [(0, 1), (1, 0)])
def test_an_altered_header_of_the_segment_that_is_appended_to_is_corrupt_because_of_its_digest(
    root: Path, directory: Path, wrong: tuple[int, int]
) -> None:
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        active = log.look().segments.values()[-1]
        digest = digest_of(active, active.size)
        known = (digest.position, digest.value)
        assert checked(log, root, writable=False, header_digest=known).ok
        changed = (known[0] - wrong[0], known[1] ^ wrong[1])
        (found,) = checked(log, root, writable=False, header_digest=changed).findings
        assert (found.kind, found.path, found.position, found.size) == ("corrupt", active.path, 0, changed[0])


def test_a_damaged_seal_is_a_derived_file(root: Path, directory: Path) -> None:
    flip(directory / file_name(0, SEAL), 60)
    assert told(root) == [("derived", file_name(0, SEAL))]


def rewritten(root: Path, without: int) -> Report:
    """What `check` says once another program has left a batch out of the first segment."""
    path = root / "t-0" / file_name(0, LOG)
    data = path.read_bytes()
    table = scan_batches(np.frombuffer(data, np.uint8)).table
    start, size = int(table[POSITION, without]), int(table[SIZE, without])
    path.write_bytes(data[:start] + data[start + size :])
    with pylog.open(root) as store:
        log = store.log("t")
        log.look().segments.values()[0].rebuild_indexes()
        return checked(log, root)


def test_a_foreign_seal_is_told_and_is_no_fault(root: Path) -> None:
    """A broker compacted the segment."""
    report = rewritten(root, 3)
    assert [(found.kind, Path(found.path).name) for found in report.findings] == [("foreign", file_name(0, LOG))]
    assert report.ok


@pytest.mark.damaged("it was damaged on purpose")
def test_a_segment_that_was_cut_is_foreign_and_its_lost_offsets_are_missing(root: Path) -> None:
    report = rewritten(root, -1)
    assert [found.kind for found in report.findings] == ["foreign", "missing"]
    assert not report.ok


def test_a_segment_that_is_missing_between_two_others_is_told_by_the_seal_before_it(root: Path, directory: Path) -> None:
    gone = bases(directory)[1]
    for path in directory.glob(f"{gone:020d}.*"):
        path.unlink()
    assert ("missing", file_name(gone, LOG)) in told(root)


def test_a_segment_that_is_missing_is_told_by_the_gap_where_nothing_was_compacted(root: Path, directory: Path) -> None:
    gone = bases(directory)[1]
    for path in {*directory.glob("*.seal"), *directory.glob(f"{gone:020d}.*")}:
        path.unlink()
    assert told(root) == [("missing", file_name(gone, LOG))]


def test_a_gap_that_a_truncation_may_have_left_is_no_finding(root: Path, directory: Path) -> None:
    """A batch is cut off as a whole, and the log ends within it: the next segment begins there."""
    gone = bases(directory)[1]
    for path in {*directory.glob("*.seal"), *directory.glob(f"{gone:020d}.*")}:
        path.unlink()
    slot = newest(root)
    header(directory, lambda data: replace(slot, truncation_count=1).encoded() * 2)
    assert told(root) == []


def test_a_first_segment_that_is_missing_is_told_by_the_leader_epochs(root: Path, directory: Path) -> None:
    for path in directory.glob(f"{0:020d}.*"):
        path.unlink()
    assert told(root) == [("missing", file_name(0, LOG))]
    (root / LOG_START).write_bytes(format_offsets({T0: bases(directory)[0]}))
    assert told(root) == [], "whoever removed it said so"


def test_findings_about_one_file_have_an_end(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        log = store.log("t")
        for number in range(2 * MOST_FINDINGS + 10):
            log.append(b"x", timestamp=number, durability=pylog.Durability.OS)
    path = tmp_path / "t-0" / file_name(0, LOG)
    data = bytearray(path.read_bytes())
    for start in scan_batches(np.frombuffer(bytes(data), np.uint8)).table[POSITION, ::2].tolist():
        data[start + 16] = 99
    path.write_bytes(data)
    report = Report(findings=tuple(findings(tmp_path)))
    assert len([found for found in report.findings if found.kind == "corrupt"]) == MOST_FINDINGS
    assert len(str(report).splitlines()) < 110
    assert "more" in str(report).splitlines()[-1]


# ---- indexes -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
def test_an_index_that_is_not_there_is_told_of_segments_that_never_change_again(root: Path, directory: Path, suffix: str) -> None:
    first, *_, last = bases(directory)
    (directory / file_name(first, suffix)).unlink()
    (directory / file_name(last, suffix)).unlink()
    assert told(root) == [("derived", file_name(first, suffix))]


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
def test_an_index_file_that_holds_something_else_is_told_with_the_place(root: Path, directory: Path, suffix: str) -> None:
    path = directory / file_name(0, suffix)
    whole = path.read_bytes()
    path.write_bytes(whole + b"\1\2\3")
    (found,) = findings(root)
    assert (found.kind, Path(found.path).name, found.position, found.size) == ("derived", path.name, len(whole), 3)


@pytest.mark.parametrize(
    ("suffix", "byte", "bits"),
    [
        (INDEX, 7, 1),  # the first entry's position: not where a batch begins
        (TIME_INDEX, 7, 1),  # the first entry's timestamp
        (TIME_INDEX, 11, 1),  # its offset
    ],
)
def test_an_index_entry_that_does_not_fit_the_batches_is_told(
    root: Path, directory: Path, suffix: str, byte: int, bits: int
) -> None:
    flip(directory / file_name(0, suffix), byte, bits)
    (found,) = findings(root)
    assert (found.kind, Path(found.path).name, found.position) == ("derived", file_name(0, suffix), 0)


def leads_right(index: bytes, segment: bytes) -> bool:
    """Whether no search in an index starts behind what it looks for: the same, entry by entry."""
    table = scan_batches(np.frombuffer(segment, np.uint8)).table
    first = dict(zip(table[POSITION].tolist(), table[BASE_OFFSET].tolist(), strict=True))
    entries = np.frombuffer(index, ">i4").reshape(-1, 2).tolist()
    rising = all(low[0] < high[0] and low[1] <= high[1] for low, high in itertools.pairwise(entries))
    reached = int(table[LAST_OFFSET, -1])
    return rising and all(first.get(position, reached + 1) <= offset <= reached for offset, position in entries)


def test_every_flipped_bit_of_an_index_is_told_unless_it_still_leads_right(root: Path, directory: Path) -> None:
    path, segment = directory / file_name(0, INDEX), (directory / file_name(0, LOG)).read_bytes()
    whole = path.read_bytes()
    harmless = 0
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        for bit in range(8 * len(whole)):
            flip(path, bit // 8, 1 << bit % 8)
            found = [finding.kind for finding in check_partition(partition_of(log, root, writable=False)).findings]
            if found == [] and leads_right(path.read_bytes(), segment):
                harmless += 1
            else:
                assert found == ["derived"], bit
            path.write_bytes(whole)
    assert harmless < len(whole), "almost all are told"


def test_a_time_index_that_has_lost_its_end_is_told(root: Path, directory: Path) -> None:
    path = directory / file_name(0, TIME_INDEX)
    path.write_bytes(path.read_bytes()[:-12])
    (found,) = findings(root)
    assert (found.kind, Path(found.path).name) == ("derived", path.name)
    assert found.position == path.stat().st_size - 12


def test_a_time_entry_behind_which_a_larger_timestamp_does_not_lie_is_told(tmp_path: Path) -> None:
    """Its batch has that timestamp, but an earlier one has a larger: a search by time would pass it over."""
    with pylog.open(tmp_path) as store:
        store.create_topic("t", **SMALL)
        for timestamp in (1_000, 1_900, 1_500, *range(2_000, 2_020)):
            store.log("t").append(b"x", timestamp=timestamp)
    path = tmp_path / "t-0" / file_name(0, TIME_INDEX)
    index, _ = TimeIndex.from_bytes(0, path.read_bytes())
    assert index.entry(0) == (1_900, 1)
    path.write_bytes((1_500).to_bytes(8, "big") + (2).to_bytes(4, "big") + index.encoded(1))
    (found,) = findings(tmp_path)
    assert (found.kind, found.path, found.position) == ("derived", str(path), 0)


def test_an_entry_for_a_transaction_that_no_marker_ends_is_told(root: Path, directory: Path) -> None:
    path = directory / file_name(0, TRANSACTION_INDEX)
    path.write_bytes(AbortedTransaction(7, 0, 2, 3).encoded())
    assert told(root) == [("derived", path.name)]


@pytest.fixture
def transactions(tmp_path: Path) -> Path:
    """The index of a broker's partition with aborted transactions."""
    root = case("4.3.0", "txn").copy(tmp_path / "txn")
    return max((root / "txn-0").glob("*.txnindex"), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize(("byte", "bits"), [(9, 1), (25, 1), (1, 0)])
def test_the_marker_that_a_transaction_index_names_is_its_producer_s(transactions: Path, byte: int, bits: int) -> None:
    flip(transactions, byte, bits)
    with pylog.open(transactions.parent.parent, mode="r") as store:
        log = store.log("txn", 0)
        report = checked(log, transactions.parent.parent, writable=False)
    names = {Path(found.path).name for found in report.findings if found.kind == "derived"}
    assert names == ({transactions.name} if bits else set())


def test_an_index_in_memory_that_does_not_fit_is_a_mistake_of_the_engine(root: Path) -> None:
    with pylog.open(root) as store:
        log = store.log("t")
        log.append_many([b"x" * 10] * 3)
        for _ in range(4):
            log.append(b"y" * 10)
        active = log.look().segments.values()[-1]
        wrong = SegmentIndexBuilder(active.base_offset, 0)
        for region in active.regions(0):
            wrong.add(region.table, region.table.shape[1], position=region.shift + 1)
        right, active.builder = active.builder, wrong
        report = checked(log, root)
        active.builder = right
        assert [(found.kind, Path(found.path).name) for found in report.findings] == [
            ("state", file_name(active.base_offset, INDEX))
        ]
        assert checked(log, root).ok


# ---- snapshots, epochs, the header -------------------------------------------------------------------------------------------


def test_a_damaged_snapshot_is_told(root: Path, directory: Path) -> None:
    path = max(directory.glob("*.snapshot"))
    flip(path, 3)
    assert told(root) == [("derived", path.name)]


def test_a_snapshot_beyond_the_end_tells_of_records_that_are_gone(root: Path, directory: Path) -> None:
    (directory / file_name(40, SNAPSHOT)).write_bytes(encode_snapshot(ProducerStateManager()))
    (found,) = findings(root)
    assert (found.kind, Path(found.path).name) == ("missing", file_name(bases(directory)[-1], LOG))
    assert (found.position, found.offset) == (Path(found.path).stat().st_size, 30)
    assert "40" in found.message


def test_a_torn_tail_does_not_hide_that_records_are_gone(root: Path, directory: Path) -> None:
    (directory / "durable-point").unlink()
    (directory / file_name(40, SNAPSHOT)).write_bytes(encode_snapshot(ProducerStateManager()))
    with max(directory.glob("*.log")).open("ab") as file:
        file.write(bytes(10))
    assert [found.kind for found in findings(root, quiet=False)] == ["missing"]


@pytest.mark.parametrize("content", [None, b"rubbish", b"0\n1\n1 0\n", b"0\n2\n0 0\n1 7\n"])
def test_leader_epochs_that_are_not_those_of_the_batches_are_told(root: Path, directory: Path, content: bytes | None) -> None:
    path = directory / "leader-epoch-checkpoint"
    path.unlink() if content is None else path.write_bytes(content)
    assert told(root) == [("derived", path.name)]


def test_entries_that_a_broker_cut_below_a_start_that_it_has_not_noted_yet_are_not_missed(root: Path, directory: Path) -> None:
    """It cuts them at once, and is killed before it writes the start down; the log begins where it did."""
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 1\n")
    assert told(root) == []


def header(directory: Path, change: Callable[[bytes], bytes]) -> None:
    path = directory / "durable-point"
    path.write_bytes(change(path.read_bytes()))


def newest(root: Path) -> DurablePoint:
    with pylog.open(root, mode="r") as store:
        slot = partition_of(store.log("t"), root).slot()
    assert slot is not None
    return slot


def test_a_header_without_a_valid_slot_is_told_and_one_torn_slot_is_none_of_check_s(root: Path, directory: Path) -> None:
    counters = newest(root).counter
    header(directory, lambda data: data[:5] + b"\xff" + data[6:])
    assert newest(root).counter in (counters, counters - 1)
    assert told(root) == []
    header(directory, lambda data: bytes(len(data)))
    assert told(root) == [("derived", "durable-point")]


def test_a_header_whose_first_writer_died_before_its_slot_was_whole_is_no_damage() -> None:
    """Neither after a kill nor after a loss of power, at any step of a partition's first append; and the next one goes on."""
    fs, clock = RecordingFileSystem(), ManualClock(0)
    with pylog.open("/s", fs=fs, clock=clock) as store:
        store.create_topic("t")
        before = len(fs.recording)
        store.log("t").append(b"first")
        moment, rng, states = Moment.of(fs.recording, before), random.Random(0), []
        while moment.after < len(fs.recording):
            states += [moment.state(crash)[1] for crash in (*moment.deaths(rng, 2), *moment.crashes(rng, 3, 3))]
            moment.advance()
    unfinished = 0
    for image in states:
        fs = MemoryFileSystem(image=image, boots=2)
        found = verify("/s", fs=fs, clock=clock)
        assert found.ok, found.affected
        header = fs.read("/s/t-0/durable-point", 1000)
        unfinished += header is not None and parse_slot(header[:SLOT_SIZE]) is None
        with pylog.open("/s", fs=fs, clock=clock) as again:
            assert again.log("t").append(b"next") <= 1
        assert verify("/s", fs=fs, clock=clock).affected == ()
    assert unfinished > 3


def test_a_header_that_calls_more_durable_than_published_is_told(root: Path, directory: Path) -> None:
    slot = newest(root)
    impossible = replace(slot, counter=slot.counter + 2, durable_position=slot.published_position + 1)
    header(directory, lambda data: impossible.encoded() * 2)
    assert ("derived", "durable-point") in told(root)


def test_a_file_that_is_shorter_than_its_header_calls_durable_is_missing_records(root: Path, directory: Path) -> None:
    """The slot speaks of this very file: of the same inode."""
    active = directory / file_name(bases(directory)[-1], LOG)
    own = replace(newest(root), active_inode=active.stat().st_ino)
    header(directory, lambda data: own.encoded() * 2)
    assert told(root) == []
    table = scan_batches(np.frombuffer(active.read_bytes(), np.uint8)).table
    with active.open("r+b") as file:
        file.truncate(int(table[POSITION, -1]))
    assert ("missing", active.name) in told(root)
    header(directory, lambda data: replace(own, active_inode=1).encoded() * 2)
    assert "synced" not in "".join(found.message for found in findings(root)), "then it speaks of another file"


# ---- the root ----------------------------------------------------------------------------------------------------------------


def test_a_recovery_point_beyond_the_end_tells_of_records_that_are_gone(root: Path, directory: Path) -> None:
    (root / RECOVERY_POINT).write_bytes(format_offsets({T0: 31}))
    (found,) = findings(root)
    assert (found.kind, Path(found.path).name) == ("missing", file_name(bases(directory)[-1], LOG))
    (root / RECOVERY_POINT).write_bytes(format_offsets({T0: 30, TopicPartition("other", 0): 99}))
    assert findings(root) == []


def test_a_recovery_point_that_a_truncation_lowered_meanwhile_is_no_finding(root: Path) -> None:
    with pylog.open(root, mode="r") as store:
        partition = partition_of(store.log("t"), root, quiet=False)
        ends, _ = read_ends(FS, str(root))
        stale = ends._replace(recovery_points={T0: 31})
        assert list(check_ends(partition, stale)) == []
        (root / RECOVERY_POINT).write_bytes(format_offsets({T0: 31}))
        assert [found.kind for found in check_ends(partition, stale)] == ["missing"]


def test_a_log_start_that_the_log_does_not_keep_to_is_told(root: Path) -> None:
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        (root / LOG_START).write_bytes(format_offsets({T0: 1}))
        (found,) = checked(log, root, writable=False).findings
        assert (found.kind, Path(found.path).name, found.offset) == ("state", LOG_START, 1)


@pytest.mark.parametrize("name", [RECOVERY_POINT, LOG_START])
def test_a_checkpoint_that_does_not_parse_is_told(root: Path, name: str) -> None:
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        (root / name).write_bytes(b"rubbish")
        assert [(found.kind, Path(found.path).name) for found in checked(log, root).findings] == [("derived", name)]


def test_the_catalog_and_the_directories_agree(root: Path, directory: Path) -> None:
    def against(topic_id: str, partitions: int = 1) -> list[Finding]:
        return list(check_catalog(FS, str(root), Catalog(topics={"t": CatalogTopic(topic_id, partitions)}), quiet=True))

    known = read_catalog(FS, str(root)).topics["t"].id
    assert against(known) == []
    (found,) = against(known, 2)
    assert (found.kind, found.path) == ("missing", str(root))
    assert "partition 1 of topic t" in found.message
    (found,) = against("A" * 22)
    assert (found.kind, Path(found.path).name) == ("derived", "t-0")
    (directory / "partition.metadata").write_bytes(b"rubbish")
    (found,) = against(known)
    assert (found.kind, Path(found.path).name) == ("derived", "partition.metadata")


@pytest.mark.parametrize("quiet", [True, False])
def test_an_unfinished_file_in_the_root_is_a_leftover_once_nobody_is_at_work(root: Path, quiet: bool) -> None:
    (root / "pylog.json.tmp").write_bytes(b"")
    found = check_catalog(FS, str(root), read_catalog(FS, str(root)), quiet=quiet)
    assert [(each.kind, Path(each.path).name) for each in found] == ([("leftover", "pylog.json.tmp")] if quiet else [])


def test_what_another_thread_is_writing_in_the_root_is_no_leftover(root: Path) -> None:
    written = root / f"{LOG_START}.tmp"
    with pylog.open(root) as store, ThreadPoolExecutor(1) as pool:
        with store._manager._root.lock():
            written.write_bytes(b"")
            report = pool.submit(store.check)
            with pytest.raises(TimeoutError):
                report.result(0.2)
            written.unlink()
        assert report.result(60).ok


def test_a_partition_that_is_deleted_before_its_turn_is_no_finding(root: Path) -> None:
    def gone() -> Partition:
        raise UnknownTopicOrPartitionError("it was deleted")

    assert check_store(FS, str(root), [gone]).ok


# ---- what a log believes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"start_offset": 31},
        {"start_offset": -1},
        {"durable_offset": 31},
        {"start_offset": 20, "durable_offset": 10},
        {"first_unstable_offset": 31},
        {"end_offset": 29},
        {"active_size": 1},
    ],
)
def test_a_state_that_cannot_be_is_told(root: Path, changes: dict[str, int]) -> None:
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        before = log._state
        fields = {name: getattr(before, name) for name in ("segments", "active", "active_size", "start_offset", "end_offset")}
        fields |= {"durable_offset": before.durable_offset, "first_unstable_offset": None}
        state = type(before)(**(fields | changes))
        assert checked(log, root, writable=False, state=type(before)(**fields)).ok
        report = checked(log, root, writable=False, state=state)
        assert "active_size" in changes or {found.kind for found in report.findings} >= {"state"}, report
        assert not report.ok


def test_a_partition_that_cannot_be_opened_is_a_finding_and_the_others_are_checked(root: Path) -> None:
    def broken() -> Partition:
        raise pylog.StorageFailedError("a link, not a file", path="/elsewhere")

    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        report = check_store(FS, str(root), [broken, lambda: partition_of(log, root, writable=False)])
    assert [(found.kind, found.path) for found in report.findings] == [("unreadable", "/elsewhere")]
    assert (report.partitions, report.records) == (2, 30)


class Ghostly(OsFileSystem):
    """The real file system, but a listing still has a file that is gone."""

    def __init__(self, name: str) -> None:
        self._name = name

    def list(self, path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        return sorted([*super().list(path, sizes=sizes), DirectoryEntry(self._name, False, True, 10, 0)])


def test_a_snapshot_that_retention_takes_meanwhile_is_no_finding(root: Path) -> None:
    assert told(root, fs=Ghostly(file_name(1, SNAPSHOT)), quiet=False) == []


def test_what_is_wrong_while_segments_are_changed_counts_when_two_looks_agree_on_it(root: Path, directory: Path) -> None:
    """Else an old name with a new file would be called damage, beside a writer that never rests."""
    numbers = itertools.count()

    def question(partition: Partition) -> Report:
        with (directory / file_name(0, LOG)).open("ab") as file:
            file.write(b"x")  # the shape is another one each time
        return Report((about("corrupt", "/passing", f"is wrong, {next(numbers)}"), about("corrupt", "/lasting", "is wrong")))

    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        report = ask(lambda: partition_of(log, root, quiet=False), question)
        assert [found.path for found in report.findings] == ["/lasting"]
        assert next(numbers) == LOOKS


def test_a_log_whose_segments_go_meanwhile_in_another_thread_lacks_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check comes when the first file has its new name, and the log does not say so yet; then it waits for the log."""
    fs, going_on, reports = HookedFileSystem(), threading.Event(), []
    with pylog.open(tmp_path / "s", fs=fs) as store:
        store.create_topic("t", retention_ms=1000, **SMALL)
        log = store.log("t")
        for number in range(30):
            log.append(b"value %d" % number, timestamp=1)
        assert store.check().ok
        exclusively = log.exclusively

        def waiting() -> AbstractContextManager[None]:
            going_on.set()
            return exclusively()

        def check() -> None:
            reports.append(store.check())
            going_on.set()

        def beside_it() -> None:
            checking.start()
            going_on.wait()

        monkeypatch.setattr(log, "exclusively", waiting)
        checking = threading.Thread(target=check)
        fs.before("rename", INDEX, beside_it)
        assert store.tick() > 1
        checking.join()
        assert [report.findings for report in reports] == [()]


def test_what_is_wrong_is_looked_at_again_while_the_threads_of_this_process_are_kept_waiting(root: Path) -> None:
    events: list[str] = []

    @contextmanager
    def still() -> Iterator[None]:
        events.append("still")
        yield
        events.append("over")

    def question(_: Partition) -> Report:
        events.append("asked")
        return Report((about("state", "/x", "is wrong"),) if len(events) < most else ())

    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        for most, expected in (
            (0, ["asked"]),
            (2, ["asked", "still", "asked", "over"]),
            (9, ["asked", "still", "asked", "over"]),
        ):
            events.clear()
            report = ask(lambda: partition_of(log, root, quiet=True, still=still), question)
            assert (events, report.ok) == (expected, most < 9)


@pytest.mark.damaged("it was damaged on purpose")
def test_a_store_checks_itself(root: Path, directory: Path) -> None:
    with pylog.open(root) as store:
        assert store.check().findings == ()
        store.log("t").append(b"more")
        report = store.check()
        assert (report.findings, report.partitions, report.records) == ((), 1, 31)
        flip(directory / file_name(0, TIME_INDEX), 7)
        assert [(found.kind, Path(found.path).name) for found in store.check().findings] == [
            ("derived", file_name(0, TIME_INDEX))
        ]


def test_a_broken_list_of_segments_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: SkipList[Any]) -> None:
        raise AssertionError("keys do not rise")

    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        monkeypatch.setattr(SkipList, "check", broken)
        (found,) = checked(log, root, writable=False).findings
        assert found.kind == "state"
        assert "keys do not rise" in found.message


# ---- reports -----------------------------------------------------------------------------------------------------------------


def test_reports_add_up_and_say_what_they_hold() -> None:
    torn, corrupt = about("torn", "/a", "is torn"), about("corrupt", "/b", "is broken", position=7, size=2, offset=3)
    first = Report((torn,), partitions=1, segments=2, batches=3, records=4, bytes=5)
    second = Report((corrupt,), partitions=1, segments=1, batches=1, records=1, bytes=1)
    both = first + second
    assert both == Report((torn, corrupt), partitions=2, segments=3, batches=4, records=5, bytes=6)
    assert (first.ok, second.ok, both.ok) == (True, False, False)
    assert str(both).splitlines() == [
        "2 findings in 2 partitions: 3 segments, 4 batches, 5 records, 6 bytes",
        "  torn: /a is torn",
        "  corrupt: /b is broken",
    ]
    assert (corrupt.position, corrupt.size, corrupt.offset, corrupt.next_offset) == (7, 2, 3, None)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (pylog.CorruptionError("damage", path="/x", position=5, offset=6, next_offset=9), "corrupt"),
        (pylog.UnsupportedFormatError("later", path="/x", position=5, offset=6), "unreadable"),
        (pylog.StorageFailedError("bad sector", path="/x", position=5, offset=6), "unreadable"),
    ],
)
def test_an_error_becomes_a_finding_with_its_place(error: pylog.PylogError, kind: str) -> None:
    found = of_error(error, "/elsewhere")
    assert found[:5] == (kind, "/x", 5, 0, 6)
    assert found.next_offset == getattr(error, "next_offset", None)
    assert found.message == str(error)
    assert of_error(pylog.CorruptionError("damage"), "/elsewhere", "derived")[:2] == ("derived", "/elsewhere")
