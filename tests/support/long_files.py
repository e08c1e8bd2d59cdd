"""The test files that take longest, longest first: a worker that begins one of them last would leave the other one idle.

pytest-xdist takes the files with most tests first, which says little here: the cluster's five tests take two minutes.
"""

from __future__ import annotations

from typing import Final

LONGEST_FIRST: Final = (
    "tests/campaign/test_corruption.py",
    "tests/campaign/test_crash_states.py",
    "tests/campaign/test_crash_mutants.py",
    "tests/campaign/test_system_faults.py",
    "tests/spark/test_cluster.py",
    "tests/servers/test_servers.py",
    "tests/campaign/test_kill.py",
    "tests/spark/test_spark_write.py",
    "tests/campaign/test_hostile_bytes.py",
    "tests/campaign/test_faults.py",
    "tests/kafka/test_interop_way_back.py",
    "tests/spark/test_spark_docs.py",
    "tests/spark/test_spark_pushdown.py",
    "tests/test_docs.py",
    "tests/spark/test_cluster_stream.py",
    "tests/spark/test_connector_answers.py",
    "tests/kafka/test_interop_after_trimming.py",
    "tests/kafka/test_interop_after_compaction.py",
    "tests/kafka/test_interop_group_admin.py",
    "tests/kafka/test_interop_broker_reads.py",
    "tests/campaign/test_history.py",
    "tests/spark/test_spark_read.py",
    "tests/spark/test_spark_stream.py",
    "tests/kafka/test_harness.py",
    "tests/kafka/test_interop_repair.py",
)

# Of these some tests are fast. They are last in the alphabet, or have one long test.
ALSO_LONG: Final = (
    "tests/beside/test_matrix.py",
    "tests/campaign/test_lying_files.py",
    "tests/trust/test_growth.py",
    "tests/trust/test_mutants.py",
    "tests/log/test_descriptors.py",
)


def turn_of(file: str) -> int:
    """When a file has its turn, by its path from the root.

    >>> turn_of("tests/campaign/test_corruption.py") < turn_of("tests/test_api.py")
    True
    """
    first = (*LONGEST_FIRST, *ALSO_LONG)
    return first.index(file) if file in first else len(first)
