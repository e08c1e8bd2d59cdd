"""Serializers and deserializers in their three forms: callables, callables that get topic and headers, and objects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import pylog
from pylog.aio import AsyncConsumer, AsyncProducer
from pylog.testing import MemoryFileSystem

HEADERS = (("trace", b"1"), ("empty", None))


@pytest.fixture
def store() -> Iterator[pylog.Store]:
    with pylog.open("/store", fs=MemoryFileSystem(), durability="os") as opened:
        opened.create_topic("orders")
        yield opened


class Wrapped:
    """An object of kafka-python 3's kind. It is false, as an object with a length of 0 is."""

    def __len__(self) -> int:
        return 0

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
        return repr((topic, headers, data)).encode()

    def deserialize(self, topic: str, headers: Any, data: Any) -> Any:
        return topic, headers, data


def described(data: Any, topic: str, headers: Any) -> bytes:
    return repr((topic, headers, data)).encode()


def values_of(store: pylog.Store, **options: Any) -> list[tuple[Any, Any]]:
    with store.consumer("orders", auto_offset_reset="earliest", consumer_timeout_ms=0, **options) as consumer:
        return [(record.key, record.value) for record in consumer]


@pytest.mark.parametrize("serializer", [described, Wrapped()], ids=["function", "object"])
def test_a_serializer_gets_the_topic_and_the_headers(store: pylog.Store, serializer: Any) -> None:
    with store.producer(value_serializer=serializer, key_serializer=str.encode) as producer:
        producer.send("orders", 5, key="42", headers=list(HEADERS))
        producer.send("orders", None, key="42")
    expected = [repr(("orders", HEADERS, 5)).encode(), repr(("orders", (), None)).encode()]
    assert values_of(store) == [(b"42", value) for value in expected]


def test_a_deserializer_gets_the_topic_and_the_headers_and_only_an_object_gets_null(store: pylog.Store) -> None:
    with store.producer() as producer:
        producer.send("orders", b"paid", key=b"42", headers=HEADERS)
        producer.send("orders", None, key=b"42")
    function = values_of(store, value_deserializer=described, key_deserializer=bytes.decode)
    assert function == [("42", repr(("orders", HEADERS, b"paid")).encode()), ("42", None)]
    assert values_of(store, value_deserializer=Wrapped()) == [
        (b"42", ("orders", HEADERS, b"paid")),
        (b"42", ("orders", (), None)),
    ]
    assert values_of(store, key_deserializer=Wrapped(), value_deserializer=bytes.decode)[1] == (("orders", (), b"42"), None)


def test_a_function_of_one_value_that_accepts_more_gets_one(store: pylog.Store) -> None:
    def strict(data: bytes, encoding: str = "utf-8", *more: object, **options: object) -> str:
        assert encoding == "utf-8"
        assert not more
        return data.decode(encoding)

    with store.producer(value_serializer=str.encode) as producer:
        producer.send("orders", "7")
    for deserializer, value in (
        (bytes.decode, "7"),
        (int, 7),
        (strict, "7"),
        (int.from_bytes, 55),
        (lambda *all_of: all_of, (b"7",)),
    ):
        assert values_of(store, value_deserializer=deserializer) == [(None, value)]


def test_a_full_deserializer_that_raises_names_the_offset(store: pylog.Store) -> None:
    store.log("orders").append_many([b"1", b"x"])

    def number(data: bytes, topic: str, headers: object) -> int:
        return int(data)

    with store.consumer("orders", auto_offset_reset="earliest", value_deserializer=number) as consumer:
        assert [record.value for records in consumer.poll().values() for record in records] == [1]
        with pytest.raises(pylog.RecordDeserializationError) as raised:
            consumer.poll()
        assert raised.value.offset == 1


def test_what_is_no_serializer_is_refused_with_the_forms_there_are(store: pylog.Store) -> None:
    for make, method in ((store.producer, "serialize"), (store.consumer, "deserialize")):
        for given in (object(), 5, "utf-8", b"", []):
            with pytest.raises(pylog.InvalidTypeError, match=rf"is neither callable nor has {method}\(topic, headers, data\)"):
                make(**{f"value_{method}r": given})  # type: ignore[operator]


def test_a_coroutine_method_is_refused_when_the_client_is_created(store: pylog.Store) -> None:
    class Later:
        async def serialize(self, topic: str, headers: object, data: object) -> bytes:
            return b""

        async def deserialize(self, topic: str, headers: object, data: object) -> bytes:
            return b""

    with pytest.raises(pylog.InvalidArgumentError, match="coroutine function"):
        store.producer(value_serializer=Later())  # type: ignore[arg-type]
    with pytest.raises(pylog.InvalidArgumentError, match="coroutine function"):
        store.consumer("orders", value_deserializer=Later())


def test_asynchronous_clients_use_the_same_forms(store: pylog.Store) -> None:
    async def run() -> Any:
        async with AsyncProducer(store.producer(value_serializer=Wrapped())) as producer:
            await producer.send_and_wait("orders", 5, headers=HEADERS)
        async with AsyncConsumer(
            store.consumer("orders", auto_offset_reset="earliest", value_deserializer=Wrapped())
        ) as consumer:
            return (await consumer.getone()).value

    assert asyncio.run(run()) == ("orders", HEADERS, repr(("orders", HEADERS, 5)).encode())


def test_a_serializer_whose_truth_value_is_false_is_called(store: pylog.Store) -> None:
    with store.producer(value_serializer=Wrapped()) as producer:
        for _ in range(3):  # the first one reads the topic, the others could take the short way
            producer.send("orders", b"5")
    assert values_of(store) == [(None, repr(("orders", (), b"5")).encode())] * 3
