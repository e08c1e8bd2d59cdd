"""Producers, consumers and administrators of `pylog.compat.aiokafka`."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from compat.conftest import Servers
from pylog.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition, errors
from pylog.compat.aiokafka.admin import AIOKafkaAdminClient, ConfigResource, NewPartitions, NewTopic, RecordsToDelete
from pylog.compat.aiokafka.helpers import create_ssl_context
from pylog.compat.clusters import CLUSTERS
from pylog.compat.kafka import KafkaConsumer

Settings = Callable[..., None]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def run(program: Coroutine[Any, Any, Any]) -> Any:
    """Runs a program; one that waits for what never comes fails."""
    return asyncio.run(asyncio.wait_for(program, 20))


@pytest.fixture
def two(settings: Settings) -> None:
    """Topics that are created on demand have two partitions."""
    settings(num_partitions=2)


async def filled(memory: Servers, count: int = 5) -> None:
    async with AIOKafkaProducer(**memory) as producer:
        for number in range(2 * count):
            await producer.send("t", b"%d" % number, partition=number % 2)


def group(memory: Servers, **options: Any) -> dict[str, Any]:
    return {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False} | memory | options


@pytest.mark.usefixtures("two")
def test_a_sent_record_has_all_fields_and_is_read_with_all_fields(memory: Servers) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(**memory) as producer:
            sent = await producer.send_and_wait("t", b"v", b"k", 1, 7, [("h", b"x")])
        assert sent is not None
        assert sent == ("t", 1, T1, 0, 7, 0, 0)
        async with AIOKafkaConsumer("t", auto_offset_reset="earliest", **memory) as consumer:
            found = await consumer.getone()
            assert (found.topic, found.partition, found.offset, found.timestamp, found.timestamp_type) == ("t", 1, 0, 7, 0)
            assert (found.key, found.value, found.headers, found.checksum) == (b"k", b"v", (("h", b"x"),), None)
            assert (found.serialized_key_size, found.serialized_value_size) == (1, 1)
            assert consumer.highwater(T1) == consumer.last_stable_offset(T1) == 1
            assert await consumer.position(T1) == 1

    run(program())


@pytest.mark.slow
def test_ten_thousand_sends_that_are_not_awaited_are_in_the_log_after_stop(memory: Servers) -> None:
    async def program() -> None:
        producer = AIOKafkaProducer(**memory)
        await producer.start()
        for number in range(10_000):
            await producer.send("t", b"%d" % number)
        await producer.stop()
        await producer.stop()

    run(program())
    with KafkaConsumer("t", auto_offset_reset="earliest", consumer_timeout_ms=0, **memory) as consumer:
        assert [int(record.value) for record in consumer] == list(range(10_000))


@pytest.mark.usefixtures("two")
def test_what_aiokafka_refuses_is_refused_with_its_class(memory: Servers) -> None:
    async def program() -> None:
        producer = AIOKafkaProducer(max_request_size=1000, **memory)
        with pytest.raises(errors.IllegalStateError):
            await producer.flush()
        await producer.start()
        for kind, arguments in (
            (AssertionError, ("t",)),
            (AssertionError, ("t", b"x", None, 2)),
            (TypeError, ("t", "text")),
            (errors.MessageSizeTooLargeError, ("t", bytes(1000))),
            (errors.InvalidTopicError, ("not a name", b"x")),
        ):
            with pytest.raises(kind):
                await producer.send(*arguments)
        with pytest.raises(errors.IllegalOperation):
            await producer.begin_transaction()
        await producer.stop()
        with pytest.raises(errors.ProducerClosed):
            await producer.send("t", b"x")
        async with AIOKafkaConsumer("t", **memory) as consumer:
            with pytest.raises(errors.IllegalOperation):
                await consumer.commit()
            with pytest.raises(errors.IllegalStateError):
                await consumer.position(TopicPartition("t", 9))
            with pytest.raises(errors.IllegalStateError):
                consumer.assign([T0])
            with pytest.raises(errors.KafkaTimeoutError):
                await consumer.end_offsets([TopicPartition("t", 9)])
            with pytest.raises(ValueError, match="negative"):
                await consumer.offsets_for_times({T0: -1})
            with pytest.raises(AssertionError):
                consumer.highwater(TopicPartition("t", 9))
        with pytest.raises(errors.ConsumerStoppedError):
            await consumer.getone()
        async with AIOKafkaConsumer(group_id="g", **memory) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(errors.IllegalStateError, match="No partitions assigned"):
                await consumer.commit({T0: 1})

    run(program())


@pytest.mark.parametrize(
    ("kind", "options", "error"),
    [
        (AIOKafkaProducer, {"acks": 2}, ValueError),
        (AIOKafkaProducer, {"acks": 1, "enable_idempotence": True}, ValueError),
        (AIOKafkaProducer, {"compression_type": "zip"}, ValueError),
        (AIOKafkaProducer, {"linger": 5}, TypeError),
        (AIOKafkaProducer, {"linger_ms": "x"}, TypeError),
        (AIOKafkaProducer, {"security_protocol": "SSL"}, ValueError),
        (AIOKafkaProducer, {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "u"}, ValueError),
        (AIOKafkaAdminClient, {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "NTLM"}, ValueError),
        (AIOKafkaConsumer, {"max_poll_records": 0}, ValueError),
        (AIOKafkaConsumer, {"isolation_level": "all"}, ValueError),
        (AIOKafkaAdminClient, {"group_id": "g"}, TypeError),
    ],
)
def test_a_wrong_option_is_refused_by_the_constructor(kind: Any, options: dict[str, Any], error: type[Exception]) -> None:
    async def program() -> None:
        with pytest.raises(error):
            kind(**options)

    run(program())


def test_options_of_a_network_are_named_in_one_line(memory: Servers, caplog: pytest.LogCaptureFixture) -> None:
    async def program() -> None:
        context = create_ssl_context(cafile="/nowhere/ca", certfile="/nowhere/cert", keyfile="/nowhere/key")
        for _ in range(2):
            async with AIOKafkaProducer(ssl_context=context, security_protocol="SSL", retry_backoff_ms=7, **memory):
                pass

    with caplog.at_level(logging.INFO, "pylog.compat"):
        run(program())
    lines = [each.getMessage() for each in caplog.records if "AIOKafkaProducer" in each.getMessage()]
    assert len(lines) == 1
    assert "ignored: retry_backoff_ms, security_protocol, ssl_context" in lines[0]


def test_without_acknowledgements_the_future_has_no_metadata(memory: Servers) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(acks=0, **memory) as producer:
            assert await producer.send_and_wait("t", b"x") is None

    run(program())


@pytest.mark.usefixtures("two")
def test_a_batch_of_the_program_is_one_batch_and_full_at_its_size(directory: Servers, tmp_path: Path) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(max_batch_size=1000, value_serializer=str.encode, **directory) as producer:
            await producer.send("t", "before", partition=1)
            batch = producer.create_batch()
            while batch.append(timestamp=None, key=None, value="x" * 50) is not None:
                pass
            assert batch.closed()
            assert 900 < batch.size() <= 1000
            future = await producer.send_batch(batch, "t", partition=1)
            done = await future
            assert done is not None
            assert (done.topic_partition, done.offset) == (T1, 1)
            assert (await producer.send_and_wait("t", "after", partition=1))[3] == 1 + batch.record_count()  # type: ignore[index]

    run(program())
    assert base_offsets((tmp_path / "kafka" / "t-1" / f"{0:020}.log").read_bytes()) == [0, 1, 17]


def base_offsets(data: bytes) -> list[int]:
    """The first offset of each batch in a segment's file."""
    found, at = [], 0
    while at + 12 <= len(data) and (size := int.from_bytes(data[at + 8 : at + 12])):
        found.append(int.from_bytes(data[at : at + 8]))
        at += 12 + size
    return found


