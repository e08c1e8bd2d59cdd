"""The regression check: a run's ratios beside those of a kept one. Absolute figures are not compared: machines differ."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.measure import Row
from benchmarks.results import Run, number

TOLERANCE = 0.3  # of the kept ratio: medians of a few rounds move without a reason
ELSEWHERE = 0.5  # the same on another processor: its cache and memory have other ratios
CONTROL = "control"  # the part of a row that compares a rival with itself: only noise moves its ratio


@dataclass(frozen=True)
class Change:
    """A ratio then and now.

    Attributes:
        row: what was measured, as it is now.
        kept: the ratio's median in the kept run.
    """

    row: Row
    kept: float

    @property
    def now(self) -> float:
        assert self.row.ratio is not None
        return self.row.ratio.median

    def is_worse(self, tolerance: float) -> bool:
        """Whether less is left of the kept ratio than the tolerance allows."""
        return self.now < self.kept * (1 - tolerance)


def tolerance(kept: Run, run: Run) -> float:
    """By how much a ratio may be worse: a usual part, and twice the noise that the controls of the two runs have measured.

    Noise is by how much the ratio of one round of a control was typically off the control's median. At most nine tenths: a ratio
    that has become ten times worse is never noise.
    """
    usual = TOLERANCE if kept.machine.get("processor") == run.machine.get("processor") else ELSEWHERE
    return min(usual + 2 * max(_noise(kept), _noise(run)), 0.9)


def _noise(run: Run) -> float:
    controls = [row.ratio.rounds for row in run.rows if row.part == CONTROL and row.ratio is not None]
    return max(map(_spread, controls), default=0.0)


def _spread(rounds: Sequence[float]) -> float:
    """The typical distance from the median, as a share of it."""
    middle = statistics.median(rounds)
    return statistics.median(abs(each - middle) for each in rounds) / middle


def changes(kept: Run, run: Run) -> list[Change]:
    """All ratios that both runs have, but for controls, the worst change first.

    Raises:
        ValueError: they have none in common: the runs are of different sizes, or of different benchmarks.
    """
    ratios = {row.key: row.ratio.median for row in kept.rows if row.ratio is not None and row.part != CONTROL}
    found = [Change(row, ratios[row.key]) for row in run.rows if row.ratio is not None and row.key in ratios]
    if not found:
        raise ValueError(
            "the two runs have no ratio in common: compare a quick run with a quick one, a usual one with a usual one"
        )
    return sorted(found, key=lambda change: change.now / change.kept)


def not_measured(kept: Run, run: Run) -> int:
    """How many ratios of the kept run this one does not have."""
    return len({row.key for row in kept.rows if row.ratio is not None} - {row.key for row in run.rows})


def report(found: Sequence[Change], tolerance: float) -> Iterator[str]:
    """Lines that say what became worse, the worst first, and how many ratios were compared."""
    worse = [change for change in found if change.is_worse(tolerance)]
    for change in worse:
        row = change.row
        left = f"{number(change.now)} of the rival, was {number(change.kept)} ({change.now / change.kept - 1:+.0%})"
        yield f"worse: {row.part} {row.work}, beside {row.rival}: {left}"
    yield f"{len(worse)} of {len(found)} ratios are worse by more than {tolerance:.0%}"
