"""kafka-python's serializers, and the one way in which clients call objects of version 3, of version 2, and plain callables."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Headers = Sequence[tuple[str, bytes | None]]
Call = Callable[[str, Headers, Any], Any]


class Serializer(ABC):
    """Turns keys or values into bytes. Pass an object of a subclass as `key_serializer` or `value_serializer`."""

    @abstractmethod
    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """Returns bytes, or None.

        Args:
            topic: the record's topic.
            headers: its headers.
            data: what `send` was given; also None.
        """

    def close(self) -> None:
        """Called when the client is closed."""


class Deserializer(ABC):
    """Turns bytes into keys or values. Pass an object of a subclass as `key_deserializer` or `value_deserializer`."""

    @abstractmethod
    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """Returns the object for some bytes.

        Args:
            topic: the record's topic.
            headers: its headers.
            data: the bytes; also None.
        """

    def close(self) -> None:
        """Called when the client is closed."""


class DefaultSerializer(Serializer, Deserializer):
    """Text, in an encoding.

    Args:
        encoding: the text's encoding.

    >>> DefaultSerializer().serialize("orders", [], "paid"), DefaultSerializer().deserialize("orders", [], None)
    (b'paid', None)
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """Returns encoded text; bytes and None unchanged."""
        return data if data is None or isinstance(data, bytes | bytearray | memoryview) else data.encode(self.encoding)

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """Returns the text; None unchanged."""
        return None if data is None else data.decode(self.encoding)


class JsonSerializer(DefaultSerializer):
    """JSON documents.

    >>> JsonSerializer().serialize("orders", [], {"paid": True})
    b'{"paid": true}'
    """

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """Returns the document; None for None."""
        return None if data is None else super().serialize(topic, headers, json.dumps(data))

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """Returns the document's value; None for None."""
        return None if data is None else json.loads(super().deserialize(topic, headers, data))


class SerializeWrapper(Serializer):
    """A function of the value as a serializer.

    Args:
        fn: the function; None returns the value unchanged.
    """

    def __init__(self, fn: Callable[[Any], Any] | None) -> None:
        self.fn = fn

    def serialize(self, topic: str, headers: Headers, data: Any) -> Any:
        """Returns what the function returns."""
        return data if self.fn is None else self.fn(data)


class DeserializeWrapper(Deserializer):
    """A function of the bytes as a deserializer.

    Args:
        fn: the function; None returns the bytes unchanged.
    """

    def __init__(self, fn: Callable[[Any], Any] | None) -> None:
        self.fn = fn

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:
        """Returns what the function returns."""
        return data if self.fn is None else self.fn(data)


def call_of(config: Mapping[str, Any], option: str) -> Call | None:
    """Returns how a client calls what it was given as a serializer or deserializer.

    Args:
        config: the client's options: an object of version 3 or 2, a function, or None.
        option: which of them, such as "key_serializer".

    Raises:
        TypeError: it is none of them.
    """
    given, method = config[option], "serialize" if option.endswith("_serializer") else "deserialize"
    if given is None:
        return None
    bound = getattr(given, method, None)
    if bound is None:
        if not callable(given):
            raise TypeError(f"{option}={given!r} cannot be called and has no method {method}")
        return lambda topic, headers, data: given(data)  # noqa: ARG005 - a function takes the data alone
    if _takes(bound, 3):
        found: Call = bound
        return found
    return lambda topic, headers, data: bound(topic, data)  # noqa: ARG005 - version 2 has no headers


def _takes(call: Callable[..., Any], count: int) -> bool:
    """Returns whether a call takes this many positional arguments; true if that is unknown."""
    try:
        inspect.signature(call).bind(*[None] * count)
    except ValueError:
        return True
    except TypeError:
        return False
    return True


def close_all(*given: Any) -> None:
    """Calls `close` of the serializers that have it."""
    for each in given:
        close = getattr(each, "close", None)
        if callable(close):
            close()
