"""kill -9 of the executors of a Spark cluster whose driver copies a topic, again and again: the copy has each row once.

A death takes an executor with its Python workers, its Java process alone (the workers may be in the middle of staging rows and
are until they notice), or its Python processes alone. Spark starts another one and repeats the tasks; a query that has failed
because a task has died too often is started again, as its user would.

    python -m support.campaign.spark_executor_kills 30        (in tests/, with pylog's sources on the path)
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil

from support.campaign.processes import CampaignError, new_directory, new_seed
from support.campaign.spark_copy import copy
from support.campaign.spark_kills import LIMIT, MOMENTS, PATIENCE_SECONDS, SLOW, append_elsewhere, compare, fill, finish, wait_for
from support.spark.cluster import Cluster, JobError

EXECUTORS: Final = 2
KINDS: Final = ("executor", "java", "python")
DEATHS: Final = ("ExecutorLostFailure", "Python worker exited unexpectedly", SLOW)  # what a query says that has failed of them


def run(seed: int, *, kills: int) -> dict[str, Any]:
    """Kills executors so often, lets the rest be copied, and compares.

    Args:
        seed: decides when and how, as far as other processes let it.
        kills: how many.

    Returns:
        How often what happened.

    Raises:
        CampaignError: a row is missing, doubled or out of order; the directory is kept.
    """
    root = new_directory("spark-executor-kills")
    rng, began, total = random.Random(seed), time.monotonic(), Counter[str]()
    fill(root / "store", kills * 10 * LIMIT)
    with tempfile.TemporaryDirectory() as directory, Cluster(Path(directory)) as cluster:
        failures: list[str] = []
        copying = threading.Thread(target=_copy_on, args=(cluster, root, failures))
        copying.start()
        try:
            for number in range(kills):
                if not copying.is_alive():
                    raise CampaignError(f"the query failed, not of a death; its store is {root / 'store'}: {failures[-1]}")
                kind = _killed(cluster, root, rng, copying.is_alive)
                total[kind] += 1
                print(f"kill {number}: {kind}", flush=True)  # noqa: T201
                append_elsewhere(root / "store", rng, total)
        finally:
            (root / "enough").touch()
            copying.join()
    finish(root)
    compare(root / "store", total["others"], f"seed {seed}, in {root}")
    shutil.rmtree(root)
    return {"seed": seed, "kills": kills, **total, "failed queries": len(failures), "seconds": round(time.monotonic() - began, 1)}


def _copy_on(cluster: Cluster, root: Path, failures: list[str]) -> None:
    """Runs the query until there is enough, once more whenever it has failed because a task has died too often."""
    while not (root / "enough").exists():
        try:
            cluster.run(copy, root=str(root), limit=LIMIT)
        except JobError as error:
            failures.append(str(error))
            if not any(sign in str(error) for sign in DEATHS):
                return


def _killed(cluster: Cluster, root: Path, rng: random.Random, alive: Callable[[], bool]) -> str:
    """Kills one executor, when all are there; returns what of it."""
    kind, deadline = rng.choice(KINDS), time.monotonic() + PATIENCE_SECONDS
    while len(_executors(cluster)) < EXECUTORS:
        if time.monotonic() > deadline:
            raise CampaignError(f"Spark starts no more executors; the store is {root / 'store'}")
        time.sleep(0.1)
    wait_for(rng.choice(MOMENTS), root, rng, alive)
    java = rng.choice(_executors(cluster))
    python = java.children(recursive=True)
    for process in {"executor": [java, *python], "java": [java], "python": python}[kind]:
        process.kill()
    return kind


def _executors(cluster: Cluster) -> list[psutil.Process]:
    """The Java processes of the executors that live."""
    found = psutil.Process(cluster.process.pid).children(recursive=True)
    return [one for one in found if one.is_running() and "CoarseGrainedExecutorBackend" in " ".join(_command(one))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has ended meanwhile
        return []


if __name__ == "__main__":
    print(run(new_seed(), kills=int(sys.argv[1])))  # noqa: T201
