"""Judges how a consumer group is doing, from its commits and its logs. Pure functions: `observer` reads the facts.

The rules are Burrow's states and their order, with corrections that users of Burrow and of lag exporters ask for. `burrow` has
the uncorrected rules. Past commits have times, and logs have time indexes, so a verdict needs no earlier observation.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pylog.groups.rates import Speed, catch_up_seconds, speed_of, trend_of
from pylog.record.types import TopicPartition
from pylog.text import counted
from pylog.times import time_text

DEFAULT_WINDOW_MS: Final = 600_000
ALLOWED_LAG_MS: Final = 10_000  # a group with at most this lag keeps up
LEAST_SILENCE_MS: Final = 60_000  # a group that is silent for less has not stopped: consumers commit every few seconds
_SOON_MS: Final = 86_400_000  # a deletion within a day is part of the sentence of a group that stands still
RECENT_COMMITS: Final = 10  # Burrow's window: their span is how often the group commits


class Verdict(enum.StrEnum):
    """The state of a group, or of a group in one partition. Members are in the order of their severity.

    `OK`: it has read everything, or it keeps up. `WARN`: it falls further behind, or needs longer than the window to catch up.
    `DOOMED`: retention deletes records before the group reads them at its speed. `REWIND`: its offset went back and has not come
    back. `STALL`: its members live, but its offset does not move. `STOP`: it has no members and commits nothing. `ERR`: one of
    Burrow's errors, for a group. `DAMAGED`: its next record is in a damaged part of the log. `LOST`: its offset is outside of the
    log, because retention was faster, or the log was truncated; or files of the log are missing.
    """

    OK = "OK"
    WARN = "WARN"
    DOOMED = "DOOMED"
    REWIND = "REWIND"
    STALL = "STALL"
    STOP = "STOP"
    ERR = "ERR"
    DAMAGED = "DAMAGED"
    LOST = "LOST"

    @property
    def is_error(self) -> bool:
        """True if records are lost or no longer read. `WARN` and `DOOMED` are warnings."""
        return self not in (Verdict.OK, Verdict.WARN, Verdict.DOOMED)


_STANDING: Final = (Verdict.STALL, Verdict.STOP)  # the first unread record stays the same, and gets older
_SEVERITY: Final = {verdict: number for number, verdict in enumerate(Verdict)}


class PastCommit(NamedTuple):
    """A commit.

    Attributes:
        timestamp: in milliseconds.
        offset: the committed offset.
    """

    timestamp: int
    offset: int


class UnreadSegment(NamedTuple):
    """The segment of the first unread record, as far as retention needs it.

    Attributes:
        end_offset: the offset after its records.
        newest_ms: its largest timestamp; -1 if it has none.
        retention_ms, retention_bytes: the topic's options; -1 for no limit.
        bytes_after: the size of the later segments.
        bytes_per_offset: the average in the whole log.
    """

    end_offset: int
    newest_ms: int
    retention_ms: int
    retention_bytes: int
    bytes_after: int
    bytes_per_offset: float

    def deleted_in_ms(self, now_ms: int, produced: float | None) -> float | None:
        """Returns the milliseconds until retention deletes the segment; None if it will not, or if that is not known.

        Args:
            now_ms: the wall clock, in milliseconds.
            produced: offsets per second that producers append.

        >>> UnreadSegment(10, 5_000, 60_000, -1, 0, 1.0).deleted_in_ms(15_000, None)
        50000.0
        >>> UnreadSegment(10, -1, -1, 1_000, 500, 10.0).deleted_in_ms(15_000, 5.0)
        10000.0
        """
        left = []
        if self.retention_ms >= 0 and self.newest_ms >= 0:
            left.append(max(0.0, float(self.newest_ms + self.retention_ms - now_ms)))
        if self.retention_bytes >= 0:
            room = max(0, self.retention_bytes - self.bytes_after)
            if not room or produced:
                left.append(1000 * room / (self.bytes_per_offset * (produced or 1)))
        return min(left, default=None)


def _unknown(_: object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The facts about a group in one partition. Two of them are functions, called only if the result matters: they read a log.

    Attributes:
        partition: the partition.
        offset: the committed offset.
        start_offset, end_offset: the log's start offset and end offset, records in a broker's remote storage included.
        lag_records: the unread records; None if they were not counted.
        lag_ms: the age of the first unread record; 0 without one, None if it has no timestamp or cannot be read.
        commits: the known commits, oldest first: those in the window, and the last ten; the last one is the current one.
        lag_at: returns the lag in milliseconds at the time of a commit; None if it is not known any more.
        end_at: returns the log's end at a time in milliseconds; None if it is not known.
        has_member: true if a living member reads the partition.
        damage: why the first unread record cannot be read; None if it can.
        segment: has the first unread record, and may be deleted by retention; None if it will not be.
        loss: why records from the committed offset on are missing from the log; None if none are, as far as that is known.
        opens: false if the log cannot be opened. Its start and end are not known then, and are given as the committed offset.
    """

    partition: TopicPartition
    offset: int
    start_offset: int
    end_offset: int
    lag_records: int | None
    lag_ms: int | None
    commits: Sequence[PastCommit]
    lag_at: Callable[[PastCommit], int | None] = _unknown
    end_at: Callable[[int], int | None] = _unknown
    has_member: bool = False
    damage: str | None = None
    segment: UnreadSegment | None = None
    loss: str | None = None
    opens: bool = True

    @property
    def lag(self) -> int:
        """The log's end less the committed offset, as in Kafka's tools; negative for an offset past the end."""
        return self.end_offset - self.offset

    @property
    def is_read(self) -> bool:
        """True if no record is left to read; only markers of transactions may be."""
        return self.opens and self.damage is None and (self.lag <= 0 or self.lag_records == 0)


