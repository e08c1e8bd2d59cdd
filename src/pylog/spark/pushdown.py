"""Prunes a read by a query's predicates: to partitions, ranges of offsets, and a first timestamp.

Spark hands a reader the predicates that it could translate, all of which must hold. Those on `topic` and `partition` are decided
for each partition as a whole, and those on `offset` become ranges of offsets: nothing is left of them for Spark to do, unless the
ranges were widened. Of a predicate on `timestamp` a lower bound is used, as far as time indexes prove that earlier records do not
reach it; the predicate itself goes back to Spark. An upper bound says nothing of offsets: times in a log need not rise, so an
old record may follow any younger one. All other predicates go back to Spark as they are.

No log is read for this. The columns concerned are never null.
"""

from __future__ import annotations

import datetime as dt
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pylog import limits
from pylog.record.types import TopicPartition

# A hole between two ranges of offsets costs a further task, so it must be large enough, and the number of ranges is limited.
SMALLEST_HOLE: Final = limits.SCAN_ROWS
MOST_RANGES: Final = 100  # of one partition

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_LOW: Final = -(2**80)  # numbers beyond every offset and every time: ranges of them are half open, like those of offsets
_HIGH: Final = 2**80


class NumberRange(NamedTuple):
    """The whole numbers from `start` to `end - 1`."""

    start: int
    end: int


Ranges = tuple[NumberRange, ...]  # ascending, none empty, no two that touch
EVERYTHING: Final[Ranges] = (NumberRange(_LOW, _HIGH),)


@dataclass(frozen=True)
class Pruning:
    """The part of a read that predicates keep.

    Attributes:
        partition_filters: predicates on topics and partitions, all of which must hold.
        offsets: the ranges of offsets.
        timestamp: milliseconds: no earlier record is wanted; None if any may be.

    >>> Pruning((EqualTo(("topic",), "orders"),)).keeps(TopicPartition("returns", 0))
    False
    >>> Pruning(offsets=(NumberRange(5, 10), NumberRange(20, 30))).within(7, 25)
    (NumberRange(start=7, end=10), NumberRange(start=20, end=25))
    """

    partition_filters: tuple[Filter, ...] = ()
    offsets: Ranges = EVERYTHING
    timestamp: int | None = None

    def keeps(self, partition: TopicPartition) -> bool:
        """Returns whether the predicates may match records of a partition, judged by its name."""
        return bool(self.offsets) and all(_holds(each, getattr(partition, _column(each))) for each in self.partition_filters)

    def within(self, start: int, end: int) -> Ranges:
        """Returns the ranges of offsets from `start` to `end - 1`."""
        return _intersection(self.offsets, _ranges(start, end))


NO_PRUNING: Final = Pruning()


def pruning(filters: Iterable[Filter]) -> tuple[Pruning, list[Filter]]:
    """Splits a query's predicates into a pruned read and the rest.

    Args:
        filters: predicates, all of which must hold.

    Returns:
        The pruning, and the predicates that Spark must apply to the rows.

    >>> left, residual = pruning([GreaterThan(("offset",), 41), EqualTo(("value",), b"paid")])
    >>> left.within(0, 100), residual
    ((NumberRange(start=42, end=100),), [EqualTo(attribute=('value',), value=b'paid')])
    """
    partition_filters: list[Filter] = []
    offsets, times = EVERYTHING, EVERYTHING
    residual: list[Filter] = []
    for each in filters:
        column = _column(each)
        if column in _PARTITION_COLUMNS and _understood(each, _PARTITION_COLUMNS[column]):
            partition_filters.append(each)
            continue
        found = _numbers(each, _offset) if column == "offset" else None
        if found is not None:
            wide = _widened(found)
            offsets = _intersection(offsets, wide)
            if wide == found:
                continue
        found = _numbers(each, _microseconds) if column == "timestamp" else None
        if found is not None:
            times = _intersection(times, found)
        residual.append(each)
    whole = _in_milliseconds(times)
    if not whole:
        return Pruning(offsets=()), residual
    return Pruning(tuple(partition_filters), offsets, None if whole[0].start == _LOW else whole[0].start), residual


def _column(each: Filter) -> str:
    """Returns the column of a predicate; an empty text if the predicate is about a part of one."""
    inner: Any = each
    while isinstance(inner, Not):
        inner = inner.child
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return str(path[0]) if len(path) == 1 else ""


# ---- decided for a value -------------------------------------------------------------------------------------------------

