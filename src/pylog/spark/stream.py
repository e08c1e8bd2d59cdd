"""A streaming read as Spark sees it: micro-batches, each from one place in the stream to another.

Spark keeps the places in its checkpoint, and a query goes on from there exactly. A reader lives in one process of the driver
for as long as its query runs; a copy without anything open travels to the executors and reads slices there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pylog.clock import Clock, SystemClock
from pylog.errors import PylogError
from pylog.spark.driver import Driver, JsonObject
from pylog.spark.options import StreamOptions
from pylog.spark.planner import LogSlice

if TYPE_CHECKING:
    import pyarrow as pa


class PylogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, and reads their slices on the executors.

    Args:
        options: the read's options.
        clock: for `maxTriggerDelay`.
    """

    def __init__(self, options: StreamOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._scan = options.scan
        self._driver = Driver(options, clock or SystemClock())

    def __getstate__(self) -> dict[str, object]:
        """Returns the state that is sent to executors with every task."""
        return {"_scan": self._scan}

    def initialOffset(self) -> JsonObject:
        """Returns where a query without a checkpoint begins; see `Driver.initial`."""
        return self._driver.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns a limit that the options set. Spark passes it back, or another one if the trigger does not support it."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    def latestOffset(self, start: JsonObject, limit: ReadLimit) -> JsonObject:
        """Returns where the micro-batch that begins at `start` ends; see `Driver.next_end`."""
        return self._driver.next_end(start, limited=not isinstance(limit, ReadAllAvailable))

    def prepareForTriggerAvailableNow(self) -> None:
        """Ends the query where the topics end now."""
        self._driver.end_here()

    def reportLatestOffset(self) -> JsonObject | None:
        """Returns where the topics ended when the last micro-batch was decided: Spark shows it next to the micro-batch's end."""
        return self._driver.latest()

    def partitions(self, start: JsonObject, end: JsonObject) -> list[InputPartition]:
        """Returns the slices of a micro-batch; see `Driver.plan`."""
        return list(self._driver.plan(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the batches of one slice. Raises as `pylog.spark.reader.read_slice`."""
        from pylog.spark.reader import read_slice

        assert isinstance(partition, LogSlice)
        return read_slice(partition, self._scan)

    def commit(self, end: JsonObject) -> None:
        """Commits the end of a finished micro-batch for the group, if there is one."""
        self._driver.commit(end)

    def stop(self) -> None:
        """Closes everything."""
        self._driver.close()


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises an error as soon as a query starts: Spark passes on what a reader raises, but not what is raised without a reader.

    Args:
        error: the reason why there is no other reader.
    """

    def __init__(self, error: PylogError) -> None:
        self._error = error

    def initialOffset(self) -> JsonObject:
        """Raises the error."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        """Raises the error."""
        raise self._error

    def latestOffset(self, *_: object) -> JsonObject:
        """Raises the error."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:
        """Raises the error."""
        raise self._error

    def partitions(self, *_: object) -> list[InputPartition]:
        """Raises the error."""
        raise self._error

    def read(self, *_: object) -> Iterator[pa.RecordBatch]:
        """Raises the error."""
        raise self._error
