"""The data of the comparison with Spark's Kafka connector: small topics, each there for one thing that a reader could get wrong.

    write_topics(directory)      # the same bytes every time

pylog writes all of it, but for one compacted topic with transactions that a real broker wrote. A broker serves a copy to the
connector.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pylog
from pylog.clock import ManualClock
from support.golden.data import case
from support.reference.records import Batch, Record
from support.spark.connector_table import TIME

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KAFKAS_OWN = "compact-txn"

_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_ABORT, _COMMIT = 0, 1

Header = tuple[str, bytes | None]
Row = tuple[bytes | None, bytes | None, tuple[Header, ...], int]  # key, value, headers, timestamp


def write_topics(directory: Path) -> None:
    """Writes all topics into a new directory."""
    clock = ManualClock(TIME)
    with pylog.open(directory, clock=clock) as store:
        _write_orders(store)
        _write_codecs(store)
        _write_disordered(store)
        _write_compacted(store)
        _write_trimmed(store)
        _write_arrived(store, clock)
        store.create_topic("nothing", partition_count=2)
        store.create_topic("payments", partition_count=len(_PAYMENTS))
    _write_payments(directory)
    shutil.copytree(case("4.3.0", f"{KAFKAS_OWN}/after3").log_directory / f"{KAFKAS_OWN}-0", directory / f"{KAFKAS_OWN}-0")


def _row(number: int, headers: tuple[Header, ...] = (), *, key: str = "key", timestamp: int | None = None) -> Row:
    stamp = TIME + 1000 * number if timestamp is None else timestamp
    return f"{key} {number % 5}".encode(), b"value %d" % number, headers, stamp


def _write_orders(store: pylog.Store) -> None:
    """Partitions of different lengths, one of them empty; nulls, empty ones and headers."""
    store.create_topic("orders", partition_count=4)
    store.create_topic("orders-old", partition_count=1)
    store.log("orders", 0).append_many([_row(number) for number in range(8)])
    odd: list[Row] = [
        (None, b"no key", (), TIME + 8000),
        (b"tombstone", None, (), TIME + 9000),
        (None, None, (), TIME + 10_000),
        (
            b"",
            b"",
            (("", b""), ("null", None), ("twice", b"1"), ("twice", b"2"), ("gr\u00fc\u00dfe", b"\xff\x00")),
            TIME + 11_000,
        ),
    ]
    store.log("orders", 0).append_many(odd)
    store.log("orders", 1).append_many([_row(number, (("number", b"%d" % number),)) for number in range(7)])
    store.log("orders", 3).append_many([_row(0)])
    store.log("orders-old").append_many([_row(number) for number in range(5)])


def _write_codecs(store: pylog.Store) -> None:
    store.create_topic("codecs", partition_count=1)
    for number, codec in enumerate(CODECS):
        rows = [_row(at, (("codec", codec.encode()),)) for at in range(4 * number, 4 * number + 4)]
        store.log("codecs").append_many(rows, compression=codec)


def _write_disordered(store: pylog.Store) -> None:
    """Times that go back and forth, within batches and between them, over several segments; none is later than the eleventh."""
    store.create_topic("disordered", partition_count=1, segment_bytes=300, index_interval_bytes=0)
    seconds = [5, 3, 9, 1, 1, 2, 12, 4, 4, 20, 30, 0, 11, 13, 10, 25, 26, 24, 8, 7]
    rows = [_row(number, timestamp=TIME + 1000 * second) for number, second in enumerate(seconds)]
    for at in range(0, len(rows), 3):
        store.log("disordered").append_many(rows[at : at + 3])


def _write_compacted(store: pylog.Store) -> None:
    """Gaps at the beginning and in the middle: of each key only the last record is left, but for the active segment."""
    options = {"cleanup_policy": "compact", "segment_bytes": 400, "index_interval_bytes": 0, "delete_retention_ms": 1 << 40}
    store.create_topic("compacted", partition_count=1, **options)
    log = store.log("compacted")
    for at in range(0, 40, 4):
        keys = ["rare" if number == 9 else "often" for number in range(at, at + 4)]
        log.append_many([_row(number, key=key) for number, key in zip(range(at, at + 4), keys, strict=True)])
    store.compact("compacted")


def _write_trimmed(store: pylog.Store) -> None:
    """Logs that no longer begin at 0: one with records left, one with none."""
    store.create_topic("trimmed", partition_count=2)
    for partition, count, start in ((0, 20, 8), (1, 10, 10)):
        log = store.log("trimmed", partition)
        for at in range(0, count, 5):
            log.append_many([_row(number) for number in range(at, at + 5)])
        log.delete_records(start)


def _write_arrived(store: pylog.Store, clock: ManualClock) -> None:
    """LogAppendTime: three batches, ten seconds apart."""
    store.create_topic("arrived", partition_count=1, message_timestamp_type="LogAppendTime")
    for at in range(0, 6, 2):
        store.log("arrived").append_many([_row(number, timestamp=5) for number in (at, at + 1)])
        clock.advance(10_000)


# ---- transactions ----------------------------------------------------------------------------------------------------------

# Each partition as its batches: who writes (nobody: no transaction), and how many records or which marker.
_PAYMENTS: tuple[tuple[tuple[str, int | str], ...], ...] = (
    (
        ("a", 3), ("", 2), ("b", 2), ("a", "commit"), ("a", 2), ("b", "abort"),  # offsets 0, 3, 5, 7, 8, 10
        ("", 2), ("a", "abort"), ("b", 2), ("b", "commit"), ("", 2),  # offsets 11, 13, 14, 16, 17
    ),
    (("a", 2), ("a", "commit"), ("", 2), ("b", 2), ("", 2)),  # b's, at 5 and 6, stays open
    (("a", 2), ("a", "commit")),
    (("a", 2), ("a", "abort")),
)  # fmt: skip
_PRODUCERS = {"a": 1, "b": 2}


def _write_payments(directory: Path) -> None:
    """Logs as a broker leaves them behind a crash; pylog makes their indexes."""
    for partition, batches in enumerate(_PAYMENTS):
        log = directory / f"payments-{partition}" / f"{0:020d}.log"
        log.write_bytes(_batches(batches))
    (directory / ".kafka_cleanshutdown").unlink()
    with pylog.open(directory) as store:
        for partition, batches in enumerate(_PAYMENTS):
            assert store.log("payments", partition).end_offset == sum(1 if isinstance(what, str) else what for _, what in batches)


def _batches(batches: tuple[tuple[str, int | str], ...]) -> bytes:
    data, offset, sequences = b"", 0, dict.fromkeys(_PRODUCERS, 0)
    for writer, what in batches:
        stamp = TIME + 1000 * offset
        if isinstance(what, str):
            marker = Record(0, 0, struct.pack(">hh", 0, _COMMIT if what == "commit" else _ABORT), struct.pack(">hi", 0, 1))
            attributes = _TRANSACTIONAL | _CONTROL
            data += Batch([marker], offset, 0, attributes, stamp, None, _PRODUCERS[writer], 0).encoded()
            offset += 1
            continue
        records = [Record(at, 1000 * at, b"key", b"value %d" % (offset + at)) for at in range(what)]
        if writer:
            data += Batch(records, offset, 0, _TRANSACTIONAL, stamp, None, _PRODUCERS[writer], 0, sequences[writer]).encoded()
            sequences[writer] += what
        else:
            data += Batch(records, offset, 0, 0, stamp).encoded()
        offset += what
    return data
