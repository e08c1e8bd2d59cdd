"""Judges what several processes saw of transactions: the ideas of Jepsen's tests of Kafka and of its checker Elle.

A history has what each process called, when, and what came back. Each value is appended once. Nothing is known of the engine: an
anomaly is something that no implementation of the promises (transactions 1) can show. Times are of one clock for all processes.

Two transactions may interleave (G0): the checker counts that, and does not report it.
"""

from __future__ import annotations

import graphlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

NEVER: Final = 1 << 62  # time of what did not happen
Seen = tuple[int, int]  # offset, value


@dataclass(frozen=True)
class Transaction:
    """A transaction of a process.

    Attributes:
        process, transactional_id: who wrote it. Several processes may use an id, which then fence each other.
        number: rises with each transaction of an id. Taken after the id's `init`.
        values: by partition, in the order of their appends.
        invoked, deciding, completed: when it began, when `commit` or `abort` was called, and when the last call had returned or
            the process was dead.
        is_committed: True if `commit` returned, False if it was aborted or refused, None if that is not known.
        sends_offset: whether it commits its number as the offset of the id's group.
        offsets: by partition, those of the values that the process knows.
        open_at: by partition, when the process knew the offsets of its values there: from then on it is open there.
        polled: what it has read of committed records: partition, offset, value, and when.
    """

    process: str
    transactional_id: str
    number: int
    values: Mapping[int, Sequence[int]]
    invoked: int
    deciding: int = NEVER
    completed: int = NEVER
    is_committed: bool | None = None
    sends_offset: bool = False
    offsets: Mapping[int, Sequence[int]] = field(default_factory=dict)
    open_at: Mapping[int, int] = field(default_factory=dict)
    polled: Sequence[tuple[int, int, int, int]] = ()

    @property
    def name(self) -> str:
        return f"transaction {self.number} of {self.transactional_id!r} ({self.process})"


class Read(NamedTuple):
    """A call that has read a partition from an offset to its end, or to its stable offset if `is_committed`."""

    process: str
    partition: int
    start: int
    records: Sequence[Seen]
    invoked: int
    completed: int
    is_committed: bool = True


class Cut(NamedTuple):
    """A snapshot: the records of each partition from its start on, and the numbers that the groups of the ids have committed."""

    process: str
    starts: Mapping[int, int]
    records: Mapping[int, Sequence[Seen]]
    groups: Mapping[str, int]
    invoked: int
    completed: int


class Stable(NamedTuple):
    """A stable offset that a process was given."""

    process: str
    partition: int
    offset: int
    invoked: int
    completed: int


class Loss(NamedTuple):
    """Records that somebody has deleted, or was about to delete: those with offsets below `below`, or from `start` on."""

    partition: int
    below: int = 0
    start: int = NEVER


Operation = Transaction | Read | Cut | Stable | Loss


class Anomaly(NamedTuple):
    """Something that must not happen: its kind, and the evidence in a sentence."""

    kind: str
    message: str


def check(history: Iterable[Operation]) -> list[Anomaly]:
    """Returns the anomalies of a history.

    Their kinds: `phantom` (a value that nobody has appended), `duplicate` (a value at two offsets), `inconsistent offset` (two
    values at an offset), `dirty read` (committed reading of a transaction before its commit was called), `aborted read` (G1a),
    `intermediate read` (G1b: a part of a transaction within a partition), `circular read` (G1c), `skipped record`,
    `non-monotone read`, `partial snapshot`, `stale snapshot` (without a transaction that was committed before), `lost write`
    (in no later snapshot), `offset without output`, `output without offset`, `lost offset`, `fenced write` (an older transaction
    of an id after a newer one), `unstable offset` (a stable offset past an open transaction).
    """
    return list(_History(history).anomalies())


def interleaved(history: Iterable[Operation]) -> int:
    """Returns how many pairs of transactions are interleaved (G0): one is first in a partition, and the other one in another."""
    return _History(history).interleaved()


