"""One task of a read, without Spark running: the batches' exact schema, their size, and what happens when files go away."""

from __future__ import annotations

import errno
import logging
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

import pylog
from pylog.config import Durability
from pylog.errors import (
    CorruptionError,
    InvalidArgumentError,
    InvalidRecordError,
    NotALogDirectoryError,
    OffsetOutOfRangeError,
    StorageFailedError,
    UnknownTopicOrPartitionError,
)
from pylog.log.reading.queries import Queries
from pylog.spark.options import COLUMNS, HEADERS, ScanOptions
from pylog.spark.planner import LogSlice
from pylog.spark.reader import REOPENINGS, read_slice
from pylog.spark.schema import arrow_schema, check_schema, spark_schema

ALL = (*COLUMNS, HEADERS)
TIME = 1_700_000_000_000


def options(*columns: str, fail: bool = True, isolation: str = "read_uncommitted") -> ScanOptions:
    return ScanOptions(columns or ALL, isolation, True, fail)


def read(part: LogSlice, given: ScanOptions | None = None) -> pa.Table:
    return pa.Table.from_batches(read_slice(part, given or options()), arrow_schema((given or options()).columns))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """1,000 records in some 20 segments: no key, no value, no headers and one with more than one value each now and then."""
    path = tmp_path / "shop"
    with pylog.open(path) as store:
        store.create_topic("orders", segment_bytes=2000, index_interval_bytes=0)
        for start in range(0, 1000, 10):
            rows = range(start, start + 10)
            store.log("orders").append_many([(key(row), value(row), headers(row), TIME + row) for row in rows])
    return path


def key(row: int) -> bytes | None:
    return None if row % 5 == 0 else b"" if row % 5 == 1 else b"key %d" % row


def value(row: int) -> bytes | None:
    return None if row % 7 == 0 else b"" if row % 7 == 1 else b"value %d" % row


def headers(row: int) -> list[tuple[str, bytes | None]]:
    return [("h\u00e9", b"1"), ("h\u00e9", None)] if row % 3 == 0 else []


def segments(path: Path) -> list[Path]:
    return sorted((path / "orders-0").glob("*.log"))


def remove(segment: Path) -> None:
    for file in segment.parent.glob(segment.stem + "*"):
        file.unlink()


# ---- to Spark ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [ALL, COLUMNS, ("timestampType", "headers"), ("topic",), ("value", "key")])
def test_the_schema_is_the_one_that_spark_wants(shop: Path, columns: tuple[str, ...]):
    (batch,) = read_slice(LogSlice(str(shop), "orders", 0, 5, 25), options(*columns))
    assert batch.schema.equals(to_arrow_schema(spark_schema(columns), timezone="UTC"), check_metadata=True)
    assert batch.num_rows == 20
    batch.validate(full=True)


def test_every_column_is_what_was_written(shop: Path):
    rows = read(LogSlice(str(shop), "orders", 0, 303, 950)).to_pydict()
    wanted = range(303, 950)
    assert rows["offset"] == list(wanted)
    assert rows["key"] == [key(row) for row in wanted]
    assert rows["value"] == [value(row) for row in wanted]
    assert rows["headers"] == [[{"key": k, "value": v} for k, v in headers(row)] or None for row in wanted]
    assert [stamp.timestamp() for stamp in rows["timestamp"]] == [(TIME + row) / 1000 for row in wanted]
    assert set(rows["timestampType"]) == {0}
    assert (set(rows["topic"]), set(rows["partition"])) == ({"orders"}, {0})


def test_batches_are_bounded_in_rows_and_in_bytes(tmp_path: Path):
    with pylog.open(tmp_path / "store", durability=Durability.OS) as store:
        store.create_topic("rows")
        store.log("rows").append_arrow(pa.table({"value": pa.repeat(pa.scalar(b"x"), 200_000)}))
        store.create_topic("bytes")
        store.log("bytes").append_arrow(pa.table({"value": pa.repeat(pa.scalar(b"x" * 10_000), 10_000)}))
    sizes = [batch.num_rows for batch in read_slice(LogSlice(str(tmp_path / "store"), "rows", 0, 0, 200_000), options())]
    assert sum(sizes) == 200_000
    assert max(sizes) <= 65_536
    before = pa.total_allocated_bytes()
    held = largest = 0
    for batch in read_slice(LogSlice(str(tmp_path / "store"), "bytes", 0, 0, 10_000), options()):
        largest = max(largest, batch.nbytes)
        held = max(held, pa.total_allocated_bytes() - before)
    assert largest <= 20 << 20
    assert held <= 48 << 20  # of 100 MB


