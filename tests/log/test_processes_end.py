"""Processes that write one partition die, stand still, keep it to themselves, and leave: nothing is lost, and no marker lies."""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylog
from pylog import Durability
from pylog.directory.checkpoints import CLEAN_SHUTDOWN, LOG_START, RECOVERY_POINT, parse_offsets
from pylog.log.durable_point import DELETED, open_header
from pylog.record.types import TopicPartition
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from support.faults.neighbours import HookedFileSystem, Neighbour, NeighbourError, last_segment, values
from support.log import processes
from support.log.durable_points import slot_of

neighbour = pytest.fixture(scope="module")(processes.neighbour)
other = pytest.fixture(processes.other)
path = pytest.fixture(processes.path)
one = pytest.fixture(processes.one)
two = pytest.fixture(processes.two)


T = TopicPartition("t", 0)


# ---- death -------------------------------------------------------------------------------------------------------------------


def batches(path: Path, count: int) -> list[bytes]:
    """The bytes of the last segment's batches, which must all be of the same size."""
    data = last_segment(path).read_bytes()
    size = len(data) // count
    return [data[start : start + size] for start in range(0, len(data), size)]


def moved(batch: bytes, offset: int) -> bytes:
    """The same batch at another offset, which no checksum covers."""
    return struct.pack(">q", offset) + batch[8:]


def add(path: Path, data: bytes) -> None:
    with last_segment(path).open("ab") as file:
        file.write(data)


def test_whole_batches_that_a_dead_process_did_not_publish_are_kept(path: Path, one: Store, two: Store) -> None:
    """Death between write and publication leaves bytes above the published end, in any process."""
    one.log("t").append_many([b"x"])
    two.log("t").append_many([b"x"])
    batch = batches(path / "t-0", 2)[0]
    add(path / "t-0", moved(batch, 2) + moved(batch, 3))
    assert one.log("t").append(b"next") == 4
    assert values(two.log("t")) == [b"x", b"x", b"x", b"x", b"next"]
    assert one.recovery_report == two.recovery_report == ()


def test_zeros_that_a_dead_process_has_left_are_cut_off_and_not_kept(path: Path, one: Store, two: Store) -> None:
    """The first bytes of an offset, or what was written ahead: no record was in them."""
    one.log("t").append(b"x")
    two.log("t").append(b"x")
    add(path / "t-0", bytes(7))
    assert two.log("t").append(b"next") == 2
    assert values(one.log("t")) == [b"x", b"x", b"next"]
    assert list((path / "t-0").glob("*.torn.*")) == []
    assert one.recovery_report == two.recovery_report == ()


@pytest.mark.parametrize("cut", [8, 30, 61, 65])
def test_half_a_batch_of_a_dead_process_is_kept_aside_and_cut_off(path: Path, one: Store, two: Store, cut: int) -> None:
    one.log("t").append(b"x")
    two.log("t").append(b"x")
    batch = batches(path / "t-0", 2)[0]
    torn = moved(batch, 3)[:cut]
    add(path / "t-0", moved(batch, 2) + torn)
    assert two.log("t").append(b"next") == 3
    assert values(one.log("t")) == [b"x", b"x", b"x", b"next"]
    (aside,) = (path / "t-0").glob("*.torn.*")
    assert aside.read_bytes() == torn
    assert [finding.kind for finding in two.recovery_report] == ["torn"]
    assert one.recovery_report == ()


