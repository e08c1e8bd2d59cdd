"""`pylog transactions`: lists, describes and ends transactions, as `kafka-transactions.sh` does (transactions 13.9)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from pylog.cli.app import TRANSACTIONS, Flag, Json, StorePath, Yes, app, command
from pylog.cli.confirm import confirm
from pylog.cli.exits import FAILED, CommandFailed, UsageError, complain
from pylog.cli.output import MISSING, Column, print_facts, print_json, print_line, print_table
from pylog.cli.stores import chosen_topics, each_answer, reading, writing
from pylog.errors import TransactionalIdNotFoundError
from pylog.text import counted, shown
from pylog.times import rounded_duration_text, time_text

if TYPE_CHECKING:
    from pylog import Store, TransactionAdmin
    from pylog.transactions.described import OpenTransactionDescription, TransactionDescription

transactions: Final = App(
    name="transactions",
    group=TRANSACTIONS,
    group_commands=TRANSACTIONS,
    help="Lists, describes and aborts transactions, and finds hanging ones.",
)
app.command(transactions)

TransactionalIds = Annotated[list[str], Parameter(name="ID")]
TopicChosen = Annotated[str | None, Parameter(name=["--topic", "-t"])]
PartitionChosen = Annotated[int | None, Parameter(name=["--partition", "-p"])]

_TITLES: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
_HANGING: Final = (
    Column("topic"),
    Column("partition", "number"),
    Column("start_offset", "number"),
    Column("producer_id", "number"),
    Column("producer_epoch", "number", "epoch"),
    Column("last_append"),
    Column("transactional_id", title="id"),
)
_OWNERS: Final = {
    "alive": "a living process",
    "dead": "a process that has ended",
    "broker": "a client of a Kafka broker",
    "unknown": "unknown: the locks of the directory do not tell",
}


def kafka_table(rows: Sequence[Sequence[object]]) -> str:
    """Formats a table as Kafka's tool prints it: padded columns, with a tab after each.

    >>> kafka_table([("TransactionalId", "ProducerId"), ("billing", 7)])
    'TransactionalId\\tProducerId\\nbilling        \\t7\\n'
    """
    cells = [[MISSING if cell is None else shown(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["\t".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "".join(f"{line}\n" for line in lines)


@contextlib.contextmanager
def naming_ids(path: str) -> Iterator[None]:
    """Lets the error of an id that does not exist name the command that lists the ids.

    Args:
        path: the log directory, as it was given.
    """
    try:
        yield
    except TransactionalIdNotFoundError as error:
        hint = f"list them: pylog transactions list {path}"
        raise CommandFailed(str(error).replace("Store.transactions.list lists the ids", hint)) from error


# ---- list, describe ----------------------------------------------------------------------------------------------------------


@command(TRANSACTIONS, name="list", under=transactions)
def list_ids(store: StorePath, /, *, state: list[str] | None = None, json: Json = False) -> int | None:
    """Lists the transactional ids of a log directory, including those of Kafka's clients. The columns are Kafka's.

    Args:
        store: Path of the log directory. A broker may be running on it.
        state: Only ids in this state, such as Ongoing or PrepareCommit. May be repeated.
        json: Print one JSON document.

    Examples:
        pylog transactions list shop
        pylog transactions list shop --state Ongoing --state PrepareCommit
    """
    with reading(store) as opened:
        found, faults = opened.transactions.known(tuple(state or ()))
    for of_what, error in faults.items():
        complain(f"{'ids are' if isinstance(of_what, int) else f'id {of_what!r} is'} missing: {error}")
    if json:
        print_json({"transactions": [_as_json(each) for each in found]})
    elif found:
        rows = [(each.transactional_id, None, each.producer_id, each.state) for each in found]
        sys.stdout.write(kafka_table([_TITLES, *rows]))
    elif not faults:
        complain(f"no transactional ids{' in this state' if state else ''} in {store}")
    return FAILED if faults else None


@command(TRANSACTIONS, under=transactions)
def describe(store: StorePath, transactional_id: TransactionalIds, /, *, json: Json = False) -> None:
    """Describes transactional ids: state, producer, timeout, partitions, and whether the owner of an open transaction lives.

    Args:
        store: Path of the log directory. A broker may be running on it.
        transactional_id: One or more transactional ids.
        json: Print one JSON document.

    Examples:
        pylog transactions describe shop billing
    """
    with reading(store) as opened, naming_ids(store):
        found = [opened.transactions.describe(each) for each in transactional_id]
    if json:
        print_json({"transactions": [_as_json(each) for each in found]})
        return
    for number, each in enumerate(found):
        if number:
            print_line("")
        print_facts(_facts(each))


def _facts(found: TransactionDescription) -> dict[str, Any]:
    """Returns the columns of Kafka's tool, as lines."""
    duration = None if found.duration_ms is None else f"{found.duration_ms} ({rounded_duration_text(found.duration_ms)})"
    facts = {
        "TransactionalId": found.transactional_id,
        "ProducerId": found.producer_id,
        "ProducerEpoch": found.producer_epoch,
        "TransactionState": found.state,
        "TransactionTimeoutMs": found.timeout_ms,
        "TransactionStartTime": None if found.start_timestamp_ms is None else time_text(found.start_timestamp_ms),
        "LastUpdateTime": time_text(found.last_update_timestamp_ms),
        "TransactionDurationMs": duration,
        "TopicPartitions": ",".join(f"{each.topic}-{each.partition}" for each in found.partitions) or None,
    }
    return facts if found.owner is None else facts | {"Owner": _OWNERS[found.owner]}


