"""A store that stays open: memory, files and locks of a deleted topic go with it, and reports hold each finding once."""

from __future__ import annotations

import gc
import logging
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import pylog
from pylog import limits
from pylog.background import Failures
from pylog.record.buffers import AppendBuffer, Buffers
from pylog.record.builder import BatchEncoder, rows_from_records
from pylog.transactions.incarnation import Incarnation
from support import warm

_DELETE = "import sys, pylog\nwith pylog.open(sys.argv[1]) as store: [store.delete_topic(name) for name in sys.argv[2:]]"


def _delete_elsewhere(root: Path, *names: str) -> None:
    warm.run(["-c", _DELETE, root, *names], check=True)


def _deleted_files_that_are_open() -> int:
    gc.collect()
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{number}").endswith(" (deleted)")
        except OSError:
            continue
    return count


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
@pytest.mark.pair("close", "second process")
def test_a_tick_closes_the_files_of_topics_that_another_process_deleted(tmp_path: Path) -> None:
    before = _deleted_files_that_are_open()
    with pylog.open(str(tmp_path), durability=pylog.Durability.OS) as store:
        for name in ("kept", "read", "written"):
            store.create_topic(name)
            store.log(name).append(b"x")
        store.tick()
        held = store.log("read")
        assert [record.value for record in held.records()] == [b"x"]
        _delete_elsewhere(tmp_path, "read", "written")
        store.tick()
        assert _deleted_files_that_are_open() == before
        store.log("kept").append(b"y")
        with pytest.raises(pylog.UnknownTopicOrPartitionError, match="deleted"):  # as before the tick: the store is open
            held.append(b"late")
        with pytest.raises(pylog.UnknownTopicOrPartitionError, match="deleted"):
            held.end_offset  # noqa: B018 - the property is the call
        assert [record.value for record in store.log("kept").records()] == [b"x", b"y"]
        assert store.log("kept") is store.log("kept")


def test_each_finding_is_reported_once_however_often_a_log_is_opened(tmp_path: Path) -> None:
    with pylog.open(str(tmp_path), durability=pylog.Durability.OS) as store:
        store.create_topic("t")
        store.log("t").append_many([b"x"] * 10)
    (tmp_path / "t-0" / "durable-point").unlink()  # as a broker leaves it
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with (tmp_path / "t-0" / f"{0:020d}.log").open("ab") as file:
        file.write(b"\1" * 40)
    with pylog.open(str(tmp_path), mode="r") as store:
        for _ in range(5):
            assert store.log("t").end_offset == 10
            store.metrics()
        assert [finding.kind for finding in store.recovery_report] == ["torn"]


def _kept_bytes(come_and_go: Callable[[int], None], topics: int = 50) -> int:
    """The traced memory that each of some topics leaves, after as many that warm everything up."""
    tracemalloc.start()
    try:
        for number in range(topics):
            come_and_go(number)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(topics, 2 * topics):
            come_and_go(number)
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) // topics
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("client", ["store", "producer", "consumer"])
def test_a_deleted_topic_leaves_no_locks_routes_and_logs(tmp_path: Path, client: str) -> None:
    with (
        pylog.open(str(tmp_path), durability=pylog.Durability.OS) as store,
        store.producer() as producer,
        store.consumer() as consumer,
    ):

        def come_and_go(number: int) -> None:
            name = f"day{number}"
            store.create_topic(name)
            if client == "store":
                store.log(name).append(b"x")
            elif client == "producer":
                producer.send(name, b"x", partition=0).result()
            else:
                consumer.end_offsets([pylog.TopicPartition(name, 0)])
            store.delete_topic(name)

        assert _kept_bytes(come_and_go) < 600  # each lock, route or log takes more


def test_a_producer_sends_to_a_topic_that_was_deleted_and_made_again_however_long_ago(tmp_path: Path) -> None:
    with pylog.open(str(tmp_path), durability=pylog.Durability.OS) as store, store.producer() as producer:
        for others in (0, 40):
            for number in range(others):  # more than a producer remembers
                store.create_topic(f"other{number}")
                producer.send(f"other{number}", b"x").result()
                store.delete_topic(f"other{number}")
            store.create_topic("t")
            assert [producer.send("t", b"%d" % number).result().offset for number in range(5)] == [0, 1, 2, 3, 4]
            assert [record.value for record in store.log("t").records()] == [b"0", b"1", b"2", b"3", b"4"]
            store.delete_topic("t")
            with pytest.raises(pylog.UnknownTopicOrPartitionError):
                producer.send("t", b"late").result()


