"""Made-up results of the benchmarks."""

from __future__ import annotations

from typing import Any

from benchmarks.measure import Row, Sample, times
from benchmarks.results import Run


def row(work: str = "append", ratio: float | None = None, **fields: Any) -> Row:
    """A row; with a ratio it has a rival too, which makes 2."""
    rival: dict[str, Any] = {}
    if ratio is not None:
        rival = {"rival": "SQLite", "rival_measured": sample(2), "ratio": sample(ratio)}
    return Row(**{"part": "P1", "work": work, "unit": "M records/s", "measured": sample(2 * (ratio or 1)), **rival, **fields})


def sample(median: float) -> Sample:
    """Three rounds around a median."""
    return Sample((median * 1.25, median, median / 1.25))


def run(*rows: Row) -> Run:
    return Run({"processor": "made up", "size of the run": "quick"}, rows)


def grown(records: int, cost: float) -> Row:
    """A point of a curve."""
    return row(
        f"read, log of {records}",
        1.0,
        part="growth",
        unit="µs",
        measured=sample(cost),
        target=times(0.5),
        curve="read",
        records=records,
    )
