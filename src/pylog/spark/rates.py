"""How much of a stream one micro-batch takes: limits divided among partitions. Pure; the arithmetic is the Kafka connector's.

It is the connector's to the last digit (floating point, rounded down, but up below one), so that micro-batches have the
connector's boundaries.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

from pylog.record.types import TopicPartition

Part = TypeVar("Part", bound=Hashable)
PartitionPositions = Mapping[TopicPartition, int]


def prorated(limit: int, sizes: Mapping[Part, int]) -> dict[Part, int]:
    """Shares out a limit in proportion to sizes; each part gets at least one, so that small ones do not starve.

    Args:
        limit: the approximate total to divide.
        sizes: the size of each part, above 0.

    >>> prorated(10, {"a": 1000, "b": 500, "c": 1})
    {'a': 6, 'b': 3, 'c': 1}
    """
    total = float(sum(sizes.values()))
    return {part: _rounded(limit * (size / total)) for part, size in sizes.items()}


def _rounded(share: float) -> int:
    return math.ceil(share) if share < 1 else math.floor(share)


def at_most(limit: int, begins: PartitionPositions, ends: PartitionPositions) -> dict[TopicPartition, int]:
    """Returns where a micro-batch of about `limit` offsets ends.

    Args:
        limit: offsets in all partitions together.
        begins: where the micro-batch begins in each partition of `ends`.
        ends: how far it might go; one before its beginning (records are lost) stays as it is.

    >>> a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    >>> list(at_most(4, {a: 100, b: 0}, {a: 200, b: 50}).values())
    [102, 1]
    """
    shares = prorated(limit, {part: end - begins[part] for part, end in ends.items() if end > begins[part]})
    return {part: min(end, begins[part] + shares[part]) if part in shares else end for part, end in ends.items()}


def is_too_little(least: int, begins: PartitionPositions, ends: PartitionPositions) -> bool:
    """Returns whether there are fewer new offsets than a micro-batch should have.

    >>> is_too_little(10, {TopicPartition("a", 0): 0}, {TopicPartition("a", 0): 9})
    True
    """
    return sum(end - begins[part] for part, end in ends.items()) < least
