"""kafka-python's producer and consumer on a pylog store: what programs send, read, seek and commit."""

from __future__ import annotations

import gc
import json
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
import pylog.compat.kafka as kafka
from compat.conftest import Servers
from pylog.compat.clusters import CLUSTERS
from pylog.compat.kafka import errors
from pylog.compat.kafka.consumer import ConsumerRecord
from pylog.compat.kafka.producer import FutureRecordMetadata

PLACE = kafka.TopicPartition("orders", 0)


def sent(servers: Servers, *values: bytes, topic: str = "orders", **options: Any) -> list[Any]:
    with kafka.KafkaProducer(**servers) as producer:
        futures = [producer.send(topic, value, **options) for value in values]
    return [future.get(timeout=60) for future in futures]


_readers: list[kafka.KafkaConsumer] = []


def reader(servers: Servers, *topics: str, **options: Any) -> kafka.KafkaConsumer:
    made = kafka.KafkaConsumer(*topics, **({"auto_offset_reset": "earliest", "consumer_timeout_ms": 0} | servers | options))
    _readers.append(made)
    return made


@pytest.fixture(autouse=True)
def readers_are_closed(memory: Servers) -> Iterator[None]:
    yield
    while _readers:
        _readers.pop().close()


# ---- producer ------------------------------------------------------------------------------------------------------------


def test_a_record_comes_back_with_all_thirteen_fields(memory: Servers) -> None:
    with kafka.KafkaProducer(**memory) as producer:
        future = producer.send("orders", b"paid", key=b"42", headers=[("from", b"shop")], timestamp_ms=1_700_000_000_000)
        assert isinstance(future, FutureRecordMetadata)
        found = future.get(timeout=60)
    assert found == ("orders", 0, PLACE, 0, 1_700_000_000_000, None, 2, 4, 8)
    (record,) = reader(memory, "orders")
    assert record == ConsumerRecord("orders", 0, 0, 0, 1_700_000_000_000, 0, b"42", b"paid", [("from", b"shop")], None, 2, 4, 8)
    assert record.serialized_header_size == 8


def test_a_records_timestamp_type_is_its_batchs_and_not_the_topics_of_now(memory: Servers) -> None:
    sent(memory, b"by the producer")
    store = CLUSTERS.of(memory["bootstrap_servers"]).store
    store.alter_topic("orders", message_timestamp_type="LogAppendTime")
    sent(memory, b"by the log")
    assert [record.timestamp_type for record in reader(memory, "orders")] == [0, 1]


def test_a_future_has_attributes_and_calls_callbacks_also_late_ones(memory: Servers) -> None:
    told: list[Any] = []
    with kafka.KafkaProducer(**memory, linger_ms=100) as producer:
        future = producer.send("orders", b"paid")
        assert (future.is_done, future.value, future.exception) == (False, None, None)
        future.add_callback(lambda *given, **named: told.append((given, named)), "first", last="third").add_errback(told.append)
        future.get(timeout=60)
        producer.flush()
    assert future.is_done
    assert future.value is not None
    assert future.succeeded()
    assert not future.failed()
    future.add_both(told.append)
    assert told == [(("first", future.value), {"last": "third"}), future.value]


def test_serializers_of_each_version_are_called_and_closed(memory: Servers) -> None:
    closed: list[str] = []

    class Third(kafka.Serializer):
        def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
            return f"{topic} {len(headers)} {data}".encode()

        def close(self) -> None:
            closed.append("third")

    class Second:
        def serialize(self, topic: str, data: Any) -> bytes:
            return f"{topic} {data}".encode()

    with kafka.KafkaProducer(**memory, value_serializer=Third(), key_serializer=Second()) as producer:
        producer.send("orders", 1, key=2, headers=[("a", b"b")])
    with kafka.KafkaProducer(**memory, value_serializer=lambda value: json.dumps(value).encode()) as producer:
        producer.send("orders", {"paid": True})
    assert [(record.key, record.value) for record in reader(memory, "orders")] == [
        (b"orders 2", b"orders 1 1"),
        (None, b'{"paid": true}'),
    ]
    assert closed == ["third"]


