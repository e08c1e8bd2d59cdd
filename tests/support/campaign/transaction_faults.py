"""Each call of the file system fails while a program uses transactions; then each one is what the program was told, and whole.

The program does what the documentation says: after an error it asks for the outcome, aborts what is open, and opens the store
again if the outcome is unknown. In the end the calls succeed again. The store goes on, its process dies, its machine loses
power, or the store is closed; each time the directory is opened and judged as after a crash (`transaction_crashes`).

In tests/, with pylog's sources on the path: `python -m support.campaign.transaction_faults` lets each call fail in each scenario.
"""

from __future__ import annotations

import functools
import gc
import itertools
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import pylog
from pylog.testing import FAULTS, FaultyFileSystem, MemoryFileSystem
from pylog.testing.disk import Image
from pylog.testing.models import POWER_LOSS, PROCESS_DEATH
from pylog.transactions.coordinator import TransactionCoordinator
from support.campaign.checker import told_of
from support.campaign.crashing import bury
from support.campaign.explorer import seldom_collecting
from support.campaign.faults import CLOSING, COLLECTED, Case
from support.campaign.transaction_crashes import Found, decided, found_in, inspect, judge
from support.campaign.transaction_runs import GROUP, ID, INPUT, LARGE, SMALL, Known, Run, Written, opened
from support.campaign.workloads import clock, drawn_from, quiet

PARTITIONS: Final = 2
_STOPS: Final = ("write EIO", "sync EIO", "sync ENOSPC", "sync_directory EIO", "stat EIO")


class Driver:
    """A program that uses transactions while calls fail. Every refusal must be an error of pylog's.

    Args:
        fs: the file system with the faults.
        known: what the directory holds.
    """

    def __init__(self, fs: FaultyFileSystem, known: Known) -> None:
        self.fs = fs
        self.known = known
        self.refusals: list[pylog.PylogError] = []
        self._number = len(known.answered)
        self._store: pylog.Store | None = None

    @property
    def store(self) -> pylog.Store:
        if self._store is None:
            self._store = opened(self.fs, clock())
        return self._store

    def attempt(self, step: Callable[[Driver], object]) -> bool:
        """Does a step, unless an outcome is unknown. Returns whether it was done and not refused."""
        if self.known.in_doubt is not None:
            return False
        count = len(self.refusals)
        try:
            step(self)
        except pylog.PylogError as error:
            self.refusals.append(error)
        return len(self.refusals) == count

    def transact(
        self, count: int, *, offsets: bool = False, flushes: bool = False, commits: bool = True, name: str | None = ID
    ) -> None:
        """Writes to so many partitions, and ends the transaction, also after a refusal."""
        self._number += 1
        written = Written(self._number, count, offsets)
        transaction = self.store.transaction(name)
        try:
            for partition in range(count):
                transaction.append("out", b"%d" % written.number if commits else b"bad", partition=partition)
                if flushes:
                    transaction.flush()
            if offsets:
                transaction.send_offsets(GROUP, {INPUT: written.number})
            _ = transaction.commit() if commits else transaction.abort()
        except pylog.PylogError as error:
            self.refusals.append(error)
            self._end_after_a_refusal(transaction, written)
        else:
            self._answered(written if commits else None)

    def _end_after_a_refusal(self, transaction: pylog.Transaction, written: Written) -> None:
        try:
            if transaction.outcome == "open":
                transaction.abort()
            outcome = transaction.outcome
        except pylog.PylogError as error:
            self.refusals.append(error)
            outcome = self._last_outcome(transaction)
        if outcome == "unknown":
            self.known = self.known._replace(in_doubt=written)
            self._settle()
        else:
            self._answered(written if outcome == "committed" else None)

    @staticmethod
    def _last_outcome(transaction: pylog.Transaction) -> str:
        """Returns the outcome after an abort was refused: a transaction that is not committed by then is never committed."""
        return transaction._outcome

    def _answered(self, written: Written | None) -> None:
        if written is not None:
            self.known = self.known._replace(answered=(*self.known.answered, written))

    def _settle(self) -> None:
        """Opens the store again, which decides what is unknown, and reads it."""
        try:
            self.reopen()
            found_in(self.store)  # opens the logs
            self.store.flush()  # raises while the end of a log cannot be synced: it is decided later then
            self.known = decided(found_in(self.store), self.known)
        except pylog.PylogError as error:
            self.refusals.append(error)

    def reopen(self) -> None:
        """Closes and opens again. What closing refuses is a refusal; the store is closed all the same."""
        store, self._store = self._store, None
        try:
            if store is not None:
                store.close()
        finally:
            self.store.topics()

    def left_open(self) -> None:
        """Closes the store with an open transaction."""
        transaction = self.store.transaction(ID)
        transaction.append("out", b"bad", partition=1)
        transaction.flush()
        self.reopen()

    def close(self) -> None:
        """Closes, if that is possible."""
        store, self._store = self._store, None
        if store is not None:
            store.close()


