"""What records count in a producer's buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pylog.record.types import Header

RECORD_CHARGE: Final = 1024  # what a record counts at least
RECORD_OVERHEAD: Final = 256  # of a record: its future and the bytes objects


def charge(value: bytes | None, key: bytes | None, headers: Sequence[Header] | None) -> int:
    """How many bytes of the buffer a record takes.

    >>> charge(b"paid", None, None), charge(bytes(5000), b"42", [("source", b"web")])
    (1024, 5267)
    """
    size = RECORD_OVERHEAD + len(value or b"") + len(key or b"")
    for name, held in headers or ():
        size += len(name) + len(held or b"")
    return max(RECORD_CHARGE, size)
