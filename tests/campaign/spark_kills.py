"""kill -9 of a Spark driver that copies a topic, again and again: the copy has each row once.

Some deaths come at any time, some when the driver is seen to have staged rows or to have decided a micro-batch. Some take every
process of the driver; others leave its Python workers, which may be in the middle of appending and are until they notice.
Between two lives another process appends to the copy too.

    python -m campaign.spark_kills 30        (in tests/, with pylog's sources on the path)
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow as pa

import pylog
from campaign.processes import CampaignError, new_directory, new_seed

TESTS: Final = Path(__file__).resolve().parent.parent
PARTITIONS: Final = 3
LIMIT: Final = 400  # rows of a micro-batch
LIFE_SECONDS: Final = 4.0  # after it began to work
PATIENCE_SECONDS: Final = 900.0  # of a whole life: Spark starts slowly on a busy machine


def run(seed: int, *, kills: int) -> dict[str, Any]:
    """Kills a driver so often, lets the last one finish, and compares.

    Args:
        seed: decides when and how, as far as other processes let it.
        kills: how many.

    Returns:
        How often what happened.

    Raises:
        CampaignError: a row is missing, doubled or out of order; the directory is kept.
    """
    root = new_directory("spark-kills")
    store, checkpoint = root / "store", root / "checkpoint"
    rng = random.Random(seed)
    fill(store, kills * 10 * LIMIT)
    began, total = time.monotonic(), Counter[str]()
    for _ in range(kills):
        total[killed(store, checkpoint, rng)] += 1
        append_elsewhere(store, rng, total)
    finish(store, checkpoint)
    compare(store, total["others"], f"seed {seed}, in {root}")
    shutil.rmtree(root)
    return {"seed": seed, "kills": kills, **total, "seconds": round(time.monotonic() - began, 1)}


def fill(path: Path, rows: int) -> None:
    """The source: rows that say where they are, some without a key; and an empty copy."""
    with pylog.open(path) as store:
        store.create_topic("source", partitions=PARTITIONS)
        store.create_topic("copy", partitions=PARTITIONS + 1, segment_bytes=50_000)
        for partition in range(PARTITIONS):
            numbers = range(rows // PARTITIONS)
            values = pa.array([b"%d %d" % (partition, number) for number in numbers])
            keys = pa.array([None if number % 5 == 0 else b"%d" % (number % 50) for number in numbers], pa.binary())
            store.log("source", partition).append_arrow(pa.table({"key": keys, "value": values}))


def start(store: Path, checkpoint: Path, limit: int) -> subprocess.Popen[str]:
    """A driver in a process group of its own, when its query runs."""
    sources = [str(Path(pylog.__file__).parent.parent), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"PYTHONPATH": os.pathsep.join(sources), "PYSPARK_PYTHON": sys.executable, "PYTHONWARNINGS": "ignore"}
    driver = subprocess.Popen(
        [sys.executable, str(TESTS / "campaign" / "spark_driver.py"), str(store), str(checkpoint), str(limit)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | environment | {"SPARK_LOCAL_IP": "127.0.0.1"},
        text=True,
        start_new_session=True,
    )
    assert driver.stdout is not None
    if driver.stdout.readline().strip() != "ready":
        raise CampaignError(f"the driver did not start: run {' '.join(map(str, driver.args))}")  # type: ignore[arg-type]
    return driver


def killed(store: Path, checkpoint: Path, rng: random.Random) -> str:
    """One life of a driver; returns what it was killed at."""
    moment, whole = rng.choice(("any time", "staging", "decided")), rng.random() < 0.5
    driver = start(store, checkpoint, LIMIT)
    try:
        _wait_for(moment, store, rng)
        if driver.poll() is not None:
            raise CampaignError(f"the driver ended by itself, with status {driver.returncode}; its store is {store}")
    finally:
        processes = [psutil.Process(driver.pid), *psutil.Process(driver.pid).children(recursive=True)]
        python = [process for process in processes[1:] if "python" in process.name()]
        for process in processes if whole else [one for one in processes if one not in python]:
            process.kill()
        driver.wait()
        assert driver.stdout is not None
        driver.stdout.close()
    return moment


def _wait_for(moment: str, store: Path, rng: random.Random) -> None:
    """Waits until it is at work, as far as can be seen in the store; then for a little while, or for a longer one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    wanted = "pylog-query." if moment == "decided" else "pylog-staging."
    before = _seen(store, wanted)
    while _seen(store, wanted) == before and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(rng.uniform(0, LIFE_SECONDS) if moment == "any time" else rng.choice((0, 0.003, 0.01, 0.05)))


def _seen(store: Path, wanted: str) -> set[tuple[str, int]]:
    return {(entry.name, entry.inode()) for entry in os.scandir(store) if entry.name.startswith(wanted)}


def append_elsewhere(path: Path, rng: random.Random, total: Counter[str]) -> None:
    """Another process's rows in the copy."""
    with pylog.open(path) as store:
        for partition in rng.sample(range(PARTITIONS + 1), 2):
            store.log("copy", partition).append(b"other")
            total["others"] += 1


def finish(store: Path, checkpoint: Path) -> None:
    """Lets a driver copy what is left."""
    driver = start(store, checkpoint, 0)
    assert driver.stdout is not None
    driver.stdout.close()
    if driver.wait(PATIENCE_SECONDS):
        raise CampaignError(f"the last driver failed with status {driver.returncode}; its store is {store}")


def compare(path: Path, others: int, where: str) -> None:
    """The copy has each row of the source once, those of a source partition in their order wherever they went."""
    with pylog.open(path) as store:
        source = [record.value for number in range(PARTITIONS) for record in store.log("source", number).records()]
        logs = [[record.value for record in store.log("copy", number).records()] for number in range(PARTITIONS + 1)]
        if not store.check().ok or not store.verify(records=True).ok:
            raise CampaignError(f"{where}: the store is damaged")
        left = [entry.name for entry in path.iterdir() if entry.name.startswith("pylog-staging")]
    copied = Counter(value for log in logs for value in log)
    if copied != Counter(source) + Counter({b"other": others}):
        lost, doubled = Counter(source) - copied, copied - Counter(source)
        raise CampaignError(
            f"{where}: {lost.total()} rows are missing, {doubled.total() - others} doubled: {lost} {doubled}"[:2000]
        )
    for log in logs:
        for partition in range(PARTITIONS):
            places = [int(value.split()[1]) for value in log if value and value.startswith(b"%d " % partition)]
            if not all(one < other for one, other in pairwise(places)):
                raise CampaignError(f"{where}: rows of source partition {partition} have changed places")
    if left:
        raise CampaignError(f"{where}: staging files are left: {left}")


if __name__ == "__main__":
    print(run(new_seed(), kills=int(sys.argv[1])))  # noqa: T201
