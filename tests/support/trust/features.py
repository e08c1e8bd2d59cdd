"""The features of pylog that can meet, and the table of tests and rules that say which pair they cover.

A test says it with `@pytest.mark.pair("compaction", "time search")`. A mark with more names pairs the first with each of the
others, and a test may have several marks. A rule of a Hypothesis state machine says it with the decorator `covers` below.
docs/PAIRS.md is generated from both (`./dev pairs`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

FEATURES: Final = (
    "timestamps",
    "retention by time",
    "retention by size",
    "compaction",
    "truncation",
    "delete_records",
    "option change",
    "roll",
    "crash",
    "close",
    "second process",
    "broker's directory",
    "time search",
    "scan and follow",
    "groups",
    "idempotence",
    "aborted transactions",
    "LogAppendTime",
    "links",
    "Spark",
)

Pair = tuple[str, str]
Function = TypeVar("Function", bound=Callable[..., Any])

# Pairs that cannot meet, each with the reason. docs/PAIRS.md prints it.
CANNOT_MEET: Final[dict[Pair, str]] = {}

RULES: Final[dict[str, set[Pair]]] = {}  # "module:Machine.rule" -> the pairs that the rule covers


class FeatureError(ValueError):
    """A mark names a feature that is not in the list, or not two different ones."""


def pair_of(*names: str) -> Pair:
    """Returns two features as a pair, in the order of `FEATURES`.

    Args:
        names: two different features.

    Raises:
        FeatureError: a name is not in `FEATURES`, or there are not two different names.

    >>> pair_of("roll", "timestamps")
    ('timestamps', 'roll')
    """
    unknown = [name for name in names if name not in FEATURES]
    if unknown:
        raise FeatureError(f"no feature {unknown[0]!r}; the features are {', '.join(FEATURES)}")
    if len(set(names)) != 2 or len(names) != 2:
        raise FeatureError(f"a pair has two different features, not {names}")
    first, second = sorted(names, key=FEATURES.index)
    return first, second


def pairs_of(*names: str) -> list[Pair]:
    """Returns the pairs of a feature with each of the others.

    Args:
        names: a feature, and one or more others.

    Raises:
        FeatureError: a name is not in `FEATURES`, occurs twice, or is the only one.

    >>> pairs_of("roll", "crash", "timestamps")
    [('roll', 'crash'), ('timestamps', 'roll')]
    """
    first, *others = names or ("",)
    if not others or len(set(others)) < len(others):
        raise FeatureError(f"a pair has two different features, not {names}")
    return [pair_of(first, other) for other in others]


def covers(*pairs: Pair) -> Callable[[Function], Function]:
    """Decorates a rule of a state machine with the pairs of features that it covers.

    Put it below `@rule(...)`, directly on the method.

    Raises:
        FeatureError: a pair names a feature that is not in `FEATURES`.
    """
    known = {pair_of(*pair) for pair in pairs}

    def noted(function: Function) -> Function:
        RULES.setdefault(f"{function.__module__}:{function.__qualname__}", set()).update(known)
        return function

    return noted
