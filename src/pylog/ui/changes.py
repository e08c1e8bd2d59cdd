"""Changes that the window can make if it may: each is planned, confirmed, and made in a store that is open for it alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pylog.errors import InvalidArgumentError, UnknownTopicOrPartitionError
from pylog.groups.admin import Group, ResetPlan, new_group
from pylog.text import printable, shown, size_text
from pylog.topics.topic import Topic
from pylog.transactions.admin import TransactionAdmin
from pylog.transactions.described import OpenTransactionDescription
from pylog.ui.planned import NUMBER, ChangePlan, ChangingStore, Fields, WindowChange, field_in, name_in, number_in
from pylog.ui.record_changes import RECORD_CHANGES
from pylog.ui.watch import Watch
from pylog.ui.words import count, counted

_SHIFT: Final = re.compile("[+-][0-9]{1,18}")


# ---- offsets of a group ------------------------------------------------------------------------------------------------------


def _reset(group: Group, fields: Fields, *, dry_run: bool) -> ResetPlan:
    to = field_in(fields, "to")
    topic = fields.get("topic", "").strip()
    scope = [topic] if topic else None
    if _SHIFT.fullmatch(to):
        return group.reset(shift_by=int(to), scope=scope, dry_run=dry_run)
    return group.reset(int(to) if NUMBER.fullmatch(to) else to, scope=scope, dry_run=dry_run)


def _known_group(watch: Watch, fields: Fields) -> str:
    name = name_in(fields, "group")
    if name not in watch.offsets.known_groups()[0]:
        raise InvalidArgumentError(f"there is no group {name!r} in {watch.manager.path}")
    return name


def _plan_reset(watch: Watch, fields: Fields) -> ChangePlan:
    name = _known_group(watch, fields)
    plan = _reset(new_group(name, watch.manager, watch.offsets, watch.manager.clock), fields, dry_run=True)
    rows = tuple(
        (f"{each.partition.topic}-{each.partition.partition}", each.committed, each.offset, each.adjustment or "")
        for each in plan.partitions
    )
    sentence = f"This sets the committed offsets of group {printable(name)!r} in {counted(len(rows), 'partition')}."
    return ChangePlan(sentence, ("Partition", "Committed", "New offset", "Adjusted"), rows)


def _make_reset(store: ChangingStore, fields: Fields) -> str:
    name = name_in(fields, "group")
    plan = _reset(store.group(name), fields, dry_run=False)
    return f"The offsets of group {printable(name)!r} are set in {counted(len(plan.partitions), 'partition')}."


def _plan_group(watch: Watch, fields: Fields) -> ChangePlan:
    name = _known_group(watch, fields)
    known = watch.offsets.fetch(name)
    rows = tuple((f"{topic}-{number}", each.offset) for (topic, number), each in sorted(known.items()))
    sentence = f"This deletes group {printable(name)!r} and its committed offsets permanently: {counted(len(rows), 'partition')}."
    return ChangePlan(sentence, ("Partition", "Committed"), rows, must_type=shown(name))


def _make_group(store: ChangingStore, fields: Fields) -> str:
    name = name_in(fields, "group")
    store.group(name).delete()
    return f"Group {printable(name)!r} is deleted."


# ---- records and topics ------------------------------------------------------------------------------------------------------


def _plan_records(watch: Watch, fields: Fields) -> ChangePlan:
    topic, partition, before = field_in(fields, "topic"), number_in(fields, "partition"), number_in(fields, "before")
    state = watch.manager.log(topic, partition).snapshot()
    if before > state.end_offset:
        raise InvalidArgumentError(f"before={before} is past the end of {topic}-{partition}, which is {state.end_offset}")
    deleted = max(0, before - state.start_offset)
    name = f"{printable(topic)}-{partition}"
    return ChangePlan(
        f"This deletes the records of {name} below offset {count(before)} permanently: {counted(deleted, 'offset')}."
    )


def _make_records(store: ChangingStore, fields: Fields) -> str:
    topic, partition = field_in(fields, "topic"), number_in(fields, "partition")
    start = store.log(topic, partition).delete_records(number_in(fields, "before"))
    return f"{printable(topic)}-{partition} now starts at offset {count(start)}."


def _plan_topic(watch: Watch, fields: Fields) -> ChangePlan:
    name = field_in(fields, "topic")
    topic: Topic = watch.manager.topic(name)
    states = [watch.manager.log(name, number).snapshot() for number in topic.partition_ids]
    offsets = sum(each.end_offset - each.start_offset for each in states)
    size = sum(each.size_of(segment) for each in states for _, segment in each.segments)
    what = f"{counted(topic.partition_count, 'partition')}, {counted(offsets, 'offset')}, {size_text(size)}"
    return ChangePlan(f"This deletes topic {printable(name)!r} and all of its records permanently: {what}.", must_type=name)


def _make_topic(store: ChangingStore, fields: Fields) -> str:
    name = field_in(fields, "topic")
    store.delete_topic(name)
    return f"Topic {printable(name)!r} is deleted."


# ---- transactions ------------------------------------------------------------------------------------------------------------


def _open_transaction(transactions: TransactionAdmin, fields: Fields) -> OpenTransactionDescription:
    topic, partition = field_in(fields, "topic"), number_in(fields, "partition")
    producer, start = number_in(fields, "producer"), number_in(fields, "start")
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
        optional=("topic",),
    ),
    "delete-group": WindowChange("Delete a group", {"group": "Group"}, _plan_group, _make_group),
    **RECORD_CHANGES,
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
