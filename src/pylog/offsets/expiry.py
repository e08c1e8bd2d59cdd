"""Which offsets expire, and which groups go with them: pure functions (groups-and-transactions 1.11)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from pylog.offsets.image import GroupImage
from pylog.offsets.schema import GroupMetadata, parse_partition_key, subscribed_topics


class Expiry(NamedTuple):
    """The deletions in one group.

    Attributes:
        places: the offsets to delete.
        group: the group itself is deleted too.
    """

    partition_keys: list[bytes]
    group: bool


def expired(
    group: GroupImage, pending: Collection[bytes], now_ms: int, retention_ms: int, has_living_members: Callable[[], bool]
) -> Expiry:
    """Decides what of a group has expired.

    An offset expires when it was committed, or its group left by its last member, `retention_ms` ago. What members read stays:
    of Kafka's newer protocol, whose subscriptions are not looked into, everything while there are any. Members whose processes
    all died without leaving keep nothing: a coordinator would have put them out long ago.

    Args:
        group: one that exists.
        pending: the keys of offsets that open transactions have committed, which are kept.
        now_ms: the wall clock.
        retention_ms: how long offsets are kept.
        has_living_members: whether any member that the records name is; asked only if they name one.
    """
    metadata = group.metadata()
    named = group.has_members or (metadata is not None and bool(metadata.members))
    deserted = named and not has_living_members()
    since = _since_commit if deserted else None if group.has_members else _base(metadata)
    over = (
        []
        if since is None
        else [partition_key for partition_key in group.entries if _is_over(group, partition_key, since, now_ms, retention_ms)]
    )
    partition_keys = [partition_key for partition_key in over if partition_key not in pending]
    return Expiry(partition_keys, (deserted or not named) and not pending and len(partition_keys) == len(group.entries))


Base = Callable[
    [bytes, int], int | None
]  # (partition key, when it was committed) → since when its time runs, None for not at all


def _is_over(group: GroupImage, partition_key: bytes, since: Base, now_ms: int, retention_ms: int) -> bool:
    committed, expire_timestamp = group.commit(partition_key)
    base = since(partition_key, committed.commit_timestamp or 0)
    if base is None:
        return False
    return now_ms - base >= retention_ms if expire_timestamp is None else now_ms >= expire_timestamp


def _base(metadata: GroupMetadata | None) -> Base | None:
    """Since when the time of a group's offsets runs; None where none may expire, whatever they say themselves."""
    if metadata is None or not metadata.protocol_type:
        return _since_commit
    if not metadata.members:
        return lambda _, committed: committed if metadata.state_timestamp is None else metadata.state_timestamp
    return _while_members_read(metadata)


def _since_commit(_: bytes, committed: int) -> int:
    return committed


def _while_members_read(metadata: GroupMetadata) -> Base | None:
    topics = [subscribed_topics(member.subscription) for member in metadata.members]
    if metadata.protocol_type != "consumer" or None in topics:
        return None
    read = frozenset().union(*(each for each in topics if each is not None))
    return lambda partition_key, committed: None if parse_partition_key(partition_key).topic in read else committed
