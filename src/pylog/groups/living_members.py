"""Finds the active members of a group, for callers outside it: administrators and simple commits."""

from __future__ import annotations

from pylog.fs import FileSystem, join
from pylog.groups.dismissal import member_ids
from pylog.groups.liveness import living_members
from pylog.groups.members_file import MEMBERS_FILE, slots_of
from pylog.offsets.offset_manager import GroupView


class LivingMembers:
    """Reads the members files next to the partitions of `__consumer_offsets`.

    Args:
        fs: the file system of the files.
        writable: the store is open for writing, which excludes a running broker and its members. A read-only store cannot tell,
            and counts every member in the records.
    """

    def __init__(self, fs: FileSystem, *, writable: bool) -> None:
        self._fs = fs
        self._writable = writable

    def is_possible(self, directory: str) -> bool:
        """Returns whether any group of a partition may have active members: members of pylog create a file. Cost: 2 µs."""
        return self._fs.exists(join(directory, MEMBERS_FILE))

    def living(self, view: GroupView) -> set[str]:
        """Returns the group's members whose processes are running. Cost: one read of the file, if the records name a member."""
        members = member_ids(view.image)
        if not members or not self._writable:
            return members
        return living_members(members, slots_of(self._fs, join(view.directory, MEMBERS_FILE)))
