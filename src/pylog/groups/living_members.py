"""Who of a group's members is at work, for those who are none themselves: administrators, and who commits from outside."""

from __future__ import annotations

from pylog.fs import FileSystem, join
from pylog.groups.dismissal import member_ids
from pylog.groups.liveness import at_work
from pylog.groups.members_file import MEMBERS_FILE, slots_of
from pylog.offsets.store import GroupView


class LivingMembers:
    """Looks at the members files of the offsets' partitions, as far as can be known from here.

    Args:
        fs: where the files are.
        writable: who writes keeps brokers out, and so their members. Who only reads believes the records.
    """

    def __init__(self, fs: FileSystem, *, writable: bool) -> None:
        self._fs = fs
        self._writable = writable

    def is_possible(self, directory: str) -> bool:
        """Whether any group of a partition may have members at work: pylog's come with a file. Cost: 2 µs."""
        return self._fs.exists(join(directory, MEMBERS_FILE))

    def at_work(self, view: GroupView) -> set[str]:
        """The members of a group whose processes are there. Cost: one read of the file, if the records name any."""
        members = member_ids(view.image)
        if not members or not self._writable:
            return members
        return at_work(members, slots_of(self._fs, join(view.directory, MEMBERS_FILE)))
