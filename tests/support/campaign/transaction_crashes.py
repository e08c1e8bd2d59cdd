"""Crashes at every call of a run with transactions: what was answered is kept, and each transaction is there whole or not at all.

Each crash state is opened, read, and written to with the same id (`inspect`); what was found is compared with what was promised
(`judge`). What follows the opening is the same in states that their openings have made equal, so it is asked once, and again for
a sample. Whatever an `Explorer` draws comes from its seed.

In tests/, with pylog's sources on the path: `python -m support.campaign.transaction_crashes STATES [SEED]`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

from pylog.log.durable_point import SLOT_SIZE, parse_slot
from pylog.log.partition_log import PartitionLog
from pylog.segment.names import DURABLE_POINT, TORN
from pylog.store import Store, manager_of
from pylog.testing.crashes import Crash, Moment, restarted
from pylog.testing.disk import DirectoryNode, Disk, FileNode
from pylog.testing.memory import MemoryFileSystem
from pylog.testing.recording import Recording
from pylog.transactions.coordinator import open_transactions
from support.campaign.checker import told_of
from support.campaign.crashing import bury
from support.campaign.explorer import collect_and_keep, seldom_collecting
from support.campaign.transaction_runs import GROUP, ID, INPUT, LARGE, SMALL, STEPS, Known, opened, recorded
from support.campaign.workloads import clock, quiet

AGAIN: Final = 16  # of so many states that an opening has made equal to another, one is gone through to its end all the same
DEEPER: Final = 20  # of so many states, one recovery is recorded and crashed again
_NEXT: Final = 99  # the offset that the next transaction commits
_FACTS: Final = attrgetter("flags", "published_offset", "durable_offset", "log_start_offset", "truncation_count", "leader_epoch")


# ---- one state ---------------------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """What is in a store that was opened after a crash.

    Attributes:
        values: what `read_committed` readers see, by partition.
        ends: of the partitions.
        position: where the group goes on.
        problems: what is wrong whatever was promised.
    """

    values: tuple[tuple[bytes, ...], ...] = ()
    ends: tuple[int, ...] = ()
    position: int | None = None
    problems: tuple[str, ...] = ()


Shared = dict[bytes, tuple[str, ...]]  # what goes wrong after an opening, by a digest of what it has left


def inspect(fs: MemoryFileSystem, shared: Shared | None = None) -> Found:
    """Opens a store, reads it, and goes on with the same id. The process that does it is dead afterwards.

    Args:
        fs: the disk after a crash.
        shared: what followed other openings; it is not asked again after an opening that has left the same. None asks always.
    """
    try:
        return _inspected(opened(fs), fs, shared)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
        return Found(problems=(told_of(error),))


def _inspected(store: Store, fs: MemoryFileSystem, shared: Shared | None) -> Found:
    try:
        found = found_in(store)
        left = _left(store, fs.disk)
        if found.problems or (shared is not None and left in shared):
            return found if found.problems else found._replace(problems=shared[left])
        problems = tuple(_problems_of_the_next(store, fs, len(found.values)))
        if shared is not None:
            shared[left] = problems
        return found._replace(problems=problems)
    finally:
        fs.kill()
        bury(store)


def found_in(store: Store) -> Found:
    """Returns what is in an open store."""
    partitions = range(store.topic("out").partition_count)
    return Found(
        tuple(_committed(store, partition) for partition in partitions),
        tuple(store.log("out", partition).end_offset for partition in partitions),
        store.offsets.position(GROUP, INPUT),
        tuple(problem for partition in partitions for problem in _left_open(store, partition)),
    )


def _committed(store: Store, partition: int) -> tuple[bytes, ...]:
    """Returns what `read_committed` readers see of a partition."""
    return tuple(record.value or b"" for record in store.log("out", partition).records(isolation_level="read_committed"))


def _left_open(store: Store, partition: int) -> Iterator[str]:
    left = open_transactions(manager_of(store).log("out", partition))
    if left:
        yield f"transactions are open in out-{partition} after the store was opened: {left}"


def _problems_of_the_next(store: Store, fs: MemoryFileSystem, count: int) -> Iterator[str]:
    """The next transaction of the same id must go through, and be the last one that is read, also by the next process."""
    with store.transaction(ID) as transaction:
        for partition in range(count):
            transaction.append("out", b"next", partition=partition)
        transaction.send_offsets(GROUP, {INPUT: _NEXT})
    yield from _problems_after_the_next(store, count)
    findings = store.check().findings
    if findings:
        yield f"check finds {findings}"
    store.close()
    with opened(fs) as again:
        yield from _problems_after_the_next(again, count)


def _problems_after_the_next(store: Store, count: int) -> Iterator[str]:
    for partition in range(count):
        if _committed(store, partition)[-1:] != (b"next",):
            yield f"the next transaction is not read in out-{partition}: {_committed(store, partition)}"
    if store.offsets.position(GROUP, INPUT) != _NEXT:
        yield "the offsets of the next transaction are not read"


def _left(store: Store, disk: Disk) -> bytes:
    """Returns a digest of all that an opening has left: files, facts of headers, and what the open logs have in memory.

    Left out are numbers that only count up or name a file, and what was torn and is kept aside.
    """
    files = sorted(_files(disk.root, ""))
    logs = sorted((key, _in_memory(log)) for key, log in manager_of(store)._logs.items())
    return hashlib.blake2b(repr((files, logs)).encode(), digest_size=16).digest()


def _files(directory: DirectoryNode, path: str) -> Iterator[tuple[str, object]]:
    for name, node in directory.names.items():
        if isinstance(node, DirectoryNode):
            yield from _files(node, f"{path}/{name}")
        elif isinstance(node, FileNode) and TORN not in name:
            data = bytes(node.data)
            yield f"{path}/{name}", _facts(data) if name == DURABLE_POINT else data


def _facts(header: bytes) -> object:
    slots = [parse_slot(header[start : start + SLOT_SIZE]) for start in (0, SLOT_SIZE)]
    newest = max((slot for slot in slots if slot is not None), key=lambda slot: slot.counter, default=None)
    return None if newest is None else (*_FACTS(newest), header[2 * SLOT_SIZE :])


def _in_memory(log: PartitionLog) -> object:
    state, writer = log.known, log.writer().writer
    producers = None if writer is None else writer.producers.producers
    segments = [segment[:3] for segment in state.described()]
    return segments, state.start_offset, state.end_offset, state.durable_offset, state.first_unstable_offset, producers


# ---- what was promised -------------------------------------------------------------------------------------------------------


def judge(found: Found, known: Known) -> list[str]:
    """Returns the promises that are broken, in sentences."""
    return [*found.problems, *_broken(found, known)] if found.values else list(found.problems)


def _broken(found: Found, known: Known) -> Iterator[str]:
    numbers = [[int(value) for value in each if value.isdigit()] for each in found.values]
    if any(b"bad" in each for each in found.values):
        yield f"an aborted record is read: {found.values}"
    if any(each != sorted(set(each)) for each in numbers):
        yield f"a record is read twice or out of order: {numbers}"
    yield from _broken_transactions(numbers, found.position, known)
    for partition, (position, end) in enumerate(zip(known.positions, found.ends, strict=False)):
        if position > end:
            yield f"a reader is at {position} of out-{partition}, and it ends at {end}: it skips what follows"


def _broken_transactions(numbers: list[list[int]], position: int | None, known: Known) -> Iterator[str]:
    seen = set(itertools.chain(*numbers))
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


def decided(found: Found, known: Known) -> Known:
    """Returns what is known once a reader has seen the store: what was in doubt has been read, or never will be."""
    written = known.in_doubt
    is_read = written is not None and any(b"%d" % written.number in each for each in found.values)
    answered = (*known.answered, written) if written is not None and is_read else known.answered
    return Known(answered, None, found.ends)


# ---- all states --------------------------------------------------------------------------------------------------------------


class Violation(NamedTuple):
    """A broken promise, with all that it takes to see it again."""

    steps: tuple[str, ...]
    segment_bytes: int
    crashes: tuple[Crash, ...]
    problem: str

    def __str__(self) -> str:
        crashes = "".join(f", {str(crash)!r}" for crash in self.crashes)
        return f"{self.problem}\n  replay({list(self.steps)!r}, {self.segment_bytes}{crashes})"


@dataclass
class Explorer:
    """Opens the crash states of runs, each distinct one once, and judges them by what was known when they can come about.

    Args:
        seed: of all draws.
        subsets, cuts: how many selections of volatile operations, and how many partial writes, a moment.
        deeper: of how many states one is recovered while it is recorded, and crashed again; 0 is none.
        states: after so many nothing more is explored.
        end: nor after this time of the monotonic clock.

    Attributes:
        opened: the states that were opened, and what was found; a state is a disk's digest, and the machine's starts.
        judged, recoveries: how often a state was judged, and how many recoveries were crashed.
        shared: what followed openings.
        violations: the promises that were broken. One ends the exploration of its run.
    """

    seed: int = 0
    subsets: int = 3
    cuts: int = 1
    deeper: int = 0
    states: float = math.inf
    end: float = math.inf
    opened: dict[tuple[bytes, int], Found] = field(default_factory=dict)
    judged: int = 0
    recoveries: int = 0
    shared: Shared = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return len(self.opened) >= self.states or time.monotonic() >= self.end

    def explore(self, steps: Sequence[str], segment_bytes: int = LARGE, *, moments: int | None = None) -> None:
        """Crashes the last step of a run at every call, or at so many of them, drawn at random."""
        recording, start = recorded(steps, segment_bytes)
        run = _Crashed(tuple(steps), segment_bytes)
        places = range(start + 1, len(recording) + 1)
        rng = random.Random(f"{self.seed} {steps} {segment_bytes}")
        chosen = places if moments is None else sorted(rng.sample(places, min(moments, len(places))))
        self._crash_all(run, recording, chosen, rng, self.deeper)

    def _crash_all(self, run: _Crashed, recording: Recording, places: Sequence[int], rng: random.Random, deeper: int) -> None:
        moment = Moment(recording)
        for place in places:
            while moment.after < place:
                moment.advance()
            for crash in (*moment.deaths(rng, self.cuts), *moment.crashes(rng, self.subsets, self.cuts)):
                is_new = self._try(run, recording, moment, crash)
                if self.is_done or (self.violations and self.violations[-1].steps == run.steps):
                    return
                if is_new and deeper and rng.randrange(deeper) == 0:
                    self._recover(run, recording, crash, rng)

    def _try(self, run: _Crashed, recording: Recording, moment: Moment, crash: Crash) -> bool:
        """Judges one state; returns whether it was new."""
        digest, image = moment.state(crash)
        state = digest, recording.boots + crash.power
        is_new = state not in self.opened
        if is_new:
            fs = MemoryFileSystem(clock=clock(), image=image, boots=state[1])
            self.opened[state] = inspect(fs, None if digest[0] % AGAIN == 0 else self.shared)
        self.judged += 1
        known = recording.known_after(crash.after)
        problems = judge(self.opened[state], known if isinstance(known, Known) else Known())
        if problems:
            self.violations.append(Violation(run.steps, run.segment_bytes, (*run.before, crash), problems[0]))
        return is_new

    def _recover(self, run: _Crashed, recording: Recording, crash: Crash, rng: random.Random) -> None:
        """Crashes the recovery from a crash at every call."""
        again = recovered(recording, crash)
        start = 0 if crash.power else crash.after
        deeper = run._replace(before=(*run.before, crash))
        self.recoveries += 1
        self._crash_all(deeper, again, range(start + 1, len(again) + 1), rng, 0)

    def report(self) -> dict[str, Any]:
        """Returns what was done, in numbers."""
        told = {"states": len(self.opened), "judged": self.judged, "recoveries": self.recoveries, "endings": len(self.shared)}
        return {"seed": self.seed, **told, "violations": [str(violation) for violation in self.violations]}


class _Crashed(NamedTuple):
    steps: tuple[str, ...]
    segment_bytes: int
    before: tuple[Crash, ...] = ()


def recovered(recording: Recording, crash: Crash) -> Recording:
    """Returns the recording of an opening after a crash, and what is known while it goes on."""
    known = recording.known_after(crash.after)
    assert isinstance(known, Known)
    fs = restarted(recording, crash, clock=clock())
    fs.recording.mark(known)
    store = opened(fs)
    fs.recording.mark(decided(found_in(store), known))
    fs.kill()
    bury(store)
    return fs.recording


def replay(steps: Sequence[str], segment_bytes: int, *crashes: str) -> list[str]:
    """Returns the promises that a crash of a run breaks, or a crash of the recovery from one."""
    recording, _ = recorded(steps, segment_bytes)
    *earlier, last = map(Crash.parse, crashes)
    for crash in earlier:
        recording = recovered(recording, crash)
    known = recording.known_after(last.after)
    assert isinstance(known, Known)
    return judge(inspect(restarted(recording, last, clock=clock())), known)


# ---- a campaign --------------------------------------------------------------------------------------------------------------


def runs(rng: random.Random) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yields all runs of one and two steps in an order of the generator, and then runs of three steps without end."""
    short = [(steps, size) for count in (1, 2) for steps in itertools.product(STEPS, repeat=count) for size in (LARGE, SMALL)]
    rng.shuffle(short)
    yield from short
    while True:
        yield tuple(rng.choices(list(STEPS), k=3)), rng.choice((LARGE, SMALL))


def run(seed: int, seconds: float = math.inf, states: float = math.inf) -> dict[str, object]:
    """Explores runs until the time is over, or so many states were opened."""
    explorer = Explorer(seed, deeper=DEEPER, states=states, end=time.monotonic() + seconds)
    done = 0
    with quiet(), seldom_collecting():
        for steps, segment_bytes in runs(random.Random(seed)):
            if explorer.is_done:
                break
            explorer.explore(steps, segment_bytes)
            collect_and_keep()
            done += 1
    return {"runs": done, **explorer.report()}


if __name__ == "__main__":
    wanted, *given = map(int, sys.argv[1:])
    sys.stdout.write(json.dumps(run(*given or [0], states=wanted), indent=1) + "\n")
