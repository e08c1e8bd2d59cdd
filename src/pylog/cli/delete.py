"""`pylog delete`: deletes topics."""

from __future__ import annotations

from pylog.cli.app import TOPICS, Json, StorePath, TopicNames, Yes, command
from pylog.cli.confirm import confirm
from pylog.cli.output import print_json, print_line, size_text
from pylog.cli.stores import chosen_topics, logs_of, reading, writing


@command(TOPICS)
def delete(store: StorePath, topic: TopicNames, /, *, yes: Yes = False, json: Json = False) -> None:
    """Deletes topics with all of their records, for good.

    Args:
        store: the directory; no broker may be running on it.
        topic: which; several may be named.
        yes: do it without asking.
        json: print one JSON document.

    Examples:
        pylog delete shop orders
        pylog delete shop orders returns --yes
    """
    with reading(store) as opened:
        found = chosen_topics(opened, topic)
        states = [log.look() for each in found for log in logs_of(opened, each)]
    names, partitions = [each.name for each in found], sum(each.partitions for each in found)
    offsets = sum(state.end_offset - state.start_offset for state in states)
    size = sum(state.size_of(segment) for state in states for _, segment in state.segments)
    what = f"topic{'s' * (len(names) != 1)} {', '.join(names)}"
    confirm(f"This deletes the {what} for good: {partitions} partitions, {offsets} offsets, {size_text(size)}", yes=yes)
    with writing(store) as opened:
        for name in names:
            opened.delete_topic(name)
    if json:
        print_json({"deleted": names})
    else:
        print_line(f"Deleted {what}.")
