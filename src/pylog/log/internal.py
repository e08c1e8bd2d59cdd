"""The log of one of Kafka's internal topics: anybody may read it, and only the part of pylog that owns its records appends."""

from __future__ import annotations

from typing import Any, NoReturn

from pylog.clock import Clock
from pylog.config import Durability
from pylog.directory.checkpoints import INTERNAL_TOPICS
from pylog.errors import InvalidTopicError
from pylog.log.log import Log
from pylog.log.recovery.loaded import Source
from pylog.log.writing.partition_writer import LogContext
from pylog.record.types import Acknowledgement


def opened(source: Source, clock: Clock, surroundings: LogContext) -> Log:
    """Opens the log of a partition: of an internal topic an `InternalLog`."""
    kind = InternalLog if source.partition.topic in INTERNAL_TOPICS else Log
    return kind(source, clock, surroundings)


class InternalLog(Log):
    """A `Log` whose public writing methods refuse. `append_own` is for the owner of the topic's records.

    A Kafka broker refuses clients that produce to its internal topics, too: one record of another kind can hide all others.
    Retention, compaction, flushing and closing are as for every log.
    """

    def append(self, *_: Any, **__: Any) -> NoReturn:
        """Refuses.

        Raises:
            InvalidTopicError: always; nothing was written.
        """
        topic = self.partition.topic
        raise InvalidTopicError(
            f"{topic} is one of Kafka's internal topics: only the store itself adds and deletes its records. Commit offsets "
            "with Store.offsets, and delete or reset a group with Store.group",
            path=self._source.directory,
        )

    append_many = append
    append_arrow = append
    append_batch = append
    splice = append
    delete_records = append
    truncate = append

    def append_own(self, items: Any, *, durability: Durability | None, atomic: bool) -> Acknowledgement:
        """Appends records of the topic's own kind. As `Log.append_batch`."""
        return super().append_batch(items, durability=durability, atomic=atomic)
