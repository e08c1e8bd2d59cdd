"""Arrow rows in the notation of the golden corpus, for comparison with what Kafka's consumer got."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch")
TYPE_NAMES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def rows(frames: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Arrow rows in the notation of the corpus."""
    for frame in frames:
        columns = frame.set_column(1, "timestamp", frame.column(1).view(pa.int64())).to_pydict()
        for values in zip(*columns.values(), strict=True):
            offset, timestamp, kind, key, value, headers, epoch = values
            yield {
                "offset": offset,
                "timestamp": timestamp,
                "timestampType": TYPE_NAMES[kind],
                "key": encoded(key),
                "value": encoded(value),
                "headers": [[header["key"], encoded(header["value"])] for header in headers],
                "leaderEpoch": None if epoch < 0 else epoch,
            }
