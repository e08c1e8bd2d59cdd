"""`pylog verify`: finds damage in a log directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pylog.cli.app import CARE, Flag, Json, command
from pylog.cli.buckets import DEFAULT_BUCKET, Bucket
from pylog.cli.exits import FAILED, OK, UsageError, complain
from pylog.cli.output import Column, print_json, print_line, print_table, progress
from pylog.text import counted, counts_text

if TYPE_CHECKING:
    from pylog.tools.verify import Affected, Verification

_COLUMNS: Final = (
    Column("kind"),
    Column("file"),
    Column("position", "number"),
    Column("bytes", "bytes"),
    Column("first_offset", "number"),
    Column("last_offset", "number"),
)


@command(CARE)
def verify(
    path: str,
    /,
    *,
    records: Flag = False,
    rate_limit: float | None = None,
    deep: Flag = False,
    orphans: Flag = False,
    bucket: Bucket = DEFAULT_BUCKET,
    json: Json = False,
) -> int:
    """Reads all files and prints any damage, the offsets that are lost, and what to do next.

    For an archive (a URL), it checks that each object exists and has the right size.

    The command changes nothing and takes no lock. It works while a broker is running, and on read-only media. Exit codes: 0 no
    damage, 1 damage, 2 the command line is wrong, 3 something could not be read.

    Args:
        path: Path of a log directory, of one partition's directory, or of one .log file, whose batches alone are checked. Or
            the URL of an archive: s3://bucket/prefix, gs://…, az://…, or file:///directory.
        records: Also parse each record, which decompresses all batches.
        rate_limit: Read at most this many megabytes per second.
        deep: For an archive: read all objects and compare their checksums.
        orphans: For an archive: list objects that no manifest names, as a crash leaves them.
        json: Print one JSON document with a verdict for each file.

    Examples:
        pylog verify shop
        pylog verify /var/lib/kafka/data --json | jq '.affected[]'
        pylog verify /var/lib/kafka/data/orders-0 --rate-limit 100
        pylog verify s3://logs/shop --deep
    """
    from pylog.cli.stores import note_links
    from pylog.errors import NotALogDirectoryError, StorageFailedError
    from pylog.tools.verify import UNREADABLE
    from pylog.tools.verify import verify as verified
    from pylog.urls import is_url

    if is_url(path):
        if records or rate_limit is not None:
            raise UsageError("--records and --rate-limit are for directories; of an archive, --deep reads all bytes")
        return _verify_archive(path, bucket, deep=deep, orphans=orphans, json=json)
    if deep or orphans:
        raise UsageError(f"--deep and --orphans are for archives; {path} is a path: write file:// before it if it is an archive")
    limit = None if rate_limit is None else rate_limit * 1e6
    try:
        with progress("verifying") as report:
            found = verified(path, records=records, rate_limit=limit, progress=lambda done, total, _: report(done, total))
    except (NotALogDirectoryError, StorageFailedError) as error:
        complain(str(error))
        return UNREADABLE
    note_links(path)
    if json:
        print_json(_document(found))
    else:
        _print(found)
    return found.exit_code


def _verify_archive(url: str, bucket: Bucket, *, deep: bool, orphans: bool, json: bool) -> int:
    from pylog.archive.verifying import verify_archive
    from pylog.objects.opening import open_objects

    with progress("verifying") as shown:
        objects = open_objects(url, **bucket.access())
        found = verify_archive(objects, deep=deep, orphans=orphans, progress=lambda done, total, _: shown(done, total))
    if json:
        names = [each.key for each in found.orphans]
        print_json({**found._asdict(), "ok": found.ok, "findings": [each._asdict() for each in found.findings], "orphans": names})
        return OK if found.ok else FAILED
    counts = counts_text({"partition": found.partitions, "segment": found.segments, "byte": found.bytes})
    print_line(f"{'no damage found' if found.ok else 'damage found'}: {counts}")
    for each in found.findings:
        print_line(each.message)
    for orphan in found.orphans:
        print_line(f"no manifest names {orphan.key}: {counted(orphan.size, 'byte')}")
    return OK if found.ok else FAILED


def _print(found: Verification) -> None:
    report = found.report
    counts = counts_text({"segment": report.segments, "batch": report.batches, "record": report.records, "byte": report.bytes})
    print_line(f"{'no damage found' if found.ok else 'damage found'}: {counts}")
    if found.affected:
        print_line("")
        print_table(_COLUMNS, [_row(each) for each in found.affected])
    for each in found.affected:
        print_line("")
        print_line(each.finding.message)
        print_line(f"  {each.advice}")
    for readable in found.readable:
        ranges = ", ".join(f"{first} to {last}" for first, last in readable.ranges) or "nothing"
        print_line("")
        print_line(f"{readable.directory}: readable offsets: {ranges}")


def _row(each: Affected) -> dict[str, Any]:
    finding = each.finding
    return {
        "kind": finding.kind,
        "file": finding.path,
        "position": finding.position,
        "bytes": finding.size,
        "first_offset": each.first_offset,
        "last_offset": each.last_offset,
    }


def _document(found: Verification) -> dict[str, Any]:
    report = found.report
    return {
        "ok": found.ok,
        "exit_code": found.exit_code,
        "affected": [{**_row(each), "message": each.finding.message, "advice": each.advice} for each in found.affected],
        "files": [each._asdict() for each in found.files],
        "readable": [{"directory": each.directory, "ranges": [list(pair) for pair in each.ranges]} for each in found.readable],
        "segments": report.segments,
        "batches": report.batches,
        "records": report.records,
        "bytes": report.bytes,
    }
