"""Computes the offsets of a reset: pure functions of the target, the committed offset and the log's bounds.

Targets and clamping are Kafka's (groups-and-transactions 2.9).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple

from pylog import limits
from pylog.arguments import is_int
from pylog.errors import InvalidArgumentError, OffsetOutOfRangeError
from pylog.record.types import TopicPartition
from pylog.times import milliseconds_of

Adjustment = Literal["beyond end", "before start", "in remote tier", "no such time", "nothing committed"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class ResetTarget(NamedTuple):
    """The target of a reset.

    Attributes:
        kind: `"offset"` N, `"shift"` by N, `"time"` N in milliseconds, or one of those without a value.
        value: the N.
    """

    kind: Literal["earliest", "latest", "current", "offset", "shift", "time"]
    value: int = 0


class Bounds(NamedTuple):
    """A partition's log bounds and committed offset.

    Attributes:
        start, end: its log's start and end.
        committed: the group's committed offset; None without one.
        offset_for_time: returns the offset of the first record at or after a time in milliseconds; None without one.
        remote: offsets before `start` that are in a broker's remote tier.
    """

    start: int
    end: int
    committed: int | None
    offset_for_time: Callable[[int], int | None]
    remote: range = range(0)


class PlannedOffset(NamedTuple):
    """The planned offset of one partition.

    Attributes:
        partition: the partition.
        offset: the offset that the group will read next.
        committed: the offset committed before; None without one.
        wanted: the requested offset, if the plan differs from it; otherwise None.
        adjustment: why the plan differs from the request. `"beyond end"` and `"before start"`: the offset is outside the log.
            `"in remote tier"`: pylog cannot read the requested offset, or the earliest one, so the plan is the local log's start.
            `"no such time"`: every record is older, so the plan is the log's end. `"nothing committed"`: the plan is the end.
            None if the plan is the request.
    """

    partition: TopicPartition
    offset: int
    committed: int | None
    wanted: int | None = None
    adjustment: Adjustment | None = None


def plan(target: ResetTarget, partition: TopicPartition, bounds: Bounds) -> PlannedOffset:
    """Plans one partition. `"shift"` requires a committed offset.

    >>> plan(ResetTarget("shift", 5), TopicPartition("orders", 0), Bounds(0, 10, 7, lambda _: None))[1:]
    (10, 7, 12, 'beyond end')
    """
    match target.kind:
        case "earliest" if bounds.remote:
            return _local_start(partition, bounds, bounds.remote.start)
        case "earliest":
            return PlannedOffset(partition, bounds.start, bounds.committed)
        case "latest":
            return PlannedOffset(partition, bounds.end, bounds.committed)
        case "current" if bounds.committed is not None:  # not clamped, as in Kafka
            return PlannedOffset(partition, bounds.committed, bounds.committed)
        case "current":
            return PlannedOffset(partition, bounds.end, None, None, "nothing committed")
        case "time":
            try:
                found = bounds.offset_for_time(target.value)
            except OffsetOutOfRangeError:
                if not bounds.remote:
                    raise
                return _local_start(partition, bounds, None)
            why: Adjustment | None = "no such time" if found is None else None
            return PlannedOffset(partition, bounds.end if found is None else found, bounds.committed, None, why)
    shifted = target.kind == "shift"
    return _clamped(partition, target.value + ((bounds.committed or 0) if shifted else 0), bounds)


def _clamped(partition: TopicPartition, wanted: int, bounds: Bounds) -> PlannedOffset:
    if wanted > bounds.end:
        return PlannedOffset(partition, bounds.end, bounds.committed, wanted, "beyond end")
    if wanted in bounds.remote:
        return _local_start(partition, bounds, wanted)
    if wanted < bounds.start:
        return PlannedOffset(partition, bounds.start, bounds.committed, wanted, "before start")
    return PlannedOffset(partition, wanted, bounds.committed)


def _local_start(partition: TopicPartition, bounds: Bounds, wanted: int | None) -> PlannedOffset:
    return PlannedOffset(partition, bounds.start, bounds.committed, wanted, "in remote tier")


# ---- arguments ---------------------------------------------------------------------------------------------------------------


def target_of(
    to: object = None, shift_by: object = None, by_duration: object = None, *, now_ms: Callable[[], int]
) -> ResetTarget | None:
    """Returns the target that a caller gives in one of three arguments; None if all are None.

    Raises:
        InvalidArgumentError: more than one is given, or the value is invalid.
    """
    given = [name for name, value in (("to", to), ("shift_by", shift_by), ("by_duration", by_duration)) if value is not None]
    if len(given) > 1:
        raise InvalidArgumentError(f"{' and '.join(given)} are given together; give one of them")
    if shift_by is not None:
        return ResetTarget("shift", _checked_offset("shift_by", shift_by))
    if by_duration is not None:
        return ResetTarget("time", min(max(0, now_ms() - milliseconds_of(by_duration)), limits.INT64_MAX))
    return None if to is None else _where(to)


def _where(to: object) -> ResetTarget:
    if is_int(to):  # first: NumPy compares with text in its own way
        return ResetTarget("offset", _checked_offset("to", to))
    if isinstance(to, datetime):
        return ResetTarget("time", _milliseconds_at(to))
    if to == "earliest" or to == "latest" or to == "current":
        return ResetTarget(to)
    if isinstance(to, str):
        return ResetTarget("time", _milliseconds_at(_parsed_time(to)))
    return ResetTarget("offset", _checked_offset("to", to))


def _checked_offset(name: str, value: object) -> int:
    """Checks an offset or a distance. It may be negative: offsets outside the log are clamped."""
    if is_int(value) and -limits.INT64_MAX <= value <= limits.INT64_MAX:
        return int(value)
    others = ", a datetime, 'earliest', 'latest' or 'current'" * (name == "to")
    raise InvalidArgumentError(f"{name}={value!r} is not an int of 64 bits{others}")


def _parsed_time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidArgumentError(
            f"to={text!r} is not 'earliest', 'latest', 'current' or a time like 2024-01-31T17:00:00.000+01:00"
        ) from error
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found  # Kafka's rule


def _milliseconds_at(moment: datetime) -> int:
    """Returns the first whole millisecond at or after a time; 0 for times before 1970."""
    if moment.utcoffset() is None:
        raise InvalidArgumentError(f"to={moment!r} has no time zone; give it one, as in datetime(2024, 1, 31, tzinfo=UTC)")
    return max(0, -((_EPOCH - moment) // _MILLISECOND))
