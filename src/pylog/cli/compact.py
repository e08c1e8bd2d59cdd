"""`pylog compact`: compacts a topic now."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pylog.cli.app import CARE, Json, StorePath, TopicName, Yes, command
from pylog.cli.confirm import confirm
from pylog.cli.exits import UsageError
from pylog.cli.output import Column, print_json, print_table
from pylog.cli.stores import reading, writing

_COLUMNS = (
    Column("partition", "number"),
    Column("clean_before", "number"),
    Column("clean_now", "number"),
    Column("records", "number"),
    Column("kept", "number"),
    Column("read", "bytes"),
    Column("written", "bytes"),
    Column("rounds", "number"),
)


@command(CARE)
def compact(
    store: StorePath,
    topic: TopicName,
    /,
    *,
    partition: Annotated[int | None, Parameter(name=["--partition", "-p"])] = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Compacts a topic now, regardless of its dirty ratio: keeps only the last record of each key.

    The topic's cleanup.policy must contain compact. Records in the active segment, and records after the start of an open
    transaction, are not compacted.

    Args:
        store: Path of the log directory. No broker may be running on it.
        topic: Name of the topic.
        partition: Number of the partition. Default: all partitions.
        yes: Do not ask for confirmation.
        json: Print one JSON document.

    Examples:
        pylog compact shop prices
        pylog compact shop prices --partition 0 --yes
    """
    with reading(store) as opened:
        found = opened.topic(topic)
        if partition is not None:
            opened.log(topic, partition)  # raises if the partition does not exist
    if not found.config.is_compacted:
        message = f"topic {topic!r} has cleanup.policy={found.config.cleanup_policy}, so it cannot be compacted"
        raise UsageError(f"{message}; change the option first: pylog config {store} {topic} --set cleanup.policy=compact")
    what = f"topic {topic}" if partition is None else f"partition {partition} of topic {topic}"
    confirm(f"This deletes from {what} every record except the last one of each key", yes=yes)
    with writing(store) as opened:
        done = opened.compact(topic, partition)
    rows = [{**each._asdict(), "clean_before": each.first_dirty, "clean_now": each.end} for each in done]
    rows = [{column.name: row[column.name] for column in _COLUMNS} | {"partition": row["partition"].partition} for row in rows]
    if json:
        print_json({"topic": topic, "partitions": rows})
    else:
        print_table(_COLUMNS, rows)
