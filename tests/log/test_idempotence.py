"""A producer's batch is in the log once, however often it is sent, through whichever process, whatever happened in between."""

from __future__ import annotations

import inspect
import shutil
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import pylog
from pylog import BatchMetadata, Durability, ProducerBatch
from pylog.errors import StorageFailedError, SyncFailedError
from pylog.log.producer_state import Producer, ProducerStateManager
from pylog.store import Store
from support.faults.neighbours import HookedFileSystem, Neighbour, values
from support.log.derived import parse_snapshot

LAST = 2**31 - 1  # the largest sequence


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t")
        store.create_topic("small", segment_bytes=300)
    return tmp_path / "s"


@pytest.fixture
def store(path: Path, fs: HookedFileSystem) -> Iterator[Store]:
    with pylog.open(path, fs=fs) as opened:
        yield opened


def send(
    log: pylog.Log, sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, level: Durability | None = None
) -> BatchMetadata:
    sent = [b"%d" % (sequence + number) for number in range(count)]
    return log.append_batch(sent, producer=ProducerBatch(producer, epoch, sequence), durability=level)


def acknowledged(offsets: range, durability: Durability, *, duplicate: bool) -> BatchMetadata:
    return BatchMetadata("t", 0, offsets, durability, duplicate)


def fail() -> None:
    raise StorageFailedError("cannot write: no room, for a test", errno=28)


def fail_sync() -> None:
    raise SyncFailedError("cannot sync: no room, for a test", errno=28)


# ---- once --------------------------------------------------------------------------------------------------------------------


def test_a_batch_sent_again_is_acknowledged_with_the_offsets_that_it_has(log: pylog.Log) -> None:
    assert send(log, 0, 3) == acknowledged(range(3), Durability.SYNC, duplicate=False)
    log.append(b"between")
    for _ in range(3):
        assert send(log, 0, 3) == acknowledged(range(3), Durability.SYNC, duplicate=True)
    assert values(log) == [b"0", b"1", b"2", b"between"]


def test_each_of_the_last_five_batches_is_known(log: pylog.Log) -> None:
    told = [send(log, 2 * number, 2).offsets for number in range(7)]
    for number in range(2, 7):
        assert send(log, 2 * number, 2) == acknowledged(told[number], Durability.SYNC, duplicate=True)
    for number in range(2):
        with pytest.raises(pylog.OutOfOrderSequenceError):
            send(log, 2 * number, 2)
    assert log.end_offset == 14


def test_a_batch_that_only_overlaps_one_in_the_log_is_no_duplicate(log: pylog.Log) -> None:
    send(log, 0, 3)
    for sequence, count in ((0, 2), (1, 2), (0, 4), (2, 1)):
        with pytest.raises(pylog.OutOfOrderSequenceError) as refused:
            send(log, sequence, count)
        assert refused.value.expected == 3
    assert log.end_offset == 3


def test_a_missing_batch_is_noticed_and_nothing_is_written(log: pylog.Log) -> None:
    send(log, 0, 3)
    with pytest.raises(pylog.OutOfOrderSequenceError) as refused:
        send(log, 4)
    assert (refused.value.producer_id, refused.value.sequence, refused.value.expected) == (7, 4, 3)
    assert send(log, 3).offsets == range(3, 4)


def test_producers_do_not_know_of_each_other(log: pylog.Log) -> None:
    for producer in range(4):
        assert not send(log, 0, 2, producer=producer).duplicate
    for producer in range(4):
        assert send(log, 0, 2, producer=producer).offsets == range(2 * producer, 2 * producer + 2)
        assert not send(log, 2, producer=producer).duplicate


def test_a_higher_epoch_fences_the_lower_ones_and_begins_at_0(log: pylog.Log) -> None:
    send(log, 0, 3)
    with pytest.raises(pylog.OutOfOrderSequenceError):
        send(log, 3, epoch=1)
    assert send(log, 0, epoch=1).offsets == range(3, 4)
    for sequence in (0, 3):
        with pytest.raises(pylog.ProducerFencedError) as refused:
            send(log, sequence, epoch=0)
        assert refused.value.expected == 1
    assert send(log, 0, epoch=1).duplicate


