"""Answers of commands that need no more than names, sizes and batch headers: the engine is not loaded for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pylog.cli.stores import note_links
from pylog.errors import PylogError

if TYPE_CHECKING:
    from pylog.log.reading.fast_outline import FastOutline
    from pylog.record.types import TopicPartition
    from pylog.topics.topic import Topic
    from pylog.unopened import UnopenedDirectory

Answer = TypeVar("Answer")


def unopened_answer(path: str, question: Callable[[UnopenedDirectory], Answer | None]) -> Answer | None:
    """Returns the answer to a question about a log directory.

    Args:
        path: the directory.
        question: answers from file names, checkpoints and batch headers; returns None if they do not suffice.

    Returns:
        The answer. None if the store must be opened, also to report what is wrong with the directory.
    """
    from pylog.unopened import UnopenedDirectory

    try:
        unopened = UnopenedDirectory(path)
        found = None if unopened.complaint else question(unopened)
    except PylogError:
        return None
    if found is not None:
        note_links(path)
    return found


def outlines_of(unopened: UnopenedDirectory, topic: Topic) -> dict[TopicPartition, FastOutline | None] | None:
    """Returns the outline of each partition of a topic, None for one that was never written; None if one needs the engine."""
    from pylog.record.types import TopicPartition

    found: dict[TopicPartition, FastOutline | None] = {}
    for number in topic.partition_ids:
        partition = TopicPartition(topic.name, number)
        seen = unopened.fast_outline(partition)
        if seen is None and not unopened.is_unwritten(partition):
            return None
        found[partition] = seen
    return found