def test_a_time_that_spark_cannot_hold_is_an_error_that_says_which_record(tmp_path: Path):
    with pylog.open(tmp_path / "store") as store:
        store.create_topic("orders", message_timestamp_after_max_ms=2**63 - 1)
        store.log("orders").append_many([(None, b"", None, 0), (None, b"", None, 2**63 - 1)])
    part = LogSlice(str(tmp_path / "store"), "orders", 0, 0, 2)
    with pytest.raises(InvalidRecordError, match="at offset 1 is later than Spark"):
        read(part)
    assert read(part, options("offset")).num_rows == 2


def test_another_schema_than_the_sources_is_refused():
    check_schema(spark_schema(["value"]), ["value"])
    with pytest.raises(InvalidArgumentError, match="option `columns`"):
        check_schema(spark_schema(["value"]), ["value", "key"])
    with pytest.raises(InvalidArgumentError):
        check_schema(spark_schema(["key", "value"]), ["value", "key"])


# ---- files that go away --------------------------------------------------------------------------------------------------


def test_a_machine_without_the_directory_names_itself_and_the_remedy(shop: Path):
    shutil.rmtree(shop)
    with pytest.raises(NotALogDirectoryError) as caught:
        read(LogSlice(str(shop), "orders", 0, 0, 10))
    assert socket.gethostname() in str(caught.value)
    assert str(shop) in str(caught.value)
    assert "same path" in str(caught.value)
    assert caught.value.path == str(shop)


@pytest.mark.parametrize("gone", ["partition", "topic"])
def test_a_partition_that_was_deleted_is_an_error_or_a_warning(shop: Path, gone: str, caplog: pytest.LogCaptureFixture):
    if gone == "topic":
        with pylog.open(shop) as store:
            store.create_topic("other")
            store.delete_topic("orders")
    part = LogSlice(str(shop), "orders", 1 if gone == "partition" else 0, 0, 10)
    with pytest.raises(UnknownTopicOrPartitionError, match=f"{socket.gethostname()} does not find {part.topic}-{part.partition}"):
        read(part)
    with caplog.at_level(logging.WARNING):
        assert read(part, options(fail=False)).num_rows == 0
    assert "does not find" in caplog.text


def test_records_that_retention_removed_before_the_task_began_are_an_error_or_a_warning(
    shop: Path, caplog: pytest.LogCaptureFixture
):
    first, second, third, *_ = segments(shop)
    remove(first)
    remove(second)
    start = int(third.stem)
    with pytest.raises(OffsetOutOfRangeError, match=rf"offsets 5 to {start} \(exclusive\) of orders-0 were deleted") as caught:
        read(LogSlice(str(shop), "orders", 0, 5, 1000))
    assert caught.value.offset == 5
    with caplog.at_level(logging.WARNING):
        found = read(LogSlice(str(shop), "orders", 0, 5, 1000), options("offset", fail=False))
    assert found.column("offset").to_pylist() == list(range(start, 1000))
    assert f"offsets 5 to {start}" in caplog.text


def test_a_slice_that_is_gone_altogether_is_an_error_or_empty(shop: Path):
    first, *_ = segments(shop)
    remove(first)
    part = LogSlice(str(shop), "orders", 0, 0, 5)
    with pytest.raises(OffsetOutOfRangeError, match="offsets 0 to 5"):
        read(part)
    assert read(part, options(fail=False)).num_rows == 0


def test_a_log_that_has_become_shorter_is_an_error_or_a_warning(shop: Path, caplog: pytest.LogCaptureFixture):
    last = segments(shop)[-1]
    remove(last)
    end = int(last.stem)
    with pytest.raises(OffsetOutOfRangeError, match=rf"offsets {end} to 1000 \(exclusive\) of orders-0 were deleted"):
        read(LogSlice(str(shop), "orders", 0, 0, 1000))
    found = read(LogSlice(str(shop), "orders", 0, 0, 1000), options("offset", fail=False))
    assert found.column("offset").to_pylist() == list(range(end))


