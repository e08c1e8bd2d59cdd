"""Arguments and options of wrong types get kafka-python's errors: those that the real clients raise with a 4.3 broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import pylog.compat.kafka as kafka
from compat.conftest import Servers
from pylog.compat.kafka import errors
from pylog.compat.kafka.admin import ConfigResource

PLACE = kafka.TopicPartition("orders", 0)
OFFSET = kafka.OffsetAndMetadata(1, "", -1)
WRONG = (object(), 5, 1.5, "x", b"x", [], {}, None, -1, True)
KINDS = (errors.KafkaError, ValueError, TypeError, KeyError)

PRODUCER: list[tuple[str, Callable[[kafka.KafkaProducer, Any], object]]] = [
    ("topic", lambda producer, wrong: producer.send(wrong, b"x")),
    ("value", lambda producer, wrong: producer.send("orders", wrong)),
    ("key", lambda producer, wrong: producer.send("orders", b"x", key=wrong)),
    ("headers", lambda producer, wrong: producer.send("orders", b"x", headers=wrong)),
    ("header", lambda producer, wrong: producer.send("orders", b"x", headers=[wrong])),
    ("partition", lambda producer, wrong: producer.send("orders", b"x", partition=wrong)),
    ("timestamp_ms", lambda producer, wrong: producer.send("orders", b"x", timestamp_ms=wrong)),
    ("timeout", lambda producer, wrong: producer.send("orders", b"x").get(timeout=wrong)),
    ("flush", lambda producer, wrong: producer.flush(wrong)),
    ("partitions_for", lambda producer, wrong: producer.partitions_for(wrong)),
]
CONSUMER: list[tuple[str, Callable[[kafka.KafkaConsumer, Any], object]]] = [
    ("seek", lambda consumer, wrong: consumer.seek(wrong, 0)),
    ("seek offset", lambda consumer, wrong: consumer.seek(PLACE, wrong)),
    ("seek_to_end", lambda consumer, wrong: consumer.seek_to_end(wrong)),
    ("position", lambda consumer, wrong: consumer.position(wrong)),
    ("highwater", lambda consumer, wrong: consumer.highwater(wrong)),
    ("pause", lambda consumer, wrong: consumer.pause(wrong)),
    ("committed", lambda consumer, wrong: consumer.committed(wrong)),
    ("poll", lambda consumer, wrong: consumer.poll(0, wrong)),
    ("commit", lambda consumer, wrong: consumer.commit(wrong)),
    ("commit offset", lambda consumer, wrong: consumer.commit({PLACE: wrong})),
    ("commit number", lambda consumer, wrong: consumer.commit({PLACE: kafka.OffsetAndMetadata(wrong, "", -1)})),
    ("commit_async", lambda consumer, wrong: consumer.commit_async(wrong)),
    ("beginning_offsets", lambda consumer, wrong: consumer.beginning_offsets([wrong])),
    ("offsets_for_times", lambda consumer, wrong: consumer.offsets_for_times({PLACE: wrong})),
    ("partitions_for_topic", lambda consumer, wrong: consumer.partitions_for_topic(wrong)),
    ("subscribe", lambda consumer, wrong: consumer.subscribe([wrong])),
    ("pattern", lambda consumer, wrong: consumer.subscribe(pattern=wrong)),
    ("assign", lambda consumer, wrong: consumer.assign([wrong])),
]
ADMIN: list[tuple[str, Callable[[kafka.KafkaAdminClient, Any], object]]] = [
    ("create_topics", lambda admin, wrong: admin.create_topics([wrong])),
    ("num_partitions", lambda admin, wrong: admin.create_topics({"new": {"num_partitions": wrong}})),
    ("configs", lambda admin, wrong: admin.create_topics({"new": {"configs": {"retention.ms": wrong}}})),
    ("delete_topics", lambda admin, wrong: admin.delete_topics([wrong])),
    ("delete_records", lambda admin, wrong: admin.delete_records({PLACE: wrong})),
    ("list_partition_offsets", lambda admin, wrong: admin.list_partition_offsets({PLACE: wrong})),
    ("alter_configs", lambda admin, wrong: admin.alter_configs([ConfigResource("topic", "orders", wrong)])),
    ("describe_groups", lambda admin, wrong: admin.describe_groups([wrong])),
    ("list_group_offsets", lambda admin, wrong: admin.list_group_offsets([wrong])),
]


@pytest.fixture
def servers(memory: Servers) -> Servers:
    with kafka.KafkaAdminClient(**memory) as admin:
        admin.create_topics(["orders"])
    return memory


def tried(call: Callable[[Any, Any], object], client: Any) -> dict[str, str]:
    """What a call does with each wrong argument; fails for an error that is not kafka-python's."""
    found = {}
    for wrong in WRONG:
        try:
            call(client, wrong)
            found[type(wrong).__name__] = "accepted"
        except KINDS as error:
            found[type(wrong).__name__] = type(error).__name__
    return found


