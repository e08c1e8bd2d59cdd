"""Changes that append a record: a copy of another one, or a new one, whose form may begin with what another one has."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from pylog.directory.topic_names import INTERNAL_TOPICS
from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError
from pylog.record.types import Header, Record
from pylog.text import as_bytes, printable, shown, size_text
from pylog.topics.topic import Topic
from pylog.ui.planned import ChangePlan, ChangingStore, Fields, WindowChange, field_in, number_in
from pylog.ui.watch import Watch
from pylog.ui.words import counted

_NULL: Final = "null"
_LARGEST_FILLED: Final = 1 << 18  # bytes of a record that a form begins with


# ---- a copy ------------------------------------------------------------------------------------------------------------------


def _copied(read: Callable[[int], Record], fields: Fields) -> Record:
    """Returns the record to copy."""
    offset = number_in(fields, "offset")
    found = read(offset)
    if found.offset != offset:  # `read` gives the next one
        what = f"{printable(found.topic)}-{found.partition} has no record at offset {offset}"
        raise OffsetOutOfRangeError(f"{what}; the next one is at {found.offset}", offset=offset)
    return found


def _plan_copy(watch: Watch, fields: Fields) -> ChangePlan:
    topic, partition, to = field_in(fields, "topic"), number_in(fields, "partition"), field_in(fields, "to")
    found = _copied(watch.manager.log(topic, partition).read, fields)
    target = _target(watch, to)
    sentence = (
        f"This appends a copy of {printable(topic)}-{partition}@{found.offset} to topic {printable(target.name)!r}, in the "
        "partition of its key. Its timestamp is the time of the copy."
    )
    return ChangePlan(sentence, ("Part", "Copied"), _sizes(found.key, found.value, found.headers))


def _target(watch: Watch, name: str) -> Topic:
    if name in INTERNAL_TOPICS:
        raise InvalidArgumentError(f"{name} has records of Kafka's own; choose another topic")
    return watch.manager.topic(name)


def _sizes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> tuple[tuple[str, str], ...]:
    return ("key", _size(key)), ("value", _size(value)), ("headers", str(len(headers)))


def _size(data: bytes | None) -> str:
    return "null" if data is None else counted(len(data), "byte")


def _make_copy(store: ChangingStore, fields: Fields) -> str:
    topic, partition, to = field_in(fields, "topic"), number_in(fields, "partition"), field_in(fields, "to")
    found = _copied(store.log(topic, partition).read, fields)
    with store.producer() as producer:
        done = producer.send(to, found.value, key=found.key, headers=found.headers).result()
    return f"The record is copied to {printable(to)}-{done.partition}@{done.offset}."


# ---- a new record ------------------------------------------------------------------------------------------------------------


class TypedRecord(NamedTuple):
    """A record as a form has it. Without a partition, its key chooses one."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: list[Header]


def _filled(watch: Watch, fields: Fields) -> Fields:
    """Returns the fields of a new record: those of another one, which the link names."""
    return fields_of(_copied(watch.manager.log(field_in(fields, "topic"), number_in(fields, "partition")).read, fields))


def fields_of(found: Record) -> Fields:
    """Returns the fields of a form from which `new_record` makes the same key, value and headers.

    Raises:
        InvalidArgumentError: the record is too large, or has a header without a name and a value.
    """
    size = len(found.key or b"") + len(found.value or b"") + sum(len(name) + len(data or b"") for name, data in found.headers)
    if size > _LARGEST_FILLED:
        message = f"this record has {size_text(size)}, and a form has room for {size_text(_LARGEST_FILLED)}"
        raise InvalidArgumentError(f"{message}; copy it to a topic as it is, or append a changed one with `pylog produce`")
    if ("", None) in found.headers:
        raise InvalidArgumentError("this record has a header without a name and a value, which a form has no line for; copy it")
    headers = "\n".join(map(_line_of, found.headers))
    return {"to": found.topic, "number": "", "key": shown(found.key), "value": shown(found.value), "headers": headers}


def _line_of(header: Header) -> str:
    """Returns a header as a line: `name=value`, or the name alone for a null value."""
    name, data = header
    escaped = shown(name).replace("=", "\\x3d")
    return escaped if data is None else f"{escaped}={shown(data)}"


def _header_of(line: str) -> Header:
    name, equals, data = line.partition("=")
    try:
        return as_bytes(name).decode(), as_bytes(data) if equals else None
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"the header name {name[:100]!r} is not UTF-8") from error


def _part_of(fields: Fields, name: str) -> bytes | None:
    """Returns the bytes of a key or value. Browsers send the end of a line as two characters; it is one."""
    text = fields.get(name, "").replace("\r\n", "\n")
    return None if text == _NULL else as_bytes(text)


def new_record(fields: Fields) -> TypedRecord:
    """Returns the record of a form. Raises InvalidArgumentError if a field is wrong."""
    number = number_in(fields, "number") if fields.get("number", "").strip() else None
    headers = [_header_of(line) for line in re.split("\r?\n", fields.get("headers", "")) if line]
    return TypedRecord(field_in(fields, "to"), number, _part_of(fields, "key"), _part_of(fields, "value"), headers)


def _plan_append(watch: Watch, fields: Fields) -> ChangePlan:
    made = new_record(fields)
    topic = _target(watch, made.topic)
    if made.partition is not None and made.partition not in topic.partition_ids:
        raise InvalidArgumentError(f"topic {printable(topic.name)!r} has no partition {made.partition}")
    where = "the partition of its key" if made.partition is None else f"partition {made.partition}"
    sentence = f"This appends a record to topic {printable(topic.name)!r}, in {where}. Its timestamp is the time of the append."
    return ChangePlan(sentence, ("Part", "Appended"), _sizes(made.key, made.value, made.headers))


def _make_append(store: ChangingStore, fields: Fields) -> str:
    made = new_record(fields)
    with store.producer() as producer:
        done = producer.send(made.topic, made.value, made.key, made.headers, made.partition).result()
    return f"The record is {printable(made.topic)}-{done.partition}@{done.offset}."


RECORD_CHANGES: Final[Mapping[str, WindowChange]] = {
    "copy-record": WindowChange(
        "Copy a record",
        {"topic": "Topic", "partition": "Partition", "offset": "Offset", "to": "To topic"},
        _plan_copy,
        _make_copy,
    ),
    "append-record": WindowChange(
        "Append a new record",
        {
            "to": "Topic",
            "number": "Partition (empty: that of its key)",
            "key": "Key: text with escapes such as \\n and \\xff, or null",
            "value": "Value: the same",
            "headers": "Headers: name=value, one a line",
        },
        _plan_append,
        _make_append,
        optional=("number", "key", "value", "headers"),
        long=("key", "value", "headers"),
        filled=_filled,
    ),
}
