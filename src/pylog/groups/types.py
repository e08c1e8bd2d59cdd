"""The arguments and results of assignors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pylog.record.types import TopicPartition

Partitions = Mapping[str, Sequence[int]]  # topic → the numbers of its partitions, ascending
Assignment = dict[str, frozenset[TopicPartition]]  # member → its partitions


class Subscriber(NamedTuple):
    """A member, as assignors see it.

    Attributes:
        member_id: its id.
        topics: the names of its topics.
        owned: its previous partitions.
        instance_id: the instance id of a static member.
    """

    member_id: str
    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    instance_id: str | None = None


def java_order(text: str) -> bytes:
    """Returns a key that sorts text as Java does: by UTF-16 code units."""
    return text.encode("utf-16-be")
