"""Figures in the pages are those of the kept run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import figures, results
from benchmarks.figures import Source
from support.bench.made_up import row, run


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: page.relative_to(figures.PROJECT).as_posix())
def test_a_page_says_what_the_kept_run_found(page: Path) -> None:
    text = page.read_text()
    assert figures.filled(text, results.load(results.LAST)) == text


def test_the_pages_that_claim_speed_have_named_figures() -> None:
    named = {page.name: len(figures.FIGURE.findall(page.read_text())) for page in figures.pages()}
    assert named["README.md"] >= 5
    assert named["COMPARISON.md"] >= 10
    assert named["PERFORMANCE.md"] >= 60


def test_no_name_is_kept_that_no_page_uses() -> None:
    used = {found["word"] for page in figures.pages() for found in figures.FIGURE.finditer(page.read_text())}
    assert set(figures.SOURCES) == used


def test_a_figure_is_replaced_and_what_stands_around_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(figures.SOURCES, "made.up", Source("P1", "append*", "SQLite", "ratio"))
    found = run(row("append, 3 M rows", 41.4), row("append, 3 M rows, bytes", 2.0))
    assert figures.filled("| 23<!-- made.up --> times, in 5 s |", found) == "| 41<!-- made.up --> times, in 5 s |"


def test_a_figure_that_the_run_does_not_have_is_an_error_and_not_left_as_it_was() -> None:
    with pytest.raises(LookupError, match="the run has no measured"):
        figures.filled("17<!-- scan.one -->", run(row()))


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(LookupError):
        figures.filled("17<!-- no.such -->", run(row()))


def test_only_a_whole_match_of_the_work_counts() -> None:
    rows = [row("append, bytes", 3.0), row("append", 2.0)]
    assert Source("P1", "append").sample(rows).median == 4.0
    assert Source("P1", "append, *", "", "ratio").sample(rows).median == 3.0
