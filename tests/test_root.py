"""The root of the repository has the files of a project, and nothing that a test or a program left there."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = {
    *(".gitignore", ".pre-commit-config.yaml", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"),
    *("dev", "mkdocs.yml", "pyproject.toml", "requirements.lock"),
}
FOLDERS = {".ci", ".github", "benchmarks", "docs", "examples", "src", "tests"}


def test_the_root_has_no_other_files_than_those_of_the_project() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {name.split("/")[0] for name in listed.stdout.splitlines()} - FOLDERS - FILES == set()


def test_no_test_left_a_store_or_an_archive() -> None:
    found = {path for left in (".lock", "pylog", "pylog-kafka", "*-*/*.log", "*-*/*/*.log") for path in ROOT.glob(left)}
    assert found - {*(ROOT / "flights-demo").glob("*/*.log")} == set()  # `./dev demo` leaves that directory on purpose