def _as_json(found: TransactionDescription) -> dict[str, Any]:
    return asdict(found) | {"partitions": [each._asdict() for each in found.partitions]}


# ---- abort -------------------------------------------------------------------------------------------------------------------


@command(TRANSACTIONS, under=transactions)
def abort(
    store: StorePath,
    transactional_id: Annotated[str | None, Parameter(name="ID")] = None,
    /,
    *,
    fence: Flag = False,
    topic: TopicChosen = None,
    partition: PartitionChosen = None,
    start_offset: int | None = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Aborts the open transaction of an id, or a hanging transaction of a partition.

    A prepared transaction is completed instead: it is decided. A program that runs the transaction gets an error, and can begin
    another one.

    Args:
        store: Path of the log directory. No broker may be running on it.
        transactional_id: The transactional id.
        fence: Bar the running program from the id too; only a new instance can use it.
        topic: Topic of a hanging transaction, which has no id.
        partition: Partition of that topic.
        start_offset: First offset of the hanging transaction in that partition.
        yes: Do not ask for confirmation.
        json: Print one JSON document.

    Examples:
        pylog transactions abort shop billing
        pylog transactions abort shop --topic orders --partition 0 --start-offset 42
    """
    given = (topic, partition, start_offset)
    if transactional_id is not None and given == (None, None, None):
        _abort_id(store, transactional_id, fence=fence, yes=yes, json=json)
    elif transactional_id is None and topic is not None and partition is not None and start_offset is not None and not fence:
        _abort_at(store, topic, partition, start_offset, yes=yes, json=json)
    else:
        raise UsageError("give a transactional id, or --topic, --partition and --start-offset of a hanging transaction")


def _abort_id(store: str, transactional_id: str, *, fence: bool, yes: bool, json: bool) -> None:
    with reading(store) as opened, naming_ids(store):
        before = opened.transactions.describe(transactional_id)
    confirm(_plan(before, fence=fence), yes=yes)
    with writing(store) as opened, naming_ids(store):
        after = opened.transactions.abort(transactional_id, fence=fence)
    if json:
        print_json(_as_json(after))
    else:
        print_line(
            f"The transactional id '{transactional_id}' is in the state {after.state}, with the epoch {after.producer_epoch}."
        )


def _plan(found: TransactionDescription, *, fence: bool) -> str:
    what = f"the transactional id '{found.transactional_id}'"
    fenced = " and fences its running program" if fence else ""
    if found.state == "Ongoing":
        since = rounded_duration_text(found.duration_ms or 0)
        return f"This aborts the transaction of {what}, open for {since}, of {_OWNERS[found.owner or 'unknown']}{fenced}"
    if found.duration_ms is not None:
        return f"This completes the transaction of {what}, which is decided ({found.state}){fenced}"
    return f"This changes nothing: {what} has no open transaction" if not fence else f"This fences the running program of {what}"


def _abort_at(store: str, topic: str, partition: int, start_offset: int, *, yes: bool, json: bool) -> None:
    confirm(f"This aborts the hanging transaction at offset {start_offset} of {topic}-{partition}", yes=yes)
    with writing(store) as opened:
        found = _at(opened.transactions, store, topic, partition, start_offset)
        ended = opened.transactions.end_hanging([found])
    _show_ended(ended, json=json)


def _at(admin: TransactionAdmin, store: str, topic: str, partition: int, start_offset: int) -> OpenTransactionDescription:
    """Returns the hanging transaction with a first offset."""
    found = admin.find_open(topic, partition)
    chosen = next((each for each in found if each.start_offset == start_offset), None)
    if chosen is None:
        known = ", ".join(str(each.start_offset) for each in found)
        message = f"no transaction is open at offset {start_offset} of {topic}-{partition}"
        raise CommandFailed(f"{message}; open ones begin at {known}" if known else f"{message}, and none is open there")
    if not chosen.is_hanging:
        raise CommandFailed(
            f"the transaction at offset {start_offset} of {topic}-{partition} does not hang; end it by its id: "
            f"pylog transactions abort {store} {chosen.transactional_id}"
        )
    return chosen


# ---- hanging transactions ----------------------------------------------------------------------------------------------------


@command(TRANSACTIONS, under=transactions)
def hanging(
    store: StorePath,
    /,
    *,
    topic: TopicChosen = None,
    partition: PartitionChosen = None,
    max_transaction_timeout: float = 0,
    end: Flag = False,
    yes: Yes = False,
    json: Json = False,
) -> int | None:
    """Finds hanging transactions: open in a partition, while no transactional id has them open there.

    Readers with read_committed stop at them, and no broker ends them. Ends with code 1 if there are any, for cron and CI.
    Kafka's name of the command, find-hanging, works too.

    Args:
        store: Path of the log directory. A broker may be running on it, except with --end.
        topic: Only this topic.
        partition: Only this partition of the topic.
        max_transaction_timeout: Only those whose producer has appended nothing for this number of minutes.
        end: Abort the hanging transactions.
        yes: With --end, do not ask for confirmation.
        json: Print one JSON document.

    Examples:
        pylog transactions hanging shop
        pylog transactions hanging shop --topic orders --max-transaction-timeout 15
        pylog transactions hanging shop --end --yes
    """
    idle_ms = int(max_transaction_timeout * 60_000)
    with reading(store) as opened:
        found, complete = _found_hanging(opened, topic, partition, idle_ms)
    if not end or not found:
        return _show_hanging(found, store, json=json, complete=complete)
    aborted = ", ".join(f"offset {each.start_offset} of {_partition_of(each)}" for each in found)
    confirm(f"This aborts {counted(len(found), 'hanging transaction')}: {aborted}", yes=yes)
    with writing(store) as opened:
        ended = opened.transactions.end_hanging(found)
    _show_ended(ended, json=json)
    return None if complete else FAILED


def _found_hanging(
    opened: Store, topic: str | None, partition: int | None, idle_ms: int
) -> tuple[list[OpenTransactionDescription], bool]:
    """Returns the hanging transactions, and whether all partitions can be read. One that cannot be read hides no other."""
    find = opened.transactions.find_hanging
    if partition is not None:
        return find(topic, partition, idle_ms=idle_ms), True
    chosen = chosen_topics(opened, () if topic is None else (topic,))
    keys = [(each.name, number) for each in chosen for number in each.partition_ids]
    found, unreadable = each_answer(keys, lambda key: find(*key, idle_ms=idle_ms))
    return [one for each in found for one in each], not unreadable


def _show_hanging(found: list[OpenTransactionDescription], store: str, *, json: bool, complete: bool) -> int | None:
    if json:
        print_json({"hanging": [_open_json(each) for each in found]})
    elif found:
        rows = [
            asdict(each) | each.topic_partition._asdict() | {"last_append": time_text(each.last_timestamp_ms)} for each in found
        ]
        print_table(_HANGING, rows)
        complain(f"they can be aborted: pylog transactions hanging {store} --end")
    elif complete:
        complain(f"no hanging transactions in {store}")
    return FAILED if found or not complete else None


def _show_ended(ended: list[OpenTransactionDescription], *, json: bool) -> None:
    if json:
        print_json({"ended": [_open_json(each) for each in ended]})
        return
    for each in ended:
        print_line(
            f"{_partition_of(each)}: the transaction of producer {each.producer_id} at offset {each.start_offset} is aborted."
        )
    if not ended:
        complain("nothing was done: another process has ended them")


def _partition_of(found: OpenTransactionDescription) -> str:
    return f"{found.topic_partition.topic}-{found.topic_partition.partition}"


def _open_json(found: OpenTransactionDescription) -> dict[str, Any]:
    fields = asdict(found)
    del fields["topic_partition"]
    return found.topic_partition._asdict() | fields


# ---- settle ------------------------------------------------------------------------------------------------------------------


@command(TRANSACTIONS, under=transactions)
def settle(store: StorePath, /, *, json: Json = False) -> None:
    """Finishes the transactions that ended processes of pylog have left: completes decided ones, and aborts the others.

    Opening the directory for writing does the same, except in a broker's directory.

    Args:
        store: Path of the log directory. No broker may be running on it.
        json: Print one JSON document.

    Examples:
        pylog transactions settle shop
    """
    with reading(store) as opened:
        before = _undecided(opened.transactions)
    with writing(store) as opened:
        opened.transactions.settle()
        after = _undecided(opened.transactions)
    finished = sorted(before - after)
    if json:
        print_json({"finished": finished, "open": sorted(after)})
    elif finished:
        print_line(f"Finished the transactions of {', '.join(finished)}.")
    else:
        complain(f"no transaction had to be finished in {store}")


def _undecided(admin: TransactionAdmin) -> set[str]:
    return {each.transactional_id for each in admin.known()[0] if each.duration_ms is not None}
