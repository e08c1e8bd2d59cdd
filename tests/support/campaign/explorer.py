"""Crashes workloads everywhere, opens what is left, and judges it (reliability 8.2, suite 6).

One `Explorer` counts and remembers: a state of the disk that was opened once is not opened again, but judged by what was known
at each moment at which it can come about. Whatever it draws comes from its seed, so a violation can be gone through again:

    from support.campaign.explorer import replay
    replay(("append", "truncate"), "after=12 kept=3,9 cut=9:20:zeros")
"""

from __future__ import annotations

import gc
import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from pylog.testing import Crash, MemoryFileSystem, Moment, Recording, RecordingFileSystem, restarted
from pylog.testing.disk import Disk
from pylog.testing.models import POWER_LOSS, PROCESS_DEATH, Found, LogModel
from pylog.testing.recording import Without
from support.campaign.checker import Outcome, SoundLogs, inspect, judge, lost_tails, probe_of, told_of
from support.campaign.workloads import NOTHING, THERE, Known, Session, Tail, TopicKnown, base, clock, drawn_from, quiet, workloads

Workload = tuple[str, ...]
Opened = dict[tuple[bytes, int], Outcome]  # by the digest of a state, and how often the machine was started
CHECKED = 8  # of so many states one is gone over by `store.check()`


class Violation(NamedTuple):
    """A broken promise, with all that it takes to see it again."""

    workload: Workload
    crashes: tuple[Crash, ...]
    problems: tuple[str, ...]

    def __str__(self) -> str:
        told = "\n".join(f"  {problem}" for problem in self.problems)
        again = ", ".join([repr(self.workload), *(f'"{crash}"' for crash in self.crashes)])
        return f"{' then '.join(self.workload)}\n{told}\n  replay({again})"


@dataclass
class Explorer:
    """Explores recordings.

    Args:
        seed: of all draws.
        subsets, cuts: how many selections of volatile operations, and how many partial writes, a moment; None is all.
        deeper: of how many states one is recovered while it is recorded, and crashed again; 0 is none.
        without: which calls are left out.
        enough: after so many violations nothing more is explored.
        end: nor after this time of the monotonic clock.

    Attributes:
        opened: the states that were opened, and what was found.
        logs: of those states the logs that were all right, and what was in them.
        judged: how often a state was judged.
        violations: the promises that were broken.
    """

    seed: int = 0
    subsets: int | None = None
    cuts: int | None = None
    deeper: int = 0
    without: Without | None = None
    enough: int = 1000
    end: float = math.inf
    opened: Opened = field(default_factory=dict)
    logs: SoundLogs = field(default_factory=dict)
    judged: int = 0
    violations: list[Violation] = field(default_factory=list)
    _collecting: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        """Collects garbage between workloads only."""
        self._collecting.enter_context(seldom_collecting())
        return self

    def __exit__(self, *_: object) -> None:
        self._collecting.close()

    def explore(self, workload: Workload) -> None:
        """Crashes the last operation of a workload everywhere; the ones before it are workloads of their own."""
        try:
            recording, start = recorded(workload, self.without)
        except Exception as error:  # noqa: BLE001 - an engine without one of its calls may do anything
            self.violations.append(Violation(workload, (), (told_of(error),)))
            return
        self._crash_all(workload, (), recording, start)
        if not gc.isenabled():
            collect_and_keep()

    def explore_recovery(self, workload: Workload, crash: Crash) -> None:
        """Crashes, everywhere, the recovery from one crash of a workload."""
        recording, _ = recorded(workload)
        again = recovered(recording, crash, self.without)
        self._crash_all(workload, (crash,), again, 0 if crash.power else crash.after)

    def _crash_all(self, workload: Workload, before: tuple[Crash, ...], recording: Recording, start: int) -> None:
        """Judges every state that a crash of a recording can leave from some operation on."""
        rng = random.Random(f"{self.seed} {workload} {before}")
        moment = Moment.of(recording, start)
        while True:
            for crash in (*moment.deaths(rng, self.cuts), *moment.crashes(rng, self.subsets, self.cuts)):
                new = self._try(workload, before, recording, moment, crash)
                if new and not before and self.deeper and rng.randrange(self.deeper) == 0:
                    again = recovered(recording, crash, self.without)
                    self._crash_all(workload, (crash,), again, 0 if crash.power else crash.after)
            if moment.after == len(recording) or len(self.violations) >= self.enough or time.monotonic() >= self.end:
                return
            moment.advance()

    def _try(self, workload: Workload, before: tuple[Crash, ...], recording: Recording, moment: Moment, crash: Crash) -> bool:
        """Judges one state; returns whether it was new."""
        digest, image = moment.state(crash)
        boots = recording.boots + crash.power
        new = (digest, boots) not in self.opened
        if new:
            fs = MemoryFileSystem(clock=clock(), image=image, boots=boots)
            self.opened[digest, boots] = inspect(fs, seen=self.logs, thorough=digest[0] % CHECKED == 0)
        self.judged += 1
        known = known_at(recording, crash)
        problems = judge(self.opened[digest, boots], known, kind_of(crash))
        tails = [tail for one in known.values() for tail in one.tails]
        problems += lost_tails(tails, Disk.of(image, 0, boots)) if tails else []
        if problems:
            self.violations.append(Violation(workload, (*before, crash), tuple(problems)))
        return new


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Garbage is collected when asked for, and nothing is looked at twice: that takes a third of the time otherwise.

    A store that was opened leaves cycles behind; what was found in a state stays. Inside another such block nothing happens: it
    takes a second to look through a process that has run thousands of tests.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    collect_and_keep()
    try:
        yield
    finally:
        gc.unfreeze()
        collect_and_keep()  # else each later collection would look through all collected tests again: see tests/conftest.py
        gc.enable()


