"""Figures in the documentation, each with the name of what it is behind it, in a comment that no reader sees:

    17<!-- scan.one --> M records/s

`write` puts in those of a run; a test compares those in the pages with the kept run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Row, Sample
from benchmarks.page import PROJECT
from benchmarks.results import Run

FIGURE = re.compile(r"(?P<figure>[\d.,]+)(?P<name><!-- (?P<word>[a-z0-9_.]+) -->)")


class Source(NamedTuple):
    """Where a figure comes from.

    Attributes:
        part: of the row.
        work: what was done; `*` stands for anything.
        rival: a piece of the rival's name; empty for the first row of that work.
        value: the row's attribute: `measured`, `rival_measured` or `ratio`.
    """

    part: str
    work: str
    rival: str = ""
    value: str = "measured"

    def sample(self, rows: Sequence[Row]) -> Sample:
        """Its figures in a run.

        Raises:
            LookupError: the run has none.
        """
        for row in rows:
            if row.part == self.part and _matches(self.work, row.work) and self.rival in row.rival:
                sample: Sample | None = getattr(row, self.value)
                if sample is not None:
                    return sample
        raise LookupError(f"the run has no {self.value} for {self}")


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


def pages() -> list[Path]:
    """The pages that may have figures."""
    return sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])


def filled(text: str, run: Run) -> str:
    """A page's text with the figures of a run.

    Raises:
        LookupError: a name is not in `SOURCES`, or the run has no such figure.
    """
    return FIGURE.sub(lambda found: short(SOURCES[found["word"]].sample(run.rows).median) + found["name"], text)


def write(run: Run) -> Iterator[Path]:
    """Puts a run's figures into all pages, and gives those that changed."""
    for page in pages():
        old = page.read_text()
        new = filled(old, run)
        if new != old:
            page.write_text(new)
            yield page


def short(value: float) -> str:
    """Two digits that matter.

    >>> short(15.18), short(0.026), short(1.09), short(2834.1)
    ('15', '0.026', '1.1', '2,834')
    """
    return f"{value:,.0f}" if value >= 10 else f"{float(f'{value:.2g}'):g}"


_ROWS = "append_arrow, * M rows of 8 + 100 bytes to a new log"
_COLUMNS, _OBJECTS = "append_arrow, 200 k records*", "append_many, 200 k records*"
_SYNCED = "append_arrow, the same, a sync every 1 M rows"
_TOUCHED = "scan, mapping already touched, 80 MiB, four columns"
_FEW = "scan, 300 k records, active segment"
_RECORDS = "for record in log.records()*"
_SPARK = "Spark local[2], sum(length(value)), * M rows, value only*"
_SEND, _MANY = "producer.send(topic, value), 100 B, a future each", "append_many(list of *"
_ONE, _THREADS, _THOUSAND = (
    "append of 100 bytes, one thread, a sync a call",
    "append of 100 bytes by 32 threads*",
    "append_many of 1,000 *",
)
_NOTICE = "append returned *p99"
_SIZES = ("1 k", "1 M", "100 M")
_GROWN = (
    ("read", "read(random offset), log of"),
    ("time", "offset_for_timestamp(random time), log of"),
    ("append", "append(one record of 4 bytes), log of"),
)

