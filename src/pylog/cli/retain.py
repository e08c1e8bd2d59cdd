"""`pylog retain`: applies retention now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from pylog.cli.app import CARE, Flag, Json, StorePath, Yes, command
from pylog.cli.confirm import confirm
from pylog.cli.exits import FAILED
from pylog.cli.output import Column, print_json, print_line, print_table
from pylog.cli.stores import chosen_topics, each_answer, reading, writing
from pylog.clock import SystemClock
from pylog.text import counted, size_text

if TYPE_CHECKING:
    from pylog.log.maintenance.trimming import Retained

_COLUMNS = (
    Column("topic"),
    Column("partition", "number"),
    Column("segments", "number"),
    Column("bytes", "bytes"),
    Column("start_offset", "number"),
    Column("new_start_offset", "number"),
    Column("reasons"),
)


@command(CARE)
def retain(
    store: StorePath,
    topic: Annotated[list[str] | None, Parameter(name="TOPIC")] = None,
    /,
    *,
    dry_run: Flag = False,
    yes: Yes = False,
    json: Json = False,
) -> int | None:
    """Deletes the segments that the retention.ms, retention.bytes and retention.group of their topics no longer keep.

    pylog does not know the options that a broker gave its topics. It deletes nothing from a topic of a broker unless
    `pylog config` sets its retention. Exit code 1: a partition cannot be read, and keeps everything.

    Args:
        store: Path of the log directory. No broker may be running on it, except with --dry-run.
        topic: Names of topics. Default: all topics.
        dry_run: Only show which segments would be deleted.
        yes: Do not ask for confirmation.
        json: Print one JSON document.

    Examples:
        pylog retain shop --dry-run
        pylog retain shop orders --yes
    """
    now_ms = SystemClock().now_ms()
    with reading(store) as opened:
        keys = [(each.name, number) for each in chosen_topics(opened, topic or ()) for number in each.partition_ids]
        found, unreadable = each_answer(keys, lambda key: opened.retain(*key, now_ms=now_ms, dry_run=True))
    rows = [_row(plan) for plans in found for plan in plans]
    segments, size = sum(row["segments"] for row in rows), sum(row["bytes"] for row in rows)
    if not json:
        _show(rows)
    if rows and not dry_run:
        confirm(f"This deletes {counted(segments, 'segment')} ({size_text(size)}) permanently", yes=yes)
        with writing(store) as opened:
            for row in rows:
                done = opened.retain(row["topic"], row["partition"], now_ms=now_ms)
                row["deleted"] = sum(each.segments for each in done)
    if json:
        print_json({"executed": not dry_run, "partitions": rows})
    elif rows and not dry_run:
        print_line(f"Deleted {counted(sum(row['deleted'] for row in rows), 'segment')}.")
    return FAILED if unreadable else None


def _row(plan: Retained) -> dict[str, Any]:
    return {
        "topic": plan.partition.topic,
        "partition": plan.partition.partition,
        "segments": plan.segments,
        "bytes": plan.bytes,
        "start_offset": plan.start_offset,
        "new_start_offset": plan.new_start_offset,
        "reasons": ", ".join(sorted(set(plan.reasons))),
    }


def _show(rows: list[dict[str, Any]]) -> None:
    if rows:
        print_table(_COLUMNS, rows)
    else:
        print_line("Retention keeps all segments.")
