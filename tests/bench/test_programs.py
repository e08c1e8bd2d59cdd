"""Parts of benchmarks that use more than the public API run: a whole quick run takes too long for a test."""

from __future__ import annotations

from pathlib import Path

import pylog
from benchmarks import offsets, startup
from benchmarks.measure import Row, Settings, Size, at_most


def test_a_load_of_commits_begins_with_an_internal_topic_that_has_them(tmp_path: Path) -> None:
    rows = list[Row]()
    offsets._load(Settings(Size.QUICK, str(tmp_path), rows.append), tmp_path / "few", 10, 5, 200, at_most(1))
    assert [row.work for row in rows] == ["load of 200 commits, 50 of them live"]


def test_a_command_that_prints_a_table_is_timed_too(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "full") as store:
        store.create_topic("events")
    assert startup._run(startup.NAMES, tmp_path, tmp_path / "cache") > 0