@pytest.mark.sampled(2)
@pytest.mark.pair("second process", "close")
@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_look_at_the_topics_lets_go_of_what_another_process_deleted(tmp_path: Path, mode: str) -> None:
    before = _deleted_files_that_are_open()
    with pylog.open(str(tmp_path), durability=pylog.Durability.OS) as store:
        for name in ("kept", "gone"):
            store.create_topic(name)
            store.log(name).append(b"x")
    with pylog.open(str(tmp_path), mode=mode) as store, store.consumer() as consumer:
        for name in ("kept", "gone"):
            assert consumer.end_offsets([pylog.TopicPartition(name, 0)]) == {(name, 0): 1}
            assert mode == "r" or store.log(name).append(b"y") == 1
        _delete_elsewhere(tmp_path, "gone")
        assert list(store.topics()) == ["kept"]
        assert _deleted_files_that_are_open() == before
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            consumer.end_offsets([pylog.TopicPartition("gone", 0)])


def test_findings_of_a_deleted_topic_leave_the_report(tmp_path: Path) -> None:
    with pylog.open(str(tmp_path), durability=pylog.Durability.OS) as store:
        for name in ("kept", "gone"):
            store.create_topic(name)
            store.log(name).append_many([b"x"] * 10)
    for name in ("kept", "gone"):
        (tmp_path / f"{name}-0" / "durable-point").unlink()
        with (tmp_path / f"{name}-0" / f"{0:020d}.log").open("ab") as file:
            file.write(b"\1" * 40)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with pylog.open(str(tmp_path)) as store:
        assert store.log("kept").end_offset == store.log("gone").end_offset == 10
        assert len(store.recovery_report) == 2
        store.delete_topic("gone")
        assert [Path(finding.path).parent.name for finding in store.recovery_report] == ["kept-0"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_append_buffers_of_all_logs_share_one_bound(tmp_path: Path) -> None:
    table = pa.table({"value": [b"x" * 1000] * 5000})
    with pylog.open(str(tmp_path), durability=pylog.Durability.OS) as store:
        store.create_topic("t", partition_count=40)
        for number in range(10):
            store.log("t", number).append_arrow(table)
        before = _resident()
        for number in range(10, 40):
            store.log("t", number).append_arrow(table)
        assert _resident() - before < 40 << 20  # 30 logs, of 5 MB each


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_buffer_of_an_append_is_not_used_again_while_its_batches_are(tmp_path: Path) -> None:
    rows = rows_from_records([None] * 3, [b"a" * 30_000] * 3, [1] * 3, None, 1)
    kept = list(BatchEncoder(batch_bytes=1).encode(rows, 0, 0))
    before = [bytes(piece.data) for piece in kept]
    list(BatchEncoder(batch_bytes=1).encode(rows_from_records([None] * 3, [b"b" * 30_000] * 3, [1] * 3, None, 1), 0, 0))
    assert [bytes(piece.data) for piece in kept] == before


def test_errors_in_the_background_are_counted_and_not_kept() -> None:
    failures = Failures()
    tracemalloc.start()
    try:
        logging.disable(logging.CRITICAL)
        for _ in range(100):
            failures.note(ValueError("no"))
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(2000):
            failures.note(ValueError("no"))
        assert tracemalloc.get_traced_memory()[0] - before < 2000
    finally:
        logging.disable(logging.NOTSET)
        tracemalloc.stop()
    assert failures.count == 2100


def test_buffers_of_appends_have_one_bound() -> None:
    table = AppendBuffer(0).size
    buffers = Buffers(2 * table + 1000)
    for size in (400, 500, 300, table + 1001):
        buffers.put_back(AppendBuffer(size))
    kept = [buffers.take(size).data.size for size in (301, 300, 1)]
    assert kept == [500, 300, 1]  # the oldest was dropped, and the last is larger than all may be together


def test_records_of_a_forgotten_route_and_of_the_next_one_go_to_their_own_topics(tmp_path: Path) -> None:
    with pylog.open(str(tmp_path), durability=pylog.Durability.OS) as store, store.producer(linger_ms=200) as producer:
        store.create_topic("a")
        store.create_topic("b")
        sent = [producer.send(name, name.encode()) for name in "aab"]
        assert [future.result().topic for future in sent] == ["a", "a", "b"]
        assert [[record.value for record in store.log(name).records()] for name in "ab"] == [[b"a", b"a"], [b"b"]]


@pytest.mark.pair("close", "roll")
def test_a_log_that_is_opened_and_closed_each_day_keeps_few_producer_snapshots(tmp_path: Path) -> None:
    for _ in range(12):
        with pylog.open(str(tmp_path), durability=pylog.Durability.OS) as store:
            if not store.topics():
                store.create_topic("t", segment_bytes=400)
            store.log("t").append_batch([b"x" * 100], producer=pylog.ProducerBatch(1 << 48, 0, store.log("t").end_offset))
    with pylog.open(str(tmp_path)) as store:
        bases = {segment.base_offset for segment in store.log("t").segments}
        assert store.check().ok
    kept = {int(path.stem) for path in (tmp_path / "t-0").glob("*.snapshot")}
    assert kept - bases <= {11, 12}, "the last shutdown's, and the one before"
    assert bases - kept <= {0}, "those of segments stay"


def test_a_batch_with_too_many_headers_is_refused_after_the_records_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pylog.open(str(tmp_path), durability=pylog.Durability.OS) as store:
        store.create_topic("t")
        log = store.log("t")
        log.append(b"first")
        for compression in ("none", "zstd"):
            log.append_many([(None, b"before", [("a", b"")] * 5)] * 3, compression=compression)
            log.append_many([(None, b"many", [("a", b"")] * 60)] * 3, compression=compression)
        assert len(list(log.records())) == 13
        monkeypatch.setattr(limits, "MAX_BATCH_HEADERS", 100)
        for first, end in ((0, 4), (7, 10)):
            found = []
            with pytest.raises(
                pylog.DecompressionLimitError, match=f"offsets {end} to {end + 2}: it has more than 100 headers"
            ) as error:
                found.extend(record.offset for record in log.records(first))
            assert error.value.offset == end
            assert [offset for batch in log.scan(first, columns=("offset",)) for offset in batch.column(0).to_pylist()][-1] == 12
            assert found in ([], list(range(first, end)))
        with pytest.raises(pylog.DecompressionLimitError):
            log.read(5)
        assert log.read(1).value == b"before"


def test_a_tick_drops_the_buffers_that_no_append_uses(tmp_path: Path) -> None:
    with pylog.open(tmp_path, durability=pylog.Durability.OS) as store:
        store.create_topic("t")
        values = [b"x" * 100_000] * 10
        store.log("t").append_many(values)
        store.tick()
        tracemalloc.start()
        try:
            store.log("t").append_many(values)
            with_buffers, _ = tracemalloc.get_traced_memory()
            store.tick()
            without, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert with_buffers - without > 900_000


def test_a_producer_lets_go_of_its_transactional_id_when_it_is_closed_or_dropped(tmp_path: Path) -> None:
    """Each use of an id holds a lock. A transaction that the store has begun with the id keeps it."""
    few = pylog.TransactionsConfig(topic_num_partitions=1)
    with pylog.open(tmp_path, durability=pylog.Durability.OS, transactions=few) as store:
        store.create_topic("t")
        for number in range(20):
            producer = store.producer(transactional_id=f"id{number}")
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"%d" % number)
            producer.flush()
            if number % 2:
                producer.commit_transaction()  # else the close aborts
            shared = store.transaction("id19") if number == 19 else None
            producer.close()
        gc.collect()
        assert sum(type(each) is Incarnation for each in gc.get_objects()) == 1
        assert shared is not None
        shared.append("t", b"shared")
        shared.commit()
        with store.transaction("id0") as again:
            again.append("t", b"again")
        found = [record.value for record in store.log("t").records(isolation_level="read_committed")]
        assert found == [*(b"%d" % number for number in range(1, 20, 2)), b"shared", b"again"]
        assert {each.state for each in store.transactions.list()} == {"CompleteCommit", "CompleteAbort"}


def test_a_store_keeps_a_bounded_number_of_uses_of_transactional_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds a lock. An open transaction stays, and an id that was let go can be used again."""
    monkeypatch.setattr(limits, "TRANSACTIONAL_IDS_IN_USE", 5)
    few = pylog.TransactionsConfig(topic_num_partitions=1)
    with pylog.open(tmp_path, durability=pylog.Durability.OS, transactions=few) as store:
        store.create_topic("t")
        with store.transaction("open") as opened:
            opened.append("t", b"first")
            for number in (*range(20), 0):
                with store.transaction(f"id{number}") as transaction:
                    transaction.append("t", b"%d" % number)
            gc.collect()
            assert sum(type(each) is Incarnation for each in gc.get_objects()) <= 6
            opened.append("t", b"last")
        found = [record.value for record in store.log("t").records(isolation_level="read_committed")]
    assert len(found) == 23
    assert {b"first", b"last"} <= set(found)
