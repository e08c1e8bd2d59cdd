"""The part of `kafka.vendor.six` that programs for kafka-python 2 use: Python 3's names for what was different in Python 2."""

from __future__ import annotations

import builtins
import io
import queue
import urllib
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

PY2: Final = False
PY3: Final = True
string_types: Final = (str,)
integer_types: Final = (int,)
class_types: Final = (type,)
text_type: Final = str
binary_type: Final = bytes
MAXSIZE: Final = 2**63 - 1
StringIO: Final = io.StringIO
BytesIO: Final = io.BytesIO
range = builtins.range  # noqa: A001 - the names of `six.moves`
xrange: Final = builtins.range
zip = builtins.zip  # noqa: A001
map = builtins.map  # noqa: A001
filter = builtins.filter  # noqa: A001
input = builtins.input  # noqa: A001

__all__ = [
    "MAXSIZE",
    "PY2",
    "PY3",
    "BytesIO",
    "StringIO",
    "b",
    "binary_type",
    "class_types",
    "ensure_binary",
    "ensure_str",
    "filter",
    "input",
    "integer_types",
    "iteritems",
    "iterkeys",
    "itervalues",
    "map",
    "next",
    "queue",
    "raise_from",
    "range",
    "string_types",
    "text_type",
    "u",
    "urllib",
    "with_metaclass",
    "xrange",
    "zip",
]
next = builtins.next  # noqa: A001


def iteritems(given: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Returns an iterator over the items of a mapping.

    Args:
        given: the mapping.

    >>> list(iteritems({"orders": 1}))
    [('orders', 1)]
    """
    return iter(given.items())


def iterkeys(given: Mapping[Any, Any]) -> Iterator[Any]:
    """Returns an iterator over the keys of a mapping.

    Args:
        given: the mapping.
    """
    return iter(given.keys())


def itervalues(given: Mapping[Any, Any]) -> Iterator[Any]:
    """Returns an iterator over the values of a mapping.

    Args:
        given: the mapping.
    """
    return iter(given.values())


def b(text: str) -> bytes:
    """Returns the bytes of a literal.

    Args:
        text: the literal, of characters up to 255.
    """
    return text.encode("latin-1")


def u(text: str) -> str:
    """Returns a literal unchanged.

    Args:
        text: the literal.
    """
    return text


def ensure_binary(given: str | bytes, encoding: str = "utf-8", errors: str = "strict") -> bytes:
    """Returns bytes.

    Args:
        given: text or bytes.
        encoding, errors: the text's encoding and errors.
    """
    return given.encode(encoding, errors) if isinstance(given, str) else given


def ensure_str(given: str | bytes, encoding: str = "utf-8", errors: str = "strict") -> str:
    """Returns text.

    Args:
        given: text or bytes.
        encoding, errors: the encoding and errors of the bytes.
    """
    return given if isinstance(given, str) else given.decode(encoding, errors)


def raise_from(error: BaseException, cause: BaseException | None) -> None:
    """Raises an error from another one.

    Args:
        error, cause: the two.
    """
    raise error from cause


def with_metaclass(meta: Callable[..., Any], *bases: type) -> Any:
    """Returns a base whose subclasses have a metaclass.

    Args:
        meta: the metaclass.
        bases: other bases.
    """
    return meta("NewBase", bases, {})
