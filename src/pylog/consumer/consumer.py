"""`Consumer`: reads topics under kafka-python's names, alone or sharing the work with the other members of a group."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from itertools import chain
from typing import Any, Final, Self

import pyarrow as pa

from pylog import limits
from pylog.clock import Clock
from pylog.consumer.commits import Callback, Offsets
from pylog.consumer.core import Core
from pylog.consumer.fetcher import Found, Take, as_frame, as_records, as_whole_frame
from pylog.consumer.listener import ConsumerRebalanceListener
from pylog.consumer.options import ConsumerOptions, ResetPolicy, check_int, checked_timeout
from pylog.consumer.partition import AssignedPartition, Taken
from pylog.consumer.positions import EARLIEST, LATEST
from pylog.consumer.subscription import Subscription, checked_partition, checked_partitions, visible_topics
from pylog.dropping import has_been_dropped
from pylog.errors import (
    IllegalStateError,
    InvalidArgumentError,
)
from pylog.log.arguments import offset_given
from pylog.log.reading.following import Naps
from pylog.log_manager import LogManager
from pylog.offsets.store import OffsetStore
from pylog.record.types import OffsetAndMetadata, OffsetAndTimestamp, Record, TopicPartition

_SKIPPED: Final = 7  # records of an iteration between two looks at the clock
_FAST_S: Final = 0.001  # for these records together


class Consumer:
    """Reads records of topics from one position on after the other. Made by `Store.consumer`; a context manager.

    With a `group_id` it shares the partitions of its topics with the other members of the group, in any threads and processes,
    and continues where the group has committed. Without one it reads all of them.

    One thread uses a consumer at a time. What needs looking after (the group, automatic commits, new topics) is done in `poll`
    and in iteration, so one of them has to be called every `max_poll_interval_ms`. Leaving a `with` block by an exception commits
    nothing: what was in hand is handed out again.

    >>> import pylog, tempfile
    >>> store = pylog.open(tempfile.mkdtemp())
    >>> _ = store.create_topic("orders")
    >>> _ = store.log("orders").append_many([b"paid", b"shipped"])
    >>> with store.consumer("orders", auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
    ...     [record.value for record in consumer]
    [b'paid', b'shipped']
    >>> store.close()
    """

    def __init__(
        self,
        manager: LogManager,
        offsets: OffsetStore,
        topics: Iterable[str],
        options: ConsumerOptions,
        clock: Clock,
        departing: list[Core],
    ) -> None:
        self._manager = manager
        self._offsets = offsets
        self._options = options
        self._clock = clock
        # the core never refers to this object, so that this is collected when it is dropped
        self._core = Core(manager, offsets, options, clock, departing)
        self._guard = self._core.guard
        self._steps = self._core.steps
        self._positions = self._core.positions
        self._fetcher = self._core.fetcher
        self._assignment = self._core.assignment
        self._commits = self._core.commits
        self._in_hand: Iterator[Record] = iter(())
        self._naps = Naps(clock)  # over all polls until something comes
        names = tuple(topics)
        if names:
            self.subscribe(names)
        self._core.begun = True

    def __del__(self) -> None:
        core = getattr(self, "_core", None)  # none, if the first argument was refused
        if core is not None and core.is_open:
            core.departing.append(core)  # closing the store waits for it
            group = "" if core.options.group_id is None else f" in the group {core.options.group_id!r}"
            has_been_dropped(self, f"a consumer of the store {core.manager.path}{group}", core.abandon)

    def __repr__(self) -> str:
        return f"Consumer({self._manager.path!r}, group_id={self._options.group_id!r}, {len(self._assignment.places)} partitions)"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(autocommit=kind is None)

    # ---- what is read --------------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Reads topics from now on, instead of those subscribed to before. With a group, the members share their partitions.

        Args:
            topics: names; or
            pattern: a regular expression that the beginning of a name matches. Topics that are made later are found.
            listener: is told, inside `poll`, which partitions come and go.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic. One that is deleted later is no error.
            IllegalStateError: partitions were assigned. InvalidArgumentError: neither or both of topics and pattern.

        Cost: nothing is read; the next `poll` joins the group.
        """
        with self._guard, self._steps:
            if isinstance(listener, ConsumerRebalanceListener):
                told = listener.on_partitions_assigned, listener.on_partitions_revoked, listener.on_partitions_lost
                self._core.refuse_coroutines("listener", *told)
            exclude = self._options.exclude_internal_topics
            self._assignment.subscribe(Subscription(topics, pattern, listener, exclude_internal=exclude))

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Reads just these partitions from now on, and shares them with nobody; positions of those that stay are kept.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition. IllegalStateError: the consumer is subscribed to topics.
        """
        with self._guard, self._steps:
            wanted = checked_partitions(partitions)
            for partition in wanted:
                self._core.log(partition)
            self._assignment.assign(wanted)

    def unsubscribe(self) -> None:
        """Reads nothing any more: commits if that is automatic, tells the listener, leaves the group."""
        with self._guard, self._steps:
            self._core.leave(autocommit=True)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are this consumer's now."""
        with self._guard:
            return set(self._assignment.places)

    def subscription(self) -> set[str]:
        """The topics subscribed to; those that a pattern matched last."""
        with self._guard:
            return self._assignment.topics

    # ---- reading -------------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[Record]]:
        """Hands out records, and moves the positions behind them.

        Args:
            timeout_ms: how long to wait when there are none, in milliseconds.
            max_records: at most so many; `max_poll_records` by default.

        Returns:
            Records by partition, in offset order; none when the time is over. Partitions take turns.

        Raises:
            OffsetOutOfRangeError, NoOffsetForPartitionError: with `auto_offset_reset="none"`, when a position is not in the log,
                or there is none.
            CorruptionError: the next records of a partition are damaged: its `partition` is which, and
                `seek(error.partition, error.next_offset)` goes on behind them.
            RecordDeserializationError: a deserializer raised; the position stays at that record.
            IllegalStateError: nothing is subscribed to or assigned, or another thread is in a call.
            ClosedError: the consumer or its store is closed. WakeupError: `wakeup` was called.
            What a listener or a callback raises.

        Each error of a partition comes again until its position moves; other partitions are handed out in between. Cost: some
        0.5 µs a record; while it waits, a look at each partition, each millisecond, and more seldom the longer nothing has come.

        >>> import pylog, tempfile
        >>> store = pylog.open(tempfile.mkdtemp())
        >>> _ = store.create_topic("orders")
        >>> _ = store.log("orders").append_many([b"paid", b"shipped"])
        >>> consumer = store.consumer("orders", auto_offset_reset="earliest")
        >>> for partition, records in consumer.poll().items():
        ...     print(partition, [record.value for record in records])
        TopicPartition(topic='orders', partition=0) [b'paid', b'shipped']
        >>> consumer.close()
        >>> store.close()
        """
        return self._polled(timeout_ms, max_records, arrow=False)

    def poll_arrow(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, pa.RecordBatch]:
        """The same as Arrow batches of `offset`, `timestamp`, `key`, `value` and `headers`; deserializers are not used.

        Args:
            timeout_ms: as for `poll`.
            max_records: at most so many; by default whole batches as they were read, of some 65,536 records together.

        Returns:
            One batch for each partition that has records.

        Raises:
            As `poll`.

        Cost: millions of records a second and core.
        """
        return self._polled(timeout_ms, max_records, arrow=True)

    def _polled(self, timeout_ms: float, max_records: int | None, *, arrow: bool) -> dict[TopicPartition, Any]:
        before: list[_Spot] = []
        try:
            with self._guard, self._steps:
                found = self.collect(timeout_ms, max_records, arrow=arrow)
                before = _spots(found)
                return self.handed_out(found)
        except BaseException:  # behind the last step, too: what does not arrive comes again
            _take_back(before)
            raise

    def await_with(self, settle: Callable[[object], object]) -> None:
        """Has coroutine functions taken as listeners and callbacks from now on: `settle` is given what they return."""
        self._steps.settle = settle

    def collect(self, timeout_ms: float, max_records: int | None = None, *, arrow: bool = False) -> list[Found]:
        """The first half of `poll` and `poll_arrow`: waits for records, and moves no position past any.

        What is then not given to `handed_out` comes again.
        """
        timeout = checked_timeout("timeout_ms", timeout_ms)
        strict = None if max_records is None else check_int("max_records", max_records, 1)
        with self._guard:
            if arrow:
                return self._collect(timeout, strict or limits.SCAN_ROWS, as_frame if strict else as_whole_frame)
            return self._collect(timeout, strict or self._options.max_poll_records, as_records)

    def handed_out(self, found: list[Found]) -> dict[TopicPartition, Any]:
        """The second half: moves positions behind what was found; an interrupt takes them back."""
        if not found or self._steps.are_to_end:  # be it that a listener has closed the consumer
            return {}
        with self._guard:
            before = _spots(found)
            try:
                return {place.partition: taken.records for place, taken in _moved(found)}
            except BaseException:
                _take_back(before)
                raise

    def __iter__(self) -> Iterator[Record]:
        """Records, one after the other and for ever; with `consumer_timeout_ms` until nothing has come for so long.

        The position moves with each record, so that `commit` in the loop commits up to the one in hand. Ten times a second,
        between two records, iteration looks after the group and automatic commits, as `poll` does. Raises as `poll`.
        """
        core, now, at, skipped = self._core, self._clock.monotonic, 0.0, 0
        while True:
            for record in self._in_hand:  # `yield from` would close it with a loop that is left
                yield record
                if skipped:  # a clock costs a tenth of a record: a fast loop asks it for every eighth one
                    skipped -= 1
                    continue
                last, at = at, now()
                skipped = _SKIPPED if at - last < _FAST_S else 0
                if at >= core.look_at:
                    core.look_after()
            if not self._get_more():
                return

    def __next__(self) -> Record:
        if self.is_look_due:
            self.look_after()
        for record in self._in_hand:
            return record
        if not self._get_more():
            raise StopIteration
        return next(self._in_hand)

    def _get_more(self) -> bool:
        return self.take_in_hand(math.inf if self.timeout_ms is None else self.timeout_ms)

    @property
    def timeout_ms(self) -> float | None:
        """`consumer_timeout_ms`."""
        return self._options.consumer_timeout_ms

    def take_in_hand(self, timeout_ms: float) -> bool:
        """Gets records for iteration; whether there are any."""
        with self._guard, self._steps:  # up to the end, so that the positions are those at which the records were found
            found = self.collect(timeout_ms)
            self._in_hand = _one_by_one(found)
            return bool(found)

    @property
    def is_look_due(self) -> bool:
        """Whether `look_after` has to be called before iteration hands out the next record."""
        return self._clock.monotonic() >= self._core.look_at

    def look_after(self) -> None:
        """Looks after the group and automatic commits between two records of an iteration. Raises as `poll`."""
        if self.reads:
            self._core.look_after()

    def next_in_hand(self) -> Record | None:
        """The next record that iteration has already, None when it has to get more."""
        return next(self._in_hand, None)

    def _collect(self, timeout_ms: float, count: int, how: Take) -> list[Found]:
        deadline = self._clock.monotonic() + timeout_ms / 1000
        while True:
            self._core.check_woken()
            self._core.keep_up()
            if self._steps.are_to_end or not self.reads:  # any more: a listener or a callback said so
                return []
            found = self._core.take(count, how)
            if any(len(taken.records) for _, taken in found):
                self._naps.end()
                self._fetcher.read_ahead()
                return found
            _moved(found)  # over what nobody sees
            if not found and not self._naps.take(deadline):
                return []

    @property
    def reads(self) -> bool:
        """Whether topics are subscribed to, or partitions assigned."""
        return self._core.reads

    # ---- positions -----------------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that will be handed out; None as long as it waits for a transaction that is open.

        Raises:
            IllegalStateError: the partition is not assigned. NoOffsetForPartitionError: as `poll`.
        """
        with self._guard:
            place = self._assignment.place(checked_partition(partition))
            if place.position is None:
                self._positions.find([place])
                if place.failure is not None:
                    raise place.failure
            return place.position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Goes to an offset: what `poll` hands out next of a partition.

        Args:
            partition: one that is assigned.
            offset: where to; if the log does not have it, `auto_offset_reset` says where reading goes on.

        Raises:
            IllegalStateError: the partition is not assigned. OffsetOutOfRangeError: the offset is negative.

        Cost: nothing; what was read ahead is read again.
        """
        with self._guard:
            self._assignment.place(checked_partition(partition)).seek(offset_given("offset", offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Goes to the start of partitions as it is now; by default of all that are assigned. Raises as `seek`."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Goes to the end of partitions as it is now; by default of all that are assigned. Raises as `seek`."""
        self._seek_to(partitions, LATEST)

    def _seek_to(self, partitions: Collection[TopicPartition], policy: ResetPolicy) -> None:
        with self._guard:
            for place in self._places(partitions or tuple(self._assignment.places)):
                place.seek(self._positions.offset_at(place.partition, policy))

    def _places(self, partitions: Collection[TopicPartition]) -> list[AssignedPartition]:
        return [self._assignment.place(partition) for partition in checked_partitions(partitions)]

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these partitions until `resume`; they stay this consumer's. Raises as `seek`."""
        self._set_paused(partitions, paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Ends `pause`. Raises as `seek`."""
        self._set_paused(partitions, paused=False)

    def _set_paused(self, partitions: Collection[TopicPartition], *, paused: bool) -> None:
        with self._guard:
            for place in self._places(partitions):
                place.paused = paused

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        with self._guard:
            return {place.partition for place in self._assignment.places.values() if place.paused}

    # ---- committing ----------------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None) -> None:
        """Commits offsets for the group: all of them, or none.

        Args:
            offsets: of the next record to read, by partition; by default the positions of all partitions assigned, less those
                whose logs are gone or were cut below them: a warning is logged.

        Raises:
            FencedMemberError: one of the partitions is not this consumer's any more; nothing was committed.
            OffsetOutOfRangeError: an offset given lies beyond the partition's end. UnknownTopicOrPartitionError: there is no such
                partition. IllegalStateError: the consumer has no group. As `OffsetStore.commit`.

        Cost: one append at the store's level of durability.
        """
        with self._guard, self._steps:
            self._commits.commit(self._to_commit(offsets), chosen=offsets is not None)

    def commit_async(self, offsets: Offsets | None = None, callback: Callback | None = None) -> Future[None]:
        """The same in the background. Calls that wait together are one append; with very many waiting, a call waits for them.

        Args:
            offsets: as for `commit`; positions are those of now.
            callback: is called with the offsets that were committed and None, or with all of them and the error, in a later
                `poll`, `commit` or `close`.

        Returns:
            A future that is done when the offsets are committed; its `exception()` is what `commit` would have raised.

        Raises:
            IllegalStateError: the consumer has no group.
        """
        with self._guard, self._steps:
            self._core.refuse_coroutines("callback", callback)
            call = None if callback is None else partial(self._steps.lend, callback)
            chosen, standing = offsets is not None, self._assignment.standing
            return self._commits.commit_async(self._to_commit(offsets), call, chosen=chosen, standing=standing)

    def _to_commit(self, given: Offsets | None) -> Offsets:
        self._group()
        if given is None:
            return self._core.committable()
        if not isinstance(given, Mapping):
            raise InvalidArgumentError(f"offsets of type {type(given).__name__} are not offsets by partition")
        return {
            checked_partition(place): offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
            for place, offset in given.items()
        }

    def _group(self) -> str:
        if self._options.group_id is None:
            raise IllegalStateError("this consumer has no group to commit for; create it with group_id=")
        return self._options.group_id

    def committed(self, partition: TopicPartition, *, metadata: bool = False) -> int | OffsetAndMetadata | None:
        """What the group has committed for a partition, by whichever member; None when nothing.

        Args:
            partition: any, assigned or not.
            metadata: return an `OffsetAndMetadata`.

        Raises:
            IllegalStateError: the consumer has no group. CorruptionError: it is not known what was committed.
        """
        with self._guard:
            place = checked_partition(partition)
            found = self._offsets.fetch(self._group(), [place]).get(place)
            return found if metadata or found is None else found.offset

    # ---- what there is -------------------------------------------------------------------------------------------------------

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets of partitions, assigned or not. Raises UnknownTopicOrPartitionError."""
        return self._offsets_at(partitions, EARLIEST)

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets behind the last records of partitions; under `read_committed` the stable offsets. As above."""
        return self._offsets_at(partitions, LATEST)

    def _offsets_at(self, partitions: Collection[TopicPartition], policy: ResetPolicy) -> dict[TopicPartition, int]:
        with self._guard:
            return {partition: self._positions.offset_at(partition, policy) for partition in checked_partitions(partitions)}

    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record of a time or later, None where there is none.

        Args:
            timestamps: milliseconds since 1970 by partition, assigned or not.

        Raises:
            InvalidArgumentError: a negative time. As `Log.offset_for_timestamp`.
        """
        with self._guard:
            isolation = self._options.isolation_level
            return {
                partition: self._core.log(partition).offset_for_timestamp(timestamp, isolation_level=isolation)
                for partition, timestamp in zip(checked_partitions(timestamps), timestamps.values(), strict=True)
            }

    def topics(self) -> set[str]:
        """The names of all topics in the store, Kafka's own left out unless `exclude_internal_topics` is false."""
        with self._guard:
            return visible_topics(self._manager, exclude_internal=self._options.exclude_internal_topics)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of a topic's partitions, None when there is no such topic."""
        if not isinstance(topic, str):
            raise InvalidArgumentError(f"topic={topic!r} is not a topic's name")
        with self._guard:
            found = self._manager.topics().get(topic)
            return None if found is None else set(found.partition_ids)

    # ---- the end -------------------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Has a `poll`, `poll_arrow` or iteration that another thread is in raise `WakeupError`, or else the next one.

        Any thread may call it, at any time, and so may a handler of a signal: it waits for nothing and takes no lock. Nothing is
        lost: the next `poll` hands out the records. Several calls before one that notices them count once. A commit is not
        interrupted. After `close` it does nothing.

        >>> import pylog, tempfile
        >>> store = pylog.open(tempfile.mkdtemp())
        >>> _ = store.create_topic("orders")
        >>> with store.consumer("orders") as consumer:
        ...     consumer.wakeup()
        ...     try:
        ...         _ = consumer.poll(60_000)
        ...     except pylog.WakeupError:
        ...         print("woken")
        woken
        >>> store.close()
        """
        self._core.wakeup()

    def close(self, autocommit: bool = True) -> None:
        """Commits if that is automatic, tells the listener, leaves the group, ends the threads. May be called twice.

        A handler of a signal may call it too. Amid another call of the same thread it is done as soon as that is; a `poll` then
        ends at once, with nothing. A consumer that is dropped without `close` warns with a `ResourceWarning`, leaves its group
        and commits nothing.

        Args:
            autocommit: false leaves out the commit. By place too, as in kafka-python.

        Raises:
            What the listener raises; it is closed all the same.
        """
        if self._guard.closed or self._guard.forked:
            return
        if self._steps.are_under_way:
            self._steps.put_off(partial(self.close, autocommit))
            return
        with self._guard, self._steps:
            self._in_hand = iter(())
            self._core.close(autocommit=autocommit)


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
