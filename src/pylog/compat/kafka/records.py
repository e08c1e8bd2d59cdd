"""`ConsumerRecord`, and how records become some: straight from Arrow's columns, without a native record in between."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any, Final, NamedTuple

from pylog.compat.kafka.serializer import Call
from pylog.consumer.fetcher import TakeRecords
from pylog.consumer.partition import FetchBuffer, FetchedRecords
from pylog.consumer.reading import COLUMNS as NATIVE_COLUMNS
from pylog.errors import RecordDeserializationError
from pylog.record.records import header_tuples

COLUMNS: Final = (*NATIVE_COLUMNS, "timestamp_type")  # of each read, in the order of `_of_frame`


class _Fields(NamedTuple):
    topic: str
    partition: int
    leader_epoch: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]
    checksum: None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int


class ConsumerRecord(_Fields):
    """A record.

    Attributes:
        topic: the name of its topic.
        partition: the number of its partition.
        leader_epoch: its batch's leader epoch; -1 if unknown.
        offset: its number in the partition.
        timestamp: milliseconds since 1970; -1 if it has none.
        timestamp_type: 0 if the producer set it, 1 if the log did; from the record's batch.
        key: bytes, None, or what the deserializer returns.
        value: the same.
        headers: pairs of a name and bytes.
        checksum: None.
        serialized_key_size: bytes of the key; -1 without one.
        serialized_value_size: bytes of the value; -1 without one.
        serialized_header_size: bytes of names and values of the headers; -1 without headers.

    The records of a poll that have no headers share one empty list; a record gets a list of its own when `headers` is read. A
    list for each record would double the work of the garbage collector, which takes longer than all the rest of a poll.
    """

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """Pairs of a name and bytes."""
        return self[_HEADERS] or self.__dict__.setdefault("headers", [])

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a record cannot be changed: {name}")


_HEADERS: Final = 8  # the index of `headers`
_new: Any = tuple.__new__  # `ConsumerRecord._make` is a function of Python, and takes as long as all the rest


class ABCRecord(ABC):  # noqa: B024 - a name for annotations
    """kafka-python's base of decoded records, which programs name in annotations. A `ConsumerRecord` counts as one."""


ABCRecord.register(ConsumerRecord)


class RecordTooLargeError(Exception):
    """A record is larger than a fetch. kafka-python's class; nothing here raises it, because a fetch takes any record."""


def taking(key: Call | None, value: Call | None, note_size: Callable[[int], object] | None = None) -> TakeRecords:
    """Returns how a consumer takes records from its buffers.

    Args:
        key, value: the deserializers, or None.
        note_size: called with the bytes of keys and values that were taken.
    """

    def take(buffer: FetchBuffer, count: int) -> FetchedRecords:
        fetched = buffer.frame(count, COLUMNS)
        if not len(fetched.records):
            return fetched
        records = _of_frame(fetched.records, *buffer.partition, note_size)
        if key is None and value is None:
            return fetched._replace(records=records)
        done = _deserialized(records, key, value)
        if len(done) < len(records):  # the next call raises, at the record that cannot be read
            return FetchedRecords(done, records[len(done)].offset, fetched.leader_epoch)
        return fetched._replace(records=done)

    return take


def _of_frame(frame: Any, topic: str, partition: int, note_size: Callable[[int], object] | None) -> list[ConsumerRecord]:
    """Returns the rows of an Arrow batch of `COLUMNS` as records."""
    offset, stamp, key, value, header, epoch, kind = frame.columns
    keys, key_sizes, key_bytes = _with_sizes(key)
    values, value_sizes, value_bytes = _with_sizes(value)
    found = header_tuples(header)
    has_headers = not isinstance(found, repeat)
    pairs = list(map(list, found)) if has_headers else ()
    if note_size is not None:
        note_size(key_bytes + value_bytes)
    rows = zip(
        repeat(topic),
        repeat(partition),
        _each(epoch),
        offset.to_numpy().tolist(),
        stamp.view("int64").to_numpy().tolist(),
        _each(kind),
        keys,
        values,
        pairs if has_headers else repeat([]),
        repeat(None),
        key_sizes,
        value_sizes,
        map(_size, pairs) if has_headers else repeat(-1),
        strict=False,
    )
    return list(map(_new, repeat(ConsumerRecord), rows))


def _with_sizes(column: Any) -> tuple[Iterable[bytes | None], Iterable[int], int]:
    """Returns a column's bytes, the size of each, -1 for None, and their sum."""
    nulls = column.null_count
    if nulls == len(column):
        return repeat(None), repeat(-1), 0
    data = column.to_pylist()
    sizes = list(map(len, data)) if not nulls else [-1 if each is None else len(each) for each in data]
    return data, sizes, sum(sizes) + nulls


def _each(column: Any) -> Iterable[int]:
    """Returns the numbers of a column, which are mostly the same one."""
    numbers = column.to_numpy()
    first = numbers[0]
    return numbers.tolist() if (numbers != first).any() else repeat(int(first))


def _size(pairs: list[tuple[str, bytes | None]]) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in pairs) if pairs else -1


def _deserialized(records: list[ConsumerRecord], key: Call | None, value: Call | None) -> list[ConsumerRecord]:
    """Returns the records with deserialized keys and values, up to the first one that fails.

    Raises:
        RecordDeserializationError: the first record fails; the deserializer's own error is its cause.
    """
    done: list[ConsumerRecord] = []
    topic = records[0].topic
    try:
        for record in records:
            headers = record[_HEADERS] or []
            made_key = record.key if key is None else key(topic, headers, record.key)
            made_value = record.value if value is None else value(topic, headers, record.value)
            done.append(_new(ConsumerRecord, (*record[:6], made_key, made_value, *record[8:])))
    except Exception as error:
        if not done:
            message = f"a deserializer raised {type(error).__name__} for offset {records[0].offset}"
            raise RecordDeserializationError(message, offset=records[0].offset) from error
    return done
