"""P6: `offset_for_timestamp` in a log of a hundred segments, warm."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.data import fill_segments, new_log, timestamp_of, touch
from benchmarks.measure import Row, Settings, at_most, percentiles

SEGMENTS = 100
SEGMENT_BYTES = 4 << 20


def run(settings: Settings) -> None:
    """Reports the rows of P6."""
    directory = Path(settings.directory) / "log"
    size = settings.scaled(SEGMENT_BYTES, SEGMENT_BYTES // 4)
    with new_log(directory, segment_bytes=size) as log:
        end = fill_segments(log, SEGMENTS, piece=100_000)
        touch(directory)
        offsets = np.random.default_rng(2).integers(0, end, settings.scaled(10_000, 2_000))
        for offset in offsets[:1000].tolist():
            found = log.offset_for_timestamp(timestamp_of(offset))
            assert found is not None
            assert found.offset == offset
        found_in = percentiles(log.offset_for_timestamp, (offsets + timestamp_of(0)).tolist(), settings.rounds)
    for percent, sample in found_in.items():
        work = f"offset_for_timestamp(random time), {SEGMENTS} segments of {size >> 20} MiB, batches of 128 KiB, p{percent}"
        settings.report(Row(part="P6", work=work, unit="µs", measured=sample, target=at_most(30) if percent == 50 else None))
