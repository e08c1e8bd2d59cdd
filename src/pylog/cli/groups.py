"""`pylog groups`: lists and describes consumer groups as Kafka's `kafka-consumer-groups` does (groups-and-transactions 8.2)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from pylog.cli.app import CONSUMERS, Flag, Json, StorePath, app, command
from pylog.cli.exits import FAILED, CommandFailed, UsageError, complain, print_stderr
from pylog.cli.output import MISSING, print_json
from pylog.cli.stores import reading
from pylog.cli.unopened import unopened_answer
from pylog.errors import PylogError
from pylog.text import counted, printable, shown

if TYPE_CHECKING:
    from pylog import Store
    from pylog.groups.description import GroupDescription, MemberDescription, PartitionDescription
    from pylog.unopened import UnopenedDirectory

groups: Final = App(
    name="groups",
    group=CONSUMERS,
    group_commands=CONSUMERS,
    help="Lists, describes, resets and deletes consumer groups; exports and imports committed offsets.",
)
app.command(groups)

Faults = dict[int | str | tuple[str, int], PylogError]  # by partition of __consumer_offsets, by group, or by another partition
_LEAST: Final = 15  # characters; minimal width of a column that grows with its content
_INSTANCE: Final = "GROUP-INSTANCE-ID"


def kafka_lines(widths: Sequence[int], rows: Iterable[Sequence[Any]]) -> str:
    """Formats a table as Kafka's tools print it: with a line end before each line, and one at the end.

    Args:
        widths: widths of the columns; 0 for no padding.
        rows: the cells; None becomes `-`.
    """
    lines = []
    for row in rows:
        cells = (MISSING if cell is None or cell == "" else shown(str(cell)) for cell in row)
        lines.append(" ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)))
    return "".join(f"\n{line}" for line in lines) + "\n"


def width_of(cells: Iterable[object], least: int = _LEAST) -> int:
    """Returns the width of a column: that of its longest cell, but at least `least`, as in Kafka's tools."""
    return max([least, *(len(shown(str(cell))) for cell in cells if cell is not None)])


# ---- list --------------------------------------------------------------------------------------------------------------------


@command(CONSUMERS, name="list", under=groups)
def list_groups(store: StorePath, /, *, state: Flag = False, type: Flag = False, json: Json = False) -> int | None:  # noqa: A002
    """Lists the consumer groups of a log directory, including those of Kafka's consumers.

    Args:
        store: Path of the log directory. A broker may be running on it.
        state: Print the state of each group.
        type: Print the type of each group: Classic, or Consumer (KIP-848).
        json: Print one JSON document.

    Examples:
        pylog groups list shop
        pylog groups list shop --state --type
    """
    seen = None if state or type or json else unopened_answer(store, _names)
    names, found, healthy = seen or [], [], True
    if seen is None:
        with reading(store) as opened:
            names, damaged = opened.offsets.known_groups()
            faults: Faults = dict(damaged.items())
            found = _described(opened, names, faults) if state or type or json else []
            healthy = not print_faults(opened, faults)
    if json:
        print_json({"groups": [{"group": each.group_id, "type": each.type, "state": each.state} for each in found]})
    elif found:
        sys.stdout.write(_list_table(found, state=state, type_=type))
    elif names:
        sys.stdout.writelines(f"{shown(name)}\n" for name in names)
    elif healthy:
        complain(f"no consumer groups in {store}")
    return None if healthy else FAILED


def _names(unopened: UnopenedDirectory) -> list[str] | None:
    from pylog.offsets.unopened import group_names

    return group_names(unopened)


def _described(opened: Store, names: Iterable[str], faults: Faults) -> list[GroupDescription]:
    """Describes groups. Adds groups and partitions that cannot be read to `faults`."""
    from pylog.groups.described import described_groups
    from pylog.offsets.store import offset_manager_of
    from pylog.store import manager_of

    found, unreadable = described_groups(manager_of(opened), offset_manager_of(opened.offsets), names)
    faults.update(unreadable.items())
    faults.update({name: each for name, each in found.items() if isinstance(each, PylogError)})
    return [each for each in found.values() if not isinstance(each, PylogError)]


