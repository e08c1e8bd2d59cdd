"""A member's heartbeat, and its view of the other members' heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from pylog.background import LOGGER, Background, Failures
from pylog.errors import ClosedError, PylogError, UnknownTopicOrPartitionError
from pylog.fs import Gate
from pylog.groups.liveness import FailureDetector, LivenessVerdict
from pylog.groups.members_file import MembersFile
from pylog.groups.state import Member

_WRITES_A_HEARTBEAT = 4  # of a member that polls without a pause


class Heartbeat:
    """Keeps a member's slot in the members file alive from its own thread, so that a slow sync elsewhere does not end it.

    Args:
        file: with a slot for this member.
        heartbeat_s: seconds between two heartbeats.
        gate: the store's. Each write is inside it, so that none comes after the store was closed.
        check_open: raises if the store is closed or the log was deleted, which ends the heartbeats.
        detector: the member's failure detector, kept over all attempts to join.
        failures: collects errors of the thread.
    """

    def __init__(
        self,
        file: MembersFile,
        heartbeat_s: float,
        gate: Gate,
        check_open: Callable[[], None],
        detector: FailureDetector,
        failures: Failures,
    ) -> None:
        self._file = file
        self._gate = gate
        self._check_open = check_open
        self._detector = detector
        self._pause = heartbeat_s / _WRITES_A_HEARTBEAT
        self._next_write = 0.0
        self._forgotten = False
        self._interval_ms = max(1, int(heartbeat_s * 1000))
        self._background = Background(failures)

    def begin(self) -> None:
        """Starts the heartbeats. The caller must have stored this object first, so that an interrupt can end it."""
        self._background.every("beat", self._interval_ms, self._beat)

    def _beat(self) -> None:
        if self._is_over():
            self.end()
        else:
            with suppress(ClosedError), self._gate:  # the next heartbeat ends it
                self._file.beat()

    def _is_over(self) -> bool:
        try:
            self._check_open()
        except (ClosedError, UnknownTopicOrPartitionError):
            return True
        except PylogError as error:  # the process lives; its next poll raises the log's error
            LOGGER.debug("while a heartbeat was written: %s", error)
        return self._forgotten

    def polled(self, now: float) -> None:
        """Counts a poll, unless one was counted just before. `now` is the member's own clock, in seconds.

        Raises:
            ClosedError: the store is closed.
        """
        if now >= self._next_write:
            self._next_write = now + self._pause
            with self._gate:
                self._file.beat(polled=True)

    def judge(self, others: Iterable[Member], now: float) -> LivenessVerdict:
        """Judges the other members, given a state that was read before. Cost: one read, and 1 µs for each slot."""
        return self._detector.judge(others, self._file.slots(), now)

    @property
    def reasons(self) -> dict[str, str]:
        """The reason why each expired member of the last `judge` is expired, by member id."""
        return self._detector.reasons

    def forget(self) -> None:
        """Releases the slot at the next heartbeat. For the garbage collector, which must not take a lock."""
        self._forgotten = True

    def end(self) -> None:
        """Releases the slot: other members see at once that the member has left."""
        self._file.close()
        self._background.end()
