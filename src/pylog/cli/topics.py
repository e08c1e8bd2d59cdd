"""`pylog topics`: lists topics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pylog.cli.app import TOPICS, Json, StorePath, command
from pylog.cli.exits import FAILED, complain
from pylog.cli.output import Column, print_json, print_table
from pylog.cli.stores import answers_of, complain_of_losses, reading
from pylog.cli.unopened import outlines_of, unopened_answer
from pylog.topics.retention_text import retention_limits

if TYPE_CHECKING:
    from pylog.log.partition_log import PartitionLog
    from pylog.store import Store
    from pylog.topics.topic import Topic
    from pylog.unopened import UnopenedDirectory

_COLUMNS = (
    Column("topic"),
    Column("partitions", "number"),
    Column("offsets", "number"),
    Column("bytes", "bytes"),
    Column("cleanup_policy", title="policy"),
    Column("retention"),
)


class _Sum(NamedTuple):
    """A partition in a row."""

    partition: int
    offsets: int
    bytes: int
    errors: list[str]


@command(TOPICS)
def topics(store: StorePath, /, *, json: Json = False) -> int | None:
    """Lists the topics of a log directory with their partitions, offsets, bytes and retention.

    OFFSETS is the number of offsets from the starts of the logs to their ends: the records, and markers of transactions and gaps.
    Retention limits the age of records and the size of a partition. `pylog retain` deletes the records beyond the limits.
    Exit code 1: a partition cannot be read, and is not in the sums.

    Args:
        store: Path of a log directory, of pylog or of a Kafka broker. The broker may be running.
        json: Print one JSON document.

    Examples:
        pylog topics shop
        pylog topics /var/lib/kafka/data --json
    """
    rows = unopened_answer(store, _rows)
    complete = True
    if rows is None:
        with reading(store) as opened:
            found = [(topic, *_sums(store, opened, topic)) for topic in opened.topics().values()]
        rows = [_row(topic, sums) for topic, sums, _ in found]
        complete = all(is_complete for _, _, is_complete in found)
    if json:
        print_json({"topics": [{name: value for name, value in row.items() if name != "retention"} for row in rows]})
    elif rows:
        print_table(_COLUMNS, rows)
    else:
        complain(f"no topics in {store}")
    return None if complete else FAILED


def _rows(unopened: UnopenedDirectory) -> list[dict[str, Any]] | None:
    rows = []
    for topic in unopened.topics().values():
        outlines = outlines_of(unopened, topic)
        if outlines is None:
            return None
        extents = [seen.outline for seen in outlines.values() if seen is not None]
        offsets = sum(extent.end_offset - extent.start_offset for extent in extents)
        sizes = sum(sum(extent.sizes) for extent in extents)
        rows.append(_row(topic, {"offsets": offsets, "bytes": sizes, "damaged_partitions": [], "errors": []}))
    return rows


def _sums(path: str, store: Store, topic: Topic) -> tuple[dict[str, Any], bool]:
    """Returns the sums over the partitions that can be read, and whether these are all."""
    found, unreadable = answers_of(store, topic, partial(_sum, path))
    errors = {each.partition: each.errors for each in found if each.errors}
    errors |= {number: [str(error)] for number, error in unreadable.items()}
    return {
        "offsets": sum(each.offsets for each in found),
        "bytes": sum(each.bytes for each in found),
        "damaged_partitions": sorted(errors),
        "errors": [{"partition": number, "error": said} for number in sorted(errors) for said in errors[number]],
    }, not unreadable


def _sum(path: str, log: PartitionLog) -> _Sum:
    from pylog.log.recovery.findings import losses_in

    state = log.snapshot()
    complain_of_losses(path, log)
    size = sum(state.size_of(segment) for _, segment in state.segments)
    errors = [finding.message for finding in losses_in(log.recovery_report)]
    return _Sum(log.partition.partition, state.end_offset - state.start_offset, size, errors)


def _row(topic: Topic, sums: dict[str, Any]) -> dict[str, Any]:
    config = topic.config
    options = {name: getattr(config, name) for name in ("cleanup_policy", "retention_ms", "retention_bytes")}
    return {"topic": topic.name, "partitions": topic.partition_count, **sums, **options, "retention": retention_limits(config)}
