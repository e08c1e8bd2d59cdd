"""`AsyncLog`: one partition for the coroutines of an event loop."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from pylog import limits
from pylog.aio.threads import AsyncIteration, InThreads, StoreThreads, in_chunks, in_thread
from pylog.arguments import check_kind
from pylog.consumer.options import checked_timeout
from pylog.log.log import Log, follow_in_slices
from pylog.record.decoder import DEFAULT_COLUMNS
from pylog.record.types import Record

_SLICE_MS: Final = 200  # one slice of a wait: the longest that the end of an iteration waits for its thread


class AsyncLog(InThreads[Log]):
    """A `Log` for coroutines. Created by `AsyncStore.log`. Each call runs in one of the store's threads, in no fixed order.

    Await an append before the next one to keep their order. `run` calls the other methods and properties of the log. Errors are
    those of `Log`, with `ObjectStoreError` for archived records of a tiered topic.

    Attributes:
        partition: the topic's name and the number of the partition.

    >>> import asyncio, pylog.aio, tempfile
    >>> async def first(path):
    ...     async with pylog.aio.open(path) as store:
    ...         await store.create_topic("orders")
    ...         log = await store.log("orders")
    ...         await log.append(b"paid")
    ...         async for batch in log.follow(0):
    ...             return batch.num_rows
    >>> asyncio.run(first(tempfile.mkdtemp()))
    1
    """

    def __init__(self, log: Log, threads: StoreThreads) -> None:
        check_kind("log", log, Log, "a Log; Store.log returns one")
        super().__init__(log, threads)
        self.partition = log.partition

    append = in_thread(Log.append)
    append_many = in_thread(Log.append_many)
    append_arrow = in_thread(Log.append_arrow)
    flush = in_thread(Log.flush)
    delete_records = in_thread(Log.delete_records)
    truncate = in_thread(Log.truncate)
    read = in_thread(Log.read)
    read_many = in_thread(Log.read_many)
    offset_for_timestamp = in_thread(Log.offset_for_timestamp)

    async def start_offset(self) -> int:
        """Returns the log start offset: see `Log.start_offset`."""
        return await self.run(lambda log: log.start_offset)

    async def end_offset(self) -> int:
        """Returns the log end offset, which the next record will get: see `Log.end_offset`."""
        return await self.run(lambda log: log.end_offset)

    def records(
        self, start: int | None = None, end: int | None = None, *, isolation_level: str = "read_uncommitted", verify: bool = True
    ) -> AsyncIteration[Record]:
        """Returns an asynchronous iterator over the records of a range: see `Log.records`.

        Raises:
            PylogError: as `Log.records`, at the first step.

        Cost: a thread, which reads hundreds of records at a time.
        """
        begin = partial(self._wrapped.records, start, end, isolation_level=isolation_level, verify=verify)
        return AsyncIteration(partial(in_chunks, begin))

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        isolation_level: str = "read_uncommitted",
        max_rows: int = limits.SCAN_ROWS,
        verify: bool = True,
    ) -> AsyncIteration[pa.RecordBatch]:
        """Returns an asynchronous iterator over the Arrow batches of a range: see `Log.scan`.

        Raises:
            PylogError: as `Log.scan`, at the first step.

        Cost: a thread.
        """
        scan = partial(self._wrapped.scan, columns=columns, isolation_level=isolation_level, max_rows=max_rows, verify=verify)
        return AsyncIteration(partial(in_chunks, partial(scan, start, end), 1))

    def follow(
        self,
        start: int | None = None,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        isolation_level: str = "read_uncommitted",
        max_rows: int = limits.SCAN_ROWS,
        timeout_ms: float | None = None,
        durable: bool = False,
    ) -> AsyncIteration[pa.RecordBatch]:
        """Returns an asynchronous iterator over Arrow batches from `start` on, without end: see `Log.follow`.

        Args:
            start: an offset; by default, the log end at the first step.
            columns: as for `Log.scan`.
            isolation_level: as for `Log.scan`.
            max_rows: as for `Log.scan`.
            timeout_ms: end after this many milliseconds without a new record; None never ends.
            durable: true to return only records that would survive a power loss.

        Raises:
            PylogError: as `Log.follow`, at a step.

        Cost: a thread, while it is iterated.
        """
        options = {"columns": columns, "isolation_level": isolation_level, "max_rows": max_rows, "durable": durable}
        timeout = math.inf if timeout_ms is None else checked_timeout("timeout_ms", timeout_ms)
        return AsyncIteration(lambda: _followed(self._wrapped, timeout, {"start": start, **options}))


def _followed(log: Log, timeout_ms: float, options: dict[str, object]) -> Iterator[list[pa.RecordBatch]]:
    """Yields lists of one Arrow batch, and an empty one after each slice without a new record."""
    slices = math.inf if timeout_ms == math.inf else max(1, math.ceil(timeout_ms / _SLICE_MS))
    slice_ms = _SLICE_MS if slices == math.inf else timeout_ms / slices
    quiet = 0
    for batch in follow_in_slices(log, slice_ms, **options):
        quiet = quiet + 1 if batch is None else 0
        if quiet >= slices:
            return
        yield [] if batch is None else [batch]
