"""`./dev mutants`: takes one fix after the other out of a copy of the source, and demands that the tests named notice.

./dev mutants              all of them
./dev mutants NAME ...     these
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from support.faults.interruptions import EACH_STEP
from support.trust.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "src"
TESTS_FAILED = 1  # pytest's exit code; a file that cannot be imported, or a test that is not there, gives another one


class MutantError(AssertionError):
    """A mutant that cannot be made, or that a test did not notice."""


def mutated(mutant: Mutant, source: str) -> str:
    """Returns the text of a source file without the fix.

    Raises:
        MutantError: the fix is not there, or more than once.
    """
    count = source.count(mutant.text)
    if count != 1:
        raise MutantError(f"{mutant.name}: the text occurs {count} times in {mutant.file}, and must occur once:\n{mutant.text}")
    if mutant.text == mutant.replacement:
        raise MutantError(f"{mutant.name}: the replacement is the text itself")
    return source.replace(mutant.text, mutant.replacement)


def without_fix(mutant: Mutant, directory: Path) -> Path:
    """Copies the source into a directory, takes the fix out there, and returns the copy's path."""
    copy = directory / "src"
    shutil.copytree(SOURCES, copy)  # with its caches: compiling the kernels would take longer than the tests
    file = copy / mutant.file
    file.write_text(mutated(mutant, file.read_text()))
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
        compiled.unlink()
    return copy


def survived(mutant: Mutant) -> str | None:
    """Runs a mutant's tests on a source without the fix.

    Returns:
        None if each of them fails; else which did not, with pytest's output.
    """
    with tempfile.TemporaryDirectory(prefix="pylog-mutant-") as directory:
        copy = without_fix(mutant, Path(directory))
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist", *mutant.tests]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment = {**kept, "PYTHONPATH": str(copy), EACH_STEP: "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    unnoticed = [test for test in mutant.tests if not any(line.startswith((f"FAILED {test}", f"ERROR {test}")) for line in lines)]
    if done.returncode == TESTS_FAILED and not unnoticed:
        return None
    return f"{mutant.name}: not noticed by {', '.join(unnoticed or mutant.tests)}\n{done.stdout[-3000:]}{done.stderr[-2000:]}"


def main(names: list[str]) -> int:
    """Runs the mutants of these names, or all; returns 1 if one of them was not noticed."""
    known = {mutant.name: mutant for mutant in MUTANTS}
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"no mutant {', '.join(unknown)}; there are {', '.join(known)}")
    failures = 0
    for name in names or known:
        told = survived(known[name])
        print(f"{name}: {'noticed' if told is None else 'NOT NOTICED'}", flush=True)
        if told is not None:
            failures += 1
            print(told, flush=True)
    print(f"{len(names or known)} mutants, {failures} not noticed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
