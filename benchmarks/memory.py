"""Memory: how far a scan of 2 GiB raises a process above its start, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.data import PIECE, RECORD_BYTES, disk_bytes, fill, new_log, text_rows, touch
from benchmarks.measure import Row, Sample, Settings, at_most

LIMIT_MIB = 256
READERS = {
    "scan": "sum(batch.num_rows for batch in log.scan())",
    "for record in records()": "sum(1 for _ in log.records())",
}
# VmHWM counts resident pages of mapped files too. The start is a process with an open log; kernels come later.
CHILD = """
import sys, pylog

def kib(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1])

with pylog.open(sys.argv[1], mode="r") as store:
    log = store.log("events")
    start = kib("VmRSS")
    count = {work}
    assert count == log.end_offset
    print((kib("VmHWM") - start) / 1024)
"""


def run(settings: Settings) -> None:
    """Reports the growth for an uncompressed and a compressed log."""
    size = settings.scaled(2 << 30, 512 << 20)
    directory = Path(settings.directory)
    with new_log(directory / "plain") as log:
        fill(log, int(size / RECORD_BYTES))
    _report(settings, directory / "plain", f"{disk_bytes(directory / 'plain') >> 20:,} MiB uncompressed", list(READERS))
    piece = text_rows(0, PIECE // 4)
    with new_log(directory / "zstd", compression_type="zstd") as log:
        while log.end_offset * RECORD_BYTES < size:
            log.append_arrow(piece)
    _report(settings, directory / "zstd", f"{size >> 20:,} MiB in zstd", ["scan"])


def _report(settings: Settings, directory: Path, what: str, readers: list[str]) -> None:
    touch(directory)
    for reader in readers:
        grown = Sample(tuple(_growth(directory, READERS[reader]) for _ in range(settings.repeated(3, 1))))
        whole = Sample((disk_bytes(directory) / 2**20,) * len(grown.rounds))
        settings.report(
            Row(
                part="P14",
                work=f"{reader} of {what}: peak resident memory above the start",
                unit="MiB",
                measured=grown,
                rival=f"the log of {what}, as it lies on the disk",
                rival_measured=whole,
                ratio=whole.over(grown),
                target=at_most(LIMIT_MIB),
                note="VmHWM in a new process, mapped pages included",
            )
        )


def _growth(directory: Path, work: str) -> float:
    child = [sys.executable, "-c", CHILD.format(work=work), str(directory)]
    return float(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout)
