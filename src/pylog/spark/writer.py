"""Writing as Spark sees it: tasks stage, the driver commits.

Spark makes a writer on the driver, sends it to the executors, and calls `commit` or `abort` on the driver again: of a batch job
on a copy of the same writer, of a streaming query on a new one. So the tasks' messages carry all data that a commit needs.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import pylog
from pylog.clock import SystemClock
from pylog.errors import InvalidArgumentError, NotALogDirectoryError, UnknownTopicOrPartitionError
from pylog.fs import OsFileSystem, ProcessName, parent_process
from pylog.spark.commit import CommitOptions, StoreAccess, commit_batch, commit_job
from pylog.spark.encode import TaskRows
from pylog.spark.tables import WriteTarget
from pylog.spark.write_options import WriteOptions, check_rows, write_options
from pylog.staging.file import StagingFile, staged_path
from pylog.staging.intents import StagedFile, needed_names
from pylog.staging.names import StagingName, remove_staged

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY = "sql.streaming.queryId"  # local properties that Spark gives every task of a streaming query
_BATCH = "streaming.sql.batchId"
_SPARKS = {"checkpointlocation", "queryname"}  # options of the query, which Spark hands to its sink too


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """A task's message to the driver.

    Attributes:
        query: the id of the streaming query; empty in a batch job.
        file: name of the staging file, position, size and checksum of its index; None for a task without rows.
    """

    query: str
    file: tuple[str, int, int, int] | None


class _StagingWriter:
    """What batch and streaming writers share.

    Args:
        options: the job's options.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._job = secrets.token_hex(8)
        self._owner: ProcessName = parent_process(OsFileSystem().boot_id())

    def _stage(self, rows: Iterator[pa.RecordBatch], name: StagingName, *, durable: bool) -> tuple[str, int, int, int] | None:
        """Writes a task's rows to a staging file of its own."""
        fs = OsFileSystem()
        _check_shared(fs, self._options.root)
        staging = StagingFile(fs, self._options.root, name.new())
        try:
            task = TaskRows(self._options, staging, SystemClock())
            for batch in rows:
                task.add(batch)
            task.flush()
            if task.count:
                done = staging.finish(task.counts(), durable=durable)
                return done.name, done.index_position, done.index_size, done.index_crc
            staging.discard()
        except BaseException:
            staging.discard()
            raise
        return None


class PylogWriter(_StagingWriter, DataSourceArrowWriter):
    """Writes the rows of a batch job: `df.write.format("pylog").mode("append")`."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stages the rows of one task. Raises as `pylog.spark.encode`."""
        return Staged("", self._stage(iterator, StagingName(self._job, 0, self._owner), durable=False))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Appends the staged rows of all tasks. Raises as `pylog.spark.commit.commit_job`."""
        fs, clock = OsFileSystem(), SystemClock()
        with pylog.open(self._options.root, fs=fs, clock=clock) as store:
            how = _commit_options(self._options, self._options.transactional or False)
            commit_job(StoreAccess(store, fs, clock), self._job, _files(messages), how)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - the job's files are known by name
        """Removes the staged rows."""
        remove_staged(OsFileSystem(), self._options.root, self._job)


class PylogStreamWriter(_StagingWriter, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query: `df.writeStream.format("pylog")`, each exactly once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stages the rows of one task of a micro-batch, durably."""
        query, batch = _micro_batch()
        return Staged(query, self._stage(iterator, StagingName(query, batch, self._owner), durable=True))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Appends a micro-batch. Raises as `pylog.spark.commit.commit_batch`."""
        queries = {message.query for message in messages if isinstance(message, Staged)}
        if not queries:
            return  # a micro-batch without tasks has no rows
        fs, clock = OsFileSystem(), SystemClock()
        with pylog.open(self._options.root, fs=fs, clock=clock) as store:
            how = _commit_options(self._options, self._options.transactional)
            commit_batch(StoreAccess(store, fs, clock), queries.pop(), batchId, _files(messages), how)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        """Removes the staged rows, except those of a planned micro-batch, which its repetition needs."""
        fs, root = OsFileSystem(), self._options.root
        needed = needed_names(fs, root)
        for file in _files(messages):
            path = staged_path(root, file)
            if file.name not in needed and fs.exists(path):
                fs.remove(path)


def _check_shared(fs: OsFileSystem, root: str) -> None:
    """Checks that this executor can access the store."""
    try:
        fs.check_directory(root, write=True)
    except NotALogDirectoryError as error:
        raise NotALogDirectoryError(
            f"{socket.gethostname()} cannot write {root} ({error}): tasks write their rows there, so every executor needs the "
            "store under the same path, for instance on a shared file system",
            path=root,
        ) from error


def _micro_batch() -> tuple[str, int]:
    """Returns the query, by the id in its checkpoint, and the number of the micro-batch that this task is for."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY)
    batch = None if context is None else context.getLocalProperty(_BATCH)
    if query is None or batch is None:
        raise InvalidArgumentError(f"this version of Spark does not pass the query's id to its tasks ({_QUERY}, {_BATCH})")
    return query, int(batch)


def _commit_options(options: WriteOptions, transactional: bool | None) -> CommitOptions:
    return CommitOptions(
        create_topics=options.create_topics,
        partitions=options.partitions,
        durability=options.level,
        timestamp_type=options.timestamp_type,
        transactional=transactional,
    )


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [StagedFile(*message.file) for message in messages if isinstance(message, Staged) and message.file is not None]


# ---- made by the source --------------------------------------------------------------------------------------------------


def batch_writer(target: WriteTarget, schema: StructType, *, overwrite: bool) -> PylogWriter:
    """Returns a writer for a batch job.

    Raises:
        InvalidArgumentError: a bad option, rows that cannot be records, or a mode other than append.
        NotALogDirectoryError: there is no such store, or it may not be written.
    """
    checked = _checked(target.options, schema, overwrite=overwrite)
    return PylogWriter(replace(checked, of_table=target.of_table))


def stream_writer(options: dict[str, str], schema: StructType, *, overwrite: bool) -> PylogStreamWriter:
    """Returns a writer for a streaming query; raises as `batch_writer`."""
    own = {name: value for name, value in options.items() if name.lower() not in _SPARKS}
    return PylogStreamWriter(_checked(own, schema, overwrite=overwrite))


def _checked(options: dict[str, str], schema: StructType, *, overwrite: bool) -> WriteOptions:
    if overwrite:
        raise InvalidArgumentError(
            "records can only be appended to a log: use mode('append'), or outputMode('append') for a stream"
        )
    found = write_options(options)
    check_rows(schema, found)
    _check_store(found)
    return found


def _check_store(options: WriteOptions) -> None:
    """Checks that the store exists, and the topic if all rows have one, so that the job fails before its tasks run."""
    OsFileSystem().check_directory(options.root, write=True)
    if options.topic is None or options.create_topics:
        return
    with pylog.open(options.root, mode="r") as store:
        if options.topic not in store.topics():
            message = f"there is no topic {options.topic!r} in {options.root}; create it, or give the option createTopics=true"
            raise UnknownTopicOrPartitionError(message, path=options.root)
