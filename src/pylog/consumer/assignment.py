"""The partitions assigned to a consumer, by itself or by its group, and the calls of its rebalance listener.

When a partition is revoked, the consumer first stops returning its records, then calls the listener. The partition can be
committed until the listener returns. It is released afterwards, even if the listener raised.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from pylog.clock import Clock
from pylog.consumer.commits import MemberIdentity, Offsets
from pylog.consumer.listener import ConsumerRebalanceListener
from pylog.consumer.options import ConsumerOptions
from pylog.consumer.partition import AssignedPartition
from pylog.consumer.standalone_membership import Membership, StandaloneMembership
from pylog.consumer.subscription import Subscription
from pylog.errors import (
    ClosedError,
    IllegalStateError,
    OffsetOutOfRangeError,
    PylogError,
    UnknownTopicOrPartitionError,
)
from pylog.fs import on_fork
from pylog.groups import member
from pylog.groups.member import GroupMember
from pylog.log.reading.lookup import name
from pylog.log_manager import LogManager
from pylog.offsets.offset_manager import CommitLogs, OffsetManager, PartitionLike
from pylog.record.types import OffsetAndMetadata, TopicPartition
from pylog.topics.watch import TopicsWatch

LOGGER = logging.getLogger("pylog")
_OF_A_LOG: Final = (  # that was deleted, perhaps during the check, or truncated
    UnknownTopicOrPartitionError,
    OffsetOutOfRangeError,
    ClosedError,
)


class ConsumerHooks(NamedTuple):
    """The calls into a consumer when its assignment changes.

    Attributes:
        new_partition: creates the state of a newly assigned partition.
        read: sets the partitions to fetch from.
        commit: finishes pending commits, and commits the positions if automatic commits are on.
        lend: calls user code, which may use the consumer.
    """

    new_partition: Callable[[TopicPartition], AssignedPartition]
    read: Callable[[Iterable[AssignedPartition]], None]
    commit: Callable[[], None]
    lend: Callable[..., None]


class ConsumerAssignment:
    """The partitions of one consumer.

    Args:
        manager, offsets, clock, options: the consumer's.
        around: called when the assignment changes.

    Attributes:
        partitions: the assigned partitions, with their states.
        subscription: the topics or the pattern subscribed to, or None.
        is_manual: true if `assign` chose the partitions.
        begun_again: assigned partitions whose log was deleted, until that is reported to the program.
    """

    def __init__(
        self, manager: LogManager, offsets: OffsetManager, clock: Clock, options: ConsumerOptions, around: ConsumerHooks
    ) -> None:
        self.partitions: dict[TopicPartition, AssignedPartition] = {}
        self.subscription: Subscription | None = None
        self.is_manual = False
        self.begun_again: set[TopicPartition] = set()
        self._manager = manager
        self._offsets = offsets
        self._clock = clock
        self._around = around
        self._group = options.group_id
        self._watch = TopicsWatch(lambda: manager.topic_changes, options.heartbeat_interval_ms)  # for a pattern
        self._created: set[str] = set()  # matching topics that were created after `subscribe`
        self._names: frozenset[str] = frozenset()  # of the topics subscribed to
        self._said: frozenset[str] | None = None  # the names passed to the membership; None: pass them again
        self._turn = threading.Lock()  # held during calls of the member: the commit thread calls it too
        self._following = threading.Lock()  # held while events are applied and listeners run
        self._member_options = options.member
        self._left_out: frozenset[PartitionLike] = frozenset()  # of the last commit, to log each once
        self._membership: Membership | None = None
        self._event: member.RebalanceEvent | None = None  # kept until it is applied, so that an interrupt cannot lose it
        self._is_asking = False  # the membership: an interrupt may have lost the event it returned
        on_fork(self)

    def forked(self) -> None:
        """Ends iterations in a forked child, which owns none of the partitions."""
        for assigned in self.partitions.values():
            assigned.owned = False

    def state_of(self, partition: TopicPartition) -> AssignedPartition:
        """Returns the state of an assigned partition.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        found = self.partitions.get(partition)
        if found is None:
            raise self.not_assigned(partition, self.partitions)
        return found

    @staticmethod
    def not_assigned(partition: TopicPartition, present: Iterable[TopicPartition]) -> IllegalStateError:
        """Returns the error for a partition that is not among those that are present."""
        some = ", ".join(sorted(map(name, list(present)))[:10]) or "none"
        message = f"{name(partition)} is not assigned to this consumer; its partitions are {some}"
        return IllegalStateError(f"{message}; poll first, or assign it")

    def positions(self) -> Offsets:
        """Returns the known positions, which can be committed (groups-and-transactions 2.1)."""
        return {
            partition: OffsetAndMetadata(assigned.position, "", assigned.leader_epoch)
            for partition, assigned in self.partitions.items()
            if assigned.position is not None
        }

    # ---- choosing partitions -------------------------------------------------------------------------------------------------

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Replaces the assigned partitions. Partitions that stay keep their positions."""
        if self.subscription is not None:
            raise IllegalStateError("the consumer is subscribed to topics; call unsubscribe() before assign()")
        self._around.commit()
        self.is_manual = bool(partitions)
        self._drop([assigned for partition, assigned in self.partitions.items() if partition not in partitions])
        self._add({partition: None for partition in partitions if partition not in self.partitions})

    def subscribe(self, subscription: Subscription) -> None:
        """Replaces the subscription. The next `keep_up` joins the group."""
        if self.is_manual:
            raise IllegalStateError("the consumer was assigned partitions; call unsubscribe() before subscribe()")
        for topic in subscription.topics:
            self._manager.topic(topic)  # raises if it does not exist
        changes = self._manager.topic_changes
        names = subscription.names(self._manager)
        self._membership = self._membership or self._new_membership()
        self.subscription, self._names, self._said = subscription, names, None
        self._created.clear()
        self._watch.checked(self._clock.monotonic(), changes)

    def _new_membership(self) -> Membership:
        if self._group is None:
            interval_ms = self._member_options.heartbeat_interval_ms
            return StandaloneMembership(
                self._manager, self._clock, interval_ms, reads_new=self._member_options.commits_new_partitions
            )
        return GroupMember(self._manager, self._offsets, self._group, self._member_options)

    @property
    def topics(self) -> set[str]:
        """The names of the topics subscribed to."""
        return set(self._names)

    # ---- following the membership --------------------------------------------------------------------------------------------

    def keep_up(self) -> None:
        """Applies the events of the membership and calls the listener. Does nothing if a listener calls it."""
        if self.subscription is None or self._following.locked():
            return
        with self._following:
            self._refresh_topics(self.subscription)
            while self._passes_topics() and (event := self._next_event()) is not None:
                self._follow(event)

    def begin_again(self, partition: TopicPartition) -> None:
        """Clears the position of a partition whose log was deleted, and makes the next `keep_up` list the topics."""
        self._watch.expire()
        if self._membership is not None:
            self._membership.expire_topics()
        if partition in self.partitions:
            self.partitions[partition].seek(None)
            self.begun_again.add(partition)

    def _refresh_topics(self, subscription: Subscription) -> None:
        """Refreshes the topics that match the pattern."""
        if subscription.pattern is None:
            return
        now, changes = self._clock.monotonic(), self._manager.topic_changes
        if self._watch.is_due(now):
            names = subscription.names(self._manager)
            if self._said is not None:  # else this is the first check
                self._created |= names - self._names
            self._names = names
            self._watch.checked(now, changes)

    def _passes_topics(self) -> bool:
        """Passes changed topic names to the membership. Returns whether there are any.

        Without topics the consumer leaves the group: as a member it would keep partitions from others.
        """
        names, membership = self._names, self._membership
        if membership is not None and names != self._said:
            if names:
                with self._turn:
                    membership.subscribe(names, self._created & names)
            else:
                self._give_up(self.partitions, membership.leave)
            self._said = names
        return bool(names)

    def _next_event(self) -> member.RebalanceEvent | None:
        """Returns the event that an interrupt left unapplied, else the next one."""
        assert self._membership is not None
        if self._event is None and self._is_asking:
            self._event = self._missed(self._membership)
        if self._event is None:
            self._is_asking = True
            with self._turn:
                self._event = self._membership.poll()
            self._is_asking = False
        return self._event

    def _missed(self, membership: Membership) -> member.RebalanceEvent | None:
        """Rebuilds an event that an interrupt lost, from the difference between the membership's assignment and this one."""
        with self._turn:
            membership.acknowledge_revocation(frozenset())  # makes the membership repeat a `PartitionsRevoked`
            owned = membership.assignment
        deleted, new = self.partitions.keys() - owned, owned - self.partitions.keys()
        if deleted:
            return member.PartitionsLost(frozenset(deleted))
        starts = self._membership.starts if isinstance(self._membership, StandaloneMembership) else {}
        return member.PartitionsAssigned({assigned: starts.get(assigned) for assigned in sorted(new)}) if new else None

    def _follow(self, event: member.RebalanceEvent) -> None:
        """Applies an event. After an interrupt it is applied again, which changes nothing that was already done."""
        try:
            if isinstance(event, member.PartitionsAssigned):
                self._add({partition: found for partition, found in event.partitions.items() if partition not in self.partitions})
                self._around.lend(self._listener.on_partitions_assigned, set(event.partitions))
            elif isinstance(event, member.PartitionsRevoked):
                self._revoke(event.partitions)
            else:
                self._drop(self._present(event.partitions))
                self._around.lend(self._listener.on_partitions_lost, set(event.partitions))
        except Exception:  # raised by the listener, which is not called twice for one event
            self._event = None
            raise
        self._event = None

    def _revoke(self, partitions: Collection[TopicPartition]) -> None:
        assert self._membership is not None
        self._give_up(partitions, partial(self._membership.acknowledge_revocation, partitions))

    def _give_up(self, partitions: Collection[TopicPartition], say: Callable[[], None]) -> None:
        """Releases partitions, then calls `say`, whatever the listener raises or does. It may leave the group."""
        states = self._present(partitions)
        try:
            self._stop(states)
        finally:
            self._drop(states)
            with self._turn:
                say()
            self._event = None  # complete, even if the listener was interrupted

    def _stop(self, states: Iterable[AssignedPartition]) -> None:
        """Stops fetching from partitions, commits their positions, and calls `on_partitions_revoked`.

        Each partition is reported once, even if the listener itself leaves the group.
        """
        owned = [assigned for assigned in states if assigned.owned]
        if not owned:
            return
        listener = self._listener  # read before the commit: its callback may leave the group
        for assigned in owned:
            assigned.owned = False
        try:
            self._around.commit()
        finally:  # even if the callback of a commit raises
            self._around.lend(listener.on_partitions_revoked, {assigned.partition for assigned in owned})

    def _present(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        return [self.partitions[partition] for partition in partitions if partition in self.partitions]

    def _add(self, committed: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        for partition, found in committed.items():
            assigned = self._around.new_partition(partition)
            if found is not None:
                assigned.seek(found.offset, found.leader_epoch)
            self.partitions[partition] = assigned
        self.begun_again.difference_update(committed)
        self._around.read(self.partitions.values())

    def _drop(self, states: Iterable[AssignedPartition]) -> None:
        for assigned in states:
            assigned.owned = False
            if self.partitions.get(assigned.partition) is assigned:  # else a listener has assigned it again
                del self.partitions[assigned.partition]
                self.begun_again.discard(assigned.partition)
        self._around.read(self.partitions.values())

    @property
    def _listener(self) -> ConsumerRebalanceListener:
        return ConsumerRebalanceListener() if self.subscription is None else self.subscription.listener

    # ---- committing and leaving ----------------------------------------------------------------------------------------------

    @property
    def identity(self) -> MemberIdentity:
        """The current membership."""
        member = self._membership if isinstance(self._membership, GroupMember) else None
        return MemberIdentity(member, "" if member is None else member.member_id)

    def commit(self, offsets: Offsets, *, chosen: bool, logs: CommitLogs, identity: MemberIdentity | None = None) -> Offsets:
        """Commits offsets for the group, as its member if the consumer is one. May be called from any thread.

        Args:
            offsets: the offsets to commit.
            chosen: true if the caller chose the offsets: all of them are committed, or none. False if they are positions: those
                that their logs no longer have are left out, so that they do not prevent the other commits. (A broker accepts
                them: it does not compare commits with logs.)
            logs: the logs that the offsets are for. If a topic is deleted and created again, they are never committed for the new
                one.
            identity: the membership at the time of the request; None is the current one.

        Returns:
            The committed offsets.

        Raises:
            FencedMemberError: a partition is no longer assigned to the member. As `OffsetStore.commit`.
        """
        refused: dict[PartitionLike, PylogError] = {}
        identity = identity or self.identity
        try:
            self._write(offsets, logs, identity)
        except _OF_A_LOG:
            refused = {} if chosen else self._refused(offsets, logs)
            if not refused:
                raise
            offsets = {partition: offset for partition, offset in offsets.items() if partition not in refused}
            if offsets:
                self._write(offsets, logs, identity)
        self._warn(refused)
        return offsets

    def check(self, offsets: Offsets, logs: CommitLogs) -> None:
        """Raises as `commit` if the offsets cannot be committed in their logs. Writes nothing."""
        assert self._group is not None
        self._offsets.items(self._group, offsets, logs)

    def _refused(self, offsets: Offsets, logs: CommitLogs) -> dict[PartitionLike, PylogError]:
        """Returns the partitions whose offsets cannot be committed, with the errors."""
        assert self._group is not None
        found: dict[PartitionLike, PylogError] = {}
        for partition, offset in offsets.items():
            try:
                self.check({partition: offset}, logs)
            except (UnknownTopicOrPartitionError, OffsetOutOfRangeError) as error:
                found[partition] = error
        return found

    def _warn(self, refused: Mapping[PartitionLike, PylogError]) -> None:
        """Logs the positions that were left out, each once until the set changes."""
        if refused.keys() - self._left_out:
            LOGGER.warning("positions were not committed: %s", "; ".join(map(str, refused.values())))
        self._left_out = frozenset(refused)

    def _write(self, offsets: Offsets, logs: CommitLogs, identity: MemberIdentity) -> None:
        assert self._group is not None
        if identity.member is not None:
            with self._turn:
                identity.member.commit(offsets, member_id=identity.member_id, logs=logs)
        else:
            self._offsets.commit(self._group, offsets, logs=logs)

    def leave(self) -> None:
        """Releases all partitions and ends the subscription. The membership lasts until the listener returns, so that its last
        commits are fenced.
        """
        if self._following.locked():  # by the call that runs this listener
            self._leave()
            return
        with self._following:
            self._leave()

    def abandon(self) -> None:
        """Leaves the group without calling the listener: the program has dropped the consumer."""
        if self._membership is not None:
            with self._turn:
                self._membership.leave()

    def _leave(self) -> None:
        try:
            if self.subscription is not None and self._membership is not None:
                self._give_up(self.partitions, self._membership.leave)
        finally:
            self._drop(list(self.partitions.values()))
            self._membership, self._event, self._is_asking = None, None, False
            self.subscription, self.is_manual, self._names = None, False, frozenset()
