"""Which charts there are, and which rows of a run they show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks import charts
from benchmarks.charts import Dot
from benchmarks.measure import NO_WRITES, Row, Sample, Target

OURS_AND_RIVALS = {"mark": "pylog", "rival": "what it is compared with"}
MET_OR_NOT = {"mark": "met", "bad": "missed"}


@dataclass(frozen=True)
class Picture:
    """A chart of the figures, pylog's and its rivals', that have the same unit.

    Attributes:
        name: of its file.
        title: what the figures are.
        parts: the targets that the rows belong to.
        unit: of the rows.
    """

    name: str
    title: str
    parts: tuple[str, ...]
    unit: str

    def shows(self, row: Row) -> bool:
        return row.part in self.parts and row.unit == self.unit


PICTURES = (
    Picture("append", "Appending records of 8 + 100 bytes", ("P1",), "M records/s"),
    Picture("produce", "Producing record by record, values of 100 bytes", ("P2",), "M records/s"),
    Picture("scan", "Scanning records of 8 + 100 bytes", ("P3",), "M records/s"),
    Picture("compressed", "Scanning compressed records that look like JSON, bytes after decompression", ("P3",), "MB/s"),
    Picture("records", "Records as Python objects", ("P4", "E2E"), "M records/s"),
    Picture("lookup", "One record at a random offset", ("P5",), "µs"),
    Picture("times", "An offset for a time", ("P6",), "µs"),
    Picture("durable", "Appends that outlive a power loss, calls", ("P7",), "calls/s"),
    Picture("recovery", "Recovering an active segment", ("P8",), "GB/s"),
    Picture("compaction", "Compaction", ("P9",), "MB/s of input"),
    Picture("offsets", "Committing offsets", ("P10",), "k/s"),
    Picture("spark", "Spark, two cores", ("P11",), "M rows/s"),
    Picture("startup", "A new process: to its first result", ("P12",), "s"),
    Picture("notice", "From an append to a reader in another process", ("P13",), "ms"),
    Picture("memory", "Memory above the start of the process", ("P14",), "MiB"),
    Picture("kafka", "Beside Kafka itself", ("Kafka",), "M records/s"),
)


def draw(rows: Sequence[Row]) -> Iterator[tuple[str, str, str]]:
    """The name, the title and the SVG of each chart that the rows have figures for."""
    for picture in PICTURES:
        if shown := _dots([row for row in rows if picture.shows(row)], picture.unit):
            yield picture.name, picture.title, charts.dots(picture.title, picture.unit, shown, OURS_AND_RIVALS)
    for name, title, made in (("growth", "Cost against the size of the log", _growth), ("targets", "Targets", _targets)):
        if svg := made(title, rows):
            yield name, title, svg


def _dots(rows: Sequence[Row], unit: str) -> list[Dot]:
    """A dot for each figure, pylog's and the rivals', the best one first; what is not above 0 has no place on the scale."""
    found: dict[str, Dot] = {}
    for row in rows:
        label = row.work if row.durability == NO_WRITES else f"{row.work} · {row.durability}"
        found.setdefault(label, Dot(label, row.measured))
        if row.rival_measured is not None:
            found.setdefault(row.rival, Dot(row.rival, row.rival_measured, "rival"))
    fastest_first = "/s" in unit
    placed = [dot for dot in found.values() if dot.sample.low > 0]
    return sorted(placed, key=lambda dot: dot.sample.median, reverse=fastest_first)


def _growth(title: str, rows: Sequence[Row]) -> str:
    found: dict[str, dict[float, Sample]] = {}
    for row in rows:
        if row.curve:
            found.setdefault(row.curve, {})[row.records] = row.measured
    if not any(len(curve) > 1 for curve in found.values()):
        return ""
    return charts.curves(title, "records in the log", "µs (median of the calls)", found)


def _targets(title: str, rows: Sequence[Row]) -> str:
    """How far each target is met: 1 is the target itself, more is better."""
    shown = [
        Dot(f"{row.part}: {row.work} ({row.target})", _share(row, row.target), "mark" if row.met else "bad")
        for row in rows
        if row.target is not None
    ]
    return charts.dots(f"{title}: how far each is met", "times the target", shown, MET_OR_NOT, line_at=1) if shown else ""


def _share(row: Row, target: Target) -> Sample:
    sample = row.ratio if target.of_ratio else row.measured
    assert sample is not None
    better: Callable[[float], float] = (lambda value: value / target.limit) if target.at_least else (lambda v: target.limit / v)
    return Sample(tuple(better(value) for value in sample.rounds))
