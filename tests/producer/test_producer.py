"""What a producer is given is in the log, once, in order, where its future says."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import pylog
from pylog import Durability, RecordMetadata, limits
from pylog.errors import (
    ClosedError,
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTopicError,
    PylogTimeoutError,
    ReadOnlyError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from pylog.producer.numbering import Numbering
from pylog.record.batch import scan_batches
from pylog.record.format import COUNT, HEADER_SIZE, SIZE
from pylog.store import Store
from support import sending
from support.sending import PATIENCE, values

store = pytest.fixture(sending.store)


NOW = 1_700_000_000_000


# ---- sending ---------------------------------------------------------------------------------------------------------------


def test_a_record_is_where_its_future_says_as_it_was_sent(store: Store) -> None:
    with store.producer() as producer:
        future = producer.send("four", b"paid", b"42", [("source", b"web"), ("trace", None)], 3, NOW)
        metadata = future.result(PATIENCE)
    assert metadata == RecordMetadata("four", 3, 0, NOW, Durability.OS)
    record = store.log("four", 3).read(0)
    assert (record.key, record.value, record.timestamp) == (b"42", b"paid", NOW)
    assert record.headers == (("source", b"web"), ("trace", None))


def test_thousands_of_records_keep_their_order_and_their_futures_know_their_offsets(store: Store) -> None:
    with store.producer() as producer:
        futures = [producer.send("four", b"%d" % number, key=b"%d" % (number % 50)) for number in range(20_000)]
        producer.flush(PATIENCE)
        assert all(future.done() for future in futures)
    found: dict[tuple[int, int], bytes] = {}
    for partition in range(4):
        for record in store.log("four", partition).records():
            found[partition, record.offset] = record.value or b""
    places = [future.result()[1:3] for future in futures]
    assert [found[place] for place in places] == [b"%d" % number for number in range(20_000)]
    assert len(found) == 20_000
    for partition in range(4):
        offsets = [offset for number, offset in places if number == partition]
        assert offsets == sorted(offsets)


def test_equal_keys_go_to_one_partition_and_it_is_kafkas(store: Store) -> None:
    with store.producer() as producer:
        places = {producer.send("four", b"v", key=b"foobar").result(PATIENCE).partition for _ in range(3)}
    assert places == {1357151166 % 4}


def test_records_of_several_topics_are_kept_apart(store: Store) -> None:
    with store.producer(linger_ms=60_000) as producer:
        for number in range(100):
            producer.send(("one", "four")[number % 2], b"%d" % number, partition=0)
    assert values(store, "one") == [b"%d" % number for number in range(0, 100, 2)]
    assert values(store, "four") == [b"%d" % number for number in range(1, 100, 2)]


def test_nulls_empty_and_large_records_are_sent_as_they_are(store: Store) -> None:
    records = [(None, b"k"), (b"", b""), (b"x" * 900_000, None), (None, None), (b"y" * 100_000, b"z" * 2000), (b"", None)]
    with store.producer(batch_size=1000) as producer:
        futures = [producer.send("one", value, key) for value, key in records]
    assert [(record.value, record.key) for record in store.log("one").records()] == records
    assert [future.result().offset for future in futures] == list(range(6))


def test_a_future_that_is_settled_does_not_hold_its_record(store: Store) -> None:
    value, key = b"v" * 1000, b"k" * 1000
    held = sys.getrefcount(value), sys.getrefcount(key)
    with store.producer() as producer:
        future = producer.send("one", value, key, headers=[("h", value)])
        producer.flush(PATIENCE)
    assert (sys.getrefcount(value), sys.getrefcount(key)) == held
    assert future.result().offset == 0


def test_memory_that_is_written_again_after_send_changes_nothing(store: Store) -> None:
    value = bytearray(b"before")
    with store.producer(linger_ms=60_000) as producer:
        producer.send("one", value, memoryview(b"key"))
        value[:] = b"behind"
    assert [(record.key, record.value) for record in store.log("one").records()] == [(b"key", b"before")]


def test_serializers_make_the_bytes(store: Store) -> None:
    with store.producer(key_serializer=str.encode, value_serializer=lambda value: json.dumps(value).encode()) as producer:
        producer.send("one", {"paid": 1}, key="ключ").result(PATIENCE)
    record = store.log("one").read(0)
    assert (record.key, record.value) == ("ключ".encode(), b'{"paid": 1}')


def test_a_callable_partitioner_is_asked_as_kafka_pythons_is(store: Store) -> None:
    asked: list[Any] = []

    def last(key: bytes | None, partitions: list[int], available: list[int]) -> int:
        asked.append((key, partitions, available))
        return available[-1]

    with store.producer(partitioner=last) as producer:
        assert producer.send("four", b"v", key=b"k").result(PATIENCE).partition == 3
        assert producer.send("four", b"v", key=b"k", partition=1).result(PATIENCE).partition == 1
    assert asked == [(b"k", [0, 1, 2, 3], [0, 1, 2, 3])]


def test_round_robin_spreads_records_evenly(store: Store) -> None:
    with store.producer(partitioner="round_robin") as producer:
        for number in range(40):
            producer.send("four", b"%d" % number)
    assert [store.log("four", number).end_offset for number in range(4)] == [10, 10, 10, 10]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_as_asked(store: Store, codec: str) -> None:
    with store.producer(compression=codec, linger_ms=60_000) as producer:
        for _ in range(100):
            producer.send("one", b"again and " * 10)
    assert values(store, "one") == [b"again and " * 10] * 100
    assert store.log("one").size_between(0, 100) < 2000


def test_a_topic_that_stamps_its_records_tells_the_time_that_it_gave(store: Store) -> None:
    store.create_topic("stamped", message_timestamp_type="LogAppendTime")
    with store.producer() as producer:
        told = producer.send("stamped", b"v", timestamp=5).result(PATIENCE).timestamp
    assert told == store.log("stamped").read(0).timestamp > NOW


def test_partitions_that_a_topic_gets_meanwhile_are_used(store: Store) -> None:
    with store.producer(metadata_max_age_ms=0, partitioner="round_robin") as producer:
        producer.send("one", b"0").result(PATIENCE)
        store.add_partitions("one", 3)
        assert producer.send("one", b"1", partition=2).result(PATIENCE).partition == 2
        assert {producer.send("one", b"2").result(PATIENCE).partition for _ in range(3)} == {0, 1, 2}
    assert producer.partitions_for_topic("one") == {0, 1, 2}


def test_code_written_for_kafka_python_gets_its_answers(store: Store) -> None:
    store.create_topic("narrow", max_message_bytes=5000)
    with store.producer(compression_type="gzip", acks="all", linger_ms=10**9) as producer:
        good, bad = producer.send("one", b"again and " * 100), producer.send("narrow", b"x" * 1000)
        store.alter_topic("narrow", max_message_bytes=500)
        assert [future.succeeded() or future.failed() for future in (good, bad)] == [False, False]
        producer.flush(PATIENCE)
        assert good.get(timeout=PATIENCE) == good.result()
        with pytest.raises(RecordTooLargeError):
            bad.get()
        assert (good.succeeded(), good.failed(), bad.succeeded(), bad.failed()) == (True, False, False, True)
    assert producer.config.compression == "gzip"
    assert store.log("one").size_between(0, 1) < 500


@pytest.mark.parametrize("acks", ["all", -1, 1])
def test_one_copy_is_all_copies(store: Store, acks: Any) -> None:
    with store.producer(acks=acks) as producer:
        assert producer.send("one", b"v").get(PATIENCE).durability == Durability.OS


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, threading.TIMEOUT_MAX, 10**30, 60, np.float32(60), np.int64(60)])
def test_a_timeout_longer_than_the_system_allows_waits_indefinitely(store: Store, timeout: float) -> None:
    with store.producer(linger_ms=1) as producer:
        assert producer.send("one", b"v").result(timeout).offset == 0
        assert producer.send("one", b"v").exception(timeout) is None
        producer.send("one", b"v")
        producer.flush(timeout)
        future = producer.send("one", b"v")
        producer.close(timeout)
    assert future.result().offset == 3


@pytest.mark.parametrize("timeout", ["1", float("nan"), b"", [1]])
def test_a_timeout_that_is_no_number_is_refused(store: Store, timeout: Any) -> None:
    with store.producer(linger_ms=10**9) as producer:
        future = producer.send("one", b"v")
        for wait in (future.result, future.exception, future.get, producer.flush, producer.close):
            with pytest.raises(InvalidArgumentError, match="is not a number of seconds"):
                wait(timeout)
        assert not future.done()


# ---- batches ---------------------------------------------------------------------------------------------------------------


def test_records_sent_together_are_one_numbered_batch(store: Store) -> None:
    with store.producer(linger_ms=60_000) as producer:
        for _ in range(100):
            producer.send("one", b"v")
        producer.flush(PATIENCE)
        for _ in range(50):
            producer.send("one", b"v")
    frames = list(store.log("one").scan(columns=("producer_id", "producer_epoch", "sequence")))
    rows = [tuple(row.values()) for frame in frames for row in frame.to_pylist()]
    (producer_id,) = {row[0] for row in rows}
    assert 1 << 48 <= producer_id < 1 << 62
    assert [row[1:] for row in rows] == [(0, number) for number in range(150)]


def test_batch_size_bounds_batches_and_ends_lingering(store: Store) -> None:
    with store.producer(linger_ms=10**9, batch_size=1000) as producer:
        futures = [producer.send("one", b"v" * 79) for _ in range(40)]
        assert futures[0].result(PATIENCE).offset == 0
    data = (Path(store.path) / "one-0" / "00000000000000000000.log").read_bytes()
    table = scan_batches(np.frombuffer(data, np.uint8)).table
    assert table[COUNT].sum() == 40
    assert table[SIZE].max() <= 1000 + HEADER_SIZE
    assert table.shape[1] >= 4


def test_lingering_ends_with_a_batch_of_records_of_any_sizes(store: Store) -> None:
    with store.producer(linger_ms=10**9, batch_size=1000) as producer:
        for size in (1, 1, 500, 2, 3, 400):
            future = producer.send("one", b"v" * size)
        with pytest.raises(PylogTimeoutError):
            future.result(0.01)
        producer.send("one", b"v" * 93)
        assert future.result(PATIENCE).offset == 5


def test_as_many_records_as_are_taken_at_a_time_do_not_linger(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRODUCER_TAKE_RECORDS", 10)
    with store.producer(linger_ms=10**9) as producer:
        futures = [producer.send("one", b"%d" % number) for number in range(10)]
        assert futures[-1].result(PATIENCE).offset == 9


def test_a_record_lingers_alone_until_it_is_flushed(store: Store) -> None:
    with store.producer(linger_ms=10**9) as producer:
        future = producer.send("one", b"v")
        with pytest.raises(PylogTimeoutError):
            future.result(0.01)
        assert store.log("one").end_offset == 0
        producer.flush(PATIENCE)
        assert future.done()


def test_lingering_ends_by_itself(store: Store) -> None:
    with store.producer(linger_ms=1) as producer:
        assert producer.send("one", b"v").result(PATIENCE).offset == 0


def test_without_idempotence_batches_have_no_numbers(store: Store) -> None:
    with store.producer(enable_idempotence=False) as producer:
        producer.send("one", b"v")
    (frame,) = store.log("one").scan(columns=("producer_id", "sequence"))
    assert frame.to_pylist() == [{"producer_id": -1, "sequence": -1}]


def test_sequences_begin_again_in_a_new_epoch_and_with_a_new_id_after_the_last_epoch() -> None:
    numbering = Numbering(1 << 48)
    numbering.advance(2**31 - 1)
    numbering.advance(3)
    assert numbering.next_batch() == (1 << 48, 0, 2)
    for _ in range(2**15 - 1):
        numbering.restart()
    assert numbering.next_batch() == (1 << 48, 2**15 - 1, 0)
    numbering.restart()
    assert numbering.next_batch()[1:] == (0, 0)
    assert numbering.next_batch().producer_id != 1 << 48


def test_a_log_that_was_cut_takes_what_comes_next(store: Store) -> None:
    with store.producer() as producer:
        for number in range(3):
            producer.send("one", b"%d" % number).result(PATIENCE)
        store.log("one").truncate(1)
        assert producer.send("one", b"next").result(PATIENCE).offset == 1
        assert producer.send("one", b"more").result(PATIENCE).offset == 2
    assert values(store, "one") == [b"0", b"next", b"more"]


# ---- callbacks -------------------------------------------------------------------------------------------------------------


def test_callbacks_are_made_once_whether_they_come_before_or_after(store: Store) -> None:
    made: list[Any] = []
    with store.producer(linger_ms=10**9) as producer:
        future = producer.send("one", b"v", on_delivery=lambda error, metadata: made.append((error, metadata.offset)))
        future.add_callback(made.append).add_callback(lambda *given, **named: made.append((given[0], named)), "first", k=1)
        future.add_errback(made.append)
        assert made == []
        producer.flush(PATIENCE)
        metadata = future.result()
        future.add_callback(made.append)
    assert made == [(None, 0), metadata, ("first", {"k": 1}), metadata]


def test_an_exception_of_a_callback_is_logged_and_does_no_harm(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise SystemExit("of a user")

    made: list[Any] = []
    with store.producer() as producer:
        producer.send("one", b"0", on_delivery=fail)
        producer.send("one", b"1", on_delivery=lambda _, metadata: made.append(metadata.offset))
        assert producer.send("one", b"2").result(PATIENCE).offset == 2
    assert made == [1]
    assert "a callback of FutureRecordMetadata('one', in the log) failed" in caplog.text


def test_a_callback_may_send_but_not_wait(store: Store) -> None:
    seen: list[Any] = []
    done = threading.Event()
    with store.producer() as producer:

        def again(_: RecordMetadata) -> None:
            future = producer.send("one", b"again")
            for wait in (future.result, producer.flush):
                try:
                    wait()
                except InvalidArgumentError as error:
                    seen.append(str(error))
            done.set()

        producer.send("one", b"first").add_callback(again)
        assert done.wait(PATIENCE)
    assert values(store, "one") == [b"first", b"again"]
    assert len(seen) == 2
    assert "would wait for itself" in seen[0]


# ---- bad input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"topic": "none"}, UnknownTopicOrPartitionError),
        ({"topic": "../up"}, InvalidTopicError),
        ({"topic": None}, InvalidTopicError),
        ({"topic": ["one"]}, InvalidTopicError),
        ({"value": "text"}, InvalidRecordError),
        ({"value": 5}, InvalidRecordError),
        ({"key": "text"}, InvalidRecordError),
        ({"headers": [("a",)]}, InvalidRecordError),
        ({"headers": [(b"a", b"b")]}, InvalidRecordError),
        ({"headers": [("a", "b")]}, InvalidRecordError),
        ({"headers": [("\ud800", b"b")]}, InvalidRecordError),
        ({"headers": 5}, InvalidRecordError),
        ({"partition": 1}, UnknownTopicOrPartitionError),
        ({"partition": -1}, UnknownTopicOrPartitionError),
        ({"partition": "0"}, InvalidArgumentError),
        ({"partition": True}, InvalidArgumentError),
        ({"timestamp": -1}, InvalidRecordError),
        ({"timestamp": 2**63}, InvalidRecordError),
        ({"timestamp": 1.5}, InvalidRecordError),
        ({"value": b"x" * (1 << 20)}, RecordTooLargeError),
        ({"key": b"x" * (1 << 20)}, RecordTooLargeError),
        ({"headers": [("h", b"x" * (1 << 20))]}, RecordTooLargeError),
        ({"on_delivery": 5}, InvalidArgumentError),
    ],
)
def test_a_record_that_cannot_be_sent_is_refused_at_once_and_nothing_of_it_stays(
    store: Store, given: dict[str, Any], error: type
) -> None:
    with store.producer() as producer:
        with pytest.raises(error):
            producer.send(**{"topic": "one", "value": b"v"} | given)
        assert producer.send("one", b"good").result(PATIENCE).offset == 0
    assert values(store, "one") == [b"good"]


@pytest.mark.parametrize("excess", [0, 1])
def test_the_largest_record_that_send_takes_is_one_that_the_log_takes(store: Store, excess: int) -> None:
    store.create_topic("narrow", max_message_bytes=500)
    pairs = [("h", b"v" * 20)]
    room = 500 - 82 - 10 - (10 + 1 + 20)
    with store.producer() as producer:
        if excess:
            with pytest.raises(RecordTooLargeError, match="'narrow'"):
                producer.send("narrow", b"x" * (room + 1), headers=pairs)
            with pytest.raises(RecordTooLargeError):
                producer.send("narrow", b"x" * (500 - 82 + 1))
        else:
            assert producer.send("narrow", b"x" * room, headers=pairs).result(PATIENCE).offset == 0
            assert producer.send("narrow", b"x" * (500 - 82)).result(PATIENCE).offset == 1


@pytest.mark.parametrize(
    "option",
    [
        {"linger": 5},
        {"linger_ms": -1},
        {"linger_ms": float("nan")},
        {"linger_ms": "5"},
        {"batch_size": 0},
        {"batch_size": 1.5},
        {"buffer_memory": 10},
        {"max_block_ms": True},
        {"max_request_size": 0},
        {"compression": "brotli"},
        {"durability": "disk"},
        {"enable_idempotence": 1},
        {"partitioner": "sticky"},
        {"key_serializer": "utf-8"},
        {"compression_type": "gzip", "compression": "gzip"},
        {"acks": 0},
        {"acks": "0"},
        {"acks": True},
        {"acks": None},
        {"transactional_id": ""},
    ],
)
def test_a_wrong_option_is_refused(store: Store, option: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(option))):
        store.producer(**option)


def test_options_of_kafka_pythons_that_mean_nothing_here_are_refused_with_what_to_do(store: Store) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"bootstrap_servers: a producer belongs to an open store.*; retries: set delivery"
    ):
        store.producer(bootstrap_servers="localhost:9092", retries=3)


def test_an_error_of_a_serializer_or_a_partitioner_is_raised_by_send(store: Store) -> None:
    def fail(*_: object) -> Any:
        raise ZeroDivisionError

    for option in ("key_serializer", "value_serializer", "partitioner"):
        with store.producer(**{option: fail}) as producer, pytest.raises(ZeroDivisionError):
            producer.send("one", b"v", b"k")
    with store.producer(value_serializer=len) as producer, pytest.raises(InvalidRecordError, match="int of value_serializer"):
        producer.send("one", b"v")
    with store.producer(partitioner=lambda *_: 7) as producer, pytest.raises(InvalidArgumentError, match="chose 7"):
        producer.send("one", b"v")
    assert store.log("one").end_offset == 0


def test_a_store_open_for_reading_has_no_producers(store: Store) -> None:
    with pylog.open(store.path, mode="r") as reader, pytest.raises(ReadOnlyError):
        reader.producer()


# ---- the end ---------------------------------------------------------------------------------------------------------------


def test_close_appends_what_was_sent_and_nothing_is_taken_afterwards(store: Store) -> None:
    producer = store.producer(linger_ms=10**9)
    futures = [producer.send("one", b"%d" % number) for number in range(1000)]
    producer.close()
    assert [future.result(0).offset for future in futures] == list(range(1000))
    for call in (lambda: producer.send("one", b"v"), lambda: producer.send_arrow("one", pa.table({"value": [b"v"]}))):
        with pytest.raises(ClosedError):
            call()
    producer.close()
    producer.flush(PATIENCE)


def test_closing_the_store_closes_its_producers_first(tmp_path: Path) -> None:
    store = pylog.open(tmp_path / "s")
    store.create_topic("one")
    producer = store.producer(linger_ms=10**9)
    future = producer.send("one", b"v")
    store.close()
    assert future.result(0).offset == 0
    with pytest.raises(ClosedError):
        producer.send("one", b"v")


def test_a_record_sent_while_the_producer_closes_is_appended_or_refused(store: Store) -> None:
    producer = store.producer()
    answered: list[Any] = []

    def send_on() -> None:
        try:
            while True:
                answered.append(producer.send("one", b"v"))
        except ClosedError:
            return

    threads = [threading.Thread(target=send_on) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(answered) < 1000:
        pass
    producer.close()
    for thread in threads:
        thread.join(PATIENCE)
    errors = [future.exception(PATIENCE) for future in answered]
    assert {type(error) for error in errors} <= {type(None), ClosedError}
    assert store.log("one").end_offset == errors.count(None)


def test_a_topic_that_is_deleted_meanwhile_is_unknown(store: Store) -> None:
    with store.producer() as producer:
        producer.send("one", b"v").result(PATIENCE)
        store.delete_topic("one")
        assert isinstance(producer.send("one", b"v").exception(PATIENCE), UnknownTopicOrPartitionError)
        assert producer.send("four", b"v").result(PATIENCE).offset == 0
