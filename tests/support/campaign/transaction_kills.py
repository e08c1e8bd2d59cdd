"""Processes that write transactions are killed at any moment or step: each is there whole or not at all, the answered ones are.

A cycle: a forked child opens the directory and commits and aborts transactions of one id, until a timer or one of the protocol's
steps kills it. Or it is stopped with a transaction open, while another process takes its id, and goes on. Then the parent opens
the directory, reads what is new, and commits a transaction of the same id.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pylog
from pylog import OffsetAndMetadata
from pylog.store import Store, manager_of
from pylog.transactions.coordinator import TransactionCoordinator, open_transactions
from pylog.transactions.single_batch import SingleBatchTransactions
from support.campaign.processes import CampaignError, Child, Journal, die_at, in_fresh_process, new_directory, seeded, until
from support.campaign.transaction_planted import planted

PARTITIONS: Final = 2
ID: Final = "billing"
GROUP: Final = "g"
INPUT: Final = ("in", 0)
_CYCLES_OF_A_LIFE: Final = 50
_MOST: Final = 1_000  # transactions of one child
_TIMER_SECONDS: Final = (-4.5, -1.3)  # powers of ten: of a child that is killed at any moment
_LAST_SECONDS: Final = 0.15  # of one that does not come to its step
_PATIENCE_SECONDS: Final = 5.0  # for one that is to be stopped
_ZOMBIES: Final = 0.03  # how often a child is stopped and continued
_STEPS: Final[tuple[tuple[type, str], ...]] = (
    *(
        (TransactionCoordinator, name)
        for name in ("init", "begin", "add_partitions", "append", "prepare_commit", "prepare_abort")
    ),
    *((TransactionCoordinator, name) for name in ("write_markers", "_write_marker", "finish")),
    *((SingleBatchTransactions, name) for name in ("finish", "complete")),
)
_CHECKED: Final = 8  # of so many cycles one has a `check`
_OPTIONS: Final[dict[str, Any]] = {
    "offsets": pylog.OffsetsConfig(topic_num_partitions=1),
    "transactions": pylog.TransactionsConfig(topic_num_partitions=1, topic_segment_bytes=4_000),
    "lock_timeout_ms": 500,  # a child may be stopped while it holds a lock
}
BEGUN, DECIDING, ANSWERED, ABORTING = range(4)


class Noted(NamedTuple):
    """A transaction as its process has noted it: its number, which is its records' value, and how far it has come."""

    number: int
    partitions: int
    sends_offset: bool
    state: int


class Notes:
    """What a child has noted, in memory that it shares with its parent."""

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, (4 * _MOST + 1) * 8)).cast("q")

    def clear(self) -> None:
        self._words[0] = 0

    def begin(self, noted: Noted) -> None:
        at = 1 + 4 * self._words[0]
        for place, value in enumerate(noted):
            self._words[at + place] = int(value)
        self._words[0] += 1

    def step(self, state: int) -> None:
        self._words[4 * self._words[0]] = state

    def __iter__(self) -> Iterator[Noted]:
        for at in range(1, 1 + 4 * self._words[0], 4):
            number, partitions, sends_offset, state = self._words[at : at + 4]
            yield Noted(number, partitions, bool(sends_offset), state)


def run(seed: int, seconds: float | None = None, *, cycles: int | None = None, fault: str = "") -> dict[str, Any]:
    """Kills processes until the time is over, or so many cycles are done.

    Args:
        seed: decides everything but the scheduling of processes.
        seconds, cycles: how long; one of them at least.
        fault: the name of a fault in `transaction_planted`, which the processes have.

    Returns:
        How often what happened.

    Raises:
        CampaignError: a promise was broken; the directory is kept.
    """
    return in_fresh_process(campaign, seed, seconds, cycles, fault)


def campaign(seed: int, seconds: float | None, cycles: int | None, fault: str) -> dict[str, Any]:
    """`run`, in this process: it must have no other threads."""
    with planted(fault):
        return _campaign(seed, seconds, cycles)


