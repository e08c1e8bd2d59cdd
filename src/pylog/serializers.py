"""The three forms of a serializer or deserializer, told apart when a client is created.

A callable of the value, a callable of (value, topic, headers), or an object with a method of (topic, headers, data), as in
kafka-python 3.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from pylog.errors import InvalidTypeError

RecordHeaders = tuple[tuple[str, bytes | None], ...]
_ADVICE = {
    "serialize": "give a function that returns bytes, such as str.encode",
    "deserialize": "give a function that takes bytes, such as bytes.decode",
}
_Given_contra = TypeVar("_Given_contra", contravariant=True)
_Made_co = TypeVar("_Made_co", covariant=True)


class SerializesRecords(Protocol[_Given_contra]):
    """An object that turns keys or values into bytes; kafka-python's `Serializer` is one."""

    def serialize(self, topic: str, headers: RecordHeaders, data: _Given_contra, /) -> bytes | None:
        """Returns bytes, or None. `data` may be None."""


class DeserializesRecords(Protocol[_Made_co]):
    """An object that turns bytes into keys or values; kafka-python's `Deserializer` is one."""

    def deserialize(self, topic: str, headers: RecordHeaders, data: bytes | None, /) -> _Made_co:
        """Returns the object for some bytes; `data` is None for null."""


class Conversion(NamedTuple):
    """The way in which a serializer or deserializer is called: one of the two attributes is None.

    Attributes:
        of_value: a callable of the value.
        of_record: a callable of the topic, the headers and the value.
        takes_null: true if a deserializer is also called for null.
    """

    of_value: Callable[[Any], Any] | None = None
    of_record: Callable[[str, RecordHeaders, Any], Any] | None = None
    takes_null: bool = False


def conversion_of(name: str, given: Any, method: str) -> Conversion | None:
    """Returns the way to call a serializer or deserializer; None if none was given.

    Args:
        name: the option's name.
        given: the option's value. If it can be called, it is called, even if it has the method.
        method: "serialize" or "deserialize".

    Raises:
        InvalidTypeError: the value has none of the three forms.

    >>> conversion_of("value_serializer", str.encode, "serialize").of_value("paid")
    b'paid'
    >>> conversion_of("value_serializer", lambda value, topic, headers: topic.encode(), "serialize").of_record("orders", (), 5)
    b'orders'
    """
    if given is None:
        return None
    if callable(given):
        if _takes_three(given):
            return Conversion(of_record=lambda topic, headers, data: given(data, topic, headers))
        return Conversion(of_value=given)
    found = getattr(given, method, None)
    if not callable(found):
        raise InvalidTypeError(f"{name}={given!r} is neither callable nor has {method}(topic, headers, data); {_ADVICE[method]}")
    return Conversion(of_record=found, takes_null=True)


def calls_of(given: Any, method: str) -> Any:
    """Returns what a client calls: the given callable, or the method of the given object."""
    return given if callable(given) else getattr(given, method, None)


def _takes_three(call: Callable[..., Any]) -> bool:
    """Returns whether a call needs three arguments. Many functions of one value accept more, such as `bytes.decode`."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):  # some functions in C have no signature
        return False
    needed = [
        each for each in parameters if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    return len(needed) == 3 and all(each.kind is not each.KEYWORD_ONLY for each in needed)
