"""Hypothesis strategies for records, batches, options of topics, and operations on a log.

Requires the extra `test` (hypothesis). Values are small, and sizes at limits are frequent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pylog import limits
from pylog.record.types import Header

__all__ = ["batches", "headers", "records", "timestamps", "topic_configs"]

OPERATIONS = ("append", "append_many", "flush", "truncate", "delete_records", "reopen")

NewRecord = tuple[bytes | None, bytes | None, tuple[Header, ...], int]


class Step(NamedTuple):
    """An operation on a log.

    Attributes:
        name: one of `OPERATIONS`.
        records: records of an append, in the form of `Log.append_many`: key, value, headers, timestamp.
        durable: whether an append must survive a power loss (`Durability.SYNC`).
        part: where a truncation or deletion cuts, as a fraction of the log from 0 to 1.
    """

    name: str
    records: tuple[NewRecord, ...] = ()
    durable: bool = True
    part: float = 0.0


def _byte_strings(max_size: int = 300) -> SearchStrategy[bytes | None]:
    """Draws keys and values: None, empty, short, or long enough to fill a small segment.

    Args:
        max_size: maximal size in bytes.
    """
    sizes = st.sampled_from([0, 1, 7, max_size // 2, max_size])
    filled = st.builds(lambda size, fill: bytes([fill]) * size, sizes, st.integers(0, 255))
    return st.one_of(st.none(), st.binary(max_size=20), filled)


def headers() -> SearchStrategy[tuple[Header, ...]]:
    """Draws the headers of a record: often none, sometimes with repeated names."""
    pair = st.tuples(st.text(max_size=8).filter(_encodable), st.one_of(st.none(), st.binary(max_size=8)))
    return st.one_of(st.just(()), st.lists(pair, max_size=3).map(tuple))


def _encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def timestamps() -> SearchStrategy[int]:
    """Draws timestamps in milliseconds since 1970: decades around now, and the limits of the valid range.

    A topic accepts future timestamps if its `message_timestamp_after_max_ms` allows them, as in `topic_configs`.
    """
    return st.one_of(st.sampled_from([-1, 0, 1, 2**62]), st.integers(1_000_000_000_000, 2_000_000_000_000))


def records(max_size: int = 300) -> SearchStrategy[NewRecord]:
    """Draws a record in the form of `Log.append_many`: (key, value, headers, timestamp).

    Args:
        max_size: maximal size of a value, in bytes.

    >>> from hypothesis import find
    >>> find(records(), lambda record: record[1] is not None)
    (None, b'', (), -1)
    """
    return st.tuples(_byte_strings(20), _byte_strings(max_size), headers(), timestamps())


def batches(max_records: int = 5, max_size: int = 300) -> SearchStrategy[list[NewRecord]]:
    """Draws the records of one `append_many`: at least one.

    Args:
        max_records: maximal number of records.
        max_size: maximal size of a value, in bytes.
    """
    return st.lists(records(max_size), min_size=1, max_size=max_records)


def topic_configs() -> SearchStrategy[dict[str, Any]]:
    """Draws options of `create_topic` with which a few records reach every limit: tiny segments, an index entry per batch.

    A batch with one record of the largest default size of `records` fits into a segment.
    """
    return st.fixed_dictionaries(
        {
            "segment_bytes": st.sampled_from([512, 700, 2_000, 1 << 20]),
            "index_interval_bytes": st.sampled_from([0, 100, 4096]),
            "message_timestamp_after_max_ms": st.just(limits.INT64_MAX),  # `timestamps` has future ones too
        },
        optional={
            "compression_type": st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
            "max_message_bytes": st.sampled_from([600, 1 << 20]),
            "message_timestamp_type": st.sampled_from(["CreateTime", "LogAppendTime"]),
            "segment_ms": st.sampled_from([1, 1_000_000_000]),
        },
    )


def steps() -> SearchStrategy[Step]:
    """Draws a step of a workload."""
    return st.one_of(
        st.builds(
            lambda batch, durable: Step("append_many" if len(batch) > 1 else "append", tuple(batch), durable),
            batches(),
            st.booleans(),
        ),
        st.sampled_from([Step("flush"), Step("reopen")]),
        st.builds(lambda name, part: Step(name, part=part), st.sampled_from(["truncate", "delete_records"]), st.floats(0, 1)),
    )


def workloads(max_steps: int = 6) -> SearchStrategy[list[Step]]:
    """Draws the operations on one log, in order.

    Args:
        max_steps: maximal number of operations.
    """
    return st.lists(steps(), min_size=1, max_size=max_steps)
