"""The subscription of a consumer: topic names, or a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pylog.consumer.listener import ConsumerRebalanceListener
from pylog.directory.topic_names import INTERNAL_TOPICS, check_topic_name
from pylog.errors import InvalidArgumentError
from pylog.log_manager import LogManager


class Subscription:
    """Topics by name or by pattern, with the rebalance listener.

    Args:
        topics: names; or
        pattern: a regular expression that matches a name's beginning, as in kafka-python.
        listener: called when partitions are assigned or revoked.
        exclude_internal: true if the pattern does not match Kafka's internal topics.

    Raises:
        InvalidArgumentError: neither or both are given, or one is invalid.
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
            raise InvalidArgumentError(f"topics={topics!r} is not a list of topic names")
        self.topics = tuple(dict.fromkeys(check_topic_name(name) for name in topics))
        if bool(self.topics) == (pattern is not None):
            raise InvalidArgumentError("give either topics or a pattern; unsubscribe() ends a subscription")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise InvalidArgumentError(f"listener of type {type(listener).__name__} is not a ConsumerRebalanceListener")
        self.pattern = None if pattern is None else _compiled(pattern)
        self.listener = listener or ConsumerRebalanceListener()
        self._exclude_internal = exclude_internal

    def names(self, manager: LogManager) -> frozenset[str]:
        """Returns the current names of the topics. Cost: a pattern lists the directory."""
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
        raise InvalidArgumentError(f"pattern={pattern!r} is a pattern of bytes; topic names are str")
    return compiled


def visible_topics(manager: LogManager, *, exclude_internal: bool) -> set[str]:
    """Returns the names of all topics that a pattern may match."""
    return set(manager.current_topics()) - (INTERNAL_TOPICS if exclude_internal else frozenset())
