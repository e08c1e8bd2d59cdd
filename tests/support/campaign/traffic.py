"""Several writers and readers for a while, of whom one or the other dies or stands still; one history of it all (suite 15)."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

from support.campaign.actors import Scene, first_value, inspect, warm_up
from support.campaign.crew import Crew, judge, summary
from support.campaign.history import Operation
from support.campaign.processes import CampaignError, Child, Journal, in_fresh_process, new_directory, seeded, until

WRITERS: Final = 3
READERS: Final = 2
_EVENTS: Final = 12  # of a round
_BETWEEN_SECONDS: Final = (0.005, 0.08)
_INSPECTOR: Final = 99


def run(seed: int, seconds: float | None = None, *, rounds: int | None = None) -> dict[str, Any]:
    """Judges rounds of traffic until the time is over, or so many are done.

    Args:
        seed: decides everything but the scheduling of processes. Round n of seed s is what round 0 of seed s + n is.
        seconds, rounds: how long; one of them at least.

    Returns:
        How often what happened.

    Raises:
        CampaignError: an anomaly was found; the directory and the history are kept.
    """
    return in_fresh_process(campaign, seed, seconds, rounds)


def campaign(seed: int, seconds: float | None, rounds: int | None) -> dict[str, Any]:
    """`run`, in this process: it must have no other threads."""
    warm_up("none", "lz4")
    total: Counter[str] = Counter()
    began = time.monotonic()
    journals = [Journal() for _ in range(WRITERS + READERS)]
    for number in until(rounds, seconds):
        root = new_directory("traffic")
        try:
            total += _Round(root, seeded(seed + number), journals).play()
        except CampaignError as error:
            raise CampaignError(f"traffic with seed {seed + number}, in {root}: {error}") from error
        shutil.rmtree(root)
    return {"seed": seed, **total, "seconds": round(time.monotonic() - began, 1)}


class _Round:
    """One store, from its first record to the verdict."""

    def __init__(self, root: Path, rng: random.Random, journals: list[Journal]) -> None:
        self._root = root
        self._rng = rng
        self._scene = Scene.drawn(str(root / "store"), rng)
        self._crew = Crew(self._scene, rng, WRITERS, journals)
        self._probes = count(first_value(_INSPECTOR))
        self._history: list[Operation] = inspect(self._scene, "rw", self._probes).operations
        self._children: dict[int, Child] = {}

    def play(self) -> Counter[str]:
        """Starts everybody, lets things happen, ends everybody, judges; returns how often what happened."""
        before = len(self._history)
        try:
            self._children = {member: self._crew.start(member) for member in range(len(self._crew))}
            for _ in range(_EVENTS):
                time.sleep(self._rng.uniform(*_BETWEEN_SECONDS))
                self._rng.choice((self._replace, self._pause))(self._rng.choice(list(self._children)))
            for member in list(self._children):
                self._end(member)
        finally:
            for child in self._children.values():
                child.__exit__()
        done = self._history[before:]
        found = inspect(self._scene, "rw", self._probes)
        judge(self._history + found.operations, self._root)
        return summary(done, set(chain.from_iterable(found.contents))) + Counter(rounds=1)

    def _end(self, member: int) -> None:
        child = self._children[member]
        child.kill()
        self._history += self._crew.bury(member, child)
        del self._children[member]

    def _replace(self, member: int) -> None:
        """One dies, and another one takes its place."""
        self._end(member)
        self._children[member] = self._crew.start(member)

    def _pause(self, member: int) -> None:
        """One stands still for a while, wherever it is: if that is inside an append, other writers wait, and no reader does."""
        pid = self._children[member].pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self._rng.uniform(*_BETWEEN_SECONDS))
        os.kill(pid, signal.SIGCONT)
