"""Describes several groups: their records first, and then each partition once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pylog.errors import ClosedError, CorruptionError, PylogError, UnsupportedFormatError
from pylog.groups.description import GroupDescription, KnownGroup, known, with_ends
from pylog.groups.state import topic_info
from pylog.log_manager import LogManager
from pylog.offsets.offset_manager import OffsetManager
from pylog.record.types import TopicPartition

_OF_A_GROUP: Final = (CorruptionError, UnsupportedFormatError)  # errors that concern one group, and hide no other
_Ends = dict[TopicPartition, tuple[int, int] | None]


class DescribedGroups(NamedTuple):
    """Several groups.

    Attributes:
        groups: the description of each group that exists, by name; or the error of one whose records are damaged.
        unreadable: why the logs of partitions cannot be read. Their ends are unknown, as those of deleted partitions.
    """

    groups: dict[str, GroupDescription | PylogError]
    unreadable: dict[TopicPartition, PylogError]


def topic_names(manager: LogManager) -> dict[bytes, str]:
    """Returns the names of topics by their ids. Cost: one directory listing."""
    return {topic_info(topic).topic_id: name for name, topic in manager.topics().items()}


def known_group(offsets: OffsetManager, group_id: str, names: Mapping[bytes, str]) -> KnownGroup | None:
    """Returns the content of a group's records; None if there is no such group.

    Args:
        offsets: the store's committed offsets.
        group_id: the group.
        names: `topic_names`.
    """
    return offsets.read_group(group_id, lambda view: known(group_id, view.image, names))


def described_groups(manager: LogManager, offsets: OffsetManager, group_ids: Iterable[str]) -> DescribedGroups:
    """Describes groups, each as `Group.describe` does, but with one refresh of each partition for all of them.

    A partition that cannot be read hides neither the groups that have read it nor their other partitions. A group that does not
    exist is left out.
    """
    names = topic_names(manager)
    found = {group_id: _known_or_error(offsets, group_id, names) for group_id in group_ids}
    ends, unreadable = _ends_of(
        manager, {each for state in found.values() if isinstance(state, KnownGroup) for each in state.partitions()}
    )
    groups = {
        group_id: with_ends(state, {each: ends[each] for each in state.partitions()}) if isinstance(state, KnownGroup) else state
        for group_id, state in found.items()
        if state is not None
    }
    return DescribedGroups(groups, unreadable)


def _ends_of(manager: LogManager, wanted: set[TopicPartition]) -> tuple[_Ends, dict[TopicPartition, PylogError]]:
    """Returns the ends of partitions, and the errors of those that cannot be read."""
    try:
        return manager.start_and_end_offsets(wanted), {}
    except ClosedError:
        raise
    except PylogError:
        return _ends_of_each(manager, wanted)


def _ends_of_each(manager: LogManager, wanted: set[TopicPartition]) -> tuple[_Ends, dict[TopicPartition, PylogError]]:
    ends: _Ends = dict.fromkeys(wanted)
    unreadable = dict[TopicPartition, PylogError]()
    for partition in sorted(wanted):
        try:
            ends |= manager.start_and_end_offsets([partition])
        except ClosedError:
            raise
        except PylogError as error:
            unreadable[partition] = error
    return ends, unreadable


def _known_or_error(offsets: OffsetManager, group_id: str, names: Mapping[bytes, str]) -> KnownGroup | PylogError | None:
    try:
        return known_group(offsets, group_id, names)
    except _OF_A_GROUP as error:
        return error