Step = Callable[[Driver], object]
SCENARIOS: Final[dict[str, tuple[Step, ...]]] = {
    "commit": (lambda driver: driver.transact(2, offsets=True), lambda driver: driver.transact(2, offsets=True)),
    "piecemeal": (lambda driver: driver.transact(2, flushes=True, offsets=True), lambda driver: driver.transact(1)),
    "abort": (
        lambda driver: driver.transact(2, flushes=True, offsets=True, commits=False),
        lambda driver: driver.transact(2),
    ),
    "rolls": (lambda driver: driver.transact(2, flushes=True), lambda driver: driver.transact(2, offsets=True)),
    "no id": (lambda driver: driver.transact(1, name=None), lambda driver: driver.transact(2, name=None, offsets=True)),
    "left open": (Driver.left_open, lambda driver: driver.transact(2)),
    "ticks": (lambda driver: driver.transact(2), lambda driver: driver.store.tick(), lambda driver: driver.transact(1)),
    "dead": (Driver.reopen, lambda driver: driver.transact(2, offsets=True)),
    "taken over": (lambda driver: driver.transact(2, offsets=True), Driver.reopen),
}


class Beginning(NamedTuple):
    """A disk and what is known of it; with it, a living process that has a transaction of the same id open, or none."""

    image: Image
    known: Known
    is_in_use: bool


@functools.cache
def beginning(scenario: str) -> Beginning:
    """What a scenario finds: a committed transaction, or what a process has left that died in a commit and with an open one."""
    with drawn_from("transactions"):
        run = Run(PARTITIONS, SMALL if scenario == "rolls" else LARGE)
        run.transaction(2, commits=True)
        if scenario == "dead":
            _die_in_a_commit(run)
        known = run.known
        run.store.close() if scenario != "dead" else bury(run.store)
    return Beginning(run.fs.image(), known._replace(positions=()), scenario == "taken over")


def _die_in_a_commit(run: Run) -> None:
    other = run.store.transaction("other")
    other.append("out", b"bad", partition=1)
    other.flush()
    with patch.object(TransactionCoordinator, "write_markers", side_effect=pylog.PylogError("the process dies here")):
        run.transaction(2, commits=True, offsets=True)
    run.fs.kill()


# ---- one case ----------------------------------------------------------------------------------------------------------------


def execute(case: Case) -> tuple[int, list[str]]:
    """Runs a case. Returns how many calls failed, and what is wrong."""
    start = beginning(case.scenario)
    memory = MemoryFileSystem(clock=clock(), image=start.image, boots=1)
    fs = FaultyFileSystem(memory)
    driver = Driver(fs, start.known)
    told: list[str] = []
    fired = 0
    try:
        with drawn_from("case"):
            fenced = _with_an_open_transaction(memory.process()) if start.is_in_use else None
            fs.fail(case.fault, case.number, forever=case.forever)
            done = [driver.attempt(step) for step in SCENARIOS[case.scenario]]
            fired = fs.fired
            fs.heal()
            if not fired and not all(done):
                told.append(f"a step was refused without a fault: {driver.refusals}")
            told += _judged(driver, memory, may_stop=case.fault in _STOPS)
            if fenced is not None:
                fenced.close()
    except Exception as error:  # noqa: BLE001 - whatever is not an error of pylog's is one of its bugs
        return fired or fs.fired, [f"{case}: {told_of(error)}", *told]
    return fired, [f"{case}: {problem}" for problem in told]


