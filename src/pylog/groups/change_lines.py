"""Log lines for changes of a group: members that join or leave, and partitions that move. See `pylog.trace`."""

from __future__ import annotations

from collections.abc import Mapping

from pylog import trace
from pylog.groups.state import GroupState, Member
from pylog.record.types import TopicPartition


def trace_change(group: str, before: GroupState, after: GroupState, me: str, reasons: Mapping[str, str]) -> None:
    """Writes a line for each member that joined or left, and one if the partitions were assigned again.

    Args:
        group: its name.
        before, after: the group.
        me: the member that changes it.
        reasons: why other members are removed, by their ids.
    """
    for member_id in sorted(after.members.keys() - before.members.keys()):
        _trace_joined(group, after.members[member_id], after.epoch)
    instances = {member.instance_id for member in after.members.values()} - {None}
    for member_id in sorted(before.members.keys() - after.members.keys()):
        left = before.members[member_id]
        facts = {"group": group, "member": member_id, "instance": left.instance_id, "partitions": trace.names_of(left.owned)}
        if member_id == me:
            trace.later(trace.MEMBER_LEFT, **facts, reason="its consumer was closed or unsubscribed")
        elif left.instance_id in instances:
            trace.later(trace.MEMBER_EXPELLED, **facts, reason="a new process has its group_instance_id", by=me)
        else:
            reason = reasons.get(member_id, "another protocol's member; a member of pylog has joined")
            trace.later(trace.MEMBER_EXPELLED, **facts, reason=reason, by=me)
    if after.epoch != before.epoch:
        _trace_rebalance(group, before, after)


def _trace_joined(group: str, member: Member, epoch: int) -> None:
    facts = {"member": member.member_id, "instance": member.instance_id, "client": member.client_id}
    trace.later(trace.MEMBER_JOINED, group=group, **facts, topics=sorted(member.topics), epoch=epoch)


def _trace_rebalance(group: str, before: GroupState, after: GroupState) -> None:
    old, new = _targets(before), _targets(after)
    moved = [partition for partition in old.keys() | new.keys() if old.get(partition) != new.get(partition)]
    facts = {"group": group, "epoch": after.epoch, "members": len(after.members), "moved": trace.names_of(moved)}
    trace.later(trace.REBALANCED, **facts, reason=_reason(before, after))


def _targets(state: GroupState) -> dict[TopicPartition, str]:
    """Returns each partition with the member that is meant to have it."""
    return {partition: member.member_id for member in state.members.values() for partition in member.target}


def _reason(before: GroupState, after: GroupState) -> str:
    if after.members.keys() - before.members.keys():
        return "a member joined"
    if before.members.keys() - after.members.keys():
        return "a member left or was removed"
    if any(before.members[member_id].topics != member.topics for member_id, member in after.members.items()):
        return "a member changed its subscription"
    return "topics were created or deleted, or have new partitions"
