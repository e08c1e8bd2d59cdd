"""Control records, which end transactions (storage-format 1.8). They are parsed here and never returned to users.

Types 2 to 6 belong to Kafka's metadata log; an ordinary partition has only ABORT and COMMIT. An unknown type is not an error:
Kafka ignores such records, and so does pylog.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pylog.errors import CorruptionError
from pylog.record.format import CONTROL_ABORT, CONTROL_COMMIT
from pylog.text import counted

__all__ = [
    "CONTROL_TYPE_NAMES",
    "ControlRecord",
    "control_type",
    "end_transaction_epoch",
    "end_transaction_record",
    "parse_control",
]

CONTROL_TYPE_NAMES: Final = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)
assert CONTROL_TYPE_NAMES[CONTROL_ABORT] == "ABORT"
assert CONTROL_TYPE_NAMES[CONTROL_COMMIT] == "COMMIT"

# A higher version is parsed as version 0: every later version begins with its fields.
_KEY: Final = struct.Struct(">hh")  # version, type
_END_TRANSACTION: Final = struct.Struct(">hi")  # version, coordinator epoch


class ControlRecord(NamedTuple):
    """The content of a control record.

    `coordinator_epoch` is None unless the record ends a transaction.

    >>> ControlRecord(1, 5).name, ControlRecord(99).name
    ('COMMIT', 'UNKNOWN')
    """

    type: int
    coordinator_epoch: int | None = None

    @property
    def name(self) -> str:
        """Kafka's name for the type."""
        return CONTROL_TYPE_NAMES[self.type] if 0 <= self.type < len(CONTROL_TYPE_NAMES) else "UNKNOWN"

    @property
    def ends_transaction(self) -> bool:
        """Whether the record commits or aborts a transaction."""
        return self.type in (CONTROL_ABORT, CONTROL_COMMIT)


def parse_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Parses a control record (storage-format 1.8.2, 1.8.3).

    Args:
        key: the record's key.
        value: the record's value; used only if the record ends a transaction.

    Returns:
        Its type and, if it ends a transaction, the coordinator's epoch.

    Raises:
        CorruptionError: the key, or the value of a record that ends a transaction, is too short or has a negative version.

    >>> parse_control(bytes.fromhex("00000001"), bytes.fromhex("000000000007"))
    ControlRecord(type=1, coordinator_epoch=7)
    """
    record = ControlRecord(control_type(key))
    return record._replace(coordinator_epoch=end_transaction_epoch(value)) if record.ends_transaction else record


def control_type(key: bytes | None) -> int:
    """Returns the type in a control record's key (storage-format 1.8.2).

    Args:
        key: the record's key.

    Returns:
        0 for ABORT, 1 for COMMIT; Kafka ignores other numbers in an ordinary partition.

    Raises:
        CorruptionError: the key is missing, shorter than 4 bytes, or has a negative version.

    >>> control_type(bytes.fromhex("00000000"))
    0
    """
    return _field(_KEY, key, "key")


def end_transaction_epoch(value: bytes | None) -> int:
    """Returns the coordinator's epoch in the value of a record that ends a transaction (storage-format 1.8.3).

    Args:
        value: the record's value.

    Returns:
        The epoch.

    Raises:
        CorruptionError: the value is missing, shorter than 6 bytes, or has a negative version.

    >>> end_transaction_epoch(bytes.fromhex("000000000007"))
    7
    """
    return _field(_END_TRANSACTION, value, "value")


def end_transaction_record(coordinator_epoch: int, *, committed: bool) -> tuple[bytes, bytes]:
    """Returns the key and value of a control record that ends a transaction (storage-format 1.8.2, 1.8.3).

    >>> [part.hex() for part in end_transaction_record(7, committed=True)]
    ['00000001', '000000000007']
    """
    return _KEY.pack(0, CONTROL_COMMIT if committed else CONTROL_ABORT), _END_TRANSACTION.pack(0, coordinator_epoch)


def _field(layout: struct.Struct, data: bytes | None, what: str) -> int:
    """Returns the field after the version."""
    if data is None or len(data) < layout.size:
        size = "no bytes" if data is None else counted(len(data), "byte")
        raise CorruptionError(f"a control record's {what} has {size}, fewer than the required {layout.size}")
    version, field = layout.unpack_from(data)
    if version < 0:
        raise CorruptionError(f"a control record's {what} has version {version}")
    return int(field)