def test_records_without_headers_have_a_list_each_and_cost_the_garbage_collector_one_object(memory: Servers) -> None:
    sent(memory, *[b"x"] * 400, headers=[("a", b"1")])
    sent(memory, *[b"x"] * 400)
    consumer = reader(memory, max_poll_records=400)
    consumer.assign([PLACE])
    assert [record.headers for record in consumer.poll(1000)[PLACE]] == [[("a", b"1")]] * 400
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        records = consumer.poll(1000)[PLACE]
        assert len(gc.get_objects()) - before < 1.2 * len(records)
    finally:
        gc.enable()
    first, second = records[:2]
    first.headers.append(("note", b""))
    assert (first.headers, second.headers, second[8]) == ([("note", b"")], [], [])
    assert type(second.headers) is list
    assert isinstance(second, tuple)
    assert pickle.loads(pickle.dumps(second)) == second == ConsumerRecord(*second) == second._replace(key=None)
    assert "headers=[], checksum=None" in repr(second)
    assert second._asdict()["headers"] == []
    with pytest.raises(AttributeError):
        second.value = b"y"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        second.note = b"y"  # type: ignore[attr-defined]


def test_partitioners_of_each_version_choose(memory: Servers) -> None:
    CLUSTERS.of(memory["bootstrap_servers"]).create("orders", 3)

    class Third(kafka.partitioner.Partitioner):  # type: ignore[name-defined]
        def partition(self, topic: str, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Any) -> int:
            return max(cluster.partitions_for_topic(topic))

    for partitioner, expected in ((Third(), 2), (lambda key, every, free: every[1], 1), (None, None)):
        with kafka.KafkaProducer(**memory, partitioner=partitioner) as producer:
            found = producer.send("orders", b"x", key=b"foobar").get(timeout=60).partition
        assert found == (1357151166 % 3 if expected is None else expected)
    wrong = kafka.KafkaProducer(**memory, partitioner=lambda key, every, free: 7)
    with wrong, pytest.raises(ValueError, match="no partition 7"):
        wrong.send("orders", b"x")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("orders",), ValueError),
        (("or ders", b"x"), ValueError),
        ((7, b"x"), TypeError),
        (("orders", "text"), TypeError),
        (("orders", b"x", "text"), TypeError),
        (("orders", b"x", None, (("a", b"b"),)), TypeError),
        (("orders", b"x", None, [("a", None)]), TypeError),
        (("orders", b"x", None, None, 5), ValueError),
        (("orders", b"x", None, None, "0"), TypeError),
        (("orders", b"x" * (1 << 20)), errors.MessageSizeTooLargeError),
    ],
)
def test_calls_that_kafka_python_refuses_are_refused_with_its_class(
    memory: Servers, arguments: Any, error: type[Exception]
) -> None:
    with kafka.KafkaProducer(**memory) as producer, pytest.raises(error):
        producer.send(*arguments)
    assert reader(memory).topics() <= {"orders"}


def test_a_record_that_a_broker_refuses_fails_the_future(memory: Servers) -> None:
    store = CLUSTERS.of(memory["bootstrap_servers"]).store
    store.create_topic("prices", cleanup_policy="compact")
    store.create_topic("short", max_message_bytes=1000)
    with kafka.KafkaProducer(**memory) as producer:
        for future, kind in (
            (producer.send("prices", b"1"), errors.InvalidRecordError),
            (producer.send("short", b"x" * 2000), errors.MessageSizeTooLargeError),
        ):
            assert future.failed()
            assert isinstance(future.exception, kind)
            with pytest.raises(kind):
                future.get(timeout=60)


