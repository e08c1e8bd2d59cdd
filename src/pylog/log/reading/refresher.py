"""Keeps the state of an open log current: with its writer where this process writes, else with a follower of other processes.

A refresh is never older than its call. A thread that finds another one refreshing waits for it. It takes that result only if the
refresh began after its own call. As in a group commit, one refresh then serves all threads that came before it began.

In a process that writes, a refresh needs the locks of a change. If another process holds the partition's lock, or another thread
waits for it, a second follower reads the header and the files without a lock.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable
from typing import Final, Protocol

from pylog.clock import Clock
from pylog.directory.locks import held_by_me, run_locked
from pylog.errors import StorageFailedError, UnknownTopicOrPartitionError
from pylog.log.durable_point import DurablePointFile
from pylog.log.producer_state import Producer
from pylog.log.reading.follower import Follower, load_live, load_to_follow
from pylog.log.recovery.loaded import Loaded, Source
from pylog.log.recovery.loader import deleted
from pylog.log.state import LogState

_TURNS: Final = 10  # attempts to take the lock of a thread that appends: most appends take less time
_TURN_S: Final = 0.001
_IDLE_S: Final = 10.0  # after which a second follower is dropped


class _Header(Protocol):
    def changed(self) -> bool: ...


class _Writer(Protocol):
    """`LogWriter`, as a refresher uses it."""

    @property
    def header(self) -> _Header: ...
    @property
    def is_catching_up(self) -> bool: ...
    @property
    def failure(self) -> str | None: ...
    def is_current(self) -> bool: ...


class RefreshedWriter(Protocol):
    """`PartitionWriter`, as a refresher uses it."""

    on_ready: Callable[[], None]

    @property
    def lock(self) -> threading.RLock: ...
    @property
    def loaded(self) -> Loaded: ...
    @property
    def writer(self) -> _Writer | None: ...
    @property
    def is_deleted(self) -> bool: ...
    @property
    def appending(self) -> bool: ...
    @property
    def close_count(self) -> int: ...
    def is_ahead(self) -> bool: ...
    def take_changes_of_others(self) -> bool: ...


class Turns:
    """Counts the refreshes of one follower or writer, so that a call recognises one that began after it.

    Attributes:
        begun: the number of refreshes that have begun.
        ended: the number of the last one that has succeeded; the numbers begin with 1.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.ended = 0

    def take(self, ticket: int, refresh: Callable[[], None]) -> None:
        """Refreshes, unless a refresh that began after the ticket was drawn has succeeded. Under the lock.

        Args:
            ticket: `begun` at the time of the call.
            refresh: does it.

        >>> turns = Turns()
        >>> turns.take(turns.begun, lambda: print("refreshed"))
        refreshed
        >>> turns.take(0, lambda: print("refreshed"))
        """
        if self.ended <= ticket:
            self.begun += 1
            number = self.begun
            refresh()
            self.ended = number


