"""The position of a stream as Spark's checkpoint keeps it: the Kafka connector's JSON, `{"orders": {"0": 1000}}`.

Two things in addition to the offsets must outlive a restart, and a data source can store them only here. They are
notes: keys that no topic can have as its name, with no partitions. So the connector reads such a checkpoint too, and finds
the same offsets; and one that it wrote, without notes, is read here.

* `"orders@<topic id>": {}`: the id of the topic that the offsets are of. A topic that was deleted and created again has another.
* `"@from <JSON>": {}`: where the stream began. Only the end of the first micro-batch has it: the checkpoint does not say where
  that one starts, and `latest`, asked again after a restart, would be another position.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from pylog import limits
from pylog.errors import InvalidArgumentError
from pylog.record.types import TopicPartition

_FROM = "@from "
_Partition = Annotated[int, msgspec.Meta(ge=0, le=limits.INT32_MAX)]
_Offset = Annotated[int, msgspec.Meta(ge=0, le=limits.INT64_MAX)]
_Topics = dict[str, dict[_Partition, _Offset]]


@dataclass(frozen=True)
class StreamOffset:
    """The position of a stream.

    Attributes:
        positions: the offset of the next record to read, by partition.
        ids: the topics' ids, as far as they have any.
        origin: where the stream began, at the end of its first micro-batch; None elsewhere.

    >>> StreamOffset({TopicPartition("orders", 0): 7}, {"orders": "Q3BOAAABTqe9kBAvQ3BOAA"}).to_json()
    {'orders': {'0': 7}, 'orders@Q3BOAAABTqe9kBAvQ3BOAA': {}}
    """

    positions: Mapping[TopicPartition, int]
    ids: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[TopicPartition, int] | None = None

    def to_json(self) -> dict[str, dict[str, int]]:
        """Returns the text that Spark writes into its checkpoint. Equal offsets have equal text."""
        notes = [f"{topic}@{topic_id}" for topic, topic_id in sorted(self.ids.items())]
        if self.origin is not None:
            notes.append(_FROM + json.dumps(_by_topic(self.origin), separators=(",", ":")))
        return _by_topic(self.positions) | {note: {} for note in notes}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> StreamOffset:
        """Reads what `to_json` or the connector wrote.

        Raises:
            InvalidArgumentError: it is not that.

        >>> StreamOffset.from_json({"orders": {"0": 7}}).positions
        {TopicPartition(topic='orders', partition=0): 7}
        """
        plain = {topic: offsets for topic, offsets in found.items() if "@" not in topic}
        notes = found.keys() - plain.keys()
        origin = next((note for note in notes if note.startswith(_FROM)), None)
        ids = [note.partition("@") for note in notes if not note.startswith(_FROM)]
        began = None if origin is None else _positions(_origin(origin.removeprefix(_FROM)))
        return cls(_positions(plain), {topic: topic_id for topic, _, topic_id in ids}, began)

    def recreated(self, ids: Mapping[str, str]) -> set[str]:
        """Returns the topics whose ids have changed.

        Args:
            ids: now.

        >>> StreamOffset({}, {"a": "1", "b": "1", "c": "1"}).recreated({"a": "1", "b": "2"})
        {'b'}
        """
        return {topic for topic, topic_id in self.ids.items() if ids.get(topic, topic_id) != topic_id}


def _by_topic(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _origin(note: str) -> Any:
    try:
        return json.loads(note)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"the checkpoint does not say where the stream began ({error}); use a new checkpoint"
        ) from error


def _positions(found: Any) -> dict[TopicPartition, int]:
    try:
        topics = msgspec.convert(found, _Topics, str_keys=True)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise InvalidArgumentError(
            f"the checkpoint's offsets are not those of a stream of topics ({error}); use this query's checkpoint, or a new one"
        ) from error
    return {TopicPartition(topic, number): offset for topic, offsets in topics.items() for number, offset in offsets.items()}
