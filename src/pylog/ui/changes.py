"""Changes that the window can make if it may: each is planned, confirmed, and made in a store that is open for it alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from pylog.directory.topic_names import INTERNAL_TOPICS
from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from pylog.groups.admin import Group, ResetPlan, new_group
from pylog.record.types import Record
from pylog.text import printable, size_text
from pylog.topics.topic import Topic
from pylog.transactions.admin import TransactionAdmin
from pylog.transactions.described import OpenTransactionDescription
from pylog.ui.watch import Watch
from pylog.ui.words import count, counted

if TYPE_CHECKING:
    from pylog.producer.producer import Producer

_SHIFT: Final = re.compile("[+-][0-9]{1,18}")
_NUMBER: Final = re.compile("[0-9]{1,19}")
_MARKS: Final = ("earliest", "latest", "current")


class ChangingLog(Protocol):
    """A partition of a store that is open for writing."""

    def delete_records(self, before: int) -> int: ...

    def read(self, offset: int) -> Record: ...


class ChangingStore(Protocol):
    """A store that is open for writing."""

    @property
    def transactions(self) -> TransactionAdmin: ...

    def log(self, topic: str, partition: int = 0) -> ChangingLog: ...

    def group(self, group_id: str) -> Group: ...

    def delete_topic(self, name: str) -> None: ...

    def producer(self) -> Producer[bytes, bytes]: ...


OpenForWriting = Callable[[], AbstractContextManager[ChangingStore]]
Fields = Mapping[str, str]


@dataclass(frozen=True)
class ChangePlan:
    """The effects of a change, before it is made.

    Attributes:
        sentence: what is done.
        titles, rows: details.
        must_type: text that must be typed to confirm; empty for none.
    """

    sentence: str
    titles: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()
    must_type: str = ""


@dataclass(frozen=True)
class WindowChange:
    """A change.

    Attributes:
        title: its page's title.
        fields: names with labels, of the form.
        plan: returns what it would do. Changes nothing.
        make: makes it, and returns what was done.
    """

    title: str
    fields: Mapping[str, str]
    plan: Callable[[Watch, Fields], ChangePlan]
    make: Callable[[ChangingStore, Fields], str]


def _field(fields: Fields, name: str) -> str:
    found = fields.get(name, "").strip()
    if not found:
        raise InvalidArgumentError(f"{name} is missing")
    return found


def _number(fields: Fields, name: str) -> int:
    text = _field(fields, name).replace(",", "")
    if not _NUMBER.fullmatch(text):
        raise InvalidArgumentError(f"{name}={text[:100]!r} is not a whole number")
    return int(text)


# ---- offsets of a group ------------------------------------------------------------------------------------------------------


def _reset(group: Group, fields: Fields, *, dry_run: bool) -> ResetPlan:
    to = _field(fields, "to")
    topic = fields.get("topic", "").strip()
    scope = [topic] if topic else None
    if _SHIFT.fullmatch(to):
        return group.reset(shift_by=int(to), scope=scope, dry_run=dry_run)
    return group.reset(int(to) if _NUMBER.fullmatch(to) else to, scope=scope, dry_run=dry_run)


def _plan_reset(watch: Watch, fields: Fields) -> ChangePlan:
    name = _field(fields, "group")
    if name not in watch.offsets.known_groups()[0]:
        raise InvalidArgumentError(f"there is no group {name!r} in {watch.manager.path}")
    plan = _reset(new_group(name, watch.manager, watch.offsets, watch.manager.clock), fields, dry_run=True)
    rows = tuple(
        (f"{each.partition.topic}-{each.partition.partition}", each.committed, each.offset, each.adjustment or "")
        for each in plan.partitions
    )
    sentence = f"This sets the committed offsets of group {printable(name)!r} in {counted(len(rows), 'partition')}."
    return ChangePlan(sentence, ("Partition", "Committed", "New offset", "Adjusted"), rows)


def _make_reset(store: ChangingStore, fields: Fields) -> str:
    name = _field(fields, "group")
    plan = _reset(store.group(name), fields, dry_run=False)
    return f"The offsets of group {printable(name)!r} are set in {counted(len(plan.partitions), 'partition')}."


def _plan_group(watch: Watch, fields: Fields) -> ChangePlan:
    name = _field(fields, "group")
    if name not in watch.offsets.known_groups()[0]:
        raise InvalidArgumentError(f"there is no group {name!r} in {watch.manager.path}")
    known = watch.offsets.fetch(name)
    rows = tuple((f"{topic}-{number}", each.offset) for (topic, number), each in sorted(known.items()))
    sentence = f"This deletes group {printable(name)!r} and its committed offsets permanently: {counted(len(rows), 'partition')}."
    return ChangePlan(sentence, ("Partition", "Committed"), rows, must_type=name)


def _make_group(store: ChangingStore, fields: Fields) -> str:
    name = _field(fields, "group")
    store.group(name).delete()
    return f"Group {printable(name)!r} is deleted."


# ---- one record --------------------------------------------------------------------------------------------------------------


def _copied(read: Callable[[int], Record], fields: Fields) -> Record:
    """Returns the record to copy."""
    offset = _number(fields, "offset")
    found = read(offset)
    if found.offset != offset:  # `read` gives the next one
        what = f"{printable(found.topic)}-{found.partition} has no record at offset {offset}"
        raise OffsetOutOfRangeError(f"{what}; the next one is at {found.offset}", offset=offset)
    return found


def _plan_copy(watch: Watch, fields: Fields) -> ChangePlan:
    topic, partition, to = _field(fields, "topic"), _number(fields, "partition"), _field(fields, "to")
    found = _copied(watch.manager.log(topic, partition).read, fields)
    if to in INTERNAL_TOPICS:
        raise InvalidArgumentError(f"{to} has records of Kafka's own; copy to another topic")
    target = watch.manager.topic(to)
    rows = (("key", _size(found.key)), ("value", _size(found.value)), ("headers", str(len(found.headers))))
    sentence = (
        f"This appends a copy of {printable(topic)}-{partition}@{found.offset} to topic {printable(target.name)!r}, in the "
        "partition of its key. Its timestamp is the time of the copy."
    )
    return ChangePlan(sentence, ("Part", "Copied"), rows)


def _size(data: bytes | None) -> str:
    return "null" if data is None else counted(len(data), "byte")


def _make_copy(store: ChangingStore, fields: Fields) -> str:
    topic, partition, to = _field(fields, "topic"), _number(fields, "partition"), _field(fields, "to")
    found = _copied(store.log(topic, partition).read, fields)
    with store.producer() as producer:
        done = producer.send(to, found.value, key=found.key, headers=found.headers).result()
    return f"The record is copied to {printable(to)}-{done.partition}@{done.offset}."


# ---- records and topics ------------------------------------------------------------------------------------------------------


def _plan_records(watch: Watch, fields: Fields) -> ChangePlan:
    topic, partition, before = _field(fields, "topic"), _number(fields, "partition"), _number(fields, "before")
    state = watch.manager.log(topic, partition).snapshot()
    if before > state.end_offset:
        raise InvalidArgumentError(f"before={before} is past the end of {topic}-{partition}, which is {state.end_offset}")
    deleted = max(0, before - state.start_offset)
    name = f"{printable(topic)}-{partition}"
    return ChangePlan(
        f"This deletes the records of {name} below offset {count(before)} permanently: {counted(deleted, 'offset')}."
    )


def _make_records(store: ChangingStore, fields: Fields) -> str:
    topic, partition = _field(fields, "topic"), _number(fields, "partition")
    start = store.log(topic, partition).delete_records(_number(fields, "before"))
    return f"{printable(topic)}-{partition} now starts at offset {count(start)}."


def _plan_topic(watch: Watch, fields: Fields) -> ChangePlan:
    name = _field(fields, "topic")
    topic: Topic = watch.manager.topic(name)
    states = [watch.manager.log(name, number).snapshot() for number in topic.partition_ids]
    offsets = sum(each.end_offset - each.start_offset for each in states)
    size = sum(each.size_of(segment) for each in states for _, segment in each.segments)
    what = f"{counted(topic.partition_count, 'partition')}, {counted(offsets, 'offset')}, {size_text(size)}"
    return ChangePlan(f"This deletes topic {printable(name)!r} and all of its records permanently: {what}.", must_type=name)


def _make_topic(store: ChangingStore, fields: Fields) -> str:
    name = _field(fields, "topic")
    store.delete_topic(name)
    return f"Topic {printable(name)!r} is deleted."


# ---- transactions ------------------------------------------------------------------------------------------------------------


def _open_transaction(transactions: TransactionAdmin, fields: Fields) -> OpenTransactionDescription:
    topic, partition = _field(fields, "topic"), _number(fields, "partition")
    producer, start = _number(fields, "producer"), _number(fields, "start")
    for each in transactions.find_open(topic, partition):
        if (each.producer_id, each.start_offset) == (producer, start):
            return each
    what = f"{printable(topic)}-{partition} has no open transaction of producer {producer} at offset {start}"
    raise UnknownTopicOrPartitionError(f"{what}; it may have ended meanwhile")


def _plan_end(watch: Watch, fields: Fields) -> ChangePlan:
    found = _open_transaction(watch.transactions, fields)
    where = f"{printable(found.topic_partition.topic)}-{found.topic_partition.partition}"
    whose = "which hangs" if found.is_hanging else f"which transactional id {printable(found.transactional_id or '')!r} has open"
    return ChangePlan(
        f"This aborts the transaction of producer {found.producer_id} at offset {found.start_offset} of {where}, {whose}."
    )


def _make_end(store: ChangingStore, fields: Fields) -> str:
    found = _open_transaction(store.transactions, fields)
    if found.is_hanging or found.transactional_id is None:
        store.transactions.end_hanging([found])
    else:
        store.transactions.abort(found.transactional_id)
    return f"The transaction of producer {found.producer_id} is aborted."


CHANGES: Final[Mapping[str, WindowChange]] = {
    "reset-offsets": WindowChange(
        "Set the offsets of a group",
        {"group": "Group", "topic": "Topic (empty: all)", "to": "To: earliest, latest, current, an offset, -100, or a time"},
        _plan_reset,
        _make_reset,
    ),
    "delete-group": WindowChange("Delete a group", {"group": "Group"}, _plan_group, _make_group),
    "copy-record": WindowChange(
        "Copy a record",
        {"topic": "Topic", "partition": "Partition", "offset": "Offset", "to": "To topic"},
        _plan_copy,
        _make_copy,
    ),
    "delete-records": WindowChange(
        "Delete records",
        {"topic": "Topic", "partition": "Partition", "before": "Before offset"},
        _plan_records,
        _make_records,
    ),
    "delete-topic": WindowChange("Delete a topic", {"topic": "Topic"}, _plan_topic, _make_topic),
    "end-transaction": WindowChange(
        "Abort a transaction",
        {"topic": "Topic", "partition": "Partition", "producer": "Producer id", "start": "First offset"},
        _plan_end,
        _make_end,
    ),
}
