"""Making a log shorter: `delete_records`, `truncate`, retention through `tick`, as Kafka does it (storage-format 6.5, 6.6, 6.11).

What a reader of this process has in hand stays until it lets go, and what a crash leaves behind is swept away.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Durability, ProducerBatch, TopicPartition
from pylog.clock import ManualClock
from pylog.directory.checkpoints import LOG_START, RECOVERY_POINT, EpochEntry, parse_offsets, read_epochs
from pylog.errors import StorageFailedError, SyncFailedError
from pylog.fs import OsFileSystem
from pylog.log.checking.report import HARMLESS
from pylog.log.durable_point import DurablePoint, open_header
from pylog.store import Store
from pylog.testing import FaultyFileSystem, MemoryFileSystem, Moment, RecordingFileSystem, restarted
from pylog.testing.disk import Image
from pylog.tools.verify import verify
from support.faults.neighbours import HookedFileSystem, values

NOW = 1_700_000_000_000
T = TopicPartition("t", 0)


@pytest.fixture
def fs() -> HookedFileSystem:
    return HookedFileSystem()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def store(path: Path, fs: HookedFileSystem) -> Iterator[Store]:
    with pylog.open(path, fs=fs, clock=ManualClock(NOW)) as opened:
        yield opened


def sized(store: Store, name: str = "t", per_segment: int = 5, **config: Any) -> pylog.Log:
    """A log whose segments hold so many records, each a batch of its own, of one digit."""
    batch = 61 + 8
    store.create_topic(name, segment_bytes=per_segment * batch, index_interval_bytes=0, **({"retention_ms": -1} | config))
    return store.log(name)


@pytest.fixture
def log(store: Store) -> pylog.Log:
    """Fifteen records, five a segment: as Kafka's own tests have it."""
    made = sized(store)
    for number in range(15):
        made.append(digit(number))
    assert bases(made) == [0, 5, 10]
    return made


def digit(number: int) -> bytes:
    return b"%d" % (number % 10)


def digits(numbers: range) -> list[bytes | None]:
    return [digit(number) for number in numbers]


