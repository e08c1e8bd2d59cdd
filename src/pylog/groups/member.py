"""`GroupMember`: one consumer's membership of its group. Nobody coordinates: whoever changes the group takes the lock of its
partition of `__consumer_offsets`, catches up, decides, appends, and lets go.

No lock is held when a method returns, and none while code of the user runs. What the log says of this member only the member
itself writes, until others put it out.
"""

from __future__ import annotations

import contextlib
import secrets
import weakref
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pylog import limits, trace
from pylog.clients import Clients
from pylog.config import Durability
from pylog.errors import ClosedError, FencedMemberError, InvalidArgumentError, ReadOnlyError
from pylog.fs import join, process_id
from pylog.groups import decisions
from pylog.groups.assignors import ASSIGNORS
from pylog.groups.change_lines import tell_of_change
from pylog.groups.heartbeat import Heartbeat
from pylog.groups.liveness import FailureDetector
from pylog.groups.members_file import MEMBERS_FILE, MembersFile
from pylog.groups.state import GroupState, Member, PartitionSet, changes, state_of, topic_info
from pylog.log.checkpoints import check_topic_name
from pylog.offsets.arguments import checked_group
from pylog.offsets.image import GroupImage, Image
from pylog.offsets.membership import MEMBER, member_record_key
from pylog.offsets.partition import OffsetsPartition
from pylog.offsets.schema import parse_partition_key
from pylog.offsets.starts import start_items
from pylog.offsets.store import PartitionLike
from pylog.record.types import OffsetAndMetadata, TopicPartition
from pylog.topics.watch import TopicsWatch

_NO_EPOCH = -1
_NOT_READ = -1
_DURABILITY = Durability.OS  # of membership: no member survives what takes it back


@dataclass(frozen=True, kw_only=True)
class MemberOptions:
    """How a member takes part in its group, under the names of kafka-python's consumer options. Times in milliseconds.

    Attributes:
        client_id: shown by tools.
        group_instance_id: makes it a static member: its partitions wait for it for `session_timeout_ms` when it is gone.
        session_timeout_ms: a process that stands still for so long loses its partitions. One that is dead loses them at once.
        max_poll_interval_ms: so does one that does not poll for so long.
        heartbeat_interval_ms: how often it shows that it is alive, and looks after topics; less than half of the session timeout.
        assignors: names of `ASSIGNORS`, the most wanted first. The group uses one that all of its members have.
        commits_new_partitions: commit offset 0 for a partition that is created while the group has members, so that whichever
            member gets it begins at its first record.

    Raises:
        InvalidArgumentError: a value out of its range, or an assignor that does not exist.
    """

    client_id: str = "pylog"
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    max_poll_interval_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    commits_new_partitions: bool = False

    def __post_init__(self) -> None:
        for name in ("session_timeout_ms", "max_poll_interval_ms", "heartbeat_interval_ms"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limits.INT32_MAX:
                raise InvalidArgumentError(f"{name}={value!r} is not an int from 1 to {limits.INT32_MAX}")
        if 2 * self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidArgumentError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} is not less than half of "
                f"session_timeout_ms={self.session_timeout_ms}"
            )
        if not self.assignors or not set(self.assignors) <= ASSIGNORS.keys():
            raise InvalidArgumentError(f"assignors={self.assignors!r} are not some of {', '.join(ASSIGNORS)}")
        for name in ("client_id", "group_instance_id"):
            checked_text(name, getattr(self, name), optional=name == "group_instance_id")


class PartitionsRevoked(NamedTuple):
    """Partitions move to another member: stop reading them, run the listener, commit, then call `acknowledge_revocation`.

    No other member gets them before that call, which is required even if the listener raised.
    """

    partitions: frozenset[TopicPartition]


class PartitionsAssigned(NamedTuple):
    """A rebalance is done: the partitions that are new, which may be none, with what the group has committed for each.

    They are the member's already, and no commit can come between that and the offsets given here. A partition whose previous
    owner takes its time comes later, in another `PartitionsAssigned`.
    """

    partitions: dict[TopicPartition, OffsetAndMetadata | None]


class PartitionsLost(NamedTuple):
    """Partitions that are not the member's any more, and may be another's already: nothing can be committed for them.

    Most often it was put out of the group; then the next `poll` joins again.
    """

    partitions: frozenset[TopicPartition]


