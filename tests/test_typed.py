"""Programs that use pylog are checked as their authors check them: by `mypy --strict`, with pylog's own annotations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MYPY = (sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml")


@pytest.mark.slow
def test_a_strict_type_checker_finds_in_programs_what_it_should_and_nothing_else(tmp_path: Path) -> None:
    programs = sorted(map(str, (ROOT / "tests" / "typed").glob("*.py")))
    assert len(programs) > 1
    found = subprocess.run([*MYPY, "--cache-dir", tmp_path, *programs], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout
