"""Every call that can fail fails, in every way, once and for ever; afterwards nothing acknowledged may be missing (suite 9).

A case is a scenario, a kind of fault, and the number of the call that it strikes. The scenario goes on after each refusal, as a
program would that takes no for an answer; then the calls succeed again, and the log must take records as the promises say. In
the end its process dies, and separately its machine loses power, and what is left is opened and judged.
"""

from __future__ import annotations

import functools
import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, takewhile
from typing import Any, NamedTuple

import pylog
from pylog.errors import NO_ROOM
from pylog.segment.names import LOG
from pylog.testing import FAULTS, Crash, FaultyFileSystem, MemoryFileSystem, Moment
from pylog.testing.crashes import PartialWrite
from pylog.testing.disk import Image
from pylog.testing.models import GAP, POWER_LOSS, PROCESS_DEATH, Found
from support.campaign.checker import Outcome, SoundLogs, inspect, told_of
from support.campaign.explorer import recorded, seldom_collecting
from support.campaign.workloads import NOTHING, OS, ROOT, SYNC, TINY, Item, base, clock, drawn_from, quiet, rows

CLOSING = "closing the store"
COLLECTED = 25  # after so many executions their garbage is


class Case(NamedTuple):
    """One execution.

    Attributes:
        scenario: a name in `SCENARIOS`.
        fault: a name in `FAULTS`.
        number: of the call that fails.
        forever: and all after it.
    """

    scenario: str
    fault: str
    number: int
    forever: bool


class Ledger:
    """What was asked of a log and what it acknowledged.

    Attributes:
        promised: records that must be there after the death of a process, by offset.
        durable: those of them that must be there after a loss of power too.
        possible: everything that was asked for and may be there.
        last_start: the log may not start later.
    """

    def __init__(self, found: Found = Found(0, ())) -> None:  # noqa: B008 - a value
        self.promised: dict[int, Any] = dict(enumerate(found.records, found.start))
        self.durable = set(self.promised)
        self.possible: set[Any] = set(found.records)
        self.last_start = found.start

    def asked(self, items: list[Item]) -> None:
        self.possible |= set(items)

    def acknowledged(self, offsets: range, items: list[Item], *, durable: bool) -> None:
        self.promised |= dict(zip(offsets, items, strict=True))
        self.durable |= set(offsets) if durable else set()

    def flushed(self, end: int) -> None:
        self.durable |= {offset for offset in self.promised if offset < end}

    def going(self, offsets: Callable[[int], bool]) -> None:
        """Some records are to go: from now on they need not be there."""
        self.promised = {offset: record for offset, record in self.promised.items() if not offsets(offset)}
        self.durable &= set(self.promised)

    def problems(self, found: Found, after: str) -> Iterator[str]:
        """What is wrong with what was found."""
        wanted = {offset: self.promised[offset] for offset in (self.durable if after == POWER_LOSS else self.promised)}
        there = dict(enumerate(found.records, found.start))
        for offset, record in wanted.items():
            if there.get(offset) != record:
                yield f"offset {offset} holds {'nothing' if offset not in there else 'another record'}, and was acknowledged"
        for offset, record in there.items():
            if record not in self.possible:
                yield f"nobody appended the record at offset {offset}, or it was to be gone"
        records = [record for record in found.records if record is not GAP]
        if len(set(records)) < len(records):
            yield "a record is there twice"
        if found.start > self.last_start:
            yield f"the log starts at offset {found.start}, and everything from {self.last_start} on was to stay"


