"""One task of a read: opens a partition for reading, scans its slice, and yields Arrow batches of Spark's schema.

Its memory does not depend on the size of the slice: a batch is at most 65,536 rows or about 16 MiB. The columns `topic` and
`partition` are slices of one constant array; keys, values and offsets are the scan's own arrays, not copied again.

The task reads what was planned. Records deleted since then are an error or, with `failOnDataLoss=false`, a warning; they are
never skipped silently.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import pylog
from pylog import limits
from pylog.clock import SystemClock
from pylog.errors import (
    InvalidRecordError,
    NotALogDirectoryError,
    OffsetOutOfRangeError,
    PylogError,
    StorageFailedError,
    UnknownTopicOrPartitionError,
)
from pylog.fs import FileSystem
from pylog.objects.layout import NO_TOPIC_ID
from pylog.objects.opening import open_objects
from pylog.options import StoreOptions
from pylog.snapshot import Snapshot
from pylog.spark.access import Access
from pylog.spark.bounds import end_of, report_data_loss
from pylog.spark.options import ScanOptions
from pylog.spark.partitions import topic_id
from pylog.spark.planner import LogSlice
from pylog.spark.roots import tiered_directory
from pylog.spark.schema import ARROW_HEADER, arrow_schema
from pylog.spark.values import named
from pylog.urls import is_url

if TYPE_CHECKING:
    from pylog.log.partition_log import PartitionLog
    from pylog.store import Store

_logger = logging.getLogger("pylog.spark")

REOPENINGS = 10  # without a row between them: a cleaner or retention replaces files faster than they can be opened


def read_slice(part: LogSlice, options: ScanOptions) -> Iterator[pa.RecordBatch]:
    """Reads one slice.

    Args:
        part: which records.
        options: which columns, and how.

    Yields:
        Arrow batches with exactly the schema `arrow_schema(options.columns)`, in the order of offsets.

    Raises:
        NotALogDirectoryError: this machine does not have the log directory.
        UnknownTopicOrPartitionError: the partition does not exist, unless `failOnDataLoss` is false.
        OffsetOutOfRangeError: a part of the slice was deleted since the read was planned, unless `failOnDataLoss` is false.
        CorruptionError: a batch is damaged; the error has its path, position and offset.

    >>> part = LogSlice("/data/shop", "orders", 0, 0, 1000)
    >>> for batch in read_slice(part, ScanOptions(("value",), "read_committed", True, True)):  # doctest: +SKIP
    ...     print(batch.num_rows)
    """
    shape = _Shape(part, options.columns)
    try:
        for batch in _scan(part, options, shape.sources):
            yield shape(batch)
    except PylogError as error:
        error.add_note(f"{socket.gethostname()} was reading {named(part.topic_partition)}, offsets {part.start} to {part.end}")
        raise


# ---- from the files ------------------------------------------------------------------------------------------------------


def _scan(part: LogSlice, options: ScanOptions, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yields the slice's records. If a file is deleted during the scan, opens the log again to see whether records were lost."""
    position, reopenings = part.start, 0
    while position < part.end:
        with _opened(part, options) as log:
            if log is None:
                return
            position, end = _available(log, position, part, options)
            try:
                for batch in _batches(log, position, end, options, columns, part):
                    yield batch
                    position, reopenings = batch.column("offset")[-1].as_py() + 1, 0
            except (OffsetOutOfRangeError, StorageFailedError) as error:
                if not _vanished(error) or reopenings == REOPENINGS:
                    raise
                reopenings += 1
                _logger.info("%s; the log is opened again", error)
            else:
                return


@contextlib.contextmanager
def _opened(part: LogSlice, options: ScanOptions) -> Iterator[PartitionLog | None]:
    """Returns the slice's log; None if it does not exist and `failOnDataLoss` is false."""
    from pylog.store import manager_of

    with contextlib.ExitStack() as opened:
        try:
            store = opened.enter_context(contextlib.closing(_store(part, options)))
        except NotALogDirectoryError as error:
            raise NotALogDirectoryError(
                f"{socket.gethostname()} cannot read {part.directory} ({error}): tasks read the files themselves, "
                "so every executor needs the store under the same path, for instance on a shared file system",
                path=part.directory,
            ) from error
        log = None
        with contextlib.suppress(UnknownTopicOrPartitionError):
            log = opened.enter_context(contextlib.closing(manager_of(store).log(part.topic, part.partition)))
        if log is None or (not is_url(part.directory) and _is_of_another_topic(part)):
            _report_missing(part, options)
            log = None
        yield log


def _store(part: LogSlice, options: ScanOptions) -> Store:
    """Opens the store of a slice. An archive or a tier has only the slice's partition then, as the plan found it."""
    if part.version is None and part.tier is None:
        return pylog.open(part.directory, mode="r")
    from pylog.store import open_directory

    root, files = _files(part, options.access)
    return open_directory(root, StoreOptions(mode="r"), files, SystemClock())


def _files(part: LogSlice, access: Access) -> tuple[str, FileSystem]:
    """Returns the log directory of a slice, and a file system with its objects."""
    tiered = tiered_directory(part.directory, access)
    if tiered is not None and part.tier is not None:
        return tiered.root, tiered.pinned_files(part.topic_partition, part.tier)
    from pylog.archived_outlines import partition_files

    assert part.version is not None
    objects = open_objects(part.directory, **dict(access.bucket))
    return objects.url, partition_files(objects, part.topic_partition, part.topic_id or NO_TOPIC_ID, part.version)


