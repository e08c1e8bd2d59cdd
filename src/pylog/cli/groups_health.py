"""`pylog groups health`: a verdict on each group, for people, cron and CI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from pylog.cli.app import CONSUMERS, Json, StorePath, command
from pylog.cli.exits import FAILED, complain
from pylog.cli.groups import Faults, groups, no_such_group, print_faults
from pylog.cli.output import Column, print_json, print_table
from pylog.cli.stores import reading
from pylog.errors import PylogError
from pylog.text import counted
from pylog.times import time_text

if TYPE_CHECKING:
    from pylog.groups.health import Health, PartitionHealth

_COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", "number"),
    Column("verdict"),
    Column("lag", "number"),
    Column("records", "number"),
    Column("seconds", "number"),
    Column("trend"),
    Column("catch_up", "number"),
    Column("why"),
)


@command(CONSUMERS, under=groups)
def health(
    store: StorePath,
    group: Annotated[list[str] | None, Parameter(name="GROUP")] = None,
    /,
    *,
    window: str = "PT10M",
    fail_above: float | None = None,
    rules: str = "pylog",
    json: Json = False,
) -> int | None:
    """Judges groups by their commits and their logs: OK, WARN, DOOMED, REWIND, STALL, STOP, DAMAGED or LOST.

    No daemon and no earlier call is needed: the directory has the times of past commits. SECONDS is the age of the first unread
    record, CATCH UP the seconds until the group has read everything. Ends with code 1 if a group is not OK, for cron and CI.

    Args:
        store: Path of the log directory. A broker may be running on it.
        group: Names of groups. Default: all groups.
        window: How far back commits count, such as PT10M or PT1H. The last ten commits count in any case.
        fail_above: End with code 1 only if a lag is above this number of seconds, or a verdict is an error: not WARN or DOOMED.
        rules: "pylog", or "burrow" for the rules of Burrow.
        json: Print one JSON document.

    Examples:
        pylog groups health shop
        pylog groups health shop billing --fail-above 60
        pylog groups health shop --json
    """
    from pylog.groups.observer import GroupObserver, checked_window, healths
    from pylog.offsets.store import offset_manager_of
    from pylog.store import manager_of

    window_ms = checked_window(window)
    with reading(store) as opened:
        names, damaged = (list(dict.fromkeys(group)), {}) if group else opened.offsets.known_groups()
        faults: Faults = dict(damaged.items())
        observer = GroupObserver(manager_of(opened), offset_manager_of(opened.offsets), window_ms)
        found: list[Health] = []
        for name, judged in healths(observer, names, rules):
            if judged is None:
                raise no_such_group(name, store)
            if isinstance(judged, PylogError):
                faults[name] = judged
            else:
                found.append(judged)
        complete = not print_faults(opened, faults)
    _show(found, store, json=json, complete=complete)
    return None if complete and not any(_fails(each, fail_above) for each in found) else FAILED


def _fails(health: Health, fail_above: float | None) -> bool:
    """Returns whether a group makes the command fail."""
    if fail_above is None:
        return health.verdict != "OK"
    return health.verdict.is_error or health.lag_seconds > fail_above


def _show(found: list[Health], store: str, *, json: bool, complete: bool) -> None:
    if json:
        print_json({"groups": [_as_json(each) for each in found]})
    elif found:
        print_table(_COLUMNS, [_row(each.group_id, row) for each in found for row in each.partitions])
    elif complete:
        complain(f"no consumer groups in {store}")


def _row(group: str, row: PartitionHealth) -> dict[str, Any]:
    return {
        "group": group,
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "verdict": str(row.verdict),
        "lag": row.lag,
        "records": row.lag_records,
        "seconds": _rounded(row.lag_seconds),
        "trend": row.trend,
        "catch_up": _rounded(row.catch_up_seconds),
        "why": row.why
        if row.commit_count > 2 or not row.lag or row.lag < 0
        else f"{row.why} (only {counted(row.commit_count, 'commit')} known)",
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _as_json(health: Health) -> dict[str, Any]:
    return {
        "group": health.group_id,
        "verdict": str(health.verdict),
        "lag_seconds": health.lag_seconds,
        "partitions": [
            {
                **row.partition._asdict(),
                "verdict": str(row.verdict),
                "why": row.why,
                "offset": row.offset,
                "lag": row.lag,
                "lag_records": row.lag_records,
                "lag_seconds": row.lag_seconds,
                "trend": row.trend,
                "rate": row.rate,
                "catch_up_seconds": row.catch_up_seconds,
                "deleted_in_seconds": row.deleted_in_seconds,
                "since": time_text(row.since),
                "commit_count": row.commit_count,
            }
            for row in health.partitions
        ],
    }
