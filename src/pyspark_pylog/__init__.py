"""Makes Spark know the data source `pylog`: it looks through packages whose names begin with `pyspark_` for a `DefaultSource`."""

from pylog.spark import PylogDataSource as DefaultSource

__all__ = ["DefaultSource"]
