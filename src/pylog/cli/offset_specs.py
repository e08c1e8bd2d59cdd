"""Offsets as users write them: an offset, a time, a duration before now, or a number of records before the end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pylog import limits
from pylog.cli.exits import UsageError
from pylog.errors import InvalidArgumentError
from pylog.times import milliseconds_of

if TYPE_CHECKING:
    from pylog.clock import Clock
    from pylog.groups.reset import ResetTarget
    from pylog.log.partition_log import PartitionLog

_NUMBER: Final = re.compile(r"[-+]?[0-9]{1,18}")
_PARTITIONS: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
OFFSET_SPEC_HELP: Final = (
    "an offset, -N (the last N records), earliest, latest, a time (2024-01-31T17:00, in UTC), or a duration before now (P1DT12H)"
)


def parse_offset_spec(text: str, clock: Clock) -> ResetTarget:
    """Parses an offset, a time, or a position relative to the end or to now.

    Args:
        text: in one of the forms of `OFFSET_SPEC_HELP`.
        clock: the current time, for durations.

    Raises:
        UsageError: the text has none of these forms.

    >>> from pylog.clock import ManualClock
    >>> clock = ManualClock(1000)
    >>> parse_offset_spec("17", clock), parse_offset_spec("1970-01-01T00:00:01", clock)
    (ResetTarget(kind='offset', value=17), ResetTarget(kind='time', value=1000))
    >>> parse_offset_spec("-5", clock), parse_offset_spec("PT0.4S", clock)
    (ResetTarget(kind='shift', value=-5), ResetTarget(kind='time', value=600))
    """
    from pylog.groups.reset import ResetTarget, target_of

    try:
        if _NUMBER.fullmatch(text):
            return ResetTarget("shift" if text.startswith("-") else "offset", int(text))
        if text[:1] in "Pp":
            return ResetTarget("time", clock.now_ms() - milliseconds_of(text))
        found = target_of(text, now_ms=clock.now_ms)
    except InvalidArgumentError as error:
        raise UsageError(f"{text!r} is not an offset or a time; give {OFFSET_SPEC_HELP}") from error
    if found is None or found.kind == "current":
        raise UsageError(f"{text!r} is not an offset or a time; give {OFFSET_SPEC_HELP}")
    return found


def offset_at(log: PartitionLog, spec: ResetTarget, isolation: str = "read_uncommitted") -> int:
    """Returns the offset in a log that a parsed specification means, clamped to the log's start and end.

    Args:
        log: the log.
        spec: as `parse_offset_spec` returned it.
        isolation: whether `-N` counts records of aborted and open transactions.
    """
    if spec.kind == "shift":
        return offset_of_last(log, -spec.value, isolation)
    state = log.snapshot()
    if spec.kind == "time":
        found = log.offset_for_timestamp(max(spec.value, 0))
        return state.end_offset if found is None else found.offset
    if spec.kind == "earliest" or (spec.kind != "latest" and spec.value in state.remote_offsets):
        state.earliest(log.partition)  # raises if the offset is in the remote tier of a broker
    wanted = {"earliest": state.start_offset, "latest": state.end_offset}
    return min(max(wanted.get(spec.kind, spec.value), state.start_offset), state.end_offset)


def offset_of_last(log: PartitionLog, count: int, isolation: str) -> int:
    """Returns the offset of the first of the last `count` records of a log; its start if the log has fewer.

    Offsets cannot be counted instead: compaction, truncation, markers and aborted transactions leave gaps.

    Cost: a backward pass over about twice as many offsets as needed.
    """
    low = log.snapshot(committed=True).stable_offset if isolation == "read_committed" else log.end_offset
    start, size = log.start_offset, count
    if count == 0:
        return log.end_offset
    while low > start:
        first = max(start, low - size)
        frames = log.scan(first, low, columns=("offset",), isolation_level=isolation)
        offsets = [offset for frame in frames for offset in frame.column(0).to_pylist()]
        if len(offsets) >= count:
            return int(offsets[-count])
        count, low, size = count - len(offsets), first, size * 2
    return log.snapshot().earliest(log.partition)


def parse_partitions(given: Iterable[str]) -> list[int]:
    """Parses partition numbers such as "0", "1,3" and "4-7".

    Raises:
        UsageError: a text has another form.

    >>> parse_partitions(["4-6", "0,1"])
    [4, 5, 6, 0, 1]
    """
    found: list[int] = []
    for part in (part for text in given for part in text.split(",")):
        bounds = _PARTITIONS.fullmatch(part.strip())
        if bounds is None:
            raise UsageError(f"{part!r} is not a partition; give numbers such as 0, 1,3 or 4-7")
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        if last < first:
            raise UsageError(f"{part.strip()!r} is an empty range; give the lower number first, such as 4-7")
        found += range(
            first, min(last, max(first, limits.MAX_PARTITIONS)) + 1
        )  # at least one number: an empty list would mean all partitions
    return found
