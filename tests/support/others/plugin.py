"""The pytest plug-in that runs the tests of others on the layer: installs it, has kafka-python's fixtures, leaves tests out.

It stands in place of their own `conftest.py`, which starts a broker.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import pylog.compat
from support.others import stubs
from support.others.testutil import random_string

_PARTITIONS = int(os.environ.get("OTHERS_PARTITIONS", "4"))  # of a topic that is created on demand
_FOLDER = os.environ.get("OTHERS_FOLDER", "test") + "/"
_outcomes: dict[str, str] = {}
_reasons: dict[str, str] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Installs the layer before the tests are collected."""
    pylog.compat.install(os.environ.get("OTHERS_STORE", "memory:"), num_partitions=_PARTITIONS)
    stubs.put_in()
    config.addinivalue_line("markers", "timeout(seconds): of pytest-timeout, which is not used here")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes out the tests that the table leaves out."""
    left_out = set(json.loads(os.environ.get("OTHERS_LEFT_OUT", "[]")))
    out = [item for item in items if name_of(item.nodeid) in left_out]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]


def name_of(node: str) -> str:
    """Returns a test's name in the table: its file and its functions, without parameters."""
    return node.removeprefix(_FOLDER).partition("[")[0]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes how a test ended. A function with parameters passes if each of its tests does."""
    name = name_of(report.nodeid)
    if report.failed:
        _outcomes[name] = "failed"
        _reasons.setdefault(name, str(report.longrepr).strip().splitlines()[-1])
    elif report.skipped and _outcomes.get(name) is None:
        _outcomes[name] = "skipped"
        _reasons.setdefault(name, str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr))
    elif report.passed and report.when == "call" and _outcomes.get(name) != "failed":
        _outcomes[name] = "passed"


def pytest_sessionfinish() -> None:
    """Writes the outcomes to the file that the command named."""
    if target := os.environ.get("OTHERS_OUTCOMES"):
        Path(target).write_text(json.dumps({name: [found, _reasons.get(name, "")] for name, found in _outcomes.items()}))


class Broker:
    """What their fixtures call a broker.

    Attributes:
        host, port: an address; any leads to the layer's store.
    """

    host = "localhost"
    port = 9092

    def create_topics(self, names: Iterable[str], num_partitions: int | None = None) -> None:
        """Creates topics."""
        from kafka import KafkaAdminClient  # type: ignore[attr-defined]  # its names are made at run time

        with KafkaAdminClient() as admin:
            admin.create_topics({name: {"num_partitions": num_partitions or _PARTITIONS} for name in names})


def _client(made: str, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Returns how a client is made: version 3's tests enter it as a context, version 2's use what is returned."""
    import kafka

    def make(*topics: str, **options: Any) -> Any:
        client = getattr(kafka, made)(*topics, **({"client_id": f"{request.node.name}_{random_string(4)}"} | options))

        def close() -> None:
            with suppress(Exception):
                client.close()

        request.addfinalizer(close)
        return client

    return make


@pytest.fixture(scope="module")
def kafka_broker() -> Broker:
    """A broker."""
    return Broker()


@pytest.fixture
def topic(kafka_broker: Broker, request: pytest.FixtureRequest) -> str:
    """A new topic with four partitions."""
    allowed = "".join(each for each in request.node.name if each.isascii() and (each.isalnum() or each in "._-"))
    name = f"{allowed[:200]}_{random_string(10)}"
    kafka_broker.create_topics([name])
    return name


@pytest.fixture
def kafka_consumer_factory(topic: str, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes consumers of the topic."""
    make = _client("KafkaConsumer", request)

    def factory(topics: Iterable[str] = (topic,), **options: Any) -> Any:
        return make(*topics, **({"heartbeat_interval_ms": 500, "auto_offset_reset": "earliest"} | options))

    return factory


@pytest.fixture
def kafka_producer_factory(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes producers."""
    return _client("KafkaProducer", request)


@pytest.fixture
def kafka_admin_client_factory(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes administrators."""
    return _client("KafkaAdminClient", request)


@pytest.fixture
def consumer(kafka_consumer_factory: Callable[..., Any]) -> Any:
    """A consumer."""
    return kafka_consumer_factory()


@pytest.fixture
def producer(kafka_producer_factory: Callable[..., Any]) -> Any:
    """A producer."""
    return kafka_producer_factory()


@pytest.fixture
def kafka_admin_client(kafka_admin_client_factory: Callable[..., Any]) -> Any:
    """An administrator."""
    return kafka_admin_client_factory()


@pytest.fixture
def kafka_consumer(kafka_consumer_factory: Callable[..., Any]) -> Any:
    """The same by version 2's name."""
    return kafka_consumer_factory()


@pytest.fixture
def kafka_producer(kafka_producer_factory: Callable[..., Any]) -> Any:
    """The same by version 2's name."""
    return kafka_producer_factory()


@pytest.fixture
def send_messages(topic: str, producer: Any, request: pytest.FixtureRequest) -> Callable[..., list[bytes]]:
    """Sends one text for each number, and returns the texts."""
    default = topic

    def send(numbers: Iterable[int], partition: int = 0, topic: str = default, **_: Any) -> list[bytes]:
        texts = [f"{number}-{request.node.name}-{uuid.uuid4()}".encode() for number in numbers]
        futures = [producer.send(topic, value=text, partition=partition) for text in texts]
        producer.flush()
        assert all(future.succeeded() for future in futures)
        return texts

    return send


class Group:
    """Consumers that poll in threads of their own until the test ends.

    Args:
        factory: makes consumers.
    """

    def __init__(self, factory: Callable[..., Any]) -> None:
        self._factory = factory
        self._end = threading.Event()
        self._threads: list[threading.Thread] = []
        self.consumers: list[Any] = []

    def spawn(self, group_id: str, count: int = 1, client_id_prefix: str = "consumer", **options: Any) -> list[Any]:
        """Starts consumers, and returns them."""
        made = []
        for _ in range(count):
            consumer = self._factory(group_id=group_id, client_id=f"{client_id_prefix}-{len(self.consumers)}", **options)
            made.append(consumer)
            self.consumers.append(consumer)
            self._threads.append(threading.Thread(target=self._poll, args=(consumer,), daemon=True))
            self._threads[-1].start()
        return made

    def _poll(self, consumer: Any) -> None:
        with consumer:
            while not self._end.is_set():
                consumer.poll(timeout_ms=200)

    def wait_for_stable(self, timeout: float = 30, poll_interval: float = 0.2) -> None:
        """Waits until each member has partitions, and the members of each group are in one generation."""
        end = time.monotonic() + timeout
        while not self._is_stable():
            assert time.monotonic() < end, "the group is not stable"
            time.sleep(poll_interval)

    def _is_stable(self) -> bool:
        from kafka.structs import MemberState

        generations: dict[str, set[int]] = defaultdict(set)
        for consumer in self.consumers:
            found = consumer.group_metadata()
            if not consumer.assignment() or found.state != MemberState.STABLE:
                return False
            generations[found.group_id].add(found.generation_id)
        return all(len(each) == 1 for each in generations.values())

    def stop(self) -> None:
        """Ends the threads."""
        self._end.set()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture
def consumer_group(kafka_consumer_factory: Callable[..., Any]) -> Iterator[Group]:
    """Consumers in threads."""
    group = Group(kafka_consumer_factory)
    try:
        yield group
    finally:
        group.stop()
