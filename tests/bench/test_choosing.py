"""Which benchmarks run, how much they measure, and what becomes of what they find."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as bench
from benchmarks import results
from benchmarks.measure import NO_WRITES, Row, Sample, Settings, Size
from support.bench.made_up import row, run


def test_every_benchmark_has_its_module() -> None:
    assert [name for name in bench.BENCHMARKS if importlib.util.find_spec(f"benchmarks.{name}") is None] == []
    assert set(bench.BENCHMARKS) >= bench.NEEDS_JAVA | bench.NOT_QUICK


def test_a_usual_and_a_full_run_measure_everything() -> None:
    for size in (Size.USUAL, Size.FULL):
        assert bench.chosen([], size, java=True) == [name for name in bench.BENCHMARKS if name not in bench.ONLY_NAMED]


def test_a_quick_run_leaves_out_what_takes_long_unless_it_is_named() -> None:
    assert set(bench.BENCHMARKS) - set(bench.chosen([], Size.QUICK, java=True)) == bench.NOT_QUICK | bench.ONLY_NAMED
    assert bench.chosen(["connector", "append"], Size.QUICK, java=True) == ["append", "connector"]


def test_without_java_what_needs_it_is_left_out() -> None:
    assert set(bench.BENCHMARKS) - set(bench.chosen([], Size.USUAL, java=False)) == bench.NEEDS_JAVA | bench.ONLY_NAMED


def test_the_gate_runs_where_it_is_named_and_the_merge_condition_names_it() -> None:
    assert bench.chosen(["gate"], Size.USUAL, java=True) == ["gate"]
    condition = (Path(bench.__file__).parents[1] / ".ci" / "run").read_text()
    assert "./dev bench gate --compare benchmarks/results/gate.json" in condition


def test_a_full_run_has_more_rounds_of_the_same_work() -> None:
    quick, usual, full = (Settings(size, "", lambda row: None) for size in (Size.QUICK, Size.USUAL, Size.FULL))
    assert quick.rounds < usual.rounds < full.rounds
    assert quick.scaled(100, 10) == 10
    assert usual.scaled(100, 10) == full.scaled(100, 10) == 100


def test_a_name_that_is_no_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["appendix"])
    assert "no benchmark appendix; there are append," in capsys.readouterr().err


def test_a_run_of_some_is_kept_where_asked_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "LAST", tmp_path / "last.json")
    monkeypatch.setattr(bench.importlib, "import_module", lambda name: _Made)
    assert bench.main(["append", "--keep", str(tmp_path / "some.json")]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["some.json"]
    kept = results.load(tmp_path / "some.json")
    assert [row.work for row in kept.rows] == ["made up"]
    assert "scan" in kept.machine["not measured"]
    assert kept.machine["size of the run"] == "usual"


def test_a_whole_run_is_kept_and_shown_but_not_in_the_place_of_what_it_is_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last, shown = tmp_path / "last.json", []
    results.save(last, run(row("made up", 10.0)))
    monkeypatch.setattr(results, "LAST", last)
    monkeypatch.setattr(bench, "BENCHMARKS", {"append": "P1"})
    monkeypatch.setattr(bench, "measure", lambda names, size: run(row("made up", 2.0)))
    monkeypatch.setattr(bench.page, "write", shown.append)
    monkeypatch.setattr(bench.figures, "write", lambda run: [])
    kept = last.read_text()
    assert bench.main(["--compare", str(last)]) == bench.REGRESSED
    assert (last.read_text(), shown) == (kept, [])
    assert bench.main([]) == 0
    assert last.read_text() != kept
    assert len(shown) == 1


def test_a_benchmark_that_fails_stops_no_other_and_what_was_kept_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(settings: Settings) -> None:
        raise RuntimeError("no broker")

    monkeypatch.setattr(results, "LAST", tmp_path / "last.json")
    monkeypatch.setattr(bench, "INCOMPLETE", tmp_path / "incomplete.json")
    monkeypatch.setattr(bench, "BENCHMARKS", {"broker": "Kafka", "append": "P1"})
    modules = {"benchmarks.broker": SimpleNamespace(run=broken), "benchmarks.append": _Made}
    monkeypatch.setattr(bench.importlib, "import_module", modules.get)
    assert bench.main(["--full"]) == bench.FAILED
    assert [path.name for path in tmp_path.iterdir()] == ["incomplete.json"]
    kept = results.load(tmp_path / "incomplete.json")
    assert (len(kept.rows), kept.machine["failed"]) == (1, "broker")
    assert "RuntimeError: no broker" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["--compare", str(tmp_path / "gone.json")])
    assert "there is no " in capsys.readouterr().err


class _Made:
    """A benchmark that measures nothing."""

    @staticmethod
    def run(settings: Settings) -> None:
        settings.report(Row(part="P1", work="made up", unit="s", measured=Sample((1,)), durability=NO_WRITES))
