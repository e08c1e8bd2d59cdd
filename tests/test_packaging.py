"""What is built is what users get: both packages, the type marker, the licence, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    target = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", target], cwd=PROJECT, check=True, capture_output=True
    )
    (built,) = target.iterdir()
    return zipfile.ZipFile(built)


def test_the_wheel_ships_pylog_and_its_spark_door_with_their_types_and_licence(wheel: zipfile.ZipFile):
    names = wheel.namelist()
    assert {name.split("/")[0] for name in names} == {"pylog", "pyspark_pylog", "pylogdb-0.1.0.dist-info"}
    assert "pylog/py.typed" in names
    assert "pylogdb-0.1.0.dist-info/licenses/LICENSE" in names
    in_sources = {path.relative_to(PROJECT / "src").as_posix() for path in (PROJECT / "src").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == in_sources


def test_the_wheel_brings_the_program(wheel: zipfile.ZipFile):
    assert wheel.read("pylogdb-0.1.0.dist-info/entry_points.txt").decode().split("\n")[:2] == [
        "[console_scripts]",
        "pylog = pylog.cli:main",
    ]


def test_the_wheel_asks_for_no_more_than_it_needs(wheel: zipfile.ZipFile):
    metadata = wheel.read("pylogdb-0.1.0.dist-info/METADATA").decode()
    needed = {
        line.split()[1].split(">")[0]
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist") and "extra ==" not in line
    }
    assert needed == {"numpy", "numba", "pyarrow", "sortedcontainers", "msgspec", "google-crc32c", "cramjam"}


def test_the_lock_names_no_registry_and_pins_by_hash():
    lock = (PROJECT / "requirements.lock").read_text()
    assert "://" not in lock
    assert all("==" in line for line in lock.splitlines() if line and not line.startswith((" ", "#")))
    assert lock.count("--hash=sha256:") > lock.count("==")
