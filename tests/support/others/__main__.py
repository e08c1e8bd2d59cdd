"""Fetches the own tests of kafka-python and aiokafka, runs them on the layers, and compares them with the table that is kept.

    python -m support.others [--checkout DIR] [--write] [--all] [SUITE ...]
    python -m support.others --programs DIR [--broker HOST:PORT]

The table is tests/compat/others.tsv: each test function, whether it passes, and why it is left out if it is.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from support.others import programs
from support.others.suites import PROJECT, SUITES, Suite, fetched

TABLE: Final = PROJECT / "tests" / "compat" / "others.tsv"
PASSED: Final = "passed"
LEFT_OUT: Final = "left out"


class Row(NamedTuple):
    """One test function, or a file that is not run.

    Attributes:
        suite: its name.
        test: its file below the folder of tests, and its name; for a file or a folder that is not run, its path alone.
        state: "passed" or "left out".
        reason: of a test that is left out.
    """

    suite: str
    test: str
    state: str
    reason: str = ""


def table() -> list[Row]:
    """Returns the rows of the table."""
    if not TABLE.exists():
        return []
    with TABLE.open(newline="") as file:
        return [Row(*line) for line in csv.reader(file, delimiter="\t")][1:]


def write(rows: list[Row]) -> None:
    """Writes the table."""
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(sorted(rows))


def outcomes(suite: Suite, folder: Path, left_out: list[str], arguments: list[str]) -> dict[str, tuple[str, str]]:
    """Runs a suite in a copy of its files. Returns how each test ended, and why.

    Args:
        suite: the suite.
        folder: of its tests.
        left_out: the tests that are not run.
        arguments: more for pytest.
    """
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        for name in (*suite.files, *(suite.helpers or ())):
            target = work / suite.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, target)
        if suite.helpers is None:
            _put_in_helpers(work / suite.folder)
        (work / "pytest.ini").write_text("[pytest]\n")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(work), str(PROJECT / "src"), str(PROJECT / "tests")]),
            "OTHERS_LEFT_OUT": json.dumps(left_out),
            "OTHERS_FOLDER": suite.folder,
            "OTHERS_PARTITIONS": str(suite.partitions),
            "OTHERS_OUTCOMES": str(work / "outcomes.json"),
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "support.others.plugin",
            "-p",
            "support.others.aio_plugin",
            "-p",
            "no:cacheprovider",
            *arguments,
        ]
        subprocess.run([*command, *(f"{suite.folder}/{name}" for name in suite.files)], cwd=work, env=environment, check=False)
        found = json.loads((work / "outcomes.json").read_text())
    return {name: (state, reason) for name, (state, reason) in found.items()}


def _put_in_helpers(tests: Path) -> None:
    """Writes our helpers in the place of kafka-python's, which start a broker."""
    for place in ("__init__.py", "integration/__init__.py"):
        (tests / place).parent.mkdir(exist_ok=True)
        (tests / place).touch()
    for place in ("testutil.py", "fixtures.py", "integration/fixtures.py"):
        (tests / place).write_text("from support.others.testutil import *\n")


def compared(suite: Suite, known: list[Row], found: dict[str, tuple[str, str]]) -> tuple[list[Row], list[str]]:
    """Returns the suite's rows as they are now, and what differs from the table.

    Args:
        suite: the suite.
        known: its rows in the table.
        found: how its tests ended.
    """
    kept = [row for row in known if row.state == LEFT_OUT and row.test not in found and "::" in row.test]
    files = [Row(suite.name, name, LEFT_OUT, reason) for name, reason in suite.left_out.items()]
    now = [Row(suite.name, test, PASSED if state == "passed" else state, reason) for test, (state, reason) in found.items()]
    rows = now + kept + files
    before = {row.test: row.state for row in known}
    wrong = [f"{row.test} {row.state}: {row.reason}" for row in now if row.state != PASSED]
    wrong += [f"{row.test} is new" for row in now if row.test not in before]
    wrong += [f"{row.test} is gone" for row in known if row.test not in {each.test for each in rows}]
    return rows, wrong


def main() -> int:
    """Runs the suites. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m support.others", description="Runs the own tests of kafka-python and aiokafka on the layers."
    )
    parser.add_argument("--checkout", type=Path, metavar="DIR", help="A clone of the suite's repository.")
    parser.add_argument("--write", action="store_true", help="Write the table anew, with the reasons that it has.")
    parser.add_argument("--all", action="store_true", help="Run the tests that are left out, too.")
    parser.add_argument("--pytest", default="", metavar="ARGUMENTS", help="More arguments for pytest.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="Names, or ends of names. Default: all that need no checkout.")
    parser.add_argument("--programs", type=Path, metavar="DIR", help="Run programs of others from the checkouts in DIR instead.")
    parser.add_argument("--broker", metavar="HOST:PORT", help="Compare the programs that take an address with this broker.")
    given = parser.parse_args()
    if given.programs:
        return programs.main(given.programs.resolve(), given.broker)
    chosen = [
        suite for suite in SUITES if (any(suite.name.endswith(name) for name in given.suites) if given.suites else suite.version)
    ]
    rows = table()
    is_right = True
    for suite in chosen:
        known = [row for row in rows if row.suite == suite.name]
        left_out = [] if given.all else [row.test for row in known if row.state == LEFT_OUT]
        found = outcomes(suite, fetched(suite, given.checkout), left_out, given.pytest.split())
        now, wrong = compared(suite, known, found)
        rows = [row for row in rows if row.suite != suite.name] + now
        counts = Counter(row.state for row in now if "::" in row.test)
        print(f"{suite.name}: " + ", ".join(f"{count} {state}" for state, count in sorted(counts.items())))
        for line in wrong:
            print(f"  {line}")
        is_right = is_right and not wrong
    if given.write:
        write([row if row.state == PASSED else row._replace(state=LEFT_OUT) for row in rows])
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
