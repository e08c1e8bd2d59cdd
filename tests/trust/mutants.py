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
        name="root_keeps_what_it_creates",
        file="pylog/fs/ownership.py",
        text="    if parent.st_uid == _ROOT or os.fstat(descriptor).st_uid != _ROOT:\n",
        replacement="    if True:\n",
        tests=(
            "tests/test_ownership.py::test_what_root_creates_in_the_directory_of_another_owner_is_that_owners",
            "tests/test_ownership.py::test_the_owner_of_a_directory_goes_on_where_root_has_written",
        ),
        why="The owner of a directory cannot read the files that root's process leaves in it.",
    ),
    Mutant(
        name="modes_ignore_the_umask",
        file="pylog/fs/ownership.py",
        text="FILE_MODE: Final = 0o666\n",
        replacement="FILE_MODE: Final = 0o600\n",
        tests=("tests/test_ownership.py::test_everything_that_pylog_creates_follows_the_umask",),
        why="New files get mode 0600, whatever the umask says.",
    ),
    Mutant(
        name="replaced_files_lose_their_mode",
        file="pylog/fs/ownership.py",
        text="            _keep(source, old)\n",
        replacement="            pass\n",
        tests=("tests/test_ownership.py::test_a_file_that_is_replaced_keeps_its_mode",),
        why="A checkpoint with mode 0640 has another mode after it was replaced.",
        quick=True,
    ),
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
