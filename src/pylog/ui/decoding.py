"""Decodes keys, values and headers as the reader of a page asks for: text, JSON, hexadecimal digits, or a number."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from pylog.text import lines_text, shown
from pylog.ui.words import counted

AUTOMATIC: Final = ""  # JSON with indents where a whole record is shown, if it is JSON, else text
_LARGEST_JSON: Final = 1 << 20  # bytes of a document that is formatted
_SCHEMA_HEAD: Final = struct.Struct(">bI")  # of a registry's serializers: a zero byte, and the schema's id
_INTEGERS: Final = (1, 2, 4, 8)  # bytes
_FLOATS: Final = {4: ">f", 8: ">d"}


def as_text(data: bytes) -> str:
    """Returns text in lines, with escapes.

    >>> as_text(b"a\\tb\\n\\xff")
    'a\\\\tb\\n\\\\xff'
    """
    return "\n".join(shown(line) if line else "" for line in data.split(b"\n"))


def as_json(data: bytes, indent: int = 2) -> str | None:
    """Returns a JSON document with indents; None if it is none, too large or too deep. Names and numbers stay as written.

    >>> as_json(b'{"total": 1.10}', indent=0)
    '{"total": 1.10}'
    """
    if len(data) > _LARGEST_JSON:
        return None
    try:
        return lines_text(msgspec.json.format(data, indent=indent).decode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _as_integer(data: bytes) -> str | None:
    return str(int.from_bytes(data, "big", signed=True)) if len(data) in _INTEGERS else None


def _as_float(data: bytes) -> str | None:
    return str(struct.unpack(_FLOATS[len(data)], data)[0]) if len(data) in _FLOATS else None


def _as_schema(data: bytes) -> str | None:
    if len(data) < _SCHEMA_HEAD.size or data[0] != 0:
        return None
    _, number = _SCHEMA_HEAD.unpack_from(data)
    return f"schema {number}, {counted(len(data) - _SCHEMA_HEAD.size, 'byte')}: {shown(data[_SCHEMA_HEAD.size :])}"


_DECODERS: Final[Mapping[str, Callable[[bytes], str | None]]] = {
    "text": as_text,
    "json": as_json,
    "hex": lambda data: data.hex(" "),
    "base64": lambda data: base64.b64encode(data).decode(),
    "integer": _as_integer,
    "float": _as_float,
    "schema": _as_schema,
}
_SLICED: Final = ("text", "hex", "base64")  # forms of a beginning of the bytes
FORMS: Final[Mapping[str, str]] = {
    AUTOMATIC: "automatic",
    "text": "text",
    "json": "JSON",
    "hex": "hex",
    "base64": "base64",
    "integer": "integer",
    "float": "float",
    "schema": "schema id",
}


def decoded(data: bytes, form: str) -> str | None:
    """Returns a key, a value or that of a header in a form.

    Args:
        data: the bytes.
        form: a key of `FORMS`, except `AUTOMATIC`. Numbers are big-endian, as those of Kafka's serializers.

    Returns:
        The text, or None if the bytes are not of this form.

    >>> decoded(bytes([0, 0, 1, 0]), "integer"), decoded(b"abc", "integer"), decoded(b"abc", "hex")
    ('256', None, '61 62 63')
    >>> decoded(bytes([0, 0, 0, 0, 7]) + b"x", "schema")
    'schema 7, 1 byte: x'
    """
    return _DECODERS[form](data)


def decoded_beginning(data: bytes, form: str, most: int) -> str | None:
    """Returns the beginning of `decoded` on one line, with "…" if there is more.

    >>> decoded_beginning(b"abcdef", "hex", 2), decoded_beginning(b"[1]", "json", 2)
    ('61 62…', '[1…')
    """
    if form == "text":
        text: str | None = shown(data[:most])
    elif form == "json":
        text = as_json(data, indent=0)
    else:
        text = decoded(data[:most] if form in _SLICED else data, form)
    if text is None:
        return None
    return text if len(data) <= most else f"{text[: most if form not in _SLICED else None]}…"
