"""`pylog cat`: prints records."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from pylog.cli.app import RECORDS, Json, StorePath, TopicName, command
from pylog.cli.exits import UsageError
from pylog.cli.offset_specs import offset_at, parse_offset_spec, parse_partitions
from pylog.cli.stores import logs_of, reading
from pylog.cli.streams import Closed
from pylog.clock import SystemClock
from pylog.limits import INT64_MAX, SCAN_ROWS
from pylog.text import as_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from pylog.log.log import Log
    from pylog.store import Store

    LogRange = tuple[Log, int, int]  # from an offset to before another one


@command(RECORDS)
def cat(
    store: StorePath,
    topic: TopicName,
    /,
    *,
    partition: Annotated[list[str] | None, Parameter(name=["--partition", "-p"])] = None,
    start: Annotated[str, Parameter(name=["--from"], allow_leading_hyphen=True)] = "earliest",
    end: Annotated[str | None, Parameter(name=["--to"], allow_leading_hyphen=True)] = None,
    count: Annotated[int | None, Parameter(name=["--count", "-n"], allow_leading_hyphen=True)] = None,
    key: str | None = None,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], show_default=False)] = False,
    format: Literal["text", "jsonl", "csv", "arrow", "parquet"] = "text",  # noqa: A002 - the option's name
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    json: Json = False,
) -> None:
    """Prints a topic's records: one partition after the other, each in the order of its offsets.

    Text has a line a record: partition, offset, time, key, value, headers, with tabs between on a pipe. What is not printable is
    escaped: \\n, \\x1b. JSON lines, CSV, Arrow (its stream format) and Parquet can be read back by `pylog produce`; in JSON a key
    or value that is no UTF-8 is {"base64": "..."}, a time is in milliseconds.

    A place for --from and --to is an offset, -N (the last N records), earliest, latest, a time (2024-01-31T17:00, in UTC
    unless it names a zone), or a duration such as P1DT12H or PT5M (so long ago).

    Args:
        store: the directory; a broker may be running on it.
        topic: which.
        partition: which, such as 0 or 1,3 or 4-7; may be repeated. All by default.
        start: the place to begin at.
        end: the place to end before; the end of the log by default.
        count: at most so many records.
        key: only records with this key, written as text shows it.
        follow: go on with what is appended, until Ctrl-C.
        format: of the output.
        isolation: read_committed hides aborted and open transactions.
        json: the same as --format jsonl.

    Examples:
        pylog cat shop orders
        pylog cat shop orders --partition 0 --from 1000 --count 10
        pylog cat shop orders --from 2024-01-31T17:00:00+01:00 --to PT1H --key 42
        pylog cat shop orders --from -10 --follow
        pylog cat shop orders --format parquet > orders.parquet
    """
    from pylog.cli.formats import writer_to

    if follow and (end is not None or format == "parquet"):
        raise UsageError("--follow has no end, so it goes neither with --to nor with --format parquet")
    if count is not None and not 0 <= count <= INT64_MAX:
        raise UsageError(f"--count {count} is not from 0 to {INT64_MAX}, as many records as a log may have")
    if isinstance(sys.stdout, Closed):
        raise UsageError("stdout is closed, so no record can be printed there")
    first, last = (parse_offset_spec(place or "latest", SystemClock()) for place in (start, end))
    wanted = None if key is None else as_bytes(key)
    with reading(store) as opened:
        logs = logs_of(opened, opened.topic(topic), parse_partitions(partition or ()))
        stretches = [(log, offset_at(log, first, isolation), offset_at(log, last, isolation)) for log in logs]
        rows = SCAN_ROWS if count is None or wanted is not None else min(max(count, 1), SCAN_ROWS)
        found = _scanned(stretches, isolation, rows) if wanted is None else _around(stretches, isolation, wanted)
        frames = _followed(opened, stretches, isolation) if follow else found
        with writer_to("jsonl" if json else format) as writer:
            for frame in _taken(frames, wanted, count):
                writer.write(frame)
                if follow:
                    sys.stdout.flush()


def _scanned(stretches: list[LogRange], isolation: str, max_rows: int) -> Iterator[pa.RecordBatch]:
    """The records of some stretches of logs, one after the other."""
    from pylog.record.decoder import RECORD_COLUMNS

    for log, start, end in stretches:
        if start < end:
            for frame in log.scan(start, end, columns=RECORD_COLUMNS, isolation=isolation, max_rows=max_rows):
                yield _with_partition(frame, log.partition.partition)


def _around(stretches: list[LogRange], isolation: str, key: bytes) -> Iterator[pa.RecordBatch]:
    """The records around those with a key: the keys are read first, and the rest only where one of them is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for log, start, end in stretches:
        for keys in log.scan(start, end, columns=("offset", "key"), isolation=isolation) if start < end else ():
            hits = keys.filter(pc.equal(keys.column("key"), pa.scalar(key, pa.binary()))).column("offset")
            if len(hits):
                yield from _scanned([(log, hits[0].as_py(), hits[-1].as_py() + 1)], isolation, SCAN_ROWS)


def _followed(store: Store, stretches: list[LogRange], isolation: str) -> Iterator[pa.RecordBatch]:
    """The records of some logs from the start of their stretches on, for ever."""
    with store.consumer(isolation=isolation, auto_offset_reset="earliest") as consumer:
        consumer.assign([log.partition for log, _, _ in stretches])
        for log, start, _ in stretches:
            consumer.seek(log.partition, start)
        while True:
            for partition, frame in consumer.poll_arrow(timeout_ms=1000).items():
                yield _with_partition(frame, partition.partition)


def _with_partition(frame: pa.RecordBatch, number: int) -> pa.RecordBatch:
    import pyarrow as pa

    column = pa.repeat(pa.scalar(number, pa.int32()), frame.num_rows)
    return pa.RecordBatch.from_arrays([column, *frame.columns], ["partition", *frame.schema.names])


def _taken(frames: Iterable[pa.RecordBatch], key: bytes | None, count: int | None) -> Iterator[pa.RecordBatch]:
    """Those with the key, and no more of them than are wanted."""
    import pyarrow as pa
    import pyarrow.compute as pc

    left = INT64_MAX if count is None else count
    if left < 1:
        return
    for frame in frames:
        found = frame if key is None else frame.filter(pc.equal(frame.column("key"), pa.scalar(key, pa.binary())))
        if found.num_rows:
            yield found.slice(0, left)
        left -= found.num_rows
        if left <= 0:
            return
