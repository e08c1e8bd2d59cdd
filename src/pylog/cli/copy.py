"""`pylog copy`: copies the records of a topic to another topic, in the same directory or another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from cyclopts import Parameter

from pylog.cli.app import RECORDS, Flag, Json, StorePath, TopicName, command
from pylog.cli.exits import CommandFailed, UsageError
from pylog.cli.output import progress
from pylog.cli.stores import logs_of, reading, writing
from pylog.cli.tally import Tally
from pylog.errors import PylogError

if TYPE_CHECKING:
    import pyarrow as pa

    from pylog.log.partition_log import PartitionLog
    from pylog.store import Store
    from pylog.topics.topic import Topic

_FLUSH_MS = 1000  # between syncs: a power loss during the copy loses the records of the last second; the end syncs everything
_RECORD = ("timestamp", "key", "value", "headers")


class SourceBatch(NamedTuple):
    """Records of one partition, and the number of offsets that are done after them, over all partitions."""

    partition: int
    records: pa.RecordBatch
    done: int


@command(RECORDS)
def copy(
    store: StorePath,
    topic: TopicName,
    target: Annotated[str, Parameter(name="TARGET")],
    /,
    *,
    name: Annotated[str | None, Parameter(name=["--as"])] = None,
    append: Flag = False,
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None = None,
    isolation: Literal["read_uncommitted", "read_committed"] = "read_committed",
    json: Json = False,
) -> None:
    """Copies the records of a topic to another topic, partition by partition: keys, values, timestamps and headers.

    If the target topic does not exist, it is created with the same number of partitions and the same options. In the copy,
    offsets start at 0 and have no gaps. Records that are appended during the copy are not copied.

    Args:
        store: Path of the log directory. A broker may be running on it.
        topic: Name of the topic.
        target: Path of the log directory to copy to, which may be the same. It is created if it does not exist. No broker may
            be running on it.
        name: Name of the target topic. Default: the same name.
        append: Allow a target topic that already has records.
        compression: Compression of the batches. Default: that of the target topic.
        isolation: read_committed leaves out records of aborted and open transactions.
        json: Print one JSON document.

    Examples:
        pylog copy shop orders backup
        pylog copy /var/lib/kafka/data orders shop --compression zstd
        pylog copy shop orders shop --as orders-2024
    """
    from pylog import Durability
    from pylog.fs import resolved

    name = topic if name is None else name
    with reading(store) as opened:
        found = opened.topic(topic)
        if name == topic and resolved(store) == resolved(target):
            raise UsageError(f"topic {name!r} would be copied to itself; give the copy another name with --as")
        states = [(log, log.snapshot()) for log in logs_of(opened, found)]
        extents = [(log, state.earliest(log.partition), state.end_offset) for log, state in states]
        with writing(target, make=True, durability=Durability.INTERVAL(_FLUSH_MS)) as other:
            _prepare(other, name, found, append=append)
            total = sum(end - start for _, start, end in extents)
            copied = _copied(_batches(extents, isolation), total, other, name, compression)
            other.flush()
    copied.report(json=json)


def _prepare(store: Store, name: str, source: Topic, *, append: bool) -> None:
    """Creates the target topic if it does not exist; refuses an existing one that does not fit."""
    partitions = source.partition_ids[-1] + 1
    known = store.topics().get(name)
    if known is None:
        options = source.config.changed()
        options.pop("message_timestamp_type", None)  # else the records would get the time of the copy
        store.create_topic(name, partitions, **options)
        return
    missing = set(source.partition_ids) - set(known.partition_ids)
    if missing:
        raise UsageError(f"topic {name!r} in {store.path} has no partition {min(missing)}; nothing was copied")
    if not append and any(log.end_offset for log in logs_of(store, known)):
        raise UsageError(
            f"topic {name!r} in {store.path} already has records; add to them with --append, or choose another name with --as"
        )


def _copied(source: Iterator[SourceBatch], total: int, target: Store, name: str, codec: str | None) -> Tally:
    """Appends batches to the target as they are read."""
    copied = Tally(name)
    try:
        with progress(f"to {name}", total=total, unit="records") as report:
            for batch in source:
                records = batch.records.select(_RECORD)
                copied.add(batch.partition, target.log(name, batch.partition).append_arrow(records, compression=codec))
                report(batch.done)
    except PylogError as error:
        raise CommandFailed(f"{error}; {copied}") from error
    return copied


def _batches(extents: list[tuple[PartitionLog, int, int]], isolation: str) -> Iterator[SourceBatch]:
    """Yields the records of logs, one log after the other."""
    before = 0
    for log, start, end in extents:
        for batch in log.scan(start, end, columns=("offset", *_RECORD), isolation_level=isolation):
            yield SourceBatch(log.partition.partition, batch, before + batch.column("offset")[-1].as_py() + 1 - start)
        before += end - start