def _campaign(seed: int, seconds: float | None, cycles: int | None) -> dict[str, Any]:
    root, total, began = new_directory("transaction-kills"), Counter[str](), time.monotonic()
    _warm_up(root / "warm")
    life: _Life | None = None
    for number in until(cycles, seconds):
        if life is None or number % _CYCLES_OF_A_LIFE == 0:
            shutil.rmtree(root / "store", ignore_errors=True)
            life = _Life(root / "store", seeded(seed, number))
        try:
            total += life.cycle(number)
        except (CampaignError, pylog.PylogError) as error:
            raise CampaignError(f"seed {seed}, cycle {number}, in {root}: {error!r}") from error
    shutil.rmtree(root)
    return {"seed": seed, **total, "seconds": round(time.monotonic() - began, 1)}


def _warm_up(path: Path) -> None:
    """Does once in this process what children do, so that they find everything loaded and compiled."""
    life = _Life(path, random.Random(0))
    with _opened(path, life.rng) as store:
        for number in range(1, 9):
            _transaction(store, life.notes, number, random.Random(number))
    shutil.rmtree(path)


def _opened(path: Path, rng: random.Random) -> Store:
    return pylog.open(path, durability=rng.choice(("os", "os", "sync")), **_OPTIONS)


# ---- the child ---------------------------------------------------------------------------------------------------------------


def _transaction(store: Store, notes: Notes, number: int, rng: random.Random) -> None:
    noted = Noted(number, rng.randint(1, PARTITIONS), rng.random() < 0.5, BEGUN)
    notes.begin(noted)
    transaction = store.transaction(ID)
    for partition in range(noted.partitions):
        transaction.append_many("out", [b"%d" % number] * rng.choice((1, 1, 3)), partition=partition)
        if rng.random() < 0.3:
            transaction.flush()
    if noted.sends_offset:
        transaction.send_offsets(GROUP, {INPUT: OffsetAndMetadata(1, str(number))})
    commits = rng.random() < 0.8
    notes.step(DECIDING if commits else ABORTING)
    transaction.commit() if commits else transaction.abort()
    if commits:
        notes.step(ANSWERED)


_LOST: Final = (pylog.ProducerFencedError,)
_LOST_TO_ANOTHER: Final = (*_LOST, pylog.TransactionAbortedError)  # or it ended the transaction, and did not come to take the id


def _write(
    path: Path,
    notes: Notes,
    first: int,
    rng: random.Random,
    die: Callable[[], None],
    lost: tuple[type[BaseException], ...],
    ready: Callable[[], None],
) -> None:
    """Writes transactions until it dies, or until another process has the id: `lost` has the errors that say so."""
    die()
    for number in range(first, first + _MOST, 50):
        with contextlib.suppress(*lost), _opened(path, rng) as store:
            for one in range(number, number + rng.choice((1, 5, 50))):
                _transaction(store, notes, one, rng)
                ready()


