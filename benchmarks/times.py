"""P6: `offset_for_timestamp` in a log of a hundred segments, warm."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import databases
from benchmarks.data import fill_segments, new_log, pairs_of, plain_rows, timestamp_of, touch
from benchmarks.measure import Row, Sample, Settings, at_most, percentiles

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
    count = settings.scaled(300_000, 30_000)
    rival = _in_sqlite(directory.with_name("sqlite"), count, settings)
    for percent, sample in found_in.items():
        work = f"offset_for_timestamp(random time), {SEGMENTS} segments of {size >> 20} MiB, batches of 128 KiB, p{percent}"
        settings.report(
            Row(
                part="P6",
                work=work,
                unit="µs",
                measured=sample,
                rival=f"SQLite, an index on the timestamp, {count // 1000:,} k records",
                rival_measured=rival[percent],
                ratio=rival[percent].over(sample),
                target=at_most(30) if percent == 50 else None,
            )
        )


def _in_sqlite(path: Path, count: int, settings: Settings) -> dict[int, Sample]:
    """The same question to a table of fewer records."""
    database = databases.Sqlite(path)
    database.write(pairs_of(plain_rows(0, count)))
    database.connection.execute("CREATE INDEX times ON events (timestamp)")
    query = "SELECT offset, timestamp FROM events WHERE timestamp >= ? ORDER BY timestamp LIMIT 1"
    moments = np.random.default_rng(2).integers(0, count, settings.scaled(10_000, 2_000)) + timestamp_of(0)
    found = percentiles(
        lambda moment: database.connection.execute(query, (moment,)).fetchone(), moments.tolist(), settings.rounds
    )
    database.close()
    return found
