"""P5: records at random offsets, warm, one by one and many in a call: of a mapped segment, and of the active one by pread."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import pylog
from benchmarks import databases
from benchmarks.data import BATCH_OVERHEAD, RECORD_BYTES, fill, fill_segments, new_log, pairs_of, plain_rows, touch
from benchmarks.measure import NO_WRITES, Row, Sample, Settings, at_most, millions, percentiles, race, times

BATCH_BYTES = 16 << 10
SPREAD = {", of all": 1, ", of a sixteenth of the log": 16}  # the share of the log that has the offsets
LIMITS = {"mapped": {50: 10, 99: 40}, "active, by pread": {50: 20, 99: 60}}


def run(settings: Settings) -> None:
    """Reports the rows of P5."""
    directory = Path(settings.directory)
    size = settings.scaled(1 << 30, 128 << 20)
    config = {"segment_bytes": size, "max_message_bytes": BATCH_BYTES + BATCH_OVERHEAD}
    with new_log(directory / "sealed", **config) as log:
        end = fill_segments(log, 1)
        mapped = _measure(settings, directory / "sealed", log, end, "mapped", size)
        many = {how: _many(settings, log, end // part) for how, part in SPREAD.items()}
    with new_log(directory / "active", **config) as log:
        _measure(settings, directory / "active", log, fill(log, int(size / RECORD_BYTES * 0.98)), "active, by pread", size)
    _others(settings, directory, mapped, many)


def _many(settings: Settings, log: pylog.Log, end: int) -> Sample:
    """Millions of records a second by one call."""
    offsets = np.random.default_rng(1).integers(0, end, settings.scaled(80_000, 20_000))
    return race({"": lambda: millions(len(offsets), lambda: log.read_many(offsets))}, settings.rounds)[""]


def _measure(settings: Settings, directory: Path, log: pylog.Log, end: int, how: str, size: int) -> dict[int, Sample]:
    touch(directory)
    for offset in range(0, end, 400):  # every page of a mapping is there
        log.read(offset)
    offsets = np.random.default_rng(1).integers(0, end, settings.scaled(80_000, 20_000)).tolist()
    found = percentiles(log.read, offsets, settings.rounds)
    for percent, limit in LIMITS[how].items():
        settings.report(
            Row(
                part="P5",
                work=f"read(random offset), {how}, {size >> 20} MiB, batches of 16 KiB, p{percent}",
                unit="µs",
                measured=found[percent],
                target=at_most(limit),
            )
        )
    return found


def _others(settings: Settings, directory: Path, ours: dict[int, Sample], many: dict[str, Sample]) -> None:
    """Databases of fewer records, in memory as a whole: they check no sums."""
    count = settings.scaled(500_000, 50_000)
    pairs = pairs_of(plain_rows(0, count))
    numbers = np.random.default_rng(1).integers(0, count, settings.scaled(80_000, 20_000)).tolist()
    for kind in databases.BY_NUMBER:
        database = kind(directory / kind.__name__)
        database.write(pairs[: count // kind.part])
        database.scan()
        found = percentiles(database.get, [number // kind.part for number in numbers], settings.rounds)[50]
        if kind is databases.Lmdb:
            _beside(settings, many, database, numbers)
        database.close()
        settings.report(
            Row(
                part="P5",
                work="read(random offset), mapped, p50",
                unit="µs",
                measured=ours[50],
                durability=NO_WRITES,
                rival=f"{kind.name.partition(',')[0]}, get by number, {count // kind.part / 1000:g} k records",
                rival_measured=found,
                ratio=found.over(ours[50]),
            )
        )


def _beside(settings: Settings, many: dict[str, Sample], database: databases.Lookup, numbers: list[int]) -> None:
    """Reports `read_many` beside as many lookups in a database."""
    rate = race({"": lambda: millions(len(numbers), lambda: [*map(database.get, numbers)])}, settings.rounds)[""]
    for how, sample in many.items():
        settings.report(
            Row(
                part="P5",
                work=f"read_many of {len(numbers):,} random offsets{how}, batches of 16 KiB",
                unit="M records/s",
                measured=sample,
                durability=NO_WRITES,
                rival=f"{database.name.partition(',')[0]}, get by number",
                rival_measured=rate,
                ratio=sample.over(rate),
                target=times(3),
            )
        )
