"""pylog: SQLite for event logs. Apache Kafka's storage engine as a library, over Kafka's own files.

    import pylog

    with pylog.open("shop") as store:
        store.create_topic("orders", partition_count=4)
        log = store.log("orders", 0)
        log.append(b"paid", key=b"42")
        for record in log.records():
            print(record.offset, record.key, record.value)

Importing this module is cheap: numba and pyarrow are imported when a store is opened.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pylog.errors import (
    ArchiveFencedError,
    ClosedError,
    CorruptionError,
    DecompressionLimitError,
    DirectoryReplacedError,
    FencedMemberError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTransactionStateError,
    InvalidTypeError,
    NonEmptyGroupError,
    NoOffsetForPartitionError,
    NotALogDirectoryError,
    ObjectConflictError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStoreError,
    ObjectStoreUnavailableError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    ProducerError,
    ProducerFencedError,
    PylogError,
    PylogTimeoutError,
    ReadOnlyError,
    RecordDeserializationError,
    RecordTooLargeError,
    StorageFailedError,
    StoreLockedError,
    SyncFailedError,
    TopicAlreadyExistsError,
    TransactionAbortedError,
    TransactionalIdNotFoundError,
    UnknownTopicOrPartitionError,
    UnreleasedInstanceIdError,
    UnsupportedFormatError,
    WakeupError,
)

if TYPE_CHECKING:
    from pylog.archive.sweeping import sweep
    from pylog.config import Durability, OffsetsConfig, TopicConfig, TransactionsConfig
    from pylog.consumer.consumer import Consumer
    from pylog.consumer.listener import ConsumerRebalanceListener
    from pylog.groups.admin import Group
    from pylog.log.log import Log
    from pylog.objects.kafka_tier import KafkaTier
    from pylog.offset_files import export_offsets, import_offsets
    from pylog.offsets.group_metadata import ConsumerGroupMetadata
    from pylog.offsets.store import OffsetStore
    from pylog.opening import open_store as open  # noqa: A004 - `pylog.open`, as with gzip and sqlite3's kin
    from pylog.producer.config import ProducerConfig
    from pylog.producer.future import FutureRecordMetadata, RecordMetadata
    from pylog.producer.producer import Producer
    from pylog.reading import read_batches, read_table
    from pylog.record.types import BatchMetadata, OffsetAndMetadata, OffsetAndTimestamp, ProducerBatch, Record, TopicPartition
    from pylog.restoring import restore
    from pylog.snapshot import Snapshot
    from pylog.store import Store
    from pylog.topics.topic import Topic
    from pylog.transactions.admin import TransactionAdmin
    from pylog.transactions.transaction import Transaction

__all__ = [
    "ArchiveFencedError",
    "BatchMetadata",
    "ClosedError",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "CorruptionError",
    "DecompressionLimitError",
    "DirectoryReplacedError",
    "Durability",
    "FencedMemberError",
    "FutureRecordMetadata",
    "Group",
    "GroupIdNotFoundError",
    "GroupSubscribedToTopicError",
    "IllegalStateError",
    "InconsistentGroupProtocolError",
    "InvalidArgumentError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionStateError",
    "InvalidTypeError",
    "KafkaTier",
    "Log",
    "NoOffsetForPartitionError",
    "NonEmptyGroupError",
    "NotALogDirectoryError",
    "ObjectConflictError",
    "ObjectExistsError",
    "ObjectNotFoundError",
    "ObjectStoreError",
    "ObjectStoreUnavailableError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "OffsetStore",
    "OffsetsConfig",
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
    "RecordDeserializationError",
    "RecordMetadata",
    "RecordTooLargeError",
    "Snapshot",
    "StorageFailedError",
    "Store",
    "StoreLockedError",
    "SyncFailedError",
    "Topic",
    "TopicAlreadyExistsError",
    "TopicConfig",
    "TopicPartition",
    "Transaction",
    "TransactionAbortedError",
    "TransactionAdmin",
    "TransactionalIdNotFoundError",
    "TransactionsConfig",
    "UnknownTopicOrPartitionError",
    "UnreleasedInstanceIdError",
    "UnsupportedFormatError",
    "WakeupError",
    "export_offsets",
    "import_offsets",
    "open",
    "read_batches",
    "read_table",
    "restore",
    "sweep",
]

__version__ = "0.1.0"

if sys.platform == "win32":
    raise ImportError("pylog runs on Linux and macOS; on Windows use WSL 2, and a directory inside it")
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        "pylog does not support free-threaded Python: its promises under threads and interrupts rest on the global interpreter "
        "lock. Use the ordinary build of Python, or start this one with PYTHON_GIL=1"
    )

_HOMES = {
    "Durability": "pylog.config",
    "OffsetsConfig": "pylog.config",
    "TopicConfig": "pylog.config",
    "TransactionsConfig": "pylog.config",
    "Transaction": "pylog.transactions.transaction",
    "TransactionAdmin": "pylog.transactions.admin",
    "Group": "pylog.groups.admin",
    "export_offsets": "pylog.offset_files",
    "import_offsets": "pylog.offset_files",
    "Consumer": "pylog.consumer.consumer",
    "ConsumerGroupMetadata": "pylog.offsets.group_metadata",
    "ConsumerRebalanceListener": "pylog.consumer.listener",
    "KafkaTier": "pylog.objects.kafka_tier",
    "Log": "pylog.log.log",
    "Snapshot": "pylog.snapshot",
    "FutureRecordMetadata": "pylog.producer.future",
    "RecordMetadata": "pylog.producer.future",
    "Producer": "pylog.producer.producer",
    "ProducerConfig": "pylog.producer.config",
    "BatchMetadata": "pylog.record.types",
    "OffsetAndMetadata": "pylog.record.types",
    "OffsetAndTimestamp": "pylog.record.types",
    "OffsetStore": "pylog.offsets.store",
    "ProducerBatch": "pylog.record.types",
    "Record": "pylog.record.types",
    "TopicPartition": "pylog.record.types",
    "Store": "pylog.store",
    "open": "pylog.opening",
    "read_batches": "pylog.reading",
    "read_table": "pylog.reading",
    "restore": "pylog.restoring",
    "sweep": "pylog.archive.sweeping",
    "Topic": "pylog.topics.topic",
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
