"""What finding and appending cost in logs of 1 k, 1 M and 100 M records: it must not grow (other than by a logarithm)."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

import pylog
from benchmarks.data import BATCH_OVERHEAD, fill, new_log, small_rows, timestamp_of, touch
from benchmarks.measure import NO_WRITES, Row, Sample, Settings, percentiles

SIZES = {1_000: "1 k", 1_000_000: "1 M", 100_000_000: "100 M"}
BATCH_BYTES = 8 << 10  # about 600 records: even the smallest log has two batches
SEGMENT_BYTES = 16 << 20


def run(settings: Settings) -> None:
    """Reports lookups and appends against the size of the log, each against the smallest log."""
    smallest: dict[str, Sample] = {}
    for count, name in SIZES.items():
        if settings.quick and count > 1_000_000:
            continue
        directory = Path(settings.directory) / "log"
        figures, segments = _measure(settings, directory, count)
        shutil.rmtree(directory)
        for work, sample in figures.items():
            first = smallest.setdefault(work, sample)
            settings.report(
                Row(
                    part="growth",
                    work=f"{work}, log of {name} records in {segments} segments, p50",
                    unit="µs",
                    measured=sample,
                    durability="Durability.OS" if work.startswith("append") else NO_WRITES,
                    rival="" if first is sample else "the same in the log of 1 k",
                    rival_measured=None if first is sample else first,
                    ratio=None if first is sample else first.over(sample),
                )
            )


def _measure(settings: Settings, directory: Path, count: int) -> tuple[dict[str, Sample], int]:
    config = {"segment_bytes": SEGMENT_BYTES, "max_message_bytes": BATCH_BYTES + BATCH_OVERHEAD}
    with new_log(directory, **config) as log:
        fill(log, count, small_rows)
        segments = len(log.segments)
        log.flush()  # so that appends are not measured beside the write-back of all that
        touch(directory)
        offsets = np.random.default_rng(3).integers(0, count, settings.scaled(16_000, 4_000))
        times = (offsets + timestamp_of(0)).tolist()
        for offset in offsets[:1000].tolist():
            log.read(offset)
        figures = {
            "read(random offset)": percentiles(log.read, offsets.tolist(), settings.rounds)[50],
            "offset_for_timestamp(random time)": percentiles(log.offset_for_timestamp, times[:8000], settings.rounds)[50],
            "append(one record of 4 bytes)": _appends(settings, log),
        }
    return figures, segments


def _appends(settings: Settings, log: pylog.Log) -> Sample:
    return percentiles(lambda _: log.append(b"1234"), range(settings.scaled(16_000, 4_000)), settings.rounds)[50]
