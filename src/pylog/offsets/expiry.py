"""Decides which offsets and groups expire: pure functions (groups-and-transactions 1.11)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from pylog.offsets.image import GroupImage
from pylog.offsets.schema import GroupMetadata, parse_partition_key, subscribed_topics


class Expiry(NamedTuple):
    """The deletions in one group.

    Attributes:
        partition_keys: the partition keys of the offsets to delete.
        group: true to delete the group itself too.
    """

    partition_keys: list[bytes]
    group: bool


def expired(
    group: GroupImage, pending: Collection[bytes], now_ms: int, retention_ms: int, has_living_members: Callable[[], bool]
) -> Expiry:
    """Decides which offsets of a group have expired.

    An offset expires `retention_ms` after its commit, or after the last member left the group. Offsets of topics that members
    read are kept. A group of Kafka's newer protocol keeps all of its offsets while it has members. If the processes of all
    members have ended, their offsets expire as well: a coordinator would have removed such members long ago.

    Args:
        group: an existing group.
        pending: the keys of offsets that open transactions have committed, which are kept.
        now_ms: the wall clock.
        retention_ms: how long offsets are kept.
        has_living_members: returns whether any member in the records is running. Called only if there are members.
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
    """Returns when the retention of a group's offsets begins; None if none of them may expire."""
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
