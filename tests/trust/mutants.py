"""Mutants: for each fault that was fixed, how to take the fix out again, and the tests that must fail then.

`./dev mutants` runs them (tests/trust/run_mutants.py). tests/trust/test_mutants.py checks in every run that each text occurs once
in its file and that each test exists, and runs the mutants that are marked quick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Mutant:
    """One fix taken out.

    Attributes:
        name: for the command line; letters, digits and underscores.
        file: the source file, from `src/`: "pylog/log/retention.py".
        text: a piece of the file that occurs exactly once.
        replacement: what stands there without the fix.
        tests: ids of tests from the root, "tests/log/test_retention.py::test_name"; each of them must fail.
        why: the fault that comes back, in a sentence.
        quick: runs with the ordinary tests too; for a few whose tests take less than a second.
    """

    name: str
    file: str
    text: str
    replacement: str
    tests: tuple[str, ...]
    why: str
    quick: bool = False


MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        name="retention_waits_for_its_group",
        file="pylog/log/retention.py",
        text="    if config.retention_group is None:\n        return asked\n",
        replacement="    if True:\n        return asked\n",
        tests=("tests/log/test_retention.py::test_what_the_group_has_not_read_stays",),
        why="Retention deletes records that the retention group has not read.",
        quick=True,
    ),
)
