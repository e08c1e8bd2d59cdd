"""Errors of background work are noted in the directory, where `pylog doctor` in another process finds them."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylog
from pylog.background_errors import BACKGROUND_ERRORS, read_background_errors
from pylog.fs import OsFileSystem
from pylog.store import manager_of
from pylog.upkeep import Upkeep
from support.cli import call


def failing(store: pylog.Store, count: int) -> None:
    for number in range(count):
        manager_of(store).failures.note(OverflowError(f"failure {number}"))


def test_doctor_shows_the_background_errors_of_another_process(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        failing(store, 3)
        found = call("doctor", str(tmp_path / "s"))
        assert "background work" in found.text
        assert "OverflowError: failure 1" in " ".join(found.text.split())
    assert "background work" in call("doctor", str(tmp_path / "s")).text  # a close does not hide them


def test_a_store_that_ticks_and_closes_without_an_error_removes_the_note(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        failing(store, 1)
    with pylog.open(tmp_path / "s", tick_interval_ms=60_000):
        pass
    assert read_background_errors(OsFileSystem(), str(tmp_path / "s")) is None


def test_a_tick_that_fails_in_the_background_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(upkeep: Upkeep, now_ms: int | None = None) -> int:
        raise OverflowError("the clock is beyond its end")

    monkeypatch.setattr(Upkeep, "tick", fail)
    with pylog.open(tmp_path / "s", tick_interval_ms=1) as store:
        while not manager_of(store).failures.count:
            pass
    noted = read_background_errors(OsFileSystem(), str(tmp_path / "s"))
    assert noted is not None
    assert noted.message == "OverflowError: the clock is beyond its end"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"count": "many"}', b"[" * 5000])
def test_a_note_of_any_content_does_no_harm(tmp_path: Path, content: bytes) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t")
    (tmp_path / "s" / BACKGROUND_ERRORS).write_bytes(content)
    with pylog.open(tmp_path / "s") as store:
        store.log("t").append(b"x")
        failing(store, 1)
        assert store.verify().ok
    assert call("doctor", str(tmp_path / "s")).code == 0
