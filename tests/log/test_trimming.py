"""Making a log shorter: `delete_records`, `truncate`, retention through `tick`, as Kafka does it (storage-format 6.5, 6.6, 6.11).

What a reader of this process has in hand stays until it lets go, and what a crash leaves behind is swept away.
"""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest

import pylog
from pylog import Durability, ProducerBatch, TopicPartition
from pylog.directory.checkpoints import LOG_START, RECOVERY_POINT, parse_offsets
from pylog.directory.leader_epoch_cache import EpochEntry, read_epochs
from pylog.fs import OsFileSystem
from pylog.store import Store
from support.faults.neighbours import HookedFileSystem, values
from support.log import trimming
from support.log.durable_points import slot_of
from support.log.trimming import NOW, T, bases, digit, digits, ends, names, sized

fs = pytest.fixture(trimming.fs)
path = pytest.fixture(trimming.path)
store = pytest.fixture(trimming.store)
log = pytest.fixture(trimming.log)


def checkpoint(path: Path, name: str) -> dict[TopicPartition, int]:
    file = path / name
    return parse_offsets(file.read_bytes(), str(file)) if file.exists() else {}


# ---- delete_records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "left"), [(1, [0, 5, 10]), (4, [0, 5, 10]), (5, [5, 10]), (6, [5, 10]), (10, [10]), (13, [10]), (15, [10])]
)
def test_deleted_records_are_gone_and_segments_wholly_below_go(log: pylog.Log, before: int, left: list[int]) -> None:
    """The active segment stays, also when the log's start is its end."""
    assert log.delete_records(before) == before
    assert bases(log) == left
    assert ends(log) == (before, 15, 15)
    assert values(log) == digits(range(before, 15))
    for gone in {0, before - 1}:
        with pytest.raises(pylog.OffsetOutOfRangeError):
            log.read(gone)
        with pytest.raises(pylog.OffsetOutOfRangeError):
            log.scan(gone)
    assert log.append(b"x") == 15


def test_at_or_below_the_start_nothing_is_done(log: pylog.Log, fs: HookedFileSystem) -> None:
    log.delete_records(7)
    fs.calls.clear()
    for before in (0, 6, 7):
        assert log.delete_records(before) == 7
    assert {call for call, _ in fs.calls} <= {"open"}


def test_records_beyond_the_end_cannot_be_deleted(log: pylog.Log) -> None:
    for before in (16, 10**9):
        with pytest.raises(pylog.OffsetOutOfRangeError, match="from 0 to 15"):
            log.delete_records(before)
    for wrong, kind in ((-1, pylog.OffsetOutOfRangeError), ("7", pylog.InvalidArgumentError), (True, pylog.InvalidArgumentError)):
        with pytest.raises(kind):
            log.delete_records(wrong)  # type: ignore[arg-type]
    assert ends(log) == (0, 15, 15)


def test_only_a_topic_whose_policy_deletes_loses_records(store: Store) -> None:
    compacted, both = (sized(store, name, cleanup_policy=policy) for name, policy in (("c", "compact"), ("b", "compact,delete")))
    for made in (compacted, both):
        made.append_many([(b"k", b"x")] * 3)
    with pytest.raises(pylog.InvalidArgumentError, match="only topics with 'delete' lose records"):
        compacted.delete_records(1)
    assert both.delete_records(1) == 1


def test_the_start_is_kept_over_closing_and_over_a_kill(path: Path, store: Store, log: pylog.Log) -> None:
    log.delete_records(7)
    assert checkpoint(path, LOG_START) == {T: 7}
    assert slot_of(path).log_start_offset == 7
    with pylog.open(path, mode="r") as reading:
        assert reading.log("t").start_offset == 7
    store.close()
    with pylog.open(path) as again:
        assert ends(again.log("t")) == (7, 15, 15)
        assert values(again.log("t")) == digits(range(7, 15))


@pytest.mark.damaged("it was damaged on purpose")
def test_the_start_is_kept_where_only_one_of_its_two_places_is_left(path: Path, store: Store, log: pylog.Log) -> None:
    log.delete_records(7)
    store.close()
    for lost in (path / LOG_START, path / "t-0" / "durable-point"):
        copy = path.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        (copy / lost.relative_to(path)).unlink()
        with pylog.open(copy) as again:
            start = again.log("t").start_offset
            assert start == (7 if lost.name == "durable-point" else start)
            assert start in (5, 7)  # a copy's header is of another boot, and its checkpoint is authoritative


