"""kill -9 at any moment: what was acknowledged is there, and nothing else that nobody wrote (reliability 8.1, suite 8).

A cycle: processes write (and read) one topic, each is killed after a time of its own, then one that comes afterwards opens the
directory, reads everything, and goes on. A directory lives for some cycles, so that what one leaves is what the next one finds:
also a recovery that was killed.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

from support.campaign.actors import Inspection, Scene, first_value, inspect, warm_up
from support.campaign.crew import Crew, judge, summary
from support.campaign.history import Append, Operation, Outcome
from support.campaign.processes import CampaignError, Child, Journal, in_fresh_process, new_directory, seeded, until

_CYCLES_OF_A_LIFE: Final = 10
_INSPECTOR: Final = 99  # as a writer: its records are numbered as theirs are
_KILLED_AT_OPENING: Final = 0.25
_OPENING_SECONDS: Final = 0.015
_LIFE_SECONDS: Final = (-5.0, -1.7)  # powers of ten: from microseconds after it is ready to some milliseconds
_PATIENCE_SECONDS: Final = 0.1  # for one that waits for a lock, or for a change of segments that is under way


def run(
    seed: int, seconds: float | None = None, *, cycles: int | None = None, writers: int = 1, readers: int = 0
) -> dict[str, Any]:
    """Kills processes until the time is over, or so many cycles are done.

    Args:
        seed: decides everything but the scheduling of processes.
        seconds, cycles: how long; one of them at least.
        writers, readers: how many processes of each kind there are in a cycle.

    Returns:
        How often what happened.

    Raises:
        CampaignError: a promise was broken; the directory and the history are kept.
    """
    return in_fresh_process(campaign, seed, seconds, cycles, writers, readers)


def campaign(seed: int, seconds: float | None, cycles: int | None, writers: int, readers: int) -> dict[str, Any]:
    """`run`, in this process: it must have no other threads."""
    warm_up("none", "lz4")
    root = new_directory("kills")
    total: Counter[str] = Counter()
    began = time.monotonic()
    journals = [Journal() for _ in range(writers + readers)]
    life: _Life | None = None
    for number in until(cycles, seconds):
        if life is None or number % _CYCLES_OF_A_LIFE == 0:
            shutil.rmtree(root / "store", ignore_errors=True)
            life = _Life(root / "store", seeded(seed, number), writers, journals)
        try:
            total += life.cycle()
        except CampaignError as error:
            raise CampaignError(
                f"seed {seed}, cycle {number} ({writers} writers, {readers} readers), in {root}: {error}"
            ) from error
    shutil.rmtree(root)
    return {"seed": seed, **total, "seconds": round(time.monotonic() - began, 1)}


class _Life:
    """One directory, from nothing to its last cycle."""

    def __init__(self, path: Path, rng: random.Random, writers: int, journals: list[Journal]) -> None:
        self._path = path
        self._rng = rng
        self._scene = Scene.drawn(str(path), rng)
        self._crew = Crew(self._scene, rng, writers, journals)
        self._probes = count(first_value(_INSPECTOR))
        self._before: list[Operation] = []
        if len(journals) > writers or rng.random() < 0.5:  # readers need a topic; otherwise a process may die while it makes it
            self._take(inspect(self._scene, "rw", self._probes), [])

    def cycle(self) -> Counter[str]:
        """Starts everybody, kills everybody, looks; returns how often what happened."""
        with contextlib.ExitStack() as stack:
            children = [stack.enter_context(self._crew.start(member)) for member in range(len(self._crew))]
            self._kill(children)
            done = list(chain.from_iterable(self._crew.bury(member, child) for member, child in enumerate(children)))
        found = self._inspect()
        judge([*self._before, *done, *found.operations], self._path.parent)
        self._take(found, done)
        counts = summary(done, set(chain.from_iterable(found.contents)))
        return counts + Counter(cycles=1, killed=sum(child.was_killed for child in children)) + found.findings

    def _kill(self, children: list[Child]) -> None:
        """Each at a moment of its own: some while they open the store, most while they use it."""
        deaths = []
        for child in children:
            if self._rng.random() < _KILLED_AT_OPENING:
                deaths.append((time.monotonic() + self._rng.uniform(0, _OPENING_SECONDS), child))
            else:
                child.wait_ready(_PATIENCE_SECONDS)
                deaths.append((time.monotonic() + 10 ** self._rng.uniform(*_LIFE_SECONDS), child))
        for moment, child in sorted(deaths, key=lambda death: death[0]):
            time.sleep(max(0.0, moment - time.monotonic()))
            child.kill()

    def _inspect(self) -> Inspection:
        if not self._path.exists():  # killed before it made it
            return Inspection()
        return inspect(self._scene, self._rng.choice(("r", "rw")), self._probes)

    def _take(self, found: Inspection, done: list[Operation]) -> None:
        """Makes what is in the log, and what may still turn up in it, the beginning of the next cycle's history.

        A reader does not see what a dead writer had written and not published; the next writer takes that over.
        """
        known = set(chain.from_iterable(found.contents))
        history = [*self._before, *done]
        self._before = [Append("before", number, values, 0, 0, Outcome.OK, 0) for number, values in enumerate(found.contents)]
        if not found.appended:
            self._before += _unseen(history, known)


def _unseen(history: list[Operation], known: set[int]) -> Iterator[Append]:
    """The appends of dead processes, as far as nothing is known of them."""
    for operation in history:
        if isinstance(operation, Append) and operation.outcome is Outcome.INFO:
            rest = [value for value in operation.values if value not in known]
            if rest:
                yield operation._replace(values=rest)