def test_a_closed_producer_and_transactions_without_an_id_are_refused(memory: Servers) -> None:
    producer = kafka.KafkaProducer(**memory)
    producer.close()
    producer.close()
    with pytest.raises(errors.IllegalStateError):
        producer.send("orders", b"x")
    for call in (producer.init_transactions, producer.begin_transaction, producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(errors.IllegalStateError, match="transactions"):
            call()
    for wrong in ({"acks": 1}, {"enable_idempotence": False}, {"retries": 0}):
        with pytest.raises(errors.KafkaConfigurationError, match="transactional_id"):
            kafka.KafkaProducer(**memory, transactional_id="mine", **wrong)
    with kafka.KafkaProducer(**memory, transactional_id="mine") as producer:
        with pytest.raises(errors.InvalidTxnStateError, match="init_transactions"):
            producer.begin_transaction()
        producer.init_transactions()
        for call in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(errors.InvalidTxnStateError, match="begin_transaction"):
                call()
        with pytest.raises(errors.IllegalStateError, match="begin_transaction"):
            producer.send("orders", b"x")
    with pytest.raises(errors.IllegalStateError, match="closed"):
        producer.begin_transaction()


def test_options_of_a_network_are_ignored_and_named_once(memory: Servers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pylog.compat")
    options = {"sasl_mechanism": "PLAIN", "sasl_plain_password": "secret", "ssl_cafile": "/no/such/file", "api_version": (0, 11)}
    for _ in range(2):
        kafka.KafkaConsumer(**memory, **options).close()
    lines = [each.message for each in caplog.records if "ignored" in each.message]
    assert len(lines) <= 1  # another test may have been told of these
    assert all("secret" not in line and "sasl_plain_password" in line for line in lines)


@pytest.mark.parametrize(
    ("client", "error"), [(kafka.KafkaProducer, ValueError), (kafka.KafkaConsumer, errors.KafkaConfigurationError)]
)
def test_an_unknown_option_is_refused_with_the_nearest_name(client: Any, error: type[Exception], memory: Servers) -> None:
    with pytest.raises(error, match="client_id"):
        client(**memory, clientid="me")


def test_idempotence_is_switched_off_or_refused_as_kafka_python_does(memory: Servers) -> None:
    with kafka.KafkaProducer(**memory, acks=1) as producer:
        assert not producer.config["enable_idempotence"]
        assert producer.send("orders", b"x").get(timeout=60).offset == 0
    with pytest.raises(errors.KafkaConfigurationError, match="acks"):
        kafka.KafkaProducer(**memory, acks=0, enable_idempotence=True)


# ---- consumer ------------------------------------------------------------------------------------------------------------


def test_iteration_moves_the_position_record_by_record_and_ends_after_its_timeout(memory: Servers) -> None:
    sent(memory, b"a", b"b", b"c")
    consumer = reader(memory, "orders", group_id="billing")
    for record in consumer:
        assert consumer.position(PLACE) == record.offset + 1
        if record.value == b"b":
            break
    consumer.commit()
    assert consumer.committed(PLACE) == 2
    assert [record.value for record in consumer] == [b"c"]
    consumer.close()
    assert list(consumer) == []
    assert [record.value for record in reader(memory, "orders", group_id="billing")] == []  # close has committed


def test_the_first_poll_of_a_lone_member_has_its_partitions(memory: Servers) -> None:
    sent(memory, b"a")
    consumer = reader(memory, "orders", group_id="billing")
    assert consumer.assignment() == set()
    assert [record.value for record in consumer.poll(timeout_ms=0)[PLACE]] == [b"a"]
    assert consumer.assignment() == {PLACE}
    found = consumer.group_metadata()
    assert (found.group_id, found.state, found.member_id != "") == ("billing", "<stable>", True)
    consumer.close()


def test_a_poll_that_leaves_the_positions_returns_the_same_again(memory: Servers) -> None:
    sent(memory, b"a", b"b")
    consumer = reader(memory, "orders")
    first = consumer.poll(timeout_ms=0, update_offsets=False)
    assert consumer.position(PLACE) == 0
    assert consumer.poll(timeout_ms=0) == first


def test_a_deserializer_gets_none_and_its_error_comes_out_unchanged(memory: Servers) -> None:
    sent(memory, b"1", b"no number", b"3")
    sent(memory, None, key=b"k")  # type: ignore[arg-type]

    def number(data: bytes | None) -> int:
        return -1 if data is None else int(data)

    consumer = reader(memory, "orders", value_deserializer=number)
    assert [record.value for record in consumer.poll()[PLACE]] == [1]
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            consumer.poll()
        assert consumer.position(PLACE) == 1
        with pytest.raises(ValueError, match="invalid literal"):
            next(consumer)
    consumer.seek(PLACE, 2)
    assert [(record.value, record.serialized_value_size) for record in consumer] == [(3, 1), (-1, -1)]


def test_seeks_are_checked_and_take_effect(memory: Servers) -> None:
    sent(memory, b"a", b"b", b"c")
    consumer = reader(memory)
    with pytest.raises(ValueError, match="no partitions"):
        consumer.seek_to_end()
    consumer.assign([PLACE])
    with pytest.raises(TypeError):
        consumer.seek(("orders", 0), 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not an int"):
        consumer.seek(PLACE, -1)
    with pytest.raises(ValueError, match="not assigned"):
        consumer.seek(kafka.TopicPartition("orders", 9), 1)
    with pytest.raises(errors.IllegalStateError):
        consumer.position(kafka.TopicPartition("orders", 9))
    consumer.seek_to_end()
    assert consumer.position(PLACE) == 3
    consumer.seek(PLACE, 2)
    assert [record.value for record in consumer] == [b"c"]
    consumer.seek_to_beginning(PLACE)
    assert consumer.highwater(PLACE) == 3
    consumer.pause(PLACE)
    assert (consumer.paused(), consumer.poll()) == ({PLACE}, {})
    consumer.resume(PLACE)
    assert len(consumer.poll()[PLACE]) == 3
    with pytest.raises(KeyError):
        consumer.pause(kafka.TopicPartition("orders", 9))


def test_commits_take_offsets_and_metadata_and_also_an_offset_past_the_end(memory: Servers) -> None:
    sent(memory, b"a")
    consumer = reader(memory, group_id="billing")
    consumer.assign([PLACE])
    with pytest.raises(TypeError):
        consumer.commit({PLACE: 1})  # type: ignore[dict-item]
    consumer.commit({PLACE: kafka.OffsetAndMetadata(99, "note")})
    assert consumer.committed(PLACE, metadata=True) == kafka.OffsetAndMetadata(99, "note", -1)
    told: list[Any] = []
    future = consumer.commit_async({PLACE: kafka.OffsetAndMetadata(1)}, callback=lambda *given: told.append(given))
    consumer.commit({PLACE: kafka.OffsetAndMetadata(1)})
    assert future.succeeded()
    ((offsets, response),) = told
    assert offsets == {PLACE: kafka.OffsetAndMetadata(1, "", -1)}
    assert not isinstance(response, Exception)
    with pytest.raises(errors.IllegalStateError, match="group"):
        reader(memory).commit()


def test_automatic_commits_are_told_to_the_default_callback(memory: Servers) -> None:
    sent(memory, b"a")
    told: list[Any] = []
    consumer = reader(
        memory,
        "orders",
        group_id="billing",
        auto_commit_interval_ms=0,
        default_offset_commit_callback=lambda *given: told.append(given),
    )
    consumer.poll()
    consumer.poll()
    assert told[-1][0] == {PLACE: kafka.OffsetAndMetadata(1, "", 0)}
    consumer.close()


def test_questions_about_offsets_create_nothing_and_time_out_at_once(memory: Servers) -> None:
    sent(memory, b"a", b"b", timestamp_ms=1000)
    consumer = reader(memory)
    missing = kafka.TopicPartition("missing", 0)
    assert consumer.beginning_offsets([PLACE]) == {PLACE: 0}
    assert consumer.end_offsets([PLACE]) == {PLACE: 2}
    assert consumer.offsets_for_times({PLACE: 999.9}) == {PLACE: (0, 1000, 0)}
    assert consumer.offsets_for_times({PLACE: 1001}) == {PLACE: None}
    with pytest.raises(ValueError, match="negative"):
        consumer.offsets_for_times({PLACE: -1})
    for ask in (consumer.beginning_offsets, consumer.end_offsets):
        with pytest.raises(errors.KafkaTimeoutError):
            ask([missing])
    with pytest.raises(errors.KafkaTimeoutError):
        consumer.offsets_for_times({missing: 0})
    assert consumer.partitions_for_topic("missing") == set()
    assert consumer.topics() == {"orders"}


@pytest.mark.parametrize("how", ["subscribe", "assign"])
def test_a_missing_topic_is_created_by_the_first_poll_and_not_before(how: str, memory: Servers) -> None:
    consumer = reader(memory)
    if how == "subscribe":
        consumer.subscribe(["orders"])
    else:
        consumer.assign([PLACE])
    assert consumer.topics() == set()
    assert consumer.poll() == {}
    assert consumer.topics() == {"orders"}
    sent(memory, b"a")
    assert [record.value for record in consumer.poll(timeout_ms=10_000)[PLACE]] == [b"a"]


@pytest.mark.parametrize("group", [None, "billing"])
@pytest.mark.parametrize("how", ["subscribe", "assign"])
def test_without_creation_a_consumer_waits_for_the_topic_and_a_producer_does_not(
    how: str, group: str | None, memory: Servers
) -> None:
    consumer = reader(memory, group_id=group, allow_auto_create_topics=False)
    if how == "subscribe":
        consumer.subscribe(["orders"])
    else:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 1)
        assert consumer.position(PLACE) is None
    assert consumer.poll(timeout_ms=10) == {}
    with kafka.KafkaProducer(**memory, allow_auto_create_topics=False) as producer:
        with pytest.raises(errors.KafkaTimeoutError):
            producer.send("orders", b"a")
        with pytest.raises(errors.KafkaTimeoutError):
            producer.partitions_for("orders")
    sent(memory, b"a", b"b")
    found = consumer.poll(timeout_ms=20_000)
    assert [record.value for record in found[PLACE]] == ([b"a", b"b"] if how == "subscribe" else [b"b"])
    consumer.close()


def test_a_pattern_finds_topics_and_creates_none(memory: Servers) -> None:
    sent(memory, b"a", topic="shop-1")
    sent(memory, b"b", topic="other")
    consumer = reader(memory)
    consumer.subscribe(topics=None, pattern="shop-.*")  # as in kafka-python, None is no topics
    assert [record.topic for records in consumer.poll().values() for record in records] == ["shop-1"]
    assert consumer.subscription() == {"shop-1"}
    sent(memory, b"c", topic="shop-2")
    assert [record.value for record in consumer.poll(timeout_ms=20_000)[kafka.TopicPartition("shop-2", 0)]] == [b"c"]
    with pytest.raises(errors.IllegalStateError):
        consumer.assign([PLACE])
    consumer.unsubscribe()
    assert consumer.subscription() is None
    assert consumer.poll(timeout_ms=10) == {}


class Listener(kafka.ConsumerRebalanceListener):
    def __init__(self, consumer: kafka.KafkaConsumer) -> None:
        self.consumer = consumer
        self.told: list[Any] = []

    def on_partitions_assigned(self, assigned: set[kafka.TopicPartition]) -> None:
        self.told.append(("assigned", sorted(assigned)))
        self.consumer.seek(PLACE, 1)

    def on_partitions_revoked(self, revoked: set[kafka.TopicPartition]) -> None:
        self.told.append(("revoked", sorted(revoked)))


class Awaited(kafka.AsyncConsumerRebalanceListener):
    def __init__(self, consumer: kafka.KafkaConsumer) -> None:
        self.plain = Listener(consumer)

    async def on_partitions_assigned(self, assigned: set[kafka.TopicPartition]) -> None:
        self.plain.on_partitions_assigned(assigned)

    async def on_partitions_revoked(self, revoked: set[kafka.TopicPartition]) -> None:
        self.plain.on_partitions_revoked(revoked)


@pytest.mark.parametrize("kind", [Listener, Awaited])
def test_a_listener_plain_or_a_coroutine_runs_inside_poll_and_may_seek(kind: Any, memory: Servers) -> None:
    sent(memory, b"a", b"b")
    consumer = reader(memory, group_id="billing")
    listener = kind(consumer)
    consumer.subscribe("orders", listener=listener)
    assert [record.value for record in consumer] == [b"b"]
    consumer.close()
    told = listener.told if isinstance(listener, Listener) else listener.plain.told
    assert told == [("assigned", [PLACE]), ("revoked", [PLACE])]
    with pytest.raises(TypeError, match="listener"):
        reader(memory).subscribe(["orders"], listener=object())


def test_two_members_share_the_partitions_of_a_topic(memory: Servers) -> None:
    CLUSTERS.of(memory["bootstrap_servers"]).create("orders", 4)
    one, two = (reader(memory, "orders", group_id="billing") for _ in range(2))
    end = time.monotonic() + 30
    while len(one.assignment()) != 2 or len(two.assignment()) != 2:
        assert time.monotonic() < end
        one.poll(timeout_ms=10)
        two.poll(timeout_ms=10)
    assert one.assignment() | two.assignment() == {kafka.TopicPartition("orders", number) for number in range(4)}
    one.close()
    two.close()


def test_close_wakes_a_waiting_poll_and_a_waiting_iteration_of_another_thread(memory: Servers) -> None:
    for wait in (lambda consumer: consumer.poll(timeout_ms=60_000), list):
        consumer = reader(memory, "orders", consumer_timeout_ms=float("inf"))
        found: list[Any] = []
        thread = threading.Thread(target=lambda wait=wait, consumer=consumer, found=found: found.append(wait(consumer)))
        thread.start()
        time.sleep(0.3)
        begun = time.monotonic()
        consumer.close()
        thread.join(10)
        assert not thread.is_alive()
        assert time.monotonic() - begun < 5
        assert not found[0]
        with pytest.raises(errors.IllegalStateError):
            consumer.poll()


def test_another_thread_may_ask_and_commit_while_one_polls(memory: Servers) -> None:
    sent(memory, b"a")
    consumer = reader(memory, "orders", group_id="billing")
    consumer.poll(timeout_ms=1000)
    thread = threading.Thread(target=lambda: consumer.poll(timeout_ms=3000))
    thread.start()
    begun = time.monotonic()
    consumer.commit()
    assert consumer.committed(PLACE) == 1
    assert time.monotonic() - begun < 2
    sent(memory, b"b")  # the poll ends
    thread.join()
    consumer.close()


def test_metrics_have_kafka_pythons_names(memory: Servers) -> None:
    with kafka.KafkaProducer(**memory) as producer:
        producer.send("orders", b"abc").get(timeout=60)
        found = producer.metrics()
        assert found is not None
        assert found["producer-metrics"]["record-size-max"] == 3
        assert sum(map(len, found.values())) == 18
        assert {each.name for each in producer.metrics(raw=True) or ()} >= {"byte-rate", "count"}
    consumer = reader(memory, "orders")
    consumer.poll()
    found = consumer.metrics()
    assert found is not None
    assert sum(map(len, found.values())) == 26
    assert found["consumer-coordinator-metrics"]["assigned-partitions"] == 1
    assert found["consumer-fetch-manager-metrics"]["records-per-request-avg"] == 1
    assert reader(memory, metrics_enabled=False).metrics() is None


def test_a_store_in_a_directory_is_plain_pylog_and_keeps_everything(directory: Servers, tmp_path: Path) -> None:
    sent(directory, b"a", b"b")
    path = str(tmp_path / "kafka")
    CLUSTERS.forget(path)
    with pylog.open(path) as store:
        assert [record.value for record in store.log("orders").records()] == [b"a", b"b"]
        assert store.topic("orders").config.retention_ms == -1
    assert [record.value for record in reader(directory, "orders")] == [b"a", b"b"]


def test_a_store_that_may_not_be_written_to_is_read_and_refuses_the_rest(
    directory: Servers, settings: Any, tmp_path: Path
) -> None:
    sent(directory, b"a")
    CLUSTERS.forget(str(tmp_path / "kafka"))
    settings(mode="r")
    assert [record.value for record in reader(directory, "orders")] == [b"a"]
    with pytest.raises(errors.TopicAuthorizationFailedError):
        kafka.KafkaProducer(**directory)
    with pytest.raises(errors.KafkaConfigurationError):
        reader({"bootstrap_servers": f"pylog://{tmp_path / 'missing'}"})
