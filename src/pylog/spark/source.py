"""The data source `pylog` as Spark sees it: `spark.read.format("pylog")`.

Spark makes a `PylogDataSource` from the options on the driver, asks it for the schema when a query is analysed, and for a
reader when it is planned. The reader plans on the driver and then travels to the executors, where it reads slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pylog.errors import InvalidArgumentError, PylogError
from pylog.spark.options import ReadOptions, any_options, read_options, stream_options
from pylog.spark.partitions import check_paths
from pylog.spark.planner import LogSlice, plan
from pylog.spark.schema import check_schema, spark_schema
from pylog.spark.tables import carried, carrying, table_options, write_from

if TYPE_CHECKING:
    import pyarrow as pa

    from pylog.spark.writer import PylogStreamWriter, PylogWriter


class PylogDataSource(DataSource):
    """Topics of a Kafka log directory as a table. The columns and options are those of Spark's Kafka connector.

    Spark finds it by itself, through the package `pyspark_pylog` that is installed with pylog.

    >>> spark.read.format("pylog").option("path", "shop").option("subscribe", "orders").load()  # doctest: +SKIP
    DataFrame[key: binary, value: binary, topic: string, partition: int, offset: bigint, timestamp: timestamp, ...]
    """

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format(…)` and `USING …`.

        >>> PylogDataSource.name()
        'pylog'
        """
        return "pylog"

    def schema(self) -> StructType:
        """Returns the columns that the options select. Checks the options, and that the directories exist.

        Raises:
            InvalidArgumentError: an option is unknown, missing or wrong.
            NotALogDirectoryError: a path does not exist, or is no directory.

        Cost: one check of each path. No log is read.

        >>> PylogDataSource({"path": ".", "subscribe": "orders", "columns": "value"}).schema()  # doctest: +SKIP
        StructType([StructField('value', BinaryType(), True)])
        """
        of_table = table_options(self.options)
        options = any_options(self.options if of_table is None else of_table)
        check_paths(options.paths, options.scan.access)
        schema = spark_schema(options.scan.columns)
        if of_table is None:
            return schema
        absolute = {"path": ",".join(options.paths)} if "path" in of_table else {}  # a broker's tier may be read without
        return carrying(schema, of_table | absolute)

    def reader(self, schema: StructType) -> PylogReader:
        """Returns a reader for one batch query.

        Args:
            schema: the schema from `schema()`, or the user's.

        Raises:
            InvalidArgumentError: an option is unknown, missing or wrong, or the schema is not the source's.
        """
        return PylogReader(self._read_options(schema))

    def _read_options(self, schema: StructType) -> ReadOptions:
        options = read_options(carried(schema) | dict(self.options))
        check_schema(schema, options.scan.columns)
        return options

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns a reader for one streaming query.

        Spark cannot pass on an error from this call. So with a wrong option or schema, it returns a reader that raises the error
        as soon as the query starts.

        Args:
            schema: the schema from `schema()`, or the user's.

        Raises:
            InvalidArgumentError: PySpark is too old for streams.
        """
        try:
            from pylog.spark.stream import PylogStreamReader, RefusedStreamReader
        except ImportError as error:
            raise InvalidArgumentError(
                f"streaming reads need PySpark 4.2 or newer, and this is {pyspark.__version__}; batch reads work with it"
            ) from error
        try:
            options = stream_options(carried(schema) | dict(self.options))
            check_schema(schema, options.scan.columns)
        except PylogError as error:
            return RefusedStreamReader(error)
        return PylogStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> PylogWriter:
        """Returns a writer for one batch job.

        Args:
            schema: the schema of the rows.
            overwrite: true to replace existing records, which is refused.

        Raises:
            InvalidArgumentError: an option is unknown, missing or wrong, the rows cannot be records, or the mode is not append.
            NotALogDirectoryError: the store does not exist, or cannot be written. UnknownTopicOrPartitionError: there is no such
                topic, and `createTopics` is not true.
        """
        from pylog.spark.writer import batch_writer

        return batch_writer(write_from(schema, self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> PylogStreamWriter:
        """Returns a writer for a streaming query; arguments and errors as those of `writer`.

        Options in the rows' columns belong to the table that the rows were read from, even with `toTable`, so they are ignored.
        """
        from pylog.spark.writer import stream_writer

        return stream_writer(dict(self.options), schema, overwrite=overwrite)


class PylogReader(DataSourceReader):
    """Plans a batch read on the driver, and reads its slices on the executors.

    Args:
        options: the read's options.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options: ReadOptions | None = options
        self._scan = options.scan

    def __getstate__(self) -> dict[str, object]:
        """Returns the state that is sent to executors with every task, without the offsets of thousands of partitions."""
        return {"_options": None, "_scan": self._scan}

    def partitions(self) -> list[InputPartition]:
        """Returns the tasks' slices. Raises as `pylog.spark.planner.plan`."""
        assert self._options is not None, "partitions are planned on the driver"
        return list(plan(self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the batches of one slice. Raises as `pylog.spark.reader.read_slice`.

        Args:
            partition: a slice, or Spark's placeholder in an empty plan.
        """
        if not isinstance(partition, LogSlice):
            return iter(())
        from pylog.spark.reader import read_slice

        return read_slice(partition, self._scan)