class Course(NamedTuple):
    """How a group and its producers moved over the window.

    Attributes:
        speed: the speed of both.
        first_lag_ms, last_lag_ms: the lag at the first and at the last commit; None if it is not known.
        deleted_in_ms: milliseconds until retention deletes the first unread record; None if it will not.
    """

    speed: Speed
    first_lag_ms: int | None = None
    last_lag_ms: int | None = None
    deleted_in_ms: float | None = None

    @property
    def trend(self) -> str:
        """`"rising"`, `"falling"` or `"steady"`."""
        return trend_of(self.first_lag_ms, self.last_lag_ms)


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """How a group is doing in one partition.

    Attributes:
        partition: the partition.
        verdict: see `Verdict`.
        why: a sentence.
        offset: the committed offset.
        lag: the log's end less the committed offset, as Kafka's tools report it; negative for an offset past the end. None if
            the log cannot be opened.
        lag_records: unread records, exact: markers and gaps are not counted. None if there are too many to count.
        lag_seconds: the age of the first unread record; 0 if there is none, None if it has no timestamp or cannot be read.
        trend: `"rising"`, `"falling"` or `"steady"`: how `lag_seconds` has moved over the window.
        rate: offsets that the group consumed per second over the window; None with fewer than two commits.
        catch_up_seconds: until the group has read everything, at its speed less the producers'; 0 if it has, None if it does not
            catch up.
        deleted_in_seconds: until retention deletes the segment of the first unread record; None if it will not.
        since: the time of the commit that moved the offset last, in milliseconds since 1970.
        commit_count: the number of commits that the verdict rests on.
    """

    partition: TopicPartition
    verdict: Verdict
    why: str
    offset: int
    lag: int | None
    lag_records: int | None
    lag_seconds: float | None
    trend: str
    rate: float | None
    catch_up_seconds: float | None
    deleted_in_seconds: float | None
    since: int
    commit_count: int


