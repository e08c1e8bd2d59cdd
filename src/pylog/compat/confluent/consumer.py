"""confluent-kafka's `Consumer` on a pylog store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self

from pylog.clock import SystemClock
from pylog.compat.clusters import CLUSTERS
from pylog.compat.confluent.configuration import Given
from pylog.compat.confluent.errors import KafkaError, Translating, failed
from pylog.compat.confluent.structs import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, Message, TopicPartition, message_of
from pylog.consumer.listener import ConsumerRebalanceListener
from pylog.offsets.group_metadata import ConsumerGroupMetadata
from pylog.record.types import OffsetAndMetadata
from pylog.record.types import TopicPartition as NativePartition

OnRebalance = Callable[["Consumer", list[TopicPartition]], object]
_CLOCK: Final = SystemClock()
_STEP_S: Final = 0.1  # between two checks for the end of a partition
_RESETS: Final = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest", "error": "none"}


class Consumer:
    """Reads records, alone or as a member of a group.

    The default of `isolation.level` is `read_committed`, as in librdkafka.

    Args:
        config: the options, with confluent-kafka's names.

    Raises:
        KafkaException: an option is wrong.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        given = Given(config, more)
        reset = str(given.take("auto.offset.reset", default="largest"))
        self._tells_ends = given.flag("enable.partition.eof", default=False)
        options: dict[str, Any] = {
            "group_id": given.take("group.id"),
            "auto_offset_reset": _RESETS.get(reset, reset),
            "enable_auto_commit": given.flag("enable.auto.commit", default=True),
            "isolation_level": given.take("isolation.level", default="read_committed"),
            "group_instance_id": given.take("group.instance.id"),
            "session_timeout_ms": given.number("session.timeout.ms", 45_000),
            "max_poll_interval_ms": given.number("max.poll.interval.ms", 300_000),
        }
        if options["group_id"] is None:
            raise failed(KafkaError._INVALID_ARG, "a consumer needs the option group.id")
        with Translating():
            self._cluster = CLUSTERS.of(given.servers)
            self._native = self._cluster.store.consumer(**options)
        self._positions: dict[NativePartition, int] = {}
        self._ended: set[NativePartition] = set()  # whose ends were reported
        given.end("consumer")

    # ---- partitions ----------------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Joins the group, which shares the partitions of topics among its members.

        Args:
            topics: names. Missing ones are created if that is allowed.
            on_assign, on_revoke, on_lost: called with this consumer and a list of partitions.

        Raises:
            KafkaException: a name is wrong.
        """
        with Translating():
            for topic in topics:
                self._cluster.create_on_demand(topic, allowed=True)
            self._native.subscribe(list(topics), listener=_Listener(self, on_assign, on_revoke, on_lost))

    def unsubscribe(self) -> None:
        """Leaves the group."""
        with Translating():
            self._native.unsubscribe()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads some partitions, without a group's rebalances.

        Args:
            partitions: each begins at its offset, else at the group's committed offset, else by `auto.offset.reset`.

        Raises:
            KafkaException: a partition does not exist.
        """
        with Translating():
            for each in partitions:
                self._cluster.create_on_demand(each.topic, allowed=True)
            self._native.assign([each.native for each in partitions])
            self._positions.clear()
            self._ended.clear()
            for each in partitions:
                if each.offset >= 0 or each.offset in (OFFSET_BEGINNING, OFFSET_END):
                    self._seek(each)

    def unassign(self) -> None:
        """Reads no partitions any more."""
        self.assign([])

    def assignment(self) -> list[TopicPartition]:
        """Returns the partitions that are read."""
        with Translating():
            return [TopicPartition(*each) for each in sorted(self._native.assignment())]

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
            KafkaException: reading has failed.
        """
        until = None if timeout < 0 else _CLOCK.monotonic() + timeout
        with Translating():
            wait = 0.0  # the ends that are known already are reported before a wait
            while True:
                found = self._native.poll(wait * 1000, max_records=num_messages)
                messages = [message_of(partition, record) for partition, records in found.items() for record in records]
                for partition, records in found.items():
                    self._positions[partition] = records[-1].offset + 1
                    self._ended.discard(partition)
                if messages or (messages := self._ends()):
                    return messages
                left = _STEP_S if until is None else until - _CLOCK.monotonic()
                if left <= 0:
                    return []
                wait = min(left, _STEP_S)

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
        return [TopicPartition(*each.native, self._positions.get(each.native, OFFSET_INVALID)) for each in partitions]

    def seek(self, partition: TopicPartition) -> None:
        """Continues at the offset of `partition`.

        Args:
            partition: a partition that is read.

        Raises:
            KafkaException: it is not read.
        """
        with Translating():
            self._seek(partition)

    def _seek(self, partition: TopicPartition) -> None:
        if partition.offset == OFFSET_BEGINNING:
            self._native.seek_to_beginning(partition.native)
        elif partition.offset == OFFSET_END:
            self._native.seek_to_end(partition.native)
        else:
            self._native.seek(partition.native, partition.offset)
        self._ended.discard(partition.native)
        self._positions.pop(partition.native, None)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Returns no records of some partitions until `resume`."""
        with Translating():
            self._native.pause(*(each.native for each in partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Returns records of paused partitions again."""
        with Translating():
            self._native.resume(*(each.native for each in partitions))

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float = -1, cached: bool = False) -> tuple[int, int]:  # noqa: ARG002
        """Returns the log start and the end of a partition.

        Args:
            partition: the partition.
            timeout, cached: accepted and not needed.
        """
        with Translating():
            low = self._native.beginning_offsets([partition.native])[partition.native]
            return low, self._native.end_offsets([partition.native])[partition.native]

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
            offsets: commits these; by default the positions.
            asynchronous: true to return nothing. The offsets are committed in any case when the call returns.

        Raises:
            KafkaException: there is nothing to commit, or the group has lost a partition.
        """
        if message is not None:
            offsets = [TopicPartition(message.topic(), message.partition(), (message.offset() or 0) + 1)]
        elif offsets is None:
            offsets = [TopicPartition(*partition, offset) for partition, offset in self._positions.items()]
        given = [each for each in offsets if each.offset >= 0]
        if not given:
            raise failed(KafkaError._NO_OFFSET, "there are no offsets to commit")
        with Translating():
            self._native.commit({each.native: OffsetAndMetadata(each.offset, each.metadata or "") for each in given})
        return None if asynchronous else given

    def committed(self, partitions: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:  # noqa: ARG002
        """Returns the group's committed offsets; `OFFSET_INVALID` where there is none.

        Args:
            partitions: the partitions.
            timeout: accepted and not needed.
        """
        with Translating():
            found = [(each.native, self._native.committed(each.native)) for each in partitions]
        return [TopicPartition(*partition, OFFSET_INVALID if at is None else int(at)) for partition, at in found]  # type: ignore[arg-type]

    def consumer_group_metadata(self) -> ConsumerGroupMetadata:
        """Returns the membership, for `Producer.send_offsets_to_transaction`."""
        with Translating():
            return self._native.group_metadata()

    def memberid(self) -> str:
        """Returns the id of this member of the group; empty if it is none."""
        return self.consumer_group_metadata().member_id

    def close(self) -> None:
        """Leaves the group, and closes the consumer. Commits the positions if `enable.auto.commit` is on."""
        with Translating():
            self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Listener(ConsumerRebalanceListener):
    """Passes rebalances on to the program's callbacks."""

    def __init__(
        self, consumer: Consumer, assigned: OnRebalance | None, revoked: OnRebalance | None, lost: OnRebalance | None
    ) -> None:
        self._consumer = consumer
        self._assigned = assigned
        self._revoked = revoked
        self._lost = lost or revoked

    def on_partitions_assigned(self, partitions: Iterable[NativePartition]) -> None:
        """Calls `on_assign`."""
        self._call(self._assigned, partitions)

    def on_partitions_revoked(self, partitions: Iterable[NativePartition]) -> None:
        """Calls `on_revoke`."""
        self._end(partitions, self._revoked)

    def on_partitions_lost(self, partitions: Iterable[NativePartition]) -> None:
        """Calls `on_lost`, else `on_revoke`."""
        self._end(partitions, self._lost)

    def _end(self, partitions: Iterable[NativePartition], call: OnRebalance | None) -> None:
        ended = list(partitions)
        self._call(call, ended)
        for each in ended:
            self._consumer._positions.pop(each, None)
            self._consumer._ended.discard(each)

    def _call(self, call: OnRebalance | None, partitions: Iterable[NativePartition]) -> None:
        if call is not None:
            call(self._consumer, [TopicPartition(*each) for each in sorted(partitions)])
