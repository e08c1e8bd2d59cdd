"""The marks that a test gets from its file or its parameters: `slow`, `kafka`, `spark`, `browser`.

`./dev test --fast` leaves all of them out. A folder tells which tool its tests need. `slow` is a list of files, and the
partitions that older brokers wrote: the fast tests read those of one version. Other slow tests have the mark themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from support.long_files import LONGEST_FIRST

KAFKA: Final = ("tests/kafka/",)
SPARK: Final = ("tests/spark/",)
BROWSER: Final[tuple[str, ...]] = ()
SLOW: Final = ("tests/campaign/", "tests/support/campaign/", *LONGEST_FIRST)
OLDER_BROKERS: Final = ("[2.8.2", "[3.9.1", "-2.8.2/", "-3.9.1/")  # in the parameters of a test
ALL_OF_THEM: Final = frozenset({"slow", "kafka", "spark", "browser"})


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
    for mark, prefixes in (("kafka", KAFKA), ("spark", SPARK), ("browser", BROWSER), ("slow", SLOW)):
        if node.startswith(prefixes):
            yield mark
    if any(version in node for version in OLDER_BROKERS):
        yield "slow"


def is_fast(marks: Iterable[str]) -> bool:
    """Whether a test with these marks is one of the fast tests."""
    return ALL_OF_THEM.isdisjoint(marks)


def is_left_out(file: str) -> bool:
    """Whether no test of a file, or of a folder, is fast, whatever marks its tests have themselves.

    Args:
        file: from the root of the project on.

    >>> is_left_out("tests/spark"), is_left_out("tests/kafka/test_harness.py"), is_left_out("tests/log")
    (True, True, False)
    """
    return f"{file}/".startswith((*KAFKA, *SPARK, *BROWSER)) or f"{file}/".startswith(SLOW) or file in SLOW
