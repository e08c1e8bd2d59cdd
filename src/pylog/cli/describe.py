"""`pylog describe`: shows a topic with its partitions and segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pylog.cli.app import TOPICS, Flag, Json, StorePath, TopicName, command
from pylog.cli.exits import FAILED
from pylog.cli.output import Column, print_facts, print_json, print_line, print_table
from pylog.cli.settings import kafka_name
from pylog.cli.stores import answers_of, complain_of_losses, reading
from pylog.cli.unopened import outlines_of, unopened_answer
from pylog.errors import PylogError
from pylog.times import time_text
from pylog.topics.retention_text import retention_text

if TYPE_CHECKING:
    from pylog.log.partition_log import PartitionLog
    from pylog.log.state import LogState
    from pylog.segment.segment import LogSegment
    from pylog.topics.topic import Topic
    from pylog.unopened import UnopenedDirectory

_PARTITIONS = (
    Column("partition", "number"),
    Column("start_offset", "number"),
    Column("stable_offset", "number"),
    Column("end_offset", "number"),
    Column("segments", "number"),
    Column("bytes", "bytes"),
)
_TIERED = (
    *_PARTITIONS,
    Column("local_start_offset", "number", title="local start"),
    Column("archived_end_offset", "number", title="archived end"),
    Column("local_bytes", "bytes", title="local"),
    Column("archived_bytes", "bytes", title="archived"),
    Column("not_archived_bytes", "bytes", title="not archived"),
)
_IN_TIER = (*_PARTITIONS, Column("remote_start_offset", "number", title="remote start"))
_SEGMENTS = (
    Column("partition", "number"),
    Column("base_offset", "number"),
    Column("end_offset", "number"),
    Column("bytes", "bytes"),
    Column("largest_timestamp"),
    Column("last_append"),
    Column("state"),
)


_STATES = ("archived", "sealed", "active")


@command(TOPICS)
def describe(store: StorePath, topic: TopicName, /, *, segments: Flag = False, json: Json = False) -> int | None:
    """Shows the options of a topic, its partitions with their offsets, and its segments.

    The stable offset is where read_committed readers stop: at the first record of the earliest open transaction. Of a tiered
    topic, segments with the state "archived" are only in the archive. The remote start is where the records begin that only a
    broker's remote tier has; they end at the start offset. Exit code 1: a partition cannot be read. It has no offsets in the
    table, and its error in JSON.

    Args:
        store: Path of the log directory. A broker may be running on it.
        topic: Name of the topic.
        segments: List the segments too. JSON always has them.
        json: Print one JSON document.

    Examples:
        pylog describe shop orders
        pylog describe shop orders --segments
        pylog describe shop orders --json
    """
    seen = None if json or segments else unopened_answer(store, partial(_from_names, topic))
    if seen is None:
        with reading(store) as opened:
            found = opened.topic(topic)
            readable, unreadable = answers_of(opened, found, partial(_partition, store))
        partitions = sorted([*readable, *map(_unreadable, unreadable.items())], key=itemgetter("partition"))
    else:
        (found, partitions), unreadable = seen, {}
    changed = {kafka_name(name): value for name, value in found.config.changed().items()}
    if json:
        print_json({"topic": found.name, "id": found.id, "config": changed, "partitions": partitions})
        return FAILED if unreadable else None
    options = ", ".join(f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in changed.items())
    facts = {"topic": found.name, "id": found.id, "options": options or "Kafka's defaults"}
    print_facts(facts | {"retention": retention_text(found.config)})
    print_line("")
    print_table(_columns(partitions), partitions if seen else [*map(_row, partitions)])
    if segments:
        print_line("")
        print_table(_SEGMENTS, [{"partition": each["partition"], **one} for each in partitions for one in each["segments"]])
    return FAILED if unreadable else None


def _row(found: dict[str, Any]) -> dict[str, Any]:
    """Returns the row of a partition: without numbers if it cannot be read."""
    return found | {"segments": len(found["segments"]) if found["error"] is None else None}


def _unreadable(failed: tuple[int, PylogError]) -> dict[str, Any]:
    """Returns what is shown of a partition that cannot be read."""
    number, error = failed
    offsets = dict.fromkeys(("start_offset", "stable_offset", "end_offset", "bytes"))
    return {"partition": number, **offsets, "segments": [], "damage": [], "error": str(error)}


def _columns(partitions: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    names = {name for each in partitions for name in each}
    return _TIERED if "archived_end_offset" in names else _IN_TIER if "remote_start_offset" in names else _PARTITIONS


def _from_names(name: str, unopened: UnopenedDirectory) -> tuple[Topic, list[dict[str, Any]]] | None:
    """Returns a topic and its partitions, with the number of their segments; None if the engine is needed."""
    topic = unopened.topics().get(name)
    outlines = None if topic is None else outlines_of(unopened, topic)
    if topic is None or outlines is None or topic.config.is_tiered:
        return None
    partitions = []
    for partition, seen in outlines.items():
        stable = 0 if seen is None else unopened.stable_offset(partition, seen)
        if stable is None:
            return None
        start, end, sizes = (
            (0, 0, ()) if seen is None else (seen.outline.start_offset, seen.outline.end_offset, seen.outline.sizes)
        )
        offsets = {"start_offset": start, "stable_offset": stable, "end_offset": end}
        partitions.append({"partition": partition.partition, **offsets, "segments": len(sizes), "bytes": sum(sizes)})
    return topic, partitions


def _partition(path: str, log: PartitionLog) -> dict[str, Any]:
    from pylog.log.recovery.findings import losses_in

    complain_of_losses(path, log)
    found = log.answer(partial(_described, log.partition.partition), committed=True)
    found["damage"] = [finding.message for finding in losses_in(log.recovery_report)]
    found["error"] = None
    tiers = log.tiers.facts()
    if tiers is None:
        return found
    facts, waiting = tiers
    sizes = {state: sum(part["bytes"] for part in found["segments"] if part["state"] == state) for state in _STATES}
    more = {
        "local_start_offset": log.tiers.local().start_offset,
        "archived_end_offset": facts.archived_end,
        "local_bytes": sizes["sealed"] + sizes["active"],
        "archived_bytes": facts.archived_bytes,
        "not_archived_bytes": sum(segment.size for segment in waiting),
    }
    return {name: value for name, value in found.items() if name != "segments"} | more | {"segments": found["segments"]}


def _described(number: int, state: LogState) -> dict[str, Any]:
    found = [segment for _, segment in state.segments]
    ends = [*(segment.base_offset for segment in found[1:]), state.end_offset]
    parts = [
        _segment(state, segment, end) for segment, end in zip(found, ends, strict=False)
    ]  # a partition without segments has not been written yet
    remote = {"remote_start_offset": state.remote_offsets.start} if state.remote_offsets else {}
    return {
        "partition": number,
        "start_offset": state.start_offset,
        "stable_offset": state.stable_offset,
        "end_offset": state.end_offset,
        "bytes": sum(part["bytes"] for part in parts),
        **remote,
        "segments": parts,
    }


def _segment(state: LogState, segment: LogSegment, end: int) -> dict[str, Any]:
    return {
        "base_offset": segment.base_offset,
        "end_offset": end,
        "bytes": state.size_of(segment),
        "largest_timestamp": time_text(segment.largest_timestamp()),
        "last_append": time_text(segment.appends.file_ms or -1),
        "state": "archived" if segment.vouched is not None else "sealed" if segment.sealed else "active",
    }
