"""The page of the documentation that shows a run: what it was measured on, charts, and a table of all rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import pictures
from benchmarks.measure import Row
from benchmarks.results import Run, spread, summary

PROJECT = Path(__file__).resolve().parent.parent
PAGE = PROJECT / "docs" / "benchmarks" / "figures.md"
HEAD = """# Benchmarks

The last kept run of `./dev bench`, which measures pylog and others in the same run, in turns. A figure is the median of its
rounds, with the smallest and the largest in brackets. A ratio above 1 means that pylog is better; it is the median of the
ratios of single rounds. Absolute figures vary with the machine and its load; ratios vary less. The durability column has what an
acknowledgement promises: at `OS` the record survives the death of the process, at `SYNC` a power loss. The targets were set
before there was code; missed targets are marked. The settings of the others, with reasons:
[benchmarks/README.md](../../benchmarks/README.md).
"""
WORDS = {None: "", True: "met", False: "**missed**"}


def write(run: Run, page: Path = PAGE) -> None:
    """Writes the page and its charts; charts of an earlier run that this one has no figures for go."""
    page.parent.mkdir(parents=True, exist_ok=True)
    for old in page.parent.glob("*.svg"):
        old.unlink()
    charts = list(pictures.draw(run.rows))
    for name, _, svg in charts:
        (page.parent / f"{name}.svg").write_text(svg)
    page.write_text(markdown(run, {name: title for name, title, _ in charts}))


def markdown(run: Run, charts: dict[str, str]) -> str:
    """The page, with a link to each chart: its name and its title."""
    lines = [HEAD, *(f"* {name}: {value}" for name, value in run.machine.items()), ""]
    lines += [f"{summary(run.rows).splitlines()[0]}. All rounds of every figure: `benchmarks/results/last.json`.", ""]
    lines += ["## Charts", "", *(f"![{title}]({name}.svg)\n" for name, title in charts.items())]
    lines += [
        "## All figures",
        "",
        "| | work | durability | target | measured | rival | ratio | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_line, run.rows), ""])


def _line(row: Row) -> str:
    return f"| {' | '.join(_cells(row))} |"


def _cells(row: Row) -> Iterator[str]:
    yield row.part
    yield row.work + (f" ({row.note})" if row.note else "")
    yield row.durability
    yield str(row.target or "") + (f" {row.unit}" if row.target and not row.target.of_ratio else "")
    yield spread(row.measured, row.unit)
    yield f"{row.rival}: {spread(row.rival_measured, row.unit)}" if row.rival else ""
    yield spread(row.ratio)
    yield WORDS[row.met]
