"""Crashes at every call of a run with transactions: what was answered is kept, and each transaction is there whole or not at all.

A run is a list of steps, recorded on a disk in memory. Each crash state is opened, read, and written to with the same id.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import pylog
from pylog.config import Durability
from pylog.store import Store, manager_of
from pylog.testing.crashes import Crash, Moment, restarted
from pylog.testing.recording import Recording, RecordingFileSystem, Without
from pylog.transactions.coordinator import open_transactions

ROOT: Final = "/data"
ID: Final = "billing"
PARTITIONS: Final = 2
_FEW: Final = {
    "transactions": pylog.TransactionsConfig(topic_num_partitions=1, topic_segment_bytes=700),
    "offsets": pylog.OffsetsConfig(topic_num_partitions=1),
}


class Written(NamedTuple):
    """A transaction of a run: its number, which is its records' value, and how many partitions it writes to."""

    number: int
    partitions: int
    offsets: bool


class Known(NamedTuple):
    """What is known of a run: the transactions whose commit was answered, one that may be committed, and a reader's positions.

    The reader is at the end of each partition after a step. All of a run is appended with durability SYNC.
    """

    answered: tuple[Written, ...] = ()
    in_doubt: Written | None = None
    positions: tuple[int, ...] = ()


class Run:
    """One run, step by step."""

    def __init__(self, *, segment_bytes: int = 1 << 20, without: Without | None = None) -> None:
        self.fs = RecordingFileSystem(without=without)
        self.known = Known()
        self.number = 0
        self.store = opened(self.fs)
        self.store.create_topic("in")
        self.store.create_topic("out", PARTITIONS, segment_bytes=segment_bytes)
        self.store.log("in").append_many([b"%d" % number for number in range(100)])
        self.store.flush()
        self.fs.recording.mark(self.known)

    def transaction(self, count: int, *, commits: bool, offsets: bool = False, flushes: bool = False) -> None:
        """Writes to so many partitions, and commits or aborts."""
        self.number += 1
        value = b"%d" % self.number if commits else b"bad"
        transaction = self.store.transaction(ID)
        for partition in range(count):
            transaction.append("out", value, partition=partition)
            if flushes:
                transaction.flush()
        if offsets:
            transaction.send_offsets("g", {("in", 0): self.number})
        if commits:
            written = Written(self.number, count, offsets)
            self._mark(self.known._replace(in_doubt=written))
            transaction.commit()
            self._mark(self.known._replace(answered=(*self.known.answered, written), in_doubt=None))
        else:
            transaction.abort()

    def left_open(self) -> None:
        """Writes in a transaction that is never ended, and closes the store."""
        transaction = self.store.transaction(ID)
        transaction.append("out", b"bad", partition=1)
        transaction.flush()
        self.reopen()

    def plain(self) -> None:
        """Appends outside any transaction."""
        for partition in range(PARTITIONS):
            self.store.log("out", partition).append(b"plain")

    def reopen(self) -> None:
        """Closes the store and opens it again."""
        self.store.close()
        self.store = opened(self.fs)

    def read(self) -> None:
        """A reader reads all partitions to their ends."""
        ends = tuple(self.store.log("out", partition).end_offset for partition in range(PARTITIONS))
        self._mark(self.known._replace(positions=ends))

    def _mark(self, known: Known) -> None:
        self.known = known
        self.fs.recording.mark(known)


STEPS: Final[dict[str, Callable[[Run], None]]] = {
    "commit 1": lambda run: run.transaction(1, commits=True),
    "commit 2": lambda run: run.transaction(2, commits=True),
    "commit 2 piecemeal": lambda run: run.transaction(2, commits=True, flushes=True),
    "commit 2 with offsets": lambda run: run.transaction(2, commits=True, offsets=True),
    "abort 2": lambda run: run.transaction(2, commits=False, flushes=True),
    "left open": Run.left_open,
    "plain": Run.plain,
    "reopen": Run.reopen,
}


def opened(fs: RecordingFileSystem) -> Store:
    return pylog.open(ROOT, fs=fs, clock=fs.clock, durability=Durability.SYNC, **_FEW)  # type: ignore[arg-type]


def recorded(steps: Sequence[str], *, segment_bytes: int = 1 << 20, without: Without | None = None) -> Recording:
    """Returns the recording of a run."""
    run = Run(segment_bytes=segment_bytes, without=without)
    for step in steps:
        STEPS[step](run)
        run.read()
    run.store.close()
    run.fs.recording.mark(run.known)
    return run.fs.recording


def crashes_of(recording: Recording, rng: random.Random, *, subsets: int, cuts: int, every: int = 1) -> Iterator[Crash]:
    """Yields the crashes of a run: power losses and deaths at every so many calls."""
    moment, (first, _) = Moment(recording), recording.marks[0]
    while moment.after < len(recording):
        moment.advance()
        if moment.after >= first and moment.after % every == 0:
            yield from moment.crashes(rng, subsets, cuts)
            yield from moment.deaths(rng, cuts)