def no_such_group(name: str, path: str) -> CommandFailed:
    """Returns the error of a group that does not exist.

    Args:
        name: the group.
        path: the log directory, as it was given.
    """
    return CommandFailed(f"there is no group '{name}'; list them: pylog groups list {path}")


def print_faults(opened: Store, faults: Faults) -> bool:
    """Prints on stderr which records of groups are damaged or skipped. Returns True if the output lacks any group."""
    from pylog.offsets.schema import OFFSETS_TOPIC

    for number, (count, first) in opened.offsets.skipped_records().items():
        examples = ", ".join(f"offset {offset} ({why})" for offset, why in first[:3])
        skipped = f"skipped {counted(count, 'record')} that Kafka does not write"
        print_stderr(f"{OFFSETS_TOPIC}-{number}: {skipped}; no group is affected: {examples}\n")
    for of_what, error in faults.items():
        print_stderr(f"{printable(_lacking(of_what))}: {printable(str(error))}\n")
    return bool(faults)


def _lacking(of_what: int | str | tuple[str, int]) -> str:
    from pylog.offsets.schema import OFFSETS_TOPIC

    if isinstance(of_what, tuple):
        return f"{of_what[0]}-{of_what[1]}: its end and the lags are unknown"
    return f"{OFFSETS_TOPIC}-{of_what}: its groups are missing" if isinstance(of_what, int) else f"group '{of_what}' is missing"


def _list_table(found: list[GroupDescription], *, state: bool, type_: bool) -> str:
    chosen = [("GROUP", "group_id"), *([("TYPE", "type")] if type_ else []), *([("STATE", "state")] if state else [])]
    rows = [[getattr(each, attribute) for _, attribute in chosen] for each in found]
    widths = [width_of(each.group_id for each in found) + 10, *[20] * (len(chosen) - 1)]
    return kafka_lines(widths, [[title for title, _ in chosen], *rows])[1:]


# ---- describe ----------------------------------------------------------------------------------------------------------------


@command(CONSUMERS, under=groups)
def describe(
    store: StorePath,
    group: Annotated[list[str] | None, Parameter(name="GROUP")] = None,
    /,
    *,
    members: Flag = False,
    state: Flag = False,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], show_default=False)] = False,
    json: Json = False,
) -> int | None:
    """Describes groups: committed offsets, lag and members. The columns are Kafka's.

    Args:
        store: Path of the log directory. A broker may be running on it.
        group: Names of groups. Default: all groups.
        members: Print the members instead of the offsets.
        state: Print the state instead of the offsets.
        verbose: With --members, print the assignment of each member.
        json: Print one JSON document with all of this.

    Examples:
        pylog groups describe shop billing
        pylog groups describe shop --members --verbose
        pylog groups describe shop --json
    """
    if members and state:
        raise UsageError("--members and --state print different tables; give one of them")
    with reading(store) as opened:
        names, damaged = (list(dict.fromkeys(group)), {}) if group else opened.offsets.known_groups()
        faults: Faults = dict(damaged.items())
        found = _described(opened, names, faults)
        _check_all_exist(group or (), found, faults, store)
        healthy = not print_faults(opened, faults)
    if json:
        print_json({"groups": [_as_json(each, faults) for each in found]})
        return None if healthy else FAILED
    if not found and healthy:
        complain(f"no consumer groups in {store}")
    for each in found:
        if not each.members:
            print_stderr(f"\nConsumer group '{printable(each.group_id)}' has no active members.\n")
        table = _members_table(each, verbose=verbose) if members else _state_table(each) if state else _offsets_table(each)
        sys.stdout.write(table)
    return None if healthy else FAILED


