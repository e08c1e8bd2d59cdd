"""kill -9 of a driver that splices a streaming query's micro-batches, without Spark: each row is there once, and committed.

Most micro-batches are transactions, and some are not.

The driver stages and commits one micro-batch after the other, as Spark's does: it begins with the last one that it knows to be
done, or with the one after it, and the rows of a micro-batch come in another order and to other partitions each time. What Spark
itself adds, its checkpoint, its tasks and its executors, is in `spark_kills`.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pylog
from pylog.clock import SystemClock
from pylog.config import TransactionsConfig
from pylog.fs import OsFileSystem, parent_process
from pylog.record.builder import BatchEncoder, rows_from_records
from pylog.record.types import TopicPartition
from pylog.spark.commit import CommitOptions, StoreAccess, commit_batch
from pylog.staging.file import StagingFile
from pylog.staging.intents import StagedFile, read_intent
from pylog.staging.names import StagingName
from support.campaign.actors import warm_up
from support.campaign.processes import CampaignError, Child, Journal, in_fresh_process, new_directory, seeded, until

QUERY = "0a1b2c3d-0000-4000-8000-0123456789ab"
PARTITIONS = 3


def run(seed: int, seconds: float | None = None, *, kills: int | None = None) -> dict[str, Any]:
    """Kills drivers until the time is over, or so many are dead.

    Args:
        seed: decides everything but when processes are scheduled.
        seconds, kills: how long; one of them at least.

    Returns:
        How many micro-batches and rows there were.

    Raises:
        CampaignError: a row is missing or doubled; the directory is kept.
    """
    return in_fresh_process(campaign, seed, seconds, kills)


def campaign(seed: int, seconds: float | None, kills: int | None) -> dict[str, Any]:
    """`run`, in this process: it must have no other threads."""
    warm_up("none", "lz4")
    root, rng = new_directory("splices"), random.Random(seed)
    path = str(root / "store")
    with pylog.open(path, transactions=TransactionsConfig(topic_num_partitions=1)) as store:
        store.create_topic("copy", partition_count=PARTITIONS, segment_bytes=4000)
        with store.transaction("first") as transaction:  # creates `__transaction_state` with one partition
            transaction.send_offsets("nobody", {("copy", 0): 0})
    began, dead = time.monotonic(), 0
    for number in until(kills, seconds):
        with Child("driver", lambda ready, life=number: drive(path, seeded(seed, life), ready), Journal()) as driver:  # type: ignore[misc]
            driver.wait_ready(10)
            time.sleep(10 ** rng.uniform(-4, -0.3))
            driver.kill()
            driver.wait()
            dead += driver.was_killed
        if rng.random() < 0.5:
            with pylog.open(path) as store:
                store.log("copy", rng.randrange(PARTITIONS)).append(b"other")
    batches = last_batch(path) + 1
    compare(path, batches, f"seed {seed}, in {root}")
    shutil.rmtree(root)
    return {"seed": seed, "kills": dead, "micro_batches": batches, "seconds": round(time.monotonic() - began, 1)}


def drive(path: str, rng: random.Random, ready: Callable[[], None]) -> None:
    """A driver's life."""
    intent = read_intent(OsFileSystem(), path, QUERY)
    batch = (
        0 if intent is None else intent.batch + (intent.done and rng.choice((0, 1)))
    )  # what was begun is never gone back behind
    ready()
    while True:
        one_batch(path, batch, rng)
        batch += 1


def last_batch(path: str) -> int:
    """The last micro-batch that is done; -1 when none is."""
    intent = read_intent(OsFileSystem(), path, QUERY)
    return -1 if intent is None else intent.batch - (not intent.done)


def one_batch(path: str, batch: int, rng: random.Random) -> None:
    """Stages and commits a micro-batch."""
    fs, clock = OsFileSystem(), SystemClock()
    values = rows_of(batch)
    rng.shuffle(values)
    cut = rng.randrange(len(values) + 1)
    files = [stage(path, batch, part, rng) for part in (values[:cut], values[cut:])]
    with pylog.open(path, fs=fs, clock=clock) as store:
        how = CommitOptions(transactional=rng.random() < 0.8)
        commit_batch(StoreAccess(store, fs, clock), QUERY, batch, files, how)


def rows_of(batch: int) -> list[bytes]:
    """The rows of a micro-batch, which only its number decides."""
    return [b"%d.%d" % (batch, number) for number in range(1 + batch * 37 % 60)]


def stage(path: str, batch: int, values: list[bytes], rng: random.Random) -> StagedFile:
    """What one task does."""
    fs = OsFileSystem()
    file = StagingFile(fs, path, StagingName(QUERY, batch, parent_process(fs.boot_id())).new())
    encoder = BatchEncoder(rng.choice((0, 3)), batch_bytes=100)
    first = rng.randrange(PARTITIONS)
    for number in range(PARTITIONS):
        part = values[number::PARTITIONS]
        for encoded in encoder.encode(rows_from_records(None, part, None, None, 0), 0, 0) if part else ():
            file.add(TopicPartition("copy", (first + number) % PARTITIONS), encoded)
    return file.finish({"copy": PARTITIONS}, durable=True)


def compare(path: str, batches: int, where: str) -> None:
    """Each row of what is done is there once; nothing else, and nothing on its way. A last life finishes what one left."""
    one_batch(path, batches, random.Random(0))
    with pylog.open(path) as store:
        logs = [store.log("copy", number) for number in range(PARTITIONS)]
        found = Counter(record.value for log in logs for record in log.records())
        if found != Counter(record.value for log in logs for record in log.records(isolation_level="read_committed")):
            raise CampaignError(f"{where}: some rows are not committed, or were aborted")
        if not store.check().ok or not store.verify(records=True).ok:
            raise CampaignError(f"{where}: the store is damaged")
    del found[b"other"]
    wanted = Counter(value for batch in range(batches + 1) for value in rows_of(batch))
    if found != wanted:
        raise CampaignError(f"{where}: missing {wanted - found}, doubled {found - wanted}"[:2000])
    left = [entry.name for entry in Path(path).iterdir() if entry.name.startswith("pylog-staging")]
    if left:
        raise CampaignError(f"{where}: staging files are left: {left}")
