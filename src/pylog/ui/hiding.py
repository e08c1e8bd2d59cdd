"""Hides values: pages and files have their sizes instead. Keys, headers' names, times and offsets stay."""

from __future__ import annotations

from pylog.ui.search import FoundRecord
from pylog.ui.words import count


def hidden(row: FoundRecord) -> FoundRecord:
    """Returns a record without its value and those of its headers.

    >>> hidden(FoundRecord(0, 7, -1, b"k", b"secret", [("trace", b"7f")]))
    FoundRecord(partition=0, offset=7, timestamp=-1, key=b'k', value=b'hidden: 6 bytes', headers=[('trace', b'hidden: 2 bytes')])
    """
    return row._replace(value=_size(row.value), headers=[(name, _size(value)) for name, value in row.headers])


def _size(data: bytes | None) -> bytes | None:
    return None if data is None else f"hidden: {count(len(data))} bytes".encode()
