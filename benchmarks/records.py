"""P4: iterating records as Python objects, all fields read, against the decoders of aiokafka and kafka-python."""

from __future__ import annotations

from pathlib import Path

import pylog
from benchmarks import rivals
from benchmarks.data import batches_of, fill_segments, log_bytes, new_log
from benchmarks.measure import Row, Settings, at_least, millions, race, times

SEGMENT = 64 << 20
READERS = {
    "aiokafka (Cython), CRC checked, fields read": (rivals.decode_with_aiokafka, 1, times(1.2)),
    "kafka-python, CRC checked, fields read": (rivals.decode_with_kafka_python, 10, None),
}


def run(settings: Settings) -> None:
    """Reports the rows of P4."""
    directory = Path(settings.directory) / "log"
    with new_log(directory, segment_bytes=settings.scaled(SEGMENT, SEGMENT // 4)) as log:
        end = fill_segments(log, 1)
        batches = batches_of(log_bytes(directory))
        per_batch = end / len(batches)
        contestants = {"pylog": lambda: millions(end, lambda: _read(log, end))}
        for name, (decode, part, _) in READERS.items():
            some = batches[: len(batches) // part]
            contestants[name] = lambda decode=decode, some=some: millions(int(len(some) * per_batch), lambda: decode(some))  # type: ignore[misc]
        speed = race(contestants, settings.repeated(5, 2))
    work = f"for record in log.records(), five fields read, {end // 1000:,} k records, mapped"
    settings.report(Row(part="P4", work=work, unit="M records/s", measured=speed["pylog"], target=at_least(4)))
    for name, (_, _, target) in READERS.items():
        ratio = speed["pylog"].over(speed[name])
        settings.report(
            Row(
                part="P4",
                work=work,
                unit="M records/s",
                measured=speed["pylog"],
                rival=name,
                rival_measured=speed[name],
                ratio=ratio,
                target=target,
            )
        )


def _read(log: pylog.Log, end: int) -> int:
    count = 0
    for record in log.records(0, end):
        record.offset, record.timestamp, record.key, record.value, record.headers  # noqa: B018
        count += 1
    assert count == end
    return count
