"""What a log may hold after a crash, said in plain Python (the promises of reliability 5).

A `LogModel` is told what is asked of a log and what the log acknowledges, and knows from that, at every moment, a `Promise`:
what must be there if the system stops now, and what may be there. A promise is a value; it judges what was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

PROCESS_DEATH: Final = "process death"
POWER_LOSS: Final = "power loss"


GAP: Final = None  # at an offset that has no record


class Found(NamedTuple):
    """What a log holds.

    Attributes:
        start: its first offset.
        records: what is at each offset from there on, in any form that can be compared; `GAP` where there is nothing.
    """

    start: int
    records: tuple[object, ...]

    @property
    def end(self) -> int:
        """The offset that the next record would get."""
        return self.start + len(self.records)


@dataclass(frozen=True)
class Promise:
    """What holds of a log if the system stops now. Offsets; ends are exclusive.

    Attributes:
        records: everything that may be there, from offset 0 on.
        first_start, last_start: between them the log's start lies.
        survives_death: the log's end after the death of its process is at least this.
        survives_power_loss: the same after a loss of power.
        droppable: offsets whose records compaction may have dropped.

    >>> promise = Promise(records=(b"a", b"b", b"c"), survives_death=2, survives_power_loss=1)
    >>> promise.problems(Found(0, (b"a", b"b")), PROCESS_DEATH)
    []
    >>> promise.problems(Found(0, (b"a",)), PROCESS_DEATH)
    ['the log ends at offset 1, and all before 2 was promised']
    """

    records: tuple[object, ...] = ()
    first_start: int = 0
    last_start: int = 0
    survives_death: int = 0
    survives_power_loss: int = 0
    droppable: frozenset[int] = frozenset()

    def problems(self, found: Found, after: str) -> list[str]:
        """What is wrong with what was found after `PROCESS_DEATH` or `POWER_LOSS`, in sentences; nothing if all is well."""
        promised = self.survives_power_loss if after == POWER_LOSS else self.survives_death
        told = []
        if not self.first_start <= found.start <= self.last_start:
            told.append(f"the log starts at offset {found.start}, not from {self.first_start} to {self.last_start}")
        if found.end < promised:
            told.append(f"the log ends at offset {found.end}, and all before {promised} was promised")
        return told + self._strangers(found)

    def _strangers(self, found: Found) -> list[str]:
        """Records that nobody appended there."""
        if found.end > len(self.records):
            return [f"the log ends at offset {found.end}, and nothing at or behind {len(self.records)} was appended"]
        there = [pair for pair in enumerate(found.records, found.start) if pair[1] is not GAP or pair[0] not in self.droppable]
        wrong = [offset for offset, record in there if self.records[offset] != record]
        return [f"offset {wrong[0]} holds another record than was appended there"] if wrong else []

    def after(self, crash: str) -> Promise:
        """What is left of the promise when a crash has happened: what a loss of power may take is not promised any more."""
        return replace(self, survives_death=self.survives_power_loss) if crash == POWER_LOSS else self

    def adopted(self, found: Found, after: str) -> Promise:
        """The promise of a log that was opened after a crash: what was found stays, and nothing else comes back.

        After a loss of power all that was found is on the disk; after the death of a process it may still be in memory only.
        """
        survives = found.end if after == POWER_LOSS else min(self.survives_power_loss, found.end)
        return Promise(self.records[: found.end], found.start, found.start, found.end, survives, self.droppable)


class LogModel:
    """Follows a log. Each operation is told twice: when it is asked for, and when it is acknowledged.

    Attributes:
        promise: what holds now.

    >>> model = LogModel()
    >>> model.append([b"a", b"b"])
    >>> model.promise.records, model.promise.survives_power_loss
    ((b'a', b'b'), 0)
    >>> model.acknowledge(durable=True)
    >>> model.promise.survives_power_loss
    2
    """

    def __init__(self, promise: Promise | None = None) -> None:
        self.promise = Promise() if promise is None else promise

    @property
    def end(self) -> int:
        """The end of the log if all that was asked for is there."""
        return len(self.promise.records)

    def append(self, records: Sequence[object]) -> None:
        """Some records were asked for, behind all others."""
        self.promise = replace(self.promise, records=(*self.promise.records, *records))

    def refused(self, end: int) -> None:
        """The last append failed, and what it had written from `end` on was cut off again: none of it comes back."""
        self.promise = replace(self.promise, records=self.promise.records[:end])

    def acknowledge(self, *, durable: bool) -> None:
        """All that was appended is acknowledged; `durable`: at a level that outlives a loss of power."""
        survives = self.end if durable else self.promise.survives_power_loss
        self.promise = replace(self.promise, survives_death=self.end, survives_power_loss=survives)

    def flushed(self, end: int) -> None:
        """Everything before `end` was said to be durable."""
        self.promise = replace(self.promise, survives_power_loss=max(end, self.promise.survives_power_loss))

    def truncate(self, end: int) -> None:
        """A truncation to `end` was asked for: any end from there on is right until it is acknowledged."""
        promise = self.promise
        self.promise = replace(
            promise,
            survives_death=min(end, promise.survives_death),
            survives_power_loss=min(end, promise.survives_power_loss),
        )

    def truncated(self, end: int) -> None:
        """A truncation is acknowledged: what was behind `end` never comes back, what is before it is durable."""
        droppable = frozenset(offset for offset in self.promise.droppable if offset < end)
        ends = {"survives_death": end, "survives_power_loss": end}
        self.promise = replace(self.promise, records=self.promise.records[:end], droppable=droppable, **ends)

    def delete(self, before: int) -> None:
        """The deletion of records before an offset was asked for, or retention may delete them."""
        self.promise = replace(self.promise, last_start=max(before, self.promise.last_start))

    def deleted(self, before: int) -> None:
        """A deletion is acknowledged: nothing before `before` comes back."""
        self.promise = replace(self.promise, first_start=before, last_start=before)

    def compact(self, superseded: Iterable[int]) -> None:
        """A compaction was asked for: it may drop the records at these offsets, and no other one.

        >>> model = LogModel()
        >>> model.append([b"a", b"b"])
        >>> model.compact([0])
        >>> model.promise.problems(Found(0, (GAP, b"b")), PROCESS_DEATH)
        []
        >>> model.promise.problems(Found(0, (b"a", GAP)), PROCESS_DEATH)
        ['offset 1 holds another record than was appended there']
        """
        self.promise = replace(self.promise, droppable=self.promise.droppable | set(superseded))
