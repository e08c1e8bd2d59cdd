"""`register`: the data source with push-down, in the place of the one that Spark finds by itself.

Spark hands predicates to a Python data source only if `spark.sql.python.filterPushdown.enabled` is true, which it is not by
itself; and while it is false, Spark refuses every source that could take them. So there are two sources that differ in nothing
else: the plain one, and this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.types import StructType

from pylog.spark.options import ReadOptions
from pylog.spark.planner import plan
from pylog.spark.pushdown import NO_PRUNING, pruning
from pylog.spark.source import PylogDataSource, PylogReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Turns push-down on in a session: from now on `format("pylog")` reads only records that a query's predicates can match.

    Predicates on `topic`, `partition`, `offset` and `timestamp` (comparisons, `IN`, `LIKE 'a%'` …) decide which partitions are
    opened, and which ranges are read. The rows are the same as without.

    Args:
        spark: a session, also one of Spark Connect. Its setting `spark.sql.python.filterPushdown.enabled` becomes true, for all
            Python sources of the session.

    >>> register(spark)  # doctest: +SKIP
    >>> frame = spark.read.format("pylog").options(path="shop", subscribe="orders").load()  # doctest: +SKIP
    >>> frame.where("partition = 3 AND timestamp >= '2026-01-01'").count()  # doctest: +SKIP
    1234
    """
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(PushdownDataSource)


class PushdownDataSource(PylogDataSource):
    """`PylogDataSource`, with push-down in batch reads.

    >>> PushdownDataSource.name()
    'pylog'
    """

    def reader(self, schema: StructType) -> PushdownReader:
        """Returns a reader as `PylogDataSource` does.

        Args:
            schema: the schema from `schema()`, or the user's.
        """
        return PushdownReader(self._read_options(schema))


class PushdownReader(PylogReader):
    """`PylogReader`, with predicates taken before the read is planned.

    Args:
        options: the read's options.
    """

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._pruning = NO_PRUNING

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Takes predicates; see `pylog.spark.pushdown.pruning`.

        Args:
            filters: all of which must hold.

        Returns:
            Those of them that Spark must apply to the rows.
        """
        self._pruning, residual = pruning(filters)
        return residual

    def partitions(self) -> list[InputPartition]:
        """Returns the tasks' slices. Raises as `pylog.spark.planner.plan`."""
        assert self._options is not None, "partitions are planned on the driver"
        return list(plan(self._options, self._pruning))
