"""The logs of the model of transactions: what they say, and what pylog or a broker makes of them when it opens the directory.

`T` is the state of a transactional id; `D0` has outputs, `D1` the offsets of a consumer. Each log has a durable end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

Entry = tuple[str, int, int, int]  # "data", "C"ommit, "A"bort or "own"; producer, epoch, the value or the new owner
Record = tuple[str, int, tuple[int, ...]]  # state, epoch, partitions
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT = "Empty", "Ongoing", "PrepareCommit", "PrepareAbort"
COMPLETE_COMMIT, COMPLETE_ABORT = "CompleteCommit", "CompleteAbort"
PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
AT_REST = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
BOTH = (0, 1)


class StateLog(NamedTuple):
    """T of one id: its records, and how many of them are durable."""

    entries: tuple[Record, ...] = ()
    durable: int = 0

    @property
    def last(self) -> Record | None:
        return self.entries[-1] if self.entries else None

    def plus(self, *records: Record) -> StateLog:
        return StateLog(self.entries + records, self.durable)

    def synced(self) -> StateLog:
        return StateLog(self.entries, len(self.entries))

    def cut(self, end: int) -> StateLog:
        return StateLog(self.entries[:end], end)


class DataLog(NamedTuple):
    """A partition: batches and markers, how many are durable, the process with its lock, what its producer state forgot."""

    entries: tuple[Entry, ...] = ()
    durable: int = 0
    holder: int = -1
    forgotten: int = 0

    def plus(self, *entries: Entry) -> DataLog:
        return self._replace(entries=self.entries + entries)

    def synced(self) -> DataLog:
        return self._replace(durable=len(self.entries))

    def cut(self, end: int) -> DataLog:
        return DataLog(self.entries[:end], end)

    @property
    def producers(self) -> Fold:
        """What its producer state has, which may have forgotten idle producers."""
        return fold(self.entries, self.forgotten)

    @property
    def all(self) -> Fold:
        return fold(self.entries)


class Fold(NamedTuple):
    """Epochs by producer, open transactions as indices of batches, the outcome of each batch, the owner, the stable offset."""

    epochs: dict[int, int]
    open: dict[int, list[int]]
    outcomes: dict[int, str]
    owner: int | None
    stable: int


@lru_cache(None)
def fold(entries: tuple[Entry, ...], forgotten: int = 0) -> Fold:
    """What a log's entries say."""
    epochs: dict[int, int] = {}
    opened: dict[int, list[int]] = {}
    outcomes: dict[int, str] = {}
    owner = None
    for number, (kind, producer, epoch, value) in enumerate(entries):
        if kind == "own":
            owner = value
            continue
        if kind == "data":
            opened.setdefault(producer, []).append(number)
        else:
            outcomes.update(dict.fromkeys(opened.pop(producer, ()), kind))
        if number >= forgotten or producer in opened:
            epochs[producer] = epoch
    return Fold(epochs, opened, outcomes, owner, min((batches[0] for batches in opened.values()), default=len(entries)))


def committed(entries: tuple[Entry, ...]) -> list[int]:
    """The values that were committed, in the order of the log."""
    outcomes = fold(entries).outcomes
    return [entries[number][3] for number in sorted(outcomes) if outcomes[number] == "C"]


def offset_of(entries: tuple[Entry, ...]) -> int:
    """The committed offset: that of the last record that counts."""
    return max((value + 1 for value in committed(entries)[-1:]), default=0)


def orphans_epoch(log: DataLog, t: StateLog, producer: int, rules: frozenset[str]) -> int:
    """The epoch of the marker that ends an orphan."""
    epoch = log.all.epochs[producer]
    if "orphan's next epoch" in rules:
        return epoch + 1
    return max(epoch, t.last[1] if t.last else 0)


def marked(log: DataLog, producer: int, kind: str, epoch: int, rules: frozenset[str]) -> DataLog:
    """A partition after a finisher has had its turn under the lock; the same object if it needs no marker."""
    opened = log.producers.open
    if producer not in opened:
        return log
    theirs, own = log.entries[opened[producer][-1]][2], epoch - int("new epoch each" in rules)
    if theirs > own and "older only" in rules:
        return log
    if theirs < own and "own only" in rules:
        return log.plus(("A", producer, theirs + 1, -1))
    return log.plus((kind, producer, epoch, -1))


def completed(record: Record) -> Record:
    """The record after a Prepare."""
    return (COMPLETE_COMMIT if record[0] == PREPARE_COMMIT else COMPLETE_ABORT, record[1], ())


def marker_of(record: Record) -> str:
    return "C" if record[0] == PREPARE_COMMIT else "A"


# ---- the end: everybody is dead, and pylog or a broker opens the directory -----------------------------------------------------

States = tuple[StateLog, ...]
Data = tuple[DataLog, ...]


def _decided(record: Record) -> Record:
    """A transaction that is open is aborted."""
    return (PREPARE_ABORT, record[1] + 1, record[2]) if record[0] == ONGOING else record


def pylog_opens(states: States, data: Data, rules: frozenset[str]) -> tuple[States, Data]:
    """Finishes what is open or prepared, and sweeps orphans."""
    t, d = list(states), list(data)
    for producer, log in enumerate(t):
        record = None if log.last is None else _decided(log.last)
        if record is not None and record[0] in PREPARED:
            for number in record[2]:
                d[number] = marked(d[number], producer, marker_of(record), record[1], rules)
            t[producer] = StateLog((*log.entries, completed(record)))
    if "orphans swept" in rules:
        for number in BOTH:
            for producer in list(d[number].producers.open):
                epoch = orphans_epoch(d[number], t[producer], producer, rules)
                d[number] = d[number].plus(("A", producer, epoch, -1))
    return tuple(t), tuple(d)


def broker_opens(states: States, data: Data, is_new: bool) -> tuple[Data, bool]:
    """Kafka's coordinator sends markers to all partitions that the last record of each id names, whatever is open there.

    Returns:
        The partitions, and whether one has refused a marker: then the coordinator never completes it.
    """
    d, stuck = list(data), False
    for producer, log in enumerate(states):
        record = None if log.last is None else _decided(log.last)
        if record is None or record[0] not in PREPARED:
            continue
        for number in record[2]:
            known = d[number].producers
            last = known.epochs.get(producer, -1)
            if record[1] > last or (record[1] == last and (not is_new or producer not in known.open)):
                d[number] = d[number].plus((marker_of(record), producer, record[1], -1))
            else:
                stuck = True
    return tuple(d), stuck


def cuts(states: States, data: Data) -> Iterator[tuple[States, Data]]:
    """What a power loss may leave: each log has any length between its durable and its written end."""
    ends = [[range(log.durable, len(log.entries) + 1) for log in logs] for logs in (states, data)]
    for kept in product(product(*ends[0]), product(*ends[1])):
        yield (
            tuple(log.cut(end) for log, end in zip(states, kept[0], strict=True)),
            tuple(log.cut(end) for log, end in zip(data, kept[1], strict=True)),
        )


def told(states: States, data: Data, tell: Callable[[StateLog | DataLog], object]) -> str:
    """Something of each log, as text."""
    return ", ".join([*(str(tell(log)) for log in states), *(str(tell(log)) for log in data)])
