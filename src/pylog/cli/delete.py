"""`pylog delete`: deletes topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pylog.cli.app import TOPICS, Flag, Json, StorePath, TopicsGiven, Yes, command
from pylog.cli.confirm import confirm
from pylog.cli.exits import FAILED, complain
from pylog.cli.output import print_json, print_line
from pylog.cli.stores import answers_of, reading, writing
from pylog.errors import InvalidTransactionStateError, ObjectStoreError, UnknownTopicOrPartitionError
from pylog.text import counted, size_text

if TYPE_CHECKING:
    from pylog.store import Store
    from pylog.topics.topic import Topic


@command(TOPICS)
def delete(
    store: StorePath,
    topic: TopicsGiven,
    /,
    *,
    force: Flag = False,
    keep_archive: Flag = False,
    yes: Yes = False,
    json: Json = False,
) -> int | None:
    """Deletes topics and all of their records permanently.

    A topic that does not exist is reported, and the others are deleted.

    Args:
        store: Path of the log directory. No broker may be running on it.
        topic: Names of one or more topics.
        force: Abort open transactions that write to the topics. Without it, such a topic is reported, and stays.
        keep_archive: Keep the objects of the topics in the archive. Records that are not archived are deleted.
        yes: Do not ask for confirmation.
        json: Print one JSON document.

    Examples:
        pylog delete shop orders
        pylog delete shop orders returns --yes
        pylog delete shop orders --force
    """
    failed: dict[str, str] = {}
    with reading(store) as opened:
        found = _existing(opened, topic, failed)
        what = _summary_of(opened, found)
    for name, why in failed.items():  # before the confirmation: the name may be mistyped
        complain(f"Topic '{name}' cannot be deleted: {why}")
    if found:
        confirm(f"This deletes the {what}", yes=yes)
        _delete(store, found, failed, force=force, keep_archive=keep_archive)
    deleted = [each.name for each in found if each.name not in failed]
    if json:
        print_json({"deleted": deleted, "failed": failed})
    elif deleted:
        print_line(f"Deleted {_named(deleted)}.")
    return FAILED if failed else None


def _existing(store: Store, names: Iterable[str], failed: dict[str, str]) -> list[Topic]:
    """Returns the topics with these names. Adds the reason for each missing one to `failed`."""
    found = []
    for name in dict.fromkeys(names):
        try:
            found.append(store.topic(name))
        except UnknownTopicOrPartitionError as error:
            failed[name] = str(error)
    return found


def _delete(path: str, found: Iterable[Topic], failed: dict[str, str], *, force: bool, keep_archive: bool) -> None:
    """Deletes topics. One that another process deletes at the same time, or that a transaction needs, does not stop the rest."""
    with writing(path) as opened:
        for topic in found:
            try:
                opened.delete_topic(topic.name, force=force, keep_archive=keep_archive)
            except (UnknownTopicOrPartitionError, InvalidTransactionStateError, ObjectStoreError) as error:
                failed[topic.name] = str(error)
                complain(f"Topic '{topic.name}' cannot be deleted: {error}")


def _named(names: list[str]) -> str:
    return f"topic{'s' * (len(names) != 1)} {', '.join(names)}"


def _summary_of(store: Store, found: list[Topic]) -> str:
    """Returns a description of what will be deleted."""
    states = [state for topic in found for state in answers_of(store, topic, lambda log: log.snapshot())[0]]
    offsets = sum(state.end_offset - state.start_offset for state in states)
    size = sum(state.size_of(segment) for state in states for _, segment in state.segments)
    partitions = sum(topic.partition_count for topic in found)
    named = _named([topic.name for topic in found])
    return f"{named} permanently: {counted(partitions, 'partition')}, {counted(offsets, 'offset')}, {size_text(size)}"
