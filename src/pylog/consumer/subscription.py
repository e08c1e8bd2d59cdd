"""What a consumer has asked for: names of topics, a pattern, or partitions of its own choice."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from pylog.arguments import is_int
from pylog.consumer.listener import ConsumerRebalanceListener
from pylog.directory.checkpoints import INTERNAL_TOPICS, check_topic_name
from pylog.errors import InvalidArgumentError
from pylog.log_manager import LogManager
from pylog.record.types import TopicPartition


class Subscription:
    """Topics by name or by pattern, and who is told of their partitions.

    Args:
        topics: names; or
        pattern: a regular expression that matches a name's beginning, as in kafka-python.
        listener: is told.
        exclude_internal: a pattern does not match Kafka's own topics.

    Raises:
        InvalidArgumentError: neither or both are given, or one is not what it should be.
    """

    def __init__(
        self,
        topics: Iterable[str],
        pattern: str | re.Pattern[str] | None,
        listener: ConsumerRebalanceListener | None,
        *,
        exclude_internal: bool,
    ) -> None:
        if isinstance(topics, str) or not isinstance(topics, Iterable):
            raise InvalidArgumentError(f"topics={topics!r} is not a list of names of topics")
        self.topics = tuple(dict.fromkeys(check_topic_name(name) for name in topics))
        if bool(self.topics) == (pattern is not None):
            raise InvalidArgumentError("give topics or a pattern, one of both; unsubscribe() ends a subscription")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise InvalidArgumentError(f"listener of type {type(listener).__name__} is not a ConsumerRebalanceListener")
        self.pattern = None if pattern is None else _compiled(pattern)
        self.listener = listener or ConsumerRebalanceListener()
        self._exclude_internal = exclude_internal

    def names(self, manager: LogManager) -> frozenset[str]:
        """The names of the topics now. Cost: for a pattern a listing of the directory."""
        if self.pattern is None:
            return frozenset(self.topics)
        names = visible_topics(manager, exclude_internal=self._exclude_internal)
        return frozenset(name for name in names if self.pattern.match(name))


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InvalidArgumentError(f"pattern={pattern!r} is not a regular expression: {error}") from error
    if not isinstance(compiled.pattern, str):
        raise InvalidArgumentError(f"pattern={pattern!r} is of bytes; names of topics are text")
    return compiled


def visible_topics(manager: LogManager, *, exclude_internal: bool) -> set[str]:
    """The names of all topics that a user sees."""
    return set(manager.topics()) - (INTERNAL_TOPICS if exclude_internal else frozenset())


def checked_partition(given: object) -> TopicPartition:
    """A partition as callers give it, also as a plain pair."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        topic, number = given
        if is_int(number):
            return TopicPartition(topic, int(number))
    raise InvalidArgumentError(f"{given!r} is not a partition: a TopicPartition, or a pair of its topic and its number")


def checked_partitions(given: Collection[object]) -> list[TopicPartition]:
    """Several, in the order given, each once."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidArgumentError(f"{given!r} is not a list of partitions")
    return list(dict.fromkeys(map(checked_partition, given)))
