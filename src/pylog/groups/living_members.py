"""Finds the active members of a group, for callers outside it: administrators, simple commits and transactions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pylog.fs import FileSystem, join
from pylog.groups import decisions
from pylog.groups.dismissal import member_ids
from pylog.groups.liveness import living_members
from pylog.groups.members_file import MEMBERS_FILE, slots_of
from pylog.groups.state import state_of, topic_info
from pylog.offsets.group_metadata import ConsumerGroupMetadata
from pylog.offsets.offset_manager import GroupView
from pylog.record.types import TopicPartition
from pylog.topics.topic import Topic


class LivingMembers:
    """Reads the members files next to the partitions of `__consumer_offsets`.

    Args:
        fs: the file system of the files.
        topics: returns the existing topics.
        writable: the store is open for writing, which excludes a running broker and its members. A read-only store cannot tell,
            and counts every member in the records.
    """

    def __init__(self, fs: FileSystem, topics: Callable[[], Mapping[str, Topic]], *, writable: bool) -> None:
        self._fs = fs
        self._topics = topics
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

    def check_commit(self, view: GroupView, member: ConsumerGroupMetadata, partitions: Collection[TopicPartition]) -> None:
        """Raises FencedMemberError unless a member owns some partitions now. The caller holds the lock of the group's partition.

        Cost: parsing the group's records.
        """
        available = {name: topic_info(topic) for name, topic in self._topics().items()}
        decisions.check_commit(state_of(view.image, available), member.member_id, member.epoch, partitions)
