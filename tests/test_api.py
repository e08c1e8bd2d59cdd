"""What others build on does not change by accident."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent


@pytest.mark.slow
def test_the_public_names_and_their_signatures_are_those_that_are_listed() -> None:
    command = [
        sys.executable,
        TESTS / "support" / "docs" / "api_listing.py",
    ]  # in a process of its own, where no test has replaced anything
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    listed, found = (TESTS / "api.txt").read_text().splitlines(), printed.splitlines()
    gone, added = set(listed) - set(found), set(found) - set(listed)
    told = [f"- {line}" for line in sorted(gone)] + [f"+ {line}" for line in sorted(added)]
    assert listed == found, "\n".join(["the API is not what tests/api.txt says; if that is meant: ./dev api", *told])


@pytest.mark.slow
def test_the_package_offers_its_names_and_loads_nothing_heavy_before_they_are_used() -> None:
    program = """
import sys, pylog
heavy = [name for name in ("numba", "numpy", "pyarrow", "pyspark", "hypothesis") if name in sys.modules]
assert not heavy, heavy
assert sorted(dir(pylog)) == sorted(pylog.__all__), dir(pylog)
assert all(getattr(pylog, name) is not None for name in pylog.__all__)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
