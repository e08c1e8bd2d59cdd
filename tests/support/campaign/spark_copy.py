"""What the drivers of the campaigns with Spark run: a stream that copies one topic to another, each row exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def begin_copy(spark: Any, store: str, checkpoint: str, limit: int) -> Any:
    """The running query.

    Args:
        spark: the session.
        store: has the topics `source` and `copy`.
        checkpoint: of the query.
        limit: offsets a micro-batch; 0 is all there are, and then the end.
    """
    limits = {"maxOffsetsPerTrigger": str(limit)} if limit else {}
    rows = spark.readStream.format("pylog").options(path=store, subscribe="source", startingOffsets="earliest", **limits)
    writer = rows.load().select("key", "value", "timestamp").writeStream.format("pylog")
    writer = writer.options(path=store, topic="copy", checkpointLocation=checkpoint)
    return writer.start() if limit else writer.trigger(availableNow=True).start()


def copy(spark: Any, root: str, limit: int) -> None:
    """A job for `Cluster.run`: copies until there is a file `enough` in the root; without a limit until everything is copied."""
    query = begin_copy(spark, f"{root}/store", f"{root}/checkpoint", limit)
    while not query.awaitTermination(1):
        if limit and Path(root, "enough").exists():
            query.stop()
