"""The threads of one producer, and how they wait for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from numbers import Real

from pylog.directory.locks import is_owned
from pylog.errors import ClosedError, IllegalStateError, InvalidArgumentError, PylogTimeoutError
from pylog.fs import process_id


def waitable(timeout: float | None) -> float | None:
    """Seconds to wait as threads take them: None for infinity, and for more than the system can wait.

    >>> waitable(1.5), waitable(float("inf")), waitable(None)
    (1.5, None, None)
    """
    if timeout is None:
        return None
    if not isinstance(timeout, Real) or timeout != timeout:  # not even to itself: NaN
        raise InvalidArgumentError(f"timeout={timeout!r} is not a number of seconds, nor None")
    return None if timeout >= threading.TIMEOUT_MAX else float(timeout)


class Waiting:
    """The lock of a producer, and the conditions that its threads wait for.

    Attributes:
        lock: of the buffer's counts. A call that a signal handler makes during a call of its own thread is refused.
        turn: of the thread that appends: numbers are given, and used, by one thread at a time.
        work: the sender waits here.
        progress: every other thread waits here.
        sender: the producer's thread.
        has_callbacks: whether any future has calls to make.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.turn = threading.RLock()
        self.work = threading.Condition(self.lock)
        self.progress = threading.Condition(self.lock)
        self.sender: threading.Thread | None = None
        self.has_callbacks = False
        self._for_outcomes = 0  # threads that wait for an outcome
        self._pid = process_id()

    def is_foreign(self) -> bool:
        """Whether this is a forked child: it must not touch the lock, which a thread of the parent may have held."""
        return process_id() != self._pid

    def is_sender(self) -> bool:
        """Whether the calling thread is the sender's, which would wait for itself."""
        return threading.current_thread() is self.sender

    def check_process(self) -> None:
        """Raises ClosedError in a forked child."""
        if self.is_foreign():
            raise ClosedError("a producer does not live on in a forked process; open the store there again, and make one")

    def check_outside(self) -> None:
        """Refuses a call that interrupts another call of the same thread, and might wait for it."""
        self.check_process()
        if is_owned(self.lock) or (is_owned(self.turn) and not self.is_sender()):
            told = "this call of the producer comes amid another one of the same thread, from a handler of a signal perhaps"
            raise IllegalStateError(f"{told}: set a flag there, and send, flush or close behind that call")

    def check_other(self, doing: str) -> None:
        """Refuses a call from a callback that would wait for the producer's thread."""
        if self.is_sender():
            raise InvalidArgumentError(f"a callback cannot {doing}: the producer's thread, which runs it, would wait for itself")

    def wait_until(self, is_settled: Callable[[], bool], timeout: float | None) -> None:
        """Waits until a record is settled.

        Raises:
            PylogTimeoutError: it is not yet.
            ClosedError: this is a forked child, where no record gets settled.
            IllegalStateError: the call interrupts another one of this thread.
        """
        self.check_outside()
        self.check_other("wait for a record")
        seconds = waitable(timeout)
        with self.lock:
            self._for_outcomes += 1
            try:
                if not self.progress.wait_for(is_settled, seconds):
                    raise PylogTimeoutError(f"the record is not in the log after {timeout} s; it may still get there")
            finally:
                self._for_outcomes -= 1

    def add_callback(self, add: Callable[[], None]) -> None:
        """Has `add` add a call to a future. A thread that settles it meanwhile sees the call, or else the caller the outcome."""
        self.check_outside()
        with self.lock:
            self.has_callbacks = True
            add()

    def announce(self) -> None:
        """Wakes the threads that wait for outcomes."""
        if self._for_outcomes:
            with self.lock:
                self.progress.notify_all()
