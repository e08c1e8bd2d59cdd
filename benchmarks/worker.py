"""P11: one Spark task in a Python worker of its own: how soon its first batch is there, what memory a split of 2 GiB takes.

The worker is not Spark's, but does as Spark's: it has imported what Spark's has when it is forked, unpickles a reader and a
slice, and takes batches.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.data import RECORD_BYTES, fill, new_log, touch
from benchmarks.measure import Row, Sample, Settings, Target, at_most

LIMIT_MIB = 256
LIMIT_SECONDS = 1.0
CHILD = """
import pickle, resource, sys
import pyarrow, pyspark.sql.datasource, pyspark.worker

def kib(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1])

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

start, began = kib("VmRSS"), cpu()
print("ready", flush=True)
reader, part = pickle.loads(bytes.fromhex(sys.stdin.readline()))
batches = reader.read(part)
count = next(batches).num_rows
print(cpu() - began, flush=True)
count += sum(batch.num_rows for batch in batches)
assert count == part.end - part.start
print((kib("VmHWM") - start) / 1024)
"""


def run(settings: Settings) -> None:
    """Reports both, with all columns; before the first round a worker has compiled the kernels, if none had."""
    directory = Path(settings.directory) / "log"
    size = settings.scaled(2 << 30, 512 << 20)
    with new_log(directory) as log:
        fill(log, int(size / RECORD_BYTES))
    touch(directory)
    found = [_worked(_task(directory)) for _ in range(settings.scaled(6, 3))][1:]
    seconds, cpu, grown = (Sample(tuple(figures)) for figures in zip(*found, strict=True))
    note = f"{cpu.median:.2f} s of the processor"

    def row(what: str, unit: str, measured: Sample, target: Target, note: str) -> None:
        work = f"a task of {size >> 20:,} MiB, all columns, in a new Python worker: {what}"
        settings.report(Row(part="P11", work=work, unit=unit, measured=measured, target=target, note=note))

    row("time to its first batch", "s", seconds, at_most(LIMIT_SECONDS), note)
    row("peak resident memory above the start", "MiB", grown, at_most(LIMIT_MIB), "VmHWM, what it imports included")


def _task(directory: Path) -> bytes:
    """What Spark sends to a worker."""
    from pylog.spark.options import read_options
    from pylog.spark.source import PylogReader

    reader = PylogReader(read_options({"path": str(directory), "subscribe": "events", "maxBytesPerPartition": str(1 << 40)}))
    (part,) = reader.partitions()
    return pickle.dumps((reader, part))


def _worked(task: bytes) -> tuple[float, float, float]:
    """Seconds to the first batch, seconds of the processor until then, MiB at the peak."""
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        began = time.perf_counter()
        print(task.hex(), file=child.stdin, flush=True)
        cpu = float(child.stdout.readline())
        return time.perf_counter() - began, cpu, float(child.stdout.readline())
