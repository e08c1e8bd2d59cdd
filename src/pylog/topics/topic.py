"""`Topic`: the name, id, configuration and partitions of one topic."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from pylog.config import TopicConfig
from pylog.errors import UnknownTopicOrPartitionError
from pylog.notebook import ShownAsTable, ShownTable
from pylog.topics.retention_text import retention_text


@dataclass(frozen=True)
class Topic(ShownAsTable):
    """A topic, as it was when it was read.

    Attributes:
        name: its name.
        id: 22 characters, or None when no partition has one (directories of brokers before 2.8).
        config: its configuration. If it is unknown: Kafka's defaults, but retention keeps everything.
        partition_ids: the numbers of its partitions in this store, ascending; a broker of a cluster may have any of them.

    >>> Topic("orders", None, TopicConfig(), (0, 1)).partition_count
    2
    """

    name: str
    id: str | None
    config: TopicConfig
    partition_ids: tuple[int, ...]

    @property
    def partition_count(self) -> int:
        """The number of the topic's partitions in this store."""
        return len(self.partition_ids)

    def _table(self) -> ShownTable:
        facts = {"id": self.id, "partitions": self.partition_count, "retention": retention_text(self.config)}
        return ShownTable(f"Topic {self.name}", ["option", "value"], [*facts.items(), *self.config.changed().items()])


def changes_between(old: TopicConfig, new: TopicConfig) -> Iterator[tuple[str, object, object]]:
    """Returns the options that differ, each with its old and its new value."""
    for field in dataclasses.fields(TopicConfig):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before != after:
            yield field.name, "none" if before is None else before, "none" if after is None else after


def check_partition(root: str, topic: Topic, number: int) -> None:
    """Refuses a partition that a topic does not have."""
    ids = topic.partition_ids
    if number not in ids:
        message = f"its partitions are {ids[0]} to {ids[-1]}" if len(ids) > 1 else f"its only partition is {ids[0]}"
        raise UnknownTopicOrPartitionError(f"partition {number} of {topic.name!r} does not exist; {message}", path=root)