_PARTITION_COLUMNS: Final[Mapping[str, type]] = {"topic": str, "partition": int}
_COMPARISONS: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, values: value in values,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: str.__contains__,
}


def _understood(each: Filter, kind: type) -> bool:
    """Returns whether a predicate has a definite result for values of this type. Comparisons with null do not."""
    match each:
        case IsNull() | IsNotNull():
            return True
        case Not(child):
            return _understood(child, kind)
        case In(_, values):
            return all(type(value) is kind for value in values)
    return type(each) in _COMPARISONS and type(getattr(each, "value", None)) is kind


def _holds(each: Filter, value: str | int) -> bool:
    """Returns a predicate's answer for a value that is not null. Compares text by code point, as Spark compares UTF-8."""
    match each:
        case IsNull():
            return False
        case IsNotNull():
            return True
        case Not(child):
            return not _holds(child, value)
    return _COMPARISONS[type(each)](value, each.value)  # type: ignore[attr-defined]


# ---- turned into ranges --------------------------------------------------------------------------------------------------

Number = Callable[[Any], int | None]  # the value in a predicate -> a number, or None


def _offset(value: Any) -> int | None:
    return value if type(value) is int else None


def _microseconds(value: Any) -> int | None:
    """Returns microseconds since 1970, exactly. Spark has resolved the session's time zone: a time without one is not Spark's."""
    return (value - _EPOCH) // _MICROSECOND if isinstance(value, dt.datetime) and value.tzinfo is not None else None


def _numbers(each: Filter, number: Number) -> Ranges | None:
    """Returns the numbers for which a predicate holds; None if that is not certain."""
    match each:
        case IsNull():
            return ()
        case IsNotNull():
            return EVERYTHING
        case Not(child):
            found = _numbers(child, number)
            return None if found is None else _complement(found)
        case In(_, values):
            numbers = [number(value) for value in values]
            return None if None in numbers else united([NumberRange(found, found + 1) for found in numbers if found is not None])
    found_number = number(getattr(each, "value", None))
    return None if found_number is None else _compared(each, found_number)


def _compared(each: Filter, number: int) -> Ranges | None:
    match each:
        case EqualTo() | EqualNullSafe():
            return _ranges(number, number + 1)
        case GreaterThan():
            return _ranges(number + 1, _HIGH)
        case GreaterThanOrEqual():
            return _ranges(number, _HIGH)
        case LessThan():
            return _ranges(_LOW, number)
        case LessThanOrEqual():
            return _ranges(_LOW, number + 1)
    return None


def _ranges(start: int, end: int) -> Ranges:
    return (NumberRange(start, end),) if start < end else ()


def united(ranges: Iterable[NumberRange]) -> Ranges:
    """Returns ranges in ascending order. Merges those that overlap or touch.

    Args:
        ranges: in any order; empty ones are left out.
    """
    found: list[NumberRange] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1].end:
            found[-1] = NumberRange(found[-1].start, max(found[-1].end, end))
        elif start < end:
            found.append(NumberRange(start, end))
    return tuple(found)


def _complement(ranges: Ranges) -> Ranges:
    edges = [_LOW, *itertools.chain.from_iterable(ranges), _HIGH]
    return tuple(NumberRange(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end)


def _intersection(left: Ranges, right: Ranges) -> Ranges:
    return united(
        [
            NumberRange(max(a.start, b.start), min(a.end, b.end))
            for a in left
            for b in right
            if a.start < b.end and b.start < a.end
        ]
    )


def _widened(ranges: Ranges) -> Ranges:
    """Merges ranges with small holes between them, and limits the number of ranges."""
    holes = sorted((later.start - earlier.end for earlier, later in itertools.pairwise(ranges)), reverse=True)
    smallest = max([SMALLEST_HOLE, *(hole + 1 for hole in holes[MOST_RANGES - 1 : MOST_RANGES])])
    found = list(ranges[:1])
    for earlier, later in itertools.pairwise(ranges):
        if later.start - earlier.end >= smallest:
            found.append(later)
        else:
            found[-1] = NumberRange(found[-1].start, later.end)
    return tuple(found)


def _in_milliseconds(microseconds: Ranges) -> Ranges:
    """Returns the whole milliseconds in a range of microseconds, which may have none: records have no finer times."""
    return united([NumberRange(_up(start), _up(end)) for start, end in microseconds])


def _up(microseconds: int) -> int:
    """Converts to milliseconds, rounded up. Values beyond the range of times stay beyond it."""
    return microseconds if microseconds in (_LOW, _HIGH) else -(-microseconds // 1000)
