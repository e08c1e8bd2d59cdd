"""kafka-python's partitioners. Those of version 3 are objects; the default one can also be called as in version 2."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from pylog.partitioner import murmur2 as signed_murmur2

Choose = Callable[[str, Any, bytes | None, Any, bytes | None, Any], Any]


def murmur2(data: bytes) -> int:
    """Returns Kafka's hash of a key, as a number without a sign.

    Args:
        data: the key.

    >>> murmur2(b"foobar")
    3504634814
    """
    return signed_murmur2(bytes(data)) & 0xFFFFFFFF


class Partitioner(ABC):
    """Chooses the partition of each record. Pass an object of a subclass as `partitioner`."""

    @abstractmethod
    def partition(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: bytes | None, cluster: Any
    ) -> int | None:
        """Returns the number of a partition.

        Args:
            topic: the record's topic.
            key, value: what `send` was given.
            serialized_key, serialized_value: the same as bytes.
            cluster: has `topics()`, `partitions_for_topic(topic)` and `available_partitions_for_topic(topic)`.
        """


def _check_topic(topic: str, cluster: Any) -> None:
    if topic not in cluster.topics():
        raise ValueError(f"topic {topic!r} was not found")


class DefaultPartitioner(Partitioner):
    """Kafka's partitioner: by the hash of the key; without a key, any partition."""

    def partition(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: bytes | None, cluster: Any
    ) -> int | None:
        """Returns the partition. Raises ValueError if the topic does not exist."""
        _check_topic(topic, cluster)
        found = cluster.partitions_for_topic(topic)
        return self(serialized_key, sorted(found), sorted(cluster.available_partitions_for_topic(topic) or ()))

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        """Chooses as version 2's partitioner is called.

        Args:
            key: the key's bytes.
            all_partitions, available: numbers of partitions.
        """
        if key is None:
            return random.choice(available or all_partitions)  # noqa: S311 - no secret
        return all_partitions[(murmur2(key) & 0x7FFFFFFF) % len(all_partitions)]


class StickyPartitioner(DefaultPartitioner):
    """As the default one, but records without a key stay on one partition until a batch is full."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._sticky: dict[str, int] = {}

    def partition(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: bytes | None, cluster: Any
    ) -> int | None:
        """Returns the partition. Raises ValueError if the topic does not exist."""
        if serialized_key is not None:
            return super().partition(topic, key, serialized_key, value, serialized_value, cluster)
        _check_topic(topic, cluster)
        with self._guard:
            known = self._sticky.get(topic)
            usable = cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic)
            return known if known in usable else self._pick_sticky_locked(topic, cluster)

    def on_new_batch(self, topic: str, cluster: Any, prev_partition: int) -> None:
        """Chooses another partition for the topic, if it still has the one given.

        Args:
            topic: the topic.
            cluster: as for `partition`.
            prev_partition: the partition whose batch is full.
        """
        with self._guard:
            if self._sticky.get(topic) == prev_partition:
                self._pick_sticky_locked(topic, cluster, avoid=prev_partition)

    def _pick_sticky_locked(self, topic: str, cluster: Any, avoid: int | None = None) -> int | None:
        """Chooses a topic's partition. None if the topic does not exist. `avoid` is chosen only if no other is available."""
        every = cluster.partitions_for_topic(topic)
        if not every:
            return None
        available = cluster.available_partitions_for_topic(topic)
        wanted = set(available) - {avoid} if available else every
        chosen = self._sticky[topic] = random.choice(sorted(wanted or available))  # noqa: S311 - no secret
        return chosen


def choose_of(given: Any) -> Choose | None:
    """Returns how a producer calls a partitioner; None for kafka-python's own, whose work pylog does by columns.

    Args:
        given: an object of version 3, or a function of version 2.

    Raises:
        TypeError: it is neither.
    """
    if (
        given is None
        or type(given) in (DefaultPartitioner, StickyPartitioner)
        or given in (DefaultPartitioner, StickyPartitioner)
    ):
        return None
    method = getattr(given, "partition", None)
    if callable(method) and not isinstance(given, str | bytes):  # which have a method of this name
        found: Choose = method
        return found
    if not callable(given):
        raise TypeError(f"partitioner={given!r} has no method partition, and cannot be called")

    def choose(topic: str, _key: Any, key: bytes | None, _value: Any, _bytes: bytes | None, cluster: Any) -> Any:
        return given(key, sorted(cluster.partitions_for_topic(topic)), sorted(cluster.available_partitions_for_topic(topic)))

    return choose
