"""The lock and the conditions of one producer, and the checks that keep a thread from waiting for itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from numbers import Real

from pylog.directory.locks import held_by_me
from pylog.errors import ClosedError, IllegalStateError, InvalidArgumentError, PylogTimeoutError
from pylog.fs import process_id
from pylog.log.writing.partition_writer import is_exclusive


def waitable(timeout: float | None) -> float | None:
    """Returns a timeout in seconds for `threading`; None for infinity, or for more than the system supports.

    >>> waitable(1.5), waitable(float("inf")), waitable(None)
    (1.5, None, None)
    """
    if timeout is None:
        return None
    if not isinstance(timeout, Real) or timeout != timeout:  # NaN is not equal to itself
        raise InvalidArgumentError(f"timeout={timeout!r} is not a number of seconds or None")
    return None if timeout >= threading.TIMEOUT_MAX else float(timeout)


class Waiting:
    """The lock of a producer, and the conditions that its threads wait for.

    Attributes:
        lock: protects the buffer's counts. A signal handler that calls during a call of its own thread is refused.
        turn: held by the thread that appends, so that one thread at a time assigns and uses sequence numbers.
        work: the condition that the sender waits on.
        progress: the condition that all other threads wait on.
        sender: the producer's thread.
        has_callbacks: true if any future has callbacks.
        before_waiting: called before a thread waits for a record. A producer of transactions writes the record.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.turn = threading.RLock()
        self.work = threading.Condition(self.lock)
        self.progress = threading.Condition(self.lock)
        self.sender: threading.Thread | None = None
        self.has_callbacks = False
        self.before_waiting: Callable[[], object] | None = None
        self._for_outcomes = 0  # the number of threads that wait for an outcome
        self._pid = process_id()

    def is_foreign(self) -> bool:
        """Returns True in a forked child, which must not use the lock: a thread of the parent may have held it then."""
        return process_id() != self._pid

    def is_sender(self) -> bool:
        """Returns True in the sender's thread, which would wait for itself."""
        return threading.current_thread() is self.sender

    def check_process(self) -> None:
        """Raises ClosedError in a forked child."""
        if self.is_foreign():
            raise ClosedError("a producer cannot be used in a forked process; open the store again there, and create another one")

    def check_outside(self) -> None:
        """Refuses a call that interrupts another call of the same thread, and could wait for it."""
        self.check_process()
        if held_by_me(self.lock) or (held_by_me(self.turn) and not self.is_sender()):
            message = "this call of the producer interrupts another call of the same thread, perhaps from a signal handler"
            raise IllegalStateError(f"{message}: set a flag there, and send, flush or close after that call")

    def check_other(self, doing: str) -> None:
        """Refuses a blocking call from a callback, which runs in the producer's thread."""
        if self.is_sender():
            raise InvalidArgumentError(f"a callback cannot {doing}: the producer's thread, which runs it, would wait for itself")

    def check_unlocked(self, is_settled: Callable[[], bool]) -> None:
        """Refuses to wait for the sender inside `Log.exclusively`: the sender may wait for that log.

        Raises:
            IllegalStateError: this thread has locked a log, and it is not settled.
        """
        if is_exclusive() and not is_settled():
            message = (
                "inside Log.exclusively this thread cannot wait for a producer: the producer's thread would wait for that log"
            )
            raise IllegalStateError(f"{message}; append with the Log, or call the producer afterwards")

    def wait_for(self, is_settled: Callable[[], bool], seconds: float | None) -> bool:
        """Waits for the sender, under the lock. Returns False if the time is over. Raises as `check_unlocked`."""
        self.check_unlocked(is_settled)
        return self.progress.wait_for(is_settled, seconds)

    def wait_until(self, is_settled: Callable[[], bool], timeout: float | None) -> None:
        """Waits until a record is settled.

        Raises:
            PylogTimeoutError: the timeout has expired.
            ClosedError: this is a forked child, in which no record is ever settled.
            IllegalStateError: the call interrupts another call of this thread. As `check_unlocked`.
        """
        self.check_outside()
        self.check_other("wait for a record")
        seconds = waitable(timeout)
        if self.before_waiting is not None:
            self.before_waiting()
        with self.lock:
            self._for_outcomes += 1
            try:
                if not self.wait_for(is_settled, seconds):
                    raise PylogTimeoutError(f"the record is not in the log after {timeout} s; it may still be appended")
            finally:
                self._for_outcomes -= 1

    def add_callback(self, add: Callable[[], None]) -> None:
        """Runs `add`, which adds a callback to a future, under the lock.

        If the future is settled at the same time, either the settling thread sees the callback, or the caller sees the outcome.
        """
        self.check_outside()
        with self.lock:
            self.has_callbacks = True
            add()

    def announce(self) -> None:
        """Wakes the threads that wait for outcomes."""
        if self._for_outcomes:
            with self.lock:
                self.progress.notify_all()
