"""`--fast` takes the tests that have none of the marks, and of many parameters a few."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from support.packaging.built import PROJECT
from support.tiers import MOST, sample_of


def collected(*arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(command, cwd=PROJECT, env=given, capture_output=True, text=True, check=False).stdout


@pytest.mark.slow
def test_fast_tests_read_directories_of_one_broker_version_and_need_no_broker() -> None:
    told = collected("--fast", "tests/log/test_golden.py", "tests/test_tiers.py", "tests/kafka", "tests/campaign")
    lines = [line for line in told.splitlines() if "::" in line]
    assert lines
    assert all("[4.3.0/" in line for line in lines if line.startswith("tests/log/test_golden.py") and "[" in line)
    assert {line.partition("::")[0] for line in lines} == {"tests/log/test_golden.py"}


@pytest.mark.slow
def test_without_the_option_all_tests_are_taken() -> None:
    told = collected("tests/log/test_golden.py", "tests/test_tiers.py")
    assert all(f"[{version}/" in told for version in ("2.8.2", "3.9.1", "4.3.0"))
    assert "tests/test_tiers.py::" in told


@pytest.mark.slow
def test_fast_tests_take_a_sample_of_many_parameters_and_all_tests_take_each_of_them() -> None:
    test = "tests/issues/test_zodb_scan_forward.py::test_recovery_ends_with_records_that_were_written_or_with_an_error_of_pylogs"
    everything = [line for line in collected(test).splitlines() if line.startswith(test)]
    sample = [line for line in collected("--fast", test.partition("::")[0]).splitlines() if line.startswith(test)]
    assert sample == sample_of(everything, 7)
    assert len(everything) > len(sample) > 1


@pytest.mark.slow
def test_fast_tests_take_few_parameters_of_each_test_and_all_of_one_that_is_named() -> None:
    file = "tests/record/test_layouts.py"
    lines = [line for line in collected("--fast", file).splitlines() if line.startswith(file)]
    assert max(Counter(line.partition("[")[0] for line in lines).values()) == MOST
    test, _ = Counter(line.partition("[")[0] for line in lines).most_common(1)[0]
    assert len([line for line in collected("--fast", test).splitlines() if line.startswith(file)]) > MOST