Event = PartitionsRevoked | PartitionsAssigned | PartitionsLost


class _Turn(NamedTuple):
    """What was made of the group in one critical section, and what had been committed then."""

    after: GroupState
    committed: Mapping[TopicPartition, OffsetAndMetadata]


class GroupMember:
    """One consumer's membership of its group. It belongs to one thread; several consumers of a process are several members.

    Nothing happens before the first `poll` after `subscribe`. The words are those of docs/GROUPS.md.

    Args:
        store: open for writing.
        group: the group's name.
        options: how it takes part.

    Raises:
        InvalidArgumentError: the group's name is empty or too long.
        ReadOnlyError: the store is open for reading.

    >>> import pylog, tempfile
    >>> store = pylog.open(tempfile.mkdtemp())
    >>> _ = store.create_topic("orders", partitions=2)
    >>> one, two = GroupMember(store, "billing"), GroupMember(store, "billing")
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
    >>> one.leave(), two.leave(), store.close()
    (None, None, None)
    """

    def __init__(self, store: Clients, group: str, options: MemberOptions | None = None) -> None:
        if store.mode != "rw":
            raise ReadOnlyError(f"{store.path} is open for reading; open it with mode='rw' to join a group", path=store.path)
        self._name = checked_group(group)
        if not self._name:
            raise InvalidArgumentError("the group's name is empty; members need one to find each other")
        self._group = group
        self._store = store
        self._offsets = store.offsets
        self._options = options or MemberOptions()
        self._pid = process_id()
        self._topics: frozenset[str] = frozenset()  # what it wants to read
        self._available = {name: topic_info(topic) for name, topic in store.topics().items()}
        self._topics_watch = TopicsWatch(store, self._options.heartbeat_interval_ms)
        self._created: frozenset[str] = frozenset()  # topics of the subscription that are known to be new
        self._next_probe = 0.0  # when to look at the others again
        self._member_id = ""
        self._epoch = _NO_EPOCH
        self._told = _NO_EPOCH  # of the last `PartitionsAssigned`
        self._detector = FailureDetector(self._options.heartbeat_interval_ms / 1000)  # over all attempts to join
        self._heartbeat: Heartbeat | None = None  # None: it is in no group
        self._reading: PartitionSet = frozenset()
        self._revoking = False
        self._seen: GroupImage | None = None  # what the known state was read from
        self._changes = _NOT_READ  # of it, by then
        self._state = GroupState()
        self._blocked: PartitionSet = frozenset()  # by transactions that are open
        self._is_quiet = False  # nothing is to be done as long as the state is that

    @property
    def member_id(self) -> str:
        """The id under which it is in the group, "" while it is in none. Joining again gives another one."""
        return self._member_id

    @property
    def epoch(self) -> int:
        """The number of the rebalance that it has done last, from 1 on; -1 while it is in no group."""
        return self._epoch

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member owns. Partitions that must be revoked are included until `acknowledge_revocation`."""
        return self._reading

    def subscribe(self, topics: Collection[str], created: Collection[str] = ()) -> None:
        """Says what the member wants to read; the next `poll` joins the group, or changes the subscription.

        Args:
            topics: names, at least one. Those that there are not yet are read from when they are made.
            created: those of them that were created while the member was running, as a pattern finds them.

        Raises:
            InvalidTopicError, InvalidArgumentError: a name that is none, or no topics: `leave` ends a subscription.
        """
        wanted = frozenset(map(check_topic_name, topics))
        if not wanted or isinstance(topics, str):
            raise InvalidArgumentError(f"topics={topics!r} are no names of topics; leave ends a subscription")
        self._topics, self._created = wanted, frozenset(created)
        self._is_quiet = False

    # ---- poll ----------------------------------------------------------------------------------------------------------------

    def poll(self) -> Event | None:
        """Does what is due, for the member and for the group, and tells what has become of its partitions.

        Call it before handing out records, including records fetched earlier, until it returns None, and at least once every
        `max_poll_interval_ms`. After `PartitionsRevoked` it returns None or `PartitionsLost` until `acknowledge_revocation`.

        Raises:
            InconsistentGroupProtocolError: joining, and no assignor is known to all members. Nothing was written; poll again.
            UnreleasedInstanceIdError: joining, and another member with the same `group_instance_id` lives. As above.
            ClosedError: the store is closed, or this is a forked child, which has no member.
            CorruptionError, StorageFailedError, StoreLockedError: as `Log.append`; poll again.

        Cost: one small read when nothing has happened; a few times a second a probe of each other member (1 µs).
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
        state = self._known_state()
        return None if self._is_quiet else self._reconcile(state, now)

    def _check_process(self) -> None:
        if process_id() != self._pid:
            raise ClosedError("a member of a group does not live on in a forked process; open the store and join there again")

    def _known_state(self) -> GroupState:
        """The group as the log says now. Cost: one small read if nobody has changed it."""

        def look(there: OffsetsPartition) -> GroupState:
            with there.image() as image:
                self._blocked = _pending(image, self._name)
                return self._read(image)

        return self._offsets.with_partition(self._group, look)

    def _read(self, image: Image) -> GroupState:
        """What the records say of the group, parsed only when they have changed."""
        group = image.groups.get(self._name)
        count = 0 if group is None else group.changes
        if group is not self._seen or count != self._changes:
            self._state, self._is_quiet = state_of(group, self._available), False
            self._seen, self._changes = group, count
        return self._state

    def _reconcile(self, state: GroupState, now: float) -> Event | None:
        """One step from what it reads to what it is to read."""
        me = state.members.get(self._member_id)
        if me is None:
            if self._reading:
                self._tell(trace.LOST, self._reading, "the member is no longer in its group")
            self._tell(trace.MEMBER_FENCED, self._reading, "another process has removed it; see its line in that process")
            lost = self._out_of_group()
            return PartitionsLost(lost) if lost else self._join(now)
        self._epoch = me.epoch  # which it may have written without being told so
        gone = self._reading - me.owned
        if gone:  # a topic was deleted
            self._reading -= gone
            self._tell(trace.LOST, gone, "their topic was deleted")
            return PartitionsLost(gone)
        if self._revoking:
            return None
        if me.topics != self._topics:
            self._change(lambda known: decisions.subscribe(known, self._member_id, self._topics, self._available))
            return self._reconcile(self._known_state(), now)
        return self._give_or_take(state, me)

    def _give_or_take(self, state: GroupState, me: Member) -> Event | None:
        over = self._reading - me.target
        if over:
            self._revoking = True
            return PartitionsRevoked(over)
        if self._told == me.epoch and decisions.is_settled(state, self._member_id, self._reading, self._blocked):
            self._is_quiet = not self._blocked
            return None
        turn = self._offsets.with_partition(self._group, self._next_turn)
        return None if turn is None else self._taken(turn)

    def _taken(self, turn: _Turn) -> PartitionsAssigned | None:
        me = turn.after.members[self._member_id]
        new = me.owned - self._reading
        known, self._told = self._told, me.epoch
        self._epoch, self._reading = me.epoch, me.owned
        if not new and known == me.epoch:
            return None
        if new:
            self._tell(trace.ASSIGNED, new)
        return PartitionsAssigned({partition: turn.committed.get(partition) for partition in sorted(new)})

    def _out_of_group(self) -> PartitionSet:
        """Forgets its membership; what it read is lost."""
        lost, self._reading = self._reading, frozenset()  # first: who is interrupted behind it owns nothing
        heartbeat, self._heartbeat = self._heartbeat, None
        self._revoking = self._is_quiet = False
        self._member_id, self._epoch, self._told = "", _NO_EPOCH, _NO_EPOCH
        if heartbeat is not None:
            try:
                heartbeat.end()
            except BaseException:  # an interrupt, which may have come before it had begun
                heartbeat.end()
                raise
        return lost

    # ---- changing the group --------------------------------------------------------------------------------------------------

    def _join(self, now: float) -> PartitionsAssigned | None:
        """Takes a slot, then joins: in the other order the others would see a member without a process."""
        self._look_at_topics(now)
        self._member_id = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        try:
            turn = self._offsets.with_partition(self._group, lambda there: self._joined(there, now))
        except BaseException:
            self._out_of_group()
            raise
        self._next_probe = now + limits.MEMBER_PROBE_S
        return self._taken(turn)

    def _joined(self, there: OffsetsPartition, now: float) -> _Turn:
        if self._heartbeat is not None:  # of a first attempt
            self._heartbeat.end()
        heartbeat = self._heartbeat = self._appeared(there)
        heartbeat.begin()  # now that an interrupt finds it, and ends it
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
            dead, expired = heartbeat.look(state.members.values(), now)
            return decisions.join(state, newcomer, self._available, dead=dead, expired=expired)

        return self._turn(there, decide)

    def _appeared(self, there: OffsetsPartition) -> Heartbeat:
        file = MembersFile(self._offsets.fs, join(there.directory, MEMBERS_FILE))
        options = self._options
        try:
            with there.image() as image:
                file.claim(
                    self._member_id,
                    options.session_timeout_ms,
                    options.max_poll_interval_ms,
                    lambda member_id: _is_member(image, member_id),
                )
        except BaseException:
            file.close()
            raise
        heartbeat = Heartbeat(file, options.heartbeat_interval_ms / 1000, there.check_open, self._detector)
        weakref.finalize(self, heartbeat.forget).atexit = False
        return heartbeat

    def _next_turn(self, there: OffsetsPartition) -> _Turn | None:
        """A turn of one that is in the group; None if it is no longer, which the next poll will notice."""
        with there.exclusively() as image:
            return self._turn(there, lambda known: known) if self._member_id in self._read(image).members else None

    def _turn(self, there: OffsetsPartition, decide: Callable[[GroupState], GroupState]) -> _Turn:
        """Decides, takes what can be taken, and reads where to go on with it: all in one critical section."""
        with there.exclusively() as image:
            before, group = self._read(image), image.groups.get(self._name)
            committed = {} if group is None else dict(group.offsets())
            after = decisions.settle(decide(before), self._member_id, self._reading, _pending(image, self._name))
            return _Turn(after, committed | self._append(there, before, after, committed))

    def _change(self, decide: Callable[[GroupState], GroupState]) -> None:
        """Decides and appends, if it is still in the group."""

        def act(there: OffsetsPartition) -> None:
            with there.exclusively() as image:
                before, group = self._read(image), image.groups.get(self._name)
                if self._member_id in before.members:
                    self._append(there, before, decide(before), () if group is None else group.offsets())

        self._offsets.with_partition(self._group, act)

    def _append(
        self,
        there: OffsetsPartition,
        before: GroupState,
        after: GroupState,
        committed: Collection[TopicPartition],
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Appends what has changed, and where new partitions begin; returns that."""
        items, starts = changes(self._name, before, after), dict[TopicPartition, OffsetAndMetadata]()
        if self._options.commits_new_partitions:
            new = decisions.created_partitions(before, after, self._available, self._created) - frozenset(committed)
            starts = dict.fromkeys(sorted(new), OffsetAndMetadata(0, "", None))
        if items:
            now_ms = self._offsets.clock.now_ms()
            there.append([*items, *start_items(self._name, starts, now_ms)], now_ms, _DURABILITY)
            if starts:
                facts = {"group": self._group, "partitions": trace.places(starts), "member": self._member_id}
                trace.later(trace.NEW_PARTITIONS, **facts, reason="they were created while the group had members")
            reasons = {} if self._heartbeat is None else self._heartbeat.reasons
            tell_of_change(self._group, before, after, self._member_id, reasons)
        return starts

    def _tell(self, event: trace.Event, partitions: Collection[TopicPartition], reason: str | None = None) -> None:
        facts = {"group": self._group, "member": self._member_id, "partitions": trace.places(partitions)}
        trace.line(event, **facts, epoch=self._epoch, reason=reason)

    # ---- looking after the group ---------------------------------------------------------------------------------------------

    def _look_at_topics(self, now: float) -> None:
        changes = self._store.topic_changes
        available = {name: topic_info(topic) for name, topic in self._store.topics().items()}
        if available != self._available:
            self._available, self._changes = available, _NOT_READ  # what the records say depends on which topics there are
        self._topics_watch.looked(now, changes)

    def _look_after_group(self, heartbeat: Heartbeat, now: float) -> None:
        """Nobody leads: whoever polls puts out members that do not live, and sees that topics have changed."""
        self._next_probe = now + limits.MEMBER_PROBE_S
        if self._topics_watch.is_due(now):
            self._look_at_topics(now)
        state = self._known_state()
        if self._member_id not in state.members:
            return
        if heartbeat.look(self._others(state), now).expired or decisions.topics_changed(state, self._available):
            self._change(lambda known: self._in_order(known, heartbeat, now))

    def _in_order(self, state: GroupState, heartbeat: Heartbeat, now: float) -> GroupState:
        """Under the lock everything is looked at again: who came back, or was put out by another observer."""
        expired = heartbeat.look(self._others(state), now).expired
        return decisions.look_at_topics(decisions.remove(state, expired, self._available), self._available)

    def _others(self, state: GroupState) -> list[Member]:
        return [member for member in state.members.values() if member.member_id != self._member_id]

    def expire_topics(self) -> None:
        """Has the next `poll` list the topics: one of them is gone, as the caller has seen."""
        self._topics_watch.expire()

    # ---- what the consumer does ----------------------------------------------------------------------------------------------

    def acknowledge_revocation(self, partitions: Collection[TopicPartition]) -> None:
        """Says that a `PartitionsRevoked` is done: the partitions are anybody's now, and no longer in `assignment`.

        Raises:
            As `poll`. The partitions are not its own any more also if this raises; the next `poll` says so to the others.
        """
        self._check_process()
        given = frozenset(partitions)
        self._reading -= given
        self._revoking = self._is_quiet = False
        if self._heartbeat is not None:
            self._change(lambda known: decisions.give_up(known, self._member_id, given))
            if given:
                self._tell(trace.REVOKED, given, "they are assigned to another member")

    def commit(
        self,
        offsets: Mapping[PartitionLike, int | OffsetAndMetadata],
        *,
        durability: Durability | None = None,
        member_id: str | None = None,
    ) -> None:
        """Commits offsets as `OffsetStore.commit`, all or none, if they are this member's to commit at that moment.

        Args:
            offsets, durability: as for `OffsetStore.commit`.
            member_id: the membership in which the commit was asked for; None is the one of now.

        Raises:
            FencedMemberError: it is no longer in the group, or one of the partitions is not its own. Nothing was written; `poll`
                tells what is lost.
            As `OffsetStore.commit`.

        Cost: one append, under the lock of the group's offsets.
        """
        self._check_process()
        items = self._offsets.items(self._group, offsets)
        partitions = frozenset(TopicPartition(*partition) for partition in offsets)

        def act(there: OffsetsPartition) -> None:
            with there.exclusively() as image:
                decisions.check_commit(self._read(image), self._member_id, self._epoch, partitions)
                there.append(items, self._offsets.clock.now_ms(), durability)

        if self._heartbeat is None:
            raise FencedMemberError(f"the consumer is not in the group {self._group!r}; subscribe and poll, then commit")
        if member_id not in (None, self._member_id):
            told = f"the consumer was put out of the group {self._group!r} after this commit was asked for, and has joined again"
            raise FencedMemberError(f"{told}; commit the positions of now")
        if items:
            self._offsets.with_partition(self._group, act)

    def leave(self) -> None:
        """Leaves the group: the partitions are others' at once. A static member stays in it for its session timeout.

        Whoever calls it has run the listener and committed before. `subscribe` and `poll` join again. May be called twice; in a
        forked child it does nothing, and once the store is closed it has nothing to say.

        Raises:
            As `poll`. It is out of the group also then: others will find that it does not live.
        """
        if process_id() != self._pid:
            return
        member_id, is_static = self._member_id, self._options.group_instance_id is not None
        try:
            if self._heartbeat is not None and not is_static:
                with contextlib.suppress(ClosedError):  # of the store: then others find that the member does not live
                    self._change(lambda known: decisions.remove(known, {member_id}, self._available))
        finally:
            self._topics = frozenset()
            self._out_of_group()


def _is_member(image: Image, member_id: str) -> bool:
    """Whether there is a member of that id in any of the groups."""
    return any(member_record_key(MEMBER, name, member_id) in group.membership for name, group in image.groups.items())


def _pending(image: Image, group: bytes) -> PartitionSet:
    """What open transactions have committed of a group."""
    return frozenset(map(parse_partition_key, image.pending_of(group))) if image.pending else frozenset()


def checked_text(name: str, value: object, *, optional: bool) -> None:
    """Raises InvalidArgumentError for what is not text that a record has room for."""
    if value is None and optional:
        return
    if (
        not isinstance(value, str)
        or (optional and not value)
        or len(value) > limits.MAX_CLIENT_TEXT_CHARACTERS
        or not value.isprintable()
    ):
        raise InvalidArgumentError(
            f"{name}={value!r} is not text of up to {limits.MAX_CLIENT_TEXT_CHARACTERS} printable characters"
        )
