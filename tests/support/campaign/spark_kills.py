"""kill -9 of a Spark driver that copies a topic, again and again: the copy has each row once.

Each life does some micro-batches, and dies at any time of the next ones, or when it is seen to have planned one, to have staged
rows of it, to have decided it or to have appended it. Some deaths take every process of the driver; others leave its Python
workers, which may be in the middle of appending and are until they notice. Between two lives another process appends to the copy
too.

    python -m support.campaign.spark_kills 30        (in tests/, with pylog's sources on the path)
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow as pa

import pylog
from support.campaign.processes import CampaignError, new_directory, new_seed

TESTS: Final = Path(__file__).resolve().parents[2]
PARTITIONS: Final = 3
LIMIT: Final = 400  # rows of a micro-batch
LIVED: Final = 2  # micro-batches that a life may do undisturbed, one less than that at most
LIFE_SECONDS: Final = 4.0  # after it began to work
MOMENTS: Final = ("any time", "planned", "staging", "decided", "appended")
SLOW: Final = "Python worker failed to connect back"  # Spark gives one ten seconds; a busy machine may need more
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
    for number in range(kills):
        moment = killed(root, rng)
        total[moment] += 1
        print(f"kill {number}: {moment}, when micro-batch {_last(checkpoint / 'commits')} was done", flush=True)  # noqa: T201
        append_elsewhere(store, rng, total)
    finish(root)
    compare(store, total["others"], f"seed {seed}, in {root}")
    shutil.rmtree(root)
    return {"seed": seed, "kills": kills, **total, "seconds": round(time.monotonic() - began, 1)}


def run_two(seed: int) -> dict[str, Any]:
    """Starts a second driver of a query while the first one works, kills one of them at a moment of a micro-batch, and compares.

    The second one may write, or be refused by Spark or by pylog, and so may the first one.

    Args:
        seed: decides when and which.

    Returns:
        The moment, which driver was killed, and which ones had ended by themselves.

    Raises:
        CampaignError: as `run`.
    """
    root, rng = new_directory("spark-two"), random.Random(seed)
    fill(root / "store", 40 * LIMIT)
    drivers: list[subprocess.Popen[str]] = []
    moment, victim = rng.choice(MOMENTS), rng.randrange(2)
    try:
        drivers += [start(root, LIMIT), start(root, LIMIT)]
        wait_for(moment, root, rng, lambda: any(driver.poll() is None for driver in drivers))
        ended = [number for number, driver in enumerate(drivers) if driver.poll() is not None]
        _kill(drivers[victim], whole=rng.random() < 0.5)
        append_elsewhere(root / "store", rng, total := Counter[str]())
    finally:
        for driver in drivers:
            _kill(driver, whole=True)
    finish(root)
    compare(root / "store", total["others"], f"seed {seed}, in {root}")
    shutil.rmtree(root)
    return {"seed": seed, "moment": moment, "killed": victim, "ended": ended}


def fill(path: Path, rows: int) -> None:
    """The source: rows that say where they are, some without a key; and an empty copy."""
    with pylog.open(path) as store:
        store.create_topic("source", partition_count=PARTITIONS)
        store.create_topic("copy", partition_count=PARTITIONS + 1, segment_bytes=50_000)
        for partition in range(PARTITIONS):
            numbers = range(rows // PARTITIONS)
            values = pa.array([b"%d %d" % (partition, number) for number in numbers])
            keys = pa.array([None if number % 5 == 0 else b"%d" % (number % 50) for number in numbers], pa.binary())
            store.log("source", partition).append_arrow(pa.table({"key": keys, "value": values}))


def start(root: Path, limit: int) -> subprocess.Popen[str]:
    """A driver in a process group of its own, when its query runs. What it says goes to a file beside the store."""
    store, checkpoint = root / "store", root / "checkpoint"
    sources = [str(Path(pylog.__file__).parent.parent), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"PYTHONPATH": os.pathsep.join(sources), "PYSPARK_PYTHON": sys.executable, "PYTHONWARNINGS": "ignore"}
    with (root / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("spark_driver.py")), str(store), str(checkpoint), str(limit)],
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | environment | {"SPARK_LOCAL_IP": "127.0.0.1"},
            text=True,
            start_new_session=True,
        )
    assert driver.stdout is not None
    if driver.stdout.readline().strip() != "ready":
        raise CampaignError(f"the driver did not start: run {' '.join(map(str, driver.args))}")  # type: ignore[arg-type]
    return driver


def killed(root: Path, rng: random.Random) -> str:
    """One life of a driver; returns what it was killed at."""
    moment, whole = rng.choice(MOMENTS), rng.random() < 0.5
    driver = start(root, LIMIT)
    try:
        wait_for(moment, root, rng, lambda: driver.poll() is None)
    finally:
        _kill(driver, whole=whole)
    if driver.returncode >= 0:
        _check_slow(driver, root)
        return "too slow"
    return moment


def _kill(driver: subprocess.Popen[str], *, whole: bool) -> None:
    if driver.poll() is None:
        processes = [psutil.Process(driver.pid), *psutil.Process(driver.pid).children(recursive=True)]
        for process in processes if whole else [one for one in processes if one.pid == driver.pid or "python" not in one.name()]:
            process.kill()
        driver.wait()
    assert driver.stdout is not None
    driver.stdout.close()


def wait_for(moment: str, root: Path, rng: random.Random, alive: Callable[[], bool]) -> None:
    """Lets some micro-batches pass, then waits for a moment of the next one; then for a little while, or for a longer one.

    Args:
        moment: one of `MOMENTS`.
        root: where the store and the checkpoint are.
        rng: decides how many, and for how long.
        alive: whether there is anything to wait for.
    """
    commits = root / "checkpoint" / "commits"
    passed = _last(commits) + rng.randrange(LIVED)
    _until(lambda: _last(commits) >= passed, alive)
    for _ in range(2 if moment == "appended" else 1):  # what a query has decided is noted, and noted again when it is done
        before = _signs(moment, root)
        _until(lambda before=before: _signs(moment, root) != before, alive)  # type: ignore[misc]
    time.sleep(rng.uniform(0, LIFE_SECONDS) if moment == "any time" else rng.choice((0, 0.003, 0.01, 0.05)))


def _until(holds: Callable[[], bool], alive: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds() and alive():
        if time.monotonic() > deadline:
            raise CampaignError("the query does not go on")
        time.sleep(0.001)


def _signs(moment: str, root: Path) -> object:
    """What changes when a driver comes to that moment, as far as it can be seen in the store and the checkpoint."""
    if moment == "planned":
        return _last(root / "checkpoint" / "offsets")
    wanted = "pylog-query." if moment in ("decided", "appended") else "pylog-staging."
    return {(entry.name, entry.inode()) for entry in os.scandir(root / "store") if entry.name.startswith(wanted)}


def _last(directory: Path) -> int:
    """The number of the last micro-batch of which a checkpoint's directory has a file; -1 when it has none."""
    return max((int(name) for name in os.listdir(directory) if name.isdigit()), default=-1) if directory.exists() else -1


