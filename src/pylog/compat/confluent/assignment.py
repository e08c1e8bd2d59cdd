"""The partitions of confluent-kafka's consumer: subscriptions, assignments, and topics that are missing."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pylog.compat.clusters import Cluster
from pylog.compat.confluent.commits import Commits
from pylog.compat.confluent.configuration import refused
from pylog.compat.confluent.errors import KafkaError, Translating, error_of, failed
from pylog.compat.confluent.structs import OFFSET_BEGINNING, OFFSET_END, Message, TopicPartition
from pylog.consumer.consumer import Consumer as NativeConsumer
from pylog.consumer.listener import ConsumerRebalanceListener
from pylog.errors import NoOffsetForPartitionError
from pylog.record.types import TopicPartition as NativePartition

OnRebalance = Callable[[Any, list[TopicPartition]], object]


class Assignment:
    """The calls of `Consumer` that choose partitions and positions.

    A partition that does not exist is kept as missing: `poll` returns its error once, and reads it when it exists.
    """

    _native: NativeConsumer[Any, Any]
    _cluster: Cluster
    _commits: Commits
    _creates_topics: bool

    def _begin_assignment(self) -> None:
        self._positions: dict[NativePartition, int] = {}
        self._ended: set[NativePartition] = set()  # whose ends were reported
        self._missing: dict[NativePartition, TopicPartition] = {}
        self._stopped: set[NativePartition] = set()  # until a seek
        self._failures: deque[Message] = deque()  # for `poll`
        self._is_subscribed = False
        self._rebalance_count = 0

    def _check_open(self) -> None:
        """Raises RuntimeError if the consumer is closed."""

    # ---- topics --------------------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Joins the group, which shares the partitions of topics among its members.

        Args:
            topics: names. Missing ones are created with `allow.auto.create.topics=true`; else `poll` returns a message with an
                error for each, and reads them when they exist. One that begins with `^` is a regular expression.
            on_assign: called with this consumer and a list of partitions. It may call `assign` or `incremental_assign`.
            on_revoke: called in the same way with partitions that the consumer gives up.
            on_lost: called in the same way with partitions that it has lost; None calls `on_revoke`.

        Raises:
            KafkaException: a name is wrong. TypeError: they are no list of names, or a callback cannot be called.
        """
        _check_topics(topics)
        for name, call in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
            if call is not None and not callable(call):
                raise TypeError(f"{name}={call!r} cannot be called")
        listener = _Listener(self, self._count_rebalance, self._give_up, on_assign, on_revoke, on_lost)
        with Translating():
            names = [topic for topic in topics if not topic.startswith("^")]
            missing = [each for each in names if not self._cluster.create_on_demand(each, allowed=self._creates_topics)]
            if missing or len(names) < len(topics):
                self._native.subscribe(pattern=_pattern(topics), listener=listener)
            else:
                self._native.subscribe(names, listener=listener)
        self._failures.extend(_unknown(each, 0, f"the topic {each!r} of the subscription does not exist") for each in missing)
        self._is_subscribed = True

    def _count_rebalance(self) -> None:
        self._rebalance_count += 1

    def unsubscribe(self) -> None:
        """Leaves the group. Commits what was stored if `enable.auto.commit` is on.

        Raises:
            KafkaException: the group could not be left. Exception: that of a callback.
        """
        with Translating():
            self._leave_assigned()
            self._native.unsubscribe()
        self._is_subscribed = False

    def _leave_assigned(self) -> None:
        """Releases partitions that the program assigned. For those of a group, its listener does that."""
        self._failures.clear()
        self._missing.clear()
        if not self._is_subscribed:
            if self._stopped:
                self._native.assign(self._native.assignment() - self._stopped)  # a new assignment has no position for them
            self._give_up(sorted(self._native.assignment() | self._stopped), is_lost=False)

    def _give_up(self, partitions: Sequence[NativePartition], *, is_lost: bool) -> None:
        if not is_lost:
            self._commits.before_leaving(partitions)
        for each in partitions:
            self._positions.pop(each, None)
            self._ended.discard(each)
            self._stopped.discard(each)
            self._commits.forget(each)

    # ---- partitions ----------------------------------------------------------------------------------------------------------

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads some partitions, without a group's rebalances; in `on_assign`, sets where to begin.

        Args:
            partitions: each begins at its offset, else at the group's committed offset, else by `auto.offset.reset`. For one that
                does not exist `poll` returns an error, and reads it when it exists. In `on_assign`, partitions that are left out
                are paused.

        Raises:
            KafkaException: the consumer is subscribed, and a partition is not assigned to it. TypeError: no list of partitions.
        """
        wanted = partitions_of(partitions)
        if self._is_subscribed:
            self._begin_at(wanted)
            with Translating():
                self._native.pause(*(self._native.assignment() - {each.native for each in wanted}))
            return
        with Translating():
            self._leave_assigned()
            self._assign({}, wanted)

    def unassign(self) -> None:
        """Reads no partitions any more. In `on_revoke` it does nothing: the partitions are given up after it."""
        self._check_open()
        if not self._is_subscribed:
            self.assign([])

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads more partitions; in `on_assign`, sets where to begin in new ones.

        Args:
            partitions: as for `assign`.

        Raises:
            KafkaException: a partition stands twice, or is read already. As `assign`.
        """
        wanted = _without_twins(partitions)
        if self._is_subscribed:
            self._begin_at(wanted)
            return
        with Translating():
            old = self._assigned()
            if twin := next((each for each in wanted if each.native in old), None):
                raise failed(KafkaError._CONFLICT, f"{twin.topic}-{twin.partition} is assigned to this consumer already")
            self._assign(old, wanted)

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads some partitions no more. In `on_revoke` it does nothing: the partitions are given up after it.

        Args:
            partitions: partitions that are read. Their offsets do not matter.

        Raises:
            KafkaException: a partition stands twice, or is not read.
        """
        wanted = {each.native for each in _without_twins(partitions)}
        with Translating():
            old = self._assigned()
            self._check_assigned(wanted, old)
            if self._is_subscribed or not wanted:
                return
            self._give_up(sorted(wanted - self._missing.keys()), is_lost=False)
            self._missing = {each: given for each, given in self._missing.items() if each not in wanted}
            self._native.assign([each for each in old if each not in wanted | self._missing.keys()])

    def _assigned(self) -> dict[NativePartition, None]:
        """Returns all partitions of this consumer, those that do not exist among them."""
        self._check_open()
        return dict.fromkeys(sorted({*self._native.assignment(), *self._missing}))

    def _check_assigned(self, wanted: Iterable[NativePartition], assigned: Iterable[NativePartition]) -> None:
        if wrong := sorted(set(wanted) - set(assigned)):
            code = KafkaError._STATE if self._is_subscribed else KafkaError._INVALID_ARG
            raise failed(code, f"{wrong[0].topic}-{wrong[0].partition} is not assigned to this consumer")

    def _begin_at(self, wanted: Sequence[TopicPartition]) -> None:
        """Sets the positions of partitions of the group."""
        self._check_assigned([each.native for each in wanted], self._assigned())
        with Translating():
            self._seek_to_given(wanted)

    def _assign(self, old: Iterable[NativePartition], more: Sequence[TopicPartition]) -> None:
        """Reads the old partitions and more ones. Those that do not exist wait."""
        for each in more:
            self._cluster.create_on_demand(each.topic, allowed=self._creates_topics)
        existing = [each for each in more if self._exists(each.native)]
        self._native.assign([*(each for each in old if each not in self._missing), *(each.native for each in existing)])
        for each in more:
            if not self._exists(each.native):
                self._missing[each.native] = each
                reason = f"partition {each.partition} of {each.topic!r} does not exist"
                self._failures.append(_unknown(each.topic, each.partition, reason))
        self._seek_to_given(existing)

    def _exists(self, partition: NativePartition) -> bool:
        return partition.partition in (self._cluster.partitions(partition.topic) or ())

    def _find_missing(self) -> None:
        """Reads partitions that were missing and exist now."""
        if found := [given for each, given in self._missing.items() if self._exists(each)]:
            old = self._assigned()
            for each in found:
                del self._missing[each.native]
            self._native.assign([each for each in old if each not in self._missing])
            self._seek_to_given(found)

    def assignment(self) -> list[TopicPartition]:
        """Returns the partitions that are read."""
        with Translating():
            return [TopicPartition(*each) for each in self._assigned()]

    # ---- positions -----------------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition) -> None:
        """Continues at the offset of `partition`.

        Args:
            partition: a partition that is read.

        Raises:
            KafkaException: it is not read.
        """
        with Translating():
            self._seek(partition)

    def _seek_to_given(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            if each.offset >= 0 or each.offset in (OFFSET_BEGINNING, OFFSET_END):
                self._seek(each)

    def _seek(self, partition: TopicPartition) -> None:
        if partition.offset == OFFSET_BEGINNING:
            self._native.seek_to_beginning(partition.native)
        elif partition.offset == OFFSET_END:
            self._native.seek_to_end(partition.native)
        else:
            self._native.seek(partition.native, partition.offset)
        if partition.native in self._stopped:
            self._stopped.discard(partition.native)
            self._native.resume(partition.native)
        self._ended.discard(partition.native)
        self._positions.pop(partition.native, None)

    def _stop_without_offset(self, error: NoOffsetForPartitionError) -> Message:
        """Reads no more of a partition without a commit, with `auto.offset.reset=error`. Returns its error, once."""
        partition = NativePartition(*error.partition)  # type: ignore[misc]  # the error of a consumer has one
        self._native.pause(partition)
        self._native.seek_to_beginning(partition)  # a position that nothing is read from: without one, each poll fails
        self._stopped.add(partition)
        return Message(*partition, None, value=str(error).encode(), error=error_of(error))

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Returns no records of some partitions until `resume`.

        Args:
            partitions: partitions that are read.

        Raises:
            KafkaException: one of them is not read.
        """
        with Translating():
            self._native.pause(*(each.native for each in partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Returns records of paused partitions again.

        Args:
            partitions: partitions that are read.

        Raises:
            KafkaException: one of them is not read.
        """
        with Translating():
            self._native.resume(*(each.native for each in partitions))

    # ---- offsets of any partition --------------------------------------------------------------------------------------------

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float = -1, cached: bool = False) -> tuple[int, int]:  # noqa: ARG002
        """Returns the log start and the end of a partition.

        Args:
            partition: the partition.
            timeout: seconds; not needed.
            cached: accepted and not needed.

        Raises:
            KafkaException: there is no such partition, or it cannot be read.
        """
        with Translating():
            low = self._native.beginning_offsets([partition.native])[partition.native]
            return low, self._native.end_offsets([partition.native])[partition.native]

    def offsets_for_times(self, partitions: Sequence[TopicPartition], timeout: float | None = None) -> list[TopicPartition]:  # noqa: ARG002
        """Returns for each partition the offset of the first record at or after a time.

        Args:
            partitions: with milliseconds since 1970 as their offsets; -1 for the end, -2 for the first record.
            timeout: seconds; accepted and not needed.

        Returns:
            The offset is `OFFSET_END` where no record is later. A partition that does not exist keeps its time, and has an error.

        Raises:
            KafkaException: there are no partitions, or a search has failed. TypeError: no list of partitions.

        Cost: as `Log.offset_for_timestamp`, by partition.
        """
        wanted = partitions_of(partitions)
        self._check_open()
        if not wanted:
            raise failed(KafkaError._INVALID_ARG, "there are no partitions to search")
        with Translating():
            return [self._at_time(each) for each in wanted]

    def _at_time(self, given: TopicPartition) -> TopicPartition:
        found = TopicPartition(given.topic, given.partition, given.offset)
        if not self._exists(given.native):
            is_topic = self._cluster.partitions(given.topic) is not None
            code = KafkaError._UNKNOWN_PARTITION if is_topic else KafkaError.UNKNOWN_TOPIC_OR_PART
            found.error = KafkaError(code, f"partition {given.partition} of {given.topic!r} does not exist")
        elif given.offset == OFFSET_END:
            found.offset = self._native.end_offsets([given.native])[given.native]
        elif given.offset == OFFSET_BEGINNING:
            found.offset = self._native.beginning_offsets([given.native])[given.native]
        else:
            first = self._native.offsets_for_times({given.native: max(given.offset, 0)})[given.native]
            found.offset = OFFSET_END if first is None or given.offset < 0 else first.offset
        return found


class _Listener(ConsumerRebalanceListener):
    """Passes rebalances on to the program's callbacks."""

    def __init__(
        self,
        consumer: object,
        begin: Callable[[], object],
        give_up: Callable[..., object],
        assigned: OnRebalance | None,
        revoked: OnRebalance | None,
        lost: OnRebalance | None,
    ) -> None:
        self._consumer = consumer
        self._begin = begin
        self._give_up = give_up
        self._assigned = assigned
        self._revoked = revoked
        self._lost = lost or revoked

    def on_partitions_assigned(self, partitions: Iterable[NativePartition]) -> None:
        """Calls `on_assign`."""
        self._begin()
        self._call(self._assigned, partitions)

    def on_partitions_revoked(self, partitions: Iterable[NativePartition]) -> None:
        """Calls `on_revoke`, then commits what was stored."""
        self._end(partitions, self._revoked, is_lost=False)

    def on_partitions_lost(self, partitions: Iterable[NativePartition]) -> None:
        """Calls `on_lost`, else `on_revoke`."""
        self._end(partitions, self._lost, is_lost=True)

    def _end(self, partitions: Iterable[NativePartition], call: OnRebalance | None, *, is_lost: bool) -> None:
        ended = sorted(partitions)
        try:
            self._call(call, ended)
        finally:
            self._give_up(ended, is_lost=is_lost)

    def _call(self, call: OnRebalance | None, partitions: Iterable[NativePartition]) -> None:
        if call is not None:
            call(self._consumer, [TopicPartition(*each) for each in sorted(partitions)])


def partitions_of(given: Any) -> list[TopicPartition]:
    """Returns a list of partitions that a program gave. Raises TypeError if it is none."""
    if not isinstance(given, list | tuple) or not all(isinstance(each, TopicPartition) for each in given):
        raise TypeError(f"{given!r} is not a list of TopicPartition")
    return list(given)


def _without_twins(given: Any) -> list[TopicPartition]:
    found = partitions_of(given)
    seen: set[NativePartition] = set()
    for each in found:
        if each.native in seen:
            raise failed(KafkaError._INVALID_ARG, f"{each.topic}-{each.partition} stands twice in the list")
        seen.add(each.native)
    return found


def _unknown(topic: str, partition: int, reason: str) -> Message:
    error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, reason)
    return Message(topic, partition, None, value=reason.encode(), error=error)


def _check_topics(topics: Any) -> None:
    if not isinstance(topics, list | tuple) or not all(isinstance(each, str) for each in topics):
        raise TypeError(f"topics={topics!r} is not a list of names")
    if not topics:
        raise refused("topics is empty; unsubscribe() ends a subscription")


def _pattern(topics: Iterable[str]) -> str:
    """Returns a regular expression for names, and for expressions that begin with `^`."""
    return "|".join(f"(?:{each})" if each.startswith("^") else f"{re.escape(each)}$" for each in topics)
