"""`pylog restore`: creates a directory from an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from pylog.cli.app import CARE, Flag, Json, TopicScope, command
from pylog.cli.buckets import DEFAULT_BUCKET, Bucket
from pylog.cli.exits import UsageError
from pylog.cli.output import Column, print_json, print_line, print_table, progress
from pylog.text import counted

if TYPE_CHECKING:
    from pylog.archive.restore_report import RestoreReport

_COLUMNS: Final = (
    Column("topic"),
    Column("partition", "number"),
    Column("start", "number"),
    Column("end", "number"),
    Column("not_archived", "number"),
    Column("bytes", "bytes"),
    Column("remote", "bytes"),
)


@command(CARE)
def restore(
    url: Annotated[str, Parameter(name="URL")],
    directory: Annotated[str, Parameter(name="DIRECTORY")],
    /,
    *,
    topic: TopicScope = None,
    as_of: str | None = None,
    hollow: Flag = False,
    old: str | None = None,
    bucket: Bucket = DEFAULT_BUCKET,
    json: Json = False,
) -> None:
    """Creates a directory from an archive: records, offsets and options as they were archived.

    All bytes are checked. An interrupted run is continued by the same command. The output has the offsets that were not archived.

    Args:
        url: URL or path of the archive.
        directory: The new directory: one that does not exist, is empty, or has an unfinished restore of the same archive.
        topic: Restore only this topic. May be repeated.
        as_of: Restore the archive as it was at this time, such as 2026-11-01T12:00 (UTC), or a duration before now, such as P1D.
        hollow: Leave the segments in the archive, which takes seconds for any size. The topics are tiered then.
        old: Path of the directory that was archived, if it still exists. Its log ends show what is missing.
        json: Print one JSON document.

    Examples:
        pylog restore s3://logs/shop shop
        pylog restore /mnt/backup/shop shop-of-november --as-of 2026-11-01T00:00
        pylog restore s3://logs/shop shop --hollow
        pylog restore s3://logs/shop shop --old /broken/shop --json
    """
    from pylog.restoring import restore as restored

    moment = None if as_of is None else _moment(as_of)
    with progress("restoring") as shown:
        report = restored(
            url,
            directory,
            topics=topic,
            as_of=moment,
            hollow=hollow,
            old=old,
            progress=lambda done, total, _: shown(done, total),
            **bucket.access(),
        )
    if json:
        print_json(_document(report))
    else:
        _print(report)


def _moment(text: str) -> int:
    from pylog.cli.offset_specs import parse_offset_spec
    from pylog.clock import SystemClock

    found = parse_offset_spec(text, SystemClock())
    if found.kind != "time":
        raise UsageError(f"--as-of {text!r} is not a time such as 2026-11-01T12:00:00")
    return found.value


def _rows(report: RestoreReport) -> list[dict[str, Any]]:
    return [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "start": each.start_offset,
            "end": each.end_offset,
            "not_archived": each.lost,
            "bytes": each.bytes,
            "remote": each.remote_bytes,
        }
        for each in report.partitions
        if each.end_offset or each.lost
    ]


def _print(report: RestoreReport) -> None:
    print_line(f"restored {report.url} to {report.path}; not archived: {counted(report.lost, 'offset')}")
    rows = _rows(report)
    if rows:
        print_table(_COLUMNS, rows)
    for each in report.lowered:
        name = f"{each.partition.topic}-{each.partition.partition}"
        print_line(f"group {each.group}: the offset {each.committed} of {name} was not archived; set to {each.end_offset}")


def _document(report: RestoreReport) -> dict[str, Any]:
    lowered = [
        {**each._asdict(), "topic": each.partition.topic, "partition": each.partition.partition} for each in report.lowered
    ]
    return {
        "url": report.url,
        "path": report.path,
        "archived_ms": report.archived_ms,
        "not_archived": report.lost,
        "partitions": _rows(report),
        "lowered": lowered,
    }