def _with_an_open_transaction(fs: MemoryFileSystem) -> pylog.Store:
    store = opened(fs)
    transaction = store.transaction(ID)
    transaction.append("out", b"bad", partition=1)
    transaction.flush()
    return store


def _judged(driver: Driver, memory: MemoryFileSystem, *, may_stop: bool) -> Iterator[str]:
    """Whether what was told is so, after each way to go on.

    Args:
        driver, memory: after the faults.
        may_stop: the fault may leave a log that is not written to before it is opened again, also where a commit stands.
    """
    known, boots = driver.known, memory.disk.boots
    for after, image, times in (
        (PROCESS_DEATH, memory.image(), boots),
        (POWER_LOSS, memory.image(durable=True), boots + 1),
    ):
        yield from _after(after, left_on(image, times), known)
    must_go_on = not may_stop and known.in_doubt is None and all(map(_passes, driver.refusals))
    if not driver.attempt(lambda driver: driver.transact(2)) and must_go_on:
        yield f"calls succeed again, and the store has no next transaction: {driver.refusals[-1]!r}"
    driver.attempt(Driver.close)  # closing reports what failed before
    yield from _after(CLOSING, left_on(memory.image(), boots), driver.known)


def _after(after: str, found: Found, known: Known) -> Iterator[str]:
    yield from (f"after {after}: {problem}" for problem in judge(found, known))


def _passes(error: pylog.PylogError) -> bool:
    return isinstance(error, pylog.StorageFailedError) and error.passes


def left_on(image: Image, boots: int) -> Found:
    """What is found on a disk. Faults of different kinds leave the same: each state is opened once."""
    names = tuple((number, *names.items()) for number, names in sorted(image.directories.items()))
    key = (boots, names, *sorted(image.files.items()))
    if key not in _found:
        _found[key] = inspect(MemoryFileSystem(clock=clock(), image=image, boots=boots), _shared)
    return _found[key]


_found: dict[Any, Found] = {}
_shared: dict[bytes, tuple[str, ...]] = {}


# ---- many --------------------------------------------------------------------------------------------------------------------


def sweep(scenario: str, fault: str, *, forever: bool, first: int = 1, step: int = 1) -> tuple[int, list[str]]:
    """Lets each call of a kind fail in turn, or one of several, until there is none.

    Args:
        scenario, fault, forever: as in `Case`.
        first: the number of the first call.
        step: from one to the next.

    Returns:
        In how many executions a call failed, and what is wrong.
    """
    told: list[str] = []
    with seldom_collecting():
        for done in itertools.count():
            fired, problems = execute(Case(scenario, fault, first + done * step, forever))
            told += problems
            if not fired:
                return done, told
            if done % COLLECTED == 0:
                gc.collect()
    raise AssertionError("there is always a last call")


def run(seed: int, seconds: float) -> dict[str, Any]:
    """Sweeps scenarios in an order of the seed until the time is over; the sweep that is under way then is finished."""
    sweeps = list(itertools.product(SCENARIOS, FAULTS, (False, True)))
    random.Random(seed).shuffle(sweeps)
    end = time.monotonic() + seconds
    total: Counter[str] = Counter()
    problems: list[str] = []
    with quiet():
        for scenario, fault, forever in itertools.takewhile(lambda _: time.monotonic() < end, sweeps):
            done, told = sweep(scenario, fault, forever=forever)
            total.update(executions=done, sweeps=1)
            problems += told
    return {"seed": seed, **total, "violations": problems}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(0, float("inf")), indent=1) + "\n")
