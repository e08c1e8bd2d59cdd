"""The topics, the pattern or the partitions that a program chose for a consumer, as far as they exist.

pylog's consumer refuses topics and partitions that do not exist; kafka-python's waits for them. So the choice is kept here, and
each poll carries it over into the native consumer: missing topics are created if that is allowed, and awaited if not.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from pylog.clock import SystemClock
from pylog.compat.clusters import Cluster
from pylog.compat.kafka import errors
from pylog.compat.kafka.listener import AsyncConsumerRebalanceListener, ConsumerRebalanceListener, Listening
from pylog.compat.kafka.util import ensure_valid_topic_name
from pylog.consumer.consumer import Consumer
from pylog.errors import UnknownTopicOrPartitionError
from pylog.record.types import TopicPartition

LOGGER = logging.getLogger("pylog.compat")
_CLOCK: Final = SystemClock()
_AGAIN_S: Final = 0.1  # between two checks for missing partitions
_NOTHING: Final = "nothing"
_TOPICS: Final = "topics"
_PATTERN: Final = "pattern"
_PARTITIONS: Final = "partitions"


class Choice:
    """The choice of one consumer.

    Args:
        native: pylog's consumer.
        cluster: its store.
        may_create: true if missing topics may be created.
    """

    def __init__(self, native: Consumer, cluster: Cluster, *, may_create: bool) -> None:
        self._native = native
        self._cluster = cluster
        self._may_create = may_create
        self._kind = _NOTHING
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._listener: Listening | None = None
        self._is_new = False  # not carried over yet
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._missing: frozenset[TopicPartition] = frozenset()
        self._starts: dict[TopicPartition, int | str] = {}  # where to begin in missing partitions
        self._check_at = -math.inf

    # ---- what the program calls ----------------------------------------------------------------------------------------------

    def subscribe(self, topics: Any, pattern: Any, listener: Any) -> None:
        """See `KafkaConsumer.subscribe`."""
        names = (topics,) if isinstance(topics, str) else topics
        if not names and not pattern:
            raise ValueError("give topics or a pattern")
        if names and pattern:
            raise errors.IllegalStateError("a consumer subscribes to topics or to a pattern; give one of them")
        kind = _PATTERN if pattern else _TOPICS
        if pattern and not isinstance(pattern, str | re.Pattern):
            raise TypeError(f"pattern={pattern!r} is not text or a compiled pattern")
        if not pattern:
            if not isinstance(names, Sequence | set | frozenset):
                raise TypeError(f"topics={topics!r} is not a list of topic names")
            for each in names:
                ensure_valid_topic_name(each)
        if listener and not isinstance(listener, ConsumerRebalanceListener | AsyncConsumerRebalanceListener):
            raise TypeError(f"listener of type {type(listener).__name__} is not a ConsumerRebalanceListener")
        if self._kind not in (_NOTHING, kind):
            raise errors.IllegalStateError(f"the consumer has {self._kind} already; call unsubscribe() first")
        compiled = re.compile(pattern) if pattern else None  # its error is kafka-python's, too
        self._kind, self._is_new = kind, True
        self._topics = frozenset() if pattern else frozenset(names)
        self._pattern = compiled
        self._listener = Listening(listener) if listener else None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """See `KafkaConsumer.assign`."""
        wanted = frozenset(partitions)
        for each in wanted:
            _check(each)
        if not wanted:
            self.unsubscribe()
            return
        if self._kind not in (_NOTHING, _PARTITIONS):
            raise errors.IllegalStateError(f"the consumer has {self._kind} already; call unsubscribe() first")
        self._kind, self._partitions = _PARTITIONS, wanted
        self._starts = {}
        self._assign()
        self._check_at = -math.inf  # the first poll may create what is missing
        if self._missing:
            LOGGER.warning("partitions that do not exist yield no records: %s", ", ".join(sorted(map(_name, self._missing))))

    def unsubscribe(self) -> None:
        """See `KafkaConsumer.unsubscribe`."""
        if self._kind != _NOTHING:
            self._native.unsubscribe()
        self._kind, self._is_new = _NOTHING, False
        self._topics, self._pattern, self._listener = frozenset(), None, None
        self._partitions = self._missing = frozenset()
        self._starts = {}

    @property
    def subscription(self) -> set[str] | None:
        """The topics subscribed to; None without a subscription."""
        if self._kind == _TOPICS:
            return set(self._topics)
        return self._native.subscription() if self._kind == _PATTERN else None

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read, those among them that do not exist yet."""
        return set(self._partitions) if self._kind == _PARTITIONS else self._native.assignment()

    @property
    def awaits_group(self) -> bool:
        """True if topics were subscribed to that no poll has seen yet."""
        return self._is_new

    # ---- partitions that do not exist yet ------------------------------------------------------------------------------------

    def is_missing(self, partition: TopicPartition) -> bool:
        """Returns whether a partition is assigned but does not exist yet."""
        return partition in self._missing

    def seek_missing(self, partition: TopicPartition, where: int | str) -> None:
        """Notes where to begin in such a partition: an offset, `earliest` or `latest`."""
        self._starts[partition] = where

    # ---- carrying over -------------------------------------------------------------------------------------------------------

    def settle(self) -> bool:
        """Carries the choice over into the native consumer. Returns whether there is anything to read."""
        if self._is_new:
            self._subscribe()
        elif self._missing and _CLOCK.monotonic() >= self._check_at:
            for topic in {each.topic for each in self._missing}:
                self._cluster.create_on_demand(topic, allowed=self._may_create)
            self._assign()
        return self._kind in (_TOPICS, _PATTERN) or len(self._partitions) > len(self._missing)

    def _subscribe(self) -> None:
        topics, pattern = subscription_of(self._cluster, self._topics, self._pattern, may_create=self._may_create)
        self._native.subscribe(topics, pattern, self._listener)
        self._is_new = False

    def _assign(self) -> None:
        exist = existing(self._cluster, self._partitions)
        new = exist & self._missing
        self._missing = self._partitions - exist
        self._check_at = _CLOCK.monotonic() + _AGAIN_S
        if new or exist != self._native.assignment():
            try:
                self._native.assign(sorted(exist))
            except UnknownTopicOrPartitionError:  # deleted in between
                return
        for partition in sorted(new & self._starts.keys()):
            self._begin(partition, self._starts.pop(partition))

    def _begin(self, partition: TopicPartition, where: int | str) -> None:
        if isinstance(where, int):
            self._native.seek(partition, where)
        elif where == "earliest":
            self._native.seek_to_beginning(partition)
        else:
            self._native.seek_to_end(partition)


