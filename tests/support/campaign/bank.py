"""A bank: processes transfer money between accounts, and die at any moment. Each snapshot has the same total.

A record changes one account's balance; a transfer is a transaction of two records, in two partitions. Some transfers are aborted,
some writers are killed. A reader that sees half of a transfer sees money appear or disappear.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pylog
from support.campaign.processes import COMPILED, CampaignError, Child, Journal, in_fresh_process, new_directory, seeded, until

TOPIC: Final = "accounts"
PARTITIONS: Final = 4
WRITERS: Final = 3
_ACCOUNTS: Final = 8
_LIFE_SECONDS: Final = (0.02, 2.0)  # of a writer, before it is killed
_REST_SECONDS: Final = 0.01  # the mean time between two transfers: without it, snapshots would wait for the processor
_LIVES: Final = 2  # of each writer in a round
_OPTIONS: Final[dict[str, Any]] = {
    "durability": "os",
    "transactions": pylog.TransactionsConfig(topic_num_partitions=4),
    "offsets": pylog.OffsetsConfig(topic_num_partitions=1),
}


def opened(root: Path) -> pylog.Store:
    """Opens the bank for writing."""
    return pylog.open(root, **_OPTIONS)


def create(root: Path) -> None:
    """Creates an empty bank."""
    with opened(root) as store:
        store.create_topic(TOPIC, partition_count=PARTITIONS)


def transfer(store: pylog.Store, transactional_id: str | None, source: int, target: int, amount: int, *, aborts: bool) -> None:
    """Transfers money from one account to another one."""
    transaction = store.transaction(transactional_id)
    for account, change in ((source, -amount), (target, amount)):
        transaction.append(TOPIC, b"%d" % change, key=b"%d" % account, partition=account % PARTITIONS)
        transaction.flush()
    if aborts:
        transaction.abort()
    else:
        transaction.commit()


def total(store: pylog.Store, snapshot: pylog.Snapshot) -> int:
    """Returns the money that a snapshot has."""
    return sum(map(int, store.read_table(TOPIC, columns=["value"], snapshot=snapshot)["value"].to_pylist()))


def work(root: Path, name: str, seed: int) -> Callable[[Callable[[], None]], None]:
    """Returns the work of a writer, which transfers until it is killed."""

    def transfers(say_ready: Callable[[], None]) -> None:
        rng = seeded(seed, name)
        with opened(root) as store:
            for number in itertools.count():
                source, target = rng.sample(range(_ACCOUNTS), 2)
                own = rng.choice((name, None))
                transfer(store, own, source, target, rng.randint(1, 100), aborts=rng.random() < 0.2)
                if not number:
                    say_ready()
                time.sleep(rng.expovariate(1 / _REST_SECONDS))

    return transfers


def run(seed: int, seconds: float | None = None, *, rounds: int | None = None) -> dict[str, Any]:
    """Judges rounds of transfers until the time is over, or so many are done.

    Raises:
        CampaignError: a snapshot has another total; the directory is kept.
    """
    return in_fresh_process(campaign, seed, seconds, rounds, environment=COMPILED)


def campaign(seed: int, seconds: float | None, rounds: int | None) -> dict[str, Any]:
    """`run`, in this process: it must have no other threads."""
    _warm_up()
    done: Counter[str] = Counter()
    journals = [Journal() for _ in range(WRITERS)]
    began = time.monotonic()
    for number in until(rounds, seconds):
        root = new_directory("bank")
        try:
            done += _round(root, seed + number, journals)
        except CampaignError as error:
            raise CampaignError(f"bank with seed {seed + number}, in {root}: {error}") from error
        shutil.rmtree(root)
    return {"seed": seed, **done, "seconds": round(time.monotonic() - began, 1)}


def _warm_up() -> None:
    """Does once what a round does, so that its processes find everything loaded and compiled."""
    root = new_directory("bank-warm")
    create(root)
    with opened(root) as store, pylog.open(root, mode="r") as reader:
        for aborts in (False, True):
            transfer(store, "writer", 0, 1, 5, aborts=aborts)
        for each in (store, reader):
            _judge(each, Counter())
    shutil.rmtree(root)
    gc.collect()
    gc.freeze()


def _round(root: Path, seed: int, journals: list[Journal]) -> Counter[str]:
    create(root)
    rng, done = seeded(seed), Counter(rounds=1)
    for life in range(_LIVES):
        children = [Child(f"writer {n}", work(root, f"writer {n}", seed + life), journal) for n, journal in enumerate(journals)]
        try:
            children[0].wait_ready(30)
            with pylog.open(root, mode="r") as reader:
                _judge(reader, done)  # which opens the logs
                deaths = sorted(time.monotonic() + rng.uniform(*_LIFE_SECONDS) for _ in children)
                for child, moment in zip(children, deaths, strict=True):
                    while time.monotonic() < moment:
                        _judge(reader, done)
                    child.kill()  # the others go on beside what it has left
        finally:
            for child in children:
                child.kill()
                child.wait()
        with opened(root) as store:  # which ends what the dead have left
            _judge(store, done)
            done["records"] = store.read_table(TOPIC).num_rows
    return done


def _judge(store: pylog.Store, done: Counter[str]) -> None:
    with contextlib.suppress(pylog.PylogTimeoutError):
        snapshot = store.snapshot([TOPIC], groups=())
        found = total(store, snapshot)
        if found:
            raise CampaignError(f"{found} too much in {snapshot.cuts}")
        done["snapshots"] += 1
        return
    done["timeouts"] += 1