DYING = """
fs = HookedFileSystem()
store = pylog.open(path, fs=fs)
log = store.log('t')
log.append(b'theirs')
fs.before(call, name, send_self(signal.SIGKILL))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "name", "kept"),
    [
        ("write", ".log", False),
        ("sync", ".log", True),
        ("write", "durable-point", True),
    ],
)
def test_an_append_whose_process_is_killed_is_whole_or_absent_for_other_processes(
    path: Path, one: Store, call: str, name: str, kept: bool
) -> None:
    one.log("t").append(b"ours")
    with Neighbour() as other:
        other.run(DYING, path=str(path), call=call, name=name)
        other.begin("log.append_many([b'dying'] * 3)")
        assert other.wait() == -signal.SIGKILL
    left = [b"dying"] * 3 if kept else []
    assert one.log("t").append(b"next") == 2 + len(left)
    assert values(one.log("t")) == [b"ours", b"theirs", *left, b"next"]
    assert one.log("t").durable_offset == one.log("t").end_offset


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "name"),
    [("sync", ".log"), ("rename", ".index.tmp"), ("rename", ".snapshot.tmp"), ("create", ".log"), ("sync_directory", "t-0")],
)
def test_a_roll_whose_process_is_killed_is_complete_or_absent_for_other_processes(
    path: Path, one: Store, call: str, name: str
) -> None:
    log = one.log("t")
    log.append(b"ours")
    with pylog.open(path, mode="r") as reading, Neighbour() as other:
        reader = reading.log("t")
        other.run(DYING, path=str(path), call=call, name=name)
        other.begin("for number in range(100): log.append(b'%d' % number, durability=pylog.Durability.OS)")
        assert other.wait() == -signal.SIGKILL
        assert slot_of(path).epoch % 2 == 1
        seen = values(reader)
        assert values(log) == seen
        assert seen[:2] == [b"ours", b"theirs"]
        assert seen[2:] == [b"%d" % number for number in range(len(seen) - 2)]
        assert log.append(b"next") == len(seen)
        assert values(reader) == values(log) == [*seen, b"next"]
        assert slot_of(path).epoch % 2 == 0
        assert one.recovery_report == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("write", "durable-point"),
        ("rename", ".log"),
        ("create", ".log.tmp"),
        ("rename", ".log.tmp"),
        ("rename", "leader-epoch-checkpoint.tmp"),
    ],
)
def test_a_truncation_whose_process_is_killed_leaves_a_prefix_for_other_processes(
    path: Path, one: Store, call: str, name: str
) -> None:
    log = one.log("t")
    for number in range(30):
        log.append(b"%d" % number)
    with Neighbour() as other:
        other.run(DYING.replace("log.append(b'theirs')\n", "log.flush()\n"), path=str(path), call=call, name=name)
        other.begin("log.truncate(7)")
        assert other.wait() == -signal.SIGKILL
    assert log.append(b"next") >= 7
    told = values(log)
    assert told == [*(b"%d" % number for number in range(len(told) - 1)), b"next"]
    assert one.recovery_report == ()


@pytest.mark.slow
def test_a_snapshot_of_a_process_that_died_in_a_truncation_is_never_taken_for_the_state_of_producers(path: Path) -> None:
    """A snapshot of deleted records does not apply to the records that get their offsets."""
    with pylog.open(path) as one:
        log = one.log("t")
        for sequence in range(5):
            log.append_batch([b"x"], producer=pylog.ProducerBatch(7, 0, sequence))
    with Neighbour() as other:
        other.run(DYING.replace("log.append(b'theirs')\n", ""), path=str(path), call="rename", name="leader-epoch-checkpoint.tmp")
        other.begin("log.truncate(2)")
        assert other.wait() == -signal.SIGKILL
    with pylog.open(path) as one:
        log = one.log("t")
        end = log.append(b"next") + 1
        assert [int(name.stem) for name in (path / "t-0").glob("*.snapshot") if int(name.stem) > end] == []
        known = end - 1
        assert log.append_batch([b"y"], producer=pylog.ProducerBatch(7, 0, known)).offsets.start == end


@pytest.mark.slow
def test_a_start_that_a_dead_process_could_only_half_raise_becomes_the_same_for_all(path: Path, one: Store) -> None:
    """Its word stands in the checkpoint, which is authoritative, and not in the header yet."""
    log = one.log("t")
    for number in range(30):
        log.append(b"%d" % number)
    with Neighbour() as other:
        other.run(DYING.replace("log.append(b'theirs')\n", "log.flush()\n"), path=str(path), call="write", name="durable-point")
        other.begin("log.delete_records(12)")
        assert other.wait() == -signal.SIGKILL
    with pylog.open(path) as two:
        assert two.log("t").start_offset == 12
        assert two.log("t").append(b"next") == 30
        assert log.start_offset == 12
        assert values(log) == values(two.log("t"))


def test_a_torn_write_after_the_gap_of_a_truncation_does_not_move_the_log_end_back(path: Path, one: Store, two: Store) -> None:
    """The end that was told stays the end: readers wait there for the next record."""
    one.log("t").append_many([b"x"] * 5)
    two.log("t").truncate(3)  # in the middle of the batch, which goes as a whole
    assert one.log("t").end_offset == 3
    add(path / "t-0", b"half a header")
    assert one.log("t").append(b"next") == 3
    assert two.log("t").end_offset == 4


# ---- standing still ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_process_stopped_in_an_append_stops_other_writers_for_a_time_and_readers_not_at_all(path: Path) -> None:
    with Neighbour() as other, pylog.open(path, lock_timeout_ms=150) as one, pylog.open(path, mode="r") as reading:
        log, reader = one.log("t"), reading.log("t")
        log.append(b"ours")
        other.run(
            "fs = HookedFileSystem(); store = pylog.open(path, fs=fs); log = store.log('t'); log.append(b'theirs')\n"
            "fs.before('sync', '.log', send_self(signal.SIGSTOP))",
            path=str(path),
        )
        other.begin("log.append(b'held up')")
        other.wait_until_stopped()
        with pytest.raises(pylog.StoreLockedError, match=r"0.15 s"):
            log.append(b"never")
        assert values(reader) == values(log) == [b"ours", b"theirs"]
        assert log.end_offset == reader.end_offset == 2
        one.create_topic("another")
        assert one.log("another").append(b"x") == 0  # other partitions go on
        other.go_on()
        assert other.answer() == 2
        assert log.append(b"at last") == 3
        assert values(reader) == [b"ours", b"theirs", b"held up", b"at last"]
        other.run("store.close()")


# ---- the only one ------------------------------------------------------------------------------------------------------------


def test_an_exclusive_store_is_alone_and_says_so_to_others(path: Path, other: Neighbour) -> None:
    with pytest.raises(pylog.StoreLockedError):
        pylog.open(path, exclusive=True)
    other.run("store.close()")
    with pylog.open(path, exclusive=True) as store:
        with pytest.raises(NeighbourError) as refused:
            other.run("pylog.open(path)")
        assert refused.value.kind == "StoreLockedError"
        assert store.log("t").append(b"x") == 0
        assert other.run("reading = pylog.open(path, mode='r'); reading.log('t').read(0).value") == b"x"
        other.run("reading.close()")
    other.run("store = pylog.open(path)")
    assert other.run("store.log('t').append(b'y')") == 1


@pytest.mark.slow
def test_an_exclusive_store_goes_on_where_shared_ones_left_and_the_other_way_round(path: Path) -> None:
    for number in range(0, 30, 2):
        with pylog.open(path, exclusive=True) as store:
            assert store.log("t").append(b"x") == number
        with pylog.open(path) as store:
            assert store.log("t").append(b"x") == number + 1


# ---- leaving -----------------------------------------------------------------------------------------------------------------


def recovery_points(path: Path) -> dict[TopicPartition, int]:
    file = path / RECOVERY_POINT
    return parse_offsets(file.read_bytes(), str(file)) if file.exists() else {}


@pytest.fixture
def used(path: Path) -> Iterator[tuple[Store, Store]]:
    """Two stores that both have written; the test closes them."""
    stores = pylog.open(path), pylog.open(path)
    for store in stores:
        store.log("t").append(b"x")
    yield stores
    for store in stores:
        store.close()


def test_the_marker_of_a_clean_shutdown_is_written_by_the_last_one_to_leave(path: Path, used: tuple[Store, Store]) -> None:
    for store in used:
        assert not (path / CLEAN_SHUTDOWN).exists()
        store.close()
    assert (path / CLEAN_SHUTDOWN).exists()


def test_the_checkpoint_tells_of_partitions_that_others_wrote(path: Path) -> None:
    one, two = pylog.open(path), pylog.open(path)
    one.create_topic("theirs", partition_count=2)
    one.log("theirs", 1).append_many([b"x"] * 7)
    one.log("t").append_many([b"x"] * 3, durability=Durability.OS)
    one.log("t").delete_records(2)
    one.close()
    assert recovery_points(path) == {}
    two.close()  # it has opened none of them
    assert recovery_points(path) == {T: 3, TopicPartition("theirs", 1): 7}
    assert parse_offsets((path / LOG_START).read_bytes(), "") == {T: 2}
    assert (path / CLEAN_SHUTDOWN).exists()


@pytest.mark.slow
def test_no_marker_is_written_while_a_partition_that_a_dead_process_wrote_is_not_settled(path: Path) -> None:
    with Neighbour() as other:
        one = pylog.open(path)
        other.run("store = pylog.open(path); store.log('t').append(b'x', durability=pylog.Durability.OS)", path=str(path))
        other.kill()
        one.close()
    assert not (path / CLEAN_SHUTDOWN).exists()
    assert recovery_points(path) == {}
    with pylog.open(path) as one:
        assert one.log("t").append(b"y") == 1
    assert (path / CLEAN_SHUTDOWN).exists()
    assert recovery_points(path) == {T: 2}


def test_no_clean_marker_is_written_over_unpublished_bytes(path: Path, used: tuple[Store, Store]) -> None:
    one, two = used
    one.close()
    add(path / "t-0", b"torn")
    two.close()
    assert not (path / CLEAN_SHUTDOWN).exists()


@pytest.mark.slow
def test_no_marker_is_written_by_one_whose_last_flush_failed_but_by_one_that_repaired_it(path: Path) -> None:
    def fail() -> None:
        raise pylog.SyncFailedError("cannot sync: no room, for a test", errno=28)

    fs = HookedFileSystem()
    one, two = pylog.open(path, fs=fs), pylog.open(path)
    one.log("t").append(b"a")
    fs.before("sync", ".log", fail)
    with pytest.raises(pylog.errors.StorageFailedError):
        one.log("t").append(b"b")
    one.close()
    two.log("t").append(b"c")
    two.close()
    assert (path / CLEAN_SHUTDOWN).exists()
    assert recovery_points(path)[T] == slot_of(path).published_offset


@pytest.mark.slow
def test_a_marker_of_before_says_nothing_of_what_another_process_wrote_since(path: Path) -> None:
    """This store found the marker when it was opened, and opens the partition only now."""
    assert (path / CLEAN_SHUTDOWN).exists()
    with Neighbour() as other, pylog.open(path) as one:
        other.run("store = pylog.open(path); store.log('t').append(b'x', durability=pylog.Durability.OS)", path=str(path))
        other.kill()
        log = one.log("t")
        assert (log.end_offset, log.durable_offset) == (1, 0)
        log.flush()
        assert log.durable_offset == 1
        assert slot_of(path).durable_offset == 1


@pytest.mark.slow
def test_a_store_that_only_read_leaves_what_others_wrote_as_it_is(path: Path) -> None:
    with pylog.open(path) as one, pylog.open(path) as two:
        one.log("t").append(b"x", durability=Durability.OS)
        assert values(two.log("t")) == [b"x"]
        two.close()
        assert slot_of(path).durable_offset == 0
        assert one.log("t").append(b"y") == 1


@pytest.mark.slow
def test_a_failed_store_is_gone_on_from_by_another_one(path: Path) -> None:
    """Its failed flag makes who comes next write what it keeps again, because pages that failed to sync look clean."""

    def fail() -> None:
        raise pylog.SyncFailedError("cannot sync: no room, for a test", errno=28)

    fs, other_fs = HookedFileSystem(), HookedFileSystem()
    with pylog.open(path, fs=fs) as one, pylog.open(path, fs=other_fs) as two:
        one.log("t").append(b"a")
        two.log("t").append(b"b")
        fs.before("sync", ".log", fail)
        with pytest.raises(pylog.errors.StorageFailedError):
            one.log("t").append(b"c")
        assert slot_of(path).flags
        writes = other_fs.count("write", ".log")
        end = two.log("t").append(b"d") + 1
        assert other_fs.count("write", ".log") == writes + 2
        assert slot_of(path).flags == 0
        assert values(two.log("t")) == [b"a", b"b", *([b"c"] if end == 4 else []), b"d"]
        with pytest.raises(pylog.ClosedError):
            one.log("t").append(b"never")


@pytest.mark.slow
@pytest.mark.damaged("it was damaged on purpose")
def test_nothing_is_written_to_a_partition_whose_header_says_that_it_is_deleted(path: Path, one: Store) -> None:
    """The deleting process has marked it, and not renamed it yet."""
    one.log("t").append(b"x")
    header = open_header(HookedFileSystem(), str(path / "t-0"))
    assert header is not None
    header.close()
    from pylog.log.durable_point import mark_deleted

    mark_deleted(HookedFileSystem(), str(path / "t-0"))
    assert slot_of(path).flags == DELETED
    size = last_segment(path / "t-0").stat().st_size
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        one.log("t").append(b"never")
    assert last_segment(path / "t-0").stat().st_size == size


@pytest.mark.slow
def test_an_append_to_a_headerless_log_that_another_process_deleted_says_so() -> None:
    """As a broker leaves a partition: there is nothing in it that could be marked."""
    fs = MemoryFileSystem()
    with pylog.open("/s", fs=fs, clock=fs.clock) as store:
        store.create_topic("t")
        store.log("t").append(b"x")
    fs.remove("/s/t-0/durable-point")
    store = pylog.open("/s", fs=fs, clock=fs.clock)
    log = store.log("t")
    other = fs.process()
    with pylog.open("/s", fs=other, clock=other.clock) as elsewhere:
        elsewhere.delete_topic("t")
    with pytest.raises(pylog.UnknownTopicOrPartitionError, match="was deleted by another process"):
        log.append(b"to nowhere")
    store.close()