def problems_after(recording: Recording, crash: Crash) -> list[str]:
    """Returns the promises that a crash breaks."""
    known = recording.known_after(crash.after)
    assert isinstance(known, Known)
    fs = restarted(recording, crash)
    with opened(fs) as store:
        found = list(_problems(store, known))
        if not found:
            found = list(_problems_of_the_next(store))
    return found


def _problems(store: Store, known: Known) -> Iterator[str]:
    values = [committed(store, partition) for partition in range(PARTITIONS)]
    if any(b"bad" in each for each in values):
        yield f"an aborted record is read: {values}"
    numbers = [[int(value) for value in each if value.isdigit()] for each in values]
    if any(each != sorted(set(each)) for each in numbers):
        yield f"a record is read twice or out of order: {numbers}"
    position = store.offsets.position("g", ("in", 0))
    seen = set(numbers[0]) | set(numbers[1])
    lost = {written.number for written in known.answered} - seen
    if lost:
        yield f"the answered transactions {sorted(lost)} are gone: {numbers}"
    candidates = [*known.answered, *([known.in_doubt] if known.in_doubt else [])]
    extra = seen - {written.number for written in candidates}
    if extra:
        yield f"the transactions {sorted(extra)} were never committed: {numbers}"
    for written in candidates:
        parts = [written.number in found for found in numbers[: written.partitions]]
        if any(parts) and not all(parts):
            yield f"a part of transaction {written.number} is read: {numbers}"
    wanted = [written.number for written in candidates if written.offsets and written.number in seen]
    if position != (wanted[-1] if wanted else None):
        yield f"the group goes on from {position}, and not as the transactions say: {wanted}"
    for partition in range(PARTITIONS):
        end = store.log("out", partition).end_offset
        if known.positions and known.positions[partition] > end:
            yield f"a reader is at {known.positions[partition]} of out-{partition}, and it ends at {end}: it skips what follows"
        left = open_transactions(manager_of(store).log("out", partition))
        if left:
            yield f"transactions are open in out-{partition} after the store was opened: {left}"


def _problems_of_the_next(store: Store) -> Iterator[str]:
    """The next transaction of the same id must go through, and be the last one that is read."""
    with store.transaction(ID) as transaction:
        for partition in range(PARTITIONS):
            transaction.append("out", b"next", partition=partition)
        transaction.send_offsets("g", {("in", 0): 99})
    for partition in range(PARTITIONS):
        if committed(store, partition)[-1:] != [b"next"]:
            yield f"the next transaction is not read in out-{partition}: {committed(store, partition)}"
    if store.offsets.position("g", ("in", 0)) != 99:
        yield "the offsets of the next transaction are not read"
    findings = store.check().findings
    if findings:
        yield f"check finds {findings}"


def committed(store: Store, partition: int) -> list[bytes]:
    """Returns what `read_committed` readers see of a partition."""
    return [record.value or b"" for record in store.log("out", partition).records(isolation_level="read_committed")]


# ---- a campaign --------------------------------------------------------------------------------------------------------------


class Explorer:
    """Opens crash states, each distinct one once.

    Attributes:
        opened: the states so far, by the digest of the disk and what was known.
        violations: the broken promises, each with the run and the crash that shows it.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.opened: set[tuple[bytes, object]] = set()
        self.violations: list[str] = []

    def explore(self, steps: Sequence[str], segment_bytes: int, *, subsets: int, cuts: int, most: int = 1 << 60) -> None:
        """Opens crash states of a run, at most so many, drawn at random, until a promise is broken."""
        recording = recorded(steps, segment_bytes=segment_bytes)
        crashes = list(crashes_of(recording, self.rng, subsets=subsets, cuts=cuts))
        moment = Moment(recording)
        for crash in sorted(self.rng.sample(crashes, min(most, len(crashes))), key=lambda drawn: drawn.after):
            while moment.after < crash.after:
                moment.advance()
            state = moment.state(crash)[0], recording.known_after(crash.after)
            if state in self.opened:
                continue
            self.opened.add(state)
            found = problems_after(recording, crash)
            if found:
                self.violations.append(f"{found[0]}\n  replay({list(steps)!r}, {segment_bytes}, {str(crash)!r})")
                return

    def drawn_steps(self, most: int = 3) -> list[str]:
        """Draws a run."""
        return [self.rng.choice(list(STEPS)) for _ in range(self.rng.randint(1, most))]


def replay(steps: Sequence[str], segment_bytes: int, crash: str) -> list[str]:
    """Returns the promises that a crash of a run breaks."""
    return problems_after(recorded(steps, segment_bytes=segment_bytes), Crash.parse(crash))


def run(seed: int, seconds: float) -> dict[str, object]:
    """Explores runs of one to three steps until the time is over."""
    explorer, end = Explorer(seed), time.monotonic() + seconds
    runs = 0
    while time.monotonic() < end:
        explorer.explore(explorer.drawn_steps(), explorer.rng.choice([1 << 20, 250]), subsets=3, cuts=1, most=200)
        runs += 1
    return {"seed": seed, "runs": runs, "states": len(explorer.opened), "violations": explorer.violations}
