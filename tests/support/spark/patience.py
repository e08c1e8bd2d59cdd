"""Waiting for Spark's streams on a machine that is busy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

STARTS = 5
SECONDS = 300
_TOO_SLOW = "failed to connect back"  # Spark gives a stream's Python process ten seconds to start, and no setting changes that


def waited_for(start: Callable[[], StreamingQuery], wait: Callable[[StreamingQuery], object]) -> StreamingQuery:
    """Starts a query and waits, and does so again if its Python process was too slow to start: nothing has been read then.

    Args:
        start: the query.
        wait: what to do with it.
    """
    from pyspark.errors import StreamingQueryException

    for _ in range(STARTS - 1):
        query = start()
        try:
            wait(query)
        except StreamingQueryException as error:
            if _TOO_SLOW not in str(error):
                raise
        else:
            return query
    query = start()
    wait(query)
    return query


def ended(query: StreamingQuery) -> None:
    """Waits for a query that ends by itself."""
    assert query.awaitTermination(SECONDS), "the query has not ended"
