"""Decodes the JSON files of a log directory. Whatever is wrong with the bytes becomes one error of pylog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, TypeVar

import msgspec

from pylog import limits
from pylog.errors import PylogError

T = TypeVar("T")
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)  # ValueError: bytes that are no UTF-8

Offset = Annotated[int, msgspec.Meta(ge=0, le=limits.INT64_MAX)]  # and a position or a size in bytes
Count = Annotated[int, msgspec.Meta(ge=0, le=limits.INT32_MAX)]  # of a partition, or of records


class Versioned(msgspec.Struct, frozen=True):
    """The part that every version of a document has."""

    version: int


_VERSIONED: Final = msgspec.json.Decoder(Versioned)


def decoded(decoder: msgspec.json.Decoder[T], data: bytes, damaged: Callable[[str], PylogError]) -> T:
    """Decodes a document.

    Args:
        decoder: made at import. `msgspec.json.decode(type=...)` prepares a type at its first use and publishes it half-prepared:
            another thread that decodes at that moment crashes the process.
        data: the bytes of the file.
        damaged: makes the error from the reason.

    Raises:
        The error of `damaged`: the bytes are no document of this type.
    """
    try:
        return decoder.decode(data)
    except _UNREADABLE as error:
        raise damaged(str(error)) from error


def version_of(data: bytes, damaged: Callable[[str], PylogError]) -> int:
    """Returns the version of a document. Raises as `decoded`."""
    return decoded(_VERSIONED, data, damaged).version
