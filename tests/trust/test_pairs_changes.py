"""Each two changes of a partition, in both orders: what is left is what the model says, for readers old and new."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from support.trust.crossing import CHANGES, Scene


def marked(first: str, second: str) -> object:
    return pytest.param(first, second, id=f"{first} then {second}", marks=pytest.mark.pair(first, second))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"),
    [marked(*pair) for pair in itertools.permutations(CHANGES, 2)],
)
def test_two_changes_after_another_leave_what_the_model_says(tmp_path: Path, first: str, second: str) -> None:
    scene = Scene(tmp_path, {first, second})
    scene.change(first)
    scene.change(second)
    scene.append(2)
    scene.verify()