@dataclass(frozen=True, slots=True)
class Health:
    """How a group is doing.

    Attributes:
        group_id: the group's name.
        verdict: the worst of its partitions; `OK` if it has committed nothing.
        partitions: those with a committed offset that exist, in order.
    """

    group_id: str
    verdict: Verdict
    partitions: tuple[PartitionHealth, ...]

    @property
    def lag_seconds(self) -> float:
        """The largest `lag_seconds` of its partitions, 0 without any."""
        return max((each.lag_seconds for each in self.partitions if each.lag_seconds is not None), default=0.0)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Returns the most severe verdict; `OK` without any.

    >>> worst([Verdict.OK, Verdict.LOST, Verdict.WARN])
    <Verdict.LOST: 'LOST'>
    """
    return max(verdicts, key=_SEVERITY.__getitem__, default=Verdict.OK)


def judged(facts: PartitionFacts, *, now_ms: int, window_ms: int = DEFAULT_WINDOW_MS) -> PartitionHealth:
    """Judges a group in one partition by pylog's rules.

    Args:
        facts: about the group in the partition.
        now_ms: the wall clock, in milliseconds.
        window_ms: a group that needs longer than this to catch up gets a warning.

    >>> facts = PartitionFacts(TopicPartition("orders", 0), 2, 0, 2, 0, 0, [PastCommit(1_000, 2)])
    >>> judged(facts, now_ms=5_000).verdict
    <Verdict.OK: 'OK'>
    """
    course = course_of(facts, now_ms)
    verdict, why = _verdict(facts, course, now_ms, window_ms)
    return result(facts, verdict, why, course)


def course_of(facts: PartitionFacts, now_ms: int) -> Course:
    """Returns how the group moved over the window. Where everything is read, only its speed is computed."""
    first = facts.commits[0]
    if facts.is_read or not facts.start_offset <= facts.offset <= facts.end_offset:
        return Course(speed_of(facts.commits, None, facts.end_offset, now_ms))
    speed = speed_of(facts.commits, facts.end_at(first.timestamp), facts.end_offset, now_ms)
    first_lag = next((lag for lag in map(facts.lag_at, facts.commits) if lag is not None), None)
    deleted = None if facts.segment is None else facts.segment.deleted_in_ms(now_ms, speed.produced)
    return Course(speed, first_lag, facts.lag_at(facts.commits[-1]), deleted)


def result(facts: PartitionFacts, verdict: Verdict, why: str, course: Course) -> PartitionHealth:
    """Returns a verdict with the figures that all rules share."""
    is_read = facts.is_read
    return PartitionHealth(
        facts.partition,
        verdict,
        why,
        facts.offset,
        facts.lag if facts.opens else None,
        0 if is_read else facts.lag_records,
        0.0 if is_read else seconds(facts.lag_ms),
        "rising" if verdict in _STANDING and not is_read else course.trend,
        course.speed.consumed,
        0.0 if is_read else catch_up_seconds(facts.lag, course.speed),
        seconds(course.deleted_in_ms),
        _since(facts.commits),
        len(facts.commits),
    )


def seconds(milliseconds: float | None) -> float | None:
    """Returns seconds, at least 0: a timestamp in the future is no lag."""
    return None if milliseconds is None else max(0.0, milliseconds / 1000)


def _since(commits: Sequence[PastCommit]) -> int:
    """Returns the time of the first of the last commits with the same offset."""
    current = commits[-1]
    for each in reversed(commits):
        if each.offset != current.offset:
            break
        current = each
    return current.timestamp


# ---- the rules ---------------------------------------------------------------------------------------------------------------


def _verdict(facts: PartitionFacts, course: Course, now_ms: int, window_ms: int) -> tuple[Verdict, str]:
    """Returns the first verdict whose rule applies, and the reason."""
    outside = outside_of_log(facts)
    if outside is not None:
        return Verdict.LOST, outside
    if facts.damage is not None:
        return Verdict.DAMAGED, f"the next record cannot be read: {facts.damage}"
    if facts.is_read:
        return Verdict.OK, "all records are read"
    verdict, why = (
        _silent(facts, now_ms)
        or _rewound(facts.commits)
        or _stalled(facts)
        or _doomed(facts, course)
        or _behind(facts, course, window_ms)
        or (Verdict.OK, f"it keeps up: {_unread(facts)} unread")
    )
    hurry = _deletion(facts, course) if verdict in _STANDING and (course.deleted_in_ms or 0) <= _SOON_MS else None
    return verdict, why if hurry is None else f"{why}; {hurry}"


def _deletion(facts: PartitionFacts, course: Course) -> str | None:
    """Returns when retention deletes the first unread records; None if it will not."""
    if facts.segment is None or course.deleted_in_ms is None:
        return None
    last = facts.segment.end_offset - 1
    return f"retention deletes offsets {facts.offset} to {last} in {_span(course.deleted_in_ms)}"


def outside_of_log(facts: PartitionFacts) -> str | None:
    """Returns why the log does not have the records from the committed offset on; None if it has them."""
    offset, start, end = facts.offset, facts.start_offset, facts.end_offset
    if facts.loss is not None:
        return f"records are missing: {facts.loss}"
    if offset < start:
        return f"offsets {offset} to {start - 1} were deleted before the group read them"
    if offset > end and facts.damage is None:  # otherwise the log ends there because its next batch cannot be read
        return f"the group has committed {offset}, but the log ends at {end}: it was truncated or created again"
    return None


def _silent(facts: PartitionFacts, now_ms: int) -> tuple[Verdict, str] | None:
    """Applies STOP and STALL: the group has committed nothing for longer than usual, while a record waited.

    A minute of silence is no stop (Burrow#38), and a record that has just arrived in a slow topic is no stop either.
    """
    last = facts.commits[-1].timestamp
    silence = now_ms - last
    if silence <= max(LEAST_SILENCE_MS, last - _recent(facts.commits)[0].timestamp):
        return None
    if facts.lag_ms is not None and facts.lag_ms <= LEAST_SILENCE_MS:
        return None
    said = f"no commit since {time_text(last)} ({_span(silence)}), with {_unread(facts)} unread at offset {facts.offset}"
    return (
        (Verdict.STALL, f"{said}; a member reads the partition")
        if facts.has_member
        else (Verdict.STOP, f"{said}; no member reads the partition")
    )


def _rewound(commits: Sequence[PastCommit]) -> tuple[Verdict, str] | None:
    """Applies REWIND: an offset went back, and no later commit has reached it again."""
    highest, found = commits[-1].offset, None
    for before, after in zip(reversed(commits[:-1]), reversed(commits[1:]), strict=True):
        if before.offset > max(highest, after.offset):
            found = f"the offset went back from {before.offset} to {after.offset} at {time_text(after.timestamp)}"
        highest = max(highest, after.offset)
    return None if found is None else (Verdict.REWIND, found)


def _stalled(facts: PartitionFacts) -> tuple[Verdict, str] | None:
    """Applies STALL: commits arrive, and all have the same offset, although records wait."""
    recent = _recent(facts.commits)
    span = recent[-1].timestamp - recent[0].timestamp
    if len(recent) < 2 or span < LEAST_SILENCE_MS or len({each.offset for each in recent}) > 1:
        return None
    if any(facts.lag_at(each) == 0 for each in recent):  # it had read everything meanwhile
        return None
    return Verdict.STALL, f"{len(recent)} commits in {_span(span)} all have offset {facts.offset}, with {_unread(facts)} unread"


def _doomed(facts: PartitionFacts, course: Course) -> tuple[Verdict, str] | None:
    """Applies DOOMED: retention deletes the oldest unread segment before the group has read it.

    A group that has not moved has no speed. It is doomed if the deletion comes before its silence would count as a stop.
    """
    said = _deletion(facts, course)
    if said is None or facts.segment is None or course.deleted_in_ms is None:
        return None
    if not course.speed.consumed:
        soon = course.deleted_in_ms <= LEAST_SILENCE_MS
        return (Verdict.DOOMED, f"{said}; the group has not moved since {time_text(_since(facts.commits))}") if soon else None
    needed_ms = 1000 * (facts.segment.end_offset - facts.offset) / course.speed.consumed
    if needed_ms <= course.deleted_in_ms:
        return None
    return Verdict.DOOMED, f"{said}; the group needs {_span(needed_ms)} to read them"


def _behind(facts: PartitionFacts, course: Course, window_ms: int) -> tuple[Verdict, str] | None:
    """Applies WARN: the first unread record gets older, or catching up takes longer than the window. Constant lag gives none."""
    last = course.last_lag_ms
    if last is None or last <= ALLOWED_LAG_MS or (facts.lag_ms is not None and facts.lag_ms <= ALLOWED_LAG_MS):
        return None
    if course.trend == "rising":
        return Verdict.WARN, f"it falls behind: from {_span(course.first_lag_ms or 0)} to {_span(last)}, {_unread(facts)} unread"
    needed = catch_up_seconds(facts.lag, course.speed) if course.trend == "falling" else None
    if needed is not None and needed * 1000 > window_ms:
        return Verdict.WARN, f"it needs {_span(1000 * needed)} to catch up, {_unread(facts)} unread"
    return None


def _recent(commits: Sequence[PastCommit]) -> Sequence[PastCommit]:
    return commits[-RECENT_COMMITS:]


def _unread(facts: PartitionFacts) -> str:
    count, noun = (facts.lag, "offset") if facts.lag_records is None else (facts.lag_records, "record")
    return counted(count, noun)


def _span(milliseconds: float) -> str:
    """Returns a duration for people.

    >>> _span(850_000), _span(4_000), _span(200_000_000)
    ('14 min', '4 s', '55 h')
    """
    whole = int(milliseconds // 1000)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"
