"""Members of groups without a consumer around them."""

from __future__ import annotations

from pylog.groups.member import GroupMember
from pylog.groups.member_options import MemberOptions
from pylog.offsets.store import offset_manager_of
from pylog.store import Store, manager_of


def member_of(store: Store, group: str, options: MemberOptions | None = None) -> GroupMember:
    """A member of a group, which joins it with its first `poll`."""
    return GroupMember(manager_of(store), offset_manager_of(store.offsets), group, options)
