"""No call of the layers with an impossible value fails with an error of Python's own, or writes before it refuses the value.

The types are right here: numbers are negative, not finite or too large, and texts are empty, no names, or no UTF-8.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import pylog.compat.aiokafka as aiokafka
import pylog.compat.kafka as kafka
from compat.conftest import Servers
from compat.test_wrong_types import (
    CONFIG,
    RIGHT,
    TO_SEND,
    aiokafka_client,
    image,
    kafka_client,
    options_that_matter,
    outcome,
    prepared,
    tried,
    using_aiokafka,
    using_kafka_python,
    with_batch,
)
from pylog.compat.aiokafka.admin import AIOKafkaAdminClient
from pylog.compat.kafka import OffsetAndMetadata, TopicPartition, errors
from pylog.compat.kafka.admin import ConfigResource, NewPartitions, NewTopic
from support.wrong_calls import T0, calls_of, public_methods

NUMBERS: Final = (-1, -(2**31) - 1, 2**31, 2**63, 10**30, math.nan, math.inf, -math.inf)
TEXTS: Final = ("", "\ud800", "a\0b", "..", "a/b", "x" * 250, "(")


def number_in_its_places(value: float) -> Iterator[Any]:
    """Yields a number alone, and where calls have numbers."""
    partition = TopicPartition("t", value)  # type: ignore[arg-type]  # some are no int
    yield from (value, [value], partition, [partition], {partition: 0}, {partition: OffsetAndMetadata(0, "", -1)})
    yield from ({T0: value}, {T0: OffsetAndMetadata(value, "", -1)}, {T0: (value, "note")}, {"t": value}, {"t": [value]})
    yield from ([NewTopic("new", value, 1)], {"new": {"num_partitions": value}}, {"t": NewPartitions(value)})  # type: ignore[arg-type]
    yield from ([ConfigResource("topic", "t", {"retention.ms": value})], [NewTopic("new", 1, 1, {}, {"retention.ms": value})])


def text_in_its_places(value: str) -> Iterator[Any]:
    """Yields a text alone, and where calls have texts."""
    partition = TopicPartition(value, 0)
    yield from (value, [value], partition, [partition], {partition: 0}, {partition: OffsetAndMetadata(0, "", -1)})
    yield from ([(value, b"x")], {T0: value}, {T0: OffsetAndMetadata(0, value, -1)}, {T0: (0, value)}, {value: 1}, {value: {}})
    yield from ([NewTopic(value, 1, 1)], {value: NewPartitions(2)}, [ConfigResource("topic", value)])
    yield from ([ConfigResource("topic", "t", {value: "1"})], [ConfigResource("topic", "t", {"cleanup.policy": value})])


VALUES: Final = [
    *(each for number in NUMBERS for each in number_in_its_places(number)),
    *(each for text in TEXTS for each in text_in_its_places(text)),
]


@pytest.fixture(autouse=True)
def _no_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Keeps lines with half of a surrogate pair out of reports, which pytest-xdist cannot send between processes."""
    caplog.set_level("CRITICAL", "pylog")


@pytest.fixture
def servers() -> Servers:
    return {"bootstrap_servers": CONFIG["bootstrap_servers"]}


def is_kafka_pythons_own(method: str, found: str) -> bool:
    """Returns whether kafka-python raises this error, which is not its own, for the same argument: of a wrong pattern."""
    return method == "subscribe" and found.startswith(f"{re.error.__name__}: ")


CHANGES: Final = ("assign", "close", "commit_async", "poll", "stop", "subscribe", "unsubscribe")  # the client, perhaps later


