"""Measuring: figures of several rounds, contestants that take turns, and the rows of the result.

A ratio compares two figures of the same round, measured one after the other, so that what slows the machine down slows both.
Everywhere a ratio above 1 means that pylog does better: it is faster, or takes less.
"""

from __future__ import annotations

import enum
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

NO_WRITES = "reads only"  # in the place of a durability level
FULL_ROUNDS = 2  # rounds of a full run for one of a usual run


@dataclass(frozen=True)
class Sample:
    """One figure of every round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def low(self) -> float:
        return min(self.rounds)

    @property
    def high(self) -> float:
        return max(self.rounds)

    def over(self, other: Sample) -> Sample:
        """The quotient in each round."""
        return Sample(tuple(mine / theirs for mine, theirs in zip(self.rounds, other.rounds, strict=True)))


@dataclass(frozen=True)
class Target:
    """A line of the performance targets: the median must be at least, or at most, the limit."""

    limit: float
    at_least: bool
    of_ratio: bool = False

    def met(self, row: Row) -> bool:
        sample = row.ratio if self.of_ratio else row.measured
        assert sample is not None
        return sample.median >= self.limit if self.at_least else sample.median <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}{' of the rival' if self.of_ratio else ''}"


def at_least(limit: float) -> Target:
    """A rate must be that high."""
    return Target(limit, at_least=True)


def at_most(limit: float) -> Target:
    """A time or a size must be that low."""
    return Target(limit, at_least=False)


def times(limit: float) -> Target:
    """The ratio to the rival must be that high."""
    return Target(limit, at_least=True, of_ratio=True)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the result.

    Attributes:
        part: which of the targets it belongs to, such as P1.
        work: what was done.
        unit: of `measured` and `rival_measured`.
        measured: pylog's figures, or those of a rival that has a line of its own.
        durability: what an acknowledgement promised; every figure says so.
        rival: whom it is compared with, and at which durability.
        rival_measured: the rival's figures in the same rounds.
        ratio: above 1, pylog does better.
        target: what is asked for.
        note: what must be known to read the figure.
        curve: which curve it is a point of, where the same work is measured on logs of several sizes.
        records: the size of that point's log.
    """

    part: str
    work: str
    unit: str
    measured: Sample
    durability: str = NO_WRITES
    rival: str = ""
    rival_measured: Sample | None = None
    ratio: Sample | None = None
    target: Target | None = None
    note: str = ""
    curve: str = ""
    records: int = 0

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.target.met(self)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it measures: the same in every run of the same size."""
        return self.part, self.work, self.durability, self.rival


Report = Callable[[Row], None]


class Size(enum.StrEnum):
    """How much a run measures. A usual and a full one measure the same in fewer or more rounds; but for planning's partitions."""

    QUICK = "quick"
    USUAL = "usual"
    FULL = "full"


@dataclass(frozen=True)
class Settings:
    """How much is measured.

    Attributes:
        size: of the run; a quick one has smaller logs and fewer rounds: its figures are rougher.
        directory: for temporary files; emptied between benchmarks.
        report: takes a row as soon as it is there.
    """

    size: Size
    directory: str
    report: Report = field(repr=False)

    @property
    def quick(self) -> bool:
        return self.size is Size.QUICK

    @property
    def rounds(self) -> int:
        return self.repeated(5, 2)

    def scaled(self, usual: int, quick: int) -> int:
        """How much there is to be done in a round."""
        return quick if self.quick else usual

    def repeated(self, usual: int, quick: int) -> int:
        """How many rounds there are, where they are not as many as elsewhere."""
        return FULL_ROUNDS * usual if self.size is Size.FULL else self.scaled(usual, quick)

    def report_ratio(self, part: str, work: str, unit: str, measured: Sample, rival: str, rivals: Sample, **more: Any) -> None:
        """Reports figures next to a rival's of the same rounds, and their ratio. `more` has other fields of `Row`."""
        ratio = measured.over(rivals)
        self.report(
            Row(part=part, work=work, unit=unit, measured=measured, rival=rival, rival_measured=rivals, ratio=ratio, **more)
        )


def seconds(work: Callable[[], object]) -> float:
    """How long a call took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def millions(count: int, work: Callable[[], object]) -> float:
    """Millions a second."""
    return count / seconds(work) / 1e6


def race(contestants: Mapping[str, Callable[[], float]], rounds: int, *, written: int = 0) -> dict[str, Sample]:
    """Lets the contestants take turns; each returns one figure. The first round warms up and does not count.

    Args:
        contestants: by name.
        rounds: how many count.
        written: bytes of files, about, that the contestant writes who writes most: so much memory is fetched before each turn.
    """
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, contestant in contestants.items():
            fetch_memory(written)
            figure = contestant()
            if number:
                figures[name].append(figure)
    return {name: Sample(tuple(found)) for name, found in figures.items()}


def fetch_memory(size: int) -> None:
    """Touches so many bytes of free memory, before something is measured that takes new pages.

    The host of a virtual machine takes back what is free for some seconds, and whoever is next waits for each page: the same
    work takes twice as long in one round as in another.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_AVPHYS_PAGES" in os.sysconf_names else size
    np.empty(min(size, free // 2), np.uint8)[::4096] = 1


def microseconds(call: Callable[[int], object], arguments: Sequence[int]) -> np.ndarray:
    """How long each of many calls took."""
    clock = time.perf_counter_ns
    taken = np.empty(len(arguments))
    for number, argument in enumerate(arguments):
        started = clock()
        call(argument)
        taken[number] = clock() - started
    return taken / 1e3


def percentiles(call: Callable[[int], object], arguments: Sequence[int], rounds: int) -> dict[int, Sample]:
    """The 50th and 99th percentile in each round, in microseconds; every round has its part of the arguments."""
    parts = np.array_split(np.asarray(arguments), rounds + 1)
    taken = [microseconds(call, part.tolist()) for part in parts][1:]  # the first part warms up
    return {percent: Sample(tuple(float(np.percentile(part, percent)) for part in taken)) for percent in (50, 99)}
