"""A topic in one line: as a table, as a stream, and in the hands of pandas, polars and DuckDB."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

import pylog
from pylog.testing import MemoryFileSystem
from support.golden.data import case

ROWS = 1000


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Topic `orders` with 1,000 records in three partitions, of several batches and segments each; the third is empty."""
    with pylog.open(tmp_path / "shop") as store:
        store.create_topic("orders", partition_count=3, segment_bytes=8192, max_message_bytes=4096)
        for number in (0, 1):
            for start in range(number, ROWS, 100):
                items = [(b"k%d" % (at % 7), b"v%d" % at) for at in range(start, min(start + 100, ROWS), 2)]
                store.log("orders", number).append_many(items)
    return tmp_path / "shop"


def values(table: pa.Table) -> list[bytes]:
    return sorted(table.column("value").to_pylist(), key=lambda value: int(value[1:]))


def test_a_table_holds_every_partition_and_says_which(shop: Path) -> None:
    table = pylog.read_table(shop, "orders")
    assert table.column_names == ["partition", "offset", "timestamp", "key", "value"]
    assert values(table) == [b"v%d" % at for at in range(ROWS)]
    assert table.column("partition").to_pylist() == [0] * 500 + [1] * 500
    assert table.column("offset").to_pylist() == [*range(500), *range(500)]


def test_a_part_of_one_partition_is_what_the_log_scans(shop: Path) -> None:
    columns = ["value", "offset", "headers"]
    table = pylog.read_table(shop, "orders", 1, start=120, end=300, columns=columns)
    with pylog.open(shop, "r") as store:
        assert table == pa.Table.from_batches(store.log("orders", 1).scan(120, 300, columns=columns))


def test_committed_reading_hides_what_was_aborted() -> None:
    path = case("4.3.0", "txn").log_directory
    hidden = pylog.read_table(path, "txn", isolation_level="read_committed").num_rows
    assert 0 < hidden < pylog.read_table(path, "txn").num_rows


def test_only_the_partition_column_can_be_asked_for(shop: Path) -> None:
    assert pylog.read_table(shop, "orders", columns=["partition"]).column_names == ["partition"]


def test_a_table_without_columns_keeps_its_number_of_rows(shop: Path) -> None:
    table = pylog.read_table(shop, "orders", columns=[])
    assert (table.num_rows, table.column_names) == (ROWS, [])
    assert pylog.read_table(shop, "orders", 1, start=120, end=300, columns=()).num_rows == 180
    assert sum(batch.num_rows for batch in pylog.read_batches(shop, "orders", columns=[])) == ROWS
    assert pylog.read_table(shop, "orders", 2, columns=[]).num_rows == 0
    committed = {"columns": [], "isolation_level": "read_committed"}
    path = case("4.3.0", "txn").log_directory
    assert (
        pylog.read_table(path, "txn", **committed).num_rows
        == pylog.read_table(path, "txn", isolation_level="read_committed").num_rows
    )


def test_an_empty_topic_is_a_table_without_rows(shop: Path) -> None:
    table = pylog.read_table(shop, "orders", 2)
    assert table.num_rows == 0
    assert table.schema.names == ["partition", "offset", "timestamp", "key", "value"]


def test_mistakes_are_reported_at_once(shop: Path) -> None:
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        pylog.read_batches(shop, "other")
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        pylog.read_batches(shop, "orders", 3)
    with pytest.raises(pylog.NotALogDirectoryError):
        pylog.read_batches(shop / "none", "orders")
    with pytest.raises(pylog.OffsetOutOfRangeError):
        pylog.read_batches(shop, "orders", 0, start=501)
    with pytest.raises(pylog.InvalidArgumentError, match="give the partition too"):
        pylog.read_batches(shop, "orders", start=0)
    for columns in (["nothing"], ["partition", "partition"], "offset"):
        with pytest.raises(pylog.InvalidArgumentError, match="columns"):
            pylog.read_batches(shop, "orders", columns=columns)


@pytest.mark.damaged("a value is altered")
def test_damage_is_an_error_after_the_records_before_it(shop: Path) -> None:
    path = shop / "orders-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    at = data.index(b"v200")
    data[at] ^= 1
    path.write_bytes(data)
    reader = pylog.read_batches(shop, "orders", 0)
    got = reader.read_next_batch()
    assert got.num_rows == 100
    with pytest.raises(pylog.CorruptionError):
        reader.read_all()


