"""The Spark data source: reads topics from their files, in parallel, without a broker.

    spark.read.format("pylog").option("path", "shop").option("subscribe", "orders").load()

Nothing need be registered. Importing this package imports pyspark; `import pylog` does not import this package.
"""

from pylog.spark.source import PylogDataSource

__all__ = ["PylogDataSource"]
