"""The data of the pages, as objects for JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pylog.ui.observation import GroupSeen, Observation, PartitionSeen, TopicSeen
from pylog.ui.search import SearchPage, cursor_text
from pylog.ui.tail import Tail
from pylog.ui.verifying import Verified


def in_json(data: object) -> bytes:
    """Returns an object as JSON. Bytes are text with escapes; an export has them exactly."""
    return json.dumps(data, default=_plain, ensure_ascii=True).encode()


def _plain(value: object) -> object:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def store_data(seen: Observation) -> dict[str, object]:
    """Returns the data of the overview."""
    return {
        "path": seen.path,
        "at_ms": seen.at_ms,
        "free_bytes": seen.free,
        "topics": [topic_data(each) for each in seen.topics.values()],
        "groups": [group_data(each) for each in seen.groups.values()],
    }


def topic_data(topic: TopicSeen) -> dict[str, object]:
    """Returns the data of a topic."""
    return {
        "topic": topic.name,
        "internal": topic.is_internal,
        "offsets": topic.offsets,
        "records": topic.records,
        "bytes": topic.size,
        "rate": topic.rate,
        "options": asdict(topic.config),
        "partitions": [_partition_data(each) for each in topic.partitions],
    }


def _partition_data(seen: PartitionSeen) -> dict[str, object]:
    segments = [asdict(each) | {"tally": each.tally and each.tally._asdict()} for each in seen.segments]
    number = seen.partition.partition
    return {**asdict(seen), "partition": number, "bytes": seen.size, "records": seen.records, "segments": segments}


def group_data(group: GroupSeen) -> dict[str, object]:
    """Returns the data of a group."""
    return {
        "group": group.name,
        "state": group.state,
        "verdict": str(group.health.verdict),
        "lag": group.lag,
        "lag_seconds": group.health.lag_seconds,
        "members": [asdict(each) for each in group.members],
        "partitions": [
            {**asdict(each), "partition": each.partition.partition, "topic": each.partition.topic}
            for each in group.health.partitions
        ],
    }


def found_data(found: SearchPage) -> dict[str, object]:
    """Returns the data of a page of a search."""
    return {
        "records": [row._asdict() for row in found.rows],
        "cursor": cursor_text(found.cursor),
        "searched_offsets": found.searched,
        "searched_bytes": found.read_bytes,
        "offsets_left": found.left,
        "done": found.is_done,
    }


def tail_data(found: Tail, topic_id: str) -> dict[str, object]:
    """Returns the data of a live page. The next request sends the cursor and the topic's id."""
    rows = [row._asdict() for row in found.rows]
    facts = {"passed_offsets": found.passed, "begun_again": list(found.begun_again)}
    return {"records": rows, **facts, "cursor": cursor_text(found.cursor), "topic_id": topic_id}


def verified_data(found: Verified) -> dict[str, Any]:
    """Returns the data of a verification."""
    return asdict(found) | {name: [each._asdict() for each in getattr(found, name)] for name in ("damage", "harmless")}
