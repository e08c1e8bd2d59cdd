"""Drivers and executors of a stream that copies a topic are killed in the middle of micro-batches: the copy has each row once.

The moments are drawn at random; `support.campaign.spark_kills` and `spark_executor_kills` kill as many as one likes.
"""

from __future__ import annotations

import pytest

from support.campaign import spark_executor_kills, spark_kills
from support.campaign.processes import new_seed

pytestmark = pytest.mark.usefixtures("java")


@pytest.mark.pair("Spark", "crash", "second process")
@pytest.mark.pair("Spark", "aborted transactions")
def test_two_drivers_of_one_query_one_of_them_killed_copy_each_row_once() -> None:
    done = spark_kills.run_two(new_seed())
    assert done["moment"] in spark_kills.MOMENTS


@pytest.mark.pair("Spark", "crash")
def test_an_executor_that_is_killed_in_the_middle_of_a_micro_batch_leaves_each_row_once() -> None:
    done = spark_executor_kills.run(new_seed(), kills=1)
    assert done["kills"] == 1
