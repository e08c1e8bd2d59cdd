"""The topic `__consumer_offsets` as a whole: which of its partitions has the records of a group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Final, TypeVar

from pylog import limits
from pylog.config import OffsetsConfig
from pylog.errors import (
    ClosedError,
    CorruptionError,
    IllegalStateError,
    PylogError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from pylog.fs import FileSystem, join
from pylog.log_manager import LogManager
from pylog.offsets.arguments import checked_group
from pylog.offsets.partition import OffsetsPartition
from pylog.offsets.schema import OFFSETS_TOPIC, group_name, partition_of_group
from pylog.record.types import TopicPartition
from pylog.topics.partitions import directory_name
from pylog.topics.signs import META_PROPERTIES

_TRIES: Final = 3  # while another process deletes the topic and makes it again
Result = TypeVar("Result")


class OffsetsTopic:
    """Opens the partitions of `__consumer_offsets`, creates the topic, and finds the partition of a group.

    Args:
        manager: of the store.
        config: options of the topic.
        fs: the store's.
    """

    def __init__(self, manager: LogManager, config: OffsetsConfig, fs: FileSystem) -> None:
        self._manager = manager
        self._config = config
        self._fs = fs
        self._guard = threading.Lock()
        self._count = 0  # of partitions of the topic, 0 as long as it is not known
        self._partitions: dict[int, OffsetsPartition] = {}
        self._numbers: dict[str, int] = {}  # group → partition

    def on_partition(self, group_id: str, action: Callable[..., Result], *given: Any, make: bool = False) -> Result | None:
        """Runs an action on the partition of a group. Returns None if the topic does not exist and must not be created."""
        tries = _TRIES
        while True:
            try:
                partition = self._partitions.get(self._numbers.get(group_id, -1)) or self._partition_of(group_id)
                if partition is None and make:
                    self._make_topic()
                    partition = self._partition_of(group_id)
                return None if partition is None else action(partition, *given)
            except (UnknownTopicOrPartitionError, ClosedError) as error:  # deleted, or not made yet
                tries -= 1
                if not tries:
                    if make or isinstance(error, ClosedError):
                        raise
                    return None  # nothing can be committed where there is no partition
                self._forget()

    def _make_topic(self) -> None:
        """Makes `__consumer_offsets` as Kafka does (groups-and-transactions 1.1)."""
        count, size = self._config.topic_num_partitions, self._config.topic_segment_bytes
        try:
            self._manager.create_topic(OFFSETS_TOPIC, count, cleanup_policy="compact", segment_bytes=size)
        except TopicAlreadyExistsError:
            return  # another thread or process was faster

    def _partition_of(self, group_id: str) -> OffsetsPartition | None:
        number = self._numbers.get(group_id)
        if number is None:
            count = self._count
            if not count:
                topic = self._manager.topics().get(OFFSETS_TOPIC)
                if topic is None:
                    return None
                count = self._count = topic.partition_ids[-1] + 1
            number = self._number_of(group_id, count)
        with self._guard:
            if len(self._numbers) >= limits.GROUP_NUMBERS:
                self._numbers.clear()  # many groups may not exist any more
            self._numbers[group_id] = number
            return self._partition(number)

    def _number_of(self, group_id: str, count: int) -> int:
        """The partition that a group has its records in, or would have.

        A broker of several, or with several directories, has some of the partitions here and some elsewhere, and how many there
        are is not recorded. So the actual partitions of its groups decide, before the partitions computed from their names.
        """
        number, name = partition_of_group(group_id, count), checked_group(group_id)
        if not self._fs.exists(join(self._manager.path, META_PROPERTIES)):
            return number
        for partition in sorted(self.all_partitions(), key=lambda each: each.number != number):  # where it should be first
            # damage elsewhere concerns only the groups that belong there
            elsewhere = nullcontext() if partition.number == number else suppress(CorruptionError)
            with elsewhere, partition.image() as image:
                if name in image.groups:
                    return partition.number
        if not self._is_whole(count):
            message = (
                f"{self._manager.path} has only some partitions of {OFFSETS_TOPIC}, and no records of group {group_id!r} in them"
            )
            raise IllegalStateError(f"{message}: where they belong is not known here", path=self._manager.path)
        return number

    def _is_whole(self, count: int) -> bool:
        """Whether all partitions are present, judged by their numbers and the groups in them."""
        for number, partition in enumerate(self.all_partitions()):
            if partition.number != number:
                return False
            with suppress(CorruptionError), partition.image() as image:
                if any(partition_of_group(group_name(name), count) != number for name in image.groups):
                    return False
        return True

    def all_partitions(self) -> Iterator[OffsetsPartition]:
        """Yields the existing partitions. One that the topic's creator has not created yet has no records."""
        for number in self._all_numbers():
            with suppress(UnknownTopicOrPartitionError):
                with self._guard:
                    partition = self._partition(number)
                yield partition

    def _all_numbers(self) -> tuple[int, ...]:
        topic = self._manager.topics().get(OFFSETS_TOPIC)
        return () if topic is None else topic.partition_ids

    def each_partition(self, action: Callable[[OffsetsPartition], Result]) -> tuple[dict[int, Result], dict[int, PylogError]]:
        """What `action` makes of each partition, by number, and the errors of those that it fails for.

        A partition that was not created yet, or was just deleted, is in neither.
        """
        found: dict[int, Result] = {}
        failed: dict[int, PylogError] = {}
        for number in self._all_numbers():
            try:
                with self._guard:
                    partition = self._partition(number)
                found[number] = action(partition)
            except UnknownTopicOrPartitionError:
                continue
            except ClosedError:
                raise
            except PylogError as error:
                failed[number] = error
        return found, failed

    def _partition(self, number: int) -> OffsetsPartition:
        partition = self._partitions.get(number)
        if partition is None:
            directory = join(self._manager.path, directory_name(TopicPartition(OFFSETS_TOPIC, number)))
            partition = OffsetsPartition(partial(self._manager.log, OFFSETS_TOPIC, number), directory, number)
            self._partitions[number] = partition
        return partition

    def _forget(self) -> None:
        with self._guard:
            self._count = 0
            self._partitions.clear()
            self._numbers.clear()
