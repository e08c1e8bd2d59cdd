"""`pylog copy`: copies the records of a topic, within a directory or from one to another."""

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

    from pylog.log.log import Log
    from pylog.store import Store
    from pylog.topics.topic import Topic

_FLUSH_MS = 1000  # while it works, a power loss takes the records of the last second; at the end all are synced
_RECORD = ("timestamp", "key", "value", "headers")


class SourceBatch(NamedTuple):
    """Some records of a partition; and how many offsets are done with them, over all partitions."""

    partition: int
    batch: pa.RecordBatch
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
    """Copies a topic's records to another topic: partition by partition, keys, values, times and headers.

    The topic is made, with the same number of partitions and the same options, if it is not there. Offsets begin anew and have no
    gaps. What is appended while the command works is not copied.

    Args:
        store: the directory; a broker may be running on it.
        topic: which.
        target: the directory to copy to, made if it is not there; the same is fine. No broker may be running on it.
        name: of the copy; the same name by default.
        append: the copy may have records already.
        compression: of the batches; the copy's own by default.
        isolation: read_committed leaves out aborted and open transactions.
        json: print one JSON document.

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
            raise UsageError(f"topic {name!r} would be copied to itself; --as names the copy")
        states = [(log, log.look()) for log in logs_of(opened, found)]
        extents = [(log, state.earliest(log.partition), state.end_offset) for log, state in states]
        with writing(target, make=True, durability=Durability.INTERVAL(_FLUSH_MS)) as other:
            _prepare(other, name, found, append=append)
            total = sum(end - start for _, start, end in extents)
            copied = _copied(_pieces(extents, isolation), total, other, name, compression)
            other.flush()
    copied.report(json=json)


def _prepare(store: Store, name: str, source: Topic, *, append: bool) -> None:
    """Makes the copy if it is not there; refuses one that is there and does not fit."""
    partitions = source.partition_ids[-1] + 1
    known = store.topics().get(name)
    if known is None:
        options = source.config.changed()
        options.pop("message_timestamp_type", None)  # else the records would have the time of the copying
        store.create_topic(name, partitions, **options)
        return
    missing = set(source.partition_ids) - set(known.partition_ids)
    if missing:
        raise UsageError(f"{store.path} has a topic {name!r} without the partition {min(missing)}; nothing was copied")
    if not append and any(log.end_offset for log in logs_of(store, known)):
        raise UsageError(f"{store.path} has a topic {name!r} with records; --append adds to them, --as takes another name")


def _copied(source: Iterator[SourceBatch], total: int, target: Store, name: str, codec: str | None) -> Tally:
    """Appends pieces as they come."""
    copied = Tally(name)
    try:
        with progress(f"to {name}", total=total, unit="records") as report:
            for piece in source:
                records = piece.batch.select(_RECORD)
                copied.add(piece.partition, target.log(name, piece.partition).append_arrow(records, compression=codec))
                report(piece.done)
    except PylogError as error:
        raise CommandFailed(f"{error}; {copied}") from error
    return copied


def _pieces(extents: list[tuple[Log, int, int]], isolation: str) -> Iterator[SourceBatch]:
    """The records of some logs, one log after the other."""
    before = 0
    for log, start, end in extents:
        for batch in log.scan(start, end, columns=("offset", *_RECORD), isolation=isolation):
            yield SourceBatch(log.partition.partition, batch, before + batch.column("offset")[-1].as_py() + 1 - start)
        before += end - start
