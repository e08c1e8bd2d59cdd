"""`GroupMember`: one consumer's membership of its group. Nobody coordinates: whoever changes the group takes the lock of its
partition of `__consumer_offsets`, catches up, decides, appends, and lets go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pylog.config import Durability
from pylog.offsets.store import Place
from pylog.record.types import OffsetAndMetadata, TopicPartition
from pylog.store import Store


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

    Raises:
        InvalidArgumentError: a value out of its range, or an assignor that does not exist.
    """

    client_id: str = "pylog"
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    max_poll_interval_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")


class Revoke(NamedTuple):
    """Partitions move to another member: stop reading them, run the listener, commit, then call `gave_up(partitions)`.

    Nobody else gets them before that. It has to be called also when the listener raised.
    """

    partitions: frozenset[TopicPartition]


class Take(NamedTuple):
    """A rebalance is done: the partitions that are new, which may be none, with what the group has committed for each.

    They are the member's already, and no commit can come between that and the offsets given here. A partition whose previous
    owner takes its time comes later, in another `Take`.
    """

    partitions: dict[TopicPartition, OffsetAndMetadata | None]


class Lost(NamedTuple):
    """Partitions that are not the member's any more, and may be another's already: nothing can be committed for them.

    Most often it was put out of the group; then the next `poll` joins again.
    """

    partitions: frozenset[TopicPartition]


Event = Revoke | Take | Lost


class GroupMember:
    """One consumer's membership of its group. It belongs to one thread; several consumers of a process are several members.

    Nothing happens before the first `poll` after `subscribe`.

    Args:
        store: open for writing.
        group: the group's name.
        options: how it takes part.

    Raises:
        InvalidArgumentError: the group's name is empty or too long.
        ReadOnlyError: the store is open for reading.
    """

    def __init__(self, store: Store, group: str, options: MemberOptions | None = None) -> None: ...

    @property
    def member_id(self) -> str:
        """The id under which it is in the group, "" while it is in none. Joining again gives another one."""
        ...

    @property
    def epoch(self) -> int:
        """The number of the rebalance that it has done last, from 1 on; -1 while it is in no group."""
        ...

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is its own: everything taken and neither given up nor lost. What is to be revoked is in it until `gave_up`."""
        ...

    def subscribe(self, topics: Collection[str]) -> None:
        """Says what the member wants to read; the next `poll` joins the group, or changes the subscription.

        Args:
            topics: names, at least one. Those that there are not yet are read from when they are made.

        Raises:
            InvalidTopicError, InvalidArgumentError: a name that is none, or no topics: `leave` ends a subscription.
        """

    def poll(self) -> Event | None:
        """Does what is due, for the member and for the group, and tells what has become of its partitions.

        Call it before handing out records, those that were fetched already too, until it returns None; and at least every
        `max_poll_interval_ms`. After a `Revoke` it returns None, or `Lost`, until `gave_up` is called.

        Raises:
            InconsistentGroupProtocolError: joining, and no assignor is known to all members. Nothing was written; may be tried again.
            UnreleasedInstanceIdError: joining, and another member with the same `group_instance_id` lives. As above.
            ClosedError: the store is closed, or this is a forked child, which has no member.
            CorruptionError, StorageFailedError, StoreLockedError: as `Log.append`; poll again.

        Cost: one small read when nothing has happened; a few times a second a probe of each other member (1 µs).
        """

    def gave_up(self, partitions: Collection[TopicPartition]) -> None:
        """Says that a `Revoke` is done: the partitions are anybody's now, and no longer in `assignment`.

        Raises:
            As `poll`. The partitions are not its own any more also if this raises; the next `poll` says so to the others.
        """

    def commit(self, offsets: Mapping[Place, int | OffsetAndMetadata], *, durability: Durability | None = None) -> None:
        """Commits offsets as `OffsetStore.commit`, all or none, if they are this member's to commit at that moment.

        Raises:
            FencedMemberError: it is no longer in the group, or one of the partitions is not its own. Nothing was written; `poll`
                tells what is lost.
            As `OffsetStore.commit`.

        Cost: one append, under the lock of the group's offsets.
        """

    def leave(self) -> None:
        """Leaves the group: the partitions are others' at once. A static member stays in it for its session timeout.

        Whoever calls it has run the listener and committed before. `subscribe` and `poll` join again. May be called twice; in a
        forked child it does nothing.

        Raises:
            As `poll`. It is out of the group also then: others will find that it does not live.
        """