class Driver:
    """Uses a store whose calls fail, and keeps the ledger. Every refusal must be an error of pylog's.

    Args:
        fs: the file system with the faults.
        ledgers: of the topics that are there.
    """

    def __init__(self, fs: FaultyFileSystem, ledgers: dict[str, Ledger]) -> None:
        self.fs = fs
        self.ledgers = ledgers
        self.fickle: set[str] = set()  # topics whose making or deletion was refused: they may be there or not
        self.refusals: list[pylog.PylogError] = []
        self._numbers = count()
        self._starts: list[int] = []  # where the appends to `t` began
        self._store: pylog.Store | None = None

    @property
    def store(self) -> pylog.Store:
        if self._store is None:
            self._store = pylog.open(ROOT, fs=self.fs, clock=clock(), lock_timeout_ms=0)
        return self._store

    def attempt(self, step: Callable[[Driver], None]) -> bool:
        """Does a step; returns whether it was not refused."""
        try:
            step(self)
        except pylog.PylogError as error:
            self.refusals.append(error)
            return False
        return True

    def append(self, sizes: list[int], level: pylog.Durability = SYNC, topic: str = "t") -> None:
        ledger = self.ledgers[topic]
        items = [self._item(size) for size in sizes]
        log = self.store.log(topic)
        first = log.end_offset
        ledger.asked(items)
        try:
            done = log.append_batch(rows(items), durability=level)
        except pylog.StorageFailedError as error:
            if error.errno in NO_ROOM and error.passes and error.offset is not None:
                ledger.possible -= set(items[error.offset - first :])  # cut off again, as the error says
            raise
        ledger.acknowledged(done.offsets, items, durable=level == SYNC)
        ledger.flushed(log.durable_offset)
        if topic == "t":
            self._starts.append(done.offsets.start)

    def _item(self, size: int) -> Item:
        text = b"attempt %d -1." % next(self._numbers)
        return (text * (size // len(text) + 1))[: max(size, len(text))], 1

    def flush(self) -> None:
        log = self.store.log("t")
        log.flush()
        self.ledgers["t"].flushed(log.end_offset)

    def truncate(self, calls: int) -> None:
        """Cuts off what the last appends wrote: whole batches, so that no gap is left."""
        log, ledger = self.store.log("t"), self.ledgers["t"]
        starts = [start for start in self._starts if log.start_offset <= start < log.end_offset]
        end = starts[-calls] if len(starts) >= calls else log.start_offset
        gone = {record for offset, record in ledger.promised.items() if offset >= end}
        ledger.going(lambda offset: offset >= end)
        log.truncate(end)
        ledger.possible -= gone
        ledger.durable = set(ledger.promised)

    def delete_records(self) -> None:
        log, ledger = self.store.log("t"), self.ledgers["t"]
        before = (log.start_offset + log.end_offset) // 2
        ledger.last_start = before
        ledger.going(lambda offset: offset < before)
        log.delete_records(before)

    def tick(self) -> None:
        before = {topic: (self.store.log(topic).end_offset, dict(ledger.promised)) for topic, ledger in self.ledgers.items()}
        for topic, ledger in self.ledgers.items():
            ledger.last_start = end = before[topic][0]
            ledger.going(lambda offset, end=end: offset < end)  # type: ignore[misc]
        self.store.tick()
        for topic, ledger in self.ledgers.items():
            ledger.last_start = start = self.store.log(topic).start_offset
            ledger.promised = {offset: record for offset, record in before[topic][1].items() if offset >= start}

    def reopen(self) -> None:
        """Closes and opens again. What closing refuses is a refusal; the store is closed all the same."""
        store, self._store = self._store, None
        if store is not None:
            store.close()
            if not self.refusals:  # a log that failed before cannot flush, and does not say so again
                for ledger in self.ledgers.values():
                    ledger.durable = set(ledger.promised)
        self.store.topics()

    def create_topic(self, name: str) -> None:
        self.fickle.add(name)
        self.ledgers.setdefault(name, Ledger())
        self.store.create_topic(name, **TINY)
        self.fickle.discard(name)

    def delete_topic(self, name: str) -> None:
        self.fickle.add(name)
        self.store.delete_topic(name)
        self.fickle.discard(name)
        del self.ledgers[name]

    def end(self) -> None:
        """Closes, if that is possible."""
        store, self._store = self._store, None
        if store is not None:
            self.attempt(lambda _: store.close())


Step = Callable[[Driver], None]
SCENARIOS: dict[str, list[Step]] = {
    "append": [
        lambda driver: driver.append([30]),
        lambda driver: driver.append([30], OS),
        lambda driver: driver.append([200] * 4),
        lambda driver: driver.append([30], OS),
        Driver.flush,
        Driver.reopen,
        lambda driver: driver.append([400], OS),
        lambda driver: driver.append([30]),
    ],
    "trim": [
        lambda driver: driver.append([200] * 4),
        lambda driver: driver.truncate(1),
        lambda driver: driver.append([30]),
        lambda driver: driver.truncate(2),
        lambda driver: driver.append([30]),
        Driver.delete_records,
        lambda driver: driver.append([200] * 6, OS),
        Driver.tick,
        lambda driver: driver.append([30]),
    ],
    "topics": [
        lambda driver: driver.create_topic("t"),
        lambda driver: driver.append([30]),
        lambda driver: driver.create_topic("u"),
        lambda driver: driver.append([30], SYNC, "u"),
        Driver.reopen,
        lambda driver: driver.delete_topic("u"),
        lambda driver: driver.append([30]),
    ],
    "recover": [
        lambda driver: driver.append([30]),
        lambda driver: driver.append([400]),
        Driver.reopen,
        lambda driver: driver.append([30], OS),
    ],
}


class Beginning(NamedTuple):
    """A disk, how often its machine was started, and what its logs hold."""

    image: Image
    boots: int
    logs: dict[str, Found]


@functools.cache
def beginning(scenario: str) -> Beginning:
    """What a scenario finds: nothing, the store of all workloads, or that store after a crash that left a torn tail."""
    if scenario == "topics":
        return Beginning(NOTHING[0], 1, {})
    image, boots = base()[0], 1
    if scenario == "recover":
        recording, _ = recorded(("append_os",))
        last = max(number for number, one in enumerate(recording.operations) if one.path.endswith(".log"))
        _, image = Moment.of(recording, last + 1).state(Crash(last + 1, (last,), PartialWrite(last, 50, "zeros")))
        boots = 2
    return Beginning(image, boots, inspect(MemoryFileSystem(clock=clock(), image=image, boots=boots)).logs)


def execute(case: Case) -> tuple[int, list[str]]:
    """Runs a case. Returns how many calls failed, and what is wrong."""
    start = beginning(case.scenario)
    memory = MemoryFileSystem(clock=clock(), image=start.image, boots=start.boots)
    fs = FaultyFileSystem(memory)
    driver = Driver(fs, {topic: Ledger(found) for topic, found in start.logs.items()})
    told = []
    try:
        fs.fail(case.fault, case.number, forever=case.forever)
        with drawn_from("case"):
            done = [driver.attempt(step) for step in SCENARIOS[case.scenario]]
        fired = fs.fired
        if not fired:
            told += [f"step {number} was refused without a fault: {driver.refusals}" for number, ok in enumerate(done) if not ok]
        fs.heal()
        told += goes_on(driver)
        for after, image, boots in ends(memory):
            told += judged(driver, outcome_of(image, boots), after)
        driver.end()
        told += judged(driver, outcome_of(memory.image(), memory.disk.boots), CLOSING)
    except Exception as error:  # noqa: BLE001 - whatever is not an error of pylog's is one of its bugs
        return fs.fired or 1, [*told, told_of(error)]
    return fired, [f"{case}: {problem}" for problem in told]


def outcome_of(image: Image, boots: int) -> Outcome:
    """What is found on a disk. Faults of different kinds leave the same: each state is opened once, and so is each log in it."""
    names = tuple((number, *names.items()) for number, names in sorted(image.directories.items()))
    key = (boots, names, *sorted(image.files.items()))
    if key not in _outcomes:
        _outcomes[key] = inspect(MemoryFileSystem(clock=clock(), image=image, boots=boots), seen=_logs, thorough=True)
    return _outcomes[key]


_outcomes: dict[Any, Outcome] = {}
_logs: SoundLogs = {}


def ends(memory: MemoryFileSystem) -> list[tuple[str, Image, int]]:
    """What the death of the process and a loss of power leave now."""
    boots = memory.disk.boots
    return [(PROCESS_DEATH, memory.image(), boots), (POWER_LOSS, memory.image(durable=True), boots + 1)]


def goes_on(driver: Driver) -> Iterator[str]:
    """Whether the log takes records again once calls succeed: at once when only a write of records failed, or there was no room
    or no descriptor to be had, else when reopened."""
    if "t" in driver.fickle or "t" not in driver.ledgers:
        return
    usable = all(_passes(error) for error in driver.refusals)
    refused = len(driver.refusals)
    if usable and not driver.attempt(lambda driver: driver.append([30])):
        yield f"there is room again, and the log does not go on: {driver.refusals[-1]}"
    driver.attempt(Driver.reopen)  # closing reports what failed before
    if not driver.attempt(lambda driver: driver.append([30])):
        yield f"the log does not go on when it is reopened: {driver.refusals[refused:]}"


def _passes(error: pylog.PylogError) -> bool:
    wrote = str(error).startswith("cannot write") and str(error.path).endswith(LOG)
    return wrote or (isinstance(error, pylog.StorageFailedError) and error.passes)


def judged(driver: Driver, outcome: Outcome, after: str) -> Iterator[str]:
    """What is wrong with what is left."""
    yield from (f"after {after}: {problem}" for problem in outcome.problems)
    for topic in driver.ledgers.keys() | outcome.logs.keys():
        ledger, found = driver.ledgers.get(topic), outcome.logs.get(topic)
        if ledger is not None and found is not None:
            yield from (f"after {after}: {topic}: {problem}" for problem in ledger.problems(found, after))
        elif topic not in driver.fickle:
            yield f"after {after}: topic {topic} is {'back' if ledger is None else 'gone'}"


def cases(scenario: str, fault: str, *, forever: bool, step: int = 1) -> Iterator[Case]:
    """The cases of one kind, from the first call on; who takes them stops when no call was there to fail."""
    return (Case(scenario, fault, number, forever) for number in count(1, step))


def sweep(scenario: str, fault: str, *, forever: bool, step: int = 1) -> tuple[int, list[str]]:
    """Lets each call of a kind fail in turn, or one of `step`, until there is none.

    Returns:
        The number of the call that was not there any more, and what is wrong.
    """
    told: list[str] = []
    with seldom_collecting():
        for case in cases(scenario, fault, forever=forever, step=step):
            fired, problems = execute(case)
            told += problems
            if not fired:
                return case.number, told
            if case.number % COLLECTED == 0:
                gc.collect()
    raise AssertionError("there is always a last call")


# ---- for long runs -------------------------------------------------------------------------------------------------------------


def run(seed: int, seconds: float) -> dict[str, Any]:
    """Sweeps scenarios of random steps until the time is over.

    Args:
        seed: of the steps and their order.
        seconds: how long; the sweep that is under way then is finished.

    Returns:
        How much was done, and what was wrong, as texts.
    """
    rng = random.Random(seed)
    total: Counter[str] = Counter()
    problems: list[str] = []
    end = time.monotonic() + seconds
    for number in takewhile(lambda _: time.monotonic() < end, count()):
        name = f"random {seed} {number}"
        SCENARIOS[name] = rng.choices([step for name in ("append", "trim") for step in SCENARIOS[name]], k=rng.randrange(3, 12))
        for fault in takewhile(lambda _: time.monotonic() < end, rng.sample(list(FAULTS), len(FAULTS))):
            with quiet():
                done, told = sweep(name, fault, forever=rng.random() < 0.5)
            total.update(executions=done, sweeps=1)
            problems += told
        del SCENARIOS[name]
    return {"seed": seed, **total, "violations": problems}
