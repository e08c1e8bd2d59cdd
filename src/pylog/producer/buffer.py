"""The records that wait for the sender, in a list to which every thread appends without a lock, and the limits of its memory.

`list.append`, `items[:n]` and `del items[:n]` are atomic, and only one thread takes records. So a `send` that finds room and
wakes no thread takes no lock. It compares the list's length with `room` before the append, and with `attention` after it. Both
numbers change only under the lock. A thread that is about to sleep first sets them, then checks the list.

A record of up to `RECORD_CHARGE` bytes counts as one, so their memory is the list's length. Larger records are counted
separately, under the lock. While a larger record waits for room, later records wait too. Otherwise small records could use up its
room forever.
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
from pylog.producer.failures import DeliveryFailures
from pylog.producer.future import FutureRecordMetadata, Outcome, by_route, call_back, details_of, key_of, settle, value_of
from pylog.producer.sizes import RECORD_CHARGE, charge
from pylog.producer.waiting import Waiting, waitable
from pylog.threads import started

NEVER: Final = 1 << 62


class RecordAccumulator:
    """Records on their way to the sender.

    Args:
        memory: the largest size of unsettled records, in bytes; each thread may exceed it by one small record.
        max_block_ms: how long a thread waits for room, in milliseconds.
        linger_ms: how long the sender waits for more records, in milliseconds.
        batch_size: the record bytes at which it stops waiting.

    Attributes:
        items: the waiting records.
        room: how many records may wait; `send` compares it with the length of `items`.
        attention: `send` calls `wake` if more records than this are waiting.
        abandoned: true if the remaining records must be refused.
        topics: the number of topics the records may belong to.
        waiting: the lock, and the threads that wait.
        failures: failed records, until they are reported.
    """

    def __init__(self, memory: int, max_block_ms: int, linger_ms: float, batch_size: int) -> None:
        self.items: list[FutureRecordMetadata] = []
        self.room = memory // RECORD_CHARGE
        self.attention = NEVER
        self.abandoned = False
        self.topics = 0
        self.waiting = Waiting()
        self.failures = DeliveryFailures()
        self._memory = memory
        self._max_block_ms = max_block_ms
        self._linger_ms = linger_ms
        self._batch_size = batch_size
        self._extra = 0  # bytes beyond RECORD_CHARGE of the records that have more
        self._under_way: list[FutureRecordMetadata] = []  # the records that the sender took
        self._extra_under_way = 0
        self._sized = 0  # how many waiting records `_size` includes
        self._size = 0  # their bytes
        self._taken_count = 0
        self._urgent = 0  # the number of records to take without lingering
        self._blocked = 0  # threads that wait for room
        self._came = 0  # requests for room so far
        self._large: list[int] = []  # requests of larger records that wait, in their order
        self._closed = False  # no more records are accepted
        self._ended = False  # the sender has ended too
        self._lock, self._work, self._progress = self.waiting.lock, self.waiting.work, self.waiting.progress
        on_fork(self)

    def forked(self) -> None:
        """Accepts no record in a forked child, where no sender runs."""
        self.room = -1

    def is_foreign(self) -> bool:
        """Returns True in a forked child. See `Waiting.is_foreign`."""
        return self.waiting.is_foreign()

    # ---- threads that send ---------------------------------------------------------------------------------------------------

    def wait_for_room(self) -> None:
        """Waits until a small record fits.

        Raises:
            PylogTimeoutError: the buffer stayed full for `max_block_ms`.
            ClosedError: the producer is closed, or belongs to another process.
            IllegalStateError: the call interrupts another call of this thread.
        """
        self.waiting.check_outside()
        with self._lock:
            self._wait_for_room(RECORD_CHARGE)

    def check_open(self) -> None:
        """Raises ClosedError if the producer is closed."""
        self.waiting.check_process()
        if self._closed:
            raise ClosedError("the producer is closed; create another one")

    def add(self, future: FutureRecordMetadata) -> None:
        """Adds a small record; `send` has the same steps inline. Raises as `wait_for_room`."""
        if len(self.items) >= self.room:
            self.wait_for_room()
        self.items.append(future)
        if len(self.items) > self.attention:
            self.wake()

    def add_large(self, future: FutureRecordMetadata, size: int) -> None:
        """Adds a record of `size` bytes, larger than `RECORD_CHARGE`, once it fits. Raises as `wait_for_room`."""
        self.waiting.check_outside()
        with self._lock:
            try:
                self._wait_for_room(size)
                self._take_large(future, size)
            finally:
                self._set_room()
            self._work.notify()

    def _take_large(self, future: FutureRecordMetadata, size: int) -> None:
        self._extra += size - RECORD_CHARGE
        self.items.append(future)

    def has_room(self, size: int) -> bool:
        """Returns whether a record would fit at this moment. Takes no lock."""
        return (self.room - len(self.items)) * RECORD_CHARGE >= size

    def add_at_once(self, future: FutureRecordMetadata, size: int) -> bool:
        """Adds a record of `size` bytes if it fits now, and no larger one waits. Returns whether it was added.

        Raises:
            IllegalStateError: the call interrupts another call of this thread.
        """
        if not self.has_room(size):
            return False
        if size <= RECORD_CHARGE:
            self.items.append(future)
            if len(self.items) > self.attention:
                self.wake()
            return True
        self.waiting.check_outside()
        with self._lock:
            if self._closed or not self._may_enter(self._came + 1, size):
                return False
            self._take_large(future, size)
            self._set_room()
            self._work.notify()
            return True

    def _wait_for_room(self, size: int) -> None:
        if not self.waiting.is_sender():  # in a callback it would wait for itself
            self._came += 1
            number = self._came
            if not self._may_enter(number, size) and not self._wait_for_turn(number, size):
                message = f"the producer's buffer of {self._memory} bytes has been full for max_block_ms={self._max_block_ms}"
                advice = "send more slowly, or raise one of the two options"
                raise PylogTimeoutError(f"{message}; the record was not accepted: {advice}")
        self.check_open()

    def _wait_for_turn(self, number: int, size: int) -> bool:
        """Waits until a record may be added. Returns false if it has waited too long."""
        self._blocked += 1
        try:
            if size > RECORD_CHARGE:
                self._large.append(number)
                self._set_room()
            self._work.notify()
            return self.waiting.wait_for(lambda: self._may_enter(number, size), self._max_block_ms / 1000)
        finally:
            self._blocked -= 1
            if number in self._large:
                self._large.remove(number)
                self._progress.notify_all()

    def _may_enter(self, number: int, size: int) -> bool:
        """Returns whether a record fits and no earlier, larger record waits. True for a closed producer: waiting is useless."""
        records = len(self.items) + len(self._under_way)
        fits = records * RECORD_CHARGE + self._extra + size <= self._memory
        return self._closed or (fits and (not self._large or number <= self._large[0]))

    def _set_room(self) -> None:
        used = self._extra + RECORD_CHARGE * len(self._under_way)
        self.room = -1 if self._closed or self._large else (self._memory - used) // RECORD_CHARGE

    def wake(self) -> None:
        """Wakes the sender for a record. If the sender has ended, fails the record.

        A signal handler may call it during another call of the thread: then the sender has not ended.
        """
        with self._lock:
            if not self._ended:
                self._work.notify()
                return
            late = self.items[:]
            del self.items[: len(late)]
            self._fail(late, ClosedError("the producer was closed during the call; the record was not sent"))
            self._taken_count += len(late)  # a `flush` may have counted them
            self._progress.notify_all()
        self.call_back(late)

    # ---- threads that wait ---------------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None) -> None:
        """Waits until all records sent so far are settled. They do not linger.

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
            target = self._taken_count + len(self.items)
            self._urgent = max(self._urgent, target)
            self._work.notify()
            if not self.waiting.wait_for(lambda: self._taken_count - len(self._under_way) >= target, seconds):
                raise PylogTimeoutError(f"not all records are in the log after {timeout} s; they may still be appended")

    # ---- the sender ----------------------------------------------------------------------------------------------------------

    def start(self, run: Callable[[], None]) -> None:
        """Starts the sender's thread."""
        self.waiting.sender = threading.Thread(target=run, name="pylog-producer", daemon=True)
        started(self.waiting.sender)

    def take(self) -> list[FutureRecordMetadata]:
        """Waits for records and takes some of them, in order. Returns none if the buffer is closed and empty."""
        with self._lock:
            self.attention = 0  # from here on, each `send` wakes this thread
            while not self.items:
                if self._closed:
                    self._ended, self.attention = True, -1  # a later `send` fails its record itself
                    break
                self._work.wait()
            if self._linger_ms and not self._is_due():
                self._work.wait_for(self._is_due, self._linger_ms / 1000)
            self.attention = NEVER if not self._ended else -1
            return self._picked()

    def _picked(self) -> list[FutureRecordMetadata]:
        picked = self.items[: limits.PRODUCER_TAKE_RECORDS]
        if self._extra:
            sizes = [charge(value_of(future), key_of(future), details_of(future).headers) for future in picked]
            ends = list(accumulate(sizes))
            picked = picked[: max(1, bisect_right(ends, limits.PRODUCER_TAKE_BYTES))]
            self._extra_under_way = ends[len(picked) - 1] - RECORD_CHARGE * len(picked) if picked else 0
        del self.items[: len(picked)]
        self._sized = self._size = 0
        self._under_way = picked
        self._taken_count += len(picked)
        self._set_room()
        return picked

    def _is_due(self) -> bool:
        """Returns whether the sender must not linger any longer."""
        return self._closed or self._urgent > self._taken_count or self._blocked > 0 or self._is_batch()

    def _is_batch(self) -> bool:
        """Returns whether the waiting records fill a batch. Otherwise sets `attention` to the number that may fill one."""
        waiting = len(self.items)
        if waiting >= limits.PRODUCER_TAKE_RECORDS:
            return True  # the most that `take` returns
        if waiting <= self.attention and self.attention > 0:
            return False
        new = self.items[self._sized : waiting]
        self._sized = waiting
        self._size += sum([len(value or b"") for read in (value_of, key_of) for value in map(read, new)])
        mean = max(1, self._size // waiting)
        self.attention = max(waiting, min(self._batch_size // mean, limits.PRODUCER_TAKE_RECORDS) - 1)
        return self._size >= self._batch_size

    def done(self) -> None:
        """Frees the memory of the records taken, which are settled."""
        with self._lock:
            self._under_way = []
            self._extra -= self._extra_under_way
            self._extra_under_way = 0
            self._set_room()
            self._progress.notify_all()

    def refuse(self, futures: Sequence[FutureRecordMetadata], error: Exception, partition: int = -1) -> None:
        """Settles futures with an error, in their order."""
        self._fail(futures, error, partition)
        self.call_back(futures)
        if self.failures.are_many:
            self.failures.report()

    def _fail(self, futures: Sequence[FutureRecordMetadata], error: Exception, partition: int = -1) -> None:
        without_frames(error)  # frames refer to the records, and these to the error
        for some in by_route(futures).values():
            outcome = Outcome.failed(error, partition)
            settle(some, outcome)
            self.failures.note(some, outcome)

    def call_back(self, futures: Sequence[FutureRecordMetadata]) -> None:
        """Calls the callbacks of settled futures, and wakes the threads that wait for them."""
        self.waiting.announce()
        if self.waiting.has_callbacks:
            call_back(futures)

    # ---- the end -------------------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """True if no more records are accepted."""
        return self._closed

    def refuse_new(self) -> None:
        """Accepts no more records; the sender ends after the waiting ones. Waits only for the lock."""
        with self._lock:
            self._closed = True
            self._set_room()
            self._work.notify()
            self._progress.notify_all()

    def close(self, timeout: float | None) -> None:
        """Accepts no more records, and waits until the sender has appended the waiting ones.

        Args:
            timeout: seconds to wait; after that the remaining records are refused.

        Raises:
            IllegalStateError: the call interrupts another call of this thread. As `Waiting.check_unlocked`.
        """
        self.waiting.check_outside()
        seconds = waitable(timeout)
        sender = self.waiting.sender
        if sender is None or self.waiting.is_sender():
            self.refuse_new()
            return
        with self._lock:
            self.waiting.check_unlocked(lambda: not (self.items or self._under_way))
        self.refuse_new()
        sender.join(seconds)
        self.abandoned = True
        sender.join()