def subscription_of(
    cluster: Cluster, topics: Collection[str], pattern: re.Pattern[str] | None, *, may_create: bool
) -> tuple[list[str], re.Pattern[str] | None]:
    """Returns the topics or the pattern that pylog's consumer subscribes to. Creates missing topics if that is allowed.

    Args:
        cluster: the store.
        topics: names of topics; none with a pattern.
        pattern: a pattern of names.
        may_create: true if missing topics may be created.
    """
    exist = [cluster.create_on_demand(topic, allowed=may_create) for topic in sorted(topics)]
    if pattern is None and all(exist):
        return sorted(topics), None
    names = "|".join(map(re.escape, sorted(topics)))
    return [], pattern or re.compile(f"(?:{names})\\Z")  # a pattern finds topics that are created later


def existing(cluster: Cluster, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Returns those of some partitions that exist."""
    counts = cluster.topics()
    return {each for each in partitions if each.topic in counts and each.partition in counts[each.topic].partition_ids}


def check_partitions(partitions: Collection[Any]) -> None:
    """Raises TypeError if something among them is not a TopicPartition."""
    for each in partitions:
        _check(each)


def _check(given: Any) -> None:
    if not isinstance(given, TopicPartition):
        raise TypeError(f"{given!r} is not a TopicPartition")


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
