"""Results: a run's rows with what they were measured on, kept as JSON, and as lines for the terminal."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import NO_WRITES, Row, Sample, Target

LAST = Path(__file__).resolve().parent / "results" / "last.json"
_SAMPLES = ("measured", "rival_measured", "ratio")


@dataclass(frozen=True)
class Run:
    """What one run of the benchmarks found.

    Attributes:
        machine: what it was measured on: names to values, in the order in which they are shown.
        rows: the figures, in the order in which they came.
    """

    machine: Mapping[str, str]
    rows: Sequence[Row]


# ---- as JSON -----------------------------------------------------------------------------------------------------------------


def save(path: Path, run: Run) -> None:
    """Writes a run as JSON: medians, all rounds, targets and whether they were met."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": run.machine, "rows": [_plain(row) for row in run.rows]}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def load(path: Path) -> Run:
    """Reads what `save` wrote. A median or a verdict in the file is for people: both are found anew."""
    content = json.loads(path.read_text())
    return Run(content["machine"], [_row(plain) for plain in content["rows"]])


def _plain(row: Row) -> dict[str, Any]:
    plain = dataclasses.asdict(row)
    for name in _SAMPLES:
        sample: Sample | None = getattr(row, name)
        plain[name] = sample and {"median": sample.median, "rounds": sample.rounds}
    return {**plain, "met": row.met}


def _row(plain: dict[str, Any]) -> Row:
    fields = {name: value for name, value in plain.items() if name != "met"}
    for name in _SAMPLES:
        fields[name] = fields[name] and Sample(tuple(fields[name]["rounds"]))
    fields["target"] = fields["target"] and Target(**fields["target"])
    return Row(**fields)


# ---- as lines ----------------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Three digits that matter."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(sample: Sample | None, unit: str = "") -> str:
    """The median, with the smallest and largest behind it."""
    if sample is None:
        return ""
    around = f" ({number(sample.low)} to {number(sample.high)})" if len(sample.rounds) > 1 else ""
    return f"{number(sample.median)}{' ' + unit if unit else ''}{around}"


def line(row: Row) -> str:
    """A row for the terminal: two or three short lines."""
    verdict = "" if row.met is None else f"   [{row.target}: {'met' if row.met else 'MISSED'}]"
    durability = "" if row.durability == NO_WRITES else f"   {row.durability}"
    text = f"{row.part:6} {row.work}\n         {spread(row.measured, row.unit)}{durability}"
    if row.ratio is None:
        text += verdict
    else:
        text += f"\n         {spread(row.ratio)} of {row.rival}: {spread(row.rival_measured, row.unit)}{verdict}"
    return text


def summary(rows: Sequence[Row]) -> str:
    """How many targets were met, and those that were not."""
    aimed = [row for row in rows if row.met is not None]
    missed = [row for row in aimed if not row.met]
    lines = [f"{len(aimed) - len(missed)} of {len(aimed)} targets met"]
    return "\n".join([*lines, *(f"missed: {row.part} {row.work} ({row.target})" for row in missed)])