def _check_all_exist(names: Iterable[str], found: Iterable[GroupDescription], faults: Faults, path: str) -> None:
    described = {each.group_id for each in found}
    for name in names:
        if name not in described and name not in faults:
            raise no_such_group(name, path)


def _offsets_table(group: GroupDescription) -> str:
    rows = [_offset_row(group.group_id, each) for each in _in_kafkas_order(group)]
    titles = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
    columns = list(zip(*rows, strict=True)) or [()] * len(titles)
    widths = [width_of(columns[0]), width_of(columns[1]), 10, 15, 15, 15, width_of(columns[6]), width_of(columns[7]), 0]
    return kafka_lines(widths, [titles, *rows])


def _offset_row(group: str, each: PartitionDescription) -> list[Any]:
    reader = each.consumer
    of_reader = [None, None, None] if reader is None else [reader.member_id, reader.host, reader.client_id]
    return [group, each.partition.topic, each.partition.partition, each.offset, each.end_offset, each.lag, *of_reader]


def _in_kafkas_order(group: GroupDescription) -> list[PartitionDescription]:
    """Returns the partitions in Kafka's order: by member, the one with most partitions first; unassigned partitions last."""
    order = {member.member_id: -len(member.assignment) for member in group.members}
    assigned = [each for each in group.partitions if each.consumer is not None]
    assigned.sort(key=lambda each: (order[each.consumer.member_id], each.consumer.member_id) if each.consumer else (0, ""))
    return assigned + [each for each in group.partitions if each.consumer is None]


def _members_table(group: GroupDescription, *, verbose: bool) -> str:
    static = any(member.instance_id for member in group.members)
    titles = ["GROUP", "CONSUMER-ID", *([_INSTANCE] if static else []), "HOST", "CLIENT-ID", "#PARTITIONS"]
    titles += ["ASSIGNMENT"] if verbose else []
    rows = [_member_row(group.group_id, member, static=static, verbose=verbose) for member in group.members]
    columns = list(zip(*rows, strict=True)) or [()] * len(titles)
    leasts = [len(_INSTANCE) if title == _INSTANCE else _LEAST for title in titles]
    fixed = 2 if verbose else 1
    widths = [width_of(column, least) for column, least in zip(columns, leasts, strict=True)]
    return kafka_lines([*widths[:-fixed], _LEAST, *([0] if verbose else [])], [titles, *rows])


def _member_row(group: str, member: MemberDescription, *, static: bool, verbose: bool) -> list[Any]:
    row: list[Any] = [group, member.member_id, *([member.instance_id] if static else []), member.host, member.client_id]
    row.append(len(member.assignment))
    if verbose:
        numbers: dict[str, list[str]] = {}
        for partition in member.assignment:
            numbers.setdefault(partition.topic, []).append(str(partition.partition))
        row.append(", ".join(f"{topic}({','.join(parts)})" for topic, parts in numbers.items()))
    return row


def _state_table(group: GroupDescription) -> str:
    titles = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    row = [group.group_id, None, group.assignor, group.state, len(group.members)]
    return kafka_lines([width_of([group.group_id], 25), 25, 20, 15, 0], [titles, row])


def _as_json(group: GroupDescription, faults: Faults) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "target_epoch": group.target_epoch,
        "members": [_member_json(member) for member in group.members],
        "partitions": [_partition_json(each, faults.get(each.partition)) for each in group.partitions],
    }


def _member_json(member: MemberDescription) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "epoch": member.epoch,
        "assignment": [partition._asdict() for partition in member.assignment],
        "target": None if member.target is None else [partition._asdict() for partition in member.target],
    }


def _partition_json(each: PartitionDescription, error: PylogError | None) -> dict[str, Any]:
    return {
        **each.partition._asdict(),
        "offset": each.offset,
        "start_offset": each.start_offset,
        "end_offset": each.end_offset,
        "lag": each.lag,
        "leader_epoch": each.leader_epoch,
        "metadata": each.metadata,
        "member_id": None if each.consumer is None else each.consumer.member_id,
        "error": None if error is None else str(error),
    }
