"""Our own `test.testutil`, `test.fixtures` and `test.integration.fixtures`: the helpers that kafka-python's tests import."""

from __future__ import annotations

import random
import string
import time
from collections.abc import Iterable
from typing import Any, Final, Self

VERSION: Final = (4, 3)  # the broker whose results the layer has


def random_string(length: int) -> str:
    """Returns letters."""
    return "".join(random.choices(string.ascii_letters, k=length))


def env_kafka_version() -> tuple[int, ...]:
    """Returns the version of the broker under test."""
    return VERSION


def maybe_skip_unsupported_compression(compression_type: object) -> None:
    """Does nothing: every codec is there."""


def assert_message_count(messages: Iterable[Any], num_messages: int) -> None:
    """Asserts the number of records, and that no two have the same key and value."""
    found = [(message.key, message.value) for message in messages]
    assert len(found) == num_messages
    assert len(set(found)) == num_messages


def create_topics(broker: Any, topic_names: Iterable[str], num_partitions: int | None = None, **_: Any) -> None:
    """Creates topics on a broker of `support.others.plugin`."""
    broker.create_topics(topic_names, num_partitions)


class Timer:
    """Measures a block: `interval` in seconds."""

    def __enter__(self) -> Self:
        self.start = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.interval = time.monotonic() - self.start