@pytest.mark.slow
def test_an_abandoned_stream_leaves_no_file_open(shop: Path) -> None:
    gc.collect()
    before = psutil.Process().num_fds()
    begun, untouched = pylog.read_batches(shop, "orders"), pylog.read_batches(shop, "orders")
    begun.read_next_batch()
    del begun, untouched
    gc.collect()
    assert psutil.Process().num_fds() == before


def test_pandas_takes_a_table(shop: Path) -> None:
    frame = pylog.read_table(shop, "orders").to_pandas()
    assert frame.groupby("partition").size().to_dict() == {0: 500, 1: 500}
    assert frame["timestamp"].dt.tz is not None


@pytest.mark.slow
def test_polars_takes_a_table(shop: Path) -> None:
    import polars as pl

    frame = pl.from_arrow(pylog.read_table(shop, "orders"))
    assert frame.group_by("partition").len().sort("partition").rows() == [(0, 500), (1, 500)]


def test_duckdb_reads_a_stream(shop: Path) -> None:
    import duckdb

    reader = pylog.read_batches(shop, "orders", columns=["partition", "key"])
    found = duckdb.from_arrow(reader).aggregate("partition, count(DISTINCT key) AS keys").order("partition").fetchall()
    assert found == [(0, 7), (1, 7)]


@pytest.mark.pair("broker's directory", "scan and follow")
@pytest.mark.damaged("two partitions are another broker's")
def test_the_partitions_that_are_there_are_read_whatever_their_numbers(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t", partition_count=4)
        for number in range(4):
            store.log("t", number).append(b"p%d" % number)
    for path in [path for path in tmp_path.iterdir() if path.name in ("t-0", "t-2", "pylog.json") or "checkpoint" in path.name]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    table = pylog.read_table(tmp_path, "t")
    assert list(zip(table["partition"].to_pylist(), table["value"].to_pylist(), strict=True)) == [(1, b"p1"), (3, b"p3")]


def in_memory(*values: bytes | None) -> MemoryFileSystem:
    """A file system with a store `/s`, whose topic `orders` has these values."""
    fs = MemoryFileSystem()
    with pylog.open("/s", fs=fs) as store:
        store.create_topic("orders")
        store.log("orders").append_many([*values])
    return fs


def test_a_table_and_its_batches_are_read_from_another_file_system() -> None:
    fs = in_memory(b"paid")
    assert pylog.read_table("/s", "orders", fs=fs)["value"].to_pylist() == [b"paid"]
    assert pylog.read_batches("/s", "orders", fs=fs).read_all().num_rows == 1


def test_values_are_deserialized_into_a_column_of_their_type_and_null_stays_null() -> None:
    fs = in_memory(b'{"cents": 5}', None, b'{"cents": 7}')
    table = pylog.read_table("/s", "orders", columns=["value", "offset"], deserialize=json.loads, fs=fs)
    assert table.schema.field("value").type == pa.struct([("cents", pa.int64())])
    assert table.to_pylist() == [
        {"value": {"cents": 5}, "offset": 0},
        {"value": None, "offset": 1},
        {"value": {"cents": 7}, "offset": 2},
    ]
    assert pylog.read_table("/s", "orders", start=0, end=0, partition=0, deserialize=json.loads, fs=fs).num_rows == 0


def test_what_cannot_be_deserialized_is_refused_in_a_sentence() -> None:
    fs = in_memory(b"5", b'"five"')
    with pytest.raises(pylog.InvalidArgumentError, match="have no common Arrow type"):
        pylog.read_table("/s", "orders", deserialize=json.loads, fs=fs)
    with pytest.raises(pylog.InvalidArgumentError, match="'value', which is not in columns"):
        pylog.read_table("/s", "orders", columns=["key"], deserialize=json.loads, fs=fs)
    with pytest.raises(pylog.InvalidTypeError, match="deserialize=5 cannot be called"):
        pylog.read_table("/s", "orders", deserialize=5, fs=fs)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):  # its own error
        pylog.read_table("/s", "orders", deserialize=lambda value: len(value) // 0, fs=fs)
