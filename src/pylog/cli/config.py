"""`pylog config`: shows or changes the options of a topic."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from pylog.cli.app import TOPICS, Json, StorePath, TopicName, command
from pylog.cli.exits import UsageError
from pylog.cli.output import Column, print_json, print_table
from pylog.cli.settings import option_name, parsed_options, settings_of
from pylog.cli.stores import reading, writing

_COLUMNS = (Column("option"), Column("value"), Column("changed"))
Settings = Annotated[list[str] | None, Parameter(name=["--set", "-s"])]
Names = Annotated[list[str] | None, Parameter(name=["--reset", "-r"])]


@command(TOPICS)
def config(store: StorePath, topic: TopicName, /, *, change: Settings = None, reset: Names = None, json: Json = False) -> None:
    """Shows the options of a topic, or changes some of them.

    New options apply at once in every process: to its next append, tick or compaction. If a topic becomes compacted, the next
    compaction deletes its records without a key.

    Args:
        store: Path of the log directory. To change options, no broker may be running on it.
        topic: Name of the topic.
        change: Option and new value, such as retention.ms=86400000. May be repeated.
        reset: Option to set back to Kafka's default. May be repeated.
        json: Print one JSON document.

    Examples:
        pylog config shop orders
        pylog config shop orders --set retention.ms=86400000 --set segment.ms=3600000
        pylog config shop orders --reset retention.ms
    """
    changes = parsed_options(change or ())
    defaults: dict[str, Any] = dict.fromkeys(map(option_name, reset or ()))
    if changes.keys() & defaults.keys():
        raise UsageError(f"--set and --reset both name {', '.join(sorted(changes.keys() & defaults.keys()))}; give one of them")
    with reading(store) as opened:
        found = opened.topic(topic)
    if changes or defaults:
        with writing(store) as opened:
            found = opened.alter_topic(topic, **changes, **defaults)
    settings = settings_of(found.config)
    if json:
        print_json({"topic": topic, "config": {each["option"]: each["value"] for each in settings}})
    else:
        print_table(_COLUMNS, settings)
