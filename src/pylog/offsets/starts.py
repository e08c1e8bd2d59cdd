"""Commits of offset 0, for partitions that are new."""

from __future__ import annotations

from collections.abc import Iterable

from pylog.offsets.schema import format_offset, format_partition_key, offset_key
from pylog.record.types import TopicPartition
from pylog.replayed_partition import KeyValue


def start_items(group: bytes, partitions: Iterable[TopicPartition], now_ms: int) -> list[KeyValue]:
    """Returns the records that commit offset 0 of partitions. Opens no log: every log has that offset or had it."""
    return [(offset_key(group, format_partition_key(partition)), format_offset(0, b"", None, now_ms)) for partition in partitions]