def collect_and_keep() -> None:
    """Collects garbage; what is left is not looked through again."""
    gc.collect()
    gc.freeze()


def recorded(workload: Workload, without: Without | None = None) -> tuple[Recording, int]:
    """The recording of a workload without a crash, and where its last operation begins."""
    image, known = NOTHING if workload[0] == "new" else base()
    fs = RecordingFileSystem(clock=clock(), image=image, without=without)
    session = Session(fs, known, fs.recording.mark)
    try:
        with drawn_from("workload"):
            session.run(workload[:-1])
            start = len(fs.recording) if len(workload) > 1 else 0
            session.run(workload[-1:])
        return fs.recording, start
    finally:
        session.end()


def recovered(recording: Recording, crash: Crash, without: Without | None = None, seen: SoundLogs | None = None) -> Recording:
    """The recording of a recovery from a crash, with what is known while it goes on; `seen` as for `inspect`."""
    fs = restarted(recording, crash, clock=clock(), without=without)
    after = kind_of(crash)
    known = known_at(recording, crash)
    now = {topic: one._replace(log=one.log.after(after)) for topic, one in known.items()}
    fs.recording.mark(dict(now))

    def note(topic: str, found: Found, tails: tuple[Tail, ...], acknowledged: bool) -> None:
        if topic not in known:
            return
        model = LogModel(known[topic].log.adopted(found, after))
        model.append([probe_of(topic, found)])
        if acknowledged:
            model.acknowledge(durable=True)
        there, kept = THERE if acknowledged else known[topic][:2], tails if crash.power else ()
        now[topic] = TopicKnown(*there, model.promise, kept, known[topic].short and not acknowledged)
        fs.recording.mark(dict(now))

    inspect(fs, note, seen)
    return fs.recording


def known_at(recording: Recording, crash: Crash) -> Known:
    known = recording.known_after(crash.after)
    return known if isinstance(known, dict) else {}


def kind_of(crash: Crash) -> str:
    return POWER_LOSS if crash.power else PROCESS_DEATH


def replay(workload: Workload, *crashes: str) -> list[str]:
    """Goes through a violation again, and says what is wrong: put a breakpoint here.

    Args:
        workload: the operations.
        crashes: as the violation names them.
    """
    recording, _ = recorded(workload)
    *earlier, last = map(Crash.parse, crashes)
    for crash in earlier:
        recording = recovered(recording, crash)
    explorer = Explorer()
    explorer._try(workload, (), recording, Moment.of(recording, last.after), last)
    return [problem for violation in explorer.violations for problem in violation.problems]


# ---- for long runs -------------------------------------------------------------------------------------------------------------


def run(seed: int, seconds: float, *, length: int = 3) -> dict[str, Any]:
    """Explores workloads of up to `length` operations, in an order of the seed's, until the time is over.

    Args:
        seed: of the order, and of all draws.
        seconds: how long.
        length: operations of a workload.

    Returns:
        How much was done, and the violations, each with its replay, as texts.
    """
    todo = workloads(length)
    random.Random(seed).shuffle(todo)
    total: Counter[str] = Counter()
    violations: list[str] = []
    end = time.monotonic() + seconds
    for workload in itertools.takewhile(lambda _: time.monotonic() < end, todo):
        with quiet(), Explorer(seed, subsets=32, cuts=12, deeper=200, end=end) as explorer:
            explorer.explore(workload)
        total.update(workloads=1, states=len(explorer.opened), judged=explorer.judged)
        violations += map(str, explorer.violations)
    return {"seed": seed, **total, "violations": violations}
