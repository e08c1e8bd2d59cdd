"""`ConsumerGroupMetadata`: the membership for which offsets are committed in a transaction (KIP-447)."""

from __future__ import annotations

from typing import NamedTuple


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership of its group, as `Consumer.group_metadata` returns it.

    A transaction commits offsets for a member only while the member owns the partitions. Without a member id, they are committed
    only while the group has no active members.

    Attributes:
        group_id: the group's name.
        member_id: the member's id; "" if the consumer is not in the group.
        epoch: the last rebalance that the member has completed; -1 if the consumer is not in the group.
        group_instance_id: the name of a static member, or None.

    >>> ConsumerGroupMetadata("billing")
    ConsumerGroupMetadata(group_id='billing', member_id='', epoch=-1, group_instance_id=None)
    """

    group_id: str
    member_id: str = ""
    epoch: int = -1
    group_instance_id: str | None = None