def test_sequence_numbers_go_on_at_0_after_the_last_number(log: pylog.Log) -> None:
    assert send(log, LAST - 1, 2).offsets == range(2)
    assert send(log, 0, 2).offsets == range(2, 4)
    assert send(log, LAST - 1, 2).duplicate
    across = ProducerBatch(8, 0, LAST)
    assert log.append_batch([b"a", b"b"], producer=across).offsets == range(4, 6)
    assert log.append_batch([b"a", b"b"], producer=across).duplicate
    assert log.append_batch([b"c"], producer=ProducerBatch(8, 0, 1)).offsets == range(6, 7)


def test_the_producers_numbers_are_in_the_batches_of_the_records(log: pylog.Log) -> None:
    log.append_batch([b"a"], producer=ProducerBatch(2**48, 3, 0))
    log.append_batch(pa.table({"value": [b"b", b"c"]}), producer=ProducerBatch(2**48, 3, 1), compression="zstd")
    (frame,) = log.scan(columns=("producer_id", "producer_epoch", "sequence", "value"))
    assert frame.to_pydict() == {
        "producer_id": [2**48] * 3,
        "producer_epoch": [3] * 3,
        "sequence": [0, 1, 2],
        "value": [b"a", b"b", b"c"],
    }


def test_a_duplicate_is_made_as_durable_as_its_sender_asks_for(log: pylog.Log) -> None:
    """The first acknowledgement may have been worth less, or never have come."""
    send(log, 0, level=Durability.OS)
    assert log.durable_offset == 0
    assert send(log, 0, level=Durability.OS).duplicate
    assert log.durable_offset == 0
    assert send(log, 0, level=Durability.SYNC) == acknowledged(range(1), Durability.SYNC, duplicate=True)
    assert log.durable_offset == 1


def test_a_large_call_is_one_batch_and_is_known_again(log: pylog.Log) -> None:
    """Larger than what is otherwise put into one batch, in several pieces of Arrow: the whole call has one sequence."""
    table = pa.concat_tables(
        pa.table({"value": [b"%d" % number * 40 for number in range(first, first + 900)]}) for first in (0, 900)
    )
    for duplicate in (False, True):
        done = log.append_batch(table, producer=ProducerBatch(7, 0, 0))
        assert (done.offsets, done.duplicate) == (range(1_800), duplicate)
    assert send(log, 1_800).offsets == range(1_800, 1_801)
    assert [record.value for record in log.records(0, 1_800)] == table.column("value").to_pylist()


def test_a_call_that_is_too_large_for_one_batch_is_refused(log: pylog.Log) -> None:
    values = [bytes(1_000)] * 2_000
    with pytest.raises(pylog.RecordTooLargeError, match="a producer's batch of up to"):
        log.append_batch(values, producer=ProducerBatch(7, 0, 0))
    assert log.append_batch(values).offsets == range(2_000)


def test_no_records_need_no_number(log: pylog.Log) -> None:
    send(log, 0)
    empty = log.append_batch([], producer=ProducerBatch(7, 0, 99))
    assert (empty.offsets, empty.duplicate) == (range(1, 1), False)
    assert send(log, 1).offsets == range(1, 2)


def test_threads_that_send_the_same_batches_write_each_once(log: pylog.Log) -> None:
    start = threading.Barrier(4)

    def run(_: int) -> list[BatchMetadata]:
        told = []
        for sequence in range(20):
            start.wait()
            told.append(send(log, sequence))
        return told

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(run, range(4)))
    for answers in zip(*told, strict=True):
        assert len({answer.offsets for answer in answers}) == 1
        assert [answer.duplicate for answer in answers].count(False) == 1
    assert values(log) == [b"%d" % number for number in range(20)]