async def sweep(kind: type, servers: Servers) -> dict[str, str]:
    """Returns what is wrong with each call of a client. One client serves the calls of a method until one changes something."""
    is_aiokafka = kind.__module__.startswith("pylog.compat.aiokafka")
    given = TO_SEND if kind in (kafka.KafkaProducer, aiokafka.AIOKafkaProducer) else RIGHT
    found = {}

    async def made(name: str) -> Any:
        prepared(servers)
        return await aiokafka_client(kind, name, servers) if is_aiokafka else kafka_client(kind, name, servers)

    for name, method in public_methods(kind):
        client, fresh = await made(name), image()
        for wrong in () if name == "start" else calls_of(method, given, values=VALUES):
            call = with_batch(client, wrong)
            ended = await outcome(lambda: call(getattr(client, name)))  # noqa: B023
            found[f"{name}({call.told})"] = "" if is_kafka_pythons_own(name, ended.wrong) else ended.wrong
            if not ended.refused and (name in CHANGES or image() != fresh):
                await closed(client)
                client, fresh = await made(name), image()
        await closed(client)
    return found


async def closed(client: Any) -> None:
    """Closes a client of either package."""
    ending = client.stop() if hasattr(client, "stop") else client.close()
    if ending is not None:
        await ending


CLIENTS: Final = (kafka.KafkaConsumer, kafka.KafkaProducer, kafka.KafkaAdminClient)
AIO_CLIENTS: Final = (aiokafka.AIOKafkaConsumer, aiokafka.AIOKafkaProducer, AIOKafkaAdminClient)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLIENTS + AIO_CLIENTS)
def test_calls_answer_or_refuse(kind: type, servers: Servers) -> None:
    found = asyncio.run(sweep(kind, servers))
    assert len(found) > 5 * len(VALUES)
    assert {told: each for told, each in found.items() if each} == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLIENTS + AIO_CLIENTS)
def test_options_are_refused_at_once_or_serve(kind: Any, servers: Servers) -> None:
    use = using_kafka_python(kind) if kind in CLIENTS else using_aiokafka(kind)
    found = asyncio.run(tried(use, options_that_matter(kind), servers, (*NUMBERS, *TEXTS)))
    assert {told: each for told, each in found.items() if each} == {}


def test_a_text_is_no_list_of_topics_whose_letters_are_their_names(memory: Servers) -> None:
    with kafka.KafkaAdminClient(**memory) as admin:
        admin.create_topics(["t"])
        for call in (admin.delete_topics, admin.create_topics, admin.describe_topics, admin.delete_groups):
            with pytest.raises(TypeError, match="has a wrong type"):
                call("test")  # type: ignore[arg-type]
        assert set(admin.list_topics()) == {"t"}


def test_a_consumer_that_is_closed_with_a_negative_timeout_is_closed(memory: Servers) -> None:
    with kafka.KafkaAdminClient(**memory) as admin:
        admin.create_topics(["t"])
        for timeout in (-1, math.nan):
            consumer = kafka.KafkaConsumer("t", group_id="g", **memory)
            consumer.poll(0)
            consumer.close(timeout_ms=timeout)
            assert admin.describe_groups(["g"])["g"]["members"] == []


def test_a_wrong_pattern_leaves_the_consumer_as_it_was(memory: Servers) -> None:
    with kafka.KafkaConsumer(**memory) as consumer:
        with pytest.raises(re.error):
            consumer.subscribe(pattern="(")
        consumer.subscribe(["t"])
        assert consumer.subscription() == {"t"}


def test_an_internal_topic_that_is_created_on_demand_has_kafkas_options(memory: Servers, settings: Callable[..., None]) -> None:
    settings(topic_config={"cleanup_policy": "delete", "retention_ms": 1})
    with kafka.KafkaProducer(**memory) as producer, pytest.raises(errors.InvalidTopicError):
        producer.send("__consumer_offsets", b"x", b"key").get(10)
    with kafka.KafkaAdminClient(**memory) as admin:
        found = admin.describe_configs([ConfigResource("topic", "__consumer_offsets")], config_filter="all")
        assert found["topic"]["__consumer_offsets"]["cleanup.policy"]["value"] == "compact"
