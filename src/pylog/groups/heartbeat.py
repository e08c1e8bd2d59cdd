"""A member's sign of life, and what it sees of the others'."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pylog.background import LOGGER, Background
from pylog.errors import ClosedError, PylogError, UnknownTopicOrPartitionError
from pylog.groups.liveness import FailureDetector, LivenessVerdict
from pylog.groups.members_file import MembersFile
from pylog.groups.state import Member

_WRITES_A_HEARTBEAT = 4  # of a member that polls without a pause


class Heartbeat:
    """The slot of a member in the members file, kept alive by a thread of its own: a slow sync in another must not end it.

    Args:
        file: with a slot for this member.
        heartbeat_s: seconds between two signs of life.
        check_open: raises `ClosedError` once the store is closed, and the like when the log was deleted, which ends them.
        detector: what the member has seen of the others, also while it tried to join before.
    """

    def __init__(self, file: MembersFile, heartbeat_s: float, check_open: Callable[[], None], detector: FailureDetector) -> None:
        self._file = file
        self._check_open = check_open
        self._detector = detector
        self._pause = heartbeat_s / _WRITES_A_HEARTBEAT
        self._next_write = 0.0
        self._forgotten = False
        self._interval_ms = max(1, int(heartbeat_s * 1000))
        self._background = Background()

    def begin(self) -> None:
        """Shows from now on that the process lives, until it is ended: by whoever knows this heartbeat already."""
        self._background.every("beat", self._interval_ms, self._beat)

    def _beat(self) -> None:
        if self._is_over():
            self.end()
        else:
            self._file.beat()

    def _is_over(self) -> bool:
        try:
            self._check_open()
        except (ClosedError, UnknownTopicOrPartitionError):
            return True
        except PylogError as error:  # the process lives; what is wrong with the log its next poll will say
            LOGGER.debug("while a member shows that it lives: %s", error)
        return self._forgotten

    def polled(self, now: float) -> None:
        """Shows that the consumer polls, if that was not shown just before. `now` is the member's own clock, in seconds."""
        if now >= self._next_write:
            self._next_write = now + self._pause
            self._file.beat(polled=True)

    def look(self, others: Iterable[Member], now: float) -> LivenessVerdict:
        """Judges the other members of the group, of a state read before. Cost: one read, and 1 µs for each slot."""
        return self._detector.look(others, self._file.slots(), now)

    @property
    def reasons(self) -> dict[str, str]:
        """Why the last `look` found members expired, by their ids."""
        return self._detector.reasons

    def forget(self) -> None:
        """Lets go with the next sign of life. For the garbage collector, which may run anywhere, so that no lock may be taken."""
        self._forgotten = True

    def end(self) -> None:
        """Lets go of the slot: others see at once that the member is gone."""
        self._file.close()
        self._background.end()
