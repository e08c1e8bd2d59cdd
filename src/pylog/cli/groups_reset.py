"""`pylog groups reset` and `import`: groups are set to other offsets, in all of Kafka's ways. Only --execute changes anything."""

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
    "beyond end": "{wanted} lies beyond the end of the log, which is taken",
    "before start": "{wanted} lies before the start of the log, which is taken",
    "no such time": "no record is that young: the end of the log is taken",
    "nothing committed": "nothing is committed: the end of the log is taken",
}
Execute = Annotated[bool, Parameter(name="--execute", show_default=False)]


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
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Sets what a group reads next. Shows the plan only, unless --execute is given.

    The group may have no members at work. One of the options --to-..., --by-duration, --shift-by and --from-file says where to.

    Args:
        store: the directory; with --execute no broker may be running on it.
        group: which.
        topic: a topic, or some of its partitions as in orders:0,1; may be repeated. By default all that it has committed for.
        to_earliest: to the start of each log.
        to_latest: to the end of each log.
        to_current: where it is; where nothing is committed, to the end of the log.
        to_offset: to this offset.
        to_datetime: to the first record of a time, such as 2024-01-31T17:00:00.000+01:00; UTC without a zone.
        by_duration: to the first record of so long ago, such as P1DT12H.
        shift_by: so many offsets forward, or back.
        from_file: as a file of `pylog groups export`, or of Kafka's tools, says.
        execute: do it.
        json: print one JSON document.

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
        raise UsageError("say once where to: --to-earliest, --to-offset, --shift-by … (`pylog groups reset --help` lists them)")
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
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Sets groups to the offsets in a file of `pylog groups export`, or of Kafka's tools. Shows the plan only, without --execute.

    Args:
        store: the directory; with --execute no broker may be running on it.
        file: lines of group,topic,partition,offset; or of topic,partition,offset together with --group.
        group: only this one.
        execute: do it.
        json: print one JSON document.

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
    """Topics and partitions from texts as Kafka's tools take them; None for none.

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
        rows = [_as_json(plan.group, each) for plan in plans for each in plan.partitions]
        print_json({"executed": execute, "partitions": rows})
    else:
        cells = [(plan.group, *each.partition, each.offset) for plan in plans for each in plan.partitions]
        sys.stdout.write(kafka_lines(_WIDTHS, [_TITLES, *cells]))
    for plan in plans:
        for each in plan.adjusted:
            why = _WHY[each.adjustment or ""].format(wanted=each.wanted)
            complain(f"{each.partition.topic}-{each.partition.partition}: {why}")
    if not execute:
        complain("nothing was changed; --execute does it")


def _as_json(group: str, each: PlannedOffset) -> dict[str, Any]:
    planned = {"offset": each.offset, "committed": each.committed, "wanted": each.wanted, "adjustment": each.adjustment}
    return {"group": group, **each.partition._asdict(), **planned}
