"""pylog: SQLite for event logs. Apache Kafka's storage engine as a library, over Kafka's own files.

    import pylog

    with pylog.open("shop") as store:
        store.create_topic("orders", partitions=4)
        log = store.log("orders", 0)
        log.append(b"paid", key=b"42")
        for record in log.records():
            print(record.offset, record.key, record.value)

Importing this module is cheap: numba and pyarrow are imported when a store is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylog.errors import (
    ClosedError,
    CorruptionError,
    DecompressionLimitError,
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTopicError,
    InvalidTransactionStateError,
    NotALogDirectoryError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    ProducerError,
    ProducerFencedError,
    PylogError,
    PylogTimeoutError,
    ReadOnlyError,
    RecordTooLargeError,
    StorageFailedError,
    StoreLockedError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedFormatError,
)

if TYPE_CHECKING:
    from pylog.config import Durability, TopicConfig
    from pylog.log.log import Log
    from pylog.producer.config import ProducerConfig
    from pylog.producer.future import FutureRecordMetadata, RecordMetadata
    from pylog.producer.producer import Producer
    from pylog.producer.sender import BatchMetadata
    from pylog.record.types import Acknowledgement, OffsetAndTimestamp, ProducerBatch, Record, TopicPartition
    from pylog.store import Store
    from pylog.store import open_store as open  # noqa: A004 - `pylog.open`, as with gzip and sqlite3's kin
    from pylog.topics import Topic

__all__ = [
    "Acknowledgement",
    "BatchMetadata",
    "ClosedError",
    "CorruptionError",
    "DecompressionLimitError",
    "Durability",
    "FutureRecordMetadata",
    "InvalidArgumentError",
    "InvalidRecordError",
    "InvalidTopicError",
    "InvalidTransactionStateError",
    "Log",
    "NotALogDirectoryError",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "Producer",
    "ProducerBatch",
    "ProducerConfig",
    "ProducerError",
    "ProducerFencedError",
    "PylogError",
    "PylogTimeoutError",
    "ReadOnlyError",
    "Record",
    "RecordMetadata",
    "RecordTooLargeError",
    "StorageFailedError",
    "Store",
    "StoreLockedError",
    "Topic",
    "TopicAlreadyExistsError",
    "TopicConfig",
    "TopicPartition",
    "UnknownTopicOrPartitionError",
    "UnsupportedFormatError",
    "open",
]

__version__ = "0.1.0"

_HOMES = {
    "Durability": "pylog.config",
    "TopicConfig": "pylog.config",
    "Log": "pylog.log.log",
    "FutureRecordMetadata": "pylog.producer.future",
    "RecordMetadata": "pylog.producer.future",
    "Producer": "pylog.producer.producer",
    "ProducerConfig": "pylog.producer.config",
    "BatchMetadata": "pylog.producer.sender",
    "Acknowledgement": "pylog.record.types",
    "OffsetAndTimestamp": "pylog.record.types",
    "ProducerBatch": "pylog.record.types",
    "Record": "pylog.record.types",
    "TopicPartition": "pylog.record.types",
    "Store": "pylog.store",
    "open": "pylog.store",
    "Topic": "pylog.topics",
}


def __getattr__(name: str) -> Any:
    """Imports what needs numba or pyarrow when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pylog' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), "open_store" if name == "open" else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
