"""The Spark data source: reads topics from their files, in parallel, without a broker.

    spark.read.format("pylog").option("path", "shop").option("subscribe", "orders").load()

Nothing need be registered. `register(spark)` makes the same source read only what a query's predicates can concern.
Importing this package imports pyspark; `import pylog` does not import this package.
"""

from pylog.extras import install_command

try:
    from pylog.spark.registration import register
    from pylog.spark.source import PylogDataSource
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "pyspark":
        raise
    message = f"pylog.spark requires PySpark 4.1 or newer; install it: {install_command('spark')}"
    raise ModuleNotFoundError(message, name=error.name) from error

__all__ = ["PylogDataSource", "register"]
