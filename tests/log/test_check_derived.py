"""`check` compares indexes, snapshots, leader epochs and the header of a log with its batches."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import pylog
from pylog.clock import ManualClock
from pylog.index.builder import SegmentIndexBuilder
from pylog.index.time_index import TimeIndex
from pylog.index.transaction_index import AbortedTransaction
from pylog.log.checking.check import check_partition
from pylog.log.durable_point import SLOT_SIZE, parse_slot
from pylog.log.producer_state import ProducerStateManager
from pylog.log.recovery.producer_snapshots import encode_snapshot
from pylog.record.batch import scan_batches
from pylog.record.format import BASE_OFFSET, LAST_OFFSET, POSITION
from pylog.segment.names import INDEX, LOG, SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX, file_name
from pylog.testing import MemoryFileSystem, Moment, RecordingFileSystem
from pylog.tools.verify import verify
from support.engines import segments_of
from support.golden.data import case
from support.log import checking
from support.log.checking import SMALL, bases, checked, findings, flip, header, newest, partition_of, told

sound = pytest.fixture(scope="module")(checking.sound)
root = pytest.fixture(checking.root)
directory = pytest.fixture(checking.directory)


# ---- indexes -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
def test_an_index_that_is_not_there_is_told_of_segments_that_never_change_again(root: Path, directory: Path, suffix: str) -> None:
    first, *_, last = bases(directory)
    (directory / file_name(first, suffix)).unlink()
    (directory / file_name(last, suffix)).unlink()
    assert told(root) == [("derived", file_name(first, suffix))]


@pytest.mark.parametrize("suffix", [INDEX, TIME_INDEX])
def test_an_index_file_that_holds_something_else_is_reported_with_the_place(root: Path, directory: Path, suffix: str) -> None:
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
def test_an_index_entry_that_does_not_fit_the_batches_is_reported(
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


@pytest.mark.slow
def test_every_flipped_bit_of_an_index_is_reported_unless_it_still_leads_right(root: Path, directory: Path) -> None:
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


def test_a_time_index_that_has_lost_its_end_is_reported(root: Path, directory: Path) -> None:
    path = directory / file_name(0, TIME_INDEX)
    path.write_bytes(path.read_bytes()[:-12])
    (found,) = findings(root)
    assert (found.kind, Path(found.path).name) == ("derived", path.name)
    assert found.position == path.stat().st_size - 12


def test_a_time_entry_below_an_earlier_timestamp_is_reported(tmp_path: Path) -> None:
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


def test_an_entry_for_a_transaction_that_no_marker_ends_is_reported(root: Path, directory: Path) -> None:
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
        active = segments_of(log)[-1]
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


def test_a_damaged_snapshot_is_reported(root: Path, directory: Path) -> None:
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
def test_leader_epochs_that_are_not_those_of_the_batches_are_reported(root: Path, directory: Path, content: bytes | None) -> None:
    path = directory / "leader-epoch-checkpoint"
    path.unlink() if content is None else path.write_bytes(content)
    assert told(root) == [("derived", path.name)]


def test_entries_that_a_broker_cut_below_a_start_that_it_has_not_noted_yet_are_not_missed(root: Path, directory: Path) -> None:
    """It cuts them at once, and is killed before it writes the start down; the log begins where it did."""
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 1\n")
    assert told(root) == []


def test_a_header_without_a_valid_slot_is_reported_and_one_torn_slot_is_none_of_check_s(root: Path, directory: Path) -> None:
    counters = newest(root).counter
    header(directory, lambda data: data[:5] + b"\xff" + data[6:])
    assert newest(root).counter in (counters, counters - 1)
    assert told(root) == []
    header(directory, lambda data: bytes(len(data)))
    assert told(root) == [("derived", "durable-point")]


@pytest.mark.slow
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


def test_a_header_that_calls_more_durable_than_published_is_reported(root: Path, directory: Path) -> None:
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
