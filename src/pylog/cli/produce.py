"""`pylog produce`: appends records."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from pylog.cli.app import RECORDS, Json, StorePath, TopicName, command
from pylog.cli.exits import CommandFailed, UsageError
from pylog.cli.output import progress
from pylog.cli.stores import writing
from pylog.cli.tally import Tally
from pylog.errors import PylogError
from pylog.text import as_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from pylog.cli.sources import InputFormat, RecordSource
    from pylog.producer.producer import Producer
    from pylog.topics.topic import Topic

_FLUSH_MS = 1000  # between syncs: a power loss loses the records of the last second; the end syncs everything


@command(RECORDS)
def produce(
    store: StorePath,
    topic: TopicName,
    /,
    *,
    source: Annotated[str | None, Parameter(name=["--from", "-f"])] = None,
    format: Literal["lines", "jsonl", "csv", "arrow", "parquet"] | None = None,  # noqa: A002 - the option's name
    key_separator: Annotated[str | None, Parameter(name=["--key-separator", "-k"])] = None,
    key_column: str | None = None,
    value_column: str | None = None,
    partition: Annotated[int | None, Parameter(name=["--partition", "-p"])] = None,
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None = None,
    json: Json = False,
) -> None:
    """Appends records from stdin or a file to an existing topic. Prints their number and offsets.

    A line is a value; with --key-separator it is a key, the separator, and a value. A line of JSON is an object with key, value,
    timestamp (in milliseconds), headers ([{"key": "h", "value": "v"}]) and partition, all optional. A key or value that is not
    text is {"base64": "..."}. CSV (with a header line), Arrow and Parquet have columns with these names.

    --partition sets the partition of all records. Otherwise each record has its own partition, or the one that Kafka's
    clients choose for its key. If the command succeeds, all records are synced to disk.

    Args:
        store: Path of the log directory. No broker may be running on it.
        topic: Name of the topic.
        source: File to read. Default: stdin.
        format: Input format. Default: guessed from the file name, else lines.
        key_separator: Separator between the key and the value of a line.
        key_column: Name of the column with keys.
        value_column: Name of the column with values.
        partition: Number of the partition for all records, even for records that have their own.
        compression: Compression of the batches. Default: that of the topic.
        json: Print one JSON document.

    Examples:
        echo paid | pylog produce shop orders
        pylog produce shop orders --key-separator : < orders.txt
        pylog produce shop orders --from orders.parquet --key-column id
        pylog cat shop orders --json | pylog produce elsewhere orders --format jsonl
    """
    from pylog import Durability

    form = _format(source, format)
    if key_separator is not None and (form != "lines" or not key_separator):
        raise UsageError("--key-separator requires the format lines and at least one character")
    if (key_column or value_column) and form in ("lines", "jsonl"):
        raise UsageError(f"--key-column and --value-column require CSV, Arrow or Parquet; {form} has no columns")
    with writing(store, durability=Durability.INTERVAL(_FLUSH_MS)) as opened:
        found = opened.topic(topic)
        if partition is not None:
            opened.log(topic, partition)  # raises if the partition does not exist
        records = _source(source, form, found, key_separator, (key_column, value_column))
        with opened.producer(compression=compression, max_request_size=2**31 - 1) as producer:
            appended = _appended(producer, topic, records, partition)
        opened.flush()
    appended.report(json=json)


def _format(path: str | None, given: InputFormat | None) -> InputFormat:
    from pylog.cli.sources import FORMATS_BY_SUFFIX

    return given or FORMATS_BY_SUFFIX.get(PurePath(path or "").suffix.lower(), "lines")


def _source(
    path: str | None, form: InputFormat, topic: Topic, separator: str | None, columns: tuple[str | None, str | None]
) -> RecordSource:
    from pylog.cli.sources import InputOptions, columns_named, open_source

    between = None if separator is None else as_bytes(separator)
    longest = min(topic.config.max_message_bytes, topic.config.segment_bytes)
    return open_source(path, form, InputOptions(between, longest, *columns_named(*columns)))


def _appended(producer: Producer, topic: str, source: RecordSource, partition: int | None) -> Tally:
    appended = Tally(topic)
    try:
        with progress(f"to {topic}", total=source.total, unit=source.unit) as report:
            for batch in source.batches:
                for done in producer.send_arrow(topic, batch if partition is None else _sent_to(batch, partition)):
                    appended.add(done.partition, done.offsets)
                report(source.done())
    except PylogError as error:
        raise CommandFailed(f"{error}; {appended}") from error
    return appended


def _sent_to(batch: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    """Returns the batch with all of its records in one partition."""
    import pyarrow as pa

    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return pa.RecordBatch.from_pydict(columns | {"partition": pa.repeat(pa.scalar(partition), batch.num_rows)})
