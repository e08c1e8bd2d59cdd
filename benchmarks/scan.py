"""P3: scanning to Arrow with every CRC verified: mapped, read, by two threads, compressed; and the bare work below it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import cramjam
import numpy as np
from numpy.typing import NDArray

import pylog
from benchmarks import columns, databases
from benchmarks.data import batches_of, fill, fill_segments, log_bytes, new_log, pairs_of, plain_rows, reopened, text_rows, touch
from benchmarks.measure import Row, Sample, Settings, Target, at_least, millions, race, seconds, times
from benchmarks.processors import two_threads_apart
from pylog.record import kernels

COLUMNS = ("offset", "timestamp", "key", "value")
SMALL_SEGMENT = 80 << 20  # below the 96 MiB of mapped pages that scans keep resident
RESIDENT = "within the 96 MiB of mapped pages that scans keep resident"
BEYOND = "larger than the 96 MiB of mapped pages that scans keep resident: most pages are faulted in again"
APART = ", each on a processor of its own"
PASSES = 16  # of a small log in one round
HEADER_SIZE = 61
SNAPPY_HEADER = 16


def run(settings: Settings) -> None:
    """Reports the rows of P3."""
    directory = Path(settings.directory)
    _small_log(settings, directory / "small")
    _large_log(settings, directory / "large")
    _active_segment(settings, directory / "active")
    _others(settings, directory)
    for codec in ("lz4", "zstd", "snappy", "gzip"):
        _compressed(settings, directory / codec, codec)


def scanned(log: pylog.Log, start: int, end: int, columns: tuple[str, ...] = COLUMNS) -> int:
    """The number of rows between two offsets, found by scanning them."""
    return sum(batch.num_rows for batch in log.scan(start, end, columns=columns))


def _row(settings: Settings, work: str, measured: Sample, *, target: Target | None = None, note: str = "") -> None:
    settings.report(Row(part="P3", work=work, unit="M records/s", measured=measured, target=target, note=note))


# ---- mapped ----------------------------------------------------------------------------------------------------------------


def _small_log(settings: Settings, directory: Path) -> None:
    with new_log(directory, segment_bytes=SMALL_SEGMENT) as log:
        end = fill_segments(log, 1)
        middle = log.split_offsets(0, end, SMALL_SEGMENT // 2)[0]
        data = np.frombuffer(log_bytes(directory), np.uint8)
        target = np.empty_like(data)
        halves = [(0, len(data) // 2), (len(data) // 2, len(data))]
        with ThreadPoolExecutor(2) as pool, two_threads_apart() as apart:
            speed = race(
                {
                    "one": lambda: millions(end * PASSES, lambda: [scanned(log, 0, end) for _ in range(PASSES)]),
                    "value": lambda: millions(end * PASSES, lambda: [scanned(log, 0, end, ("value",)) for _ in range(PASSES)]),
                    "two": lambda: millions(end * PASSES, lambda: _both(pool, log, middle, end)),
                    "apart": lambda: millions(end * PASSES, lambda: _both(apart, log, middle, end)),
                    "mapped": lambda: _reopened(directory, "rw", end),
                    "read": lambda: _reopened(directory, "r", end),
                    "memcpy": lambda: millions(end, lambda: np.copyto(target, data)),
                    "checked": lambda: millions(end * PASSES, lambda: [_checked(data, half) for half in halves * PASSES]),
                    "checked by two": lambda: millions(end * PASSES, lambda: _checked_by_two(apart, data, halves)),
                },
                settings.rounds,
            )
    about = f"{SMALL_SEGMENT >> 20} MiB, four columns"
    _row(settings, f"scan, mapping already touched, {about}", speed["one"], target=at_least(35), note=RESIDENT)
    _row(settings, f"scan, mapping already touched, {SMALL_SEGMENT >> 20} MiB, value only", speed["value"], note=RESIDENT)
    _row(settings, f"scan, file just mapped, {about}", speed["mapped"], target=at_least(22))
    _row(settings, f"scan, store opened for reading only: by pread, {about}", speed["read"])
    _by_two(settings, f"scan, mapping already touched, {about}", speed)
    work = f"checksums alone of the same {SMALL_SEGMENT >> 20} MiB, two threads{APART}: what memory gives the second one"
    _ratio(settings, work, speed["checked by two"], "one thread", speed["checked"])
    _ratio(settings, f"scan, mapping already touched, {about}", speed["one"], "memcpy of the same bytes", speed["memcpy"])


def _by_two(settings: Settings, work: str, speed: dict[str, Sample]) -> None:
    """Two threads where the system puts them, and apart: the target is pylog's, not the scheduler's."""
    _ratio(settings, f"{work}, two threads", speed["two"], "one thread", speed["one"])
    _ratio(settings, f"{work}, two threads{APART}", speed["apart"], "one thread", speed["one"], times(1.7))


def _both(pool: ThreadPoolExecutor, log: pylog.Log, middle: int, end: int) -> None:
    """Two halves at once, each several times."""
    halves = [(0, middle), (middle, end)]
    list(pool.map(lambda half: [scanned(log, *half) for _ in range(PASSES)], halves))


def _checked(data: NDArray[np.uint8], part: tuple[int, int]) -> int:
    """The least that a scan does with bytes: one kernel call, without Python's lock."""
    return int(kernels.checksum(data, *part))


def _checked_by_two(pool: ThreadPoolExecutor, data: NDArray[np.uint8], halves: list[tuple[int, int]]) -> None:
    list(pool.map(lambda half: [_checked(data, half) for _ in range(PASSES)], halves))


