"""What finding and appending cost in logs of 1 k, 1 M and 100 M records: it must not grow (other than by a logarithm)."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import pylog
from benchmarks.data import BATCH_OVERHEAD, fill, new_log, small_rows, timestamp_of, touch
from benchmarks.measure import NO_WRITES, Row, Sample, Settings, Target, microseconds, race, times

SIZES = {"1 k": 1_000, "1 M": 1_000_000, "100 M": 100_000_000}
SMALLEST = "1 k"
BATCH_BYTES = 8 << 10  # about 600 records: even the smallest log has two batches
SEGMENT_BYTES = 16 << 20
APPEND_NOISE = 0.8  # of the smallest log's speed: medians of appends that cost the same differ by that much
WORKS = ("read(random offset)", "offset_for_timestamp(random time)", "append(one record of 4 bytes)")


@dataclass(frozen=True)
class _Filled:
    """A log with so many records, and how many segments they made."""

    log: pylog.Log
    count: int
    segments: int

    def median_us(self, work: str, calls: int, random: np.random.Generator) -> float:
        """The median of so many calls."""
        offsets = random.integers(0, self.count, calls)
        call: Callable[[int], object]
        if work == WORKS[0]:
            call = self.log.read
        elif work == WORKS[1]:
            call, offsets = self.log.offset_for_timestamp, offsets + timestamp_of(0)
        else:
            call = self._append
        return float(np.median(microseconds(call, offsets.tolist())))

    def _append(self, _: int) -> object:
        return self.log.append(b"1234")


def run(settings: Settings) -> None:
    """Reports lookups and appends against the size of the log: the logs take turns, each is compared with the smallest."""
    random = np.random.default_rng(3)
    calls = settings.scaled(2_000, 1_000)
    with ExitStack() as opened:
        logs = {
            name: _fill(opened, Path(settings.directory) / str(count), count)
            for name, count in SIZES.items()
            if not settings.quick or count <= 1_000_000
        }
        for work in WORKS:
            contestants = {
                name: lambda filled=filled, work=work: filled.median_us(work, calls, random) for name, filled in logs.items()
            }
            found = race(contestants, settings.rounds)
            for name, filled in logs.items():
                _report(settings, work, name, filled, found)


def _fill(opened: ExitStack, directory: Path, count: int) -> _Filled:
    config = {"segment_bytes": SEGMENT_BYTES, "max_message_bytes": BATCH_BYTES + BATCH_OVERHEAD}
    log = opened.enter_context(new_log(directory, **config))
    fill(log, count, small_rows)
    log.flush()  # so that appends are not measured beside the write-back of all that
    touch(directory)
    return _Filled(log, count, len(log.segments))


def _target(work: str, count: int) -> Target:
    """Finding may cost as much more as the logarithm of the size grows; an append may not cost more."""
    return times(APPEND_NOISE if work.startswith("append") else round(math.log(SIZES[SMALLEST]) / math.log(count), 2))


def _report(settings: Settings, work: str, name: str, filled: _Filled, found: dict[str, Sample]) -> None:
    compared, segments = name != SMALLEST, filled.segments
    settings.report(
        Row(
            part="growth",
            work=f"{work}, log of {name} records in {segments} segment{'s' if segments > 1 else ''}, p50",
            unit="µs",
            measured=found[name],
            durability="Durability.OS" if work.startswith("append") else NO_WRITES,
            rival=f"the same in the log of {SMALLEST}" if compared else "",
            rival_measured=found[SMALLEST] if compared else None,
            ratio=found[SMALLEST].over(found[name]) if compared else None,
            target=_target(work, filled.count) if compared else None,
            curve=work,
            records=filled.count,
        )
    )
