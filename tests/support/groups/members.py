"""Members of groups without a consumer around them."""

from __future__ import annotations

from pylog.groups.heartbeat import Heartbeat
from pylog.groups.member import GroupMember
from pylog.groups.member_options import MemberOptions
from pylog.groups.state import GroupState
from pylog.offsets.store import offset_manager_of
from pylog.store import Store, manager_of


def member_of(store: Store, group: str, options: MemberOptions | None = None) -> GroupMember:
    """A member of a group, which joins it with its first `poll`."""
    return GroupMember(manager_of(store), offset_manager_of(store.offsets), group, options)


def heartbeat_of(member: GroupMember) -> Heartbeat | None:
    """A member's sign of life; None while it is in no group."""
    return member._heartbeat


def group_state_of(member: GroupMember) -> GroupState:
    """The state of a member's group, as its records in the log give it."""
    return member._records.known_state()
