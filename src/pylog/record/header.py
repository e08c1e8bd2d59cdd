"""Parses one batch's header without a kernel."""

from __future__ import annotations

from typing import Any

from pylog.record.format import CRC_UNCHECKED, HEADER, HEADER_SIZE, LOG_OVERHEAD


def header_column(head: Any, position: int) -> tuple[int, ...] | None:
    """Returns the column of the batch of magic 2 with these first bytes, at `position`; None if they cannot be one."""
    if len(head) < HEADER_SIZE:
        return None
    base, length, epoch, magic, crc, attributes, delta, first, largest, *numbers, count = HEADER.unpack(head)
    size = LOG_OVERHEAD + length
    if magic != 2 or size < HEADER_SIZE or not 0 <= base <= 1 << 62 or delta < 0 or not 0 <= count <= delta + 1:
        return None
    attributes &= 0xFFFF
    return (position, size, base, base + delta, count, first, largest, attributes, magic, epoch, *numbers, crc, CRC_UNCHECKED)
