"""confluent-kafka's `Consumer` on a pylog store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

from pylog.clock import SystemClock
from pylog.compat.clusters import CLUSTERS
from pylog.compat.confluent.assignment import Assignment, partitions_of
from pylog.compat.confluent.commits import Commits
from pylog.compat.confluent.configuration import Given, refused, text
from pylog.compat.confluent.contradictions import check_consumer
from pylog.compat.confluent.errors import KafkaError, Translating
from pylog.compat.confluent.events import Counts, Events
from pylog.compat.confluent.metadata import Lookups
from pylog.compat.confluent.statistics import Progress, consumer_statistics
from pylog.compat.confluent.structs import OFFSET_INVALID, Message, TopicPartition, message_of
from pylog.compat.kafka.consumer_options import heartbeat_of
from pylog.consumer.options import ConsumerOptions
from pylog.errors import NoOffsetForPartitionError
from pylog.offsets.group_metadata import ConsumerGroupMetadata
from pylog.record.types import TopicPartition as NativePartition

_CLOCK: Final = SystemClock()
_STEP_S: Final = 0.1  # between two checks for the end of a partition
_RESETS: Final = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), "earliest"),
    **dict.fromkeys(("largest", "latest", "end"), "latest"),
    "error": "none",
}
_MOST_MESSAGES: Final = 1_000_000  # of one call of `consume`


class Consumer(Assignment, Lookups):
    """Reads records, alone or as a member of a group.

    The default of `isolation.level` is `read_committed`, as in librdkafka. `on_commit` is called by `poll`, `consume` and `close`
    for each automatic or asynchronous commit that has ended. Once the consumer is closed, each call except `close` raises
    RuntimeError.

    Args:
        config: the options, with confluent-kafka's names.

    Raises:
        KafkaException: an option is wrong.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        given = Given(config, more, "on_commit")
        check_consumer(given.values)
        options = _native_options(given)
        if options["group_id"] is None:
            raise refused("a consumer needs the option group.id")
        self._creates_topics = given.take("allow.auto.create.topics", False)
        self._tells_ends = given.take("enable.partition.eof", False)
        interval_ms = given.take("auto.commit.interval.ms", 5_000) if given.take("enable.auto.commit", True) else None
        on_commit, stores = given.take("on_commit"), given.take("enable.auto.offset.store", True)
        with Translating():
            ConsumerOptions.of(options)  # what is wrong must be refused before the store is created
            servers = given.take("bootstrap.servers")
            self._events = Events(given, "consumer")
            options["client_id"] = self._events.client_id
            self._cluster = CLUSTERS.of(servers)
            self._native = self._cluster.store.consumer(**options)
        self._commits = Commits(self._native, self._events, on_commit, interval_ms, stores=stores)
        self._counts = Counts()
        self._is_closing = self._is_closed = False
        self._begin_assignment()

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the consumer is closed; create another one")

    # ---- reading -------------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None) -> Message | None:
        """Returns the next record, or with `enable.partition.eof` the end of a partition; None if there is none.

        Args:
            timeout: seconds to wait; None or negative to wait as long as it takes.

        Raises:
            KafkaException: reading has failed.
        """
        found = self.consume(1, -1 if timeout is None else timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Returns the next records, at most `num_messages`.

        Args:
            num_messages: the largest number.
            timeout: seconds to wait for the first one; negative to wait as long as it takes.

        Raises:
            KafkaException: reading has failed. What `on_commit` raises. ValueError: the number is wrong.
        """
        if not 0 <= num_messages <= _MOST_MESSAGES:
            raise ValueError(f"num_messages={num_messages!r} is not a number from 0 to {_MOST_MESSAGES}")
        if num_messages == 0:
            return []
        until = None if timeout < 0 else _CLOCK.monotonic() + timeout
        wait = 0.0  # the ends that are known already are reported before a wait
        while True:
            self._commits.deliver()
            self._events.deliver(self._statistics)
            with Translating():
                if messages := self._read(wait, num_messages):
                    return messages
            left = _STEP_S if until is None else until - _CLOCK.monotonic()
            if left <= 0:
                return []
            wait = min(left, _STEP_S)

    def _read(self, wait: float, num_messages: int) -> list[Message]:
        """Returns the next records, or an end; what is there after a wait of some seconds."""
        if self._missing:
            self._find_missing()
        if self._failures:
            return [self._failures.popleft()]
        if not (self._is_subscribed or self._native.assignment()):
            _CLOCK.sleep(wait)
            return []
        self._commits.keep_up()
        try:
            found = self._native.poll(wait * 1000, max_records=num_messages)
        except NoOffsetForPartitionError as error:
            return [self._stop_without_offset(error)]
        for partition, records in found.items():
            self._positions[partition] = records[-1].offset + 1
            self._commits.returned(partition, records[-1].offset + 1)
            self._counts.add(partition, len(records), sum(len(each.value or b"") for each in records))
            self._ended.discard(partition)
        return [message_of(partition, record) for partition, records in found.items() for record in records] or self._ends()

    def _statistics(self) -> dict[str, Any]:
        stored = self._commits.stored_offsets()
        with Translating():
            partitions = {
                each: Progress(self._positions.get(each), stored.get(each), self._committed(each))
                for each in self._native.assignment()
            }
            return consumer_statistics(self._cluster, self._counts, partitions, self._events.age_us, self._rebalance_count)

    def _committed(self, partition: NativePartition) -> int | None:
        found = self._native.committed(partition)
        return None if found is None else int(found)  # type: ignore[arg-type]  # without metadata

    def _ends(self) -> list[Message]:
        """Returns the end of a partition that was reached and not reported."""
        if not self._tells_ends:
            return []
        waiting = [each for each in sorted(self._native.assignment()) if each not in self._ended]
        for partition, end in self._native.end_offsets(waiting).items() if waiting else ():
            position = self._native.position(partition)
            if position is not None and position >= end:
                self._ended.add(partition)
                self._positions[partition] = position  # after markers and aborted records, as in librdkafka
                return [Message(*partition, end, error=KafkaError(KafkaError._PARTITION_EOF, "the end of the partition"))]
        return []

    def position(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Returns the offsets after the last records, or ends, that `poll` has returned; `OFFSET_INVALID` where there was none.

        Args:
            partitions: the partitions.
        """
        self._check_open()
        return [TopicPartition(*each.native, self._positions.get(each.native, OFFSET_INVALID)) for each in partitions]

    # ---- committed offsets ---------------------------------------------------------------------------------------------------

    def commit(
        self,
        message: Message | None = None,
        offsets: Iterable[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commits offsets for the group, outside of transactions.

        Args:
            message: commits the offset after this one.
            offsets: commits these; by default what was stored since the last commit.
            asynchronous: true to commit in the background, and to tell `on_commit`. Nothing is raised then.

        Returns:
            The partitions of a synchronous commit.

        Raises:
            KafkaException: there is nothing to commit, or the group has lost a partition. ValueError: both were given.
        """
        return self._commits.commit(_offsets_of(message, offsets), asynchronous=asynchronous)

    def store_offsets(self, message: Message | None = None, offsets: Iterable[TopicPartition] | None = None) -> None:
        """Stores offsets for the next commit, with `enable.auto.offset.store=false`.

        Args:
            message: stores the offset after this one.
            offsets: stores these.

        Raises:
            KafkaException: the option is true, or a partition is not read. ValueError: none or both were given.
        """
        self._check_open()
        chosen = _offsets_of(message, offsets)
        if chosen is None:
            raise ValueError("store_offsets needs a message or offsets")
        with Translating():
            self._commits.store(chosen)

    def committed(self, partitions: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:  # noqa: ARG002
        """Returns the group's committed offsets; `OFFSET_INVALID` where there is none.

        Args:
            partitions: the partitions.
            timeout: accepted and not needed.
        """
        with Translating():
            found = [(each.native, self._committed(each.native)) for each in partitions]
        return [TopicPartition(*partition, OFFSET_INVALID if at is None else at) for partition, at in found]

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the membership, for `Producer.send_offsets_to_transaction`."""
        with Translating():
            return self._native.group_metadata()

    def memberid(self) -> str:
        """Returns the id of this member of the group; empty if it is none."""
        return self.consumer_group_metadata().member_id

    def close(self) -> None:
        """Leaves the group, and closes the consumer. Commits what was stored if `enable.auto.commit` is on.

        `on_revoke` is called for the partitions of the group, and may call the consumer. Later calls of `close` do nothing.

        Raises:
            KafkaException: the group could not be left. Exception: that of a callback.
        """
        if self._is_closing:
            return
        self._is_closing = True
        try:
            with Translating():
                self._leave_assigned()
                self._native.close()
        finally:
            self._is_closed = True  # only now: `on_revoke` may call all methods
        self._commits.deliver()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _native_options(given: Given) -> dict[str, Any]:
    """Returns the options of pylog's consumer. It commits nothing by itself: `Commits` does."""
    options: dict[str, Any] = {
        "group_id": text(given.take("group.id")),
        "auto_offset_reset": _RESETS[given.take("auto.offset.reset", "latest")],
        "enable_auto_commit": False,
        "isolation_level": given.take("isolation.level", "read_committed"),
        "group_instance_id": text(given.take("group.instance.id")),
        "session_timeout_ms": given.take("session.timeout.ms", 45_000),
        "max_poll_interval_ms": given.take("max.poll.interval.ms", 300_000),
        "heartbeat_interval_ms": given.take("heartbeat.interval.ms", 3_000),
    }
    options["heartbeat_interval_ms"] = heartbeat_of(options)
    if assignors := given.take("partition.assignment.strategy"):
        options["partition_assignment_strategy"] = assignors
    return options


def _offsets_of(message: Message | None, offsets: Iterable[TopicPartition] | None) -> list[TopicPartition] | None:
    if message is not None and offsets is not None:
        raise ValueError("give a message or offsets, not both")
    if message is None:
        return None if offsets is None else partitions_of(offsets)
    if not isinstance(message, Message):
        raise TypeError(f"message={message!r} is not a Message")
    return [TopicPartition(str(message.topic()), message.partition() or 0, (message.offset() or 0) + 1)]
