"""Reads and writes Kafka's primitive types, used in its internal topics (groups-and-transactions 0.3)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from pylog.errors import CorruptionError

Tags = tuple[tuple[int, bytes], ...]  # what later versions added to a structure: numbers, ascending, and bytes

Element = TypeVar("Element")

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_UUID_BYTES: Final = 16


@contextmanager
def parsing(what: str, topic: str = "__consumer_offsets") -> Iterator[None]:
    """Turns errors of bytes that cannot be read into a `CorruptionError` that names `what` and the internal topic."""
    try:
        yield
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise CorruptionError(f"{what} in {topic} does not parse: {error}") from error


class Reader:
    """Reads values one after the other.

    Attributes:
        flexible: sizes are those of the compact forms, and structures end with tagged fields.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.flexible = False

    def _number(self, layout: struct.Struct) -> int:
        (found,) = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return int(found)

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def _compact(self) -> int:
        """Reads an unsigned varint, of five bytes at most."""
        found = 0
        for shift in range(0, 35, 7):
            byte = self._data[self._position]
            self._position += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
        raise IndexError("a varint does not end")

    def _read_bytes(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise IndexError(f"{size} bytes are wanted at position {self._position} of {len(self._data)}")
        found = self._data[self._position : end]
        self._position = end
        return found

    def text(self) -> str:
        return self._read_bytes(self._compact() - 1 if self.flexible else self.int16()).decode()

    def optional_text(self) -> str | None:
        size = self._compact() - 1 if self.flexible else self.int16()
        return None if size < 0 else self._read_bytes(size).decode()

    def sized(self) -> bytes:
        return self._read_bytes(self._compact() - 1 if self.flexible else self.int32())

    def optional_sized(self) -> bytes | None:
        size = self._compact() - 1 if self.flexible else self.int32()
        return None if size < 0 else self._read_bytes(size)

    def array(self, item: Callable[[], Element]) -> list[Element]:
        found = self.optional_array(item)
        if found is None:
            raise IndexError("an array is null")
        return found

    def optional_array(self, item: Callable[[], Element]) -> list[Element] | None:
        count = self._compact() - 1 if self.flexible else self.int32()
        if count == -1:
            return None
        if not 0 <= count <= len(self._data):  # each takes a byte at least: no count of foreign bytes costs more than they do
            raise IndexError(f"an array of {count} items in {len(self._data)} bytes")
        return [item() for _ in range(count)]

    def int32s(self) -> tuple[int, ...]:
        """Reads an array of int32: as `array`, in a tenth of the time."""
        return self._numbers("i", _INT32.size)

    def int64s(self) -> tuple[int, ...]:
        """Reads an array of int64: as `array`, in a tenth of the time."""
        return self._numbers("q", _INT64.size)

    def _numbers(self, code: str, size: int) -> tuple[int, ...]:
        count = self._compact() - 1 if self.flexible else self.int32()
        return struct.unpack(f">{count}{code}", self._read_bytes(count * size)) if count else ()

    def uuid(self) -> bytes:
        return self._read_bytes(_UUID_BYTES)

    def tags(self) -> Tags:
        """Reads tagged fields, which only flexible structures have."""
        return tuple((self._compact(), self._read_bytes(self._compact())) for _ in range(self._compact() if self.flexible else 0))


class Writer:
    """Writes values one after the other.

    Args:
        flexible: write the compact forms, and tagged fields at the end of structures; else the classic forms, without them.

    Attributes:
        data: the bytes written.

    >>> write = Writer()
    >>> _ = write.int16(0).text("t").array([7], write.int32).tags(())
    >>> write.data.hex()
    '00000274020000000700'
    """

    def __init__(self, *, flexible: bool = True) -> None:
        self.data = bytearray()
        self._flexible = flexible

    def int8(self, value: int) -> Writer:
        self.data += _INT8.pack(value)
        return self

    def int16(self, value: int) -> Writer:
        self.data += _INT16.pack(value)
        return self

    def int32(self, value: int) -> Writer:
        self.data += _INT32.pack(value)
        return self

    def int64(self, value: int) -> Writer:
        self.data += _INT64.pack(value)
        return self

    def int32s(self, values: Collection[int]) -> Writer:
        """Writes an array of int32: as `array`, in a fraction of the time."""
        return self._numbers("i", values)

    def int64s(self, values: Collection[int]) -> Writer:
        """Writes an array of int64: as `array`, in a fraction of the time."""
        return self._numbers("q", values)

    def _numbers(self, code: str, values: Collection[int]) -> Writer:
        self._size(len(values), _INT32)
        self.data += struct.pack(f">{len(values)}{code}", *values)
        return self

    def _compact(self, value: int) -> None:
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def _size(self, size: int, classic: struct.Struct) -> None:
        """Writes a size, or a number of items; -1 for a null."""
        if self._flexible:
            self._compact(size + 1)
        else:
            self.data += classic.pack(size)

    def sized(self, value: bytes | None, classic: struct.Struct = _INT32) -> Writer:
        self._size(-1 if value is None else len(value), classic)
        self.data += value or b""
        return self

    def text(self, value: str | None) -> Writer:
        return self.sized(None if value is None else value.encode(), _INT16)

    def uuid(self, value: bytes) -> Writer:
        self.data += value
        return self

    def array(self, items: Collection[Element] | None, write: Callable[[Element], object]) -> Writer:
        self._size(-1 if items is None else len(items), _INT32)
        for item in items or ():
            write(item)
        return self

    def tags(self, tags: Tags) -> Writer:
        """Writes tagged fields, which only flexible structures have: the classic form loses them."""
        if not self._flexible:
            return self
        self._compact(len(tags))
        for number, value in tags:
            self._compact(number)
            self._compact(len(value))
            self.data += value
        return self
