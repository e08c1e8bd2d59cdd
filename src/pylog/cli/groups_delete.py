"""`pylog groups delete` and `delete-offsets`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable

from pylog.cli.app import CONSUMERS, GroupName, GroupNames, Json, StorePath, TopicScope, Yes, command
from pylog.cli.confirm import confirm
from pylog.cli.exits import FAILED, UsageError, complain
from pylog.cli.groups import groups, kafka_lines
from pylog.cli.groups_reset import parse_scope
from pylog.cli.output import print_json, print_line
from pylog.cli.stores import in_commands, naming_groups, reading, writing
from pylog.errors import GroupIdNotFoundError, NonEmptyGroupError


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


@command(CONSUMERS, under=groups)
def delete(store: StorePath, group: GroupNames, /, *, yes: Yes = False, json: Json = False) -> int | None:
    """Deletes groups: their committed offsets and the metadata of their members.

    Args:
        store: Path of the log directory. No broker may be running on it.
        group: Names of one or more groups.
        yes: Do not ask for confirmation.
        json: Print one JSON document.

    Examples:
        pylog groups delete shop billing
        pylog groups delete shop billing shipping --yes
    """
    names = list(dict.fromkeys(group))
    confirm(f"This deletes the consumer group{'s' * (len(names) != 1)} {_listed(names)} with all committed offsets", yes=yes)
    failed: dict[str, str] = {}
    with writing(store) as opened:
        for name in names:
            try:
                opened.group(name).delete()
            except (GroupIdNotFoundError, NonEmptyGroupError) as error:
                failed[name] = in_commands(error, store)
    deleted = [name for name in names if name not in failed]
    if json:
        print_json({"deleted": deleted, "failed": failed})
    elif deleted:
        print_line(f"Deletion of requested consumer groups ({_listed(deleted)}) was successful.")
    for name, why in failed.items():
        complain(f"Group '{name}' could not be deleted: {why}")
    return FAILED if failed else None


@command(CONSUMERS, under=groups)
def delete_offsets(
    store: StorePath, group: GroupName, /, *, topic: TopicScope = None, yes: Yes = False, json: Json = False
) -> None:
    """Deletes the committed offsets of a group for some topics or partitions.

    Args:
        store: Path of the log directory. No broker may be running on it.
        group: Name of the group.
        topic: Name of a topic, or some of its partitions, such as orders:0,1. May be repeated.
        yes: Do not ask for confirmation.
        json: Print one JSON document.

    Examples:
        pylog groups delete-offsets shop billing --topic returns
        pylog groups delete-offsets shop billing --topic orders:0,1 --yes
    """
    scope = parse_scope(topic)
    if scope is None:
        raise UsageError("--topic is required, such as --topic orders or --topic orders:0,1")
    with reading(store) as opened, naming_groups(store):
        opened.group(group).describe()  # raises if the group does not exist
    names: Collection[str] = list(topic or ())
    confirm(f"This deletes the committed offsets of the group '{group}' for {', '.join(names)}", yes=yes)
    with writing(store) as opened:
        deleted = sorted(opened.group(group).delete_offsets(scope))
    if json:
        print_json({"group": group, "deleted": [partition._asdict() for partition in deleted]})
        return
    print_line(f"Request succeed for deleting offsets with topic {', '.join(names)} group {group}")
    rows = [("TOPIC", "PARTITION", "STATUS"), *((*partition, "Successful") for partition in deleted)]
    sys.stdout.write(kafka_lines((30, 15, 15), rows))
