"""`GroupMember`: one consumer's membership of its group. There is no coordinator: a member that changes the group locks
its partition of `__consumer_offsets`, catches up, decides, appends, and releases the lock.

No lock is held when a method returns, and none while user code runs. Only the member itself writes its records, until another
member removes it.
"""

from __future__ import annotations

import contextlib
import secrets
import weakref
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from pylog import limits, trace
from pylog.config import Durability
from pylog.directory.topic_names import check_topic_name
from pylog.errors import ClosedError, FencedMemberError, InvalidArgumentError, ReadOnlyError
from pylog.fs import FileSystem, join, process_id
from pylog.groups import decisions
from pylog.groups.group_records import GroupRecords, GroupTurn
from pylog.groups.heartbeat import Heartbeat
from pylog.groups.liveness import FailureDetector
from pylog.groups.member_options import MemberOptions
from pylog.groups.members_file import MEMBERS_FILE, MembersFile
from pylog.groups.state import GroupState, Member, PartitionSet
from pylog.log_manager import LogManager
from pylog.offsets.arguments import checked_group
from pylog.offsets.image import Image
from pylog.offsets.membership import MEMBER, member_record_key
from pylog.offsets.offset_manager import CommitLogs, OffsetManager, PartitionLike
from pylog.offsets.partition import OffsetsPartition
from pylog.record.types import OffsetAndMetadata, TopicPartition
from pylog.topics.watch import TopicsWatch
from pylog.urls import how_to_write

_NO_EPOCH = -1


class PartitionsRevoked(NamedTuple):
    """Partitions move to another member: stop reading them, run the listener, commit, then call `acknowledge_revocation`.

    No other member gets them before that call, which is required even if the listener raised.
    """

    partitions: frozenset[TopicPartition]


class PartitionsAssigned(NamedTuple):
    """A rebalance is complete: the new partitions, which may be none, each with the group's committed offset.

    The member owns them already, and no commit can come between that and the offsets given here. A partition whose previous
    owner has not released it yet follows later, in another `PartitionsAssigned`.
    """

    partitions: dict[TopicPartition, OffsetAndMetadata | None]


class PartitionsLost(NamedTuple):
    """Partitions that the member no longer owns, and another member may own already: commits for them are refused.

    The usual cause is removal from the group; the next `poll` joins again.
    """

    partitions: frozenset[TopicPartition]


RebalanceEvent = PartitionsRevoked | PartitionsAssigned | PartitionsLost