def _ratio(
    settings: Settings,
    work: str,
    measured: Sample,
    rival: str,
    other: Sample,
    target: Target | None = None,
    unit: str = "M records/s",
) -> None:
    settings.report_ratio("P3", work, unit, measured, rival, other, target=target)


def _reopened(directory: Path, mode: str, end: int) -> float:
    """The first scan after opening; what opening costs besides is P8."""
    with reopened(directory, mode) as log:
        return millions(end, lambda: scanned(log, 0, end))


def _large_log(settings: Settings, directory: Path) -> None:
    size = settings.scaled(1 << 30, 256 << 20)
    with new_log(directory, segment_bytes=size) as log:
        end = fill_segments(log, 1)
        middle = log.split_offsets(0, end, size // 2)[0]
        touch(directory)
        halves = [(0, middle), (middle, end)]
        with ThreadPoolExecutor(2) as pool, two_threads_apart() as apart:
            speed = race(
                {
                    "one": lambda: millions(end, lambda: scanned(log, 0, end)),
                    "two": lambda: millions(end, lambda: list(pool.map(lambda half: scanned(log, *half), halves))),
                    "apart": lambda: millions(end, lambda: list(apart.map(lambda half: scanned(log, *half), halves))),
                    "mapped": lambda: _reopened(directory, "rw", end),
                    "read": lambda: _reopened(directory, "r", end),
                },
                settings.repeated(5, 2),
            )
    about = f"{size >> 20} MiB, four columns"
    _row(settings, f"scan, file just mapped, {about}", speed["mapped"], target=at_least(22))
    _row(settings, f"scan, store opened for reading only: by pread, {about}", speed["read"])
    _row(settings, f"scan, mapping kept, {about}", speed["one"], target=at_least(22), note=BEYOND)
    _by_two(settings, f"scan, mapping kept, {about}", speed)


# ---- read ------------------------------------------------------------------------------------------------------------------


def _active_segment(settings: Settings, directory: Path) -> None:
    """What is still appended to is not mapped but read with pread."""
    with new_log(directory) as log:
        end = fill(log, settings.scaled(4, 1) * 1_000_000)
        size = log.segments[0].size
        speed = race({"one": lambda: millions(end, lambda: scanned(log, 0, end))}, settings.rounds)
    _row(settings, f"scan, active segment by pread, {size >> 20} MiB, four columns", speed["one"])


def _others(settings: Settings, directory: Path) -> None:
    """Databases' scans give Python objects, one by one; `scan` and files of columns arrays, `records` (P4) objects."""
    count = settings.scaled(300_000, 60_000)
    rows = plain_rows(0, count)
    with new_log(directory / "few") as log, ExitStack() as opened:
        log.append_arrow(rows)
        contestants: dict[str, Callable[[], float]] = {"pylog": lambda: millions(count, lambda: scanned(log, 0, count))}
        for kind in databases.ALL:
            database = opened.enter_context(closing(kind(directory / kind.__name__)))
            database.write(pairs_of(rows.slice(0, count // kind.part)))
            contestants[f"{kind.name}, scan"] = _scanning(database.scan, count // kind.part)
        for form in columns.ALL:
            file = form(directory / form.__name__)
            file.write([rows])
            contestants[f"{form.name}, scan"] = _scanning(file.scan, count)
        speed = race(contestants, settings.rounds)
    for name in list(speed)[1:]:
        _ratio(settings, f"scan, {count // 1000:,} k records, active segment", speed["pylog"], name, speed[name])


def _scanning(scan: Callable[[], int], count: int) -> Callable[[], float]:
    def work() -> None:
        assert scan() == count

    return lambda: millions(count, work)


# ---- compressed ------------------------------------------------------------------------------------------------------------


def _compressed(settings: Settings, directory: Path, codec: str) -> None:
    """Against decompressing alone: every batch into one buffer, one after the other."""
    with new_log(directory, segment_bytes=settings.scaled(24, 6) << 20, compression_type=codec) as log:
        end = fill_segments(log, 1, text_rows, piece=settings.scaled(400_000, 100_000))
        payloads = [batch[HEADER_SIZE:] for batch in batches_of(log_bytes(directory))]
        plain = np.empty(1 << 20, np.uint8)
        size = sum(decompress(codec, payload, plain) for payload in payloads)
        taken = race(
            {
                "pylog": lambda: seconds(lambda: scanned(log, 0, end)),
                "bare": lambda: seconds(lambda: [decompress(codec, payload, plain) for payload in payloads]),
            },
            settings.rounds,
        )
    speed = {name: Sample(tuple(size / each / 1e6 for each in sample.rounds)) for name, sample in taken.items()}
    work = f"scan, {codec}, {size >> 20} MiB of records like JSON, mapped"
    _ratio(settings, work, speed["pylog"], f"cramjam's {codec}, decompression alone", speed["bare"], times(0.7), "MB/s")


def decompress(codec: str, payload: bytes, out: NDArray[np.uint8]) -> int:
    """Into a buffer with room for it; returns the size."""
    if codec == "snappy":
        return _decompress_snappy(payload, out)
    return int(getattr(cramjam, codec).decompress_into(payload, out))


def _decompress_snappy(payload: bytes, out: NDArray[np.uint8]) -> int:
    """Kafka's framing: a header, then blocks, each behind its size."""
    position, size, view, target = SNAPPY_HEADER, 0, memoryview(payload), out.data
    while position < len(payload):
        length = int.from_bytes(payload[position : position + 4], "big")
        block = view[position + 4 : position + 4 + length]
        size += int(cramjam.snappy.decompress_raw_into(block, target[size:]))
        position += 4 + length
    return size
