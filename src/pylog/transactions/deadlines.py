"""When another process's open transaction is due to be aborted (transactions 6.1). A prepared one is completed at once.

A living process is judged neither by its own clock nor by the wall clock. An observer adds up how long it has seen the same
transaction open. It counts at most two heartbeats between two checks, so that a suspended machine aborts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pylog.transactions.metadata import ProducerIdAndEpoch, TransactionMetadata, TransactionState
from pylog.transactions.states import is_timed_out


class OpenedAt(NamedTuple):
    """One open transaction: the next one of the same id is another one."""

    transactional_id: str
    identity: ProducerIdAndEpoch
    start_timestamp_ms: int


def opened_at(state: TransactionMetadata) -> OpenedAt:
    """Returns which open transaction a state is about."""
    return OpenedAt(state.transactional_id, state.identity, state.start_timestamp_ms)


class TransactionDeadlines:
    """One observer of open transactions. For one thread at a time.

    Args:
        heartbeat_s: seconds between two checks, as a rule.

    >>> deadlines = TransactionDeadlines(3)
    >>> deadlines.overdue([], now=0.0)
    frozenset()
    """

    def __init__(self, heartbeat_s: float) -> None:
        self._longest_gap = 2 * heartbeat_s
        self._seen: dict[OpenedAt, float] = {}  # for how many seconds each was seen open
        self._checked_at: float | None = None

    def overdue(self, states: Iterable[TransactionMetadata], now: float) -> frozenset[OpenedAt]:
        """Returns the transactions that have been open for their timeout, as this observer has seen it.

        Args:
            states: the states of all ids that are open; others are ignored.
            now: the observer's monotonic clock, in seconds.
        """
        gap = 0.0 if self._checked_at is None else max(0.0, min(now - self._checked_at, self._longest_gap))
        self._checked_at = now
        before, self._seen = self._seen, {}
        found = set()
        for state in states:
            if state.state is not TransactionState.ONGOING:
                continue
            opened = opened_at(state)
            seconds = before[opened] + gap if opened in before else 0.0
            self._seen[opened] = seconds
            if seconds * 1000 >= state.timeout_ms and opened in before:
                found.add(opened)
        return frozenset(found)


def why_due(state: TransactionMetadata, *, owner_lives: bool, is_overdue: bool, now_ms: int) -> str | None:
    """Returns why an open transaction is due to be aborted by another process; None if it is not.

    Args:
        state: the id's state.
        owner_lives: whether the owner's byte is locked.
        is_overdue: whether an observer has seen it open for its timeout (`TransactionDeadlines`).
        now_ms: the wall clock. Only transactions that a broker has opened are judged by it.
    """
    if state.state is not TransactionState.ONGOING:
        return None
    if state.owner is None:
        limit = f"timeout_ms={state.timeout_ms} is over since its start at the broker"
        return limit if is_timed_out(state, now_ms) else None
    if not owner_lives:
        return "its process has ended"
    return f"it has been open for timeout_ms={state.timeout_ms}" if is_overdue else None