def _by_timer(rng: random.Random) -> None:
    """Dies after a time, wherever it is: nothing catches this signal."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 10 ** rng.uniform(*_TIMER_SECONDS))


def _by_step(rng: random.Random) -> None:
    """Dies before or after a call of a step of the protocol."""
    (of, name), countdown, after = rng.choice(_STEPS), rng.choice((1, 2, 3, 7)), rng.random() < 0.5
    die_at(of, name, countdown, after=after)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _LAST_SECONDS)


# ---- the parent --------------------------------------------------------------------------------------------------------------


class _Life:
    """One directory, from nothing to its last cycle."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.rng = rng
        self.notes = Notes()
        self._path = path
        self._journal = Journal(16)
        self._positions = [0] * PARTITIONS
        self._offset: int | None = None  # that the group has committed
        with _opened(path, rng) as store:
            store.create_topic("in")
            store.create_topic("out", PARTITIONS, segment_bytes=rng.choice((1_500, 1 << 20)))
            store.log("in").append_many([b"%d" % number for number in range(10)])

    def cycle(self, number: int) -> Counter[str]:
        """Starts a child, sees it die, looks; returns how often what happened."""
        self.notes.clear()
        first = (number % _CYCLES_OF_A_LIFE + 1) * 2 * _MOST
        is_zombie = self.rng.random() < _ZOMBIES
        kind = self.rng.choice((_by_timer, _by_step))
        child_rng = random.Random(self.rng.random())
        die = (lambda: None) if is_zombie else (lambda: kind(child_rng))
        lost = _LOST_TO_ANOTHER if is_zombie else _LOST
        work = lambda ready: _write(self._path, self.notes, first, child_rng, die, lost, ready)  # noqa: E731
        with Child("child", work, self._journal) as child:
            if is_zombie:
                self._outlive(child, first + _MOST)
            child.wait()
        return self._look(first + 2 * _MOST - 1, thorough=number % _CHECKED == 0) + Counter(cycles=1, zombies=is_zombie)

    def _outlive(self, child: Child, number: int) -> None:
        """Stops a child, takes its id, continues it, and kills it a moment later."""
        child.wait_ready(_PATIENCE_SECONDS)
        time.sleep(self.rng.uniform(0, 0.01))
        os.kill(child.pid, signal.SIGSTOP)
        with contextlib.suppress(pylog.StoreLockedError), _opened(self._path, self.rng) as store:  # it may hold a lock
            self._commit(store, number)
        os.kill(child.pid, signal.SIGCONT)
        time.sleep(0.02)
        child.kill()

    def _commit(self, store: Store, number: int) -> None:
        """A transaction of the parent's own. What it has in doubt is told by the notes of the child only."""
        with store.transaction(ID) as transaction:
            for partition in range(PARTITIONS):
                transaction.append("out", b"parent %d" % number, partition=partition)

    def _look(self, number: int, *, thorough: bool) -> Counter[str]:
        with _opened(self._path, self.rng) as store:
            values = [self._new_values(store, partition) for partition in range(PARTITIONS)]
            offset = next(iter(store.offsets.fetch(GROUP, [INPUT]).values()), None)
            problems = [*self._broken(values, None if offset is None else int(offset.metadata))]
            for partition in range(PARTITIONS):
                left = open_transactions(manager_of(store).log("out", partition))
                problems += [f"open in out-{partition}: {each}" for each in left]
            self._commit(store, number)
            if any(b"parent %d" % number not in self._new_values(store, partition) for partition in range(PARTITIONS)):
                problems.append("the next transaction is not read")
            if thorough and not (report := store.check()).ok:
                problems.append(str(report))
        if problems:
            raise CampaignError("\n".join(problems))
        states = Counter(each.state for each in self.notes)
        kept = sum(each.state == DECIDING and b"%d" % each.number in values[0] for each in self.notes)
        told = {"answered": states[ANSWERED], "unknown": states[DECIDING], "unknown_kept": kept}
        return Counter(told) + Counter(open=states[BEGUN], aborted=states[ABORTING])

    def _new_values(self, store: Store, partition: int) -> list[bytes]:
        """What `read_committed` readers find in a partition since the last look."""
        found = list(store.log("out", partition).records(self._positions[partition], isolation_level="read_committed"))
        self._positions[partition] = store.log("out", partition).end_offset
        return [record.value or b"" for record in found]

    def _broken(self, values: list[list[bytes]], position: int | None) -> Iterator[str]:
        """The promises that are broken, in sentences."""
        for each in self.notes:
            is_there = [b"%d" % each.number in found for found in values[: each.partitions]]
            if any(is_there) and each.state in (BEGUN, ABORTING):
                yield f"{each} is read, and was not committed"
            if any(is_there) and not all(is_there):
                yield f"a part of {each} is read: {is_there}"
            if each.state == ANSWERED and not all(is_there):
                yield f"{each} was answered, and is gone"
            if each.sends_offset and all(is_there):
                self._offset = each.number
        if position != self._offset:
            yield f"the group goes on from {position}, and the last transaction says {self._offset}"
