"""How records get from a consumer's partitions to the program: in polls, and one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from pylog import limits
from pylog.clock import Clock
from pylog.consumer.core import Core
from pylog.consumer.fetcher import Found, Take, as_frame, as_records, as_whole_frame
from pylog.consumer.options import check_int, checked_timeout
from pylog.consumer.partition import AssignedPartition, Taken
from pylog.log.reading.following import Naps
from pylog.record.types import Record, TopicPartition


class Polling:
    """The reading side of one consumer, for `Consumer` and `AsyncConsumer`.

    It never refers to the `Consumer`, so that one that is dropped is collected at once.

    Args:
        core: the consumer's.
        clock: for waiting.

    Attributes:
        in_hand: records for iteration that have been read already.
        timeout_ms: the option `consumer_timeout_ms`.
    """

    def __init__(self, core: Core, clock: Clock) -> None:
        self.in_hand: Iterator[Record] = iter(())
        self.timeout_ms = core.options.consumer_timeout_ms
        self._core = core
        self._clock = clock
        self._naps = Naps(clock)  # over all polls until something comes

    @property
    def reads(self) -> bool:
        """Whether topics are subscribed to, or partitions assigned."""
        return self._core.reads

    def await_with(self, settle: Callable[[object], object]) -> None:
        """Accepts coroutine functions as listeners and callbacks from now on; `settle` is given what they return."""
        self._core.steps.settle = settle

    # ---- polls ---------------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float, max_records: int | None, *, arrow: bool) -> dict[TopicPartition, Any]:
        """See `Consumer.poll` and `Consumer.poll_arrow`."""
        before: list[_Spot] = []
        try:
            with self._core.guard, self._core.steps:
                found = self.collect(timeout_ms, max_records, arrow=arrow)
                before = _spots(found)
                return self.hand_out(found)
        except BaseException:  # after the last step, too: what does not arrive comes again
            _take_back(before)
            raise

    def collect(self, timeout_ms: float, max_records: int | None = None, *, arrow: bool = False) -> list[Found]:
        """Waits for records, and moves no position past any: the first half of `poll`.

        Records that are not given to `hand_out` then come again.
        """
        timeout = checked_timeout("timeout_ms", timeout_ms)
        strict = None if max_records is None else check_int("max_records", max_records, 1)
        with self._core.guard:
            if arrow:
                return self._collect(timeout, strict or limits.SCAN_ROWS, as_frame if strict else as_whole_frame)
            return self._collect(timeout, strict or self._core.options.max_poll_records, as_records)

    def hand_out(self, found: list[Found]) -> dict[TopicPartition, Any]:
        """Moves the positions past the collected records: the second half of `poll`. An interrupt takes them back."""
        if not found or self._core.steps.are_to_end:  # even if a listener has closed the consumer
            return {}
        with self._core.guard:
            before = _spots(found)
            try:
                return {place.partition: taken.records for place, taken in _moved(found)}
            except BaseException:
                _take_back(before)
                raise

    def _collect(self, timeout_ms: float, count: int, how: Take) -> list[Found]:
        core, deadline = self._core, self._clock.monotonic() + timeout_ms / 1000
        while True:
            core.check_woken()
            core.keep_up()
            if core.steps.are_to_end or not core.reads:  # a listener or a callback has ended it
                return []
            found = core.take(count, how)
            if any(len(taken.records) for _, taken in found):
                self._naps.end()
                core.fetcher.read_ahead()
                return found
            _moved(found)  # past records that are not visible
            if not found and not self._naps.take(deadline):
                return []

    # ---- iteration -----------------------------------------------------------------------------------------------------------

    def take_in_hand(self, timeout_ms: float | None = None) -> bool:
        """Gets records for iteration, and returns whether there are any. None waits for `consumer_timeout_ms`."""
        wait_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        with self._core.guard, self._core.steps:  # to the end, so that the positions are those at which the records were found
            found = self.collect(math.inf if wait_ms is None else wait_ms)
            self.in_hand = _one_by_one(found)
            return bool(found)

    def next_in_hand(self) -> Record | None:
        """The next record that iteration has already; None if it has to get more."""
        return next(self.in_hand, None)

    @property
    def is_check_due(self) -> bool:
        """Whether `check` has to be called before iteration hands out the next record."""
        return self._clock.monotonic() >= self._core.look_at

    def check(self) -> None:
        """Does what is due for the group and automatic commits between two records of an iteration. Raises as `Consumer.poll`."""
        if self._core.reads:
            self._core.look_after()


_Spot = tuple[AssignedPartition, int | None, int | None]  # and where it is: position, leader epoch


def _spots(found: list[Found]) -> list[_Spot]:
    return [(place, place.position, place.leader_epoch) for place, _ in found]


def _take_back(before: list[_Spot]) -> None:
    """What was found there is handed out again."""
    for place, position, epoch in before:
        place.seek(position, epoch)


def _moved(found: list[Found]) -> list[Found]:
    """Moves positions behind what was found; what remains is what has records."""
    for place, taken in found:
        place.hand_out(taken)
    return [each for each in found if len(each.taken.records)]


def _one_by_one(found: list[Found]) -> Iterator[Record]:
    """Records for iteration, each with its position."""
    return chain.from_iterable([_of_one(place, taken, place.position) for place, taken in found])


def _of_one(place: AssignedPartition, taken: Taken, at: int | None) -> Iterator[Record]:
    """Those of a partition that stood at an offset when they were taken. They end when it was paused, sought in, lost, or handed
    out by `poll` in between: behind its last record too.
    """
    epoch = taken.leader_epoch
    for record in taken.records:
        if place.position != at or not place.owned or place.paused:  # not `goes_on`: this is once a record
            return
        place.position = at = record.offset + 1
        place.leader_epoch = epoch
        yield record
    if place.goes_on(at):
        place.hand_out(taken)
