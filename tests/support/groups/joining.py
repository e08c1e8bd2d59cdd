"""Members of a group on one store and one clock."""

from __future__ import annotations

from pylog.groups.member import Event, GroupMember, PartitionsRevoked


def settled(*members: GroupMember) -> list[Event]:
    """Polls all until nothing is left to do, giving up what is to be given up. What was told, in order."""
    told: list[Event] = []
    quiet = 0
    while quiet < len(members):
        quiet = 0
        for member in members:
            event = member.poll()
            if isinstance(event, PartitionsRevoked):
                member.acknowledge_revocation(event.partitions)
            if event is None:
                quiet += 1
            else:
                told.append(event)
        assert len(told) < 100
    return told
