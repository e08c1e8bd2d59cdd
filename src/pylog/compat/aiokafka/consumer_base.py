"""The part of `AIOKafkaConsumer` that reads nothing: its options, what it reads, and questions that are answered at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Final
from weakref import ref

from pylog.aio import AsyncConsumer
from pylog.compat.aiokafka import errors
from pylog.compat.aiokafka.abc import ConsumerRebalanceListener
from pylog.compat.aiokafka.client import AIOKafkaClient, report_unclosed
from pylog.compat.aiokafka.errors import ConsumerStoppedError, Raising
from pylog.compat.aiokafka.listener import Listening
from pylog.compat.aiokafka.options import config_of, consumer_options
from pylog.compat.aiokafka.records import taking
from pylog.compat.aiokafka.util import get_running_loop
from pylog.compat.clusters import Cluster
from pylog.compat.kafka.arguments import checking
from pylog.compat.kafka.choice import existing, subscription_of
from pylog.compat.kafka.records import COLUMNS
from pylog.consumer.consumer import Consumer, polling_of
from pylog.consumer.core import ConsumerCore
from pylog.consumer.options import ConsumerOptions
from pylog.consumer.polling import core_of
from pylog.groups.member import is_settled
from pylog.record.types import TopicPartition

CLIENT: Final = "AIOKafkaConsumer"
_TURN_MS: Final = 50  # one call of the plain consumer; others of its coroutines have their turn in between
_AGAIN_S: Final = 0.1  # between two checks for missing partitions


class ConsumerBase:
    """The construction of a consumer, and its choice of topics or partitions. `AIOKafkaConsumer` has the rest.

    pylog's consumer refuses topics and partitions that do not exist; aiokafka's waits for them. So the choice is kept here, and
    each call that reads carries it over into the native consumer: missing topics are created if that is allowed, and awaited if
    not.
    """

    _closed = True  # until it is complete

    def __init__(self, *topics: str, **configs: Any) -> None:
        self.config = config_of(CLIENT, configs)
        self._options = consumer_options(self.config, waits_ms=_TURN_MS)
        with Raising(ConsumerStoppedError):
            ConsumerOptions.of(self._options)  # `start` creates the store, so what is wrong must be refused before
        self._given = configs
        self._client = AIOKafkaClient.of(self.config)
        self._loop = self.config["loop"] or get_running_loop()
        self._cluster: Cluster | None = None
        self._aio: AsyncConsumer[Any, Any] | None = None
        self._core: ConsumerCore | None = None  # of the native consumer
        self._topics: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self._listener = Listening(None, *self._of_listener())
        self._partitions: frozenset[TopicPartition] | None = None  # that were assigned
        self._missing: frozenset[TopicPartition] = frozenset()
        self._is_new = False  # the choice is not carried over yet
        self._starts: dict[TopicPartition, int] = {}  # seeks in partitions that are not carried over
        self._held: set[TopicPartition] = set()  # the paused ones
        self._check_at = 0.0
        self._polled = False
        self._closed = False
        if topics:
            self.subscribe(topics)

    def __del__(self) -> None:
        if not self._closed:
            report_unclosed(self, "consumer", self._loop)

    def _native(self, cluster: Cluster) -> Consumer[Any, Any]:
        """Creates the native consumer. Runs in another thread."""
        native = cluster.store.consumer(**self._options)
        polling = polling_of(native)
        self._core = core_of(polling)
        self._core.columns = COLUMNS
        polling.take_records = taking(self.config["key_deserializer"], self.config["value_deserializer"])
        return native

    def _abandon(self) -> None:
        """Closes the consumer without a commit, for a test that did not stop it and whose event loop may be closed."""
        self._closed = True
        if self._aio is not None:
            self._aio._abandon()

    def _started(self) -> AsyncConsumer[Any, Any]:
        if self._closed:
            raise ConsumerStoppedError
        if self._aio is None:
            raise errors.IllegalStateError("the consumer is not started; await start() first")
        return self._aio

    # ---- topics and partitions -----------------------------------------------------------------------------------------------

    def subscribe(
        self, topics: Any = (), pattern: str | re.Pattern[str] | None = None, listener: ConsumerRebalanceListener | None = None
    ) -> None:
        """Subscribes to topics, or to a pattern that matches the beginning of their names, in place of the previous ones.

        Args:
            topics: a list, set or tuple of names.
            pattern: a regular expression.
            listener: called when partitions are assigned or revoked.

        Raises:
            TypeError: both or neither were given, or an argument has a wrong type. ValueError: the pattern is wrong.
            IllegalStateError: partitions were assigned.
        """
        if bool(topics) == bool(pattern):
            raise TypeError("give topics or a pattern, and not both")
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError(f"listener of type {type(listener).__name__} is not a ConsumerRebalanceListener")
        if topics and not isinstance(topics, tuple | set | list):
            raise TypeError(f"topics={topics!r} is not a list of topic names")
        if pattern and not isinstance(pattern, str | re.Pattern):
            raise TypeError(f"pattern={pattern!r} is not text or a compiled pattern")
        try:
            compiled = re.compile(pattern) if pattern else None
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a valid pattern: {error}") from error
        known = "partitions" if self._partitions is not None else "topics" if self._topics else "pattern" if self._pattern else ""
        if known and known != ("pattern" if pattern else "topics"):
            raise errors.IllegalStateError(f"the consumer has {known} already; call unsubscribe() first")
        self._topics, self._pattern = frozenset(topics or ()), compiled
        heard = listener if self.config["group_id"] is not None else None  # without a group there is no rebalance
        self._listener.end()
        self._listener, self._is_new = Listening(heard, *self._of_listener(), self._listener), True

    def _of_listener(self) -> tuple[Callable[[Any], object], Callable[[], bool], asyncio.AbstractEventLoop]:
        """Returns what a listener needs of its consumer, without a reference to it: a dropped one is collected at once."""
        consumer = ref(self)

        def released(partitions: Collection[TopicPartition]) -> None:
            if (found := consumer()) is not None:
                found._released(partitions)

        def is_last() -> bool:
            found = consumer()
            return found is None or found._is_settled()

        return released, is_last, self._loop

    def _is_settled(self) -> bool:
        """Returns whether the consumer has all partitions that its group gave to it. Runs in the consumer's thread."""
        member = None if self._core is None else self._core.assignment.identity.member
        return member is None or is_settled(member)

    def _released(self, partitions: Collection[TopicPartition]) -> None:
        self._held = self._held.difference(partitions)

    @checking
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assigns exactly these partitions. One that does not exist yields no records until it does.

        Raises:
            TypeError: something is no TopicPartition. IllegalStateError: topics were subscribed to.
        """
        wanted = frozenset(partitions)
        if self._topics or self._pattern:
            raise errors.IllegalStateError("the consumer has topics already; call unsubscribe() first")
        self._partitions, self._missing, self._is_new = wanted, frozenset(), True
        self._starts, self._held = {}, set()

    def unsubscribe(self) -> None:
        """Ends the subscription or the assignment, and leaves the group."""
        if self._aio is not None and not self._closed:
            self._aio.unsubscribe()
        self._topics, self._pattern, self._partitions, self._missing = frozenset(), None, None, frozenset()
        self._is_new, self._starts, self._held = False, {}, set()

    def subscription(self) -> frozenset[str]:
        """Returns the topics subscribed to, or that match the pattern; those of assigned partitions."""
        if self._partitions is not None:
            return frozenset(each.topic for each in self._partitions)
        if self._pattern is None or self._aio is None:
            return self._topics
        return frozenset(self._aio.subscription())

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions that this consumer reads."""
        if self._partitions is not None:
            return set(self._partitions)
        return set() if self._is_new or self._aio is None else self._aio.assignment()

    @property
    def _has_choice(self) -> bool:
        return bool(self._topics or self._pattern or self._partitions)

    async def _settle(self) -> bool:
        """Carries the choice over into the native consumer. Returns whether there is anything to read."""
        native = self._started()
        if self._is_new:
            await self._carry_over(native)
        elif self._missing and asyncio.get_running_loop().time() >= self._check_at:
            await self._assign_existing(native)
        return bool(self._topics or self._pattern or (self._partitions or frozenset()) - self._missing)

    async def _carry_over(self, native: AsyncConsumer[Any, Any]) -> None:
        self._is_new = False
        assert self._cluster is not None
        if self._partitions is not None:
            self._missing = self._partitions
            native.unsubscribe()  # positions do not stay, as with aiokafka
            await self._assign_existing(native)
            return
        choice, listener = (self._topics, self._pattern), self._listener
        with Raising(ConsumerStoppedError):
            topics, pattern = await asyncio.to_thread(partial(subscription_of, self._cluster, *choice, may_create=True))
            if choice == (self._topics, self._pattern):  # else it was changed meanwhile
                if native.subscription():
                    native.unsubscribe()  # joins again, as with aiokafka
                native.subscribe(topics, pattern, listener)

    async def _assign_existing(self, native: AsyncConsumer[Any, Any]) -> None:
        """Assigns the chosen partitions that exist, and creates their topics."""
        wanted = self._partitions
        assert wanted is not None
        with Raising(ConsumerStoppedError):
            exist = await asyncio.to_thread(self._created, wanted)
        if self._partitions is not wanted or self._is_new:  # changed meanwhile
            return
        new, self._missing = exist & self._missing, wanted - exist
        self._check_at = asyncio.get_running_loop().time() + _AGAIN_S
        if new:
            native.assign(sorted(exist))
        for partition in new & self._starts.keys():
            native.seek(partition, self._starts.pop(partition))
        native.pause(*(new & self._held))

    def _created(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        assert self._cluster is not None
        for topic in {each.topic for each in partitions}:
            self._cluster.create_on_demand(topic, allowed=True)
        return existing(self._cluster, partitions)

    # ---- changes before the next read ----------------------------------------------------------------------------------------

    def _is_pending(self, partition: TopicPartition) -> bool:
        """Returns whether a partition is chosen, and not carried over into the native consumer."""
        return self._partitions is not None and (self._is_new or partition in self._missing)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Moves the position of an assigned partition.

        Raises:
            ValueError: the offset is no int of at least 0. IllegalStateError: the partition is not assigned.
        """
        if not isinstance(offset, int) or offset < 0:
            raise ValueError(f"offset={offset!r} is not an int of at least 0")
        native = self._started()
        self._check_assigned([partition])
        if self._is_pending(partition):
            self._starts[partition] = offset
        else:
            with Raising(ConsumerStoppedError):
                native.seek(partition, offset)

    def pause(self, *partitions: TopicPartition) -> None:
        """Stops reading partitions until `resume`. Raises TypeError, and IllegalStateError for one that is not assigned."""
        self._set_paused(partitions, paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Continues reading partitions. Raises as `pause`."""
        self._set_paused(partitions, paused=False)

    def _set_paused(self, partitions: Collection[TopicPartition], *, paused: bool) -> None:
        check_partitions(partitions)
        native = self._started()
        self._check_assigned(partitions)
        self._held = self._held.union(partitions) if paused else self._held.difference(partitions)
        with Raising(ConsumerStoppedError):
            (native.pause if paused else native.resume)(*(each for each in partitions if not self._is_pending(each)))

    def _check_assigned(self, partitions: Collection[TopicPartition]) -> None:
        check_partitions(partitions)
        wrong = sorted(set(partitions) - self.assignment())
        if wrong:
            raise errors.IllegalStateError(f"Partition {wrong[0]} is not assigned to this consumer")

    # ---- questions without waiting -------------------------------------------------------------------------------------------

    def paused(self) -> set[TopicPartition]:
        """Returns the paused partitions."""
        return self._held & self.assignment()

    def highwater(self, partition: TopicPartition) -> int | None:
        """Returns the end of a partition's log, as known at the last read; None before the first one.

        Raises:
            AssertionError: the partition is not assigned.
        """
        return self._of_assigned(AsyncConsumer.highwater, partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Returns where `read_committed` reading ends, as known at the last read; None before the first one.

        Raises:
            AssertionError: the partition is not assigned.
        """
        return self._of_assigned(AsyncConsumer.last_stable_offset, partition)

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Returns the time of the last read in milliseconds since 1970; None before the first one.

        Raises:
            AssertionError: the partition is not assigned.
        """
        return self._of_assigned(AsyncConsumer.last_poll_timestamp, partition)

    def _of_assigned(self, ask: Any, partition: TopicPartition) -> int | None:
        assert partition in self.assignment(), f"Partition is not assigned: {partition}"
        if self._is_pending(partition) or not self._polled:
            return None
        found: int | None = ask(self._aio, partition)
        return found

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Returns the numbers of a topic's partitions, as known since `start` or `topics`; None if it does not exist."""
        return None if self._aio is None else self._aio.partitions_for_topic(topic)


def check_partitions(partitions: Iterable[Any]) -> None:
    """Raises TypeError if something among them is not a TopicPartition."""
    for each in partitions:
        if not isinstance(each, TopicPartition):
            raise TypeError(f"{each!r} is not a TopicPartition")