class _SecondFollower:
    """Follows a log without the locks of its writer. Loaded at its first use.

    Args:
        source: the partition.
        clock: for waiting.
        loaded: gives the partition as its writer loaded it: one of the same name that was created later is another one.
        shown: returns what readers see of a state.

    Attributes:
        used: the clock's seconds of its last use.
        is_deleted: true if it has found that the partition was deleted.
    """

    def __init__(self, source: Source, clock: Clock, loaded: Callable[[], Loaded], shown: Callable[[LogState], LogState]) -> None:
        self._loaded = loaded
        self._shown = shown
        self._source = dataclasses.replace(source, writable=False)
        self._clock = clock
        self._lock = threading.RLock()
        self._turns = Turns()
        self._state: LogState | None = None
        self.follower: Follower | None = None
        self.is_deleted = False
        self.used = clock.monotonic()

    def _publish(self, state: LogState) -> None:
        self._state = self._shown(state)

    def state(self, *, wait: bool, committed: bool) -> LogState:
        """Returns the state now. Arguments as of `Refresher.state`."""
        ticket, states = self._turns.begun, list[LogState]()

        def refresh() -> None:
            if self.follower is None:
                found = load_live(self._source, self._clock)
                if not found.follows(self._loaded()):
                    raise deleted(self._source)
                self.follower = Follower(self._source, self._clock, found, self._publish)
            self.follower.refresh(wait=wait)

        def take() -> None:
            self._turns.take(self._turns.begun if wait else ticket, refresh)
            if committed and self.follower is not None:
                self.follower.know_transactions()
            if self._state is not None:
                states.append(self._state)

        try:
            run_locked(self._lock, take, wait=True)
        except UnknownTopicOrPartitionError:
            self.is_deleted = True
            raise
        self.used = self._clock.monotonic()
        return states[0]

    def close(self) -> None:
        """Closes its files."""
        with self._lock:
            self.drop()
            for segment in [] if self._state is None else self._state.segments.values():
                segment.close()

    def drop(self) -> None:
        """Closes the header. The files of segments are closed when no reader uses them any more."""
        if self.follower is not None:
            self.follower.close()


