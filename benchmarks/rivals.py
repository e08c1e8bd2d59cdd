"""Others who do the same work: two Python clients' encoders and decoders, SQLite, LMDB."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import google_crc32c
import lmdb
from aiokafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords  # type: ignore[import-untyped]
from kafka.record import MemoryRecords as KafkaPythonRecords  # type: ignore[import-untyped]
from kafka.record import MemoryRecordsBuilder, default_records

from benchmarks.data import FIRST_TIMESTAMP

BATCH_BYTES = 128 << 10
TRANSACTION = 1000

Pair = tuple[bytes, bytes]

# kafka-python looks for the package crc32c and without it hashes in Python, forty times slower. It gets the one that pylog has.
default_records.calc_crc32c = lambda data: google_crc32c.value(bytes(data))


# ---- Kafka's format --------------------------------------------------------------------------------------------------------


def encode_with_aiokafka(pairs: Sequence[Pair]) -> int:
    """Batches of 128 KiB, finished and with their CRC; returns their size."""
    size, delta, builder = 0, 0, _aiokafka_builder()
    for key, value in pairs:
        if builder.append(delta, FIRST_TIMESTAMP, key, value, []) is None:
            size += len(builder.build())
            builder, delta = _aiokafka_builder(), 0
            builder.append(delta, FIRST_TIMESTAMP, key, value, [])
        delta += 1
    return size + len(builder.build())


def _aiokafka_builder() -> DefaultRecordBatchBuilder:
    return DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, BATCH_BYTES)


def encode_with_kafka_python(pairs: Sequence[Pair]) -> int:
    """The same with kafka-python."""
    size, builder = 0, MemoryRecordsBuilder(2, 0, BATCH_BYTES)
    for key, value in pairs:
        if builder.append(FIRST_TIMESTAMP, key, value) is None:
            builder.close()
            size += len(builder.buffer())
            builder = MemoryRecordsBuilder(2, 0, BATCH_BYTES)
            builder.append(FIRST_TIMESTAMP, key, value)
    builder.close()
    return size + len(builder.buffer())


def decode_with_aiokafka(batches: Sequence[bytes]) -> int:
    """Checks each CRC, makes every record and reads its five fields; returns how many there were."""
    return _read_fields(_batches(AiokafkaRecords, batches))


def decode_with_kafka_python(batches: Sequence[bytes]) -> int:
    """The same with kafka-python."""
    return _read_fields(_batches(KafkaPythonRecords, batches))


def _batches(records: type, batches: Sequence[bytes]) -> Iterator[object]:
    for data in batches:
        reader = records(data)
        while reader.has_next():
            batch = reader.next_batch()
            assert batch.validate_crc()
            yield from batch


def _read_fields(records: Iterator[object]) -> int:
    count = 0
    for record in records:
        record.offset, record.timestamp, record.key, record.value, record.headers  # type: ignore[attr-defined] # noqa: B018
        count += 1
    return count


# ---- databases -------------------------------------------------------------------------------------------------------------


class Sqlite:
    """SQLite in WAL mode, synchronous=NORMAL: outlives the process; a power loss may take what came since a checkpoint."""

    name = "SQLite, WAL, 1,000 a transaction"
    durability = "process (WAL, synchronous=NORMAL)"

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=NORMAL",
            "CREATE TABLE events (offset INTEGER PRIMARY KEY, timestamp INTEGER, key BLOB, value BLOB)",
        ):
            self._connection.execute(statement)

    def write(self, pairs: Sequence[Pair]) -> None:
        insert = "INSERT INTO events (timestamp, key, value) VALUES (?, ?, ?)"
        for first in range(0, len(pairs), TRANSACTION):
            self._connection.execute("BEGIN")
            self._connection.executemany(insert, ((FIRST_TIMESTAMP, *pair) for pair in pairs[first : first + TRANSACTION]))
            self._connection.execute("COMMIT")

    def scan(self) -> int:
        return sum(1 for _ in self._connection.execute("SELECT offset, timestamp, key, value FROM events"))

    def get(self, number: int) -> object:
        query = "SELECT offset, timestamp, key, value FROM events WHERE offset = ?"
        return self._connection.execute(query, (number + 1,)).fetchone()

    def close(self) -> None:
        self._connection.close()


class Lmdb:
    """LMDB without sync: outlives the process, mostly not a power loss. A record's key is its offset; key and value together."""

    name = "LMDB, 1,000 a transaction"
    durability = "process (sync=False, writemap)"

    def __init__(self, path: Path) -> None:
        self._environment = lmdb.open(str(path), map_size=16 << 30, sync=False, writemap=True)

    def write(self, pairs: Sequence[Pair]) -> None:
        for first in range(0, len(pairs), TRANSACTION):
            with self._environment.begin(write=True) as transaction:
                for number, (key, value) in enumerate(pairs[first : first + TRANSACTION], first):
                    transaction.put(struct.pack(">q", number), key + value, append=True)

    def scan(self) -> int:
        with self._environment.begin() as transaction:
            return sum(1 for _ in transaction.cursor())

    def get(self, number: int) -> object:
        with self._environment.begin() as transaction:
            return transaction.get(struct.pack(">q", number))

    def close(self) -> None:
        self._environment.close()
