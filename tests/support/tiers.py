"""The marks that a test gets from its file or its parameters: `slow`, `kafka`, `spark`, `servers`, and others.

`./dev test --fast` leaves all of them out. A folder tells which tool its tests need. `slow` is a list of files, and the
partitions that older brokers wrote: the fast tests read those of one version. Other slow tests have the mark themselves.

Of a test with many parameters the fast tests take two: the first one and another one from the second half. The mark
`sampled(every)` says that one of so many does. `./dev test` takes all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from support.long_files import LONGEST_FIRST

KAFKA: Final = ("tests/kafka/",)
SPARK: Final = ("tests/spark/",)
SERVERS: Final = ("tests/servers/",)
PROMETHEUS: Final = ("tests/prometheus/",)
BROWSER: Final = ("tests/browser/",)
RIVALS: Final = "tests/bench/test_rivals.py"  # imports pandas and four databases
SPARSE: Final = "tests/log/test_sparse_files.py"  # a file system in memory gives holes that are mapped and read their memory
DOCSTRINGS: Final = "tests/test_docstrings.py"  # imports every module and inspects every public name
EACH_STEP: Final = (  # a program runs once for each step at which it dies or a call fails
    "tests/transactions/test_faults.py",
    "tests/transactions/test_crashes.py",
    "tests/objects/test_tiering_kill.py",
    "tests/beside/test_close_at_each_line.py",
    "tests/beside/test_lock_files_removed_at_each_step.py",
)
EACH_CALL: Final = (  # every public call is tried in one way
    "tests/test_closed.py",
    "tests/test_wrong_types_of_coroutines.py",
    "tests/test_wrong_types_of_methods.py",
)
PROGRAMS: Final = (  # start interpreters, servers or other processes, or wait for time to pass
    "tests/beside/test_refreshes.py",
    "tests/compat/test_aio_fixture.py",
    "tests/compat/test_confluent_admin.py",
    "tests/compat/test_confluent_assignment.py",
    "tests/compat/test_confluent_events.py",
    "tests/compat/test_installing.py",
    "tests/compat/test_plugin.py",
    "tests/consumer/test_aio_loops_end.py",
    "tests/consumer/test_new_partitions.py",
    "tests/groups/test_hurried.py",
    "tests/monitoring/test_served.py",
    "tests/objects/test_kafka_tier.py",
    "tests/objects/test_remote_file.py",
    "tests/producer/test_topics_changed.py",
    "tests/test_warm.py",
    "tests/transactions/test_readers_beside.py",
    "tests/ui/test_beside.py",
    "tests/ui/test_locked.py",
    "tests/ui/test_uds.py",
)
ALONE: Final = (RIVALS, SPARSE, DOCSTRINGS)
SLOW: Final = ("tests/campaign/", "tests/support/campaign/", *ALONE, *EACH_STEP, *EACH_CALL, *PROGRAMS, *LONGEST_FIRST)
OLDER_BROKERS: Final = ("[2.8.2", "[3.9.1", "-2.8.2/", "-3.9.1/")  # in the parameters of a test
ALL_OF_THEM: Final = frozenset({"slow", "kafka", "spark", "servers", "prometheus", "browser"})
MOST: Final = 2  # parameters of a test that the fast tests take

_Item = TypeVar("_Item")


def marks_of(node: str) -> Iterator[str]:
    """Yields the marks of a test.

    Args:
        node: pytest's name of the test, from the root of the project on.

    >>> sorted(marks_of("tests/spark/test_cluster.py::test_a_cluster"))
    ['slow', 'spark']
    >>> list(marks_of("tests/log/test_rolling.py::test_a_roll"))
    []
    >>> list(marks_of("tests/log/test_golden.py::test_a_read[2.8.2/txn/txn-0]"))
    ['slow']
    """
    folders = (
        ("kafka", KAFKA),
        ("spark", SPARK),
        ("servers", SERVERS),
        ("prometheus", PROMETHEUS),
        ("browser", BROWSER),
        ("slow", SLOW),
    )
    for mark, prefixes in folders:
        if node.startswith(prefixes):
            yield mark
    if any(version in node for version in OLDER_BROKERS):
        yield "slow"


def is_fast(marks: Iterable[str]) -> bool:
    """Whether a test with these marks is one of the fast tests."""
    return ALL_OF_THEM.isdisjoint(marks)


def sample_of(items: Sequence[_Item], every: int = 1) -> list[_Item]:
    """Some of a test's parameters: the first one, and others spread over the rest.

    They are not at equal distances, which could be those at which a second parameter repeats.

    Args:
        items: all of them.
        every: one of so many is enough.

    >>> sample_of(range(3)), sample_of(range(12)), sample_of(range(100), every=50)
    ([0, 1], [0, 7], [0, 51])
    """
    kept = min(MOST, -(-len(items) // every))
    return [items[number * len(items) // kept + number % (len(items) // kept)] for number in range(kept)]


def is_left_out(file: str) -> bool:
    """Whether no test of a file, or of a folder, is fast, whatever marks its tests have themselves.

    Args:
        file: from the root of the project on.

    >>> is_left_out("tests/spark"), is_left_out("tests/kafka/test_harness.py"), is_left_out("tests/log")
    (True, True, False)
    """
    return f"{file}/".startswith((*KAFKA, *SPARK, *SERVERS, *PROMETHEUS, *BROWSER)) or f"{file}/".startswith(SLOW) or file in SLOW