# ---- failures ----------------------------------------------------------------------------------------------------------------


def test_a_batch_whose_write_failed_can_be_sent_again(log: pylog.Log, fs: HookedFileSystem) -> None:
    send(log, 0, 2)
    for _ in range(2):
        fs.before("write", ".log", fail)
        with pytest.raises(StorageFailedError):
            send(log, 2, 2)
    assert send(log, 2, 2) == acknowledged(range(2, 4), Durability.SYNC, duplicate=False)
    assert send(log, 4).offsets == range(4, 5)
    assert values(log) == [b"%d" % number for number in range(5)]


def test_a_producer_whose_first_batch_failed_may_begin_as_if_nothing_had_been(log: pylog.Log, fs: HookedFileSystem) -> None:
    log.append(b"x")
    fs.before("write", ".log", fail)
    with pytest.raises(StorageFailedError):
        send(log, 5)
    assert not send(log, 0).duplicate


def test_a_batch_whose_sync_failed_is_known_again_once_the_store_is_opened_again(
    path: Path, store: Store, fs: HookedFileSystem
) -> None:
    send(store.log("t"), 0)
    fs.before("sync", ".log", fail_sync)
    with pytest.raises(SyncFailedError):
        send(store.log("t"), 1, 2)
    store.close()
    with pylog.open(path) as again:
        log = again.log("t")
        assert send(log, 1, 2).offsets == range(1, 3)
        assert send(log, 1, 2).duplicate
        assert values(log) == [b"0", b"1", b"2"]


# ---- opened again --------------------------------------------------------------------------------------------------------------


def test_the_last_batch_is_known_after_the_store_was_closed_and_opened(path: Path) -> None:
    """A snapshot keeps the last batch of each producer, as a broker's does."""
    with pylog.open(path) as store:
        for sequence in range(3):
            send(store.log("t"), sequence)
    with pylog.open(path) as store:
        log = store.log("t")
        assert send(log, 2) == acknowledged(range(2, 3), Durability.SYNC, duplicate=True)
        with pytest.raises(pylog.OutOfOrderSequenceError):
            send(log, 4)
        assert send(log, 3).offsets == range(3, 4)


@pytest.mark.slow
def test_the_last_five_batches_are_known_after_a_kill(path: Path) -> None:
    with Neighbour() as other:
        other.run(
            "store = pylog.open(path); log = store.log('t')\n"
            "for number in range(7): log.append_batch([b'%d' % number], producer=pylog.ProducerBatch(7, 0, number))",
            path=str(path),
        )
        other.kill()
    with pylog.open(path) as store:
        log = store.log("t")
        for sequence in range(2, 7):
            assert send(log, sequence).offsets == range(sequence, sequence + 1)
            assert send(log, sequence).duplicate
        assert not send(log, 7).duplicate


@pytest.mark.slow
@pytest.mark.parametrize("call", ["sync", "write"])
def test_a_batch_whose_sender_never_heard_of_it_because_the_process_was_killed_is_sent_again(path: Path, call: str) -> None:
    name = {"sync": ".log", "write": "durable-point"}[call]
    with Neighbour() as other:
        other.run(
            "fs = HookedFileSystem(); store = pylog.open(path, fs=fs); log = store.log('t')\n"
            "log.append_batch([b'0'], producer=pylog.ProducerBatch(7, 0, 0))\n"
            "fs.before(call, name, send_self(signal.SIGKILL))",
            path=str(path),
            call=call,
            name=name,
        )
        other.begin("log.append_batch([b'1', b'2'], producer=pylog.ProducerBatch(7, 0, 1))")
        assert other.wait() == -signal.SIGKILL
    with pylog.open(path) as store:
        log = store.log("t")
        assert send(log, 1, 2).offsets == range(1, 3)
        assert values(log) == [b"0", b"1", b"2"]


