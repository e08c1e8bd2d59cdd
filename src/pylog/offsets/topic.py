"""The topic `__consumer_offsets` as a whole: which of its partitions has the records of a group."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any, TypeVar

from pylog import limits
from pylog.config import OffsetsConfig
from pylog.errors import ClosedError, CorruptionError, IllegalStateError, UnknownTopicOrPartitionError
from pylog.fs import FileSystem, join
from pylog.internal_topic import TRIES, InternalTopic
from pylog.log_manager import LogManager
from pylog.offsets.arguments import checked_group
from pylog.offsets.partition import OffsetsPartition
from pylog.offsets.schema import OFFSETS_TOPIC, group_name, partition_of_group
from pylog.topics.signs import META_PROPERTIES

Result = TypeVar("Result")


class OffsetsTopic(InternalTopic[OffsetsPartition]):
    """Opens the partitions of `__consumer_offsets`, creates the topic, and finds the partition of a group.

    Args:
        manager: of the store.
        config: options of the topic.
        fs: the store's.
    """

    def __init__(self, manager: LogManager, config: OffsetsConfig, fs: FileSystem) -> None:
        options = {"cleanup_policy": "compact", "segment_bytes": config.topic_segment_bytes}
        super().__init__(manager, OFFSETS_TOPIC, OffsetsPartition, config.topic_num_partitions, **options)
        self._fs = fs
        self._count = 0  # of partitions of the topic, 0 as long as it is not known
        self._numbers: dict[str, int] = {}  # group → partition

    def on_partition(self, group_id: str, action: Callable[..., Result], *given: Any, make: bool = False) -> Result | None:
        """Runs an action on the partition of a group. Returns None if the topic does not exist and must not be created."""
        tries = TRIES
        while True:
            try:
                partition = self._partitions.get(self._numbers.get(group_id, -1)) or self._partition_of(group_id)
                if partition is None and make:
                    self.create()
                    partition = self._partition_of(group_id)
                return None if partition is None else action(partition, *given)
            except (UnknownTopicOrPartitionError, ClosedError) as error:  # deleted, or not made yet
                tries -= 1
                if not tries:
                    if make or isinstance(error, ClosedError):
                        raise
                    return None  # nothing can be committed where there is no partition
                self.forget()

    def _partition_of(self, group_id: str) -> OffsetsPartition | None:
        number = self._numbers.get(group_id)
        if number is None:
            count = self._count
            if not count:
                ids = self.partition_ids()
                if not ids:
                    return None
                count = self._count = ids[-1] + 1
            number = self._number_of(group_id, count)
        with self._guard:
            if len(self._numbers) >= limits.GROUP_NUMBERS:
                self._numbers.clear()  # many groups may not exist any more
            self._numbers[group_id] = number
            return self._opened(number)

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

    def forget(self) -> None:
        """Forgets the partitions: the topic was deleted, and may have been created again."""
        super().forget()
        with self._guard:
            self._count = 0
            self._numbers.clear()
