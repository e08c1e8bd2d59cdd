"""Makes the calls of one step for several partitions at once, so that their syncs are begun together (transactions 10.4).

Threads pay off only on a disk whose syncs take long, which the crew measures. Measured in turns, as multiples of one write and
its sync of 1.7 ms: 2 files one after the other 3.2, in two threads 1.1; 8 files 11.4 and 2.6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from pylog.clock import Clock
from pylog.log.writing.partition_writer import is_exclusive
from pylog.record.ahead import Worker

T = TypeVar("T")
_SLOW_S: Final = 0.0003  # a call that takes longer waits for the disk; to wake a thread takes a tenth of that
_MOST: Final = 8  # calls at once


class Crew:
    """Threads for the steps of a store's transactions. Any number of threads may use it at the same time.

    The first calls are made one after the other. So are all calls that sync nothing, and all while syncs are quick, as on a disk
    in memory.

    Args:
        clock: measures the calls.

    >>> from pylog.clock import ManualClock
    >>> Crew(ManualClock()).results([lambda: 1, lambda: 2], syncs=True)
    [1, 2]
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._call_s = 0.0  # of the last call that was measured
        self._idle: list[Worker] = []

    def results(self, calls: Sequence[Callable[[], T]], *, syncs: bool) -> list[T]:
        """Makes all calls, and returns their results in order.

        Args:
            calls: one for each partition.
            syncs: true if each call waits for a sync.

        Raises:
            PylogError: the first error, in the order of the calls, once no call is running any more. When the calls are made one
                after the other, those after the failed one are not made.
        """
        if not syncs:
            return [call() for call in calls]
        if len(calls) == 1 or self._call_s < _SLOW_S or is_exclusive():  # another thread would wait for the log of this one
            return [self._measured(call) for call in calls]
        found: list[T] = []
        for first in range(0, len(calls), _MOST):
            found += self._together(calls[first : first + _MOST])
        return found

    def _measured(self, call: Callable[[], T]) -> T:
        began = self._clock.monotonic()
        try:
            return call()
        finally:
            self._call_s = self._clock.monotonic() - began

    def _together(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        workers = [self._idle.pop() if self._idle else Worker("pylog-transaction") for _ in calls[1:]]
        asked = []
        try:
            asked = [worker.ask(call) for worker, call in zip(workers, calls[1:], strict=True)]
            outcomes = [_outcome(lambda: self._measured(calls[0]))]
            for worker, call, is_asked in zip(workers, calls[1:], asked, strict=True):
                outcomes.append(_outcome(worker.result if is_asked else call))
        except BaseException:  # an interrupt: no call may run on after this one
            for worker in workers:
                worker.end()
            raise
        self._idle += [worker for worker, is_asked in zip(workers, asked, strict=True) if is_asked]
        for _, error in outcomes:
            if error is not None:
                raise error
        return [result for result, _ in outcomes]  # type: ignore[misc]

    def end(self) -> None:
        """Ends the threads that are idle."""
        while self._idle:
            self._idle.pop().end()


def _outcome(call: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return call(), None
    except Exception as error:  # noqa: BLE001 - raised once the other calls have ended
        return None, error
