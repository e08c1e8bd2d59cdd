"""`pylog create`: creates a topic."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pylog.arguments import checked_int
from pylog.cli.app import TOPICS, Json, StorePath, TopicName, command
from pylog.cli.exits import CommandFailed, complain
from pylog.cli.output import print_json, print_line
from pylog.cli.settings import kafka_name, parsed_options
from pylog.cli.stores import writing
from pylog.errors import TopicAlreadyExistsError
from pylog.limits import MAX_PARTITIONS
from pylog.text import counted
from pylog.topics.retention_text import retention_text

ConfigOptions = Annotated[list[str] | None, Parameter(name=["--config", "-c"])]


@command(TOPICS)
def create(
    store: StorePath, topic: TopicName, /, *, partitions: int = 1, config: ConfigOptions = None, json: Json = False
) -> None:
    """Creates a topic, and the log directory if it does not exist.

    Args:
        store: Path of the log directory. No broker may be running on it.
        topic: Name of the topic: 1 to 249 of the characters a-z A-Z 0-9 . _ -
        partitions: Number of partitions.
        config: Option of the topic, such as retention.ms=86400000. May be repeated.
        json: Print one JSON document.

    Examples:
        pylog create shop orders --partitions 4
        pylog create shop prices -c cleanup.policy=compact -c segment.bytes=16777216
    """
    options = parsed_options(config or ())
    count = checked_int("--partitions", partitions, 1, MAX_PARTITIONS)
    with writing(store, make=True) as opened:
        try:
            made = opened.create_topic(topic, count, **options)
        except TopicAlreadyExistsError as error:
            raise CommandFailed(f"topic {topic!r} exists already") from error
    if json:
        changed = {kafka_name(name): value for name, value in made.config.changed().items()}
        print_json({"topic": made.name, "id": made.id, "partitions": made.partition_count, "config": changed})
    else:
        print_line(f"Created topic {made.name} with {counted(made.partition_count, 'partition')}.")
        if "delete" in made.config.cleanup_policy and made.config.retention_ms >= 0:
            advice = f"pylog config {store} {made.name} --set retention.ms=-1"
            complain(f"{retention_text(made.config)}; to keep all: {advice}")