def test_seals_of_segments_that_a_broker_removed_go_when_the_log_is_opened_for_writing(path: Path) -> None:
    """A broker does not know them."""
    with pylog.open(path) as store:
        log = sized(store)
        for number in range(15):
            log.append(b"%d" % (number % 10))
    directory = path / "t-0"
    for name in ("log", "index", "timeindex"):
        (directory / f"{0:020d}.{name}").unlink()
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 5\n")
    assert (directory / f"{0:020d}.seal").exists()
    with pylog.open(path, mode="r") as reading:
        assert reading.log("t").start_offset == 5
    assert (directory / f"{0:020d}.seal").exists()
    with pylog.open(path) as store:
        assert store.log("t").start_offset == 5
        assert store.check().ok, str(store.check())
    assert not (directory / f"{0:020d}.seal").exists()
    assert (directory / f"{5:020d}.seal").exists()


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("opened", [False, True])
def test_a_topic_that_a_broker_deleted_meanwhile_does_not_come_back_when_another_partition_is_written(
    path: Path, opened: bool, killed: bool
) -> None:
    """A broker notes the start in its checkpoint only: the header that pylog left beside the log knows an older one."""
    with pylog.open(path) as store:
        sized(store)
        store.create_topic("u")
        store.log("t").append_many([b"%d" % (number % 10) for number in range(4)])
        store.log("t").delete_records(1)
    (path / LOG_START).write_text("0\n1\nt 0 3\n")
    marker = path / ".kafka_cleanshutdown"
    if killed:
        marker.unlink()
    else:
        marker.write_text('{"version":0,"brokerEpoch":5}')
    for session in range(3):
        with pylog.open(path) as store:
            store.log("u").append(b"x")
            if opened or session == 2:
                assert store.log("t").start_offset == 3
        assert checkpoint(path, LOG_START) == {T: 3}


def test_records_may_be_deleted_from_a_log_of_one_segment_and_all_of_them(store: Store) -> None:
    log = sized(store, per_segment=100)
    log.append_many([b"x"] * 10)
    assert log.delete_records(10) == 10
    assert (ends(log), values(log), bases(log)) == ((10, 10, 10), [], [0])
    assert log.append(b"y") == 10
    assert values(log) == [b"y"]


# ---- truncate ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", range(15))
def test_a_truncated_log_ends_there_and_goes_on_from_there(path: Path, log: pylog.Log, end: int) -> None:
    """At every record: in the active segment, in sealed ones, at their bounds. A segment that begins there stays, emptied."""
    log.truncate(end)
    assert ends(log) == (0, end, end)
    assert bases(log) == [base for base in (0, 5, 10) if base <= end]
    assert values(log) == digits(range(end))
    with pytest.raises(pylog.OffsetOutOfRangeError):
        log.read(end)
    assert slot_of(path).truncation_count == 1
    for number in range(end, 18):
        assert log.append(digit(number)) == number
    assert values(log) == digits(range(18))
    assert bases(log) == [0, 5, 10, 15]


def test_a_truncation_at_the_end_does_nothing_and_one_beyond_it_is_refused(
    path: Path, log: pylog.Log, fs: HookedFileSystem
) -> None:
    fs.calls.clear()
    log.truncate(15)
    for end in (16, 10**9):
        with pytest.raises(pylog.OffsetOutOfRangeError, match=f"offset {end} is beyond the end of .*, which is 15; for "):
            log.truncate(end)
    assert ends(log) == (0, 15, 15)
    assert slot_of(path).truncation_count == 0
    assert {call for call, _ in fs.calls} <= {"open"}


def test_no_log_is_truncated_below_its_start(log: pylog.Log) -> None:
    log.delete_records(7)
    for end in (0, 6):
        with pytest.raises(pylog.OffsetOutOfRangeError, match=r"is before the start of .*, which is 7; for "):
            log.truncate(end)
    log.truncate(7)
    assert (ends(log), values(log)) == ((7, 7, 7), [])
    assert log.append(b"x") == 7


@pytest.mark.parametrize("end", [11, 15, 19])
def test_within_a_batch_the_whole_batch_goes_and_leaves_a_gap(store: Store, end: int) -> None:
    store.create_topic("t", retention_ms=-1)
    log = store.log("t")
    for _ in range(3):
        log.append_many([b"x"] * 10)
    log.truncate(end)
    assert ends(log) == (0, end, end)
    assert [record.offset for record in log.records()] == list(range(10))
    with pytest.raises(pylog.OffsetOutOfRangeError):
        log.read(end)
    assert log.append(b"next") == end
    assert log.read(10).offset == end  # the gap is passed over
    assert [record.offset for record in log.records(12 if end > 12 else 10)] == [end]


@pytest.mark.parametrize("close", [True, False], ids=["closed", "killed"])
def test_the_end_after_a_gap_is_kept(path: Path, close: bool) -> None:
    store = pylog.open(path)
    store.create_topic("t")
    log = store.log("t")
    log.append_many([b"x"] * 10)
    log.append_many([b"x"] * 10)
    log.truncate(15)
    if close:
        store.close()
    with pylog.open(path) as again:
        assert ends(again.log("t")) == (0, 15, 15)
        assert again.log("t").append(b"next") == 15
        assert again.recovery_report == ()
    store.close()


def test_a_log_may_be_truncated_again_and_again(log: pylog.Log) -> None:
    expected = digits(range(15))
    for end, count in itertools.product((14, 9, 10, 3, 0), (1, 7)):
        del expected[end:]
        log.truncate(end)
        while len(expected) < end + count:
            assert log.append(b"%d" % count) == len(expected)
            expected.append(b"%d" % count)
        assert values(log) == expected