def append_elsewhere(path: Path, rng: random.Random, total: Counter[str]) -> None:
    """Another process's rows in the copy."""
    with pylog.open(path) as store:
        for partition in rng.sample(range(PARTITIONS + 1), 2):
            store.log("copy", partition).append(b"other")
            total["others"] += 1


def finish(root: Path) -> None:
    """Lets a driver copy what is left."""
    while (driver := _last_life(root)).returncode:
        _check_slow(driver, root)


def _last_life(root: Path) -> subprocess.Popen[str]:
    driver = start(root, 0)
    assert driver.stdout is not None
    driver.stdout.close()
    driver.wait(PATIENCE_SECONDS)
    return driver


def _check_slow(driver: subprocess.Popen[str], root: Path) -> None:
    """A driver has died by itself; nothing but a slow machine may be why."""
    if SLOW not in (root / "driver.log").read_text(errors="replace"):
        raise CampaignError(f"a driver ended by itself, with status {driver.returncode}; {root} has its store and its log")


def compare(path: Path, others: int, where: str) -> None:
    """The copy has each row of the source once, those of a source partition in their order wherever they went."""
    with pylog.open(path) as store:
        source = [record.value for number in range(PARTITIONS) for record in store.log("source", number).records()]
        logs = [[record.value for record in store.log("copy", number).records()] for number in range(PARTITIONS + 1)]
        committed = [
            [record.value for record in store.log("copy", number).records(isolation_level="read_committed")]
            for number in range(PARTITIONS + 1)
        ]
        if not store.check().ok or not store.verify(records=True).ok:
            raise CampaignError(f"{where}: the store is damaged")
        left = [entry.name for entry in path.iterdir() if entry.name.startswith("pylog-staging")]
    copied = Counter(value for log in logs for value in log)
    if logs != committed:
        raise CampaignError(f"{where}: committed reading has {sum(map(len, committed))} rows of {sum(map(len, logs))}")
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
