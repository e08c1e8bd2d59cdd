"""A group's records in `__consumer_offsets`, as one of its members reads and changes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from pylog import trace
from pylog.config import Durability
from pylog.groups import decisions
from pylog.groups.change_lines import trace_change
from pylog.groups.heartbeat import Heartbeat
from pylog.groups.state import GroupState, PartitionSet, TopicInfo, changes, state_of, topic_info
from pylog.offsets.image import GroupImage, Image
from pylog.offsets.offset_manager import OffsetManager
from pylog.offsets.partition import OffsetsPartition
from pylog.offsets.schema import parse_partition_key
from pylog.offsets.starts import start_items
from pylog.record.types import OffsetAndMetadata, TopicPartition
from pylog.topics.topic import Topic

_NOT_READ = -1
_DURABILITY = Durability.OS  # of membership records: no member survives a crash that loses them


class GroupTurn(NamedTuple):
    """The group after one critical section, and the offsets committed at that moment."""

    after: GroupState
    committed: Mapping[TopicPartition, OffsetAndMetadata]


class GroupRecords:
    """Reads the state of a group from its records, and appends the changes that a member decides. It belongs to one thread.

    Args:
        offsets: the committed offsets of the directory.
        group: the group's name.
        name: the bytes of the name.
        commits_new_partitions: commit offset 0 for partitions that are created while the group has members.

    Attributes:
        available: the existing topics, from the last `topics_are`.
        created: topics of the member's subscription that are known to be new.
        blocked: partitions with offsets in open transactions.
        is_quiet: the member has nothing to do until the state changes; a state that is parsed again makes it false.
    """

    def __init__(self, offsets: OffsetManager, group: str, name: bytes, *, commits_new_partitions: bool) -> None:
        self._offsets = offsets
        self._group = group
        self._name = name
        self._commits_new_partitions = commits_new_partitions
        self.available: dict[str, TopicInfo] = {}
        self.created: frozenset[str] = frozenset()
        self.blocked: PartitionSet = frozenset()
        self.is_quiet = False
        self._seen: GroupImage | None = None  # the image that the state was read from
        self._changes = _NOT_READ  # the image's count of changes at that time
        self._state = GroupState()

    def topics_are(self, topics: Mapping[str, Topic]) -> None:
        """Takes the topics as they are now. The parsed state depends on them."""
        available = {name: topic_info(topic) for name, topic in topics.items()}
        if available != self.available:
            self.available, self._changes = available, _NOT_READ

    def known_state(self) -> GroupState:
        """Returns the group's current state. Cost: one small read if it has not changed."""

        def read(partition: OffsetsPartition) -> GroupState:
            with partition.image() as image:
                self.blocked = _pending(image, self._name)
                return self.read(image)

        return self._offsets.with_partition(self._group, read)

    def read(self, image: Image) -> GroupState:
        """Returns the group's state, parsed only if its records have changed."""
        group = image.groups.get(self._name)
        count = 0 if group is None else group.changes
        if group is not self._seen or count != self._changes:
            self._state, self.is_quiet = state_of(group, self.available), False
            self._seen, self._changes = group, count
        return self._state

    def turn(
        self,
        partition: OffsetsPartition,
        member_id: str,
        heartbeat: Heartbeat | None,
        reading: PartitionSet,
        decide: Callable[[GroupState], GroupState],
    ) -> GroupTurn:
        """Decides, takes the free partitions of a member's target, and reads their committed offsets, in one critical section."""
        with partition.exclusively() as image:
            before, group = self.read(image), image.groups.get(self._name)
            committed = {} if group is None else dict(group.offsets())
            after = decisions.settle(decide(before), member_id, reading, _pending(image, self._name))
            return GroupTurn(after, committed | self._append(partition, member_id, heartbeat, before, after, committed))

    def change(self, member_id: str, heartbeat: Heartbeat | None, decide: Callable[[GroupState], GroupState]) -> None:
        """Applies a member's decision to the group, if it is still a member."""

        def act(partition: OffsetsPartition) -> None:
            with partition.exclusively() as image:
                before, group = self.read(image), image.groups.get(self._name)
                if member_id in before.members:
                    committed = () if group is None else group.offsets()
                    self._append(partition, member_id, heartbeat, before, decide(before), committed)

        self._offsets.with_partition(self._group, act)

    def _append(
        self,
        partition: OffsetsPartition,
        member_id: str,
        heartbeat: Heartbeat | None,
        before: GroupState,
        after: GroupState,
        committed: Collection[TopicPartition],
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Appends the changes and the start offsets of new partitions; returns those offsets."""
        items, starts = changes(self._name, before, after), dict[TopicPartition, OffsetAndMetadata]()
        if self._commits_new_partitions:
            new = decisions.created_partitions(before, after, self.available, self.created) - frozenset(committed)
            starts = dict.fromkeys(sorted(new), OffsetAndMetadata(0, "", None))
        if items:
            now_ms = self._offsets.clock.now_ms()
            partition.append([*items, *start_items(self._name, starts, now_ms)], now_ms, _DURABILITY)
            if starts:
                facts = {"group": self._group, "partitions": trace.names_of(starts), "member": member_id}
                trace.later(trace.NEW_PARTITIONS, **facts, reason="they were created while the group had members")
            trace_change(self._group, before, after, member_id, {} if heartbeat is None else heartbeat.reasons)
        return starts


def _pending(image: Image, group: bytes) -> PartitionSet:
    """Returns the partitions for which open transactions have committed offsets of a group."""
    return frozenset(map(parse_partition_key, image.pending_of(group))) if image.pending else frozenset()
