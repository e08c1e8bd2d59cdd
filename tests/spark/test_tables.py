"""Where rows of SQL tables are written, without a Spark: a table's own options count for `INSERT INTO` it, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StructType

import pylog
from pylog.errors import InvalidArgumentError
from pylog.spark.options import COLUMNS
from pylog.spark.schema import spark_schema
from pylog.spark.source import PylogDataSource
from pylog.spark.tables import carrying, write_from

TABLE = carrying(spark_schema(COLUMNS), {"path": "/shop", "subscribe": "orders"})
PART = StructType([field for field in TABLE.fields if field.name in {"key", "value"}])


def test_an_insert_goes_to_the_tables_topic_and_takes_what_its_with_clause_says():
    assert write_from(TABLE, {}) == ({"path": "/shop", "topic": "orders"}, True)
    assert write_from(TABLE, {"compression": "zstd"}) == ({"path": "/shop", "topic": "orders", "compression": "zstd"}, True)


@pytest.mark.parametrize("schema", [TABLE, PART])
@pytest.mark.parametrize("options", [{"path": "/shop"}, {"PATH": "/other"}, {"path": "/shop", "topic": "archive"}])
def test_a_frame_of_a_table_that_is_written_with_a_path_takes_nothing_from_the_table(schema: StructType, options: dict[str, str]):
    assert write_from(schema, options) == (options, False)


def test_a_part_of_a_table_that_is_written_without_a_path_is_refused():
    with pytest.raises(InvalidArgumentError, match="the rows come from a table"):
        write_from(PART, {"topic": "archive"})


def test_a_stream_from_a_table_never_goes_where_the_table_is_unless_it_says_so(tmp_path: Path):
    pylog.open(tmp_path).close()
    schema = carrying(spark_schema(COLUMNS), {"path": str(tmp_path), "subscribe": "orders"})
    with pytest.raises(InvalidArgumentError, match="'path' is required"):
        PylogDataSource({}).streamWriter(schema, overwrite=False)
    writer = PylogDataSource({"path": str(tmp_path)}).streamWriter(schema, overwrite=False)
    assert writer._options.topic is None
