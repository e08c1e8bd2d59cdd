"""P11: a Spark batch read of compressed topics, against the same rows uncompressed, and against decompressing alone.

The codec's own limit is what as many threads as Spark has tasks at a time get out of its batches, into one buffer each.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.data import batches_of, disk_bytes, fill, new_log, text_rows, touch
from benchmarks.measure import Settings, millions, race, times
from benchmarks.scan import decompress
from benchmarks.spark import PARTITIONS, bytes_of, report_beside, session
from pylog.record.format import HEADER_SIZE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODECS = ("lz4", "zstd", "snappy", "gzip")
THREADS = 2  # of local[2]
LARGEST = 4 << 20  # bytes of a batch, decompressed


def run(settings: Settings) -> None:
    """Reports each codec, with the value alone."""
    count = settings.scaled(4_000_000, 1_000_000)
    directories = {codec: Path(settings.directory) / codec for codec in ("none", *CODECS)}
    piece = text_rows(0, min(count, 1_000_000))
    for codec, directory in directories.items():
        with new_log(directory, compression_type=codec) as log:
            fill(log, count, lambda _, size: piece.slice(0, size))
        touch(directory)
    spark = session(settings)
    try:
        plain = _frame(spark, directories["none"])
        for codec in CODECS:
            _measure(settings, codec, count, _frame(spark, directories[codec]), plain, directories[codec])
    finally:
        spark.stop()


def _frame(spark: SparkSession, directory: Path) -> DataFrame:
    split = str(int(disk_bytes(directory) / PARTITIONS * 1.05))
    options = {"path": str(directory), "subscribe": "events", "columns": "value", "maxBytesPerPartition": split}
    return spark.read.format("pylog").options(**options).load()


def _measure(settings: Settings, codec: str, count: int, frame: DataFrame, plain: DataFrame, directory: Path) -> None:
    expected = bytes_of(plain)
    payloads = [batch[HEADER_SIZE:] for path in sorted(directory.rglob("*.log")) for batch in batches_of(path.read_bytes())]

    def read(one: DataFrame) -> None:
        assert bytes_of(one) == expected

    speed = race(
        {
            "pylog": lambda: millions(count, lambda: read(frame)),
            "plain": lambda: millions(count, lambda: read(plain)),
            "bare": lambda: millions(count, lambda: _decompress_all(codec, payloads)),
        },
        settings.repeated(3, 1),
    )
    work = f"Spark local[2], sum(length(value)), {count // 1_000_000} M rows like JSON, value only, {codec}"
    limited = speed["bare"].median < speed["plain"].median / 2  # whatever reads it: the codec is what takes the time
    ours, half = speed["pylog"], times(0.5)
    report_beside(settings, work, ours, "the same rows uncompressed", speed["plain"], None if limited else half)
    bare = f"cramjam's {codec}, decompression alone, {THREADS} threads"
    report_beside(settings, work, ours, bare, speed["bare"], half if limited else None)


def _decompress_all(codec: str, payloads: list[bytes]) -> None:
    def share(number: int) -> int:
        out = np.empty(LARGEST, np.uint8)
        return sum(decompress(codec, payload, out) for payload in payloads[number::THREADS])

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(share, range(THREADS)))
