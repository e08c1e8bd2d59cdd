"""Clients of other authors decode what pylog writes, and pylog decodes what they encode: kafka-python and aiokafka.

Both are pure readers and writers of batches here: no broker is involved.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pylog
from support.kafka.harness import Record
from support.kafka.interop_data import CODECS, NOW_MS, TOPICS, Row, read, row, rows_of, write_topics

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, on reading its own resources
    import aiokafka.codec
    import aiokafka.record.default_records
    import aiokafka.record.legacy_records
    import aiokafka.record.memory_records
    import kafka.codec
    import kafka.record.default_records
    import kafka.record.legacy_records
    import kafka.record.memory_records

LIBRARIES = {"kafka-python": kafka, "aiokafka": aiokafka}
NO_PRODUCER = {"is_transactional": False, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
CASES = tuple(TOPICS.values())


def has(library: ModuleType, codec: str) -> bool:
    """Whether the library's own codec module found what it needs."""
    return codec == "none" or getattr(library.codec, f"has_{codec}")()


def each_codec(magic: int) -> list[Any]:
    """The libraries with the codecs that they can encode. Neither writes the broken framing of magic 0's lz4."""
    known = {0: ("none", "gzip", "snappy"), 1: ("none", "gzip", "snappy", "lz4"), 2: CODECS}[magic]
    pairs = [(name, codec) for name, library in LIBRARIES.items() for codec in known if has(library, codec)]
    return [pytest.param(LIBRARIES[name], codec, id=f"{name}-{codec}") for name, codec in pairs]


def test_the_libraries_cover_every_codec() -> None:
    assert {codec for codec in CODECS if any(has(library, codec) for library in LIBRARIES.values())} == set(CODECS)


# ---- ours, decoded by them -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("ours") / "data"
    write_topics(directory)
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize("topic", CASES, ids=lambda topic: topic.name)
def test_their_decoder_reads_the_records_that_pylog_wrote(ours: Path, topic, library: ModuleType) -> None:
    for partition in range(topic.partitions):
        expected = {record.offset: record for record in topic.expected() if record.partition == partition}
        end = 0
        for batch in batches(library, ours / f"{topic.name}-{partition}"):
            assert batch.base_offset == end
            end = batch.next_offset
            assert batch.validate_crc()
            assert batch.magic == 2
            numbers = batch.producer_id, batch.producer_epoch, batch.base_sequence
            assert numbers == topic.numbers(partition, batch.base_offset)
            assert not batch.is_transactional
            assert not batch.is_control_batch
            wanted = [expected.pop(offset) for offset in range(batch.base_offset, end)]
            assert batch.max_timestamp == max(record.timestamp for record in wanted)
            if has(library, CODECS[batch.compression_type]):
                assert list(decoded(batch, partition)) == wanted
        assert expected == {}


def batches(library: ModuleType, directory: Path) -> Iterator[Any]:
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        found = library.record.memory_records.MemoryRecords(data)
        size = 0
        while (batch := found.next_batch()) is not None:
            size += 12 + struct.unpack_from(">i", data, size + 8)[0]
            yield batch
        assert size == len(data), "they stopped before the end of the file"


def decoded(batch: Any, partition: int) -> Iterator[Record]:
    for record in batch:
        kind = ("CreateTime", "LogAppendTime")[record.timestamp_type]
        headers = tuple((name, value) for name, value in record.headers)
        yield Record(partition, record.offset, record.timestamp, kind, record.key, record.value, headers, 0)


# ---- theirs, decoded by us -----------------------------------------------------------------------------------------------

FIRST, SECOND = 1000, 5_000_000_000  # where the two batches of each file begin: the second one leaves a gap
ROWS: tuple[Row, ...] = (
    *rows_of(60, size=200),
    row(b"", b""),
    row(None, b"tombstone"),
    row(b"null key", None),
    row(None, None),
    row(b"early", timestamp=NOW_MS - 5000),
    row(b"late", timestamp=NOW_MS + 500_000),
    row(bytes(100_000)),
)
WITH_HEADERS = (
    row(headers=[("again", b"1"), ("again", b"2"), ("null", None), ("empty", b""), ("", b"no name"), ("grüße 🗝", b"\xff\0")]),
    row(headers=[(f"many-{number}", b"%d" % number) for number in range(150)]),
)


def v2_batch(library: ModuleType, codec: str, rows: tuple[Row, ...], base: int, epoch: int, **producer: Any) -> bytes:
    """A batch of their encoder with the base offset and leader epoch that a broker would fill in."""
    builder = library.record.default_records.DefaultRecordBatchBuilder(
        magic=2, compression_type=CODECS.index(codec), batch_size=1 << 24, **(NO_PRODUCER | producer)
    )
    for number, (key, value, headers, timestamp) in enumerate(rows):
        assert builder.append(number, timestamp, key, value, list(headers)) is not None
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base)
    struct.pack_into(">i", data, 12, epoch)  # neither is covered by the CRC
    return bytes(data)