# The names that pages may use.
SOURCES = {
    "append.rate": Source("P1", _ROWS),
    "append.bytes": Source("P1", f"{_ROWS}, bytes"),
    "append.of_write": Source("P1", f"{_ROWS}, bytes", "bare write()", "ratio"),
    "append.memcpy": Source("P1", f"{_ROWS}, bytes", "memcpy", "rival_measured"),
    "append.synced": Source("P1", _SYNCED),
    "append.synced.of_write": Source("P1", _SYNCED, "fdatasync", "ratio"),
    "append.columns": Source("P1", _COLUMNS),
    "append.columns.aiokafka": Source("P1", _COLUMNS, "aiokafka", "ratio"),
    "append.columns.sqlite": Source("P1", _COLUMNS, "SQLite", "ratio"),
    "append.columns.lmdb": Source("P1", _COLUMNS, "LMDB", "ratio"),
    "append.columns.rocksdb": Source("P1", _COLUMNS, "RocksDB", "ratio"),
    "append.objects.rocksdb": Source("P1", _OBJECTS, "RocksDB", "ratio"),
    "append.parquet": Source("P1", "append_arrow, *beside files of columns", "Parquet", "ratio"),
    "append.ipc": Source("P1", "append_arrow, *beside files of columns", "Arrow IPC", "ratio"),
    "append.objects": Source("P1", _OBJECTS),
    "append.objects.aiokafka": Source("P1", _OBJECTS, "aiokafka", "ratio"),
    "append.objects.sqlite": Source("P1", _OBJECTS, "SQLite", "ratio"),
    "append.objects.lmdb": Source("P1", _OBJECTS, "LMDB", "ratio"),
    "produce.send": Source("P2", _SEND),
    "produce.send.confluent": Source("P2", _SEND, "confluent-kafka", "ratio"),
    "produce.many": Source("P2", _MANY),
    "scan.one": Source("P3", _TOUCHED),
    "scan.two": Source("P3", f"{_TOUCHED}, two threads"),
    "scan.two.of_one": Source("P3", f"{_TOUCHED}, two threads", "one thread", "ratio"),
    "scan.apart.of_one": Source("P3", f"{_TOUCHED}, two threads, each*", "one thread", "ratio"),
    "scan.active": Source("P3", _FEW),
    "scan.active.sqlite": Source("P3", _FEW, "SQLite", "ratio"),
    "scan.active.lmdb": Source("P3", _FEW, "LMDB", "ratio"),
    "scan.active.rocksdb": Source("P3", _FEW, "RocksDB", "ratio"),
    "scan.active.parquet": Source("P3", _FEW, "Parquet", "ratio"),
    **{f"scan.{codec}": Source("P3", f"scan, {codec},*") for codec in ("gzip", "zstd", "snappy", "lz4")},
    **{f"scan.{codec}.of_bare": Source("P3", f"scan, {codec},*", "", "ratio") for codec in ("gzip", "zstd", "snappy", "lz4")},
    "records.rate": Source("P4", _RECORDS),
    "records.aiokafka": Source("P4", _RECORDS, "aiokafka", "ratio"),
    "records.kafka_python": Source("P4", _RECORDS, "kafka-python", "ratio"),
    "lookup.mapped": Source("P5", "read(random offset), mapped, p50"),
    "lookup.active": Source("P5", "read(random offset), active*p50"),
    "lookup.sqlite": Source("P5", "read(random offset), mapped, p50", "SQLite", "rival_measured"),
    "lookup.lmdb": Source("P5", "read(random offset), mapped, p50", "LMDB", "rival_measured"),
    "lookup.rocksdb": Source("P5", "read(random offset), mapped, p50", "RocksDB", "rival_measured"),
    "lookup.of_sqlite": Source("P5", "read(random offset), mapped, p50", "SQLite", "ratio"),
    "lookup.of_lmdb": Source("P5", "read(random offset), mapped, p50", "LMDB", "ratio"),
    "times": Source("P6", "offset_for_timestamp*p50"),
    **{
        f"growth.{what}.{name.replace(' ', '').lower()}": Source("growth", f"{work} {name} *")
        for what, work in _GROWN
        for name in _SIZES
    },
    "times.sqlite": Source("P6", "offset_for_timestamp*p50", "SQLite", "rival_measured"),
    "durable.one": Source("P7", _ONE),
    "durable.one.of_bare": Source("P7", _ONE, "bare pwrite and fdatasync (", "ratio"),
    "durable.one.sqlite": Source("P7", _ONE, "SQLite", "ratio"),
    "durable.threads": Source("P7", _THREADS),
    "durable.thousand": Source("P7", _THOUSAND),
    "durable.thousand.of_bare": Source("P7", _THOUSAND, "bare pwrite and fdatasync (", "ratio"),
    "opening.clean": Source("P8", "open a cleanly closed partition of *, mode='rw'*"),
    "opening.recover": Source("P8", "recover an active segment of *, its writer killed"),
    "compaction": Source("P9", "compact *half of it superseded"),
    "compaction.of_copy": Source("P9", "compact *half of it superseded", "", "ratio"),
    "offsets.commit": Source("P10", "commit of one offset"),
    "offsets.commit.of_sqlite": Source("P10", "commit of one offset", "SQLite", "ratio"),
    "offsets.load": Source("P10", "load of 1,000,000 commits*"),
    "spark.connector": Source("P11", _SPARK, "Kafka connector", "ratio"),
    "notice": Source("P13", _NOTICE),
    "kafka.send": Source("Kafka", "producer.send*", "", "ratio"),
    "kafka.poll": Source("Kafka", "consumer.poll, *", "", "ratio"),
    "kafka.poll_arrow": Source("Kafka", "consumer.poll_arrow*", "", "ratio"),
    "kafka.columns": Source("Kafka", "append_arrow*", "", "ratio"),
    "kafka.objects": Source("Kafka", "append_many*", "", "ratio"),
    "kafka.scan": Source("Kafka", "scan*", "", "ratio"),
    "kafka.records": Source("Kafka", "for record in log.records()*", "", "ratio"),
    "partitions": Source("P14", "10,000 partitions opened, mode='rw': peak *"),
    "spark.rate": Source("P11", _SPARK),
    "spark.of_memory": Source("P11", _SPARK, "from memory", "ratio"),
    "spark.parquet": Source("P11", _SPARK, "Parquet", "rival_measured"),
    "spark.of_parquet": Source("P11", _SPARK, "Parquet", "ratio"),
    "startup.import": Source("P12", "import pylog*"),
    "startup.append": Source("P12", "first append and close, new process, kernels cached"),
    "startup.scan": Source("P12", "first Arrow batch of a scan, new process, kernels cached"),
    "startup.append.cold": Source("P12", "first append and close, new process, NUMBA_CACHE_DIR empty"),
    "startup.scan.cold": Source("P12", "first Arrow batch of a scan, new process, NUMBA_CACHE_DIR empty"),
    "memory.scan": Source("P14", "scan of *uncompressed*"),
}
