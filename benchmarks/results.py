"""Showing results: a line for each row as it comes, and for a full run JSON and a Markdown table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measure import NO_WRITES, Row, Sample

LAST = Path(__file__).resolve().parent / "results"
HEAD = """# The last full run of the benchmarks

Made by `./dev bench`, which measures pylog and its rivals in the same run, turn by turn. A figure is the median of its rounds,
with the smallest and the largest in brackets. A ratio above 1 means that pylog is the faster one; it is the median of the ratios
of single rounds. Absolute figures move between machines and with what else runs; ratios less. Durability says what an
acknowledgement promised: `OS`: outlives the process, `SYNC`: outlives a power loss. Targets are those that the project set itself
before there was code; those that are missed are marked.
"""
WORDS = {None: "", True: "met", False: "**missed**"}


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


def save(directory: Path, machine: Mapping[str, str], rows: Sequence[Row]) -> None:
    """Writes `last.json` and `README.md`."""
    directory.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine, "rows": [_plain(row) for row in rows]}
    (directory / "last.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    (directory / "README.md").write_text(markdown(machine, rows))


def _plain(row: Row) -> dict[str, object]:
    samples = {name: getattr(row, name) for name in ("measured", "rival_measured", "ratio")}
    found = {name: {"median": sample.median, "rounds": sample.rounds} if sample else None for name, sample in samples.items()}
    words = {name: getattr(row, name) for name in ("part", "work", "unit", "durability", "rival", "note")}
    return {**words, **found, "target": str(row.target) if row.target else None, "met": row.met}


def markdown(machine: Mapping[str, str], rows: Sequence[Row]) -> str:
    """The table, with what it was measured on."""
    lines = [HEAD, *(f"* {name}: {value}" for name, value in machine.items()), ""]
    lines += ["| | work | durability | target | measured | rival | ratio | |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        note = f" ({row.note})" if row.note else ""
        rival = f"{row.rival}: {spread(row.rival_measured, row.unit)}" if row.rival else ""
        target = str(row.target or "") + (f" {row.unit}" if row.target and not row.target.of_ratio else "")
        measured, ratio = spread(row.measured, row.unit), spread(row.ratio)
        lines.append(
            f"| {row.part} | {row.work}{note} | {row.durability} | {target} | {measured} | {rival} | {ratio} | {WORDS[row.met]} |"
        )
    return "\n".join([*lines, "", summary(rows).splitlines()[0] + ".", ""])
