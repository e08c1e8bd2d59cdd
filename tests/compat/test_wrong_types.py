"""No call of the layers with a wrong type fails with an error of Python's own from somewhere inside, and none of them writes.

Allowed are the layers' errors, and the classes that kafka-python and aiokafka raise for arguments, said in the layer's words.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import pytest

import pylog
import pylog.compat.aiokafka as aiokafka
import pylog.compat.kafka as kafka
from compat.conftest import Servers
from pylog.compat.aiokafka.admin import AIOKafkaAdminClient
from pylog.compat.aiokafka.batch import BatchBuilder
from pylog.compat.aiokafka.options import ADMIN, CONSUMER, PRODUCER
from pylog.compat.aiokafka.options import IGNORED as OF_NETWORK
from pylog.compat.clusters import CLUSTERS, MEMORY
from pylog.compat.kafka.options import IGNORED
from pylog.testing.disk import Image
from support.wrong_calls import T0, WRONG, WrongCall, calls_of, public_methods

RIGHT: Final[dict[str, Any]] = {
    "topic": "t",
    "value": b"v",
    "partition": T0,
    "partitions": [T0],
    "timestamps": {T0: 0},
    "offsets": {},
    "offset": 0,
    "timeout_ms": 0,
    "group_id": "g",
    "group_metadata": "g",
    "new_topics": [],
    "topics": ["t"],
    "topic_partitions": {},
    "election_type": 0,
}
TO_SEND: Final = RIGHT | {"partition": 0, "topic": "new"}
OF_ARGUMENTS: Final = (TypeError, ValueError, KeyError, AssertionError)
OPTIONS_OF: Final = {"AIOKafkaConsumer": CONSUMER, "AIOKafkaProducer": PRODUCER, "AIOKafkaAdminClient": ADMIN}
Use = Callable[[Servers], Awaitable[None]]
CONFIG: Final[dict[str, Any]] = {"bootstrap_servers": "pylog+memory://wrong", "group_id": "g", "auto_offset_reset": "earliest"}


@pytest.fixture
def servers() -> Servers:
    return {"bootstrap_servers": CONFIG["bootstrap_servers"]}


def prepared(servers: Servers) -> None:
    """A new cluster with a topic and a record."""
    CLUSTERS.forget(f"{MEMORY}wrong")
    with kafka.KafkaAdminClient(**servers) as admin:
        admin.create_topics(["t"])
    with kafka.KafkaProducer(**servers) as producer:
        producer.send("t", b"x")


def image() -> Image:
    return CLUSTERS._memories[f"{MEMORY}wrong"].image()


def is_said(error: BaseException) -> bool:
    """Returns whether an error is of the layers' classes, or was raised by a statement of theirs."""
    if isinstance(error, pylog.PylogError) or type(error).__module__.startswith("pylog."):
        return True
    frame = traceback.extract_tb(error.__traceback__)[-1]
    is_ours = "/pylog/" in frame.filename and str(frame.line).lstrip().startswith(("raise ", "assert "))
    return isinstance(error, OF_ARGUMENTS) and is_ours


class Outcome(NamedTuple):
    """The end of a call: whether it was refused, and what is wrong with that, if anything is."""

    refused: bool
    wrong: str = ""


async def outcome(call: Callable[[], Any]) -> Outcome:
    """Returns how a call ended."""
    before = image()
    try:
        made = call()
        if inspect.iscoroutine(made):  # kafka-python's futures are awaited by loops of its own
            made = await asyncio.wait_for(made, 0.2)
            if isinstance(made, asyncio.Future):
                await asyncio.wait_for(made, 0.2)
    except TimeoutError:
        return Outcome(refused=False)  # `getone` waits for a record
    except BaseException as error:  # noqa: BLE001 - the finding
        if not is_said(error):
            return Outcome(refused=True, wrong=f"{type(error).__name__}: {error}")
        return Outcome(refused=True, wrong="was refused, and has written" if image() != before else "")
    return Outcome(refused=False)


def kafka_client(kind: type, name: str, servers: Servers) -> Any:
    if kind is kafka.KafkaConsumer:
        consumer = kafka.KafkaConsumer(**CONFIG, consumer_timeout_ms=1)
        if name not in ("assign", "subscribe"):
            consumer.assign([T0])
        return consumer
    return kind(**servers)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kafka.KafkaConsumer, kafka.KafkaProducer, kafka.KafkaAdminClient])
def test_calls_of_kafka_python_answer_or_refuse(kind: type, servers: Servers) -> None:
    async def sweep() -> dict[str, str]:
        found = {}
        for name, method in public_methods(kind):
            for call in calls_of(method, TO_SEND if kind is kafka.KafkaProducer else RIGHT):
                prepared(servers)
                client = kafka_client(kind, name, servers)
                if call.told != "partition=5":  # a number that a topic may have: the topic is created to look
                    found[f"{name}({call.told})"] = (await outcome(lambda: call(getattr(client, name)))).wrong  # noqa: B023
                client.close()
        return found

    found = asyncio.run(sweep())
    assert len(found) > 5 * len(WRONG)
    assert {told: each for told, each in found.items() if each} == {}


