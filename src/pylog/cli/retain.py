"""`pylog retain`: deletes what retention does not keep, now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from pylog.cli.app import CARE, Flag, Json, StorePath, Yes, command
from pylog.cli.confirm import confirm
from pylog.cli.output import Column, print_json, print_line, print_table, size_text
from pylog.cli.stores import chosen_topics, logs_of, reading, writing
from pylog.clock import SystemClock

if TYPE_CHECKING:
    from pylog.store import Store
    from pylog.topics.topic import Topic

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
) -> None:
    """Deletes the segments that the topics' retention.ms, retention.bytes and retention.group do not keep.

    A topic that a broker made is kept for ever, as long as `pylog config` gives it no retention: what the broker was told is not
    known here.

    Args:
        store: the directory; no broker may be running on it, unless with --dry-run.
        topic: which; several may be named. All by default.
        dry_run: only show what would go.
        yes: do it without asking.
        json: print one JSON document.

    Examples:
        pylog retain shop --dry-run
        pylog retain shop orders --yes
    """
    now_ms = SystemClock().now_ms()
    with reading(store) as opened:
        rows = [row for each in chosen_topics(opened, topic or ()) for row in _due(opened, each, now_ms)]
    segments, size = sum(row["segments"] for row in rows), sum(row["bytes"] for row in rows)
    if not json:
        _show(rows)
    if rows and not dry_run:
        confirm(f"This deletes {segments} segments, {size_text(size)}, for good", yes=yes)
        with writing(store) as opened:
            for row in rows:
                log = opened.log(row["topic"], row["partition"])
                row["deleted"] = log.retain(now_ms, _committed(opened, log.config.retention_group, *log.partition))
    if json:
        print_json({"executed": not dry_run, "partitions": rows})
    elif rows and not dry_run:
        print_line(f"Deleted {sum(row['deleted'] for row in rows)} segments.")


def _due(store: Store, topic: Topic, now_ms: int) -> list[dict[str, Any]]:
    """A row for each partition that something goes from."""
    from pylog.log.trimming import decide

    rows = []
    for log in logs_of(store, topic):
        number, state = log.partition.partition, log.look()
        decision = decide(state, log.config, now_ms, _committed(store, log.config.retention_group, topic.name, number))
        going = [segment for _, segment in state.segments][: decision.count]
        if going:
            rows.append(
                {
                    "topic": topic.name,
                    "partition": number,
                    "segments": len(going),
                    "bytes": sum(map(state.size_of, going)),
                    "start_offset": state.start_offset,
                    "new_start_offset": decision.new_start_offset,
                    "reasons": ", ".join(sorted(set(decision.reasons))),
                }
            )
    return rows


def _committed(store: Store, group: str | None, topic: str, partition: int) -> int | None:
    """What the group that retention waits for has committed."""
    return None if group is None else store.offsets.position(group, (topic, partition))


def _show(rows: list[dict[str, Any]]) -> None:
    if rows:
        print_table(_COLUMNS, rows)
    else:
        print_line("Retention keeps everything that is there.")
