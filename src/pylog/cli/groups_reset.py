"""`pylog groups reset` and `import`: set the committed offsets of groups, in all of Kafka's ways, if --execute is given."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from pylog.cli.app import CONSUMERS, Flag, GroupName, Json, StorePath, TopicScope, command
from pylog.cli.exits import UsageError, complain
from pylog.cli.groups import groups, kafka_lines
from pylog.cli.offset_specs import parse_partitions
from pylog.cli.output import print_json
from pylog.cli.stores import reading, writing

if TYPE_CHECKING:
    from pylog.groups.admin import ResetPlan
    from pylog.groups.reset import PlannedOffset
    from pylog.store import Store

_TITLES: Final = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
_WIDTHS: Final = (30, 30, 10, 15)
_WHY: Final = {
    "beyond end": "{wanted} is past the end of the log; the end is used",
    "before start": "{wanted} is before the start of the log; the start is used",
    "in remote tier": "earlier offsets are in a broker's remote tier, which is not read here; the local log's start is used",
    "no such time": "no record has this or a later timestamp; the end of the log is used",
    "nothing committed": "no offset is committed; the end of the log is used",
}
ExecuteReset = Annotated[bool, Parameter(name="--execute", show_default=False)]


@command(CONSUMERS, under=groups)
def reset(
    store: StorePath,
    group: GroupName,
    /,
    *,
    topic: TopicScope = None,
    to_earliest: Flag = False,
    to_latest: Flag = False,
    to_current: Flag = False,
    to_offset: int | None = None,
    to_datetime: str | None = None,
    by_duration: str | None = None,
    shift_by: int | None = None,
    from_file: str | None = None,
    execute: ExecuteReset = False,
    json: Json = False,
) -> None:
    """Sets the committed offsets of a group. Without --execute, only shows the plan.

    The group must have no active members. Give exactly one of --to-..., --by-duration, --shift-by and --from-file.

    Args:
        store: Path of the log directory. With --execute, no broker may be running on it.
        group: Name of the group.
        topic: Name of a topic, or some of its partitions, such as orders:0,1. May be repeated. Default: all partitions for
            which the group has committed offsets.
        to_earliest: Set to the start of each log.
        to_latest: Set to the end of each log.
        to_current: Keep the committed offset; without one, set to the end of the log.
        to_offset: Set to this offset.
        to_datetime: Set to the first record at or after a time, such as 2024-01-31T17:00:00.000+01:00. Default time zone: UTC.
        by_duration: Set to the first record at or after a duration before now, such as P1DT12H.
        shift_by: Move by this number of offsets; a negative number moves back.
        from_file: Set to the offsets in a file of `pylog groups export` or of Kafka's tools.
        execute: Change the offsets.
        json: Print one JSON document.

    Examples:
        pylog groups reset shop billing --to-earliest
        pylog groups reset shop billing --topic orders:0,1 --shift-by -100 --execute
        pylog groups reset shop billing --to-datetime 2024-01-31T17:00:00.000
    """
    marks = {"earliest": to_earliest, "latest": to_latest, "current": to_current}
    wanted: list[tuple[str, Any]] = [("to", name) for name, given in marks.items() if given]
    wanted += [("to", given) for given in (to_offset, to_datetime) if given is not None]
    named = {"by_duration": by_duration, "shift_by": shift_by, "from_file": from_file}
    wanted += [(name, given) for name, given in named.items() if given is not None]
    if len(wanted) != 1:
        raise UsageError("give exactly one of --to-earliest, --to-offset, --shift-by … (`pylog groups reset --help` lists them)")
    with _opened(store, execute=execute) as opened:
        plan = opened.group(group).reset(**dict(wanted), scope=parse_scope(topic), dry_run=not execute)
    _print([plan], execute=execute, json=json)


@command(CONSUMERS, name="import", under=groups)
def import_groups(
    store: StorePath,
    file: Annotated[str, Parameter(name="FILE")],
    /,
    *,
    group: str | None = None,
    execute: ExecuteReset = False,
    json: Json = False,
) -> None:
    """Sets the committed offsets of groups from a file. Without --execute, only shows the plan.

    Args:
        store: Path of the log directory. With --execute, no broker may be running on it.
        file: File of `pylog groups export` or of Kafka's tools, with lines of group,topic,partition,offset. With --group, lines
            may be topic,partition,offset.
        group: Set only this group.
        execute: Change the offsets.
        json: Print one JSON document.

    Examples:
        pylog groups import shop offsets.csv
        pylog groups import shop billing.csv --group billing --execute
    """
    from pylog import import_offsets

    with _opened(store, execute=execute) as opened:
        if group is None:
            plans = import_offsets(opened, file, dry_run=not execute)
        else:
            plans = [opened.group(group).reset(from_file=file, dry_run=not execute)]
    _print(plans, execute=execute, json=json)


def _opened(path: str, *, execute: bool) -> Store:
    return writing(path) if execute else reading(path)


def parse_scope(given: Iterable[str] | None) -> list[str | tuple[str, int]] | None:
    """Parses topics and partitions in the syntax of Kafka's tools. Returns None if there are none.

    >>> parse_scope(["orders", "returns:0,2"])
    ['orders', ('returns', 0), ('returns', 2)]
    """
    found: list[str | tuple[str, int]] = []
    for text in given or ():
        topic, colon, numbers = text.partition(":")
        found += [(topic, number) for number in parse_partitions([numbers])] if colon else [topic]
    return found or None


def _print(plans: Sequence[ResetPlan], *, execute: bool, json: bool) -> None:
    if json:
        rows = [_as_json(plan.group_id, each) for plan in plans for each in plan.partitions]
        print_json({"executed": execute, "partitions": rows})
    else:
        cells = [(plan.group_id, *each.partition, each.offset) for plan in plans for each in plan.partitions]
        sys.stdout.write(kafka_lines(_WIDTHS, [_TITLES, *cells]))
    for plan in plans:
        for each in plan.adjusted:
            why = _WHY[each.adjustment or ""].format(wanted=each.wanted)
            complain(f"{each.partition.topic}-{each.partition.partition}: {why}")
    if not execute:
        complain("nothing was changed; give --execute to change the offsets")


def _as_json(group: str, each: PlannedOffset) -> dict[str, Any]:
    planned = {"offset": each.offset, "committed": each.committed, "wanted": each.wanted, "adjustment": each.adjustment}
    return {"group": group, **each.partition._asdict(), **planned}
