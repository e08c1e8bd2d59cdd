"""The commits of a consumer: synchronous, in the background with a future and a callback, and automatic."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from itertools import takewhile
from typing import Final, NamedTuple, Protocol

from pylog import limits
from pylog.clock import Clock
from pylog.consumer.arguments import checked_partition
from pylog.errors import (
    ClosedError,
    FencedMemberError,
    InvalidArgumentError,
    OffsetOutOfRangeError,
    PylogError,
    UnknownTopicOrPartitionError,
    without_frames,
)
from pylog.groups.member import GroupMember
from pylog.log.partition_log import PartitionLog
from pylog.offsets.offset_manager import CommitLogs, PartitionLike
from pylog.record.ahead import Worker
from pylog.record.types import OffsetAndMetadata, TopicPartition

LOGGER = logging.getLogger("pylog")
_OF_OFFSETS: Final = (  # errors of one commit, which is refused without waiting for anything
    ClosedError,
    FencedMemberError,
    InvalidArgumentError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
Offsets = Mapping[PartitionLike, int | OffsetAndMetadata]
CheckCommit = Callable[[Offsets, CommitLogs], object]
CommitCallback = Callable[[Offsets, BaseException | None], object]


def offsets_given(given: Offsets) -> Offsets:
    """Returns the offsets that a caller wants to commit, checked.

    Raises:
        InvalidArgumentError: they are not a mapping of partitions to offsets.
    """
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(f"offsets of type {type(given).__name__} are not a mapping of partitions to offsets")
    return {
        checked_partition(partition): offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        for partition, offset in given.items()
    }


class MemberIdentity(NamedTuple):
    """A consumer's membership at the time of a request. A commit is valid only in the membership that requested it.

    Attributes:
        member: the member of the group; None if the consumer was assigned partitions.
        member_id: its id at that time; joining again creates another id.
    """

    member: GroupMember | None
    member_id: str


class _Pending:
    """A commit in the background.

    The worker's results hold it until the consumer takes it. It must not refer to the consumer, which could not be collected
    then. So callbacks are kept elsewhere, and errors have no frames.

    Attributes:
        offsets: the requested offsets; once the commit is complete, those that were committed.
        logs: the logs that the offsets are for.
        chosen: as for `ConsumerAssignment.commit`.
        identity: the membership at the time of the request.
    """

    def __init__(
        self, offsets: Offsets, logs: CommitLogs, future: Future[None], *, chosen: bool, identity: MemberIdentity
    ) -> None:
        self.offsets = offsets
        self.logs = logs
        self.chosen = chosen
        self.identity: MemberIdentity | None = identity
        self._future: Future[None] | None = future
        self._error: BaseException | None = None

    def may_join(self, other: _Pending, logs: CommitLogs) -> bool:
        """Returns whether one append can commit both, and others before, which are for `logs`."""
        same_logs = all(logs.get(partition, log) is log for partition, log in self.logs.items())
        return same_logs and (self.chosen, self.identity) == (other.chosen, other.identity)

    def begin(self) -> bool:
        """Starts the commit. Returns False if its future was cancelled."""
        assert self._future is not None
        if self._future.set_running_or_notify_cancel():
            return True
        self._error = CancelledError()
        self._future = self.identity = None
        self.logs = {}
        return False

    def end(self, committed: Offsets, error: BaseException | None = None) -> None:
        """Settles the future with the committed offsets or the error."""
        future, self._future, self.identity, self.logs = self._future, None, None, {}
        assert future is not None
        self._error = error
        if error is not None:
            future.set_exception(error)
            return
        self.offsets = {partition: offset for partition, offset in self.offsets.items() if partition in committed}
        future.set_result(None)

    def call_back(self, callbacks: dict[_Pending, CommitCallback]) -> None:
        """Calls the callback, if there is one."""
        if callback := callbacks.pop(self, None):
            callback(self.offsets, self._error)


class _Mark:
    """Returned after all commits that were requested before it."""

    is_back = False


class Write(Protocol):
    """Writes a commit; see `ConsumerAssignment.commit`."""

    def __call__(
        self, offsets: Offsets, *, chosen: bool, logs: CommitLogs, identity: MemberIdentity | None = None
    ) -> Offsets: ...


class _Queue:
    """Commits that wait for the thread. Waiting commits are merged into one append, with the newest offset of each partition.

    Args:
        write: commits offsets.
        check: raises if the offsets cannot be committed in logs.
    """

    def __init__(self, write: Write, check: CheckCommit) -> None:
        self._write = write
        self._check = check
        self._waiting: deque[_Pending] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, pending: _Pending) -> None:
        """Adds a commit."""
        self._waiting.append(pending)

    def carry_out(self, mark: _Mark | None = None) -> tuple[list[_Pending], _Mark | None]:
        """Writes the waiting commits, in the worker thread. Returns the completed ones, whose callbacks are due, and the mark."""
        done = []
        while self._waiting:
            done.append(self._waiting.popleft())
        wanted = [each for each in done if each.begin()]
        while wanted:
            together, logs = list[_Pending](), dict[TopicPartition, PartitionLog | UnknownTopicOrPartitionError]()
            for each in takewhile(lambda each: each.may_join(wanted[0], logs), wanted):  # noqa: B023 - used at once
                together.append(each)
                logs |= each.logs
            error = self._commit(together)
            del wanted[: len(together)]
            if error is not None:  # each of the others would wait for the same lock, or fail on the same disk
                for each in wanted:
                    each.end({}, error)
                break
        return done, mark

    def _commit(self, together: list[_Pending]) -> BaseException | None:
        """Writes commits as one. Returns the error if it is not about their offsets, and so concerns every waiting commit."""
        offsets: dict[PartitionLike, int | OffsetAndMetadata] = {}
        logs: dict[TopicPartition, PartitionLog | UnknownTopicOrPartitionError] = {}
        for each in together:
            offsets |= each.offsets
            logs |= each.logs
        try:
            for each in together:
                if not _is_surely_covered(each.offsets, offsets):  # a newer offset hides one that may have to be refused
                    self._check(each.offsets, each.logs)
            committed = self._write(offsets, chosen=together[0].chosen, logs=logs, identity=together[0].identity)
        except BaseException as error:  # noqa: BLE001 - the futures raise it
            if len(together) > 1 and isinstance(error, _OF_OFFSETS):  # only one of them may be at fault
                return self._commit_each(together)
            without_frames(error)
            for each in together:
                each.end({}, error)
            return None if isinstance(error, _OF_OFFSETS) else error
        for each in together:
            each.end(committed)
        return None

    def _commit_each(self, together: list[_Pending]) -> BaseException | None:
        """Writes commits one by one. Returns the first error that concerns every waiting commit; the rest fail with it."""
        error: BaseException | None = None
        for each in together:
            if error is None:
                error = self._commit([each])
            else:
                each.end({}, error)
        return error


def _is_surely_covered(older: Offsets, newest: Offsets) -> bool:
    """Returns whether offsets can be committed if those that replace them can: they are the same, or earlier ones."""
    for partition, offset in older.items():
        new = newest[partition]
        if offset is not new and not (
            isinstance(offset, OffsetAndMetadata)
            and isinstance(new, OffsetAndMetadata)
            and type(offset.offset) is type(new.offset) is int
            and 0 <= offset.offset <= new.offset
            and offset[1:] == new[1:]
        ):
            return False
    return True


class Commits:
    """The commits of one consumer, in the order of the requests. The consumer's thread calls every method.

    Args:
        write: writes a commit; called from one thread at a time, also from the worker thread.
        check: checks the offsets of a commit, likewise.
        clock: for automatic commits.
        interval_ms: milliseconds between two automatic commits; None for none.
        retention_minutes: how long committed offsets are kept.

    Attributes:
        after_auto_commit: called after each automatic commit with the offsets and the error, or None. `pylog.compat` sets it.
    """

    def __init__(self, write: Write, check: CheckCommit, clock: Clock, interval_ms: int | None, retention_minutes: int) -> None:
        self._write = write
        self._clock = clock
        self._interval = None if interval_ms is None else interval_ms / 1000
        self._again = min(limits.COMMIT_AGAIN_SECONDS, retention_minutes * 60 / 4)
        self._worker = Worker("pylog-commits")
        self._queue = _Queue(write, check)
        self._callbacks: dict[_Pending, CommitCallback] = {}
        self._asked = False  # the worker may have requests
        self._due = clock.monotonic() + (self._interval or 0)
        self._written: Offsets = {}  # by the last automatic commit
        self._written_at = 0.0
        self.after_auto_commit: CommitCallback | None = None

    def commit(self, offsets: Offsets, *, chosen: bool, logs: CommitLogs) -> None:
        """Commits offsets in logs, after all earlier requests."""
        self.finish()
        if offsets:
            self._write(offsets, chosen=chosen, logs=logs)

    def commit_async(
        self, offsets: Offsets, callback: CommitCallback | None, *, chosen: bool, logs: CommitLogs, identity: MemberIdentity
    ) -> Future[None]:
        """Commits in the background, in logs and under a membership as they were at the request.

        Blocks while too many commits are waiting.
        """
        while len(self._queue) >= limits.COMMITS_WAITING:
            self._clock.sleep(limits.LONG_NAP)
        future: Future[None] = Future()
        pending = _Pending(offsets, logs, future, chosen=chosen, identity=identity)
        if callback is not None:
            self._callbacks[pending] = callback
        self._asked = True  # before the request: an interrupt may follow it
        self._queue.add(pending)
        if not self._worker.ask(self._queue.carry_out):  # no thread can be started
            self.finish()
        return future

    def run_callbacks(self) -> None:
        """Calls the callbacks of completed commits, in the order of the requests."""
        while self._worker.has_result:
            self._take_in(self._worker.result()[0])

    def _take_in(self, done: list[_Pending]) -> None:
        """Calls the callbacks of completed commits: all of them, even if some raise. Raises the first error."""
        errors = list[Exception]()
        for pending in done:
            try:
                pending.call_back(self._callbacks)
            except Exception as error:  # noqa: BLE001 - raised when all were called
                errors.append(error)
        if errors:
            raise errors[0]

    def finish(self) -> None:
        """Waits for all requested commits and calls their callbacks: all of them, even if some raise. Raises the first error."""
        sought, errors = _Mark(), list[Exception]()
        if self._asked and self._worker.ask(partial(self._queue.carry_out, sought)):
            while not sought.is_back:  # a callback that calls this method may have received it
                done, mark = self._worker.result()
                if mark is not None:
                    mark.is_back = True
                try:
                    self._take_in(done)
                except Exception as error:  # noqa: BLE001 - raised when all were called
                    errors.append(error)
            self._asked = False
        elif self._asked:  # no thread could be started
            self.run_callbacks()
            self._take_in(self._queue.carry_out()[0])
        if errors:
            raise errors[0]
        self.run_callbacks()

    def abandon(self) -> None:
        """Waits for the requested commits, calls no callback, and ends the thread.

        The garbage collector clears weak references before it calls finalizers, so the thread may already have ended by itself.
        """
        self._callbacks.clear()
        self._worker.end()
        self._queue.carry_out()

    # ---- automatic -----------------------------------------------------------------------------------------------------------

    @property
    def are_due(self) -> bool:
        """True if an automatic commit is due."""
        return self._interval is not None and self._clock.monotonic() >= self._due

    def auto_commit(self, offsets: Offsets, logs: CommitLogs) -> None:
        """Commits offsets in logs if automatic commits are on. A failure is logged; the next automatic commit tries again.

        Unchanged offsets are committed again before they can expire.
        """
        now = self._clock.monotonic()
        if self._interval is None:
            return
        self._due = now + self._interval
        if not offsets or (offsets == self._written and now - self._written_at < self._again):
            return
        try:
            self.commit(offsets, chosen=False, logs=logs)
        except PylogError as error:
            LOGGER.warning("an automatic commit failed: %s", error)
            failure: PylogError | None = error
        else:
            self._written, self._written_at = offsets, now
            failure = None
        if self.after_auto_commit is not None:
            self.after_auto_commit(offsets, failure)

    def stop(self) -> None:
        """Ends automatic commits."""
        self._interval = None

    def close(self) -> None:
        """Waits for the requested commits and ends the thread."""
        try:
            self.finish()
        finally:
            self._worker.end()
