"""The part of `KafkaConsumer` that reads nothing: its options, what it reads, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from pylog.compat.clusters import CLUSTERS
from pylog.compat.kafka import errors
from pylog.compat.kafka.answers import offsets_of, response_to
from pylog.compat.kafka.arguments import checking
from pylog.compat.kafka.calls import Calls
from pylog.compat.kafka.choice import Choice, check_partitions
from pylog.compat.kafka.consumer_metrics import ConsumerMetrics
from pylog.compat.kafka.consumer_options import CLIENT, consumer_config, native_options
from pylog.compat.kafka.metadata import Client
from pylog.compat.kafka.options import CONSUMER, warn_of_ignored
from pylog.compat.kafka.records import COLUMNS, taking
from pylog.compat.kafka.serializer import call_of
from pylog.compat.kafka.structs import (
    TopicPartition,
)
from pylog.compat.kafka.translation import Translating, reconfigured
from pylog.compat.kafka.util import ensure_valid_topic_name
from pylog.consumer.commits import CommitCallback
from pylog.consumer.consumer import polling_of
from pylog.consumer.options import ConsumerOptions
from pylog.consumer.polling import core_of


class ConsumerBase:
    """The construction of a consumer, its choice of partitions, and their positions. `KafkaConsumer` has the rest."""

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = CONSUMER

    def __init__(self, *topics: str, **configs: Any) -> None:
        self._closed = False
        self.config = consumer_config(configs)
        options = native_options(self.config)
        try:
            key = call_of(self.config, "key_deserializer")
            value = call_of(self.config, "value_deserializer")
        except TypeError as error:
            raise errors.KafkaConfigurationError(str(error)) from error
        for topic in topics:
            ensure_valid_topic_name(topic)
        with Translating(reconfigured):
            ConsumerOptions.of(options)  # what is wrong must be refused before the store is created
            self._cluster = CLUSTERS.of(self.config["bootstrap_servers"])
            self._native = self._cluster.store.consumer(**options)
        self._polling = polling_of(self._native)
        self._core = core_of(self._polling)
        self._core.columns = COLUMNS
        self._calls = Calls(self._cluster)
        self._choice = Choice(self._native, self._cluster, may_create=bool(self.config["allow_auto_create_topics"]))
        self._client = Client(self._cluster)
        self._polled: set[TopicPartition] = set()
        self._metrics = ConsumerMetrics(self._core, self.config) if self.config["metrics_enabled"] else None
        self._polling.take_records = taking(key, value, None if self._metrics is None else self._metrics.sizes.add)
        self._core.commits.after_auto_commit = self._commit_callback(None)
        self._cluster.clients.add(self)
        warn_of_ignored(CLIENT, CONSUMER, configs, self._cluster.name)
        if topics:
            self.subscribe(topics)

    def _commit_callback(self, callback: Callable[..., object] | None) -> CommitCallback | None:
        """Returns the callback of a commit for pylog's consumer, by default that of the options; None if there is none."""
        chosen = callback or self.config["default_offset_commit_callback"]
        if chosen in (None, CONSUMER["default_offset_commit_callback"]):
            return None
        return lambda offsets, error: chosen(offsets_of(offsets), response_to(error))

    # ---- topics and partitions -----------------------------------------------------------------------------------------------

    def subscribe(self, topics: Any = (), pattern: Any = None, listener: Any = None) -> None:
        """Subscribes to topics, or to a pattern that matches the beginning of their names, in place of the previous ones.

        Raises:
            ValueError: neither was given, or a name is wrong. TypeError: the listener is none.
            IllegalStateError: both were given, or partitions were assigned.
        """
        with self._calls:
            self._choice.subscribe(topics, pattern, listener)

    @checking
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assigns exactly these partitions. One that does not exist yields no records until it does."""
        with self._calls:
            self._choice.assign(partitions)

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions that this consumer reads."""
        with self._calls:
            return self._choice.assignment

    def subscription(self) -> set[str] | None:
        """Returns the topics subscribed to; None without a subscription."""
        with self._calls:
            return self._choice.subscription

    def unsubscribe(self) -> None:
        """Ends the subscription or the assignment, and leaves the group."""
        with self._calls:
            self._choice.unsubscribe()

    def topics(self) -> set[str]:
        """Returns the names of all topics."""
        with self._calls:
            return self._native.topics()

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Returns the numbers of a topic's partitions; an empty set if it does not exist."""
        with self._calls:
            return self._native.partitions_for_topic(topic) or set()

    # ---- positions -----------------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Moves the position of an assigned partition.

        Raises:
            TypeError: it is no TopicPartition. ValueError: it is not assigned, or the offset is no int of at least 0.
        """
        check_partitions([partition])
        if not isinstance(offset, int) or offset < 0:
            raise ValueError(f"offset={offset!r} is not an int of at least 0")
        with self._calls:
            self._assigned((partition,))
            if self._choice.is_missing(partition):
                self._choice.seek_missing(partition, offset)
            else:
                self._native.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Moves to the start of partitions; by default, of all assigned ones. Raises as `seek`, also if none is assigned."""
        self._seek_to(partitions, "earliest")

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Moves to the end of partitions; by default, of all assigned ones. Raises as `seek`, also if none is assigned."""
        self._seek_to(partitions, "latest")

    def _seek_to(self, partitions: tuple[TopicPartition, ...], where: str) -> None:
        check_partitions(partitions)
        with self._calls:
            move = self._native.seek_to_beginning if where == "earliest" else self._native.seek_to_end
            for each in self._assigned(partitions):
                if self._choice.is_missing(each):
                    self._choice.seek_missing(each, where)
                else:
                    move(each)

    def _assigned(self, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
        """Returns assigned partitions, by default all of them. Raises ValueError if one is not assigned, or none is."""
        assigned = self._choice.assignment
        wrong = [each for each in partitions if each not in assigned]
        if wrong:
            raise ValueError(f"{wrong[0]} is not assigned to this consumer")
        if not assigned:
            raise ValueError("no partitions are assigned to this consumer")
        return partitions or tuple(sorted(assigned))

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int | None:
        """Returns the offset of the next record; None for a partition that does not exist yet.

        Raises:
            TypeError: it is no TopicPartition. IllegalStateError: it is not assigned.
        """
        check_partitions([partition])
        with self._calls:
            return None if self._choice.is_missing(partition) else self._native.position(partition)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Returns the log end offset of an assigned partition; None before the first poll.

        Raises:
            TypeError: it is no TopicPartition. IllegalStateError: it is not assigned.
        """
        check_partitions([partition])
        with self._calls:
            if partition not in self._choice.assignment:
                raise errors.IllegalStateError(f"{partition} is not assigned to this consumer")
            return self._core.log(partition).end_offset if partition in self._polled else None

    def pause(self, *partitions: TopicPartition) -> None:
        """Stops reading partitions until `resume`. Raises TypeError, and KeyError for one that is not assigned."""
        self._set_paused(partitions, paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Continues reading partitions. Raises as `pause`."""
        self._set_paused(partitions, paused=False)

    def _set_paused(self, partitions: tuple[TopicPartition, ...], *, paused: bool) -> None:
        check_partitions(partitions)
        with self._calls:
            for each in partitions:
                if each not in self._choice.assignment:
                    raise KeyError(each)
            here = [each for each in partitions if not self._choice.is_missing(each)]
            (self._native.pause if paused else self._native.resume)(*here)

    def paused(self) -> set[TopicPartition]:
        """Returns the paused partitions."""
        with self._calls:
            return self._native.paused()
