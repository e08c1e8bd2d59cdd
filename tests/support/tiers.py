"""The marks that a test gets from its file or its parameters: `slow`, `kafka`, `spark`, `browser`.

`./dev test --fast` leaves all of them out. A folder tells which tool its tests need. `slow` is a list of files, and the
partitions that older brokers wrote: the fast tests read those of one version. Other slow tests have the mark themselves.

A test with many parameters has the mark `sampled(every)`: the fast tests take the first of its parameters and one of
every `every` after it; `./dev test` takes all of them.
"""

from __future__ import annotations

from collections import Counter
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


class Sample:
    """Chooses among the parameters of tests.

    >>> sample = Sample()
    >>> [name for name in ("a[1]", "a[2]", "b[1]", "a[3]", "b[2]") if sample.takes(name, every=2)]
    ['a[1]', 'b[1]', 'a[3]']
    """

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def takes(self, node: str, every: int) -> bool:
        """Whether the sample has a test. Each test is asked for once, in pytest's order.

        Args:
            node: pytest's name of the test.
            every: a sample has one of this number of parameters.
        """
        test = node.partition("[")[0]
        self._seen[test] += 1
        return self._seen[test] % every == 1 % every


def is_left_out(file: str) -> bool:
    """Whether no test of a file, or of a folder, is fast, whatever marks its tests have themselves.

    Args:
        file: from the root of the project on.

    >>> is_left_out("tests/spark"), is_left_out("tests/kafka/test_harness.py"), is_left_out("tests/log")
    (True, True, False)
    """
    return f"{file}/".startswith((*KAFKA, *SPARK, *BROWSER)) or f"{file}/".startswith(SLOW) or file in SLOW
