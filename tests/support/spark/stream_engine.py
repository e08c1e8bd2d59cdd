"""Spark's micro-batch engine in small: the calls it makes, in its order, and its checkpoint. For tests without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from pyspark.sql.streaming.datasource import ReadAllAvailable

from pylog.clock import Clock
from pylog.spark.options import stream_options
from pylog.spark.reader import read_slice
from pylog.spark.stream import PylogStreamReader

Place = tuple[str, int, int]  # topic, partition, offset


class Engine:
    """One run of a query. Another one with the same checkpoint goes on where it was.

    Args:
        path: of the store.
        checkpoint: the ends of the micro-batches that were planned, as text, and how many of them are done.
        options: of the source; `subscribe` is `orders` by default.
    """

    def __init__(
        self, path: Path | str, checkpoint: Checkpoint | None = None, clock: Clock | None = None, **options: str
    ) -> None:
        strategies = {"subscribePattern", "assign"} & options.keys()
        given = {"path": str(path)} | ({} if strategies else {"subscribe": "orders"}) | options
        self.options = stream_options(given)
        self.reader = PylogStreamReader(self.options, clock)
        self.checkpoint = Checkpoint() if checkpoint is None else checkpoint

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()

    def trigger(self, *, once: bool = False) -> list[Place] | None:
        """The records of the next micro-batch, None when there is none."""
        log = self.checkpoint
        if log.done == len(log.ends):
            if log.done:
                self.reader.commit(json.loads(log.ends[-1]))
            if not self.plan(once=once):
                return None
        found = self.run()
        log.done += 1
        return found

    def plan(self, *, once: bool = False) -> bool:
        """Decides where the next micro-batch ends, and notes it; whether there is one."""
        start = self._start(len(self.checkpoint.ends))
        limit = ReadAllAvailable() if once else self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
        if end == start and self.checkpoint.ends:
            return False
        self.checkpoint.ends.append(end)
        return True

    def run(self) -> list[Place]:
        """The records of the micro-batch that is not done."""
        number = self.checkpoint.done
        parts = self.reader.partitions(json.loads(self._start(number)), json.loads(self.checkpoint.ends[number]))
        found = []
        for part in parts:
            for batch in read_slice(part, self.options.scan):  # type: ignore[arg-type]
                rows = batch.select(["topic", "partition", "offset"]).to_pydict()
                found += list(zip(*rows.values(), strict=True))
        return sorted(found)

    def _start(self, number: int) -> str:
        return self.checkpoint.ends[number - 1] if number else json.dumps(self.reader.initialOffset())

    def available_now(self) -> list[list[Place]]:
        """The micro-batches until the query ends by itself."""
        self.reader.prepareForTriggerAvailableNow()
        return list(iter(self.trigger, None))


class Checkpoint:
    """What survives a run."""

    def __init__(self, *ends: dict[str, Any]) -> None:
        self.ends = [json.dumps(end) for end in ends]
        self.done = len(ends)

    @property
    def offsets(self) -> dict[str, dict[str, int]]:
        """The last end, as the connector would have written it."""
        return {topic: offsets for topic, offsets in json.loads(self.ends[-1]).items() if "@" not in topic}


def places(topic: str, partition: int, offsets: range) -> list[Place]:
    return [(topic, partition, offset) for offset in offsets]