def test_the_state_of_producers_is_known_without_any_snapshot(path: Path) -> None:
    with pylog.open(path) as store:
        for sequence in range(20):
            send(store.log("small"), sequence)
    for snapshot in (path / "small-0").glob("*.snapshot"):
        snapshot.unlink()
    with pylog.open(path) as store:
        log = store.log("small")
        for sequence in range(15, 20):
            assert send(log, sequence).duplicate
        assert not send(log, 20).duplicate


# ---- processes -----------------------------------------------------------------------------------------------------------------


def test_a_retry_through_another_store_is_recognised(path: Path) -> None:
    with pylog.open(path) as one, pylog.open(path) as two:
        logs = [one.log("t"), two.log("t")]
        for sequence in range(10):
            writer, other = logs[sequence % 2], logs[1 - sequence % 2]
            told = send(writer, sequence)
            assert send(other, sequence) == told._replace(duplicate=True)
            with pytest.raises(pylog.OutOfOrderSequenceError):
                send(other, sequence + 2)
        assert values(logs[0]) == [b"%d" % number for number in range(10)]


def test_an_epoch_that_another_store_has_seen_fences_here_too(path: Path) -> None:
    with pylog.open(path) as one, pylog.open(path) as two:
        send(one.log("t"), 0)
        send(two.log("t"), 0, epoch=1)
        with pytest.raises(pylog.ProducerFencedError):
            send(one.log("t"), 1)


def test_a_retry_is_recognised_across_a_roll_by_another_store(path: Path) -> None:
    with pylog.open(path) as one, pylog.open(path) as two:
        told = send(one.log("small"), 0, 2)
        for _ in range(20):
            two.log("small").append(bytes(50))
        assert len(two.log("small").segments) > 2
        assert send(one.log("small"), 0, 2) == told._replace(duplicate=True)
        assert send(two.log("small"), 0, 2) == told._replace(duplicate=True)


def send_sixty(log: pylog.Log) -> list[tuple[int, bool]]:
    """Sends the same batches as everybody who runs this: where each is, and whether somebody else was first."""
    told = []
    for number in range(60):
        batch = pylog.ProducerBatch(7, 0, number)
        try:
            done = log.append_batch([b"%d" % number], producer=batch, durability=pylog.Durability.OS)
            told.append((done.offsets.start, done.duplicate))
        except pylog.OutOfOrderSequenceError:  # the other one is more than five batches ahead
            told.append((number, True))
    return told


@pytest.mark.slow
def test_two_processes_that_send_the_same_batches_write_each_once(path: Path) -> None:
    with Neighbour() as other, pylog.open(path) as store:
        other.run(inspect.getsource(send_sixty))
        other.run("store = pylog.open(path); log = store.log('t')", path=str(path))
        other.begin("send_sixty(log)")
        ours, theirs = send_sixty(store.log("t")), other.answer()
        assert [offset for offset, _ in theirs] == [offset for offset, _ in ours] == list(range(60))
        assert [mine + other_one for (_, mine), (_, other_one) in zip(ours, theirs, strict=True)] == [1] * 60
        assert values(store.log("t")) == [b"%d" % number for number in range(60)]
        other.run("store.close()")


# ---- snapshots -----------------------------------------------------------------------------------------------------------------


def snapshots(directory: Path) -> dict[int, ProducerStateManager]:
    return {int(file.stem): parse_snapshot(file.read_bytes(), int(file.stem), str(file)) for file in directory.glob("*.snapshot")}


def test_a_snapshot_made_when_a_segment_is_full_holds_what_lies_below_its_name(path: Path, store: Store) -> None:
    log = store.log("small")
    told: dict[int, int] = {}  # offset behind a batch: its last sequence
    for sequence in range(30):
        told[send(log, sequence, producer=7).offsets.stop] = sequence
        log.append(b"between")
    found = snapshots(path / "small-0")
    assert len(found) == len(log.segments) - 1 > 3
    for name, state in found.items():
        (producer,) = state.producers
        before = max(offset for offset in told if offset <= name)
        assert (producer.last_sequence, producer.last_offset) == (told[before], before - 1)
    assert sorted(found) == [segment.base_offset for segment in log.segments[1:]]


