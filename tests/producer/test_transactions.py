"""Producers with a transactional id: their calls, futures, offsets and errors, as a program uses them."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import pylog
from pylog import errors
from pylog.aio import AsyncConsumer, AsyncProducer
from pylog.store import Store
from pylog.testing import MemoryFileSystem

FEW: dict[str, Any] = {
    "transactions": pylog.TransactionsConfig(topic_num_partitions=2),
    "offsets": pylog.OffsetsConfig(topic_num_partitions=2),
}
IN = pylog.TopicPartition("in", 0)


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def store(fs: MemoryFileSystem) -> Iterator[Store]:
    with opened(fs) as made:
        made.create_topic("in")
        made.create_topic("out", partition_count=3)
        made.log("in").append_many([b"%d" % number for number in range(10)])
        yield made


def opened(fs: MemoryFileSystem, **options: Any) -> Store:
    return pylog.open("/data", fs=fs, clock=fs.clock, **FEW, **options)


def ready(store: Store, name: str = "billing", **options: Any) -> pylog.Producer[Any, Any]:
    made: pylog.Producer[Any, Any] = store.producer(transactional_id=name, **options)
    made.init_transactions()
    return made


def committed(store: Store) -> list[bytes]:
    logs = [store.log("out", number) for number in store.topic("out").partition_ids]
    return sorted(record.value or b"" for log in logs for record in log.records(isolation_level="read_committed"))


def written(store: Store) -> int:
    return sum(store.log("out", number).end_offset for number in range(3))


# ---- futures -----------------------------------------------------------------------------------------------------------------


def test_futures_and_callbacks_are_settled_by_the_commit_with_the_places_of_their_records(store: Store) -> None:
    seen: list[Any] = []
    with ready(store, value_serializer=str.encode) as producer:
        for turn in range(2):
            producer.begin_transaction()
            futures = [
                producer.send(
                    "out", f"{turn} {each}", key=b"%d" % each, on_delivery=lambda error, done: seen.append((error, done))
                )
                for each in range(20)
            ]
            assert not any(future.done() for future in futures)
            assert written(store) == (23 if turn else 0)
            producer.commit_transaction()
            assert seen[turn * 20 :] == [
                (None, future.result()) for future in sorted(futures, key=lambda each: each.result()[1:3])
            ]
            for each, future in enumerate(futures):
                done = future.result()
                assert store.log("out", done.partition).read(done.offset).value == b"%d %d" % (turn, each)
                assert done.durability == pylog.Durability.SYNC
    assert len(committed(store)) == 40


def test_waiting_for_a_record_of_an_open_transaction_writes_it(store: Store) -> None:
    with ready(store) as producer:
        producer.begin_transaction()
        first, second = producer.send("out", b"a", partition=1), producer.send("out", b"b", partition=1)
        assert [first.result(2).offset, second.result(0).offset] == [0, 1]
        assert first.result().durability == pylog.Durability.OS
        assert committed(store) == []
        producer.commit_transaction()
    assert committed(store) == [b"a", b"b"]


def test_an_abort_fails_the_futures_of_records_that_were_not_written(store: Store) -> None:
    with ready(store) as producer:
        producer.begin_transaction()
        flushed = producer.send("out", b"flushed")
        producer.flush()
        waiting = producer.send("out", b"waiting")
        producer.abort_transaction()
        assert flushed.succeeded()
        assert isinstance(waiting.exception(), errors.TransactionAbortedError)
        producer.begin_transaction()
        producer.send("out", b"kept")
        producer.commit_transaction()
    assert committed(store) == [b"kept"]


def test_a_failed_write_fails_the_futures_and_only_an_abort_is_possible(store: Store, fs: MemoryFileSystem) -> None:
    with ready(store) as producer:
        producer.begin_transaction()
        future = producer.send("out", b"lost")
        store.delete_topic("out")
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            producer.commit_transaction()
        assert isinstance(future.exception(), errors.UnknownTopicOrPartitionError)
        for call in (producer.commit_transaction, lambda: producer.send("in", b"more")):
            with pytest.raises(errors.InvalidTransactionStateError, match="abort"):
                call()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("in", b"again")
        producer.commit_transaction()
    assert store.log("in").read(10).value == b"again"


def test_a_full_buffer_is_written_before_the_commit(store: Store) -> None:
    with ready(store, buffer_memory=10 << 10) as producer:
        producer.begin_transaction()
        futures = [producer.send("out", b"%d" % each, partition=0) for each in range(25)]
        assert [future.done() for future in futures] == [True] * 20 + [False] * 5
        producer.commit_transaction()
        assert [future.result().offset for future in futures[-2:]] == [23, 24]
    assert len(committed(store)) == 25


def test_columns_and_records_are_written_in_the_order_of_the_calls(store: Store) -> None:
    with ready(store) as producer:
        producer.begin_transaction()
        producer.send("out", b"first", partition=2)
        (batch,) = producer.send_arrow("out", pa.table({"value": [b"second", b"third"], "partition": [2, 2]}))
        producer.send("out", b"fourth", partition=2)
        assert (batch.partition, batch.offsets) == (2, range(1, 3))
        producer.commit_transaction()
    assert [record.value for record in store.log("out", 2).records()] == [b"first", b"second", b"third", b"fourth"]


def test_records_of_a_topic_with_log_append_time_have_its_timestamp(store: Store, fs: MemoryFileSystem) -> None:
    store.create_topic("stamped", message_timestamp_type="LogAppendTime")
    with ready(store) as producer:
        producer.begin_transaction()
        future = producer.send("stamped", b"a", timestamp=5)
        producer.commit_transaction()
        assert future.result().timestamp == store.log("stamped").read(0).timestamp == fs.clock.now_ms()


def test_a_callback_may_begin_the_next_transaction(store: Store) -> None:
    with ready(store) as producer:
        producer.begin_transaction()
        producer.send("out", b"a", on_delivery=lambda *_: producer.begin_transaction())
        producer.commit_transaction()
        producer.send("out", b"b")
        producer.commit_transaction()
    assert committed(store) == [b"a", b"b"]


def test_threads_send_to_one_transaction(store: Store) -> None:
    with ready(store) as producer:
        producer.begin_transaction()
        threads = [
            threading.Thread(target=lambda name=name: [producer.send("out", b"%d %d" % (name, each)) for each in range(50)])
            for name in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.commit_transaction()
    assert committed(store) == sorted(b"%d %d" % (name, each) for name in range(4) for each in range(50))


# ---- the order of calls ------------------------------------------------------------------------------------------------------


def test_calls_out_of_order_say_which_one_is_missing(store: Store) -> None:
    producer: pylog.Producer[Any, Any] = store.producer(transactional_id="billing")

    def refused(call: Callable[[], object], what: str) -> None:
        with pytest.raises(errors.InvalidTransactionStateError, match=what):
            call()

    with store.producer() as plain:
        refused(plain.begin_transaction, "transactional_id=")
    refused(producer.begin_transaction, "init_transactions")
    producer.init_transactions()
    producer.init_transactions()
    outside = (
        producer.commit_transaction,
        producer.abort_transaction,
        lambda: producer.send("out", b"a"),
        lambda: producer.send_arrow("out", pa.table({"value": [b"a"]})),
        lambda: producer.send_offsets_to_transaction({IN: 1}, "group"),
    )
    for call in outside:
        refused(call, "begin_transaction")
    producer.flush()
    producer.begin_transaction()
    refused(producer.begin_transaction, "commit or abort")
    refused(lambda: store.transaction("billing"), "open transaction")
    producer.close()
    for call in (*outside, producer.begin_transaction):
        with pytest.raises(errors.ClosedError):
            call()


def test_closing_aborts_what_is_open(store: Store) -> None:
    producer = ready(store)
    producer.begin_transaction()
    producer.send("out", b"flushed")
    producer.flush()
    future = producer.send("out", b"waiting")
    producer.close()
    assert isinstance(future.exception(), errors.TransactionAbortedError)
    with store.transaction() as transaction:
        transaction.append_many("out", [b"after"], partition=0)
    assert committed(store) == [b"after"]


def test_a_dropped_producer_warns_and_leaves_nothing_open(store: Store) -> None:
    producer = ready(store)
    producer.begin_transaction()
    producer.send("out", b"flushed", partition=0)
    producer.flush()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del producer
        gc.collect()
    assert [each.category for each in warned] == [ResourceWarning]
    for thread in threading.enumerate():
        if thread.name == "pylog-producer":
            thread.join(10)
    store.log("out").append(b"after")
    assert committed(store) == [b"after"]


# ---- one id, one writer ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("same_store", [True, False])
def test_a_newer_producer_with_the_id_fences_the_older_one(store: Store, fs: MemoryFileSystem, same_store: bool) -> None:
    other = store if same_store else opened(fs)
    older = ready(store)
    older.begin_transaction()
    older.send("out", b"flushed")
    older.flush()
    waiting = older.send("out", b"waiting")
    newer = ready(other)
    with pytest.raises(errors.ProducerFencedError, match="close this instance"):
        older.commit_transaction()
    assert isinstance(waiting.exception(), errors.ProducerFencedError)
    with pytest.raises(errors.ProducerFencedError):
        older.abort_transaction()
    newer.begin_transaction()
    newer.send("out", b"newer")
    newer.commit_transaction()
    older.close()
    newer.close()
    assert committed(store) == [b"newer"]
    other.close()


# ---- offsets -----------------------------------------------------------------------------------------------------------------


def test_offsets_are_committed_with_the_records_or_not_at_all(store: Store) -> None:
    with ready(store) as producer, store.consumer("in", group_id="group", enable_auto_commit=False) as consumer:
        consumer.poll()
        for end, expected in ((producer.abort_transaction, None), (producer.commit_transaction, 4)):
            producer.begin_transaction()
            producer.send("out", b"a")
            producer.send_offsets_to_transaction({IN: 4}, consumer.group_metadata())
            end()
            assert store.offsets.position("group", IN) == expected


def test_a_member_that_has_lost_a_partition_cannot_commit_its_offset_in_a_transaction(store: Store) -> None:
    with ready(store) as producer, store.consumer("in", group_id="group", enable_auto_commit=False) as consumer:
        consumer.poll()
        metadata = consumer.group_metadata()
        assert metadata[:1] + metadata[2:] == ("group", 1, None)
        producer.begin_transaction()
        producer.send("out", b"not seen")
        producer.send_offsets_to_transaction({IN: 4}, metadata)
        consumer.unsubscribe()  # the member leaves between the call and the commit
        with pytest.raises(errors.FencedMemberError, match="abort the transaction, and poll"):
            producer.commit_transaction()
        producer.abort_transaction()
        assert consumer.group_metadata() == pylog.ConsumerGroupMetadata("group")
    assert committed(store) == []
    assert store.offsets.position("group", IN) is None


def test_a_member_commits_only_for_its_own_partitions_and_its_current_epoch(store: Store) -> None:
    store.create_topic("two", partition_count=2)
    with store.consumer("two", group_id="group") as one, store.consumer("two", group_id="group") as other:
        one.poll()
        before = one.group_metadata()
        for _ in range(4):
            other.poll()
            one.poll()
        (mine,), (foreign,) = one.assignment(), other.assignment()
        for metadata, partition in ((before, mine), (one.group_metadata(), foreign)):
            with pytest.raises(errors.FencedMemberError), store.transaction("billing") as transaction:
                transaction.send_offsets(metadata, {partition: 0})
            assert transaction.outcome == "aborted"
        with store.transaction("billing") as transaction:
            transaction.send_offsets(one.group_metadata(), {mine: 0})
            transaction.send_offsets(other, {foreign: 0})
        assert set(store.offsets.fetch("group")) == {mine, foreign}


def test_a_group_with_members_refuses_offsets_for_its_name_alone(store: Store) -> None:
    with ready(store) as producer, store.consumer("in", group_id="group") as consumer:
        consumer.poll()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({IN: 4}, "group")
        with pytest.raises(errors.NonEmptyGroupError, match="group_metadata"):
            producer.commit_transaction()
        producer.abort_transaction()


def test_a_transaction_takes_the_positions_of_a_consumer(store: Store) -> None:
    with store.consumer("in", group_id="group", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.poll(max_records=3)
        with store.transaction() as transaction:
            transaction.send_offsets(consumer)
        assert store.offsets.position("group", IN) == 3
    with store.consumer("in") as alone, store.transaction() as transaction:
        with pytest.raises(errors.IllegalStateError, match="no group"):
            transaction.send_offsets(alone)
        for wrong in (5, None, b"group"):
            with pytest.raises(errors.InvalidArgumentError, match="group"):
                transaction.send_offsets(wrong, {IN: 1})  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgumentError, match="offsets are missing"):
            transaction.send_offsets("group")


def test_a_topic_that_is_created_again_does_not_get_the_offset_of_the_old_one(store: Store) -> None:
    with ready(store) as producer:
        producer.begin_transaction()
        producer.send_offsets_to_transaction({IN: 4}, "group")
        store.delete_topic("in")
        store.create_topic("in")
        store.log("in").append_many([b"new"] * 10)
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            producer.commit_transaction()
        producer.abort_transaction()
    assert store.offsets.position("group", IN) is None


# ---- options and blocks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"transactional_id": ""},
        {"transactional_id": 5},
        {"transactional_id": "a", "transaction_timeout_ms": 900_001},
        {"transactional_id": "a", "transaction_timeout_ms": 0},
        {"transactional_id": "a", "enable_idempotence": False},
    ],
)
def test_options_that_transactions_cannot_have_are_refused(store: Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        store.producer(**wrong)


def test_a_timeout_that_the_store_does_not_allow_is_refused_with_the_option_that_allows_it(store: Store) -> None:
    with pytest.raises(
        errors.InvalidArgumentError,
        match="900000 ms, the store's limit; give less, or open the store with",
    ):
        store.producer(transactional_id="a", transaction_timeout_ms=900_001)
    with pytest.raises(errors.InvalidArgumentError, match="timeout_ms=900001 is longer than"):
        store.transaction("a", timeout_ms=900_001)


def test_a_block_whose_commit_fails_aborts_so_that_the_id_can_be_used_again(store: Store) -> None:
    with store.consumer("in", group_id="group") as consumer:
        consumer.poll()
        transaction = store.transaction("billing")

        def work() -> None:
            with transaction:
                transaction.append("out", b"not seen")
                transaction.send_offsets("group", {IN: 1})

        with pytest.raises(errors.NonEmptyGroupError):
            work()
        assert transaction.outcome == "aborted"
    with store.transaction("billing") as transaction:
        transaction.append("out", b"seen")
    assert committed(store) == [b"seen"]


# ---- asyncio -----------------------------------------------------------------------------------------------------------------


def test_coroutines_write_transactions_with_the_calls_of_aiokafka(store: Store) -> None:
    dropped: list[asyncio.Future[pylog.RecordMetadata]] = []

    async def broken(producer: AsyncProducer[Any, Any]) -> None:
        async with producer.transaction():
            dropped.append(await producer.send("out", b"dropped", partition=0))
            raise RuntimeError("of the program")

    async def run() -> list[int]:
        async with AsyncProducer(store.producer(transactional_id="billing")) as producer:
            await producer.start()
            async with producer.transaction():
                waited = await producer.send_and_wait("out", b"waited", partition=0)
                futures = [await producer.send("out", b"%d" % each, partition=0) for each in range(3)]
                assert not futures[0].done()
                found = [done.offset for done in await asyncio.gather(*futures)]
                await producer.send_offsets_to_transaction({IN: 4}, "group")
            with pytest.raises(RuntimeError, match="of the program"):
                await broken(producer)
            await producer.begin_transaction()
            last = await producer.send("out", b"last", partition=0)
            await producer.commit_transaction()
            return [waited.offset, *found, (await last).offset]

    places = asyncio.run(run())
    assert isinstance(dropped[0].exception(), errors.TransactionAbortedError)
    assert committed(store) == sorted([b"waited", b"0", b"1", b"2", b"last"])
    assert [store.log("out").read(offset).value for offset in places] == [b"waited", b"0", b"1", b"2", b"last"]
    assert store.offsets.position("group", IN) == 4


def test_coroutines_commit_for_a_member_of_a_group(store: Store) -> None:
    async def run() -> None:
        async with (
            AsyncConsumer(store.consumer("in", group_id="group", enable_auto_commit=False)) as consumer,
            AsyncProducer(store.producer(transactional_id="billing")) as producer,
        ):
            await consumer.poll()
            await producer.start()
            async with producer.transaction():
                await producer.send_offsets_to_transaction({IN: 4}, await consumer.group_metadata())
            assert await consumer.committed(IN) == 4
            consumer.unsubscribe()
            metadata = await consumer.group_metadata()
            assert metadata.member_id == ""

    asyncio.run(run())
