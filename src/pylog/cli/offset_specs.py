"""Places in a log as people name them: an offset, a time, so long ago, so many records before the end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pylog import limits
from pylog.cli.exits import UsageError
from pylog.errors import InvalidArgumentError
from pylog.groups.reset import ResetTarget, target_of
from pylog.times import milliseconds_of

if TYPE_CHECKING:
    from pylog.clock import Clock
    from pylog.log.log import Log

_NUMBER: Final = re.compile(r"[-+]?[0-9]{1,18}")
_PARTITIONS: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
OFFSET_SPEC_HELP: Final = (
    "an offset, -N (the last N records), earliest, latest, a time (2024-01-31T17:00, in UTC), or P1DT12H (so long ago)"
)


def parse_offset_spec(text: str, clock: Clock) -> ResetTarget:
    """A place from its text.

    Args:
        text: as `OFFSET_SPEC_HELP` says.
        clock: for what is so long ago.

    Raises:
        UsageError: it is none.

    >>> from pylog.clock import ManualClock
    >>> clock = ManualClock(1000)
    >>> parse_offset_spec("17", clock), parse_offset_spec("1970-01-01T00:00:01", clock)
    (ResetTarget(kind='offset', value=17), ResetTarget(kind='time', value=1000))
    >>> parse_offset_spec("-5", clock), parse_offset_spec("PT0.4S", clock)
    (ResetTarget(kind='shift', value=-5), ResetTarget(kind='time', value=600))
    """
    try:
        if _NUMBER.fullmatch(text):
            return ResetTarget("shift" if text.startswith("-") else "offset", int(text))
        if text[:1] in "Pp":
            return ResetTarget("time", clock.now_ms() - milliseconds_of(text))
        found = target_of(text, now_ms=clock.now_ms)
    except InvalidArgumentError as error:
        raise UsageError(f"{text!r} is no place in a log: give {OFFSET_SPEC_HELP}") from error
    if found is None or found.kind == "current":
        raise UsageError(f"{text!r} is no place in a log: give {OFFSET_SPEC_HELP}")
    return found


def offset_at(log: Log, place: ResetTarget, isolation: str = "read_uncommitted") -> int:
    """The offset of a place in a log; an offset outside of the log becomes its start or its end.

    Args:
        log, place: of which log, and where.
        isolation: which records count for `-N`.
    """
    if place.kind == "shift":
        return offset_of_last(log, -place.value, isolation)
    state = log.look()
    if place.kind == "time":
        found = log.offset_for_timestamp(max(place.value, 0))
        return state.end_offset if found is None else found.offset
    if place.kind == "earliest" or (place.kind != "latest" and place.value in state.remote_offsets):
        state.earliest(log.partition)  # raises if that is in a broker's remote tier
    wanted = {"earliest": state.start_offset, "latest": state.end_offset}
    return min(max(wanted.get(place.kind, place.value), state.start_offset), state.end_offset)


def offset_of_last(log: Log, count: int, isolation: str) -> int:
    """The offset from which on a log has some number of records; its start if it has fewer.

    Offsets are no count: compaction, truncation, markers and aborted transactions leave gaps.

    Cost: a pass over the batches of about twice as many offsets as it takes, backwards.
    """
    low = log.stable_offset if isolation == "read_committed" else log.end_offset
    start, size = log.start_offset, count
    if count == 0:
        return log.end_offset
    while low > start:
        first = max(start, low - size)
        frames = log.scan(first, low, columns=("offset",), isolation=isolation)
        offsets = [offset for frame in frames for offset in frame.column(0).to_pylist()]
        if len(offsets) >= count:
            return int(offsets[-count])
        count, low, size = count - len(offsets), first, size * 2
    return log.look().earliest(log.partition)


def parse_partitions(given: Iterable[str]) -> list[int]:
    """Numbers of partitions from texts such as "0", "1,3" and "4-7".

    Raises:
        UsageError: one is none.

    >>> parse_partitions(["4-6", "0,1"])
    [4, 5, 6, 0, 1]
    """
    found: list[int] = []
    for part in (part for text in given for part in text.split(",")):
        bounds = _PARTITIONS.fullmatch(part.strip())
        if bounds is None:
            raise UsageError(f"{part!r} is no partition; give numbers such as 0, 1,3 or 4-7")
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        if last < first:
            raise UsageError(
                f"{part.strip()!r} names no partition: a range goes from the lower number to the higher, as 4-7 does"
            )
        found += range(first, min(last, max(first, limits.MAX_PARTITIONS)) + 1)  # at least one: none would stand for all
    return found