def test_a_snapshot_made_at_closing_holds_everything(path: Path) -> None:
    with pylog.open(path) as store:
        send(store.log("t"), 0, 4)
        send(store.log("t"), 9, producer=8, epoch=2)
    (name,) = found = snapshots(path / "t-0")
    assert name == 5
    entries = [entry._replace(timestamp=-1) for entry in found[5].producers]
    assert entries == [Producer(7, 0, 3, 3, 3), Producer(8, 2, 9, 4, 0)]


@pytest.mark.damaged("it was damaged on purpose")
def test_a_snapshot_that_is_damaged_costs_a_replay_and_is_reported(path: Path) -> None:
    with pylog.open(path) as store:
        for sequence in range(3):
            send(store.log("t"), sequence)
    (snapshot,) = (path / "t-0").glob("*.snapshot")
    snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"\0")
    with pylog.open(path) as store:
        assert send(store.log("t"), 1).duplicate
        assert [finding.kind for finding in store.recovery_report] == ["rebuilt"]


def test_a_snapshot_beyond_the_end_is_deleted_before_the_log_gets_there(path: Path) -> None:
    """It tells of records that are not there, and would be taken for the state of those that get their offsets."""
    with pylog.open(path) as store:
        send(store.log("t"), 0, 2)
        send(store.log("small"), 0, 4)
    (stale,) = (path / "small-0").glob("*.snapshot")
    shutil.copy(stale, path / "t-0" / stale.name)
    store = pylog.open(path)
    log = store.log("t")
    assert [finding.kind for finding in log.recovery_report] == ["missing"]
    for _ in range(4):
        log.append(b"x")
    assert stale.name not in {file.name for file in (path / "t-0").iterdir()}
    assert send(log, 2).offsets == range(6, 7)
    store.close()


def test_truncated_batches_can_be_sent_again(log: pylog.Log) -> None:
    for sequence in range(5):
        send(log, sequence)
    log.truncate(2)
    assert send(log, 1).duplicate
    with pytest.raises(pylog.OutOfOrderSequenceError):
        send(log, 4)
    for sequence in range(2, 5):
        assert not send(log, sequence).duplicate
    assert values(log) == [b"%d" % number for number in range(5)]


def test_producers_are_forgotten_when_they_have_been_idle_for_so_long(path: Path, store: Store) -> None:
    store.create_topic("forgetful", producer_id_expiration_ms=1000, retention_ms=-1)
    log = store.log("forgetful")
    log.append_batch([(None, b"x", (), 5000)], producer=ProducerBatch(7, 0, 0))
    log.append_batch([(None, b"x", (), 5500)], producer=ProducerBatch(8, 0, 0))
    store.tick(now_ms=6200)
    with pytest.raises(pylog.OutOfOrderSequenceError):
        log.append_batch([b"y"], producer=ProducerBatch(8, 0, 9))
    assert log.append_batch([b"y"], producer=ProducerBatch(7, 0, 9)).offsets == range(2, 3)


def test_a_slice_of_a_large_table_counts_its_own_headers_only(log: pylog.Log) -> None:
    """All headers of the table were counted, so that a few of its rows passed for too large."""
    pairs = [[{"key": "trace", "value": bytes(1000)}] for _ in range(2000)]
    table = pa.table({"value": [b"%d" % number for number in range(2000)], "headers": pairs})
    done = log.append_batch(table.slice(1500, 10), producer=ProducerBatch(7, 0, 0))
    assert [(record.value, len(record.headers[0][1] or b"")) for record in log.records(done.offsets.start)] == [
        (b"%d" % number, 1000) for number in range(1500, 1510)
    ]
