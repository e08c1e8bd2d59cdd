"""Staging files as tasks make them, for tests that need no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pylog
from pylog.clock import Clock
from pylog.fs import parent_process
from pylog.record.builder import BatchEncoder, rows_from_records
from pylog.record.compression import codec_id
from pylog.record.types import TopicPartition
from pylog.spark.commit import CommitOptions, StoreAccess, commit_batch
from pylog.staging.file import StagingFile
from pylog.staging.intents import StagedFile
from pylog.staging.names import StagingName

ROOT = "/shop"
QUERY = "0a1b2c3d-0000-4000-8000-0123456789ab"
TIME = 1_700_000_000_000

Rows = Mapping[int, Sequence[bytes]]  # values, by partition of the topic "copy"


def stage(
    fs: Any,
    tasks: Sequence[Rows],
    batch: int = 0,
    job: str = QUERY,
    *,
    codec: str = "none",
    batch_bytes: int = 40,
    partitions: int = 2,
    key: bytes | None = None,
) -> list[StagedFile]:
    """One finished file a task."""
    owner = parent_process(fs.boot_id())
    encoder = BatchEncoder(codec_id(codec), batch_bytes=batch_bytes)
    files = []
    for rows in tasks:
        file = StagingFile(fs, ROOT, StagingName(job, batch, owner).new())
        for partition, values in rows.items():
            columns = rows_from_records(None if key is None else [key] * len(values), list(values), None, None, TIME)
            if key is None and values:
                file.keyless.add("copy")
            for encoded in encoder.encode(columns, 0, 0) if values else ():
                file.add(TopicPartition("copy", partition), encoded)
        files.append(file.finish({"copy": partitions}, durable=True))
    return files


def commit(fs: Any, clock: Clock, files: Sequence[StagedFile], batch: int = 0, how: CommitOptions | None = None) -> None:
    """What the driver does with them."""
    with pylog.open(ROOT, fs=fs, clock=clock) as store:
        commit_batch(StoreAccess(store, fs, clock), QUERY, batch, files, how or CommitOptions())


def values(fs: Any, clock: Clock) -> dict[int, list[bytes]]:
    """What is in the topic, by partition."""
    with pylog.open(ROOT, mode="r", fs=fs, clock=clock) as store:
        ids = store.topic("copy").partition_ids
        return {number: [record.value or b"" for record in store.log("copy", number).records()] for number in ids}


def leftovers(fs: Any) -> list[str]:
    """The staging files that are still there."""
    return [entry.name for entry in fs.list(ROOT) if entry.name.startswith("pylog-staging")]
