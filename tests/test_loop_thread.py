"""The classes of `pylog.aio` touch no file in the thread of the event loop, at their first calls neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.campaign import loop_thread
from support.campaign.processes import own_environment


def test_every_public_call_of_the_asynchronous_classes_is_watched() -> None:
    """A new method joins here, with cases in `loop_thread`."""
    for kind, calls in loop_thread.CALLS.items():
        assert set(calls) == loop_thread.public(kind)
    given = {name for name in loop_thread.pylog.aio.__all__ if name.startswith("Async")}
    assert given == {kind.__name__ for kind in loop_thread.CALLS}


@pytest.mark.slow
def test_no_call_touches_a_file_in_the_thread_of_the_event_loop() -> None:
    command = [sys.executable, "-m", "support.campaign.loop_thread"]
    done = subprocess.run(command, env=own_environment(), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert set(found) == set(loop_thread.cases())
    assert not {name: touched for name, touched in found.items() if touched}


@pytest.mark.parametrize("touch", [Path.stat, os.listdir, Path.touch, Path.rmdir], ids=["stat", "list", "touch", "remove"])
def test_files_that_a_call_touches_are_found(tmp_path: Path, touch: Callable[[Path], object]) -> None:
    (tmp_path / "d").mkdir()

    async def case(_: object) -> None:
        touch(tmp_path / "d")

    (found,) = loop_thread.touched({"a case": case}, tmp_path).values()
    assert found
    assert "Traceback" not in found[-1]
