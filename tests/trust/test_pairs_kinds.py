"""A partition of some kind (links, odd timestamps, a broker's directory, ...) under each change; and of two kinds at once."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from support.trust.crossing import CHANGES, Scene

KINDS = ("timestamps", "LogAppendTime", "idempotence", "links", "broker's directory", "aborted transactions")
VIEWS = ("time search", "scan and follow", "groups")


def marked(*names: str) -> object:
    return pytest.param(*names, id=" with ".join(names), marks=pytest.mark.pair(*names))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "change"), [marked(*pair) for pair in itertools.product(KINDS, CHANGES)])
def test_a_partition_of_each_kind_is_what_the_model_says_after_each_change(tmp_path: Path, kind: str, change: str) -> None:
    """Also when the change comes a second time, after a roll."""
    scene = Scene(tmp_path, {kind, change})
    scene.change(change)
    scene.append(3)
    scene.change(change)
    scene.append(1)
    scene.verify()


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [marked(*pair) for pair in itertools.combinations(KINDS, 2)])
def test_a_partition_of_two_kinds_goes_through_changes_as_the_model_says(tmp_path: Path, first: str, second: str) -> None:
    scene = Scene(tmp_path, {first, second})
    for change in ("roll", "delete_records", "second process", "truncation", "crash", "roll", "close"):
        scene.change(change)
    scene.verify()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "view"), [marked(*pair) for pair in itertools.product(KINDS, VIEWS)])
def test_a_partition_of_each_kind_is_read_as_the_model_says(tmp_path: Path, kind: str, view: str) -> None:
    scene = Scene(tmp_path, {kind, view})
    scene.change("roll")
    scene.verify()


@pytest.mark.slow
@pytest.mark.parametrize(("change", "view"), [marked(*pair) for pair in itertools.product(CHANGES, VIEWS)])
def test_each_reader_and_each_way_to_read_holds_over_each_change(tmp_path: Path, change: str, view: str) -> None:
    """Readers that were opened before, and those that come after."""
    scene = Scene(tmp_path, {change, view})
    scene.change("roll")
    scene.change(change)
    scene.change("roll")
    scene.verify()