def _is_of_another_topic(part: LogSlice) -> bool:
    """Returns whether the topic was deleted and created again since the read was planned."""
    return None not in (part.topic_id, found := topic_id(part.directory, part.topic_partition)) and found != part.topic_id


def _report_missing(part: LogSlice, options: ScanOptions) -> None:
    what = (
        f"{socket.gethostname()} does not find {named(part.topic_partition)} that the driver found: it was deleted "
        "(and perhaps created again), or this executor has other files under that path"
    )
    if options.fail_on_data_loss:
        raise UnknownTopicOrPartitionError(f"{what}, {part.directory}", path=part.directory, offset=part.start)
    report_data_loss(what, path=part.directory, offset=part.start, fail=False)


def _available(log: PartitionLog, position: int, part: LogSlice, options: ScanOptions) -> tuple[int, int]:
    """Returns the range of the slice that can still be read, and reports deleted records."""
    isolation = options.isolation_level if part.cut is None else "read_uncommitted"
    start, end = max(position, log.start_offset), min(part.end, end_of(log, isolation))
    missing = [(position, min(start, part.end))] if start > position else []
    missing += [(max(end, position), part.end)] if end < part.end else []
    for first, last in missing:
        message = (
            f"offsets {first} to {last} (exclusive) of {named(part.topic_partition)} were deleted since the read was planned"
        )
        report_data_loss(message, path=part.directory, offset=first, fail=options.fail_on_data_loss)
    return start, end


def _batches(
    log: PartitionLog, start: int, end: int, options: ScanOptions, columns: tuple[str, ...], part: LogSlice
) -> Iterator[pa.RecordBatch]:
    if start >= end:
        return
    scanned = log.scan(
        start,
        end,
        columns=columns,
        isolation_level=options.isolation_level,
        max_rows=limits.SCAN_ROWS,
        verify=options.verify_checksums,
        snapshot=None if part.cut is None else Snapshot(0, {part.topic_partition: part.cut}),
    )
    for batch in scanned:
        if batch.num_rows:
            yield batch


def _vanished(error: PylogError) -> bool:
    """Returns whether an error may mean that retention or compaction has deleted a file since the log was opened."""
    return isinstance(error, OffsetOutOfRangeError) or getattr(error, "errno", None) == errno.ENOENT


# ---- to Spark ------------------------------------------------------------------------------------------------------------

_SOURCES = {"timestampType": "timestamp_type"}  # where a column of ours has another name in a scan
_HEADERS = arrow_schema(["headers"]).field("headers").type


class _Shape:
    """Turns a scan's batches into the source's.

    Attributes:
        sources: the columns to scan, always with the offset, which shows the progress.
    """

    def __init__(self, part: LogSlice, columns: tuple[str, ...]) -> None:
        self._schema = arrow_schema(columns)
        constants = {"topic": partial(_same_text, part.topic), "partition": partial(_same_int, part.partition)}
        self._constants = {name: make() for name, make in constants.items() if name in columns}
        sources = [_SOURCES.get(name, name) for name in columns if name not in constants]
        self.sources = tuple(dict.fromkeys([*sources, "offset"]))

    def __call__(self, scanned: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [self._column(name, scanned) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, scanned: pa.RecordBatch) -> pa.Array:
        if name in self._constants:
            return self._constants[name].slice(0, scanned.num_rows)
        array = scanned.column(_SOURCES.get(name, name))
        return _CONVERSIONS[name](scanned, array) if name in _CONVERSIONS else array


# Made of their buffers: `pa.scalar` and `pa.array` import pandas where it is installed, a quarter of a new worker's first second.


def _same_text(text: str) -> pa.Array:
    data = text.encode()
    ends = np.arange(limits.SCAN_ROWS + 1, dtype=np.int32) * len(data)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data * limits.SCAN_ROWS)]
    return pa.Array.from_buffers(pa.string(), limits.SCAN_ROWS, buffers)


def _same_int(number: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), limits.SCAN_ROWS, [None, pa.py_buffer(np.full(limits.SCAN_ROWS, number, np.int32))])


def _timestamps(scanned: pa.RecordBatch, array: pa.Array) -> pa.Array:
    """Milliseconds as microseconds: Spark has nothing else, and so no times beyond the year 294,247."""
    try:
        return array.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid as error:
        worst = pc.index(array.cast(pa.int64()), pc.max(array.cast(pa.int64()))).as_py()
        offset = scanned.column("offset")[worst].as_py()
        raise InvalidRecordError(
            f"the timestamp of the record at offset {offset} is later than Spark's timestamps reach; "
            "to read the other columns, leave `timestamp` out with the option `columns`",
            offset=offset,
        ) from error


def _timestamp_types(_: pa.RecordBatch, array: pa.Array) -> pa.Array:
    return array.cast(pa.int32())


def _headers(_: pa.RecordBatch, array: pa.Array) -> pa.Array:
    """Returns the headers, with null for a record without headers, as in the connector."""
    offsets = np.asarray(array.offsets)
    mask = pa.array(offsets[1:] == offsets[:-1])
    items = pa.StructArray.from_arrays(array.values.flatten(), fields=list(ARROW_HEADER))
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=_HEADERS, mask=mask)


_CONVERSIONS: Mapping[str, Callable[[pa.RecordBatch, pa.Array], pa.Array]] = {
    "timestamp": _timestamps,
    "timestampType": _timestamp_types,
    "headers": _headers,
}