async def aiokafka_client(kind: type, name: str, servers: Servers) -> Any:
    if kind is aiokafka.AIOKafkaConsumer:
        client: Any = aiokafka.AIOKafkaConsumer(**CONFIG)
        if name not in ("assign", "subscribe"):
            client.assign([T0])
    else:
        client = kind(**servers)
    await client.start()
    return client


def with_batch(client: Any, call: WrongCall) -> WrongCall:
    """Returns a call of `send_batch` with a batch, unless that is what is wrong with it; others as they are."""
    if "batch" not in call.named or call.told.startswith("batch="):
        return call
    batch = client.create_batch()
    batch.append(timestamp=None, key=None, value=b"x")
    return call._replace(named={**call.named, "batch": batch})


@pytest.mark.slow
@pytest.mark.parametrize("kind", [aiokafka.AIOKafkaConsumer, aiokafka.AIOKafkaProducer, AIOKafkaAdminClient])
def test_calls_of_aiokafka_answer_or_refuse(kind: type, servers: Servers) -> None:
    async def sweep() -> dict[str, str]:
        found = {}
        for name, method in public_methods(kind):
            for given in calls_of(method, TO_SEND if kind is aiokafka.AIOKafkaProducer else RIGHT):
                prepared(servers)
                client = await aiokafka_client(kind, name, servers)
                call = with_batch(client, given)
                if name != "start" and call.told != "partition=5":
                    found[f"{name}({call.told})"] = (await outcome(lambda: call(getattr(client, name)))).wrong  # noqa: B023
                await (client.close() if kind is AIOKafkaAdminClient else client.stop())
        return found

    found = asyncio.run(sweep())
    assert len(found) > 5 * len(WRONG)
    assert {told: each for told, each in found.items() if each} == {}


def test_records_of_a_batch_are_taken_or_refused(servers: Servers) -> None:
    prepared(servers)
    given = {"timestamp": None, "key": b"k", "value": b"v"}
    for call in calls_of(BatchBuilder.append, given):
        found = asyncio.run(outcome(lambda: call(BatchBuilder(1000, lambda: 0).append)))  # noqa: B023
        assert not found.wrong, call.told


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kafka.KafkaConsumer, kafka.KafkaProducer, kafka.KafkaAdminClient])
def test_options_of_kafka_python_are_refused_at_once_or_serve(kind: Any, servers: Servers) -> None:
    found = asyncio.run(tried(using_kafka_python(kind), options_that_matter(kind), servers, WRONG))
    assert {told: each for told, each in found.items() if each} == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [aiokafka.AIOKafkaConsumer, aiokafka.AIOKafkaProducer, AIOKafkaAdminClient])
def test_options_of_aiokafka_are_refused_at_once_or_serve(kind: Any, servers: Servers) -> None:
    found = asyncio.run(tried(using_aiokafka(kind), options_that_matter(kind), servers, WRONG))
    assert {told: each for told, each in found.items() if each} == {}


def options_that_matter(kind: Any) -> set[str]:
    """Returns the options of a client's class that are not ignored."""
    name = kind.__name__
    known = set(kind.DEFAULT_CONFIG) - IGNORED[name] if name in IGNORED else set(OPTIONS_OF[name]) - OF_NETWORK[name]
    return known - {"bootstrap_servers"}


def using_kafka_python(kind: Any) -> Use:
    """Returns a function that makes a client with options, and uses it."""

    async def use(options: Servers) -> None:
        with kind(**options) if kind is not kafka.KafkaConsumer else kafka.KafkaConsumer("t", **options) as client:
            if kind is kafka.KafkaConsumer:
                client.poll(10)
            elif kind is kafka.KafkaProducer and "transactional_id" not in options:
                client.send("t", b"x", b"k").get(1)

    return use


def using_aiokafka(kind: Any) -> Use:
    """The same for a client of aiokafka's."""

    async def use(options: Servers) -> None:
        client = kind(**options)
        try:
            await client.start()
            if kind is aiokafka.AIOKafkaConsumer:
                client.assign([T0])
                await client.seek_to_beginning()
                await client.getmany(timeout_ms=1)
            elif kind is aiokafka.AIOKafkaProducer and "transactional_id" not in options:
                with suppress(TimeoutError):  # it may linger for a long time
                    await asyncio.wait_for(client.send_and_wait("t", b"x", b"k"), 1)
        finally:
            await (client.close() if kind is AIOKafkaAdminClient else client.stop())

    return use


async def tried(use: Use, names: set[str], servers: Servers, values: Sequence[Any]) -> dict[str, str]:
    """Returns what is wrong with each wrong value of each option, when a client is made with it and used."""
    found = {}
    for name in sorted(names):
        for wrong in values:
            prepared(servers)
            try:
                await use(servers | {name: wrong})
                found[f"{name}={wrong!r}"] = ""
            except Exception as error:  # noqa: BLE001 - the finding
                found[f"{name}={wrong!r}"] = "" if is_said(error) else f"{type(error).__name__}: {error}"
    assert len(found) >= len(values)
    return found
