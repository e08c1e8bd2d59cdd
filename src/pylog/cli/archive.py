"""`pylog archive` and `pylog backup`: upload what an archive lacks of a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from pylog.cli.app import CARE, Flag, Json, StorePath, TopicScope, command
from pylog.cli.buckets import DEFAULT_BUCKET, Bucket
from pylog.cli.exits import FAILED, OK
from pylog.cli.output import Column, print_json, print_line, print_table, progress
from pylog.cli.stores import writing
from pylog.text import counted, counts_text

if TYPE_CHECKING:
    from pylog.archive.report import ArchiveReport

UrlOption = Annotated[str | None, Parameter(name="URL")]
_COLUMNS: Final = (
    Column("topic"),
    Column("partition", "number"),
    Column("start", "number"),
    Column("archived_end", "number"),
    Column("end", "number"),
    Column("segments", "number"),
    Column("bytes", "bytes"),
)


@command(CARE)
def archive(
    store: StorePath,
    url: UrlOption = None,
    /,
    *,
    topic: TopicScope = None,
    include_active: Flag = False,
    verify_uploads: Flag = False,
    take_over: Flag = False,
    rate_limit: float | None = None,
    bucket: Bucket = DEFAULT_BUCKET,
    json: Json = False,
) -> int:
    """Uploads to an object store what an archive lacks: sealed segments, committed offsets, the topics' options.

    Each run uploads only what is new, and an interrupted run is continued by the next one. Credentials come from the environment,
    as for the provider's own tools. Exit codes: 0 done, 1 a segment was left out because it is damaged, or a request failed.

    Args:
        store: Path of the log directory. No broker may be running on it.
        url: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///directory, or a path. Default: the URL of the
            first run.
        topic: Archive only this topic. May be repeated.
        include_active: Seal the active segments first, so that all records are archived.
        verify_uploads: Read each object again and compare it.
        take_over: Take over the archive of a directory that is no longer used: this one was moved or restored.
        rate_limit: Send at most this many megabytes per second.
        json: Print one JSON document.

    Examples:
        pylog archive shop s3://logs/shop --region eu-central-1
        pylog archive shop --include-active
        pylog archive shop /mnt/backup/shop --topic orders --rate-limit 50
    """
    options: dict[str, Any] = {"topics": topic, "include_active": include_active, "verify_uploads": verify_uploads}
    options |= {"take_over": take_over, "rate_limit": rate_limit}
    return _run(store, url, options, bucket, json=json)


@command(CARE)
def backup(
    store: StorePath,
    url: UrlOption = None,
    /,
    *,
    verify_uploads: Flag = False,
    take_over: Flag = False,
    rate_limit: float | None = None,
    bucket: Bucket = DEFAULT_BUCKET,
    json: Json = False,
) -> int:
    """Archives a whole directory, with the active segments: everything that is needed to restore it.

    The same as pylog archive --include-active. Each backup uploads only what is new.

    Args:
        store: Path of the log directory. No broker may be running on it.
        url: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///directory, or a path. Default: the URL of the
            first run.
        verify_uploads: Read each object again and compare it.
        take_over: Take over the archive of a directory that is no longer used: this one was moved or restored.
        rate_limit: Send at most this many megabytes per second.
        json: Print one JSON document.

    Examples:
        pylog backup shop s3://logs/shop
        pylog backup shop /mnt/backup/shop --verify-uploads
    """
    options = {"include_active": True, "verify_uploads": verify_uploads, "take_over": take_over, "rate_limit": rate_limit}
    return _run(store, url, options, bucket, json=json)


def _run(store: str, url: str | None, options: dict[str, Any], bucket: Bucket, *, json: bool) -> int:
    if options["rate_limit"] is not None:
        options["rate_limit"] *= 1e6
    with writing(store) as opened, progress("archiving") as shown:
        report = opened.archive(url, progress=lambda done, total, _: shown(done, total), **options, **bucket.access())
    if json:
        print_json(_document(report))
    else:
        _print(report)
    return OK if report.ok else FAILED


def _rows(report: ArchiveReport) -> list[dict[str, Any]]:
    return [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "start": each.start_offset,
            "archived_end": each.archived_end_offset,
            "end": each.end_offset,
            "segments": each.segments,
            "bytes": each.bytes,
        }
        for each in report.partitions
        if each.end_offset
    ]


def _print(report: ArchiveReport) -> None:
    counts = counts_text({"segment": report.segments, "byte": report.bytes})
    print_line(f"{report.url}: uploaded {counts}; not archived: {counted(report.not_archived, 'offset')}")
    rows = _rows(report)
    if rows:
        print_table(_COLUMNS, rows)
    for finding in report.findings:
        print_line(finding.message)


def _document(report: ArchiveReport) -> dict[str, Any]:
    return {
        "url": report.url,
        "ok": report.ok,
        "segments": report.segments,
        "bytes": report.bytes,
        "not_archived": report.not_archived,
        "seconds": report.seconds,
        "partitions": _rows(report),
        "findings": [finding._asdict() for finding in report.findings],
    }
