"""Hostile bytes for as long as one likes (reliability 8.3, suites 12 and 13): kernels beside forbidden pages, and each parser.

The programs that meet them run in processes of their own, because what goes wrong there ends the process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

from support.campaign.processes import CampaignError, own_environment, until

_ROUND: Final = 2_000_000  # calls of kernels between two rounds of the parsers
_INPUTS: Final = 500


def pages(cases: int, seed: int) -> dict[str, list[int]]:
    """Calls kernels on damaged inputs beside pages that nobody may touch; returns how often each gave each answer.

    Raises:
        CampaignError: one touched such a page, or died in another way.
    """
    with tempfile.NamedTemporaryFile() as note:
        note.write(bytes(16))
        note.flush()
        done = _program("fuzz_pages", "run", 0, cases, seed, note.name)
        case = int.from_bytes(Path(note.name).read_bytes()[:8], "little")
    _check(done, f"python -m support.campaign.fuzz_pages run {case} 1 {seed} <a file of 16 bytes>")
    answers: dict[str, list[int]] = json.loads(done.stdout)
    return answers


def compared(cases: int, seed: int) -> None:
    """Compares compiled kernels with their plain meaning on damaged inputs."""
    _check(_program("fuzz_pages", "compare", cases, seed), f"python -m support.campaign.fuzz_pages compare {cases} {seed}")


def parsers(inputs: int, seed: int) -> None:
    """Gives each parser so many inputs that are almost right, in bounded memory and time."""
    _check(_program("fuzz_targets", "loop", inputs, seed), f"python -m support.campaign.fuzz_targets loop {inputs} {seed}")


def run(seed: int, seconds: float) -> dict[str, Any]:
    """All three in turn, until the time is over.

    Raises:
        CampaignError: bytes did harm.
    """
    counts: Counter[str] = Counter()
    for number in until(None, seconds):
        pages(_ROUND, seed * 1_000 + number)
        compared(_INPUTS, seed * 1_000 + number)
        parsers(_INPUTS, seed * 1_000 + number)
        counts.update(calls=_ROUND, compared=_INPUTS, inputs=_INPUTS)
    return {"seed": seed, **counts}


def _program(module: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = own_environment()
    environment.pop("NUMBA_DISABLE_JIT", None)  # interpreted kernels check each access themselves
    environment["PYLOG_KERNELS"] = "compiled"
    command = [sys.executable, "-m", f"support.campaign.{module}", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def _check(done: subprocess.CompletedProcess[str], again: str) -> None:
    if done.returncode:
        raise CampaignError(f"a program ended with {done.returncode}; again: {again}\n{done.stderr}")
