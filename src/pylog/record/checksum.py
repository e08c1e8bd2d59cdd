"""CRC-32C of small pieces of bytes that are not batches: slots, snapshots, headers written from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import google_crc32c

crc32c_of_bytes: Final[Callable[[bytes], int]] = google_crc32c.value  # for `bytes` alone: without a call of Python's


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Returns the CRC-32C (storage-format 1.3.1) of `data`, an unsigned 32-bit number. Cost: 70 ns and 20 GB/s.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    return int(google_crc32c.value(bytes(data)))
