"""Where records wait for the sender: a list that every thread appends to without a lock, and who waits for whom.

`list.append`, `items[:n]` and `del items[:n]` are atomic, and only one thread takes. So a `send` that finds room and wakes nobody
takes no lock: it compares the list's length with `room` before it appends and with `attention` behind it, two numbers that are
changed under the lock only. Whoever is about to sleep first says in these numbers that it does, and then looks at the list.

Memory is counted in records of at most `RECORD_CHARGE` bytes, which is the list's length; larger ones are counted by themselves,
under the lock. Who comes behind a larger one that waits for room waits too: else small ones would take what it needs, for ever.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from pylog import limits
from pylog.errors import ClosedError, PylogTimeoutError, without_frames
from pylog.fs import on_fork
from pylog.producer.failures import Failures
from pylog.producer.future import PLAIN, FutureRecordMetadata, Outcome, by_route, settle
from pylog.producer.sizes import RECORD_CHARGE, charge
from pylog.producer.waiting import Waiting, waitable

NEVER: Final = 1 << 62


class Buffer:
    """Records on their way to the sender.

    Args:
        memory: bytes of records that are not settled yet, at most (and one small record a thread).
        max_block_ms: how long a thread waits for room.
        linger_ms: how long the sender waits for more records.
        batch_size: record bytes with which it waits no longer.

    Attributes:
        items: those that wait.
        room: how many may wait, for `send` to compare.
        attention: with more than so many waiting, `send` calls `rouse`.
        abandoned: whether what is left is to be refused.
        topics: how many the records may be of.
        waiting: the threads that wait, and the lock.
        failures: the records that failed, until they are reported.
    """

    def __init__(self, memory: int, max_block_ms: int, linger_ms: float, batch_size: int) -> None:
        self.items: list[FutureRecordMetadata] = []
        self.room = memory // RECORD_CHARGE
        self.attention = NEVER
        self.abandoned = False
        self.topics = 0
        self.waiting = Waiting()
        self.failures = Failures()
        self._memory = memory
        self._max_block_ms = max_block_ms
        self._linger_ms = linger_ms
        self._batch_size = batch_size
        self._extra = 0  # bytes beyond RECORD_CHARGE of the records that have more
        self._under_way: list[FutureRecordMetadata] = []  # what the sender has
        self._extra_under_way = 0
        self._sized = 0  # how many of those that wait were looked at for their size
        self._size = 0  # of these, in bytes
        self._taken = 0
        self._urgent = 0  # so many are taken without lingering
        self._blocked = 0  # threads that wait for room
        self._came = 0  # how many have asked for room
        self._large: list[int] = []  # larger records that wait, in the order in which they came
        self._closed = False  # nothing more is let in
        self._ended = False  # and the sender is gone
        self._lock, self._work, self._progress = self.waiting.lock, self.waiting.work, self.waiting.progress
        on_fork(self)

    def forked(self) -> None:
        """In a forked child, where no sender runs, nothing has room."""
        self.room = -1

    def is_foreign(self) -> bool:
        """Whether this is a forked child. See `Waiting.is_foreign`."""
        return self.waiting.is_foreign()

    # ---- threads that send ---------------------------------------------------------------------------------------------------

    def wait_for_room(self) -> None:
        """Waits until a small record fits.

        Raises:
            PylogTimeoutError: none did for `max_block_ms`.
            ClosedError: the producer is closed, or another process's.
            IllegalStateError: the call comes amid another one of this thread.
        """
        self.waiting.check_outside()
        with self._lock:
            self._wait_for_room(RECORD_CHARGE)

    def check_open(self) -> None:
        """Raises ClosedError when nothing is taken any more."""
        self.waiting.check_process()
        if self._closed:
            raise ClosedError("the producer is closed; make another one")

    def add(self, future: FutureRecordMetadata) -> None:
        """Adds a small record, as `send` does by itself. Raises as `wait_for_room`."""
        if len(self.items) >= self.room:
            self.wait_for_room()
        self.items.append(future)
        if len(self.items) > self.attention:
            self.rouse()

    def add_large(self, future: FutureRecordMetadata, size: int) -> None:
        """Adds a record that counts `size` bytes, more than a small one, once it fits. Raises as `wait_for_room`."""
        self.waiting.check_outside()
        with self._lock:
            try:
                self._wait_for_room(size)
                self._extra += size - RECORD_CHARGE
                self.items.append(future)
            finally:
                self._set_room()
            self._work.notify()

    def _wait_for_room(self, size: int) -> None:
        if not self.waiting.is_sender():  # which would wait for itself, in a callback
            self._came += 1
            number = self._came
            if not self._may_go(number, size) and not self._wait_for_turn(number, size):
                told = f"the producer's buffer of {self._memory} bytes has been full for max_block_ms={self._max_block_ms}"
                raise PylogTimeoutError(f"{told}; the record was not taken: send more slowly, or raise one of the two")
        self.check_open()

    def _wait_for_turn(self, number: int, size: int) -> bool:
        """Waits until a record may go; whether it may in time."""
        self._blocked += 1
        try:
            if size > RECORD_CHARGE:
                self._large.append(number)
                self._set_room()
            self._work.notify()
            return self._progress.wait_for(lambda: self._may_go(number, size), self._max_block_ms / 1000)
        finally:
            self._blocked -= 1
            if number in self._large:
                self._large.remove(number)
                self._progress.notify_all()

    def _may_go(self, number: int, size: int) -> bool:
        """Whether a record has room, and comes behind no larger one that waits; or whether it need not wait: nothing is taken."""
        records = len(self.items) + len(self._under_way)
        fits = records * RECORD_CHARGE + self._extra + size <= self._memory
        return self._closed or (fits and (not self._large or number <= self._large[0]))

    def _set_room(self) -> None:
        used = self._extra + RECORD_CHARGE * len(self._under_way)
        self.room = -1 if self._closed or self._large else (self._memory - used) // RECORD_CHARGE

    def rouse(self) -> None:
        """Tells the sender of a record; answers the record itself when the sender is gone.

        Also from a handler of a signal amid another call, since the record is taken: then the sender is not gone.
        """
        with self._lock:
            if not self._ended:
                self._work.notify()
                return
            late = self.items[:]
            del self.items[: len(late)]
            self._fail(late, ClosedError("the producer was closed meanwhile; the record was not sent"))
            self._taken += len(late)  # a `flush` may have counted them
            self._progress.notify_all()
        self.call_back(late)

    # ---- threads that wait ---------------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None) -> None:
        """Waits until all that was sent so far is settled; nothing of it lingers.

        Raises:
            PylogTimeoutError, ClosedError, IllegalStateError: as `Waiting.wait_until`.
        """
        self.waiting.check_outside()
        self.waiting.check_other("flush")
        try:
            self._flush(timeout)
        finally:
            self.failures.report()

    def _flush(self, timeout: float | None) -> None:
        seconds = waitable(timeout)
        with self._lock:
            target = self._taken + len(self.items)
            self._urgent = max(self._urgent, target)
            self._work.notify()
            if not self._progress.wait_for(lambda: self._taken - len(self._under_way) >= target, seconds):
                raise PylogTimeoutError(f"not all records are in the log after {timeout} s; they may still get there")

    # ---- the sender ----------------------------------------------------------------------------------------------------------

    def start(self, run: Callable[[], None]) -> None:
        """Starts the sender's thread."""
        self.waiting.sender = threading.Thread(target=run, name="pylog-producer", daemon=True)
        self.waiting.sender.start()

    def take(self) -> list[FutureRecordMetadata]:
        """Waits for records and takes some, in the order in which they were added; none when the buffer is closed and empty."""
        with self._lock:
            self.attention = 0  # whoever adds from here on rouses
            while not self.items:
                if self._closed:
                    self._ended, self.attention = True, -1  # what comes later is answered by who adds it
                    break
                self._work.wait()
            if self._linger_ms and not self._is_due():
                self._work.wait_for(self._is_due, self._linger_ms / 1000)
            self.attention = NEVER if not self._ended else -1
            return self._picked()

    def _picked(self) -> list[FutureRecordMetadata]:
        picked = self.items[: limits.PRODUCER_TAKE_RECORDS]
        if self._extra:
            sizes = [charge(future.value, future.key, (future.details or PLAIN).headers) for future in picked]
            ends = list(accumulate(sizes))
            picked = picked[: max(1, bisect_right(ends, limits.PRODUCER_TAKE_BYTES))]
            self._extra_under_way = ends[len(picked) - 1] - RECORD_CHARGE * len(picked) if picked else 0
        del self.items[: len(picked)]
        self._sized = self._size = 0
        self._under_way = picked
        self._taken += len(picked)
        self._set_room()
        return picked

    def _is_due(self) -> bool:
        """Whether the sender has lingered enough."""
        return self._closed or self._urgent > self._taken or self._blocked > 0 or self._is_batch()

    def _is_batch(self) -> bool:
        """Whether what waits is a batch; if not, says with how many records it may be one."""
        waiting = len(self.items)
        if waiting >= limits.PRODUCER_TAKE_RECORDS:
            return True  # as much as is taken at a time
        if waiting <= self.attention and self.attention > 0:
            return False
        new = self.items[self._sized : waiting]
        self._sized = waiting
        self._size += sum([len(future.value or b"") + len(future.key or b"") for future in new])
        mean = max(1, self._size // waiting)
        self.attention = max(waiting, min(self._batch_size // mean, limits.PRODUCER_TAKE_RECORDS) - 1)
        return self._size >= self._batch_size

    def done(self) -> None:
        """What was taken is settled, and its memory free."""
        with self._lock:
            self._under_way = []
            self._extra -= self._extra_under_way
            self._extra_under_way = 0
            self._set_room()
            self._progress.notify_all()

    def refuse(self, futures: Sequence[FutureRecordMetadata], error: Exception, partition: int = -1) -> None:
        """Settles futures with an error, each in its turn."""
        self._fail(futures, error, partition)
        self.call_back(futures)
        if self.failures.are_many:
            self.failures.report()

    def _fail(self, futures: Sequence[FutureRecordMetadata], error: Exception, partition: int = -1) -> None:
        without_frames(error)  # which hold the records, and these hold the error
        for some in by_route(futures).values():
            outcome = Outcome.failed(error, partition)
            settle(some, outcome)
            self.failures.note(some, outcome)

    def call_back(self, futures: Sequence[FutureRecordMetadata]) -> None:
        """Makes the calls of settled futures, and wakes who waits for them."""
        self.waiting.announce()
        if self.waiting.has_callbacks:
            for future in futures:
                if future.details is not None:
                    future.call_back()

    # ---- the end -------------------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """True if nothing is let in any more."""
        return self._closed

    def let_nothing_in(self) -> None:
        """Has the sender end when it has done what is there. Waits for nothing but the lock."""
        with self._lock:
            self._closed = True
            self._set_room()
            self._work.notify()
            self._progress.notify_all()

    def close(self, timeout: float | None) -> None:
        """Lets nothing in any more, and waits until the sender has done what is there.

        Args:
            timeout: seconds that it gets for that; then the rest is refused.

        Raises:
            IllegalStateError: the call comes amid another one of this thread.
        """
        self.waiting.check_outside()
        seconds = waitable(timeout)
        self.let_nothing_in()
        sender = self.waiting.sender
        if sender is None or self.waiting.is_sender():
            return
        sender.join(seconds)
        self.abandoned = True
        sender.join()
