"""The three kinds of index files, as they come in through the door (`pylog.fs.kinds`). Needs no numba."""

from __future__ import annotations

from typing import Any, Final

from pylog import limits
from pylog.fs import FileKind
from pylog.index.layout import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from pylog.index.offset_index import OffsetIndex
from pylog.index.time_index import TimeIndex
from pylog.index.transaction_index import ENTRY_SIZE as TRANSACTION_ENTRY_SIZE
from pylog.index.transaction_index import TransactionIndex

_ADVICE: Final = "remove it, and it is created again from the records"


def most_bytes(entry: int, size: int) -> int:
    """Returns the most bytes of an index file: an entry for each batch of its segment, or what Kafka preallocates.

    Args:
        entry: bytes of an entry.
        size: bytes of the segment.

    >>> most_bytes(8, 0) == limits.LEAST_INDEX_LIMIT_BYTES
    True
    """
    return max(limits.LEAST_INDEX_LIMIT_BYTES, entry * (size // limits.LEAST_BATCH_BYTES + 2))


def _offsets(data: Any, _path: str, base_offset: int, log_size: int) -> tuple[OffsetIndex, bool]:
    return OffsetIndex.from_bytes(base_offset, data, log_size)


def _times(data: Any, _path: str, base_offset: int) -> tuple[TimeIndex, bool]:
    return TimeIndex.from_bytes(base_offset, data)


def _transactions(data: Any, _path: str, base_offset: int) -> tuple[TransactionIndex, bool]:
    return TransactionIndex.from_bytes(base_offset, data)


OFFSETS: Final = FileKind("an offset index", _offsets, lambda size: most_bytes(OFFSET_ENTRY_SIZE, size), _ADVICE)
TIMES: Final = FileKind("a time index", _times, lambda size: most_bytes(TIME_ENTRY_SIZE, size), _ADVICE)
TRANSACTIONS: Final = FileKind(
    "a transaction index", _transactions, lambda size: most_bytes(TRANSACTION_ENTRY_SIZE, size), _ADVICE
)
