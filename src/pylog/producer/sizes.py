"""The memory that a record counts for in a producer's buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pylog.record.types import Header

RECORD_CHARGE: Final = 1024  # bytes; the least that a record counts for
RECORD_OVERHEAD: Final = 256  # bytes of its future and of the bytes objects


def charge(value: bytes | None, key: bytes | None, headers: Sequence[Header] | None) -> int:
    """Returns the bytes of buffer memory that a record counts for.

    >>> charge(b"paid", None, None), charge(bytes(5000), b"42", [("source", b"web")])
    (1024, 5267)
    """
    size = RECORD_OVERHEAD + len(value or b"") + len(key or b"")
    for name, held in headers or ():
        size += len(name) + len(held or b"")
    return max(RECORD_CHARGE, size)
