"""`check` is silent about sound stores, and names each thing that is not as it should be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import pylog
from pylog.directory.checkpoints import LOG_START
from pylog.log.checking.log_watch import MOST_FINDINGS
from pylog.log.checking.report import Report
from pylog.record.batch import scan_batches
from pylog.record.format import LAST_OFFSET, POSITION, SIZE
from pylog.segment.header_digest import digest_of
from pylog.segment.names import INDEX, LOG, SEAL, TIME_INDEX, TRANSACTION_INDEX, file_name
from support.engines import segments_of
from support.golden.data import GoldenPartition, partitions
from support.log import checking
from support.log.checking import (
    SMALL,
    T0,
    bases,
    checked,
    findings,
    flip,
    header,
    listing,
    newest,
    seal_all,
    told,
)
from support.log.derived import format_offsets

sound = pytest.fixture(scope="module")(checking.sound)
root = pytest.fixture(checking.root)
directory = pytest.fixture(checking.directory)


# ---- sound stores ------------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
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
def test_an_unfinished_file_is_a_leftover_once_no_process_is_active(root: Path, directory: Path, name: str) -> None:
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


def test_check_ignores_files_that_do_not_belong_to_a_log(root: Path, directory: Path) -> None:
    (directory / "notes.txt").write_bytes(b"")
    (directory / (file_name(0, LOG) + ".torn.0")).write_bytes(b"")
    (directory / file_name(1 << 40, INDEX)).mkdir()
    assert told(root) == []


def test_a_segment_that_the_log_does_not_know_is_reported(root: Path, directory: Path) -> None:
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


def test_a_sealed_file_that_has_grown_is_reported_and_one_that_is_appended_to_is_not(root: Path, directory: Path) -> None:
    with pylog.open(root, mode="r") as store:
        log = store.log("t")
        for base in (bases(directory)[0], bases(directory)[-1]):
            with (directory / file_name(base, LOG)).open("ab") as file:
                file.write(b"more")
        (found,) = checked(log, root).findings
        assert (found.kind, Path(found.path).name, found.size) == ("state", file_name(0, LOG), 4)


# ---- damage ------------------------------------------------------------------------------------------------------------------


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
        active = segments_of(log)[-1]
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
        segments_of(log)[0].rebuild_indexes()
        return checked(log, root)


def test_a_foreign_seal_is_reported_and_is_no_fault(root: Path) -> None:
    """A broker compacted the segment."""
    report = rewritten(root, 3)
    assert [(found.kind, Path(found.path).name) for found in report.findings] == [("foreign", file_name(0, LOG))]
    assert report.ok


@pytest.mark.damaged("it was damaged on purpose")
def test_a_segment_that_was_cut_is_foreign_and_its_lost_offsets_are_missing(root: Path) -> None:
    report = rewritten(root, -1)
    assert [found.kind for found in report.findings] == ["foreign", "missing"]
    assert not report.ok


def test_a_segment_that_is_missing_between_two_others_is_reported_by_the_seal_before_it(root: Path, directory: Path) -> None:
    gone = bases(directory)[1]
    for path in directory.glob(f"{gone:020d}.*"):
        path.unlink()
    assert ("missing", file_name(gone, LOG)) in told(root)


def test_a_segment_that_is_missing_is_reported_by_the_gap_where_nothing_was_compacted(root: Path, directory: Path) -> None:
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


def test_a_first_segment_that_is_missing_is_reported_by_the_leader_epochs(root: Path, directory: Path) -> None:
    for path in directory.glob(f"{0:020d}.*"):
        path.unlink()
    assert told(root) == [("missing", file_name(0, LOG))]
    (root / LOG_START).write_bytes(format_offsets({T0: bases(directory)[0]}))
    assert told(root) == [], "whoever removed it said so"


@pytest.mark.slow
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


# ---- snapshots, epochs, the header -------------------------------------------------------------------------------------------
