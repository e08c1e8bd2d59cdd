"""The topic `__consumer_offsets` as a whole: which of its partitions has the records of a group."""

from __future__ import annotations

from contextlib import nullcontext, suppress

from pylog.config import OffsetsConfig
from pylog.errors import CorruptionError, IllegalStateError
from pylog.fs import FileSystem, join
from pylog.internal_topic import InternalTopic
from pylog.log_manager import LogManager
from pylog.offsets.arguments import checked_group
from pylog.offsets.partition import OffsetsPartition
from pylog.offsets.schema import OFFSETS_TOPIC, group_name, partition_of_group
from pylog.topics.signs import META_PROPERTIES


class OffsetsTopic(InternalTopic[OffsetsPartition]):
    """Opens the partitions of `__consumer_offsets`, creates the topic, and finds the partition of a group.

    Args:
        manager: the store's manager.
        config: options of the topic.
        fs: the store's.
    """

    def __init__(self, manager: LogManager, config: OffsetsConfig, fs: FileSystem) -> None:
        options = {"cleanup_policy": "compact", "segment_bytes": config.topic_segment_bytes}
        super().__init__(manager, OFFSETS_TOPIC, OffsetsPartition, config.topic_num_partitions, **options)
        self._fs = fs

    def _number_of(self, group_id: str, count: int) -> int:
        """Returns the partition that has a group's records, or would have them.

        A broker of several, or with several directories, has some of the partitions here and some elsewhere, and how many there
        are is not recorded. So the actual partitions of its groups decide, before the partitions computed from their names.
        """
        name = checked_group(group_id)  # its number can be computed only then
        number = partition_of_group(group_id, count)
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
            raise IllegalStateError(
                f"{message}: pylog cannot tell which partition the group belongs to; use the broker's directory that has it",
                path=self._manager.path,
            )
        return number

    def _is_whole(self, count: int) -> bool:
        """Returns whether all partitions are present, judged by their numbers and the groups in them."""
        for number, partition in enumerate(self.all_partitions()):
            if partition.number != number:
                return False
            with suppress(CorruptionError), partition.image() as image:
                if any(partition_of_group(group_name(name), count) != number for name in image.groups):
                    return False
        return True
