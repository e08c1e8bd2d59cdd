"""The marks that a test gets from its file: `slow`, `kafka`, `spark`, `browser`. `./dev test --fast` leaves all of them out.

The folder of a test tells which tool it needs. `slow` is a list of files and of single tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from support.long_files import LONGEST_FIRST

KAFKA: Final = ("tests/kafka/",)
SPARK: Final = ("tests/spark/",)
BROWSER: Final[tuple[str, ...]] = ()
SLOW: Final = (
    "tests/campaign/",
    *LONGEST_FIRST,
)


def marks_of(node: str) -> Iterator[str]:
    """Yields the marks of a test.

    Args:
        node: pytest's name of the test, from the root of the project on.

    >>> sorted(marks_of("tests/spark/test_cluster.py::test_a_cluster"))
    ['slow', 'spark']
    >>> list(marks_of("tests/log/test_rolling.py::test_a_roll"))
    []
    """
    for mark, prefixes in (("kafka", KAFKA), ("spark", SPARK), ("browser", BROWSER), ("slow", SLOW)):
        if node.startswith(prefixes):
            yield mark
