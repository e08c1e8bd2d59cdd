"""`Polling`: returns the records of a consumer's partitions to the program, in polls or one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import Any
from weakref import WeakMethod

from pylog import limits
from pylog.clock import Clock
from pylog.consumer.core import ConsumerCore
from pylog.consumer.fetcher import PartitionRecords, TakeRecords, as_frame, as_records, as_whole_frame
from pylog.consumer.options import check_int, checked_timeout
from pylog.consumer.partition import AssignedPartition, FetchedRecords
from pylog.log.reading.following import Naps
from pylog.record.types import Record, TopicPartition


class Polling:
    """The reading side of one consumer, for `Consumer` and `AsyncConsumer`.

    It never refers to the `Consumer`, so that a dropped consumer is collected at once.

    Args:
        core: the consumer's.
        clock: for waiting.

    Attributes:
        fetched: fetched records for iteration.
        timeout_ms: the option `consumer_timeout_ms`.
        take_records: takes the records of polls and iterations from a buffer. `pylog.compat` has its own.
    """

    def __init__(self, core: ConsumerCore, clock: Clock) -> None:
        self.fetched: Iterator[Record[Any, Any]] = iter(())
        self.timeout_ms = core.options.consumer_timeout_ms
        self.take_records: TakeRecords = as_records
        self._core = core
        self._clock = clock
        self._naps = Naps(clock)  # over all polls until a record arrives

    @property
    def reads(self) -> bool:
        """True if topics are subscribed to, or partitions assigned."""
        return self._core.reads

    def await_with(self, settle: Callable[[object], object]) -> None:
        """Allows coroutine functions as listeners and callbacks: `settle` receives the coroutines that they return."""
        self._core.steps.settle = settle

    # ---- polls ---------------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float, max_records: int | None, *, arrow: bool) -> dict[TopicPartition, Any]:
        """See `Consumer.poll` and `Consumer.poll_arrow`."""
        before: list[_Spot] = []
        try:
            with self._core.guard, self._core.steps:
                found = self._collected(timeout_ms, max_records, arrow=arrow)
                before = _spots(found)
                return self._returned(found)
        except BaseException:  # also after the last step: records that do not reach the caller are read again
            _take_back(before)
            raise

    def collect(
        self,
        timeout_ms: float,
        max_records: int | None = None,
        *,
        arrow: bool = False,
        only: Collection[TopicPartition] = (),
    ) -> list[PartitionRecords]:
        """Waits for records, and moves no position past them: the first half of `poll`.

        Records that are not passed to `return_records` are read again.
        """
        with self._core.guard:
            return self._collected(timeout_ms, max_records, arrow=arrow, only=only)

    def return_records(self, found: list[PartitionRecords]) -> dict[TopicPartition, Any]:
        """Moves the positions past the collected records: the second half of `poll`. An interrupt restores them."""
        if not found or self._core.steps.has_deferred_call:  # even if a listener has closed the consumer
            return {}
        with self._core.guard:
            before = _spots(found)
            try:
                return self._returned(found)
            except BaseException:
                _take_back(before)
                raise

    def _collected(
        self, timeout_ms: float, max_records: int | None, *, arrow: bool, only: Collection[TopicPartition] = ()
    ) -> list[PartitionRecords]:
        timeout = checked_timeout("timeout_ms", timeout_ms)
        strict = None if max_records is None else check_int("max_records", max_records, 1)
        if arrow:
            return self._collect(timeout, strict or limits.SCAN_ROWS, as_frame if strict else as_whole_frame)
        return self._collect(timeout, strict or self._core.options.max_poll_records, self.take_records, only)

    def _returned(self, found: list[PartitionRecords]) -> dict[TopicPartition, Any]:
        if self._core.steps.has_deferred_call:  # even if a listener has closed the consumer
            return {}
        return {assigned.partition: fetched.records for assigned, fetched in _moved(found)}

    def _collect(
        self, timeout_ms: float, count: int, how: TakeRecords, only: Collection[TopicPartition] = ()
    ) -> list[PartitionRecords]:
        core, deadline = self._core, self._clock.monotonic() + timeout_ms / 1000
        while True:
            core.check_woken()
            core.keep_up()
            if core.steps.has_deferred_call or not core.reads:  # a listener or a callback has ended it
                return []
            found = core.take(count, how, only)
            if any(len(fetched.records) for _, fetched in found):
                self._naps.end()
                core.fetcher.read_ahead()
                return found
            _moved(found)  # past records that are not visible
            if not found and not self._naps.take(deadline):
                return []

    # ---- iteration -----------------------------------------------------------------------------------------------------------

    def records(self, consumer: object) -> Iterator[Record[Any, Any]]:
        """Returns an iterator over records, one by one. As `Consumer.__iter__`.

        Args:
            consumer: not used, only kept: a consumer is not dropped while a program iterates over it.
        """
        return chain.from_iterable(self._each_fetch(consumer))

    def _each_fetch(self, consumer: object) -> Iterator[Iterator[Record[Any, Any]]]:  # noqa: ARG002 - see `records`
        """Yields the fetched records again and again. A loop that is left leaves the rest of them to the next one."""
        if self.is_check_due:  # records in hand may be from an earlier loop
            self.check()
        while True:
            yield self.fetched
            if not self._fetch(self.timeout_ms, WeakMethod(self._check_in_between)):
                return

    def next_record(self) -> Record[Any, Any]:
        """Returns the next record of an iteration. Raises StopIteration when `records` would end."""
        if self.is_check_due:
            self.check()
        for record in self.fetched:
            return record
        if not self._fetch(self.timeout_ms, WeakMethod(self._check_in_between)):
            raise StopIteration
        return next(self.fetched)

    def fetch_for_iteration(self, timeout_ms: float | None = None) -> bool:
        """Fetches records for iteration, and returns whether there are any. None waits for `consumer_timeout_ms`.

        The caller checks `is_check_due` before each of the records.
        """
        return self._fetch(self.timeout_ms if timeout_ms is None else timeout_ms, None)

    def _fetch(self, wait_ms: float | None, check: WeakMethod[Callable[[], None]] | None) -> bool:
        with self._core.guard, self._core.steps:  # to the end, so that the positions still match the records
            found = self._collected(math.inf if wait_ms is None else wait_ms, None, arrow=False)
            self.fetched = _one_by_one(found, self._core, check, self._clock)
            return bool(found)

    def _check_in_between(self) -> None:
        """Does the due work while `fetched` runs. A listener, or another thread, that iterates meanwhile must not ask it."""
        held, empty = self.fetched, iter(())
        self.fetched = empty
        self._core.check_in_iteration()
        if self.fetched is empty:
            self.fetched = held

    def next_in_hand(self) -> Record[Any, Any] | None:
        """Returns the next fetched record of the iteration; None if it must fetch more."""
        return next(self.fetched, None)

    @property
    def is_check_due(self) -> bool:
        """True if `check` must be called before iteration returns the next record."""
        return self._clock.monotonic() >= self._core.check_at

    def check(self) -> None:
        """Handles group membership and automatic commits between two records of an iteration. Raises as `Consumer.poll`."""
        if self._core.reads:
            self._core.check_in_iteration()


_Spot = tuple[AssignedPartition, int | None, int | None]  # with its position and leader epoch


def _spots(found: list[PartitionRecords]) -> list[_Spot]:
    return [(assigned, assigned.position, assigned.leader_epoch) for assigned, _ in found]


def _take_back(before: list[_Spot]) -> None:
    """Moves positions back, so that the records are returned again."""
    for assigned, position, epoch in before:
        assigned.seek(position, epoch)


def _moved(found: list[PartitionRecords]) -> list[PartitionRecords]:
    """Moves positions past fetched records. Returns the entries that have records."""
    for assigned, fetched in found:
        assigned.move_past(fetched)
    return [each for each in found if len(each.fetched.records)]


def _one_by_one(
    found: list[PartitionRecords], core: ConsumerCore, check: WeakMethod[Callable[[], None]] | None, clock: Clock
) -> Iterator[Record[Any, Any]]:
    """Returns records for iteration, which moves the position with each one."""
    checks = core, check, clock
    return chain.from_iterable([_of_one(assigned, fetched, assigned.position, *checks) for assigned, fetched in found])


def _of_one(
    assigned: AssignedPartition,
    fetched: FetchedRecords,
    at: int | None,
    core: ConsumerCore,
    check: WeakMethod[Callable[[], None]] | None,
    clock: Clock,
) -> Iterator[Record[Any, Any]]:
    """Yields the records of one partition, which was at position `at` when they were fetched.

    Ends early, also after the last record, if the partition was paused, moved, revoked or read by `poll` in between. This is the
    only generator that runs for each record: another one around it would take a fifth of an iteration.

    Args:
        assigned, fetched, at: the partition, its records, and its position before them.
        core: tells when a check is due.
        check: does the work that is due between two records; weak, because its owner has this iterator. None if the caller
            sees to that.
        clock: the clock of the checks.
    """
    epoch, now = fetched.leader_epoch, clock.monotonic
    for record in fetched.records:
        if assigned.position != at or not assigned.owned or assigned.paused:  # `is_next` inline: this runs for each record
            return
        assigned.position = at = record.offset + 1
        assigned.leader_epoch = epoch
        yield record
        if check is not None and now() >= core.check_at and (found := check()) is not None:
            found()
    if assigned.is_next(at):
        assigned.move_past(fetched)


def core_of(polling: Polling) -> ConsumerCore:
    """Returns the parts of a consumer, for `pylog.compat`."""
    return polling._core
