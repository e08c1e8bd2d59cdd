"""Runs in the environment of Spark's Kafka connector: for each line of its input the query once, and its seconds as a line."""

from __future__ import annotations

import sys
import time

from pyspark.sql import SparkSession


def main(bootstrap: str, jars: str) -> None:
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = SparkSession.builder.master("local[2]").appName("connector").config(map=settings).getOrCreate()
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": "events",
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
        "minPartitions": "4",
    }
    for _ in sys.stdin:
        frame = spark.read.format("kafka").options(**options).load().selectExpr("sum(length(value))")
        started = time.perf_counter()
        frame.collect()
        print(time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
