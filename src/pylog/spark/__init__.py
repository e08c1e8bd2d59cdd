"""The Spark data source: reads topics from their files, in parallel, without a broker.

    spark.read.format("pylog").option("path", "shop").option("subscribe", "orders").load()

Nothing need be registered. `register(spark)` makes the same source read only what a query's predicates can concern.
Importing this package imports pyspark; `import pylog` does not import this package.
"""

from pylog.spark.registration import register
from pylog.spark.source import PylogDataSource

__all__ = ["PylogDataSource", "register"]
