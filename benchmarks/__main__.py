"""./dev bench [--quick | --full] [names…]: runs the benchmarks, prints a line for each figure, keeps what a whole run found."""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks import compare, figures, machine, page, results
from benchmarks.measure import Row, Settings, Size
from benchmarks.results import Run

# Names and what they measure, in the order in which they run.
BENCHMARKS = {
    "append": "P1: append_arrow to a file",
    "produce": "P2: records one by one through a producer, and in lists",
    "scan": "P3: scan to Arrow",
    "records": "P4: iterate records as objects",
    "lookup": "P5: one record at a random offset",
    "times": "P6: an offset for a time",
    "durable": "P7: appends that outlive a power loss",
    "opening": "P8: opening a partition, and recovering one",
    "compaction": "P9: compaction",
    "verify": "verify: everything is read again",
    "offsets": "P10: committed offsets: commit, fetch, load",
    "transactions": "T: transactions: commits, their latency, reading committed records",
    "consumer": "from a writer to a consumer of a group in another process; P4 through a consumer",
    "broker": "Kafka's own broker and clients, and its storage module in one JVM",
    "spark": "P11: Spark batch read",
    "spark_codecs": "P11: Spark batch read of compressed topics",
    "planning": "planning a Spark read of 20 TB in 2,000 partitions, with --full of 100 TB in 10,000",
    "objects": "archiving, restoring and reading by URL on S3Proxy; appends beside an archiver",
    "stream": "P11: a Spark stream against a batch read",
    "spark_write": "P11: Spark batch write",
    "worker": "P11: one Spark task in a new Python worker: its first batch, its memory",
    "connector": "P11: the same from Spark's Kafka connector and a broker",
    "startup": "P12: import, first append, first scan",
    "processes": "P13: readers and writers in other processes",
    "partitions": "P14: memory of 10,000 open partitions",
    "growth": "lookups and appends against the size of the log",
    "memory": "P14: memory of a scan of 2 GiB",
    "gate": "ten ratios and two controls for .ci/run, in processor time; only if it is named",
    "floors": "the parts of a work by bare programs, in processor time, beside pylog's; only if it is named",
}
NEEDS_JAVA = {"broker", "objects", "spark", "spark_codecs", "stream", "spark_write", "connector"}
NOT_QUICK = {"broker", "connector", "stream"}  # they start JVMs again and again; one more fetches 450 MB the first time
ONLY_NAMED = {"gate", "floors"}  # a whole run has rows of the same work
REGRESSED = 1  # the exit status when a ratio is worse than the kept one
FAILED = 3  # the exit status when a benchmark failed; argparse has 2
INCOMPLETE = results.LAST.with_name("incomplete.json")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="./dev bench",
        description="Measures pylog and others in the same run, in some twenty minutes. A whole run is kept in"
        " benchmarks/results/last.json, and shown in docs/benchmarks and where pages have figures, unless it is only compared.",
        epilog="benchmarks: " + "; ".join(f"{name} ({what})" for name, what in BENCHMARKS.items()),
    )
    made.add_argument("names", nargs="*", metavar="name", help="only these benchmarks")
    size = made.add_mutually_exclusive_group()
    size.add_argument(
        "--quick", action="store_const", const=Size.QUICK, dest="size", help="smaller logs, fewer rounds: five minutes"
    )
    size.add_argument(
        "--full", action="store_const", const=Size.FULL, dest="size", help="twice as many rounds: less than an hour"
    )
    made.add_argument(
        "--keep", type=Path, metavar="FILE", help="keep the results there, also of a run that is quick or of some names"
    )
    made.add_argument("--from", type=Path, metavar="FILE", dest="kept", help="measure nothing: take the results of that kept run")
    made.add_argument("--pages", action="store_true", help="draw the charts and write the pages' figures anew, from this run")
    made.add_argument(
        "--compare", type=Path, metavar="FILE", help="compare the ratios with a kept run's; exit with 1 if one is worse"
    )
    made.add_argument(
        "--tolerance",
        type=float,
        help=f"by how much it may be ({compare.TOLERANCE}, on another processor {compare.ELSEWHERE}; with the gate's controls"
        " twice their noise more)",
    )
    made.set_defaults(size=Size.USUAL)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures what was asked for, or takes what was kept; keeps, shows and compares it. Returns the exit status."""
    os.environ.setdefault("PYLOG_KERNELS", "compiled")  # figures are of compiled code; `startup` measures the first second
    asked = parser().parse_args(arguments)
    if unknown := [name for name in asked.names if name not in BENCHMARKS]:
        parser().error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if missing := [str(path) for path in (asked.kept, asked.compare) if path and not path.is_file()]:
        parser().error(f"there is no {' and no '.join(missing)}")
    before = asked.compare and results.load(asked.compare)
    names = chosen(asked.names, asked.size, java=shutil.which("java") is not None)
    whole = not (asked.kept or asked.compare) and asked.size is not Size.QUICK and BENCHMARKS.keys() - ONLY_NAMED <= set(names)
    run = results.load(asked.kept) if asked.kept else measure(names, asked.size)
    failed = run.machine.get("failed")
    print(f"\n{results.summary(run.rows)}")
    if keep := asked.keep or ((INCOMPLETE if failed else results.LAST) if whole else None):
        results.save(keep, run)
        print(f"kept in {keep}")
    if (whole and not failed) or asked.pages:
        page.write(run)
        print("written:", page.PAGE, *figures.write(run), sep="\n  ")
    if failed:
        print(f"failed: {failed}")
        return FAILED
    return compared(before, run, asked.tolerance) if before else 0


def chosen(names: Sequence[str], size: Size, *, java: bool) -> list[str]:
    """The benchmarks of a run, in their order: those that were named, or all but what the size and the machine leave out."""
    if names:
        return [name for name in BENCHMARKS if name in names]
    out = ONLY_NAMED | (NOT_QUICK if size is Size.QUICK else set()) | (set() if java else NEEDS_JAVA)
    return [name for name in BENCHMARKS if name not in out]


def measure(names: Sequence[str], size: Size) -> Run:
    """Runs benchmarks by name, one after the other, each in an empty directory. One that fails does not stop the others."""
    started = time.perf_counter()
    about = {**machine.description(tempfile.gettempdir()), "size of the run": str(size)}
    for name, value in about.items():
        print(f"{name}: {value}")
    rows: list[Row] = []
    failed: list[str] = []

    def report(row: Row) -> None:
        rows.append(row)
        print(results.line(row), flush=True)

    for name in names:
        print(f"\n{name}: {BENCHMARKS[name]}\n", flush=True)
        began = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory(prefix="pylog-bench-") as directory:
                importlib.import_module(f"benchmarks.{name}").run(Settings(size, directory, report))
        except (Exception, SystemExit):  # noqa: BLE001 - whatever it is, it is shown, and the run says that it is incomplete
            traceback.print_exc()
            failed.append(name)
        print(f"took {time.perf_counter() - began:.0f} s", flush=True)
    if left_out := [name for name in BENCHMARKS if name not in names and name not in ONLY_NAMED]:
        about["not measured"] = ", ".join(left_out)
    if failed:
        about["failed"] = ", ".join(failed)
    about["took"] = f"{(time.perf_counter() - started) / 60:.1f} minutes"
    return Run(about, rows)


def compared(before: Run, run: Run, asked: float | None) -> int:
    """Prints what became worse; the exit status says whether something did."""
    tolerance = compare.tolerance(before, run) if asked is None else asked
    try:
        found = compare.changes(before, run)
    except ValueError as error:
        raise SystemExit(f"./dev bench: {error}") from error
    for line in compare.report(found, tolerance):
        print(line)
    if left := compare.not_measured(before, run):
        print(f"ratios of the kept run that were not measured in this one: {left}")
    return REGRESSED if any(change.is_worse(tolerance) for change in found) else 0


if __name__ == "__main__":
    sys.exit(main())
