"""./dev bench [--quick] [names…]: runs the benchmarks, prints a line for each figure, and keeps the results of a full run."""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine, results
from benchmarks.measure import Row, Settings

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
    "consumer": "from a writer to a consumer of a group in another process; P4 through a consumer",
    "spark": "P11: Spark batch read",
    "planning": "planning a Spark read of 100 TB in 10,000 partitions",
    "stream": "P11: a Spark stream against a batch read",
    "spark_write": "P11: Spark batch write",
    "worker": "P11: one Spark task in a new Python worker: its first batch, its memory",
    "connector": "P11: the same from Spark's Kafka connector and a broker",
    "startup": "P12: import, first append, first scan",
    "processes": "P13: readers and writers in other processes",
    "partitions": "P14: memory of 10,000 open partitions",
    "growth": "lookups and appends against the size of the log",
    "memory": "P14: memory of a scan of 2 GiB",
}


def main() -> int:
    """Runs what was asked for; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        description="Measures pylog and its rivals in the same run. A full run is kept in benchmarks/results.",
        epilog="benchmarks: " + "; ".join(f"{name} ({what})" for name, what in BENCHMARKS.items()),
    )
    parser.add_argument("names", nargs="*", metavar="name", help="only these benchmarks")
    parser.add_argument("--quick", action="store_true", help="smaller logs, fewer rounds: rough figures, in five minutes")
    parser.add_argument("--results", type=Path, help="keep the results there, also of a run that is not full")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    full = not arguments.quick and not arguments.names
    measure(arguments.names or list(BENCHMARKS), arguments.quick, arguments.results or (results.LAST if full else None))
    return 0


def measure(names: list[str], quick: bool, keep: Path | None) -> None:
    """Runs benchmarks by name, one after the other, each in an empty temporary directory."""
    started = time.perf_counter()
    about = dict(machine.description(tempfile.gettempdir()))
    for name, value in about.items():
        print(f"{name}: {value}")
    rows: list[Row] = []

    def report(row: Row) -> None:
        rows.append(row)
        print(results.line(row), flush=True)

    for name in names:
        print(f"\n{name}: {BENCHMARKS[name]}\n", flush=True)
        with tempfile.TemporaryDirectory(prefix="pylog-bench-") as directory:
            importlib.import_module(f"benchmarks.{name}").run(Settings(quick, directory, report))
    about["took"] = f"{(time.perf_counter() - started) / 60:.1f} minutes"
    print(f"\n{results.summary(rows)}\ntook {about['took']}")
    if keep is not None:
        results.save(keep, about, rows)
        print(f"kept in {keep}")


if __name__ == "__main__":
    sys.exit(main())
