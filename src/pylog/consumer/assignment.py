"""Which partitions are a consumer's: those it chose, or what its membership of a group says; and who is told.

A partition that goes is not handed out of any more before its listener runs, can be committed until the listener is done, and is
given up then, whatever the listener raised.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from pylog.clock import Clock
from pylog.consumer.alone import Alone, Membership
from pylog.consumer.commits import Offsets, Standing
from pylog.consumer.listener import ConsumerRebalanceListener
from pylog.consumer.options import ConsumerOptions
from pylog.consumer.partition import AssignedPartition
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
from pylog.groups.member import GroupMember, MemberOptions
from pylog.log.reading.lookup import name
from pylog.log_manager import LogManager
from pylog.offsets.store import OffsetStore, PartitionLike
from pylog.record.types import OffsetAndMetadata, TopicPartition
from pylog.topics.watch import TopicsWatch

_LATEST: Final = "latest"
LOGGER = logging.getLogger("pylog")
_OF_A_LOG: Final = (  # that is gone, maybe while it was looked at, or was cut
    UnknownTopicOrPartitionError,
    OffsetOutOfRangeError,
    ClosedError,
)


class Surroundings(NamedTuple):
    """What the consumer around does when partitions come and go.

    Attributes:
        place_of: makes a partition's place.
        read: has these read from now on.
        commit: commits what has been handed out, if that is done automatically, and finishes what is under way.
        lend: calls code of the user, which may use the consumer.
    """

    place_of: Callable[[TopicPartition], AssignedPartition]
    read: Callable[[Iterable[AssignedPartition]], None]
    commit: Callable[[], None]
    lend: Callable[..., None]


class Assignment:
    """The partitions of one consumer.

    Args:
        manager, offsets, clock, options: of the consumer.
        around: what the consumer does then.

    Attributes:
        places: the partitions.
        subscription: what was subscribed to; None without.
        is_manual: whether the partitions were chosen.
    """

    def __init__(
        self, manager: LogManager, offsets: OffsetStore, clock: Clock, options: ConsumerOptions, around: Surroundings
    ) -> None:
        self.places: dict[TopicPartition, AssignedPartition] = {}
        self.subscription: Subscription | None = None
        self.is_manual = False
        self._manager = manager
        self._offsets = offsets
        self._clock = clock
        self._around = around
        self._group = options.group_id
        self._reads_new = options.auto_offset_reset == _LATEST
        self._watch = TopicsWatch(lambda: manager.topic_changes, options.heartbeat_interval_ms)  # for topics that match a pattern
        self._created: set[str] = set()  # topics that match it and were created since it was subscribed to
        self._names: frozenset[str] = frozenset()  # of the topics that are wanted
        self._said: frozenset[str] | None = None  # the names that the membership knows; None: it is to be told in any case
        self._turn = threading.Lock()  # of the member: commits may come from another thread
        self._following = threading.Lock()  # held while the membership is followed, and listeners run
        self._member_options = MemberOptions(
            client_id=options.client_id,
            group_instance_id=options.group_instance_id,
            session_timeout_ms=options.session_timeout_ms,
            max_poll_interval_ms=options.max_poll_interval_ms,
            heartbeat_interval_ms=options.heartbeat_interval_ms,
            assignors=options.assignors,
            commits_new_partitions=self._reads_new,
        )
        self._left_out: frozenset[PartitionLike] = frozenset()  # of the last commit
        self._membership: Membership | None = None
        self._event: member.Event | None = None  # kept until it has been followed, whatever interrupts that
        self._is_asking = False  # the membership, which may have told something that an interrupt kept from arriving
        on_fork(self)

    def forked(self) -> None:
        """In a forked child no partition is this consumer's: an iteration that was begun hands out nothing more."""
        for place in self.places.values():
            place.owned = False

    def place(self, partition: TopicPartition) -> AssignedPartition:
        """One of the partitions.

        Raises:
            IllegalStateError: it is not among them.
        """
        found = self.places.get(partition)
        if found is None:
            some = ", ".join(sorted(map(name, self.places))[:10]) or "none"
            raise IllegalStateError(f"{name(partition)} is not assigned to this consumer; assigned are {some}")
        return found

    def positions(self) -> Offsets:
        """What can be committed: the positions that are known (groups-and-transactions 2.1)."""
        return {
            partition: OffsetAndMetadata(place.position, "", place.leader_epoch)
            for partition, place in self.places.items()
            if place.position is not None
        }

    # ---- coming by them ------------------------------------------------------------------------------------------------------

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Takes just these; those that stay keep their positions."""
        if self.subscription is not None:
            raise IllegalStateError("this consumer is subscribed to topics; unsubscribe() before assign()")
        self._around.commit()
        self.is_manual = bool(partitions)
        self._drop([place for partition, place in self.places.items() if partition not in partitions])
        self._add({partition: None for partition in partitions if partition not in self.places})

    def subscribe(self, subscription: Subscription) -> None:
        """Takes what comes of a subscription, from the next `keep_up` on."""
        if self.is_manual:
            raise IllegalStateError("this consumer was assigned partitions; unsubscribe() before subscribe()")
        for topic in subscription.topics:
            self._manager.topic(topic)  # one that there is not is an error now
        changes = self._manager.topic_changes
        names = subscription.names(self._manager)
        self._membership = self._membership or self._new_membership()
        self.subscription, self._names, self._said = subscription, names, None
        self._created.clear()
        self._watch.looked(self._clock.monotonic(), changes)

    def _new_membership(self) -> Membership:
        if self._group is None:
            interval_ms = self._member_options.heartbeat_interval_ms
            return Alone(self._manager, self._clock, interval_ms, reads_new=self._reads_new)
        return GroupMember(self._manager, self._offsets, self._group, self._member_options)

    @property
    def topics(self) -> set[str]:
        """The names of the topics subscribed to."""
        return set(self._names)

    # ---- keeping up ----------------------------------------------------------------------------------------------------------

    def keep_up(self) -> None:
        """Does what the membership says; listeners run. In a call from inside of a listener nothing is to be done."""
        if self.subscription is None or self._following.locked():
            return
        with self._following:
            self._look_for_topics(self.subscription)
            while self._is_told() and (event := self._next_event()) is not None:
                self._follow(event)

    def begin_again(self, partition: TopicPartition) -> None:
        """Forgets the position of a partition whose log is gone, and has the next `keep_up` list the topics."""
        self._watch.expire()
        if self._membership is not None:
            self._membership.expire_topics()
        if partition in self.places:
            self.places[partition].seek(None)

    def _look_for_topics(self, subscription: Subscription) -> None:
        """Which there are now that match a pattern."""
        now, changes = self._clock.monotonic(), self._manager.topic_changes
        if subscription.pattern is not None and self._watch.is_due(now):
            names = subscription.names(self._manager)
            if self._said is not None:  # else the consumer has not begun
                self._created |= names - self._names
            self._names = names
            self._watch.looked(now, changes)

    def _is_told(self) -> bool:
        """Tells the membership which topics are wanted, unless it knows; whether there are any. Who wants none leaves the group:
        as a member it would keep partitions from others.
        """
        names, membership = self._names, self._membership
        if membership is not None and names != self._said:
            if names:
                with self._turn:
                    membership.subscribe(names, self._created & names)
            else:
                self._give_up(self.places, membership.leave)
            self._said = names
        return bool(names)

    def _next_event(self) -> member.Event | None:
        """What an interrupt kept from being followed, or else what comes next."""
        assert self._membership is not None
        if self._event is None and self._is_asking:
            self._event = self._missed(self._membership)
        if self._event is None:
            self._is_asking = True
            with self._turn:
                self._event = self._membership.poll()
            self._is_asking = False
        return self._event

    def _missed(self, membership: Membership) -> member.Event | None:
        """What a poll of the membership may have told when it was interrupted: how what it owns differs from what is here."""
        with self._turn:
            membership.acknowledge_revocation(frozenset())  # then a `PartitionsRevoked` is told again
            owned = membership.assignment
        gone, new = self.places.keys() - owned, owned - self.places.keys()
        if gone:
            return member.PartitionsLost(frozenset(gone))
        starts = self._membership.starts if isinstance(self._membership, Alone) else {}
        return member.PartitionsAssigned({place: starts.get(place) for place in sorted(new)}) if new else None

    def _follow(self, event: member.Event) -> None:
        """Does what an event says. Interrupted, it is done again: what was done already stays as it is."""
        try:
            if isinstance(event, member.PartitionsAssigned):
                self._add({partition: found for partition, found in event.partitions.items() if partition not in self.places})
                self._around.lend(self._listener.on_partitions_assigned, set(event.partitions))
            elif isinstance(event, member.PartitionsRevoked):
                self._revoke(event.partitions)
            else:
                self._drop(self._present(event.partitions))
                self._around.lend(self._listener.on_partitions_lost, set(event.partitions))
        except Exception:  # of the listener, which is not told again
            self._event = None
            raise
        self._event = None

    def _revoke(self, partitions: Collection[TopicPartition]) -> None:
        assert self._membership is not None
        self._give_up(partitions, partial(self._membership.acknowledge_revocation, partitions))

    def _give_up(self, partitions: Collection[TopicPartition], say: Callable[[], None]) -> None:
        """Gives partitions up, then has the membership say so; both whatever the listener raises or does: it may leave."""
        places = self._present(partitions)
        try:
            self._stop(places)
        finally:
            self._drop(places)
            with self._turn:
                say()
            self._event = None  # it is done, even if the listener was interrupted

    def _stop(self, places: Iterable[AssignedPartition]) -> None:
        """The last moments of partitions: nothing comes of them any more, and what came can be committed.

        A listener that leaves while it is told of some is not told of those again.
        """
        going = [place for place in places if place.owned]
        if not going:
            return
        listener = self._listener  # of now: a callback of the commit may leave too
        for place in going:
            place.owned = False
        try:
            self._around.commit()
        finally:  # whatever the callback of a commit raises
            self._around.lend(listener.on_partitions_revoked, {place.partition for place in going})

    def _present(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        return [self.places[partition] for partition in partitions if partition in self.places]

    def _add(self, committed: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        for partition, found in committed.items():
            place = self._around.place_of(partition)
            if found is not None:
                place.seek(found.offset, found.leader_epoch)
            self.places[partition] = place
        self._around.read(self.places.values())

    def _drop(self, places: Iterable[AssignedPartition]) -> None:
        for place in places:
            place.owned = False
            if self.places.get(place.partition) is place:  # else a listener has assigned it anew
                del self.places[place.partition]
        self._around.read(self.places.values())

    @property
    def _listener(self) -> ConsumerRebalanceListener:
        return ConsumerRebalanceListener() if self.subscription is None else self.subscription.listener

    # ---- committing and leaving ----------------------------------------------------------------------------------------------

    @property
    def standing(self) -> Standing:
        """The membership of now."""
        member = self._membership if isinstance(self._membership, GroupMember) else None
        return Standing(member, "" if member is None else member.member_id)

    def commit(self, offsets: Offsets, *, chosen: bool, standing: Standing | None = None) -> Offsets:
        """Commits for the group, as its member where the consumer is one. From any thread.

        Args:
            offsets: what to commit.
            chosen: they are the caller's choice: all or none. Else they are positions, and those are left out which their logs do
                not have any more: they keep no others from being committed, as they do not at a broker, which looks at no log.
            standing: the membership in which the commit was asked for; None is the one of now.

        Returns:
            What was committed.

        Raises:
            FencedMemberError: a partition is not the member's any more. As `OffsetStore.commit`.
        """
        refused: dict[PartitionLike, PylogError] = {}
        standing = standing or self.standing
        try:
            self._write(offsets, standing)
        except _OF_A_LOG:
            refused = {} if chosen else self._refused(offsets)
            if not refused:
                raise
            offsets = {place: offset for place, offset in offsets.items() if place not in refused}
            if offsets:
                self._write(offsets, standing)
        self._warn(refused)
        return offsets

    def _refused(self, offsets: Offsets) -> dict[PartitionLike, PylogError]:
        """Those that cannot be committed, and why."""
        assert self._group is not None
        found: dict[PartitionLike, PylogError] = {}
        for place, offset in offsets.items():
            try:
                self._offsets.items(self._group, {place: offset})
            except (UnknownTopicOrPartitionError, OffsetOutOfRangeError) as error:
                found[place] = error
        return found

    def _warn(self, refused: Mapping[PartitionLike, PylogError]) -> None:
        """Once, and again when others are left out."""
        if refused.keys() - self._left_out:
            LOGGER.warning("a commit leaves positions out: %s", "; ".join(map(str, refused.values())))
        self._left_out = frozenset(refused)

    def _write(self, offsets: Offsets, standing: Standing) -> None:
        assert self._group is not None
        if standing.member is not None:
            with self._turn:
                standing.member.commit(offsets, member_id=standing.member_id)
        else:
            self._offsets.commit(self._group, offsets)

    def leave(self) -> None:
        """Gives everything up, and subscribes to nothing. It stays a member until the listener is done, so that its last
        commits are fenced.
        """
        if self._following.locked():  # by the call that runs the listener that leaves
            self._leave()
            return
        with self._following:
            self._leave()

    def abandon(self) -> None:
        """Leaves the group without the listener: the program has dropped the consumer."""
        if self._membership is not None:
            with self._turn:
                self._membership.leave()

    def _leave(self) -> None:
        try:
            if self.subscription is not None and self._membership is not None:
                self._give_up(self.places, self._membership.leave)
        finally:
            self._drop(list(self.places.values()))
            self._membership, self._event, self._is_asking = None, None, False
            self.subscription, self.is_manual, self._names = None, False, frozenset()