class Refresher:
    """Refreshes the state of one open log. Every method may be called from any thread.

    Args:
        source: the partition.
        clock: for waiting.
        writer: the changing side; None in a store that is open for reading.
        publish: takes each new state of the writer, or of the follower while nothing is written.
        known: gives the state that was published last.
        shown: returns what readers see of a state of the local log.

    Attributes:
        follower: what this process follows until it writes.
        lock: held during a refresh; the writer's own lock where there is one.
    """

    def __init__(
        self,
        source: Source,
        clock: Clock,
        writer: RefreshedWriter | None,
        publish: Callable[[LogState], None],
        known: Callable[[], LogState],
        shown: Callable[[LogState], LogState],
    ) -> None:
        self._source, self._clock, self._writer, self._publish, self._known = source, clock, writer, publish, known
        self._shown = shown
        self.lock = threading.RLock() if writer is None else writer.lock
        self._turns = Turns()
        self._is_refreshing = False
        self._second: _SecondFollower | None = None
        self._guard = threading.Lock()  # of `_second`
        self._close_count = 0  # of the writer, that the follower knows of
        self._follow_on(*(load_to_follow(source, clock) if writer is None else (writer.loaded,)))
        if writer is not None:
            writer.on_ready = self._rest
            if writer.writer is not None:
                self._rest()

    def _rest(self) -> None:
        """Leaves the state to the writer from now on. Under the lock."""
        self.follower.rest()

    def _follow_on(self, loaded: Loaded, header: DurablePointFile | None = None) -> None:
        """Follows from a loaded partition, until this process writes."""
        self._followed = weakref.ref(loaded)  # it has the segments of that time, which may be deleted since
        self.follower = Follower(self._source, self._clock, loaded, self._publish, header)

    @property
    def is_deleted(self) -> bool:
        """Whether another process has deleted the partition."""
        finders = (self.follower, self._second, self._writer)
        return any(each is not None and each.is_deleted for each in finders)

    def may_have_changed(self) -> bool:
        """Returns whether another process may have changed the log since the state was published. No lock. Cost: one pread."""
        owner = self._writer
        try:
            writer = None if owner is None else owner.writer
            if writer is not None:
                return writer.header.changed() or writer.is_catching_up  # in this order: what it takes is published before
            return not self._is_following(owner) or self.follower.may_have_changed()
        except StorageFailedError:  # closed by another thread
            return True

    def _is_following(self, owner: RefreshedWriter | None) -> bool:
        """Returns whether the follower follows from what the process has loaded last."""
        return owner is None or (owner.loaded is self._followed() and owner.close_count == self._close_count)

    # ---- refreshes -----------------------------------------------------------------------------------------------------------

    def state(self, *, wait: bool = False, committed: bool = False) -> LogState:
        """Returns the state now. Everything that any process acknowledged before this call is in it.

        Args:
            wait: also wait for the end of a change of segments: the caller has met a file that was deleted.
            committed: also find the open transactions.

        Cost: one pread if nothing has changed.
        """
        ticket, owner = self._turns.begun, self._writer
        if not wait and self._is_known_current(owner, committed=committed):
            return self._known()
        found = list[LogState]()

        def take() -> None:
            if owner is None or owner.writer is None:
                self._refresh_follower(owner, self._turns.begun if wait else ticket, wait)
                if committed:
                    self.follower.know_transactions()
            elif not self._is_writer_current(owner):
                return
            found.append(self._known())

        if owner is not None and owner.appending and held_by_me(self.lock):
            return self._known()  # a handler of a signal or of log messages, in the middle of an append
        if owner is None or held_by_me(self.lock):
            run_locked(self.lock, take, wait=True)
        else:
            self._take_turns(owner, take, found, wait)
        if not found:
            return self._second_state(wait=wait, committed=committed)
        if self._second is not None:
            self._drop_idle()
        return found[0]

    def _is_known_current(self, owner: RefreshedWriter | None, *, committed: bool) -> bool:
        """Returns whether the published state is current. No lock."""
        if owner is not None and owner.writer is not None:
            return not self.may_have_changed()
        return self._is_following(owner) and self.follower.is_current(committed=committed)

    def open_producers(self) -> list[Producer]:
        """Returns the producers with an open transaction, as the follower knows them. For a log that is open for reading."""
        found = list[Producer]()
        run_locked(self.lock, lambda: found.extend(self.follower.open_producers()), wait=True)
        return found

    def _take_turns(self, owner: RefreshedWriter, take: Callable[[], None], found: list[LogState], wait: bool) -> None:
        """Refreshes under the lock; or takes the state of a thread that has it and has refreshed already.

        A thread that appends may wait for another process, up to the lock's timeout. So nothing is found after some attempts.
        """
        attempt = 0
        while attempt < _TURNS:
            is_ahead = owner.is_ahead()  # before the state is read
            if is_ahead and not wait:  # else it may be changing segments, which is not published yet
                found.append(self._known())
                return
            if run_locked(self.lock, take, wait=True, timeout=_TURN_S if attempt or is_ahead else 0):
                return
            attempt += not is_ahead and not self._is_refreshing

    def _refresh_follower(self, owner: RefreshedWriter | None, ticket: int, wait: bool) -> None:
        if owner is not None and owner.loaded is not self._followed():
            self._follow_on(owner.loaded)
            ticket = self._turns.begun
        if owner is not None and owner.close_count != self._close_count:
            self._close_count = owner.close_count
            self.follower.forget()
            ticket = self._turns.begun
        self._is_refreshing = True
        try:
            self._turns.take(ticket, lambda: self.follower.refresh(wait=wait))
        finally:
            self._is_refreshing = False

    @staticmethod
    def _is_writer_current(owner: RefreshedWriter) -> bool:
        """Takes the changes of other processes, if that is possible without waiting. Returns whether the state has them."""
        writer = owner.writer
        return writer is None or writer.failure is not None or writer.is_current() or owner.take_changes_of_others()

    def _second_state(self, *, wait: bool, committed: bool) -> LogState:
        with self._guard:
            second = self._second
            if second is None:
                second = self._second = _SecondFollower(
                    self._source,
                    self._clock,
                    lambda: self.follower.loaded if self._writer is None else self._writer.loaded,
                    self._shown,
                )
        return second.state(wait=wait, committed=committed)

    def _drop_idle(self) -> None:
        """Drops the second follower if it was not used for a while: it keeps files open."""
        with self._guard:
            second = self._second
            if second is not None and self._clock.monotonic() - second.used > _IDLE_S:
                second.drop()
                self._second = None

    def close(self) -> None:
        """Closes the headers, and the files of the second follower. Under the lock."""
        self.follower.close()
        if self._second is not None:
            self._second.close()
