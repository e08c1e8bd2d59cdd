"""No kernel touches a byte outside of its arrays, whatever it is given: the pages around them are forbidden."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.record import guard_pages

PROGRAM = Path(guard_pages.__file__)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])}
    environment.pop("NUMBA_DISABLE_JIT", None)  # interpreted kernels check each access themselves
    environment["PYLOG_KERNELS"] = "compiled"
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["read", "write", "before"])
def test_a_byte_outside_of_an_array_would_be_noticed(how: str) -> None:
    result = run(how)
    assert result.stdout == "inside\n", result.stderr
    assert result.returncode == -signal.SIGSEGV


@pytest.mark.slow
def test_kernels_stay_inside_their_arrays() -> None:
    seed = 1 if os.environ.get("CI") else random.randrange(10**6)
    result = run("2500", str(seed))
    assert result.returncode == 0, f"seed {seed}: {result.returncode}\n{result.stderr}"
