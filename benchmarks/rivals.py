"""Others who speak Kafka's format: two Python clients' encoders and decoders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import google_crc32c
from aiokafka.record.default_records import DefaultRecordBatchBuilder  # type: ignore[import-untyped]
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords  # type: ignore[import-untyped]
from kafka.record import MemoryRecords as KafkaPythonRecords  # type: ignore[import-untyped]
from kafka.record import MemoryRecordsBuilder, default_records

from benchmarks.data import FIRST_TIMESTAMP

BATCH_BYTES = 128 << 10

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
