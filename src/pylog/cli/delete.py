"""`pylog delete`: deletes topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pylog.cli.app import TOPICS, Json, StorePath, TopicNames, Yes, command
from pylog.cli.confirm import confirm
from pylog.cli.exits import FAILED, complain
from pylog.cli.output import print_json, print_line
from pylog.cli.stores import logs_of, reading, writing
from pylog.errors import UnknownTopicOrPartitionError
from pylog.text import size_text

if TYPE_CHECKING:
    from pylog.store import Store
    from pylog.topics.topic import Topic


@command(TOPICS)
def delete(store: StorePath, topic: TopicNames, /, *, yes: Yes = False, json: Json = False) -> int | None:
    """Deletes topics with all of their records, for good.

    Those that are not there, as when an earlier call was killed halfway, are told of, and the others deleted.

    Args:
        store: the directory; no broker may be running on it.
        topic: which; several may be named.
        yes: do it without asking.
        json: print one JSON document.

    Examples:
        pylog delete shop orders
        pylog delete shop orders returns --yes
    """
    failed: dict[str, str] = {}
    with reading(store) as opened:
        found = _there(opened, topic, failed)
        what = _told(opened, found)
    for name, why in failed.items():  # before anything is asked: it may be a slip of the pen
        complain(f"Topic '{name}' cannot be deleted: {why}")
    if found:
        confirm(f"This deletes the {what}", yes=yes)
        _delete(store, found, failed)
    deleted = [each.name for each in found if each.name not in failed]
    if json:
        print_json({"deleted": deleted, "failed": failed})
    elif deleted:
        print_line(f"Deleted {_named(deleted)}.")
    return FAILED if failed else None


def _there(store: Store, names: Iterable[str], failed: dict[str, str]) -> list[Topic]:
    """The topics of those names; why one is not among them goes into `failed`."""
    found = []
    for name in dict.fromkeys(names):
        try:
            found.append(store.topic(name))
        except UnknownTopicOrPartitionError as error:
            failed[name] = str(error)
    return found


def _delete(path: str, found: Iterable[Topic], failed: dict[str, str]) -> None:
    """Deletes topics; one that somebody else has deleted meanwhile keeps nobody from the others."""
    with writing(path) as opened:
        for topic in found:
            try:
                opened.delete_topic(topic.name)
            except UnknownTopicOrPartitionError as error:
                failed[topic.name] = str(error)
                complain(f"Topic '{topic.name}' cannot be deleted: {error}")


def _named(names: list[str]) -> str:
    return f"topic{'s' * (len(names) != 1)} {', '.join(names)}"


def _told(store: Store, found: list[Topic]) -> str:
    """What goes, for a person."""
    states = [log.look() for topic in found for log in logs_of(store, topic)]
    offsets = sum(state.end_offset - state.start_offset for state in states)
    size = sum(state.size_of(segment) for state in states for _, segment in state.segments)
    partitions = sum(topic.partitions for topic in found)
    named = _named([topic.name for topic in found])
    return f"{named} for good: {partitions} partitions, {offsets} offsets, {size_text(size)}"
