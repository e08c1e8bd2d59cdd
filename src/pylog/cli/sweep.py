"""`pylog sweep`: deletes the objects of an archive that no manifest needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from pylog import limits
from pylog.cli.app import CARE, Flag, Json, command
from pylog.cli.buckets import DEFAULT_BUCKET, Bucket
from pylog.cli.exits import FAILED, OK, complain
from pylog.cli.output import Column, print_json, print_line, print_table
from pylog.text import counted, size_text
from pylog.times import milliseconds_of

if TYPE_CHECKING:
    from pylog.archive.sweep_plan import SweepReport

_COLUMNS: Final = (Column("object"), Column("bytes", "bytes"), Column("reason"))


@command(CARE)
def sweep(
    url: Annotated[str, Parameter(name="URL")],
    /,
    *,
    execute: Flag = False,
    grace: str | None = None,
    history: str | None = None,
    bucket: Bucket = DEFAULT_BUCKET,
    json: Json = False,
) -> int:
    """Deletes the objects of an archive that no manifest needs. Without --execute, only shows them.

    They are left over from crashes, deleted records and topics, and old versions of manifests. Other processes may archive,
    read and restore meanwhile. Exit code 1: some objects were kept because a document cannot be read.

    Args:
        url: URL or path of the archive.
        execute: Delete the objects.
        grace: Objects that no manifest names stay for this duration, such as P7D, the default. At least PT1H.
        history: Duration for which `pylog restore --as-of` works, such as P30D, the default.
        json: Print one JSON document.

    Examples:
        pylog sweep s3://logs/shop
        pylog sweep s3://logs/shop --execute
        pylog sweep /mnt/backup/shop --history P365D --execute --json
    """
    from pylog.archive.sweeping import sweep as swept

    found = swept(
        url,
        dry_run=not execute,
        grace_ms=limits.DEFAULT_SWEEP_GRACE_MS if grace is None else milliseconds_of(grace),
        history_ms=limits.DEFAULT_SWEEP_HISTORY_MS if history is None else milliseconds_of(history),
        **bucket.access(),
    )
    if json:
        print_json({**found._asdict(), "bytes": found.bytes, "objects": _rows(found)})
    else:
        _print(found)
    return FAILED if found.left else OK


def _rows(found: SweepReport) -> list[dict[str, Any]]:
    return [{"object": each.key, "bytes": each.size, "reason": each.reason} for each in found.objects]


def _print(found: SweepReport) -> None:
    for each in found.left:
        complain(each)
    if found.objects:
        print_table(_COLUMNS, _rows(found))
    counts = f"{counted(len(found.objects), 'object')}, {size_text(found.bytes)}"
    print_line(f"{found.url}: deleted {counts}" if found.executed else f"{found.url}: --execute would delete {counts}")
