"""A Spark driver that copies one topic to another as a stream: what `spark_kills` kills. Says "ready" when its query runs.

python spark_driver.py <store> <checkpoint> <offsets a micro-batch, 0: all there are, and then end>
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from support.campaign.spark_copy import begin_copy

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main(store: str, checkpoint: str, limit: int) -> None:
    """Copies until it is killed, or (without a limit) until everything is copied."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        options = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": f"{QUICK} -Dderby.system.home={checkpoint}",
            "spark.sql.warehouse.dir": str(Path(checkpoint) / "warehouse"),
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
        }
        spark = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    query = begin_copy(spark, store, checkpoint, limit)
    print("ready", flush=True)  # noqa: T201 - the campaign waits for it
    query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
