"""A model in plain Python of what a log may hold after a crash (the promises of reliability 5).

A test reports to a `LogModel` the calls on a log and their acknowledgements. The model derives a `Promise`: the records that must
exist, and those that may exist, if the system stops now. A promise is an immutable value that checks the content of a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

PROCESS_DEATH: Final = "process death"
POWER_LOSS: Final = "power loss"


GAP: Final = None  # stands for an offset without a record


class Found(NamedTuple):
    """The content of a log.

    Attributes:
        start: log start offset.
        records: the record at each offset from `start` on, in any comparable form; `GAP` for an offset without a record.
    """

    start: int
    records: tuple[object, ...]

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.start + len(self.records)


@dataclass(frozen=True)
class Promise:
    """The guarantees of a log if the system stops now. Ends are exclusive offsets.

    Attributes:
        records: all records that may exist, from offset 0 on.
        first_start, last_start: bounds of the log start offset.
        survives_death: lower bound of the log's end after its process is killed.
        survives_power_loss: lower bound of the log's end after a power loss.
        droppable: offsets whose records compaction may have removed.

    >>> promise = Promise(records=(b"a", b"b", b"c"), survives_death=2, survives_power_loss=1)
    >>> promise.problems(Found(0, (b"a", b"b")), PROCESS_DEATH)
    []
    >>> promise.problems(Found(0, (b"a",)), PROCESS_DEATH)
    ['the log ends at offset 1; all records before offset 2 were promised']
    """

    records: tuple[object, ...] = ()
    first_start: int = 0
    last_start: int = 0
    survives_death: int = 0
    survives_power_loss: int = 0
    droppable: frozenset[int] = frozenset()

    def problems(self, found: Found, after: str) -> list[str]:
        """Returns sentences on what violates the promise after `PROCESS_DEATH` or `POWER_LOSS`; an empty list if nothing does."""
        promised = self.survives_power_loss if after == POWER_LOSS else self.survives_death
        found_problems = []
        if not self.first_start <= found.start <= self.last_start:
            found_problems.append(f"the log starts at offset {found.start}, not between {self.first_start} and {self.last_start}")
        if found.end < promised:
            found_problems.append(f"the log ends at offset {found.end}; all records before offset {promised} were promised")
        return found_problems + self._strangers(found)

    def _strangers(self, found: Found) -> list[str]:
        """Returns a sentence on the first record that was not appended at its offset."""
        if found.end > len(self.records):
            return [f"the log ends at offset {found.end}; no record was appended at or after offset {len(self.records)}"]
        kept = [pair for pair in enumerate(found.records, found.start) if pair[1] is not GAP or pair[0] not in self.droppable]
        wrong = [offset for offset, record in kept if self.records[offset] != record]
        return [f"offset {wrong[0]} has another record than the one appended there"] if wrong else []

    def after(self, crash: str) -> Promise:
        """Returns the promise after a crash. A power loss ends the guarantees for records that were not synced."""
        return replace(self, survives_death=self.survives_power_loss) if crash == POWER_LOSS else self

    def adopted(self, found: Found, after: str) -> Promise:
        """Returns the promise of a log that was opened after a crash: its content stays, and other records do not return.

        After a power loss, the content is on the disk. After a process was killed, it may be only in the page cache.
        """
        survives = found.end if after == POWER_LOSS else min(self.survives_power_loss, found.end)
        return Promise(self.records[: found.end], found.start, found.start, found.end, survives, self.droppable)


class LogModel:
    """Tracks a log. Report each operation twice: when it is requested, and when it is acknowledged.

    Attributes:
        promise: the current guarantees.

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
        """The end of the log if all requested records exist."""
        return len(self.promise.records)

    def append(self, records: Sequence[object]) -> None:
        """Notes that records are requested at the end of the log."""
        self.promise = replace(self.promise, records=(*self.promise.records, *records))

    def refused(self, end: int) -> None:
        """Notes that the last append failed and was truncated at `end`. Its records do not return."""
        self.promise = replace(self.promise, records=self.promise.records[:end])

    def acknowledge(self, *, durable: bool) -> None:
        """Notes that all appends are acknowledged. `durable` means a durability that survives a power loss."""
        survives = self.end if durable else self.promise.survives_power_loss
        self.promise = replace(self.promise, survives_death=self.end, survives_power_loss=survives)

    def flushed(self, end: int) -> None:
        """Notes that the log reported everything before `end` as durable."""
        self.promise = replace(self.promise, survives_power_loss=max(end, self.promise.survives_power_loss))

    def truncate(self, end: int) -> None:
        """Notes that a truncation to `end` is requested. Until it is acknowledged, any end at or after `end` is valid."""
        promise = self.promise
        self.promise = replace(
            promise,
            survives_death=min(end, promise.survives_death),
            survives_power_loss=min(end, promise.survives_power_loss),
        )

    def truncated(self, end: int) -> None:
        """Notes that a truncation is acknowledged. Records at or after `end` never return, and those before it are durable.

        A truncation at the end of the log does nothing, so it makes nothing durable.

        >>> model = LogModel()
        >>> model.append([b"a", b"b"])
        >>> model.truncated(2)
        >>> model.promise.survives_power_loss
        0
        """
        if end == self.end:
            return
        droppable = frozenset(offset for offset in self.promise.droppable if offset < end)
        ends = {"survives_death": end, "survives_power_loss": end}
        self.promise = replace(self.promise, records=self.promise.records[:end], droppable=droppable, **ends)

    def delete(self, before: int) -> None:
        """Notes that the deletion of records before an offset is requested, or that retention may delete them."""
        self.promise = replace(self.promise, last_start=max(before, self.promise.last_start))

    def deleted(self, before: int) -> None:
        """Notes that a deletion is acknowledged. Records before `before` never return."""
        self.promise = replace(self.promise, first_start=before, last_start=before)

    def compact(self, superseded: Iterable[int]) -> None:
        """Notes that a compaction is requested. It may remove the records at these offsets and no others.

        >>> model = LogModel()
        >>> model.append([b"a", b"b"])
        >>> model.compact([0])
        >>> model.promise.problems(Found(0, (GAP, b"b")), PROCESS_DEATH)
        []
        >>> model.promise.problems(Found(0, (b"a", GAP)), PROCESS_DEATH)
        ['offset 1 has another record than the one appended there']
        """
        self.promise = replace(self.promise, droppable=self.promise.droppable | set(superseded))
