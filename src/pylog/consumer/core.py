"""The part of a consumer that outlives it: everything except the object that a program holds.

A thread refers to a core only during one task, and a core never refers to its `Consumer`. So a consumer that is dropped without
`close` is collected at once, and its core leaves the group in a separate thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable
from contextlib import ExitStack, suppress
from functools import partial
from typing import NoReturn

from pylog import limits
from pylog.arguments import check_callable
from pylog.awaitables import refuse_awaitable, refuse_coroutine_function
from pylog.clock import Clock
from pylog.consumer.assignment import ConsumerAssignment, ConsumerHooks
from pylog.consumer.commits import Commits, Offsets, offsets_given
from pylog.consumer.fetcher import Fetcher, PartitionRecords, TakeRecords
from pylog.consumer.guard import Guard, Steps
from pylog.consumer.options import ConsumerOptions
from pylog.consumer.partition import AssignedPartition, Logs, deserializers_of
from pylog.consumer.positions import PositionFinder
from pylog.consumer.reading import COLUMNS, PartitionReader
from pylog.errors import ClosedError, CorruptionError, IllegalStateError, PylogError, UnknownTopicOrPartitionError, WakeupError
from pylog.log.partition_log import PartitionLog
from pylog.log.reading.lookup import name
from pylog.log_manager import LogManager
from pylog.offsets.group_metadata import ConsumerGroupMetadata
from pylog.offsets.offset_manager import CommitLogs, OffsetManager
from pylog.record.types import TopicPartition
from pylog.topics.kept import IsDeleted


class ConsumerCore:
    """One consumer's assignment, positions, commits and threads.

    Args:
        manager, offsets, options, clock: the consumer's.
        departing: the store's list of cores whose consumers were dropped and that are still leaving their groups.

    Attributes:
        begun: true once the consumer is constructed; before that, there is nothing to close.
        columns: the columns of the records that are read, `COLUMNS` first. `pylog.compat` adds one.
        check_at: the time of the next check during iteration, in seconds of the monotonic clock.
    """

    def __init__(
        self, manager: LogManager, offsets: OffsetManager, options: ConsumerOptions, clock: Clock, departing: list[ConsumerCore]
    ) -> None:
        self.manager = manager
        self.departing = departing
        self.options = options
        self._offsets = offsets
        self.guard = Guard()
        self.steps = Steps(self.guard)
        self.positions = PositionFinder(options, offsets, self.log, clock)
        self.fetcher = Fetcher(options.fetch_max_bytes, options.max_partition_fetch_bytes, self.positions.out_of_range)
        around = ConsumerHooks(self._new_partition, self.fetcher.set_partitions, self._commit_before_leaving, self.steps.lend)
        self.assignment = ConsumerAssignment(manager, offsets, clock, options, around)
        interval = options.auto_commit_interval_ms if options.auto_commits else None
        self.commits = Commits(self.assignment.commit, self.assignment.check, clock, interval, offsets.retention_minutes)
        self.begun = False
        self.columns: tuple[str, ...] = COLUMNS
        self.check_at = -math.inf
        self._clock = clock
        self._logs = Logs(manager)
        self._deserializers = deserializers_of(options)
        self._check_interval_s = min(limits.ITERATION_CHECK_S, options.max_poll_interval_ms / 4000)
        self._woken = False
        self._transactions_at = -math.inf
        self._abandoning = threading.Lock()
        manager.kept.add(self)

    # ---- due work ------------------------------------------------------------------------------------------------------------

    def refuse_coroutines(self, name: str, *calls: object) -> None:
        """Raises InvalidArgumentError for what cannot be called, and for coroutine functions unless an `AsyncConsumer` awaits."""
        for call in calls:
            check_callable(name, call)
        if self.steps.settle is refuse_awaitable:
            for call in calls:
                refuse_coroutine_function(name, call, "give a plain function, or use pylog.aio.AsyncConsumer")

    @property
    def reads(self) -> bool:
        """True if topics are subscribed to, or partitions assigned."""
        return self.assignment.subscription is not None or self.assignment.is_manual

    def keep_up(self) -> None:
        """Does the work due before records are returned: commit callbacks, group membership, automatic commits."""
        if not self.reads:
            self.guard.check_open()
            raise IllegalStateError("the consumer has no topics and no partitions; call subscribe() or assign() first")
        self.commits.run_callbacks()
        self.assignment.keep_up()
        if self.commits.are_due:
            self.commits.auto_commit(*self.committable())
        self._finish_transactions()
        self.check_at = -math.inf if self._woken else self._clock.monotonic() + self._check_interval_s

    def _finish_transactions(self) -> None:
        """Finishes transactions of dead processes if this consumer waits for one (transactions, rule 16)."""
        now = self._clock.monotonic()
        if now < self._transactions_at or not self.manager.writable:
            return
        self._transactions_at = now + limits.TRANSACTIONS_CHECK_S
        if self._waits_for_transactions():
            self.manager.finish_transactions()

    def _waits_for_transactions(self) -> bool:
        group = self.options.group_id
        with suppress(CorruptionError):  # raised again by what needs the committed offsets
            if group is not None and self._offsets.pending(group):
                return True
        logs = self._logs.known(self.assignment.partitions) if self.options.committed_only else {}
        return any(log.known.first_unstable_offset is not None for log in logs.values())

    def check_in_iteration(self) -> None:
        """Does the due work between two records of an iteration.

        Raises:
            WakeupError: `wakeup` was called. As `Consumer.poll`.
        """
        with self.guard, self.steps:
            self.check_at = self._clock.monotonic() + self._check_interval_s  # before the check: `wakeup` sets both in this order
            self.check_woken()
            self.keep_up()

    def wakeup(self) -> None:
        """Makes the current call, or else the next one, raise `WakeupError`. Takes no lock."""
        self._woken = True
        self.check_at = -math.inf

    def check_woken(self) -> None:
        """Raises WakeupError once for all calls of `wakeup` since the last check."""
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup() was called; no record is lost: the next poll returns them")

    def take(self, count: int, how: TakeRecords, only: Collection[TopicPartition] = ()) -> list[PartitionRecords]:
        """Fetches records from the partitions in turn.

        Once for each topic, which may be deleted meanwhile: partitions without a directory are tried again by the next call.
        """
        for _ in range(2 + len({partition.topic for partition in self.assignment.partitions})):
            if self.assignment.begun_again and self.assignment.is_manual:
                self._raise_deleted(None)
            try:
                self._find_positions()
                return self.fetcher.take(count, how, only)
            except (UnknownTopicOrPartitionError, ClosedError) as error:  # ClosedError: this process deleted the topic
                self.manager.topics()  # raises if the store is closed
                self.forget_deleted(self.assignment.partitions)
                if self.assignment.is_manual:
                    self._raise_deleted(error)
                self.assignment.keep_up()  # loses the old partitions and is assigned the new ones before it reads them
                if self.steps.has_deferred_call or not self.reads:
                    return []
        return []  # every topic was deleted: the membership will report it

    def _raise_deleted(self, error: PylogError | None) -> NoReturn:
        """Reports deleted partitions to a program that assigned them. It reads their successors from now on."""
        names = ", ".join(sorted(map(name, self.assignment.begun_again)))
        self.assignment.begun_again.clear()
        what = f"{names} was deleted, perhaps created again; the next poll reads it from auto_offset_reset" if names else error
        raise UnknownTopicOrPartitionError(f"an assigned partition was deleted: {what}") from error

    def _find_positions(self) -> None:
        unpositioned = [assigned for assigned in self.assignment.partitions.values() if assigned.position is None]
        if unpositioned:
            self.positions.find(unpositioned)

    # ---- logs and positions --------------------------------------------------------------------------------------------------

    def log(self, partition: TopicPartition) -> PartitionLog:
        """Returns the current log of a partition."""
        self.forget_deleted([partition])
        return self._logs.of(partition)

    def forget_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        """Resets the positions of partitions that were deleted, and perhaps created again."""
        for partition in self._logs.forget_deleted(partitions):
            self.assignment.begin_again(partition)

    def forget_topics(self, is_deleted: IsDeleted) -> None:
        """Forgets the logs of deleted topics that no assigned partition reads."""
        self._logs.forget_topics(is_deleted, self.assignment.partitions.__contains__)

    def known_end(self, partition: TopicPartition, *, committed: bool = False) -> int | None:
        """Returns the end of a partition's log as this process last read it; None before the first read. Makes no system call.

        Args:
            partition: the partition.
            committed: true for the last stable offset.
        """
        log = self._logs.known([partition]).get(partition)
        return None if log is None else log.known.stable_offset if committed else log.known.end_offset

    def committable(self) -> tuple[Offsets, CommitLogs]:
        """Returns the known positions of partitions that still exist, and the logs that they are positions in."""
        self.forget_deleted(self.assignment.partitions)
        logs = self._logs.known(self.assignment.partitions)
        return {partition: each for partition, each in self.assignment.positions().items() if partition in logs}, logs

    def logs_of(self, partitions: Collection[TopicPartition]) -> CommitLogs:
        """Returns the logs that chosen offsets of partitions are for.

        An assigned partition has the log that its records were read from: a topic that was deleted and created again has offsets
        of other records. The offsets of other partitions are for their current logs.
        """
        assigned = [partition for partition in partitions if partition in self.assignment.partitions]
        found: dict[TopicPartition, PartitionLog | UnknownTopicOrPartitionError] = dict(self._logs.known(assigned))
        if any(log.is_deleted for log in self._logs.known(assigned).values()):  # else the commit's own check finds it
            self.forget_deleted(assigned)
        if len(found) < len(partitions):
            found |= self._offsets.logs_of([partition for partition in partitions if partition not in found])
        for partition in self.assignment.begun_again.intersection(partitions):
            message = f"{name(partition)} was deleted, and perhaps created again; nothing was committed: poll, then commit again"
            found[partition] = UnknownTopicOrPartitionError(message)
        return found

    def group(self) -> str:
        """Returns the group's name. Raises IllegalStateError if the consumer has no group."""
        if self.options.group_id is None:
            raise IllegalStateError("the consumer has no group to commit for; create it with group_id=")
        return self.options.group_id

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the current membership, as a transaction needs it. Raises as `group`."""
        group, member, instance = self.group(), self.assignment.identity.member, self.options.group_instance_id
        if member is None or not member.member_id:
            return ConsumerGroupMetadata(group, group_instance_id=instance)
        return ConsumerGroupMetadata(group, member.member_id, member.epoch, instance)

    def to_commit(self, given: Offsets | None) -> tuple[Offsets, CommitLogs]:
        """Returns the offsets of a commit, by default the positions, and the logs that they are for."""
        self.group()
        if given is None:
            return self.committable()
        wanted = offsets_given(given)
        return wanted, self.logs_of([TopicPartition(*partition) for partition in wanted])

    def commit(self, offsets: Offsets, *, chosen: bool, logs: CommitLogs) -> None:
        """Commits offsets in logs. If one of them was deleted, the next poll reports that before it returns records."""
        try:
            self.commits.commit(offsets, chosen=chosen, logs=logs)
        except UnknownTopicOrPartitionError:
            self.forget_deleted(self.assignment.partitions)
            raise

    def _new_partition(self, partition: TopicPartition) -> AssignedPartition:
        """Returns the state of a newly assigned partition. Its positions are positions in the current log."""
        if self.options.group_id is not None:
            with suppress(PylogError):  # a read raises it
                self.log(partition)

        def read_from(offset: int) -> PartitionReader:
            return PartitionReader(partial(self._logs.of, partition), offset, self.options.isolation_level, self.columns)

        return AssignedPartition(partition, read_from, self._deserializers)

    def _commit_before_leaving(self) -> None:
        """Finishes pending commits, then commits the positions if automatic commits are on."""
        try:
            self.commits.finish()
        finally:  # even if a callback raises
            self.commits.auto_commit(*self.committable())

    # ---- the end -------------------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True if the consumer must be closed: it was constructed in this process, and is open. Takes no lock."""
        return self.begun and not self.guard.closed and not self.guard.forked

    def leave(self, *, autocommit: bool) -> None:
        """Releases all partitions and ends the subscription."""
        if not autocommit:
            self.commits.stop()
        try:
            self._commit_before_leaving()
        finally:
            self.assignment.leave()

    def close(self, *, autocommit: bool) -> None:
        """Leaves the group and ends the threads. The caller holds the guard and the steps."""
        self.guard.ended_by = threading.get_ident()  # before the partitions go: calls without the guard look at them
        with ExitStack() as last:
            last.callback(self.guard.close)
            last.callback(self.fetcher.close)
            last.callback(self.commits.close)
            self.leave(autocommit=autocommit)

    def abandon(self) -> None:
        """Ends a consumer that the program has dropped. Calls no user code, in whichever thread it runs.

        Requested commits are carried out. Records returned since the last commit are returned again, to the member that is
        assigned their partitions next.
        """
        with self._abandoning:
            if self.guard.closed:
                return
            try:
                with ExitStack() as last:
                    last.callback(self.guard.close)
                    last.callback(self.fetcher.close)
                    last.callback(self.assignment.abandon)
                    self.commits.abandon()
            finally:
                with suppress(ValueError):  # it was not in the list
                    self.departing.remove(self)
