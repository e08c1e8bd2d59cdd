"""Judges what several processes saw of a partitioned log: the ideas of Jepsen's test of Kafka, on a log that is never cut.

A history is what each process called, when, and what came back. Nothing is known of how the log is built: an anomaly is something
that no log can do in which every record has one place for ever, appends happen at one moment between their call and their return,
and readers see a prefix. Times are of one clock for all processes.

A record is known by a value that is appended once only. An append whose outcome is unknown (`INFO`: its process died) may have
happened in full, in part (its first records) or not at all.
"""

from __future__ import annotations

import bisect
import enum
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

NEVER = 1 << 62  # when an operation ended that never came back


class Outcome(enum.Enum):
    """How a call ended."""

    OK = "ok"  # it returned
    FAIL = "fail"  # it raised, and promised that nothing happened
    INFO = "info"  # nothing is known


class Append(NamedTuple):
    """A call that appends records.

    Attributes:
        process: who called; a process has one call under way at a time.
        partition: of the log.
        values: in order, each unique in the history.
        invoked, completed: when. A call that did not come back was over when its process was dead; `NEVER` if that is not known.
        outcome: how it ended.
        offset: of the first record, where the call told; the others follow without a gap.
    """

    process: str
    partition: int
    values: Sequence[int]
    invoked: int
    completed: int = NEVER
    outcome: Outcome = Outcome.INFO
    offset: int | None = None


class Read(NamedTuple):
    """A call that reads records.

    Attributes:
        process: who called.
        partition: of the log.
        records: (offset, value) as they came.
        invoked, completed: when.
        start: the offset asked for; None goes on behind the last record of the same process' previous read.
        to_end: the call promised everything that was there when it began.
    """

    process: str
    partition: int
    records: Sequence[tuple[int, int]]
    invoked: int
    completed: int
    start: int | None = None
    to_end: bool = False


Operation = Append | Read


class Anomaly(NamedTuple):
    """Something that the log should not have done.

    Attributes:
        kind: which of the sorts that `check` names.
        partition, offset: where.
        message: the evidence, in a sentence.
    """

    kind: str
    partition: int
    offset: int
    message: str


def check(history: Iterable[Operation]) -> list[Anomaly]:
    """The anomalies of a history, at most a few of each sort for each cause.

    Their sorts: `lost write` (acknowledged, and never seen where somebody looked), `gap` (a reader skipped a record that is
    known), `stale read` (a reader that went to the end missed what was known when it began), `duplicate` (a value at two
    offsets), `inconsistent offset` (an offset with two values), `reordered` (an append that began when another one was over
    stands before it), `non-monotone append` (the same within one writer), `torn append` (the records of one call are not in a
    row), `non-monotone read`, `phantom` (a value that nobody had appended yet), `aborted read` (a value whose append failed).

    Cost: some 2 µs a record.
    """
    partitions: dict[int, list[Operation]] = defaultdict(list)
    for operation in history:
        partitions[operation.partition].append(operation)
    found = [anomaly for number, operations in partitions.items() for anomaly in _Partition(number, operations).anomalies()]
    return found + list(_across_partitions(partitions))


def _across_partitions(partitions: dict[int, list[Operation]]) -> Iterator[Anomaly]:
    """Values that turn up in another partition than the one they were appended to."""
    home = {value: number for number, operations in partitions.items() for value in _appended(operations)}
    for number, operations in partitions.items():
        for read in _reads(operations):
            for offset, value in read.records:
                if home.get(value, number) != number:
                    yield Anomaly("duplicate", number, offset, f"value {value} of partition {home[value]} was read here")


def _appended(operations: Iterable[Operation]) -> Iterator[int]:
    return itertools.chain.from_iterable(each.values for each in operations if isinstance(each, Append))


def _reads(operations: Iterable[Operation]) -> Iterator[Read]:
    return (each for each in operations if isinstance(each, Read))


@dataclass(frozen=True)
class _Place:
    """Where a value stands, by the first word of it; and when that word was out."""

    offset: int
    since: int