def test_unsynced_records_below_the_cut_are_durable_after_it(log: pylog.Log) -> None:
    for number in range(15, 18):
        log.append(digit(number), durability=Durability.OS)
    assert log.durable_offset == 15
    log.truncate(17)
    assert ends(log) == (0, 17, 17)


def test_a_truncation_lowers_what_the_checkpoint_says_is_on_the_disk(path: Path, store: Store, log: pylog.Log) -> None:
    store.close()
    assert checkpoint(path, RECOVERY_POINT) == {T: 15}
    with pylog.open(path) as again:
        again.log("t").truncate(6)
        assert checkpoint(path, RECOVERY_POINT) == {T: 6}


def test_searches_by_time_and_offset_do_not_find_truncated_records(store: Store) -> None:
    log = sized(store)
    for number in range(15):
        log.append(digit(number), timestamp=NOW + number)
    log.truncate(7)
    assert log.offset_for_timestamp(NOW + 6) == (6, NOW + 6)
    assert log.offset_for_timestamp(NOW + 7) is None
    log.append(b"x", timestamp=NOW + 100)
    assert log.offset_for_timestamp(NOW + 7) == (7, NOW + 100)
    assert log.split_offsets(0, 8, 100)


def test_truncated_bytes_are_gone_from_the_disk_when_the_call_returns(path: Path, log: pylog.Log) -> None:
    log.truncate(7)
    copy = path.with_name("copy")
    shutil.copytree(path, copy)
    (copy / "t-0" / "durable-point").unlink()
    with pylog.open(copy, mode="r") as reading:
        assert values(reading.log("t")) == digits(range(7))


def test_a_sealed_file_is_replaced_and_never_cut(path: Path, log: pylog.Log, fs: HookedFileSystem) -> None:
    """Other processes may have it mapped, and what is cut off under a mapping kills who looks there."""
    sealed = path / "t-0" / f"{5:020d}.log"
    with sealed.open("rb") as held:
        before = held.read()
        log.truncate(8)
        held.seek(0)
        assert held.read() == before
        assert os.fstat(held.fileno()).st_ino != sealed.stat().st_ino
    assert sealed.read_bytes() == before[: 3 * 69]
    assert fs.count("truncate", sealed.name) == 0


def test_a_sealed_file_that_becomes_the_active_one_again_is_another_file_even_when_no_byte_of_it_goes(
    path: Path, store: Store
) -> None:
    """It is to be cut later on, and who maps it now may still do so then."""
    log = sized(store)
    for number in range(3):
        log.append(digit(number))
    log.append_many([b"x"] * 3)
    log.truncate(4)  # the batch goes as a whole; the next segment begins behind the gap
    log.append(bytes(100))
    assert bases(log) == [0, 4]
    sealed = path / "t-0" / f"{0:020d}.log"
    inode, size = sealed.stat().st_ino, sealed.stat().st_size
    log.truncate(3)
    assert (bases(log), sealed.stat().st_size) == ([0], size)
    assert sealed.stat().st_ino != inode
    log.truncate(2)
    assert values(log) == digits(range(2))


# ---- what goes with it -------------------------------------------------------------------------------------------------------


def epochs(path: Path) -> list[EpochEntry] | None:
    return read_epochs(OsFileSystem(), str(path / "t-0"))


def test_leader_epochs_end_and_begin_with_the_log(path: Path, store: Store, log: pylog.Log) -> None:
    store.close()
    (path / "t-0" / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n1 6\n2 12\n")
    with pylog.open(path) as again:
        log = again.log("t")
        log.truncate(12)
        assert epochs(path) == [EpochEntry(0, 0), EpochEntry(1, 6)]
        log.truncate(7)
        assert epochs(path) == [EpochEntry(0, 0), EpochEntry(1, 6)]
        log.delete_records(7)
        assert epochs(path) == [EpochEntry(1, 7)]


def test_snapshots_of_producers_go_with_the_records_they_tell_of(path: Path, store: Store) -> None:
    store.create_topic("t", segment_bytes=400)
    log = store.log("t")
    for sequence in range(20):
        log.append_batch([digit(sequence)], producer=ProducerBatch(7, 0, sequence))
    assert len(names(path / "t-0", "*.snapshot")) == len(bases(log)) - 1 > 2
    end = bases(log)[2]
    log.truncate(end + 1)
    assert max(int(name[:20]) for name in names(path / "t-0", "*.snapshot")) == end
    log.delete_records(end)
    assert names(path / "t-0", "*.snapshot") == {f"{end:020d}.snapshot"}
    assert log.append_batch([b"x"], producer=ProducerBatch(7, 0, end + 1)).offsets.start == end + 1


def test_files_of_ours_beside_a_segment_go_with_it(path: Path, store: Store, log: pylog.Log) -> None:
    assert len(names(path / "t-0", f"{0:020d}.*")) >= 3  # the log, its indexes, its seal
    log.delete_records(5)
    store.tick()
    assert names(path / "t-0", f"{0:020d}.*") == set()
    log.truncate(7)
    store.tick()
    assert names(path / "t-0", f"{10:020d}.*") <= {f"{10:020d}.snapshot"}
    assert names(path / "t-0", "*.tmp") == set()