class GroupMember:
    """One consumer's membership of its group. It belongs to one thread; several consumers of a process are several members.

    The member joins at the first `poll` after `subscribe`. docs/GROUPS.md defines the terms.

    Args:
        manager: the manager of a directory that is open for writing.
        offsets: the committed offsets there.
        group: the group's name.
        options: the member's options.

    Raises:
        InvalidArgumentError: the group's name is empty or too long.
        ReadOnlyError: the directory is open for reading.

    >>> import pylog, tempfile
    >>> from pylog.offsets.store import offset_manager_of
    >>> from pylog.store import manager_of
    >>> store = pylog.open(tempfile.mkdtemp())
    >>> _ = store.create_topic("orders", partition_count=2)
    >>> one, two = (GroupMember(manager_of(store), offset_manager_of(store.offsets), "billing") for _ in range(2))
    >>> one.subscribe(["orders"])
    >>> len(one.poll().partitions)
    2
    >>> two.subscribe(["orders"])
    >>> two.poll()
    PartitionsAssigned(partitions={})
    >>> revoke = one.poll()
    >>> one.commit(dict.fromkeys(revoke.partitions, 0))
    >>> one.acknowledge_revocation(revoke.partitions)
    >>> [each.offset for each in two.poll().partitions.values()]
    [0]
    >>> _ = one.leave(), two.leave(), store.close()
    """

    def __init__(self, manager: LogManager, offsets: OffsetManager, group: str, options: MemberOptions | None = None) -> None:
        if not manager.writable:
            message = f"{manager.path} is open for reading, and a member of a group writes; {how_to_write(manager.path)}"
            raise ReadOnlyError(message, path=manager.path)
        self._name = checked_group(group)
        if not self._name:
            raise InvalidArgumentError("the group's name is empty; members need one to find each other")
        self._group = group
        self._manager = manager
        self._offsets = offsets
        self._options = options or MemberOptions()
        self._records = GroupRecords(offsets, group, self._name, commits_new_partitions=self._options.commits_new_partitions)
        self._records.topics_are(manager.topics())
        self._pid = process_id()
        self._topics: frozenset[str] = frozenset()  # its subscription
        self._topics_watch = TopicsWatch(lambda: manager.topic_changes, self._options.heartbeat_interval_ms)
        self._next_probe = 0.0  # time of the next liveness check
        self._member_id = ""
        self._epoch = _NO_EPOCH
        self._given_epoch = _NO_EPOCH  # of the last `PartitionsAssigned`
        self._detector = FailureDetector(self._options.heartbeat_interval_ms / 1000)  # over all attempts to join
        self._heartbeat: Heartbeat | None = None  # None while it is in no group
        self._reading: PartitionSet = frozenset()
        self._revoking = False

    @property
    def member_id(self) -> str:
        """The member's id in the group; "" while it is in no group. Each join gives a new id."""
        return self._member_id

    @property
    def epoch(self) -> int:
        """The number of the last rebalance that it completed, from 1; -1 while it is in no group."""
        return self._epoch

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns. Partitions that must be revoked are included until `acknowledge_revocation`."""
        return self._reading

    def subscribe(self, topics: Collection[str], created: Collection[str] = ()) -> None:
        """Sets the member's topics; the next `poll` joins the group, or changes the subscription.

        Args:
            topics: names, at least one. A topic that does not exist yet is read once it is created.
            created: the topics among them that were created while the member was running, as found by a pattern.

        Raises:
            InvalidTopicError, InvalidArgumentError: a name is invalid, or there are no topics: `leave` ends a subscription.
        """
        wanted = frozenset(map(check_topic_name, topics))
        if not wanted or isinstance(topics, str):
            raise InvalidArgumentError(f"topics={topics!r} are not topic names; to end a subscription, leave the group")
        self._topics, self._records.created = wanted, frozenset(created)
        self._records.is_quiet = False

    # ---- poll ----------------------------------------------------------------------------------------------------------------

    def poll(self) -> RebalanceEvent | None:
        """Does the pending work for the member and the group, and returns the next change of the member's partitions.

        Call it before returning records, including records fetched earlier, until it returns None, and at least once every
        `max_poll_interval_ms`. After `PartitionsRevoked` it returns None or `PartitionsLost` until `acknowledge_revocation`.

        Raises:
            InconsistentGroupProtocolError: on joining, the members share no assignor. Nothing was written; poll again.
            UnreleasedInstanceIdError: on joining, another running member has the same `group_instance_id`. As above.
            ClosedError: the store is closed, or this is a forked child, which has no member.
            CorruptionError, StorageFailedError, StoreLockedError: as `Log.append`; poll again.

        Cost: one small read if nothing has changed; a few times a second, a check of each other member (1 µs).
        """
        self._check_process()
        if not self._topics:
            return None
        now = self._offsets.clock.monotonic()
        if self._heartbeat is None:
            return self._join(now)
        self._heartbeat.polled(now)
        if now >= self._next_probe or self._topics_watch.is_due(now):
            self._look_after_group(self._heartbeat, now)
        state = self._records.known_state()
        return None if self._records.is_quiet else self._reconcile(state, now)

    def _check_process(self) -> None:
        if process_id() != self._pid:
            raise ClosedError("a group member cannot be used in a forked process; open the store and join again there")

    def _reconcile(self, state: GroupState, now: float) -> RebalanceEvent | None:
        """Takes one step from the partitions it reads to those in its target."""
        me = state.members.get(self._member_id)
        if me is None:
            if self._reading:
                self._trace(trace.LOST, self._reading, "the member is no longer in its group")
            self._trace(trace.MEMBER_FENCED, self._reading, "another process has removed it; see its line in that process")
            lost = self._out_of_group()
            return PartitionsLost(lost) if lost else self._join(now)
        self._epoch = me.epoch  # an interrupted call may have written it
        deleted = self._reading - me.owned
        if deleted:  # a topic was deleted
            self._reading -= deleted
            self._trace(trace.LOST, deleted, "their topic was deleted")
            return PartitionsLost(deleted)
        if self._revoking:
            return None
        if me.topics != self._topics:
            self._change(lambda known: decisions.subscribe(known, self._member_id, self._topics, self._records.available))
            return self._reconcile(self._records.known_state(), now)
        return self._revoke_or_assign(state, me)

    def _revoke_or_assign(self, state: GroupState, me: Member) -> RebalanceEvent | None:
        over = self._reading - me.target
        if over:
            self._revoking = True
            return PartitionsRevoked(over)
        if self._given_epoch == me.epoch and decisions.is_settled(state, self._member_id, self._reading, self._records.blocked):
            self._records.is_quiet = not self._records.blocked
            return None
        turn = self._offsets.with_partition(self._group, self._next_turn)
        return None if turn is None else self._assigned(turn)

    def _assigned(self, turn: GroupTurn) -> PartitionsAssigned | None:
        me = turn.after.members[self._member_id]
        new = me.owned - self._reading
        known, self._given_epoch = self._given_epoch, me.epoch
        self._epoch, self._reading = me.epoch, me.owned
        if not new and known == me.epoch:
            return None
        if new:
            self._trace(trace.ASSIGNED, new)
        return PartitionsAssigned({partition: turn.committed.get(partition) for partition in sorted(new)})

    def _out_of_group(self) -> PartitionSet:
        """Drops the membership and returns the partitions that are lost."""
        lost, self._reading = self._reading, frozenset()  # first: a member that is interrupted after this owns nothing
        heartbeat, self._heartbeat = self._heartbeat, None
        self._revoking = self._records.is_quiet = False
        self._member_id, self._epoch, self._given_epoch = "", _NO_EPOCH, _NO_EPOCH
        if heartbeat is not None:
            try:
                heartbeat.end()
            except BaseException:  # an interrupt, which may have come before it had begun
                heartbeat.end()
                raise
        return lost

    # ---- changing the group --------------------------------------------------------------------------------------------------

    def _join(self, now: float) -> PartitionsAssigned | None:
        """Takes a slot, then joins: in the other order, other members would see a member without a process."""
        self._refresh_topics(now)
        self._member_id = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        try:
            turn = self._offsets.with_partition(self._group, lambda partition: self._joined(partition, now))
        except BaseException:
            self._out_of_group()
            raise
        self._next_probe = now + limits.MEMBER_PROBE_S
        return self._assigned(turn)

    def _joined(self, partition: OffsetsPartition, now: float) -> GroupTurn:
        if self._heartbeat is not None:  # of a first attempt
            self._heartbeat.end()
        heartbeat = self._heartbeat = self._appeared(partition)
        heartbeat.begin()  # an interrupt from here on finds it and ends it
        options = self._options
        newcomer = Member(
            self._member_id,
            self._topics,
            options.assignors,
            options.group_instance_id,
            options.client_id,
            options.max_poll_interval_ms,
        )

        def decide(state: GroupState) -> GroupState:
            dead, expired = heartbeat.judge(state.members.values(), now)
            return decisions.join(state, newcomer, self._records.available, dead=dead, expired=expired)

        return self._turn(partition, decide)

    def _appeared(self, partition: OffsetsPartition) -> Heartbeat:
        options, manager = self._options, self._manager
        with manager.gate:  # a slot is written: `close` waits for it
            file = _claimed(partition, self._offsets.fs, self._member_id, options)
        interval_s = options.heartbeat_interval_ms / 1000
        heartbeat = Heartbeat(file, interval_s, manager.gate, partition.check_open, self._detector, manager.failures)
        weakref.finalize(self, heartbeat.forget).atexit = False
        return heartbeat

    def _next_turn(self, partition: OffsetsPartition) -> GroupTurn | None:
        """Takes a turn if it is still in the group; returns None if not, which the next poll reports."""
        with partition.exclusively() as image:
            is_member = self._member_id in self._records.read(image).members
            return self._turn(partition, lambda known: known) if is_member else None

    def _change(self, decide: Callable[[GroupState], GroupState]) -> None:
        self._records.change(self._member_id, self._heartbeat, decide)

    def _turn(self, partition: OffsetsPartition, decide: Callable[[GroupState], GroupState]) -> GroupTurn:
        return self._records.turn(partition, self._member_id, self._heartbeat, self._reading, decide)

    def _trace(self, event: trace.Event, partitions: Collection[TopicPartition], reason: str | None = None) -> None:
        facts = {"group": self._group, "member": self._member_id, "partitions": trace.names_of(partitions)}
        trace.line(event, **facts, epoch=self._epoch, reason=reason)

    # ---- due work of the group -----------------------------------------------------------------------------------------------

    def _refresh_topics(self, now: float) -> None:
        changes = self._manager.topic_changes
        self._records.topics_are(self._manager.current_topics())
        self._topics_watch.checked(now, changes)

    def _look_after_group(self, heartbeat: Heartbeat, now: float) -> None:
        """Removes dead members and notices changed topics. There is no leader: each member that polls does this."""
        self._next_probe = now + limits.MEMBER_PROBE_S
        if self._topics_watch.is_due(now):
            self._refresh_topics(now)
        state = self._records.known_state()
        if self._member_id not in state.members:
            return
        expired = heartbeat.judge(_others(state, self._member_id), now).expired
        if expired or decisions.topics_changed(state, self._records.available):
            self._change(lambda known: self._in_order(known, heartbeat, now))

    def _in_order(self, state: GroupState, heartbeat: Heartbeat, now: float) -> GroupState:
        """Checks everything again under the lock: a member may have returned, or another observer may have removed it."""
        expired = heartbeat.judge(_others(state, self._member_id), now).expired
        return decisions.refresh_topics(decisions.remove(state, expired, self._records.available), self._records.available)

    def expire_topics(self) -> None:
        """Makes the next `poll` list the topics, because the caller found that one of them was deleted."""
        self._topics_watch.expire()

    # ---- what the consumer does ----------------------------------------------------------------------------------------------

    def acknowledge_revocation(self, partitions: Collection[TopicPartition]) -> None:
        """Releases the partitions of a `PartitionsRevoked`: other members may take them, and `assignment` no longer has them.

        Raises:
            As `poll`. The member no longer owns the partitions even if this raises; the next `poll` records it in the log.
        """
        self._check_process()
        given = frozenset(partitions)
        self._reading -= given
        self._revoking = self._records.is_quiet = False
        if self._heartbeat is not None:
            self._change(lambda known: decisions.give_up(known, self._member_id, given))
            if given:
                self._trace(trace.REVOKED, given, "they are assigned to another member")

    def commit(
        self,
        offsets: Mapping[PartitionLike, int | OffsetAndMetadata],
        *,
        durability: Durability | str | None = None,
        member_id: str | None = None,
        logs: CommitLogs | None = None,
    ) -> None:
        """Commits offsets as `OffsetStore.commit`, all or none, if the member owns the partitions at that moment.

        Args:
            offsets, durability: as for `OffsetStore.commit`.
            member_id: the membership for which the commit was requested; None for the current one.
            logs: the logs that the offsets are for; None for those that the partitions have now.

        Raises:
            FencedMemberError: it is no longer in the group, or it does not own one of the partitions. Nothing was written; `poll`
                returns what is lost.
            As `OffsetStore.commit`.

        Cost: one append, under the lock of the group's offsets.
        """
        self._check_process()
        items = self._offsets.items(self._group, offsets, logs)
        partitions = frozenset(TopicPartition(*partition) for partition in offsets)

        def act(offsets_partition: OffsetsPartition) -> None:
            with offsets_partition.exclusively() as image:
                decisions.check_commit(self._records.read(image), self._member_id, self._epoch, partitions)
                offsets_partition.append(items.records, self._offsets.clock.now_ms(), durability, check=items.check)

        if self._heartbeat is None:
            raise FencedMemberError(f"the consumer is not in the group {self._group!r}; subscribe and poll, then commit")
        if member_id not in (None, self._member_id):
            message = (
                f"the consumer was removed from the group {self._group!r} after this commit was requested, and has joined again"
            )
            raise FencedMemberError(f"{message}; commit the current positions")
        if items.records:
            self._offsets.with_partition(self._group, act)

    def leave(self) -> None:
        """Leaves the group: its partitions are free at once. A static member stays in the group for its session timeout.

        The caller must run the listener and commit before. `subscribe` and `poll` join again. A second call, a call in a forked
        child and a call after the store was closed change nothing.

        Raises:
            As `poll`. The member leaves even then: the other members will find that it is not alive.
        """
        if process_id() != self._pid:
            return
        member_id, is_static = self._member_id, self._options.group_instance_id is not None
        if is_static and self._heartbeat is not None:
            timeout, instance = self._options.session_timeout_ms, self._options.group_instance_id
            facts = {"group": self._group, "member": member_id, "instance": instance, "session_timeout_ms": timeout}
            trace.line(trace.STATIC_MEMBER_CLOSED, **facts, reason="its partitions wait for it until its session times out")
        try:
            if self._heartbeat is not None and not is_static:
                with contextlib.suppress(ClosedError):  # the store is closed: the other members find that this one is not alive
                    self._change(lambda known: decisions.remove(known, {member_id}, self._records.available))
        finally:
            self._topics = frozenset()
            self._out_of_group()


def is_settled(member: GroupMember) -> bool:
    """Returns whether a member reads all partitions that the group's last rebalance gave to it."""
    me = member._records.known_state().members.get(member._member_id)
    return me is not None and member._reading == me.target


def _claimed(partition: OffsetsPartition, fs: FileSystem, member_id: str, options: MemberOptions) -> MembersFile:
    """Returns the members file of a partition with a slot for a member."""
    file = MembersFile(fs, join(partition.directory, MEMBERS_FILE))
    try:
        with partition.image() as image:
            timeouts = options.session_timeout_ms, options.max_poll_interval_ms
            file.claim(member_id, *timeouts, lambda other: _is_member(image, other))
    except BaseException:
        file.close()
        raise
    return file


def _is_member(image: Image, member_id: str) -> bool:
    """Returns whether any of the groups has a member with this id."""
    return any(member_record_key(MEMBER, name, member_id) in group.membership for name, group in image.groups.items())


def _others(state: GroupState, member_id: str) -> list[Member]:
    return [member for member in state.members.values() if member.member_id != member_id]
