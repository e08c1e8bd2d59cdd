"""Which members live: decided from slots of the members file, as one observer sees them (see `members_file`).

No clock of another process is believed. An observer adds up, on its own clock, for how long it has seen the same counter, and
counts of the time between two looks at most two heartbeat intervals: who was stopped itself, or suspended, fences nobody for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pylog import limits
from pylog.groups.state import Member


class MemberSlot(NamedTuple):
    """A slot of a members file.

    Attributes:
        locked: another process, or another consumer of this one, has its byte.
        member_id: whose it is or was; None if it cannot be read, or nobody has written it.
        session_timeout_ms, max_poll_interval_ms: for how long the counters may stand still.
        beats: counts as long as the process runs.
        polls: counts as long as the consumer polls.
    """

    locked: bool
    member_id: str | None = None
    session_timeout_ms: int = 0
    max_poll_interval_ms: int = 0
    beats: int = 0
    polls: int = 0


class LivenessVerdict(NamedTuple):
    """What an observer says of the members of its group.

    Attributes:
        dead: their processes are gone, or have let go.
        expired: those who are to be put out: the dead, and the absent. Static members have some time to come back.
    """

    dead: frozenset[str]
    expired: frozenset[str]


@dataclass(slots=True)
class _Seen:
    """For how many seconds a member was seen with the same counters, and without a process."""

    beats: int
    polls: int
    beats_for: float = 0.0
    polls_for: float = 0.0
    gone_for: float = 0.0


def at_work(members: Iterable[str], slots: Iterable[MemberSlot]) -> set[str]:
    """The members whose processes are there, as one look tells; all of them while somebody's slot cannot be read."""
    held = [slot.member_id for slot in slots if slot.locked]
    return set(members) if None in held else set(members).intersection(held)


class FailureDetector:
    """What one observer has seen of the others.

    Args:
        heartbeat_s: its own heartbeat interval, in seconds.

    Attributes:
        reasons: why each member that the last `look` found expired is expired, by its id.
    """

    def __init__(self, heartbeat_s: float) -> None:
        self._longest_gap = 2 * max(heartbeat_s, limits.MEMBER_PROBE_S)  # looks come no more often than either
        self._seen: dict[str, _Seen] = {}
        self._looked: float | None = None
        self.reasons: dict[str, str] = {}

    def look(self, members: Iterable[Member], slots: Sequence[MemberSlot], now: float) -> LivenessVerdict:
        """Judges members by their slots, which are at least as new as what is known of the members.

        Args:
            members: those of the group, without the observer itself.
            slots: all of the file.
            now: the observer's own clock, in seconds.
        """
        gap = 0.0 if self._looked is None else min(now - self._looked, self._longest_gap)
        self._looked = now
        by_name = {slot.member_id: slot for slot in slots if slot.member_id is not None}
        obscure = any(slot.locked and slot.member_id is None for slot in slots)  # anybody's: its owner will write it again
        dead = set()
        expired: dict[str, str] = {}
        before, self._seen = self._seen, {}
        for member in members:
            slot = by_name.get(member.member_id)
            if slot is None:
                if not obscure:
                    dead.add(member.member_id)
                    expired[member.member_id] = "its process is gone"
                continue
            seen = self._seen[member.member_id] = _updated(before.get(member.member_id), slot, gap)
            if not slot.locked:
                dead.add(member.member_id)
            reason = _why_over(member, slot, seen)
            if reason is not None:
                expired[member.member_id] = reason
        self.reasons = expired
        return LivenessVerdict(frozenset(dead), frozenset(expired))


def _updated(seen: _Seen | None, slot: MemberSlot, gap: float) -> _Seen:
    if seen is None:
        return _Seen(slot.beats, slot.polls)
    return _Seen(
        slot.beats,
        slot.polls,
        seen.beats_for + gap if slot.beats == seen.beats else 0.0,
        seen.polls_for + gap if slot.polls == seen.polls else 0.0,
        seen.gone_for + gap if not slot.locked else 0.0,
    )


def _why_over(member: Member, slot: MemberSlot, seen: _Seen) -> str | None:
    """Why a member must be removed; None if it stays."""
    session_s = slot.session_timeout_ms / 1000
    if not slot.locked:
        if member.instance_id is None:
            return "its process is gone"
        return (
            f"its process did not return within session_timeout_ms={slot.session_timeout_ms}"
            if seen.gone_for >= session_s
            else None
        )
    if seen.beats_for >= session_s:
        return f"its process stood still for session_timeout_ms={slot.session_timeout_ms}"
    if seen.polls_for >= slot.max_poll_interval_ms / 1000:
        return f"it did not poll for max_poll_interval_ms={slot.max_poll_interval_ms}"
    return None
