"""A run's results are kept, read back and shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import page, results
from benchmarks.measure import Row, Sample, Target, at_least, at_most, race, times
from support.bench.made_up import grown, row, run, sample


def test_kept_results_are_read_back_the_same(tmp_path: Path) -> None:
    kept = run(row(), row("scan", 4.5, target=times(3), note="of a note"), grown(1_000, 20), row("open", target=at_most(50)))
    results.save(tmp_path / "new" / "some.json", kept)
    read = results.load(tmp_path / "new" / "some.json")
    assert (read.machine, list(read.rows)) == (kept.machine, list(kept.rows))


def test_the_file_has_medians_and_verdicts_as_plain_values(tmp_path: Path) -> None:
    results.save(tmp_path / "some.json", run(row("scan", 2.0, target=times(3))))
    (plain,) = json.loads((tmp_path / "some.json").read_text())["rows"]
    assert (plain["ratio"]["median"], plain["met"]) == (2.0, False)
    assert plain["target"] == {"limit": 3, "at_least": True, "of_ratio": True}


@pytest.mark.parametrize(
    ("target", "met"), [(at_least(2), True), (at_least(2.1), False), (at_most(2), True), (at_most(1.9), False)]
)
def test_a_target_is_met_by_the_median(target: Target, met: bool) -> None:
    assert Row(part="P1", work="w", unit="s", measured=Sample((1, 2, 30)), target=target).met is met


def test_a_ratio_is_of_figures_of_the_same_round() -> None:
    assert Sample((10, 40)).over(Sample((5, 10))) == Sample((2, 4))


def test_contestants_take_turns_and_the_first_round_does_not_count() -> None:
    turns: list[str] = []

    def contestant(name: str) -> float:
        turns.append(name)
        return len(turns)

    found = race({name: lambda name=name: contestant(name) for name in "ab"}, 2)  # type: ignore[misc]
    assert turns == ["a", "b"] * 3
    assert found == {"a": Sample((3, 5)), "b": Sample((4, 6))}


def test_the_page_has_a_row_for_each_figure_and_marks_what_was_missed() -> None:
    shown = page.markdown(run(row(), row("scan", 2.0, target=times(3), note="warm")), {"append": "Appending"})
    assert "![Appending](append.svg)" in shown
    assert "* processor: made up" in shown
    assert "0 of 1 targets met" in shown
    (missed,) = (line for line in shown.splitlines() if "**missed**" in line)
    cells = [cell.strip() for cell in missed.strip("|").split("|")]
    assert cells[:4] == ["P1", "scan (warm)", "reads only", "≥ 3 of the rival"]
    assert cells[5:7] == ["SQLite: 2 M records/s (1.6 to 2.5)", "2 (1.6 to 2.5)"]


def test_a_page_is_written_with_its_charts_and_without_those_of_before(tmp_path: Path) -> None:
    (tmp_path / "gone.svg").write_text("of an earlier run")
    page.write(run(row("append", 4.0)), tmp_path / "figures.md")
    assert {path.name for path in tmp_path.iterdir()} == {"figures.md", "append.svg"}


def test_no_two_rows_of_the_kept_run_are_the_same() -> None:
    kept = results.load(results.LAST)
    assert len({row.key for row in kept.rows}) == len(kept.rows)


def test_the_documentation_shows_the_kept_run(tmp_path: Path) -> None:
    page.write(results.load(results.LAST), tmp_path / "figures.md")
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert {path.name: path.read_text() for path in page.PAGE.parent.iterdir()} == drawn


def test_every_spread_has_its_median_in_it() -> None:
    assert results.spread(sample(10), "s") == "10 s (8 to 12.5)"
    assert results.spread(Sample((7.0,))) == "7"
    assert results.spread(None) == ""
