"""kafka-python's partitioners. Those of version 3 are objects; the default one can also be called as in version 2."""

from __future__ import annotations

import random
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
            cluster: has `partitions_for_topic(topic)` and `available_partitions_for_topic(topic)`.
        """


class DefaultPartitioner(Partitioner):
    """Kafka's partitioner: by the hash of the key; without a key, any partition."""

    def partition(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: bytes | None, cluster: Any
    ) -> int | None:
        """Returns the partition. Raises ValueError if the topic does not exist."""
        found = cluster.partitions_for_topic(topic)
        if not found:
            raise ValueError(f"topic {topic!r} does not exist")
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
        self._current: dict[str, int] = {}

    def partition(
        self, topic: str, key: Any, serialized_key: bytes | None, value: Any, serialized_value: bytes | None, cluster: Any
    ) -> int | None:
        """Returns the partition."""
        if serialized_key is not None:
            return super().partition(topic, key, serialized_key, value, serialized_value, cluster)
        known = self._current.get(topic)
        if known is None or known not in (cluster.partitions_for_topic(topic) or ()):
            known = self._current[topic] = super().partition(topic, key, None, value, serialized_value, cluster) or 0
        return known

    def on_new_batch(self, topic: str, cluster: Any, prev_partition: int) -> None:
        """Chooses another partition for the topic, if it still has the one given."""
        others = sorted(set(cluster.partitions_for_topic(topic) or ()) - {prev_partition})
        if self._current.get(topic) == prev_partition and others:
            self._current[topic] = random.choice(others)  # noqa: S311 - no secret


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
    if callable(method):
        found: Choose = method
        return found
    if not callable(given):
        raise TypeError(f"partitioner={given!r} has no method partition, and cannot be called")

    def choose(topic: str, _key: Any, key: bytes | None, _value: Any, _bytes: bytes | None, cluster: Any) -> Any:
        return given(key, sorted(cluster.partitions_for_topic(topic)), sorted(cluster.available_partitions_for_topic(topic)))

    return choose
