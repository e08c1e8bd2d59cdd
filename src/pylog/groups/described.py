"""Describes several groups: their records first, and then each partition once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pylog.errors import CorruptionError, PylogError, UnsupportedFormatError
from pylog.groups.description import GroupDescription, KnownGroup, known, with_ends
from pylog.groups.state import topic_info
from pylog.log_manager import LogManager
from pylog.offsets.offset_manager import OffsetManager

_OF_A_GROUP: Final = (CorruptionError, UnsupportedFormatError)  # errors that concern one group, and hide no other


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


def described_groups(
    manager: LogManager, offsets: OffsetManager, group_ids: Iterable[str]
) -> Iterator[tuple[str, GroupDescription | PylogError]]:
    """Describes groups, each as `Group.describe` does, but with one refresh of each partition for all of them.

    Yields:
        Each name with its group's description, or with the error of a group whose records or logs are damaged. A group that does
        not exist is left out.
    """
    names = topic_names(manager)
    found = [(group_id, _known_or_error(offsets, group_id, names)) for group_id in group_ids]
    wanted = {each for _, state in found if isinstance(state, KnownGroup) for each in state.partitions()}
    try:
        ends = manager.start_and_end_offsets(wanted)
    except _OF_A_GROUP:  # one of the logs is damaged, and concerns only its groups
        ends = None
    for group_id, state in found:
        if isinstance(state, KnownGroup):
            known_ends = None if ends is None else {partition: ends[partition] for partition in state.partitions()}
            yield group_id, _with_own_ends(manager, state) if known_ends is None else with_ends(state, known_ends)
        elif state is not None:
            yield group_id, state


def _known_or_error(offsets: OffsetManager, group_id: str, names: Mapping[bytes, str]) -> KnownGroup | PylogError | None:
    try:
        return known_group(offsets, group_id, names)
    except _OF_A_GROUP as error:
        return error


def _with_own_ends(manager: LogManager, state: KnownGroup) -> GroupDescription | PylogError:
    try:
        return with_ends(state, manager.start_and_end_offsets(state.partitions()))
    except _OF_A_GROUP as error:
        return error
