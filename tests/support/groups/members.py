"""Members of groups without a consumer around them."""

from __future__ import annotations

from pylog.groups.member import GroupMember, MemberOptions
from pylog.store import Store


def member_of(store: Store, group: str, options: MemberOptions | None = None) -> GroupMember:
    """A member of a group, which joins it with its first `poll`."""
    return GroupMember(store._manager, store.offsets, group, options)
