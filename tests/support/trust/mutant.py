"""A mutant: a fix taken out, and the tests that must fail then."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One fix taken out.

    Attributes:
        name: for the command line; letters, digits and underscores.
        file: the source file, from `src/`: "pylog/log/maintenance/retention_policy.py".
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