@pytest.mark.usefixtures("two")
def test_start_returns_with_partitions_and_members_share_them_without_polling(memory: Servers) -> None:
    async def program() -> None:
        await filled(memory)
        first = AIOKafkaConsumer("t", **group(memory))
        await first.start()
        assert first.assignment() == {T0, T1}
        second = AIOKafkaConsumer("t", **group(memory))
        await second.start()
        assert first.assignment() | second.assignment() == {T0, T1}
        assert len(first.assignment()) == len(second.assignment()) == 1
        await second.stop()
        for _ in range(100):
            if first.assignment() == {T0, T1}:
                break
            await asyncio.sleep(0.05)
        assert first.assignment() == {T0, T1}
        await first.stop()

    run(program())


class Listener(ConsumerRebalanceListener):
    """Notes its calls, and asks its consumer in them."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append(("revoked", revoked))

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append(("assigned", assigned))
        await asyncio.get_running_loop().create_task(self.consumer.seek_to_beginning(*assigned))
        self.consumer.seek(min(assigned), 3)
        raise RuntimeError("the rebalance continues")


@pytest.mark.usefixtures("two")
def test_a_listener_hears_of_all_partitions_in_each_rebalance_and_its_seeks_hold(memory: Servers) -> None:
    async def program() -> None:
        await filled(memory)
        consumer = AIOKafkaConsumer(**group(memory, auto_offset_reset="none"))
        listener = Listener(consumer)
        consumer.subscribe(["t"], listener=listener)
        await consumer.start()
        assert listener.calls == [("revoked", set()), ("assigned", {T0, T1})]
        assert [await consumer.position(each) for each in (T0, T1)] == [3, 0]
        other = AIOKafkaConsumer("t", **group(memory))
        await other.start()
        assert listener.calls[2:] == [("revoked", {T0, T1}), ("assigned", consumer.assignment())]
        await other.stop()
        await consumer.stop()
        assert all(name == "revoked" for name, _ in listener.calls[4::2])

    run(program())


def test_assigned_partitions_keep_what_was_asked_before_they_exist(memory: Servers, settings: Settings) -> None:
    settings(auto_create_topics=False)

    async def program() -> None:
        async with AIOKafkaConsumer(auto_offset_reset="earliest", **memory) as consumer:
            consumer.assign([T0, T1])
            consumer.seek(T0, 4)
            consumer.pause(T1)
            assert consumer.assignment() == {T0, T1}
            assert consumer.paused() == {T1}
            assert await consumer.getmany(timeout_ms=10) == {}
            store = CLUSTERS.of(memory["bootstrap_servers"]).store
            store.create_topic("t", 2)
            for number in range(2):
                store.log("t", number).append_many([b"%d" % each for each in range(5)])
            assert (await consumer.getone()).offset == 4
            consumer.resume(T1)
            assert {record.partition for records in (await consumer.getmany(timeout_ms=2000)).values() for record in records} == {
                1
            }

    run(program())


@pytest.mark.usefixtures("two")
def test_a_pattern_finds_topics_that_are_created_later(memory: Servers) -> None:
    async def program() -> None:
        consumer = AIOKafkaConsumer(**group(memory, heartbeat_interval_ms=100))
        consumer.subscribe(topics=None, pattern="^t$")  # as in aiokafka, None is no topics
        await consumer.start()
        assert consumer.subscription() == frozenset()
        await filled(memory)
        assert (await consumer.getone()).topic == "t"
        assert consumer.subscription() == {"t"}
        await consumer.stop()

    run(program())


@pytest.mark.usefixtures("two")
def test_unsubscribe_and_assign_at_once_end_the_membership_first(memory: Servers) -> None:
    async def program() -> None:
        await filled(memory)
        consumer = AIOKafkaConsumer("t", **group(memory))
        await consumer.start()
        consumer.unsubscribe()
        consumer.assign([T1])
        assert {(await consumer.getone()).partition for _ in range(5)} == {1}
        await consumer.commit({T1: (4, "note")})
        assert await consumer.seek_to_committed() == {T1: 4}
        assert (await consumer.getone()).offset == 4
        await consumer.stop()

    run(program())


def test_a_waiting_read_ends_when_another_task_stops_the_consumer(memory: Servers) -> None:
    async def program() -> None:
        consumer = AIOKafkaConsumer("t", **memory)
        await consumer.start()

        async def iterate() -> list[Any]:
            return [record async for record in consumer]

        waiting = [asyncio.ensure_future(each) for each in (consumer.getone(), consumer.getmany(timeout_ms=60_000), iterate())]
        await asyncio.sleep(0.1)
        await consumer.stop()
        one, many, iterated = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(one, errors.ConsumerStoppedError)
        assert many == {}
        assert iterated == []

    run(program())


def test_a_commit_does_not_wait_for_a_long_read(memory: Servers) -> None:
    async def program() -> float:
        async with AIOKafkaConsumer("t", **group(memory)) as consumer:
            waiting = asyncio.ensure_future(consumer.getone())
            await asyncio.sleep(0.05)
            begun = asyncio.get_running_loop().time()
            await consumer.commit({TopicPartition("t", 0): 0})
            waiting.cancel()
            return asyncio.get_running_loop().time() - begun

    assert run(program()) < 2


def test_a_member_that_reads_nothing_for_too_long_leaves_and_joins_again_when_it_reads(memory: Servers) -> None:
    async def program() -> None:
        await filled_with(memory, b"0")
        slow = AIOKafkaConsumer("t", **group(memory, max_poll_interval_ms=300))
        await slow.start()
        for _ in range(100):
            if not slow.assignment():
                break
            await asyncio.sleep(0.05)
        assert slow.assignment() == set()
        assert (await slow.getone()).value == b"0"
        await slow.stop()

    run(program())


async def filled_with(memory: Servers, value: bytes) -> None:
    async with AIOKafkaProducer(**memory) as producer:
        await producer.send_and_wait("t", value)


def test_a_session_that_a_broker_refuses_is_refused(memory: Servers) -> None:
    async def program() -> None:
        consumer = AIOKafkaConsumer("t", group_id="g", session_timeout_ms=200, **memory)
        with pytest.raises(errors.InvalidSessionTimeoutError):
            await consumer.start()
        await consumer.stop()

    run(program())


def test_a_deserializer_is_called_for_none_and_its_error_leaves_the_position(memory: Servers) -> None:
    async def program() -> None:
        async with AIOKafkaProducer(**memory) as producer:
            await producer.send_and_wait("t", None, b"k")
            await producer.send_and_wait("t", b"x")
        options: dict[str, Any] = {"value_deserializer": lambda data: 0 if data is None else int(data)}
        async with AIOKafkaConsumer("t", auto_offset_reset="earliest", **options, **memory) as consumer:
            assert (await consumer.getone()).value == 0
            for _ in range(2):
                with pytest.raises(ValueError, match="invalid literal"):
                    await consumer.getone()
            assert await consumer.position(TopicPartition("t", 0)) == 1

    run(program())


def test_a_transaction_is_atomic_with_the_offsets_of_a_running_group(memory: Servers) -> None:
    async def program() -> None:
        await filled_with(memory, b"in")
        async with (
            AIOKafkaConsumer("t", **group(memory)) as consumer,
            AIOKafkaProducer(transactional_id="x", **memory) as producer,
        ):
            place = TopicPartition("t", 0)
            with pytest.raises(errors.IllegalOperation):
                await producer.send("out", b"outside")

            async def failing() -> None:
                async with producer.transaction():
                    await producer.send("out", b"aborted")
                    await producer.send_offsets_to_transaction({place: 1}, "g")
                    raise KeyError

            with pytest.raises(KeyError):
                await failing()
            assert await consumer.committed(place) is None
            async with producer.transaction():
                future = await producer.send("out", b"committed")
                await producer.send_offsets_to_transaction({place: 1}, "g")
            assert (await future) is not None
            assert await consumer.committed(place) == 1
        options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"} | memory
        async with AIOKafkaConsumer("out", **options) as reader:
            assert (await reader.getone()).value == b"committed"
        newer = AIOKafkaProducer(transactional_id="x", **memory)
        older = AIOKafkaProducer(transactional_id="x", **memory)
        await older.start()
        await newer.start()
        with pytest.raises(errors.ProducerFenced):
            async with older.transaction():
                await older.send_and_wait("out", b"fenced")
        await older.stop()
        await newer.stop()

    run(program())


def test_the_administrator_answers_in_aiokafkas_shapes(memory: Servers) -> None:
    async def program() -> None:
        async with AIOKafkaAdminClient(**memory) as admin:
            made = await admin.create_topics([NewTopic("t", 1, 1, topic_configs={"retention.ms": "60000"})])
            assert made.topic_errors == [("t", 0, None)]
            assert (await admin.create_topics([NewTopic("t", 1, 1)])).topic_errors[0][1] == 36
            await admin.create_partitions({"t": NewPartitions(2)})
            with pytest.raises(errors.InvalidPartitionsError):
                await admin.create_partitions({"t": NewPartitions(1)})
            assert [each["partition"] for each in (await admin.describe_topics(["t"]))[0]["partitions"]] == [0, 1]
            assert (await admin.describe_topics(["none"]))[0]["error_code"] == 3
            wanted = ConfigResource("TOPIC", "t", {"retention.ms": "120000"})
            assert (await admin.alter_configs([wanted]))[0].resources == [(0, None, 2, "t")]
            found = (await admin.describe_configs([wanted]))[0].resources[0]
            assert [(name, value) for name, value, *_ in found[4]] == [("retention.ms", "120000")]
            await filled(memory)
            assert await admin.delete_records({T0: RecordsToDelete(2)}) == {T0: 2}
            async with AIOKafkaConsumer("t", **group(memory)) as consumer:
                await consumer.getone()
                await consumer.commit()
                assert ("g", "consumer") in await admin.list_consumer_groups()
                assert (await admin.describe_consumer_groups(["g"]))[0].groups[0][:3] == (0, "g", "Stable")
                assert set(await admin.list_consumer_group_offsets("g")) == {T0, T1}
            assert (await admin.describe_cluster())["brokers"][0]["node_id"] == 0 == await admin.find_coordinator("g")
            assert (await admin.delete_topics(["t", "t"])).topic_error_codes == [("t", 0), ("t", 3)]
        with pytest.raises(errors.IllegalOperation):
            await admin.list_topics()
        with pytest.raises(errors.IllegalArgumentError):
            NewTopic("t", 1, 1, {0: [1]})

    run(program())


@pytest.mark.filterwarnings("ignore:a (producer|consumer) of the store:ResourceWarning")  # the plain clients warn, too
def test_a_client_that_is_dropped_open_warns_and_leaves_no_thread(memory: Servers) -> None:
    before = set(threading.enumerate())

    async def program() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        await AIOKafkaProducer(**memory).start()
        await AIOKafkaConsumer("t", **group(memory)).start()
        await asyncio.sleep(0.3)  # the task that follows the group ends
        assert [each["message"] for each in told] == ["Unclosed AIOKafkaProducer", "Unclosed AIOKafkaConsumer"]

    with pytest.warns(ResourceWarning, match="Unclosed AIOKafka"):
        run(program())
    gc.collect()
    CLUSTERS.forget("memory:" + memory["bootstrap_servers"].removeprefix("pylog+memory://"))
    end = time.monotonic() + 10
    while set(threading.enumerate()) - before and time.monotonic() < end:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before
