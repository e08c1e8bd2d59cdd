"""`pylog topics`: lists topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylog.cli.app import TOPICS, Json, StorePath, command
from pylog.cli.exits import complain
from pylog.cli.output import Column, print_json, print_table
from pylog.cli.stores import logs_of, reading
from pylog.cli.unopened import outlines_of, unopened_answer
from pylog.topics.retention_text import retention_limits

if TYPE_CHECKING:
    from pylog.store import Store
    from pylog.topics.topic import Topic
    from pylog.unopened import UnopenedDirectory

_COLUMNS = (
    Column("topic"),
    Column("partitions", "number"),
    Column("records", "number", "offsets"),
    Column("bytes", "bytes"),
    Column("cleanup_policy", title="policy"),
    Column("retention"),
)


@command(TOPICS)
def topics(store: StorePath, /, *, json: Json = False) -> None:
    """Lists the topics of a log directory with their partitions, records, bytes and retention.

    Retention limits the age of records and the size of a partition. `pylog retain` deletes the records beyond the limits.

    Args:
        store: Path of a log directory, of pylog or of a Kafka broker. The broker may be running.
        json: Print one JSON document.

    Examples:
        pylog topics shop
        pylog topics /var/lib/kafka/data --json
    """
    rows = unopened_answer(store, _rows)
    if rows is None:
        with reading(store) as opened:
            rows = [_row(topic, _sums(opened, topic)) for topic in opened.topics().values()]
    if json:
        print_json({"topics": [{name: value for name, value in row.items() if name != "retention"} for row in rows]})
    elif rows:
        print_table(_COLUMNS, rows)
    else:
        complain(f"no topics in {store}")


def _rows(unopened: UnopenedDirectory) -> list[dict[str, Any]] | None:
    rows = []
    for topic in unopened.topics().values():
        outlines = outlines_of(unopened, topic)
        if outlines is None:
            return None
        extents = [seen.outline for seen in outlines.values() if seen is not None]
        offsets = sum(extent.end_offset - extent.start_offset for extent in extents)
        rows.append(_row(topic, {"records": offsets, "bytes": sum(sum(extent.sizes) for extent in extents)}))
    return rows


def _sums(store: Store, topic: Topic) -> dict[str, int]:
    states = [log.snapshot() for log in logs_of(store, topic)]
    return {
        "records": sum(state.end_offset - state.start_offset for state in states),
        "bytes": sum(state.size_of(segment) for state in states for _, segment in state.segments),
    }


def _row(topic: Topic, sums: dict[str, int]) -> dict[str, Any]:
    config = topic.config
    options = {name: getattr(config, name) for name in ("cleanup_policy", "retention_ms", "retention_bytes")}
    return {"topic": topic.name, "partitions": topic.partition_count, **sums, **options, "retention": retention_limits(config)}