def legacy_messages(library: ModuleType, magic: int, codec: str, rows: tuple[Row, ...], base: int) -> bytes:
    """Messages of their encoder. What is compressed becomes one message, stamped with its last offset and latest time.

    Those inside count from 0 with magic 1, and have the log's offsets with magic 0.
    """
    builder = library.record.legacy_records.LegacyRecordBatchBuilder(
        magic=magic, compression_type=CODECS.index(codec), batch_size=1 << 24
    )
    first = 0 if magic == 1 and codec != "none" else base
    for number, (key, value, _, timestamp) in enumerate(rows):
        assert builder.append(first + number, timestamp, key, value, []) is not None
    data = bytearray(builder.build())
    if codec != "none":
        struct.pack_into(">q", data, 0, base + len(rows) - 1)
    if codec != "none" and magic == 1:
        struct.pack_into(">q", data, 18, max(timestamp or 0 for _, _, _, timestamp in rows))
        struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    return bytes(data)


def put(directory: Path, first: bytes, second: bytes) -> Path:
    """A log directory with one partition and nothing in it but `.log` files: a segment spans 2^31 offsets at most."""
    partition = directory / "theirs-0"
    partition.mkdir()
    for base, data in ((FIRST, first), (SECOND, second)):
        (partition / f"{base:020d}.log").write_bytes(data)
    return directory


def records(rows: tuple[Row, ...], base: int, kind: str = "CreateTime", epoch: int | None = None) -> list[Record]:
    """What must be read of rows at a base offset. Without a leader epoch they are of magic 0 or 1, and have no headers."""
    untimed, bare = kind == "NoTimestampType", epoch is None
    return [
        Record(0, base + number, -1 if untimed else timestamp, kind, key, value, () if bare else headers, epoch)
        for number, (key, value, headers, timestamp) in enumerate(rows)
    ]


def assert_pylog_reads(directory: Path, expected: list[Record]) -> None:
    with pylog.open(directory, mode="r") as store:
        log = store.log("theirs")
        assert (log.start_offset, log.end_offset) == (expected[0].offset, expected[-1].offset + 1)
        assert read(store, "theirs") == expected
        for record in expected[:: len(expected) // 20]:
            got = log.read(record.offset)
            assert (got.offset, got.timestamp, got.key, got.value) == (record.offset, record.timestamp, record.key, record.value)
            assert got.headers == record.headers
        latest = max(record.timestamp for record in expected)
        if latest >= 0:
            found = log.offset_for_timestamp(latest)
            assert found is not None
            assert found.offset == next(record.offset for record in expected if record.timestamp == latest)
        assert store.recovery_report == ()


@pytest.mark.parametrize(("library", "codec"), each_codec(2))
def test_pylog_reads_batches_of_their_encoder(library: ModuleType, codec: str, tmp_path: Path) -> None:
    rows = ROWS + WITH_HEADERS
    first, second = v2_batch(library, codec, rows, FIRST, epoch=3), v2_batch(library, codec, rows, SECOND, epoch=4)
    assert struct.unpack_from(">h", first, 21)[0] == CODECS.index(codec), "they compressed it"
    assert_pylog_reads(put(tmp_path, first, second), records(rows, FIRST, epoch=3) + records(rows, SECOND, epoch=4))


@pytest.mark.parametrize(("library", "codec"), each_codec(1))
def test_pylog_reads_messages_of_magic_1_of_their_encoder(library: ModuleType, codec: str, tmp_path: Path) -> None:
    first, second = (legacy_messages(library, 1, codec, ROWS, base) for base in (FIRST, SECOND))
    assert_pylog_reads(put(tmp_path, first, second), records(ROWS, FIRST) + records(ROWS, SECOND))


@pytest.mark.parametrize(("library", "codec"), each_codec(0))
def test_pylog_reads_messages_of_magic_0_of_their_encoder(library: ModuleType, codec: str, tmp_path: Path) -> None:
    first, second = (legacy_messages(library, 0, codec, ROWS, base) for base in (FIRST, SECOND))
    kind = "NoTimestampType"
    assert_pylog_reads(put(tmp_path, first, second), records(ROWS, FIRST, kind) + records(ROWS, SECOND, kind))


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
def test_pylog_reads_the_producer_that_their_encoder_wrote(library: ModuleType, tmp_path: Path) -> None:
    """Sequence numbers count up within a batch; what is transactional and never ended is hidden from committed reading."""
    idempotent = {"producer_id": 2**40, "producer_epoch": 7, "base_sequence": 2**31 - 2}
    transactional = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 5, "is_transactional": True}
    rows = rows_of(4)
    first = v2_batch(library, "gzip", rows, FIRST, 0, **idempotent)
    second = v2_batch(library, "none", rows, SECOND, 0, **transactional)
    with pylog.open(put(tmp_path, first, second), mode="r") as store:
        log = store.log("theirs")
        columns = ("producer_id", "producer_epoch", "sequence")
        got = [tuple(each.values()) for frame in log.scan(columns=columns) for each in frame.to_pylist()]
        sequences = [2**31 - 2, 2**31 - 1, 0, 1]  # they wrap to 0
        assert got == [(2**40, 7, number) for number in sequences] + [(9, 0, number) for number in range(5, 9)]
        assert log.stable_offset == SECOND
        assert [record.offset for record in log.records(isolation_level="read_committed")] == list(range(FIRST, FIRST + 4))