def test_wrong_arguments_of_a_producer_get_kafka_pythons_errors(servers: Servers) -> None:
    with kafka.KafkaProducer(**servers) as producer:
        found = {name: tried(call, producer) for name, call in PRODUCER}
    assert found["partition"]["float"] == found["partition"]["bool"] == "ValueError"
    assert found["partition"]["str"] == found["value"]["str"] == found["timeout"]["str"] == "TypeError"
    assert {found["timestamp_ms"][kind] for kind in ("object", "float", "str", "bytes", "list", "dict", "bool")} == {"TypeError"}
    assert found["headers"]["dict"] == found["header"]["NoneType"] == "TypeError"


def test_wrong_arguments_of_a_consumer_get_kafka_pythons_errors(servers: Servers) -> None:
    with kafka.KafkaConsumer(group_id="g", **servers) as consumer:
        consumer.assign([PLACE])
        found = {name: tried(call, consumer) for name, call in CONSUMER[:-4]}
        consumer.unsubscribe()
        consumer.subscribe(["orders"], listener=[])  # kafka-python takes any false value for none
        consumer.unsubscribe()
        found |= {name: tried(call, consumer) for name, call in CONSUMER[-4:]}
    assert {found["commit number"][kind] for kind in ("object", "float", "str", "NoneType")} == {"TypeError"}
    assert found["seek"]["str"] == found["pause"]["NoneType"] == "TypeError"


def test_wrong_arguments_of_an_administrator_get_kafka_pythons_errors(servers: Servers) -> None:
    with kafka.KafkaAdminClient(**servers) as admin:
        found = {name: tried(call, admin) for name, call in ADMIN}
        assert admin.delete_records({}) == admin.alter_group_offsets("g", {}) == {}
    assert found["delete_records"]["str"] == found["list_partition_offsets"]["bool"] == "TypeError"
    assert found["num_partitions"]["str"] == "InvalidPartitionsError"


@pytest.mark.parametrize(
    ("option", "refused"),
    [
        ("group_id", (5, [], object())),
        ("consumer_timeout_ms", ("x", None, True)),
        ("request_timeout_ms", ("x", None)),
        ("max_poll_records", ("x", None, True)),
        ("value_deserializer", (5, "x")),
        ("isolation_level", ("x", 5)),
        ("partition_assignment_strategy", (5, "x", [object])),
    ],
)
def test_options_of_wrong_types_are_refused_when_the_consumer_is_made(
    servers: Servers, option: str, refused: tuple[object, ...]
) -> None:
    for value in refused:
        with pytest.raises(errors.KafkaConfigurationError):
            kafka.KafkaConsumer(**servers | {option: value})


def test_options_of_wrong_types_are_refused_when_the_producer_is_made(servers: Servers) -> None:
    for option in ("batch_size", "linger_ms", "max_block_ms", "max_request_size", "acks", "partitioner", "key_serializer"):
        for value in ("x", b"x", [], object()):
            with pytest.raises(errors.KafkaConfigurationError, match=re.escape(f"{option}={value!r} ")):
                kafka.KafkaProducer(**servers | {option: value})


def test_options_of_a_network_take_any_value(servers: Servers) -> None:
    network = ("ssl_context", "sasl_mechanism", "api_version", "max_in_flight_requests_per_connection", "connections_max_idle_ms")
    for value in ("x", None, [], object(), float("inf")):
        kafka.KafkaConsumer(**servers, **dict.fromkeys(network, value)).close()
        kafka.KafkaProducer(**servers, **dict.fromkeys((*network, "retries"), value)).close()
