"""`pylog cat`: prints records."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from cyclopts import Parameter

from pylog.cli.app import RECORDS, Json, StorePath, TopicName, command
from pylog.cli.exits import UsageError, complain
from pylog.cli.offset_specs import offset_at, parse_offset_spec, parse_partitions
from pylog.cli.stores import logs_of, reading
from pylog.cli.streams import Closed
from pylog.clock import SystemClock
from pylog.errors import UnknownTopicOrPartitionError
from pylog.limits import INT64_MAX, SCAN_ROWS
from pylog.text import as_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from pylog.log.partition_log import PartitionLog
    from pylog.snapshot import Snapshot
    from pylog.store import Store

    LogRange = tuple[PartitionLog, int, int]  # from a start offset (inclusive) to an end offset (exclusive)

_WAIT_S: Final = 0.5  # between looks for a topic that was deleted


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
    snapshot: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> None:
    """Prints the records of a topic, partition by partition, in offset order.

    Text output has one line per record: partition, offset, time, key, value, headers, separated by tabs on a pipe. Characters
    that are not printable are escaped, such as \\n and \\x1b. `pylog produce` reads JSON lines, CSV, Arrow (stream format) and
    Parquet. In JSON, a key or value that is not UTF-8 is {"base64": "..."}, and times are in milliseconds.

    --from and --to take an offset, -N (the last N records), earliest, latest, a time (2024-01-31T17:00, in UTC unless it has
    a time zone), or a duration before now (P1DT12H, PT5M).

    Args:
        store: Path of the log directory. A broker may be running on it.
        topic: Name of the topic.
        partition: Partitions, such as 0 or 1,3 or 4-7. May be repeated. Default: all partitions.
        start: First record to print.
        end: Record to stop before. Default: the end of the log.
        count: Print at most this many records.
        key: Print only records with this key, escaped as in text output.
        follow: Print new records as they are appended, until Ctrl-C. A topic that is created again is followed from its start.
        format: Output format.
        isolation: read_committed hides records of aborted and open transactions.
        snapshot: Print a consistent cut over the partitions, which has whole transactions only. --isolation has no effect then.
        json: Same as --format jsonl.

    Examples:
        pylog cat shop orders
        pylog cat shop orders --partition 0 --from 1000 --count 10
        pylog cat shop orders --from 2024-01-31T17:00:00+01:00 --to PT1H --key 42
        pylog cat shop orders --from -10 --follow
        pylog cat shop orders --format parquet > orders.parquet
    """
    from pylog.cli.formats import writer_to

    if follow and (end is not None or format == "parquet"):
        raise UsageError("--follow never ends; it cannot be combined with --to or --format parquet")
    if follow and snapshot:
        raise UsageError("--snapshot prints the records of one moment; it cannot be combined with --follow")
    if count is not None and not 0 <= count <= INT64_MAX:
        raise UsageError(f"--count {count} is out of range; give a number from 0 to {INT64_MAX}")
    if isinstance(sys.stdout, Closed):
        raise UsageError("stdout is closed; records cannot be printed")
    first, last = (parse_offset_spec(spec or "latest", SystemClock()) for spec in (start, end))
    wanted = None if key is None else as_bytes(key)
    with reading(store) as opened:
        taken = opened.snapshot([topic], groups=()) if snapshot else None
        numbers = parse_partitions(partition or ())
        logs = logs_of(opened, opened.topic(topic), numbers)
        ranges = [(log, offset_at(log, first, isolation), offset_at(log, last, isolation)) for log in logs]
        rows = SCAN_ROWS if count is None or wanted is not None else min(max(count, 1), SCAN_ROWS)
        view = _View(isolation, taken)
        found = _scanned(ranges, view, rows) if wanted is None else _around(ranges, view, wanted)
        frames = _followed(opened, topic, numbers, ranges, isolation) if follow else found
        with writer_to("jsonl" if json else format) as writer:
            for frame in _selected(frames, wanted, count):
                writer.write(frame)
                if follow:
                    sys.stdout.flush()


class _View(NamedTuple):
    """Which records are seen."""

    isolation: str
    snapshot: Snapshot | None

    def scan(self, log: PartitionLog, start: int, end: int, columns: Sequence[str], max_rows: int) -> Iterator[pa.RecordBatch]:
        """Yields the records of a range."""
        if start >= end:
            return iter(())
        isolation, snapshot = self.isolation, self.snapshot
        return log.scan(start, end, columns=columns, isolation_level=isolation, max_rows=max_rows, snapshot=snapshot)


def _scanned(ranges: list[LogRange], view: _View, max_rows: int) -> Iterator[pa.RecordBatch]:
    """Yields the records of ranges of logs, one range after the other."""
    from pylog.record.records import RECORD_COLUMNS

    for log, start, end in ranges:
        for frame in view.scan(log, start, end, RECORD_COLUMNS, max_rows):
            yield _with_partition(frame, log.partition.partition)


def _around(ranges: list[LogRange], view: _View, key: bytes) -> Iterator[pa.RecordBatch]:
    """Yields the records around those with a key. Reads keys first, and whole records only where a key matches."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for log, start, end in ranges:
        for keys in view.scan(log, start, end, ("offset", "key"), SCAN_ROWS):
            hits = keys.filter(pc.equal(keys.column("key"), pa.scalar(key, pa.binary()))).column("offset")
            if len(hits):
                yield from _scanned([(log, hits[0].as_py(), hits[-1].as_py() + 1)], view, SCAN_ROWS)


def _followed(
    store: Store, topic: str, numbers: Collection[int], ranges: list[LogRange], isolation: str
) -> Iterator[pa.RecordBatch]:
    """Yields records of logs from the start of each range, indefinitely; also of a topic that is created again."""
    with store.consumer(isolation_level=isolation, auto_offset_reset="earliest") as consumer:
        consumer.assign([log.partition for log, _, _ in ranges])
        for log, start, _ in ranges:
            consumer.seek(log.partition, start)
        while True:
            try:
                frames = consumer.poll_arrow(timeout_ms=1000)
            except UnknownTopicOrPartitionError:
                complain(f"topic {topic!r} was deleted; if it is created again, its records follow from the first one")
                consumer.assign([log.partition for log in _created_again(store, topic, numbers)])
            else:
                for partition, frame in frames.items():
                    yield _with_partition(frame, partition.partition)


def _created_again(store: Store, name: str, numbers: Collection[int]) -> list[PartitionLog]:
    """Waits until a topic with all of its partitions is there again, and returns the logs of those that were chosen."""
    while True:
        with contextlib.suppress(UnknownTopicOrPartitionError):  # not created again yet, or not all of it
            topic = store.topic(name)
            logs = logs_of(store, topic, numbers)
            if len(logs) == (len(numbers) or topic.partition_count):
                return logs
        SystemClock().sleep(_WAIT_S)


def _with_partition(frame: pa.RecordBatch, number: int) -> pa.RecordBatch:
    import pyarrow as pa

    column = pa.repeat(pa.scalar(number, pa.int32()), frame.num_rows)
    return pa.RecordBatch.from_arrays([column, *frame.columns], ["partition", *frame.schema.names])


def _selected(frames: Iterable[pa.RecordBatch], key: bytes | None, count: int | None) -> Iterator[pa.RecordBatch]:
    """Yields at most `count` records, only those with the key."""
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