def bases(log: pylog.Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def ends(log: pylog.Log) -> tuple[int, int, int]:
    return log.start_offset, log.end_offset, log.durable_offset


def names(directory: Path, pattern: str = "*") -> set[str]:
    return {file.name for file in directory.glob(pattern)}


def slot_of(path: Path) -> DurablePoint:
    header = open_header(OsFileSystem(), str(path / "t-0"))
    assert header is not None
    slot = header.look()
    header.close()
    assert slot is not None
    return slot


def checkpoint(path: Path, name: str) -> dict[TopicPartition, int]:
    file = path / name
    return parse_offsets(file.read_bytes(), str(file)) if file.exists() else {}


def fail() -> None:
    raise StorageFailedError("cannot do it: no room, for a test", errno=28)


def fail_sync() -> None:
    raise SyncFailedError("cannot sync: no room, for a test", errno=28)


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


def test_what_lies_behind_the_end_cannot_be_deleted(log: pylog.Log) -> None:
    for before in (16, 10**9):
        with pytest.raises(pylog.OffsetOutOfRangeError, match="from 0 to before 15"):
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
def test_what_a_broker_deleted_meanwhile_does_not_come_back_when_another_partition_is_written(
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


def test_at_or_behind_the_end_nothing_is_done(path: Path, log: pylog.Log, fs: HookedFileSystem) -> None:
    fs.calls.clear()
    for end in (15, 16, 10**9):
        log.truncate(end)
    assert ends(log) == (0, 15, 15)
    assert slot_of(path).truncation_count == 0
    assert {call for call, _ in fs.calls} <= {"open"}


def test_no_log_is_truncated_below_its_start(log: pylog.Log) -> None:
    log.delete_records(7)
    for end in (0, 6):
        with pytest.raises(pylog.OffsetOutOfRangeError, match="cannot be truncated to"):
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
def test_the_end_behind_a_gap_is_kept(path: Path, close: bool) -> None:
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


def test_searches_by_time_and_offset_know_nothing_of_what_is_gone(store: Store) -> None:
    log = sized(store)
    for number in range(15):
        log.append(digit(number), timestamp=NOW + number)
    log.truncate(7)
    assert log.offset_for_timestamp(NOW + 6) == (6, NOW + 6)
    assert log.offset_for_timestamp(NOW + 7) is None
    log.append(b"x", timestamp=NOW + 100)
    assert log.offset_for_timestamp(NOW + 7) == (7, NOW + 100)
    assert log.split_offsets(0, 8, 100)


def test_what_is_cut_off_is_gone_from_the_disk_when_the_call_returns(path: Path, log: pylog.Log) -> None:
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


# ---- retention ---------------------------------------------------------------------------------------------------------------


def aged(store: Store, **config: Any) -> pylog.Log:
    """Fifteen records, five a segment, a second apart."""
    log = sized(store, **config)
    for number in range(15):
        log.append(digit(number), timestamp=NOW + 1000 * number)
    return log


@pytest.mark.parametrize(
    ("age_s", "left"), [(13, [0, 5, 10]), (14, [0, 5, 10]), (14.001, [5, 10]), (19.001, [10]), (24, [10]), (24.001, [15])]
)
def test_what_is_older_than_the_topic_keeps_goes_a_segment_at_a_time(store: Store, age_s: float, left: list[int]) -> None:
    """When all go, the active one too, a new one begins at the end."""
    log = aged(store, retention_ms=10_000)
    assert store.tick(now_ms=NOW + int(1000 * age_s)) == len({0, 5, 10} - set(left))
    assert bases(log) == left
    assert ends(log) == (left[0], 15, 15)
    assert values(log) == digits(range(left[0], 15))
    assert log.append(digit(15)) == 15


def test_what_is_more_than_the_topic_keeps_goes_and_never_more(store: Store) -> None:
    for size, left in ((1035, [0, 5, 10]), (691, [0, 5, 10]), (690, [5, 10]), (345, [10]), (344, [10]), (0, [15])):
        log = aged(store, name=f"keeps-{size}", retention_bytes=size)
        store.tick(now_ms=NOW)
        assert bases(log) == left, size


def test_the_clock_of_the_store_decides_where_no_time_is_given(path: Path) -> None:
    clock = ManualClock(NOW)
    with pylog.open(path, clock=clock) as store:
        log = aged(store, retention_ms=10_000)
        assert store.tick() == 0
        clock.advance(15_000)
        assert store.tick() == 1
        clock.advance(-100_000)  # set back it deletes nothing
        assert store.tick() == 0
        assert bases(log) == [5, 10]


def test_every_partition_of_every_topic_is_looked_after_opened_or_not(path: Path, store: Store) -> None:
    store.create_topic("many", partition_count=3, segment_bytes=200, retention_ms=1000)
    for number in range(3):
        for _ in range(10):
            store.log("many", number).append(b"x", timestamp=NOW)
    store.close()
    with pylog.open(path) as again:
        assert again.tick(now_ms=NOW + 2000) > 6
        assert [again.log("many", number).start_offset for number in range(3)] == [10, 10, 10]


def test_the_background_ticks_as_often_as_it_is_asked_to(path: Path) -> None:
    with pylog.open(path, tick_interval_ms=2) as store:
        log = sized(store, retention_ms=1000)
        for number in range(15):
            log.append(digit(number), timestamp=1)
        came = threading.Event()
        for _ in range(4000):
            if log.start_offset == 15:
                break
            came.wait(0.005)
        assert (log.start_offset, log.end_offset) == (15, 15)


def test_one_partition_that_cannot_be_trimmed_keeps_no_other_one_from_it(store: Store, fs: HookedFileSystem) -> None:
    for name in ("a", "b", "c"):
        aged(store, name=name, retention_ms=1)
    fs.before("rename", ".log", fail)  # of the first one
    with pytest.raises(StorageFailedError):
        store.tick(now_ms=NOW + 10**6)
    assert sorted(store.log(name).start_offset for name in "abc")[1:] == [15, 15]


# ---- waiting for a group -----------------------------------------------------------------------------------------------------


class Group:
    """What a consumer group has committed, as `pylog.open` asks for it."""

    def __init__(self) -> None:
        self.offset: int | None = None
        self.asked: list[tuple[str, TopicPartition]] = []

    def __call__(self, group: str, partition: TopicPartition) -> int | None:
        self.asked.append((group, partition))
        return self.offset


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def waiting(path: Path, group: Group) -> Iterator[Store]:
    with pylog.open(path, clock=ManualClock(NOW + 10**6), committed=group) as opened:
        yield opened


def test_retention_waits_for_the_group_that_the_topic_names(waiting: Store, group: Group) -> None:
    log = aged(waiting, retention_ms=1000, retention_group="billing")
    for offset, left in ((None, [0, 5, 10]), (4, [0, 5, 10]), (5, [5, 10]), (12, [10]), (15, [15])):
        group.offset = offset
        waiting.tick()
        assert bases(log) == left
    assert set(group.asked) == {("billing", T)}


def test_a_bound_ends_the_waiting(waiting: Store, group: Group) -> None:
    log = aged(waiting, retention_ms=1000, retention_group="billing", retention_group_max_bytes=400)
    assert waiting.tick() == 2
    assert bases(log) == [10]


def test_deleting_by_command_waits_for_nobody(waiting: Store) -> None:
    log = aged(waiting, retention_ms=1000, retention_group="billing")
    log.delete_records(10)
    assert bases(log) == [10]


def test_nobody_is_asked_where_no_group_is_named(waiting: Store, group: Group) -> None:
    log = aged(waiting, retention_ms=1000)
    assert waiting.tick() == 3
    assert (group.asked, bases(log)) == ([], [15])


def test_a_topic_that_waits_for_a_group_of_which_nobody_knows_keeps_everything(store: Store) -> None:
    log = aged(store, retention_ms=1000, retention_group="billing")
    assert store.tick(now_ms=NOW + 10**6) == 0
    assert bases(log) == [0, 5, 10]


# ---- readers of this process -------------------------------------------------------------------------------------------------


def trims() -> list[tuple[str, Callable[[Store], object]]]:
    return [
        ("delete_records", lambda store: store.log("t").delete_records(10)),
        ("retention", lambda store: store.retain("t", now_ms=NOW + 10**9)),
    ]


@pytest.mark.parametrize(("how", "trim"), trims(), ids=lambda each: each if isinstance(each, str) else "")
def test_what_a_reader_has_in_hand_it_reads_to_its_end(
    path: Path, store: Store, how: str, trim: Callable[[Store], object]
) -> None:
    """The files are renamed, and go when the last reader has let go: also those that it has not opened yet."""
    log = aged(store, retention_ms=1)
    records = log.records()
    if how == "retention":
        next(records)
    trim(store)
    assert names(path / "t-0", "*.log.deleted")
    assert len(list(records)) in (14, 15)
    del records
    gc.collect()
    store.tick(now_ms=0)
    assert names(path / "t-0", "*.deleted") == set()


def test_files_that_nobody_reads_go_at_once(path: Path, store: Store, log: pylog.Log) -> None:
    log.delete_records(10)
    gc.collect()
    store.retain("t", now_ms=0)
    assert names(path / "t-0", "*.deleted") == set()


def test_renamed_files_go_at_the_latest_when_the_store_is_closed(path: Path, store: Store, log: pylog.Log) -> None:
    records = log.records()
    log.delete_records(10)
    assert names(path / "t-0", "*.deleted")
    store.close()
    assert names(path / "t-0", "*.deleted") == set()
    del records


def test_a_reader_that_a_truncation_overtakes_gets_what_it_had_or_is_told_that_it_is_gone(log: pylog.Log) -> None:
    for first in range(15):
        records = log.records(first)
        began = next(records)
        assert began.value == digit(first)
        log.truncate(3)
        try:
            left = [record.value for record in records]
            assert left == digits(range(first + 1, first + 1 + len(left)))
        except pylog.OffsetOutOfRangeError:
            pass
        for number in range(3, 15):
            log.append(digit(number))


def test_threads_that_read_while_the_log_is_trimmed_see_what_was_written_or_that_it_is_gone(store: Store) -> None:
    log = sized(store)
    done, errors = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            try:
                errors.extend(record for record in log.records() if record.value != digit(record.offset))
                log.read(log.start_offset)
            except pylog.OffsetOutOfRangeError:
                continue
            except Exception as error:  # noqa: BLE001 - looked at below
                errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(25):
            while log.end_offset < log.start_offset + 20:
                log.append(digit(log.end_offset), durability=Durability.OS)
            log.truncate(log.end_offset - 7)
            log.delete_records(log.start_offset + 8)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert errors == []


# ---- crashes and failures ----------------------------------------------------------------------------------------------------


def test_what_a_crash_leaves_is_swept_when_the_partition_is_opened_for_writing(path: Path, store: Store, log: pylog.Log) -> None:
    store.close()
    left = [f"{number:020d}{suffix}" for number in (3, 5) for suffix in (".log.deleted", ".index.deleted", ".log.tmp")]
    left += [f"{5:020d}.log.cleaned", f"{15:020d}.snapshot.deleted", f"{7:020d}.snapshot.tmp"]
    left += [f"{5:020d}.{suffix}.tmp" for suffix in ("index", "timeindex", "txnindex", "seal")] + ["leader-epoch-checkpoint.tmp"]
    for name in left:
        (path / "t-0" / name).write_bytes(b"left over")
    kept = names(path / "t-0") - set(left)
    with pylog.open(path, mode="r") as reading:
        assert values(reading.log("t")) == digits(range(15))
    assert names(path / "t-0") == kept | set(left)
    with pylog.open(path) as again:
        assert values(again.log("t")) == digits(range(15))
        assert names(path / "t-0") == kept
        assert again.log("t").append(b"x") == 15


def test_an_index_that_a_reader_finishes_while_what_a_crash_left_is_swept_hinders_nobody(path: Path, store: Store) -> None:
    sized(store).append(b"x")
    store.close()
    unfinished, fs = path / "t-0" / f"{0:020d}.index.tmp", HookedFileSystem()
    unfinished.write_bytes(b"")
    fs.before("remove", ".index.tmp", unfinished.unlink)
    with pylog.open(path, fs=fs) as again:
        assert again.log("t").append(b"y") == 1
        assert fs.count("remove") > 0
    assert not unfinished.exists()


def test_a_swap_that_a_crash_left_is_completed(path: Path, store: Store, log: pylog.Log) -> None:
    """It holds the records of the segments that it replaces, which go with their other files."""
    store.close()
    directory = path / "t-0"
    merged = b"".join((directory / f"{base:020d}.log").read_bytes() for base in (0, 5))
    (directory / f"{0:020d}.log.swap").write_bytes(merged)
    with pylog.open(path, mode="r") as reading:
        assert values(reading.log("t")) == digits(range(15))
    with pylog.open(path) as again:
        log = again.log("t")
        assert bases(log) == [0, 10]
        assert values(log) == digits(range(15))
        assert log.append(digit(15)) == 15
    assert names(directory, "*.swap") == set()
    assert not names(directory, f"{5:020d}.*")


def deaths(trim: Callable[[Store], object]) -> Iterator[Image]:
    """A log of fifteen records, trimmed by a process that dies: the disk after each of its steps."""
    fs = RecordingFileSystem()
    with pylog.open("/s", fs=fs, clock=ManualClock(NOW)) as store:
        log = sized(store, retention_bytes=345)
        for number in range(15):
            log.append(digit(number))
        before = len(fs.recording)
        trim(store)
    for after in range(before, len(fs.recording) + 1):
        moment = Moment.of(fs.recording, after)
        for death in moment.deaths(random.Random(after), 1):
            yield moment.state(death)[1]


@pytest.mark.parametrize(
    "trim",
    [
        lambda store: store.log("t").delete_records(10),
        lambda store: store.log("t").delete_records(12),
        lambda store: store.tick(),
    ],
    ids=["delete-a-segment", "delete-within-a-segment", "retention"],
)
def test_a_trim_at_the_start_that_is_killed_at_any_step_never_passes_for_lost_records(trim: Callable[[Store], object]) -> None:
    """Neither at once nor after the next process has finished it."""
    judged = 0
    for image in deaths(trim):
        fs, clock = MemoryFileSystem(image=image), ManualClock(NOW)
        assert {each.finding.kind for each in verify("/s", fs=fs, clock=clock).affected} <= HARMLESS
        with pylog.open("/s", fs=fs, clock=clock) as again:
            trim(again)
            start = again.log("t").start_offset
            assert values(again.log("t")) == digits(range(start, 15))
            assert start >= 10
        assert verify("/s", fs=fs, clock=clock).affected == ()
        judged += 1
    assert judged > 20


@pytest.mark.parametrize("fault", ["rename ENOSPC", "create ENOSPC", "write ENOSPC", "open EMFILE"])
def test_a_segment_that_may_be_mapped_is_never_cut_whatever_becomes_of_the_truncation_that_made_it_the_last_one(
    fault: str,
) -> None:
    """The n-th call is refused, for every n. The file system of the test refuses to cut a file that is mapped."""
    for number in range(1, 60):
        fs = FaultyFileSystem(MemoryFileSystem())
        with pylog.open("/s", fs=fs, clock=ManualClock(NOW)) as store:
            log = sized(store)
            for offset in range(15):
                log.append(digit(offset))
            kept = [segment.file().mapping for segment in log.look().segments.values()[:2]]  # as who reads them now
            assert not any(each is None for each in kept)
            fs.fail(fault, number)
            with contextlib.suppress(StorageFailedError):
                log.truncate(3)
            fired = fs.fired
            fs.heal()
            log.truncate(2)
            assert log.append(digit(2)) == 2
            assert values(log) == digits(range(3))
        if not fired:
            return
    pytest.fail("the calls never came to an end")


def batch_and_a_segment_behind_it(store: Store) -> None:
    store.create_topic("t", segment_bytes=150)
    store.log("t").append_many([b"one", b"two", b"three"])
    store.log("t").append(bytes(50))
    assert bases(store.log("t")) == [0, 3]


def gap_and_nothing_else(store: Store) -> None:
    """Closed afterwards, so that files are there that tell of an end at 3."""
    store.create_topic("t")
    store.log("t").append_many([b"one", b"two", b"three", b"four"])
    store.log("t").truncate(3)


@pytest.mark.parametrize("made", [batch_and_a_segment_behind_it, gap_and_nothing_else])
def test_a_truncation_amid_a_batch_that_a_crash_cuts_short_gives_no_offset_below_its_end_again_and_is_no_loss(
    made: Callable[[Store], None],
) -> None:
    """Only the header knows where a log ends that ends with a gap. Both were found by the model of a log."""
    fs, clock = RecordingFileSystem(), ManualClock(NOW)
    with pylog.open("/s", fs=fs, clock=clock) as store:
        made(store)
    with pylog.open("/s", fs=fs, clock=clock) as store:
        before = len(fs.recording)
        store.log("t").truncate(2)
        last = len(fs.recording)
    judged = 0
    for after in range(before, last + 1):
        moment, rng = Moment.of(fs.recording, after), random.Random(after)
        for crash in (*moment.crashes(rng, 6, 2), *moment.deaths(rng, 1)):
            again = restarted(fs.recording, crash, clock=clock)
            with pylog.open("/s", fs=again, clock=clock) as store:
                assert {finding.kind for finding in store.log("t").recovery_report} <= {"torn", "rebuilt"}
                end = store.log("t").end_offset
                assert 2 <= end <= 4
                assert store.log("t").append(b"next") == end
            judged += 1
    assert judged > 60


@pytest.mark.damaged("its first segment is removed")
def test_epochs_that_tell_of_a_first_segment_that_is_lost_go_on_telling_it_when_the_log_is_written(
    path: Path, store: Store
) -> None:
    for number in range(15):
        (store.log("t") if number else sized(store)).append(digit(number))
    store.close()
    for file in (path / "t-0").glob(f"{0:020d}.*"):
        file.unlink()
    for _ in range(2):
        with pylog.open(path) as again:
            again.log("t").append(b"x")
        assert [(each.finding.kind, each.first_offset) for each in verify(str(path)).affected] == [("missing", 0)]


TRIMS = pytest.mark.parametrize(
    "trim",
    [lambda log: log.truncate(3), lambda log: log.truncate(12), lambda log: log.delete_records(11)],
    ids=["truncate-sealed", "truncate-active", "delete-records"],
)


@pytest.mark.parametrize("call", ["write", "rename", "create", "truncate", "remove"])
@TRIMS
def test_a_trim_that_there_is_no_room_for_can_be_done_once_there_is(
    tmp_path: Path, call: str, trim: Callable[[pylog.Log], object]
) -> None:
    """The n-th call of a kind is refused, for every n: the log goes on without being opened again."""
    for number in range(1, 60):
        path, fs = tmp_path / f"{number}", HookedFileSystem()
        with pylog.open(path, fs=fs) as store:
            log = sized(store)
            for offset in range(15):
                log.append(digit(offset))
            failed = not succeeds(lambda log=log: trim(log), fs, call, number)
            trim(log)
            end = log.end_offset
            assert (log.start_offset, end) in ((0, 3), (0, 12), (11, 15))
            assert log.append(digit(end)) == end
            assert values(log) == digits(range(log.start_offset, end + 1))
        if not failed:
            return
    pytest.fail("the calls never came to an end")


@pytest.mark.parametrize("call", ["write", "sync", "rename", "create", "truncate", "sync_directory", "remove"])
@TRIMS
def test_a_trim_that_fails_half_way_loses_nothing_but_what_was_to_go(
    tmp_path: Path, call: str, trim: Callable[[pylog.Log], object]
) -> None:
    """The n-th call of a kind fails, for every n: the log is a piece of what it was, between the old ends and the new ones."""
    for number in range(1, 60):
        path, fs = tmp_path / f"{number}", HookedFileSystem()
        store = pylog.open(path, fs=fs)
        log = sized(store)
        for offset in range(15):
            log.append(digit(offset))
        failed = not succeeds(lambda log=log: trim(log), fs, call, number)
        store.close()
        with pylog.open(path) as again:
            log = again.log("t")
            assert log.start_offset in (0, 11)
            assert 3 <= log.end_offset <= 15
            assert values(log) == digits(range(log.start_offset, log.end_offset))
            assert log.append(b"x") == log.end_offset - 1
            assert {finding.kind for finding in again.recovery_report} <= {"rebuilt"}
        if not failed:
            return
    pytest.fail("the calls never came to an end")


def succeeds(action: Callable[[], object], fs: HookedFileSystem, call: str, number: int) -> bool:
    """Does something while the n-th call of a kind fails; whether it took less than n of them."""
    last = fs.count(call) + number

    def meet() -> None:
        if fs.count(call) == last:
            fail_sync() if call.startswith("sync") else fail()
        fs.before(call, "", meet)

    fs.before(call, "", meet)
    try:
        action()
    except StorageFailedError:
        return False
    finally:
        fs.forget()
    return True
