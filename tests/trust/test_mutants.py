"""The mutants' table does not rot, and a few of the mutants are run each time."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from support.trust.mutants import MUTANTS, Mutant
from support.trust.run_mutants import ROOT, SOURCES, MutantError, mutated, survived, without_fix

QUICK_AT_MOST = 6  # each starts a pytest of its own, which takes three seconds
by_name = pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])


@functools.cache
def names_in(file: Path) -> frozenset[str]:
    """The tests of a file, as they stand in ids behind the file's name."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return frozenset(found)


@by_name
def test_each_fix_that_a_mutant_takes_out_stands_once_in_its_file(mutant: Mutant) -> None:
    ast.parse(mutated(mutant, (SOURCES / mutant.file).read_text()))


@by_name
def test_each_test_that_a_mutant_names_exists(mutant: Mutant) -> None:
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in names_in(ROOT / file), test


def test_no_two_mutants_have_the_same_name() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.quick][:QUICK_AT_MOST], ids=lambda mutant: mutant.name)
def test_a_quick_mutant_is_noticed(mutant: Mutant) -> None:
    assert survived(mutant) is None


# ---- the harness itself --------------------------------------------------------------------------------------------------

SAMPLE = Mutant("sample", "pylog/limits.py", "INT32_MAX", "INT64_MAX", ("tests/test_api.py::test_x",), "a sample")


@pytest.mark.parametrize("source", ["nothing", "INT32_MAX INT32_MAX"])
def test_a_fix_that_is_not_there_once_is_an_error(source: str) -> None:
    with pytest.raises(MutantError, match="must occur once"):
        mutated(SAMPLE, source)


def test_a_mutant_changes_a_copy_and_never_the_source(tmp_path: Path) -> None:
    mutant = next(iter(MUTANTS))
    before = (SOURCES / mutant.file).read_bytes()
    copy = without_fix(mutant, tmp_path)
    assert (copy / mutant.file).read_text().count(mutant.replacement) >= 1
    assert (SOURCES / mutant.file).read_bytes() == before
