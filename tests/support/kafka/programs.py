"""Programs that run against a broker and against pylog, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]


def in_the_layer(program: str) -> str:
    """The same program, with pylog's layer in the place of kafka-python and aiokafka."""
    return "import pylog.compat\npylog.compat.install()\n" + textwrap.dedent(program)


def lines_of(program: str, *arguments: str, cwd: Path) -> list[str]:
    """The lines that a program prints. It must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
