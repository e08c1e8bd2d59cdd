"""What must hold of a log that several processes append to, cut and read, while they die and the power fails.

A `Ledger` is told what is asked for, what is acknowledged and what is seen, and raises a `ViolationError` when that cannot be: a
record that is lost, moved, doubled, or back again, half of a call, an offset with two contents. It allows what reliability 5 and
11 allow, and no more. Time is the number of things that it was told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Records = Sequence[tuple[int, str]]  # offsets and names: no two records of a run have the same name


class ViolationError(AssertionError):
    """A broken promise."""


@dataclass(eq=False)
class Attempt:
    """A call to append.

    Attributes:
        names: of its records.
        soft: whether a loss of power may take them.
        begun, ended: when; `ended` is None while it is under way.
        doubtful: it has ended, and nobody was told how.
    """

    names: tuple[str, ...]
    soft: bool
    begun: int
    ended: int | None = None
    doubtful: bool = False


@dataclass(eq=False)
class Cut:
    """A truncation.

    Attributes:
        end: that it cuts to.
        begun, ended: when; `ended` is None until it is acknowledged.
        active: whether its process is at it.
    """

    end: int
    begun: int
    ended: int | None = None
    active: bool = True


@dataclass
class Entry:
    """What is known to be at an offset, since when, and whether it may have been cut off or lost since."""

    name: str
    time: int
    maybe: bool


class Ledger:
    """What must hold of one log.

    Attributes:
        acknowledged: whoever looks sees at least so far.
        promised: the log reaches at least so far: what was only seen is there too.
        safe: the same, also after a loss of power.
        first_start, last_start: between them the log starts: deletions were acknowledged, or asked for.

    >>> ledger = Ledger()
    >>> ledger.acknowledge(ledger.begin(("a", "b"), soft=False), 0)
    >>> ledger.acknowledge(ledger.begin(("c",), soft=True), 2)
    >>> ledger.see([(0, "a"), (1, "b"), (2, "c")], ledger.tick())
    >>> ledger.promised, ledger.safe
    (3, 2)
    """

    def __init__(self) -> None:
        self.acknowledged = self.promised = self.safe = 0
        self.first_start = self.last_start = 0
        self._now = 0
        self._at: dict[int, Entry] = {}
        self._place: dict[str, int] = {}
        self._limit: dict[str, int] = {}  # a record can only be below that offset
        self._gone: dict[str, int] = {}  # when a record was taken from the log
        self._attempts: dict[str, Attempt] = {}
        self._cuts: list[Cut] = []
        self._compacted = 0
        self._shaken = 0  # when it became doubtful last what is known
        self._lost = False  # the power was lost, and nobody has recovered the log yet

    def tick(self) -> int:
        """The time now, before something begins."""
        self._now += 1
        return self._now

    # ---- appends -------------------------------------------------------------------------------------------------------------

    def begin(self, names: tuple[str, ...], *, soft: bool) -> Attempt:
        """Records are about to be appended in one call."""
        attempt = Attempt(names, soft, self.tick())
        self._attempts.update(dict.fromkeys(names, attempt))
        return attempt

    def acknowledge(self, attempt: Attempt, offset: int) -> None:
        """They were acknowledged, from an offset on. What is in doubt since before the call is below it, or nowhere."""
        attempt.ended = self.tick()
        self._settle_doubts(attempt.begun, offset)
        for number, name in enumerate(attempt.names, offset):
            if not self._was_cut_off(number, name, attempt.begun):
                self._put(number, name, attempt.begun)
        end = offset + len(attempt.names)
        self._promise(end, attempt.begun, safe=not attempt.soft)
        self.acknowledged = max(self.acknowledged, min(end, self.promised))

    def refuse(self, attempt: Attempt, offset: int) -> None:
        """They were refused: nothing of them is at or behind an offset, now or later."""
        attempt.ended = self.tick()
        self._bound(attempt, offset)

    def leave_open(self, attempt: Attempt) -> None:
        """Nobody knows: the process died, or its sync failed."""
        attempt.ended, attempt.doubtful = self.tick(), True

    def _settle_doubts(self, before: int, offset: int) -> None:
        for attempt in set(self._attempts.values()):
            if attempt.doubtful and attempt.ended is not None and attempt.ended < before:
                self._bound(attempt, offset)

    def _bound(self, attempt: Attempt, offset: int) -> None:
        for name in attempt.names:
            if name not in self._place:
                self._limit[name] = min(offset, self._limit.get(name, offset))

    def _was_cut_off(self, offset: int, name: str, since: int) -> bool:
        """Whether a record was cut off before its writer was told that it is there."""
        known = self._at.get(offset)
        if known is None or known.maybe or known.name == name or not self._is_cut(offset, since):
            return False
        self._limit[name], self._gone[name] = 0, self._now
        return True

    # ---- what takes records --------------------------------------------------------------------------------------------------

    def begin_cut(self, end: int) -> Cut:
        """Records from an offset on are about to be cut off."""
        cut = Cut(end, self.tick())
        self._cuts.append(cut)
        self._shake(end)
        return cut

    def end_cut(self, cut: Cut) -> None:
        """They are: what was there before never comes back."""
        cut.active, cut.ended = False, self.tick()
        for offset, entry in list(self._at.items()):
            if offset >= cut.end and entry.maybe and entry.time < cut.begun:
                self._drop(offset)
        self._settle_doubts(cut.begun, cut.end)

    def cancel_cut(self, cut: Cut) -> None:
        """They were not."""
        self._cuts.remove(cut)

    def may_have_cut(self, since: int) -> bool:
        """Whether a truncation may have taken effect after some moment; one whose process died may still do so."""
        return any(cut.ended is None or cut.ended >= since for cut in self._cuts)

    def _ends_of_cuts(self, since: int) -> list[int]:
        """Of the truncations that were under way after some moment."""
        return [cut.end for cut in self._cuts if cut.active or (cut.ended is not None and cut.ended >= since)]

    def _is_cut(self, offset: int, since: int) -> bool:
        return any(offset >= end for end in self._ends_of_cuts(since))

    def delete(self, before: int) -> None:
        """Records below an offset are about to be deleted."""
        self.last_start = max(self.last_start, before)

    def deleted(self, start: int) -> None:
        """They are: the log starts there."""
        self.first_start = max(self.first_start, start)

    def compacted(self, offset: int) -> None:
        """Records below an offset may be missing."""
        self._compacted = offset

    def lose_power(self) -> None:
        """The power was lost."""
        self.tick()
        self._lost = True
        self._shake(self.safe)

    def _shake(self, end: int) -> None:
        """What is known from an offset on is not sure any more."""
        self._shaken = self._now
        self.safe, self.promised, self.acknowledged = (min(end, x) for x in (self.safe, self.promised, self.acknowledged))
        for offset, entry in self._at.items():
            entry.maybe |= offset >= end

    def _drop(self, offset: int) -> None:
        name = self._at.pop(offset).name
        self._place.pop(name)
        self._limit[name], self._gone[name] = 0, self._now

    # ---- what is seen --------------------------------------------------------------------------------------------------------

    def check_offsets(self, records: Records, first: int, end: int) -> None:
        """What was read is all from an offset to before another one."""
        offsets = [offset for offset, _ in records]
        wanted = [offset for offset in range(first, end) if offset in offsets or offset >= self._compacted]
        if offsets != wanted:
            raise ViolationError(f"offsets {offsets} are read, and should be from {first} to before {end}")

    def see(self, records: Records, since: int, *, durable: bool = False) -> None:
        """Somebody read records; his look began at a time."""
        self.tick()
        for offset, name in records:
            self._put(offset, name, since)
            self._promise(offset + 1, since, safe=durable or not self._attempts[name].soft)

    def load(self, records: Records, end: int, since: int) -> None:
        """A writer has opened the log: after a loss of power this is what is left."""
        self.see(records, since)
        if not self._lost:
            return
        self._lost = False
        for offset in [offset for offset in self._at if offset >= end]:
            self._drop(offset)
        for attempt in set(self._attempts.values()):
            if attempt.ended is not None:
                self._bound(attempt, 0)

    def durable(self, end: int, since: int) -> None:
        """A log said that records below are durable."""
        self._promise(min(end, self.promised), since, safe=True)

    def _promise(self, end: int, since: int, *, safe: bool) -> None:
        ends = self._ends_of_cuts(since)
        if not ends and since < self._shaken:
            return
        self.promised = max(self.promised, min([end, *ends]))
        if safe:
            self.safe = max(self.safe, min([end, *ends]))

    def _put(self, offset: int, name: str, since: int) -> None:
        """A record is at an offset."""
        known, cut = self._at.get(offset), self._is_cut(offset, since)
        if known is not None and known.name == name:
            known.maybe &= cut or since < self._shaken
        elif self._gone.get(name, -1) < since:  # else it was read before it went
            self._check(offset, name)
            if known is not None and not known.maybe and not cut:
                raise ViolationError(f"{name!r} is at {offset}, where {known.name!r} was")
            for other in [other for other, entry in self._at.items() if known and other >= offset and entry.maybe]:
                self._drop(other)
            self._at[offset], self._place[name] = Entry(name, self._now, cut), offset

    def _check(self, offset: int, name: str) -> None:
        """Raises when a record cannot be at an offset."""
        if name not in self._attempts:
            raise ViolationError(f"{name!r} at {offset} was never appended")
        if offset >= self._limit.get(name, offset + 1):
            raise ViolationError(
                f"{name!r} came back at {offset}: it was refused, cut off or lost, or others were appended since"
            )
        if name in self._place:
            raise ViolationError(f"{name!r} is at {offset}, and was at {self._place[name]}")
        names = self._attempts[name].names
        first = offset - names.index(name)
        for other, beside in enumerate(names, first):
            if self._place.get(beside, other) != other:
                raise ViolationError(f"{name!r} is at {offset}, {beside!r} of the same call at {self._place[beside]}")
            before = self._at.get(other)
            if other < offset and before is not None and before.name != beside and not before.maybe:
                raise ViolationError(
                    f"{name!r} is at {offset} without {beside!r} of the same call before it, but {before.name!r}"
                )
