"""`pylog topics`: lists topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pylog.cli.app import TOPICS, Json, StorePath, command
from pylog.cli.exits import complain
from pylog.cli.output import Column, print_json, print_table
from pylog.cli.stores import logs_of, reading

if TYPE_CHECKING:
    from pylog.store import Store
    from pylog.topics.topic import Topic

_COLUMNS = (
    Column("topic"),
    Column("partitions", "number"),
    Column("records", "number", "offsets"),
    Column("bytes", "bytes"),
    Column("cleanup_policy", title="policy"),
)


@command(TOPICS)
def topics(store: StorePath, /, *, json: Json = False) -> None:
    """Lists the topics of a log directory with their partitions, records and bytes.

    Args:
        store: Path of a log directory, of pylog or of a Kafka broker. The broker may be running.
        json: Print one JSON document.

    Examples:
        pylog topics shop
        pylog topics /var/lib/kafka/data --json
    """
    with reading(store) as opened:
        rows = [_row(opened, topic) for topic in opened.topics().values()]
    if json:
        print_json({"topics": rows})
    elif rows:
        print_table(_COLUMNS, rows)
    else:
        complain(f"no topics in {store}")


def _row(store: Store, topic: Topic) -> dict[str, Any]:
    states = [log.snapshot() for log in logs_of(store, topic)]
    return {
        "topic": topic.name,
        "partitions": topic.partition_count,
        "records": sum(state.end_offset - state.start_offset for state in states),
        "bytes": sum(state.size_of(segment) for state in states for _, segment in state.segments),
        "cleanup_policy": topic.config.cleanup_policy,
    }
