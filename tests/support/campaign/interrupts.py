"""Interrupts at each step of a call: for `./dev torture interrupts`. `./dev test` takes one of several steps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from support.campaign.processes import own_environment
from support.faults.interruptions import EACH_STEP

PROJECT: Final = Path(__file__).resolve().parents[3]
FILES: Final = (
    "tests/consumer/test_interrupts.py",
    "tests/consumer/test_groups_interrupted.py",
    "tests/consumer/test_exactly_once.py",
    "tests/log/test_interrupts.py",
    "tests/producer/test_interrupts.py",
)


def run(seed: int, seconds: float) -> dict[str, Any]:
    """Runs the next of the files with each step, however long that takes. For long runs."""
    file = FILES[seed % len(FILES)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
    environment = {**own_environment(), "PYLOG_SEED": str(seed), EACH_STEP: "1"}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    violations = [f"{file}\n{done.stdout[-5000:]}"] if done.returncode else []
    return {"seed": seed, "file": file, "seconds": seconds, "violations": violations}
