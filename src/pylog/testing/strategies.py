"""Hypothesis strategies for what pylog stores: records, batches of them, topics' options, and what is done to a log.

Needs the extra `test` (hypothesis). Shapes are small, and the sizes that make edges are frequent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pylog import limits
from pylog.record.types import Header

OPERATIONS = ("append", "append_many", "flush", "truncate", "delete_records", "reopen")

NewRecord = tuple[bytes | None, bytes | None, tuple[Header, ...], int]


class Step(NamedTuple):
    """Something that is done to a log.

    Attributes:
        name: one of `OPERATIONS`.
        records: what an append appends, each as `Log.append_many` takes it: key, value, headers, timestamp.
        durable: whether an append is to outlive a loss of power (`Durability.SYNC`).
        part: from 0 to 1, how far into the log a truncation or deletion reaches.
    """

    name: str
    records: tuple[NewRecord, ...] = ()
    durable: bool = True
    part: float = 0.0


def byte_strings(max_size: int = 300) -> SearchStrategy[bytes | None]:
    """Keys and values: absent, empty, short, and long enough to fill a small segment.

    Args:
        max_size: bytes.
    """
    sizes = st.sampled_from([0, 1, 7, max_size // 2, max_size])
    filled = st.builds(lambda size, fill: bytes([fill]) * size, sizes, st.integers(0, 255))
    return st.one_of(st.none(), st.binary(max_size=20), filled)


def headers() -> SearchStrategy[tuple[Header, ...]]:
    """The headers of a record; mostly none, also repeated names."""
    pair = st.tuples(st.text(max_size=8).filter(_encodable), st.one_of(st.none(), st.binary(max_size=8)))
    return st.one_of(st.just(()), st.lists(pair, max_size=3).map(tuple))


def _encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def timestamps() -> SearchStrategy[int]:
    """Milliseconds since 1970: some decades around now, and the ends of what is legal.

    A topic takes those of the future if its `message_timestamp_after_max_ms` allows them; `topic_configs` sets it.
    """
    return st.one_of(st.sampled_from([-1, 0, 1, 2**62]), st.integers(1_000_000_000_000, 2_000_000_000_000))


def records(max_size: int = 300) -> SearchStrategy[NewRecord]:
    """One record as `Log.append_many` takes it: (key, value, headers, timestamp).

    Args:
        max_size: of a value, in bytes.

    >>> from hypothesis import find
    >>> find(records(), lambda record: record[1] is not None)
    (None, b'', (), -1)
    """
    return st.tuples(byte_strings(20), byte_strings(max_size), headers(), timestamps())


def batches(max_records: int = 5, max_size: int = 300) -> SearchStrategy[list[NewRecord]]:
    """What one `append_many` appends: at least one record.

    Args:
        max_records: at most so many.
        max_size: of a value, in bytes.
    """
    return st.lists(records(max_size), min_size=1, max_size=max_records)


def topic_configs() -> SearchStrategy[dict[str, Any]]:
    """Options of `create_topic` under which a handful of records meets every edge: tiny segments, indexes of every batch.

    A batch of one record of the largest size that `records` makes by default fits into a segment.
    """
    return st.fixed_dictionaries(
        {
            "segment_bytes": st.sampled_from([512, 700, 2_000, 1 << 20]),
            "index_interval_bytes": st.sampled_from([0, 100, 4096]),
            "message_timestamp_after_max_ms": st.just(limits.INT64_MAX),  # `timestamps` are of the future too
        },
        optional={
            "compression_type": st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
            "max_message_bytes": st.sampled_from([600, 1 << 20]),
            "message_timestamp_type": st.sampled_from(["CreateTime", "LogAppendTime"]),
            "segment_ms": st.sampled_from([1, 1_000_000_000]),
        },
    )


def steps() -> SearchStrategy[Step]:
    """One step of a workload."""
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
    """What is done to one log, in order.

    Args:
        max_steps: at most so many.
    """
    return st.lists(steps(), min_size=1, max_size=max_steps)
