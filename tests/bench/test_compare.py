"""The regression check finds a ratio that became worse, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import compare, results
from benchmarks.__main__ import main
from support.bench.made_up import row, run

KEPT = run(row("append", 10.0), row("scan", 4.0), row("import"))


def exit_status(tmp_path: Path, kept: results.Run, now: results.Run, *options: str) -> int:
    """Of the command that compares two kept runs."""
    results.save(tmp_path / "kept.json", kept)
    results.save(tmp_path / "now.json", now)
    return main(["--from", str(tmp_path / "now.json"), "--compare", str(tmp_path / "kept.json"), *options])


def test_ratios_that_moved_less_than_the_tolerance_are_no_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(tmp_path, KEPT, run(row("append", 7.1), row("scan", 9.0))) == 0
    assert "0 of 2 ratios are worse by more than 30%" in capsys.readouterr().out


def test_a_ratio_that_became_worse_is_named_and_the_command_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(tmp_path, KEPT, run(row("append", 6.9), row("scan", 4.0))) == 1
    assert "worse: P1 append, beside SQLite: 6.9 of the rival, was 10 (-31%)" in capsys.readouterr().out


def test_the_tolerance_can_be_set(tmp_path: Path) -> None:
    now = run(row("append", 6.9))
    assert exit_status(tmp_path, KEPT, now, "--tolerance", "0.4") == 0
    assert exit_status(tmp_path, KEPT, now, "--tolerance", "0.1") == 1


def noisy(*ratios: float) -> results.Row:
    """A control whose rounds were off by so much."""
    return replace(row("checksums", 1.0, part=compare.CONTROL), ratio=results.Sample(ratios))


@pytest.mark.parametrize(("rounds", "tolerance"), [((1.0, 1.0, 1.0), 0.3), ((0.9, 1.0, 1.1), 0.5), ((0.1, 1.0, 5.0), 0.9)])
def test_twice_the_noise_of_the_worst_control_is_tolerated_too(rounds: tuple[float, ...], tolerance: float) -> None:
    quiet = run(row("append", 10.0), noisy(1.0, 1.0, 1.0))
    loud = run(row("append", 10.0), noisy(1.01, 0.99, 1.0), noisy(*rounds))
    assert compare.tolerance(quiet, loud) == pytest.approx(tolerance, abs=0.021)
    assert compare.tolerance(loud, quiet) == compare.tolerance(quiet, loud)


def test_a_loud_machine_hides_no_ratio_that_is_ten_times_worse(tmp_path: Path) -> None:
    loud = noisy(0.1, 1.0, 5.0)
    assert exit_status(tmp_path, run(row("append", 10.0), loud), run(row("append", 0.9), loud)) == 1


def test_another_processor_is_given_more_room() -> None:
    elsewhere = results.Run({"processor": "another"}, KEPT.rows)
    assert (compare.tolerance(KEPT, KEPT), compare.tolerance(KEPT, elsewhere)) == (compare.TOLERANCE, compare.ELSEWHERE)


def test_a_control_is_not_compared() -> None:
    kept = run(row("append", 10.0), noisy(1.0, 1.0, 1.0))
    assert [change.row.work for change in compare.changes(kept, run(row("append", 9.0), noisy(0.1, 0.1, 0.1)))] == ["append"]


def test_the_kept_gate_has_ten_ratios_and_two_controls() -> None:
    kept = results.load(results.LAST.with_name("gate.json"))
    assert sum(row.ratio is not None and row.part == "gate" for row in kept.rows) == 10
    assert sum(row.part == compare.CONTROL for row in kept.rows) == 2


def test_an_absolute_figure_is_not_compared() -> None:
    slower = run(row("append", 10.0), row("import", measured=results.Sample((0.01,))))
    assert [change.row.work for change in compare.changes(KEPT, slower)] == ["append"]


def test_the_worst_change_comes_first() -> None:
    found = compare.changes(KEPT, run(row("append", 9.0), row("scan", 1.0)))
    assert [change.row.work for change in found] == ["scan", "append"]


def test_runs_that_have_nothing_in_common_are_not_called_equal(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no ratio in common: compare a quick run with a quick one"):
        exit_status(tmp_path, KEPT, run(row("append of another size", 10.0)))


def test_a_ratio_that_is_not_measured_any_more_does_not_pass_unseen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status(tmp_path, KEPT, run(row("append", 10.0))) == 0
    assert "ratios of the kept run that were not measured in this one: 1" in capsys.readouterr().out


def test_a_run_equals_itself(tmp_path: Path) -> None:
    kept = results.load(results.LAST)
    assert exit_status(tmp_path, kept, kept, "--tolerance", "0") == 0
