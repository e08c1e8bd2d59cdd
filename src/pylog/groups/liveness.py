"""Decides which members live, from the slots of the members file as one observer reads them (see `members_file`).

An observer uses no other process's clock. It adds up, on its own clock, how long each counter has not changed. It counts at most
two heartbeat intervals between two reads, so that an observer that was stopped or suspended fences no other member.
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
        locked: another process, or another consumer of this process, holds the slot's lock.
        member_id: the current or last member of the slot; None if it cannot be read or was never written.
        session_timeout_ms, max_poll_interval_ms: how long each counter may stand still.
        beats: grows while the process runs.
        polls: grows while the consumer polls.
    """

    locked: bool
    member_id: str | None = None
    session_timeout_ms: int = 0
    max_poll_interval_ms: int = 0
    beats: int = 0
    polls: int = 0


class LivenessVerdict(NamedTuple):
    """An observer's verdict on the members of its group.

    Attributes:
        dead: members whose processes have ended or released their slots.
        expired: members to remove: dead ones, and those whose timeout has passed. A dead static member has its session timeout to
            return.
    """

    dead: frozenset[str]
    expired: frozenset[str]


@dataclass(slots=True)
class _SlotSeen:
    """The seconds for which a member's counters have stood still, and for which its slot has been unlocked."""

    beats: int
    polls: int
    beats_for: float = 0.0
    polls_for: float = 0.0
    dead_for: float = 0.0


def living_members(members: Iterable[str], slots: Iterable[MemberSlot]) -> set[str]:
    """Returns the members whose processes are running, from one read; all of them while a locked slot cannot be read."""
    held = [slot.member_id for slot in slots if slot.locked]
    return set(members) if None in held else set(members).intersection(held)


class FailureDetector:
    """Detects failed members, from the successive reads of one observer.

    Args:
        heartbeat_s: the observer's heartbeat interval, in seconds.

    Attributes:
        reasons: why each expired member of the last `judge` is expired, by member id.
    """

    def __init__(self, heartbeat_s: float) -> None:
        self._longest_gap = 2 * max(heartbeat_s, limits.MEMBER_PROBE_S)  # reads are no more frequent than either
        self._seen: dict[str, _SlotSeen] = {}
        self._checked_at: float | None = None
        self.reasons: dict[str, str] = {}

    def judge(self, members: Iterable[Member], slots: Sequence[MemberSlot], now: float) -> LivenessVerdict:
        """Judges members by their slots, which must have been read after the members.

        Args:
            members: the group's members except the observer.
            slots: all slots of the file.
            now: the observer's own clock, in seconds.
        """
        gap = 0.0 if self._checked_at is None else min(now - self._checked_at, self._longest_gap)
        self._checked_at = now
        by_name = {slot.member_id: slot for slot in slots if slot.member_id is not None}
        obscure = any(
            slot.locked and slot.member_id is None for slot in slots
        )  # it may belong to any member, which will write it again
        dead = set()
        expired: dict[str, str] = {}
        before, self._seen = self._seen, {}
        for member in members:
            slot = by_name.get(member.member_id)
            if slot is None:
                if not obscure:
                    dead.add(member.member_id)
                    expired[member.member_id] = "its process has ended"
                continue
            seen = self._seen[member.member_id] = _updated(before.get(member.member_id), slot, gap)
            if not slot.locked:
                dead.add(member.member_id)
            reason = _why_over(member, slot, seen)
            if reason is not None:
                expired[member.member_id] = reason
        self.reasons = expired
        return LivenessVerdict(frozenset(dead), frozenset(expired))


def _updated(seen: _SlotSeen | None, slot: MemberSlot, gap: float) -> _SlotSeen:
    if seen is None:
        return _SlotSeen(slot.beats, slot.polls)
    return _SlotSeen(
        slot.beats,
        slot.polls,
        seen.beats_for + gap if slot.beats == seen.beats else 0.0,
        seen.polls_for + gap if slot.polls == seen.polls else 0.0,
        seen.dead_for + gap if not slot.locked else 0.0,
    )


def _why_over(member: Member, slot: MemberSlot, seen: _SlotSeen) -> str | None:
    """Returns why a member must be removed; None if it stays."""
    session_s = slot.session_timeout_ms / 1000
    if not slot.locked:
        if member.instance_id is None:
            return "its process has ended"
        return (
            f"its process did not return within session_timeout_ms={slot.session_timeout_ms}"
            if seen.dead_for >= session_s
            else None
        )
    if seen.beats_for >= session_s:
        return f"its process stood still for session_timeout_ms={slot.session_timeout_ms}"
    if seen.polls_for >= slot.max_poll_interval_ms / 1000:
        return f"it did not poll for max_poll_interval_ms={slot.max_poll_interval_ms}"
    return None