@pytest.fixture
def losing_files(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Small batches, and a way to change files after the first one: the scan then finds the next file deleted, once."""
    monkeypatch.setattr("pylog.limits.SCAN_ROWS", 64)
    scan = Queries.scan

    def lose(change: Callable[[], None]) -> None:
        changes = [change]

        def losing(self: Queries, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
            for batch in scan(self, *arguments, **options):
                yield batch
                if changes:
                    changes.pop()()
                    raise OffsetOutOfRangeError("a file was removed while it was read")

        monkeypatch.setattr(Queries, "scan", losing)

    return lose


LosingFiles = Callable[[Callable[[], None]], None]
SEEN = 60  # rows of the first Arrow batch: as many whole batches as fit


def test_retention_under_a_running_scan_is_an_error(shop: Path, losing_files: LosingFiles):
    losing_files(lambda: [remove(segment) for segment in segments(shop)[:10]])
    with pytest.raises(OffsetOutOfRangeError, match=rf"offsets {SEEN} to [0-9]+ \(exclusive\) of orders-0 were deleted since"):
        read(LogSlice(str(shop), "orders", 0, 0, 1000))


def test_retention_under_a_running_scan_can_be_a_warning_and_nothing_comes_twice(
    shop: Path, losing_files: LosingFiles, caplog: pytest.LogCaptureFixture
):
    start = int(segments(shop)[10].stem)
    losing_files(lambda: [remove(segment) for segment in segments(shop)[:10]])
    with caplog.at_level(logging.WARNING):
        found = read(LogSlice(str(shop), "orders", 0, 0, 1000), options("offset", fail=False))
    assert found.column("offset").to_pylist() == [*range(SEEN), *range(start, 1000)]
    assert f"offsets {SEEN} to {start}" in caplog.text


def test_a_compaction_under_a_running_scan_loses_nothing_that_it_kept(shop: Path, losing_files: LosingFiles):
    """Kafka's cleaner merges segments: files vanish and their records are in the one before."""
    losing_files(lambda: merge(*segments(shop)[3:9]))
    found = read(LogSlice(str(shop), "orders", 0, 0, 1000), options("offset"))
    assert found.column("offset").to_pylist() == list(range(1000))


def test_files_that_keep_vanishing_end_in_an_error(shop: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []

    def vanishing(self: Queries, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        calls.append(1)
        raise StorageFailedError("cannot open it: no such file", errno=errno.ENOENT)
        yield

    monkeypatch.setattr(Queries, "scan", vanishing)
    with pytest.raises(StorageFailedError, match="no such file"):
        read(LogSlice(str(shop), "orders", 0, 0, 1000))
    assert len(calls) == REOPENINGS + 1


def merge(first: Path, *others: Path) -> None:
    swap = first.with_suffix(".swap")
    swap.write_bytes(b"".join(segment.read_bytes() for segment in (first, *others)))
    for segment in (first, *others):
        remove_indexes_of(segment)
    swap.rename(first)
    for segment in others:
        segment.unlink()


def remove_indexes_of(segment: Path) -> None:
    for suffix in (".index", ".timeindex", ".seal"):
        segment.with_suffix(suffix).unlink(missing_ok=True)


# ---- damage --------------------------------------------------------------------------------------------------------------


def test_a_corrupt_batch_keeps_its_path_position_and_offset(shop: Path):
    segment = segments(shop)[2]
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)
    with pytest.raises(CorruptionError) as caught:
        read(LogSlice(str(shop), "orders", 0, 0, 1000))
    error = caught.value
    assert (error.path, error.position, error.offset) == (str(segment), 0, int(segment.stem))
    assert str(segment) in str(error)
    assert any("was reading orders-0, offsets 0 to 1000" in note for note in error.__notes__)


# ---- what a new worker loads ---------------------------------------------------------------------------------------------


def test_a_new_worker_gets_its_first_rows_without_pandas(shop: Path):
    program = """
import sys
from pylog.spark.options import COLUMNS, ScanOptions
from pylog.spark.planner import LogSlice
from pylog.spark.reader import read_slice

rows = next(read_slice(LogSlice(sys.argv[1], "orders", 0, 0, 1000), ScanOptions(COLUMNS, "read_uncommitted", True, True)))
print(rows.num_rows, "pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program, str(shop)], check=True, capture_output=True, text=True)
    count, pandas = done.stdout.split()
    assert (int(count) > 0, pandas) == (True, "False")