class _Partition:
    """One partition's operations, and what follows from them."""

    def __init__(self, number: int, operations: Sequence[Operation]) -> None:
        self._number = number
        self._appends = sorted((each for each in operations if isinstance(each, Append)), key=lambda each: each.invoked)
        self._reads = sorted(_reads(operations), key=lambda each: each.invoked)
        self._append_of = {value: append for append in self._appends for value in append.values}
        self._places: dict[int, _Place] = {}  # of each value
        self._values: dict[int, int] = {}  # at each offset
        self._seen = {value for read in self._reads for _, value in read.records}

    def anomalies(self) -> Iterator[Anomaly]:
        yield from self._contradictions()
        yield from self._strangers()
        yield from self._torn_appends()
        yield from self._order_of_appends()
        yield from self._reading()

    def _anomaly(self, kind: str, offset: int, message: str) -> Anomaly:
        return Anomaly(kind, self._number, offset, message)

    # ---- one place for each value, one value for each place ------------------------------------------------------------------

    def _told(self) -> Iterator[tuple[int, int, int, str]]:
        """Every word on what stands where: offset, value, when it was out, who said so."""
        for append in self._appends:
            if append.outcome is Outcome.OK and append.offset is not None:
                for offset, value in enumerate(append.values, append.offset):
                    yield offset, value, append.completed, append.process
        for read in self._reads:
            for offset, value in read.records:
                yield offset, value, read.completed, read.process

    def _contradictions(self) -> Iterator[Anomaly]:
        for offset, value, time, who in self._told():
            place = self._places.get(value)
            if place is None or time < place.since:
                self._places[value] = _Place(offset if place is None else place.offset, time)
            if place is not None and place.offset != offset:
                yield self._anomaly("duplicate", offset, f"value {value} is at offset {place.offset}, and at {offset} for {who}")
            other = self._values.setdefault(offset, value)
            if other != value:
                yield self._anomaly("inconsistent offset", offset, f"offset {offset} has value {other}, and {value} for {who}")

    def _strangers(self) -> Iterator[Anomaly]:
        """Values that were read and that nobody wrote: never, not yet, or not after all."""
        for read in self._reads:
            for offset, value in read.records:
                append = self._append_of.get(value)
                if append is None or append.invoked > read.completed:
                    yield self._anomaly("phantom", offset, f"{read.process} read value {value}, which nobody had appended")
                elif append.outcome is Outcome.FAIL:
                    yield self._anomaly("aborted read", offset, f"{read.process} read value {value}, whose append failed")

    # ---- appends -------------------------------------------------------------------------------------------------------------

    def _known(self, append: Append) -> list[tuple[int, int]]:
        """The places of a call's values that are known: (index in the call, offset)."""
        places = enumerate(map(self._places.get, append.values))
        return [(index, place.offset) for index, place in places if place is not None]

    def _torn_appends(self) -> Iterator[Anomaly]:
        """A call's records stand in a row; if a later one is there, so are those before it."""
        for append in self._appends:
            known = self._known(append)
            if not known:
                continue
            last, offset = known[-1]
            for expected, value in enumerate(append.values[: last + 1], offset - last):
                place = self._places.get(value, _Place(expected, 0))
                if self._values.get(expected, value) != value or place.offset != expected:
                    message = f"value {value} of a call of {append.process} should stand at {expected}, as those behind it do"
                    yield self._anomaly("torn append", expected, message)

    def _order_of_appends(self) -> Iterator[Anomaly]:
        """An append that began when another had returned stands behind it."""
        over = sorted((each for each in self._appends if each.completed < NEVER), key=lambda each: each.completed)
        highest, before = -1, ""
        done = 0
        for append in self._appends:
            while done < len(over) and over[done].completed < append.invoked:
                last = max((offset for _, offset in self._known(over[done])), default=-1)
                highest, before = max((highest, before), (last, over[done].process))
                done += 1
            known = self._known(append)
            if known and known[0][1] < highest:
                kind = "non-monotone append" if before == append.process else "reordered"
                message = f"{append.process} appended at {known[0][1]} when a call of {before} had reached {highest} and was over"
                yield self._anomaly(kind, known[0][1], message)

    # ---- reads ---------------------------------------------------------------------------------------------------------------

    def _reading(self) -> Iterator[Anomaly]:
        known_ends = _KnownEnds(self._places.values())
        positions: dict[str, int] = {}
        for read in self._reads:
            position = positions.get(read.process) if read.start is None else read.start
            offsets = [offset for offset, _ in read.records]
            yield from self._backwards(read, position, offsets)
            start = position if position is not None else offsets[0] if offsets else 0
            last = max(offsets, default=start - 1)
            end = max(last + 1, known_ends.at(read.invoked)) if read.to_end else last + 1
            yield from self._missing(read, offsets, start, end, last)
            if offsets or read.start is not None:
                positions[read.process] = max(last + 1, start)

    def _backwards(self, read: Read, position: int | None, offsets: list[int]) -> Iterator[Anomaly]:
        before = -1 if position is None else position - 1
        for offset in offsets:
            if offset <= before:
                yield self._anomaly("non-monotone read", offset, f"{read.process} read offset {offset} at or behind {before}")
            before = offset

    def _missing(self, read: Read, offsets: list[int], start: int, end: int, last: int) -> Iterator[Anomaly]:
        """What a read passed over although it is known to be in the log."""
        if len(offsets) == end - start:  # the usual case: if it is not a row, that is found elsewhere
            return
        for offset in sorted(set(range(start, end)).difference(offsets)):
            value = self._values.get(offset)
            if value is None:
                continue
            kind = "stale read" if offset > last else "gap"
            if value not in self._seen:
                kind = "lost write"
            yield self._anomaly(kind, offset, f"{read.process} read from {start} to {last} and missed value {value} at {offset}")


class _KnownEnds:
    """How far the log was known to reach at any time."""

    def __init__(self, places: Iterable[_Place]) -> None:
        ordered = sorted(places, key=lambda place: place.since)
        self._times = [place.since for place in ordered]
        self._ends = list(itertools.accumulate((place.offset + 1 for place in ordered), max))

    def at(self, time: int) -> int:
        """The end behind everything that was known before a time."""
        index = bisect.bisect_left(self._times, time)
        return self._ends[index - 1] if index else 0