class _History:
    """The operations of a history, and what follows from them."""

    def __init__(self, history: Iterable[Operation]) -> None:
        operations = list(history)
        self._transactions = [each for each in operations if isinstance(each, Transaction)]
        self._reads = [each for each in operations if isinstance(each, Read)]
        self._cuts = sorted((each for each in operations if isinstance(each, Cut)), key=lambda cut: cut.invoked)
        self._stable = [each for each in operations if isinstance(each, Stable)]
        self._below: dict[int, int] = defaultdict(int)
        self._from: dict[int, int] = defaultdict(lambda: NEVER)
        for loss in operations:
            if isinstance(loss, Loss):
                self._below[loss.partition] = max(self._below[loss.partition], loss.below)
                self._from[loss.partition] = min(self._from[loss.partition], loss.start)
        self._of = {value: each for each in self._transactions for values in each.values.values() for value in values}
        self._home = {value: number for each in self._transactions for number, values in each.values.items() for value in values}
        self._places: dict[int, int] = {}  # value → offset
        self._faults = list(self._contradictions())
        self._committed = {each.number for each in self._transactions if each.is_committed}
        self._committed |= {self._of[seen].number for _, seen, _, _ in self._committed_views() if seen in self._of}

    def anomalies(self) -> Iterator[Anomaly]:
        yield from self._faults
        yield from self._undecided_reads()
        for read in self._reads:
            yield from self._in_order(read)
            if read.is_committed:
                yield from self._skipped(read)
        yield from self._circles()
        for cut in self._cuts:
            yield from self._of_cut(cut)
            yield from self._of_groups(cut)
        yield from self._lost()
        yield from self._fenced()
        yield from self._unstable()

    # ---- one place for each value, one value for each place ------------------------------------------------------------------

    def _words(self) -> Iterator[tuple[int, int, int, str]]:
        """Yields everything that was said of a place: partition, offset, value, by whom."""
        for each in self._transactions:
            for partition, offsets in each.offsets.items():
                yield from ((partition, *pair, each.process) for pair in zip(offsets, each.values[partition], strict=False))
            yield from ((partition, offset, value, each.process) for partition, offset, value, _ in each.polled)
        for read in self._reads:
            yield from ((read.partition, *seen, read.process) for seen in read.records)
        for cut in self._cuts:
            yield from ((number, *seen, cut.process) for number, records in cut.records.items() for seen in records)

    def _contradictions(self) -> Iterator[Anomaly]:
        values: dict[Seen, int] = {}
        for partition, offset, value, process in self._words():
            if self._home.get(value) != partition:
                kind = "phantom" if value not in self._home else "duplicate"
                yield Anomaly(kind, f"{process} found value {value} in partition {partition}, at offset {offset}")
                continue
            if offset >= self._from[partition]:
                continue  # a truncation gives offsets to other records
            known = self._places.setdefault(value, offset)
            if known != offset:
                yield Anomaly("duplicate", f"value {value} of partition {partition} is at {known}, and at {offset} for {process}")
            other = values.setdefault((partition, offset), value)
            if other != value:
                what = f"offset {offset} of partition {partition} has value {other}, and {value} for {process}"
                yield Anomaly("inconsistent offset", what)

    def _is_exempt(self, value: int) -> bool:
        """Returns whether a value may be missing because of a deletion."""
        partition, offset = self._home[value], self._places.get(value)
        if offset is None:
            return self._from[partition] != NEVER or self._below[partition] > 0
        return not self._below[partition] <= offset < self._from[partition]

    # ---- committed reading ---------------------------------------------------------------------------------------------------

    def _committed_views(self) -> Iterator[tuple[int, int, int, str]]:
        """Yields what committed reading has shown: partition, value, when, to whom."""
        for each in self._transactions:
            yield from ((partition, value, when, each.name) for partition, _, value, when in each.polled)
        for read in self._reads:
            if read.is_committed:
                yield from ((read.partition, value, read.completed, read.process) for _, value in read.records)
        for cut in self._cuts:
            for number, records in cut.records.items():
                yield from ((number, value, cut.completed, cut.process) for _, value in records)

    def _undecided_reads(self) -> Iterator[Anomaly]:
        for _, value, when, process in self._committed_views():
            of = self._of.get(value)
            if of is None:
                continue
            if of.is_committed is False:
                yield Anomaly("aborted read", f"{process} read value {value} of {of.name}, which was aborted")
            elif when < of.deciding:
                yield Anomaly("dirty read", f"{process} read value {value} of {of.name} before its commit")

    def _in_order(self, read: Read) -> Iterator[Anomaly]:
        before = read.start - 1
        for offset, value in read.records:
            if offset <= before:
                what = f"{read.process} read partition {read.partition} from {read.start}, and {value} at {offset} after {before}"
                yield Anomaly("non-monotone read", what)
            before = offset

    def _skipped(self, read: Read) -> Iterator[Anomaly]:
        """Yields what a read has passed over, and what it lacks of transactions that it has a part of.

        It may end within a transaction where another one begins, which is open: there the stable offset is.
        """
        seen = {value for _, value in read.records}
        last = max((offset for offset, _ in read.records), default=read.start - 1)
        parts = {self._of[value].number for value in seen if value in self._of}
        for each in self._transactions:
            if each.number not in self._committed:
                continue
            ends = last + 1
            for value in each.values.get(read.partition, ()):
                offset = self._places.get(value)
                if offset is None or offset < read.start or value in seen or self._is_exempt(value):
                    continue
                if each.number in parts and offset <= ends:
                    ends += offset == ends
                    yield Anomaly("intermediate read", f"{read.process} read a part of {each.name}, without value {value}")
                elif offset < last:
                    yield Anomaly("skipped record", f"{read.process} passed over value {value} of {each.name} at {offset}")

    def _circles(self) -> Iterator[Anomaly]:
        read_by: dict[int, set[int]] = {}
        for each in self._transactions:
            if each.number in self._committed:
                others = {self._of[value].number for _, _, value, _ in each.polled if value in self._of}
                read_by[each.number] = others & self._committed
        try:
            graphlib.TopologicalSorter(read_by).prepare()
        except graphlib.CycleError as error:
            yield Anomaly("circular read", f"each of these transactions has read what the next one wrote: {error.args[1]}")

    # ---- snapshots -----------------------------------------------------------------------------------------------------------

    def _required(self, each: Transaction, cut: Cut) -> list[int]:
        """Returns the values of a transaction that a snapshot has if it has the transaction."""
        return [
            value
            for partition, values in each.values.items()
            if partition in cut.records
            for value in values
            if not self._is_exempt(value) and self._places.get(value, NEVER) >= cut.starts[partition]
        ]

    def _of_cut(self, cut: Cut) -> Iterator[Anomaly]:
        seen = {value for records in cut.records.values() for _, value in records}
        for each in self._transactions:
            if each.number not in self._committed:
                continue
            required = self._required(each, cut)
            missing = [value for value in required if value not in seen]
            if not missing:
                continue
            if len(missing) < len(required):
                yield Anomaly("partial snapshot", f"{cut.process} found a part of {each.name}, without {missing[:9]}")
            elif each.is_committed and each.completed < cut.invoked:
                yield Anomaly("stale snapshot", f"{cut.process} found nothing of {each.name}, which was committed before")

    def _of_groups(self, cut: Cut) -> Iterator[Anomaly]:
        seen = {value for records in cut.records.values() for _, value in records}
        for each in self._transactions:
            if not each.sends_offset:
                continue
            position = cut.groups.get(each.transactional_id, -1)
            required = self._required(each, cut)
            if position == each.number:
                is_there = each.is_committed is not False and all(value in seen for value in required)
                if not is_there or cut.completed < each.deciding:
                    yield Anomaly("offset without output", f"{cut.process} found the offset of {each.name}, and not its records")
            elif position < each.number and any(value in seen for value in required):
                yield Anomaly("output without offset", f"{cut.process} found {each.name}, and the offset {position}")
            elif position < each.number and each.is_committed and each.completed < cut.invoked:
                yield Anomaly("lost offset", f"{cut.process} found the offset {position} after {each.name}")

    def _lost(self) -> Iterator[Anomaly]:
        """Yields what was committed and is in no snapshot that began later."""
        if not self._cuts:
            return
        last = self._cuts[-1]
        seen = {value for records in last.records.values() for _, value in records}
        for each in self._transactions:
            if each.is_committed and each.completed < last.invoked:
                lost = [
                    value
                    for values in each.values.values()
                    for value in values
                    if value not in seen and not self._is_exempt(value)
                ]
                if lost:
                    yield Anomaly("lost write", f"{each.name} was committed, and {lost[:9]} are gone")

    # ---- ids and stable offsets ----------------------------------------------------------------------------------------------

    def _fenced(self) -> Iterator[Anomaly]:
        by_id: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
        for value, offset in self._places.items():
            of = self._of[value]
            if of.number in self._committed:
                partition = self._home[value]
                by_id[of.transactional_id, partition].append((offset, of.number, list(of.values[partition]).index(value)))
        for (name, partition), found in by_id.items():
            for (_, *before), (offset, *after) in itertools.pairwise(sorted(found)):
                if after < before:
                    what = f"in partition {partition}, {after} of {name!r} at {offset} follows {before}"
                    yield Anomaly("fenced write", f"{what} (number of the transaction, index of the record)")

    def _unstable(self) -> Iterator[Anomaly]:
        users: dict[str, set[str]] = defaultdict(set)
        for each in self._transactions:
            users[each.transactional_id].add(each.process)
        for stable in self._stable:
            for each in self._transactions:
                offsets, since = each.offsets.get(stable.partition), each.open_at.get(stable.partition, NEVER)
                is_open = since < stable.invoked and stable.completed < min(each.deciding, each.completed)
                if offsets and is_open and len(users[each.transactional_id]) == 1 and stable.offset > offsets[0]:
                    what = f"{stable.process} found the stable offset {stable.offset} of partition {stable.partition}"
                    yield Anomaly("unstable offset", f"{what}, where {each.name} was open from {offsets[0]} on")

    def interleaved(self) -> int:
        first: dict[int, dict[int, int]] = defaultdict(dict)
        for each in self._transactions:
            for partition, values in each.values.items():
                offsets = [self._places[value] for value in values if value in self._places]
                if offsets and each.number in self._committed:
                    first[each.number][partition] = min(offsets)
        count = 0
        for one, other in itertools.combinations([offsets for offsets in first.values() if len(offsets) > 1], 2):
            common = one.keys() & other.keys()
            count += len({one[partition] < other[partition] for partition in common}) > 1
        return count
