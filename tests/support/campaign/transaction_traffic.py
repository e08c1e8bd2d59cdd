"""Processes that run random transactions, and are killed, stopped, replaced and fenced; what they saw is one history.

Writers append to several partitions, read committed records, commit an offset, abort at times. Two of them share a transactional
id, one has an id of its own, one has none. Readers read with both isolation levels, take snapshots and ask for stable offsets.
A keeper compacts, deletes and truncates. Each process writes what it does to a file, one line before each call and one after it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pylog
from pylog import OffsetAndMetadata
from pylog.log.reading.good_batches import OffsetRange, good_batches
from pylog.record.format import BASE_OFFSET
from support.campaign.processes import COMPILED, CampaignError, Child, Journal, in_fresh_process, new_directory, seeded, until
from support.campaign.transaction_history import NEVER, Cut, Loss, Operation, Read, Stable, Transaction, check, interleaved
from support.campaign.transaction_planted import FAULTS, planted
from support.engines import engine_of

PARTITIONS: Final = (("kept", 0), ("kept", 1), ("deleted", 0), ("compacted", 0))
_TRUNCATED: Final = 1
_DELETED: Final = 2
_INPUT: Final = ("in", 0)
WRITERS: Final = {"writer a1": "a", "writer a2": "a", "writer b": "b", "writer c": None}
READERS: Final = ("reader 1", "reader 2")
KEEPER: Final = "keeper"
_EVENTS: Final = 20  # of a round
_ROUNDS_TO_FIND: Final = 10  # a planted fault: whether one shows it depends on the order of processes
_BETWEEN_SECONDS: Final = (0.01, 0.2)
_STOPPED_SECONDS: Final = (0.01, 0.3)
_OPEN_SECONDS: Final = 0.03  # of some transactions
_OPTIONS: Final[dict[str, Any]] = {
    "transactions": pylog.TransactionsConfig(topic_num_partitions=2, topic_segment_bytes=20_000),
    "offsets": pylog.OffsetsConfig(topic_num_partitions=2),
    "lock_timeout_ms": 20_000,
}


def opened(root: Path, rng: random.Random) -> pylog.Store:
    """Opens the store of a round for writing."""
    return pylog.open(root, durability=rng.choice(("os", "os", "sync")), **_OPTIONS)


# ---- what a process writes down ----------------------------------------------------------------------------------------------


class Notes:
    """The file of one process. A line is written by one call, so that it is whole, or not there, when the process is killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def close(self) -> None:
        """Closes the file in this process."""
        os.close(self._file)

    def add(self, kind: str, **facts: Any) -> int:
        """Writes a line, and returns its time."""
        now = time.monotonic_ns()
        os.write(self._file, json.dumps({"kind": kind, "at": now, **facts}).encode() + b"\n")
        return now


def operations_of(path: Path, process: str, died: int) -> Iterator[Operation]:
    """Yields the operations that a process has noted."""
    open_one: dict[str, Any] | None = None
    for line in path.read_text().splitlines():
        note = json.loads(line)
        kind = note["kind"]
        if kind == "begin":
            if open_one is not None:  # its abort was refused
                yield _transaction(process, {**open_one, "ended": note["at"]})
            open_one = {**note, "deciding": NEVER, "polled": [], "offsets": {}, "open_at": {}, "outcome": None, "ended": died}
        elif kind == "end":
            assert open_one is not None
            yield _transaction(process, {**open_one, **note, "at": open_one["at"], "ended": note["at"]})
            open_one = None
        elif kind in _SINGLE:
            yield _SINGLE[kind](process, note)
        else:
            assert open_one is not None
            _take(open_one, note)
    if open_one is not None:
        yield _transaction(process, open_one)


def _take(transaction: dict[str, Any], note: dict[str, Any]) -> None:
    if note["kind"] in ("deciding", "aborting"):
        transaction["deciding"] = note["at"]
        transaction["outcome"] = False if note["kind"] == "aborting" else None
    elif note["kind"] == "polled":
        transaction["polled"] += [(note["partition"], *seen, note["at"]) for seen in note["records"]]
    else:
        transaction["offsets"] = note["offsets"]
        for number in note["offsets"]:
            transaction["open_at"].setdefault(number, note["at"])


def _transaction(process: str, note: dict[str, Any]) -> Transaction:
    return Transaction(
        process,
        note["id"],
        note["number"],
        _by_number(note["values"]),
        note["at"],
        note["deciding"],
        note["ended"],
        note["outcome"],
        note["sends_offset"],
        _by_number(note["offsets"]),
        _by_number(note["open_at"]),
        note["polled"],
    )


def _by_number(found: dict[str, Any]) -> dict[int, Any]:
    return {int(number): each for number, each in found.items()}


def _read(process: str, note: dict[str, Any]) -> Read:
    records = [tuple(seen) for seen in note["records"]]
    return Read(process, note["partition"], note["start"], records, note["began"], note["at"], note["is_committed"])


def _cut(process: str, note: dict[str, Any]) -> Cut:
    records = {number: [tuple(seen) for seen in found] for number, found in _by_number(note["records"]).items()}
    return Cut(process, _by_number(note["starts"]), records, note["groups"], note["began"], note["at"])


_SINGLE: Final[dict[str, Callable[[str, dict[str, Any]], Operation]]] = {
    "read": _read,
    "cut": _cut,
    "stable": lambda process, note: Stable(process, note["partition"], note["offset"], note["began"], note["at"]),
    "loss": lambda _, note: Loss(note["partition"], note["below"], note["start"]),
}


# ---- writers -----------------------------------------------------------------------------------------------------------------


def write(
    root: Path, notes: Notes, process: str, place: int, rng: random.Random, say_ready: Callable[[], None], fault: str
) -> None:
    """Runs transactions until the process is killed. After it was fenced, it opens the store again.

    An engine with a fault may notice it and refuse to go on; the history is to tell, too.
    """
    endured = pylog.PylogError if fault else pylog.ProducerFencedError
    while True:
        with contextlib.suppress(endured), opened(root, rng) as store:
            while True:
                _Attempt(store, notes, process, place, rng).run()
                say_ready()


class _Attempt:
    """One transaction of a writer."""

    def __init__(self, store: pylog.Store, notes: Notes, process: str, place: int, rng: random.Random) -> None:
        self._store, self._notes, self._rng = store, notes, rng
        name = WRITERS[process]
        self._id = name or process
        self._transaction = store.transaction(name)
        self._number = time.monotonic_ns() // 10_000 * 16 + place  # after the `init` of the id
        count = rng.randint(0, 4)
        self._steps = [(rng.randrange(len(PARTITIONS)), rng.randint(1, 3)) for _ in range(count)]
        self._sends_offset = rng.random() < 0.5

    def run(self) -> None:
        """Writes, commits or aborts, and notes the outcome.

        Raises:
            ProducerFencedError: a newer instance has the id.
        """
        values = self._values()
        by_partition: dict[int, list[int]] = {}
        for number, few in values:
            by_partition.setdefault(number, []).extend(few)
        facts = {"id": self._id, "number": self._number, "sends_offset": self._sends_offset}
        self._notes.add("begin", values=by_partition, **facts)
        try:
            for number, few in values:
                self._append(number, few)
            self._end()
        except pylog.ProducerFencedError:
            self._note_end(outcome=False)
            raise
        except (pylog.TransactionAbortedError, pylog.StoreLockedError):
            self._abort()

    def _values(self) -> list[tuple[int, list[int]]]:
        counter = itertools.count(self._number << 8)
        return [(number, list(itertools.islice(counter, many))) for number, many in self._steps]

    def _append(self, number: int, values: list[int]) -> None:
        topic, partition = PARTITIONS[number]
        items = [(b"%d" % value, b"%d" % value) for value in values]
        self._transaction.append_many(topic, items, partition=partition)
        if self._rng.random() < 0.4:
            self._transaction.flush()
            self._notes.add("flushed", offsets=self._offsets())
            if self._rng.random() < 0.1:
                time.sleep(_OPEN_SECONDS)
        if self._rng.random() < 0.2:
            other = self._rng.randrange(len(PARTITIONS))
            log = self._store.log(*PARTITIONS[other])
            start = max(log.start_offset, log.end_offset - 20)
            with contextlib.suppress(pylog.OffsetOutOfRangeError):
                self._notes.add("polled", partition=other, records=_seen(log, start, "read_committed"))

    def _end(self) -> None:
        if self._rng.random() < 0.2:
            self._abort()
            return
        if self._sends_offset:
            self._transaction.send_offsets(self._id, {_INPUT: OffsetAndMetadata(1, str(self._number))})
        self._notes.add("deciding")
        self._transaction.commit()
        self._note_end(outcome=True)

    def _abort(self) -> None:
        self._notes.add("aborting")
        self._transaction.abort()
        self._note_end(outcome=False)

    def _note_end(self, *, outcome: bool) -> None:
        self._notes.add("end", outcome=outcome, offsets=self._offsets())

    def _offsets(self) -> dict[int, list[int]]:
        return {
            PARTITIONS.index(tuple(partition)): list(itertools.chain(*ranges))
            for partition, ranges in self._transaction.offsets.items()
        }


def _seen(log: pylog.Log, start: int, isolation_level: str) -> list[tuple[int, int]]:
    return [(each.offset, int(each.value or b"0")) for each in log.records(start, isolation_level=isolation_level)]


# ---- readers -----------------------------------------------------------------------------------------------------------------


def read(root: Path, notes: Notes, process: str, rng: random.Random, say_ready: Callable[[], None]) -> None:
    """Reads until the process is killed: each partition from where it was, snapshots, and stable offsets."""
    mode: Any = rng.choice(("r", "rw"))
    with pylog.open(root, mode=mode, **(_OPTIONS if mode == "rw" else {})) as store:
        positions = [store.log(*each).start_offset for each in PARTITIONS]
        while True:
            number = rng.randrange(len(PARTITIONS))
            action = rng.choice((None, _read_all, _note_stable, note_cut))
            try:
                if action is None:
                    positions[number] = _read_on(store, notes, number, positions[number])
                else:
                    action(store, notes, number)
            except pylog.OffsetOutOfRangeError:
                positions[number] = store.log(*PARTITIONS[number]).start_offset
            except pylog.PylogTimeoutError:
                pass
            say_ready()


def _read_on(store: pylog.Store, notes: Notes, number: int, start: int) -> int:
    """Reads committed records from a position on. Returns the next position."""
    records = _noted_read(store, notes, number, start, "read_committed")
    return records[-1][0] + 1 if records else start


def _read_all(store: pylog.Store, notes: Notes, number: int) -> None:
    log = store.log(*PARTITIONS[number])
    _noted_read(store, notes, number, max(log.start_offset, log.end_offset - 100), "read_uncommitted")


def _noted_read(store: pylog.Store, notes: Notes, number: int, start: int, isolation_level: str) -> list[tuple[int, int]]:
    began = time.monotonic_ns()
    records = _seen(store.log(*PARTITIONS[number]), start, isolation_level)
    notes.add(
        "read", partition=number, start=start, records=records, began=began, is_committed=isolation_level == "read_committed"
    )
    return records


def _note_stable(store: pylog.Store, notes: Notes, number: int) -> None:
    began = time.monotonic_ns()
    notes.add("stable", partition=number, offset=store.log(*PARTITIONS[number]).stable_offset, began=began)


def note_cut(store: pylog.Store, notes: Notes, _: int = 0) -> None:
    """Takes a snapshot and reads all of it."""
    began = time.monotonic_ns()
    snapshot = store.snapshot()
    cuts = {number: snapshot.cuts[pylog.TopicPartition(*each)] for number, each in enumerate(PARTITIONS)}
    records = {
        number: [(each.offset, int(each.value or b"0")) for each in store.log(*PARTITIONS[number]).records(snapshot=snapshot)]
        for number in cuts
    }
    found = {name: snapshot.offsets(name).get(pylog.TopicPartition(*_INPUT)) for name in {*WRITERS, *WRITERS.values()} - {None}}
    groups = {name: int(committed.metadata) for name, committed in found.items() if committed is not None}
    starts = {number: cut.start_offset for number, cut in cuts.items()}
    notes.add("cut", starts=starts, records=records, groups=groups, began=began)


# ---- the keeper --------------------------------------------------------------------------------------------------------------


def keep(root: Path, notes: Notes, rng: random.Random, say_ready: Callable[[], None]) -> None:
    """Compacts, deletes, truncates and settles until the process is killed. Each loss is noted before it happens."""
    with opened(root, rng) as store:
        while True:
            chance = rng.random()
            with contextlib.suppress(pylog.InvalidTransactionStateError, pylog.OffsetOutOfRangeError, pylog.StoreLockedError):
                if chance < 0.2:
                    store.compact("compacted")
                elif chance < 0.3:
                    store.compact("__transaction_state")
                elif chance < 0.4:
                    log = store.log(*PARTITIONS[_DELETED])
                    below = max(log.start_offset, log.end_offset - 200)
                    notes.add("loss", partition=_DELETED, below=below, start=NEVER)
                    log.delete_records(below)
                elif chance < 0.42:
                    log = store.log(*PARTITIONS[_TRUNCATED])
                    end = max(log.start_offset, log.end_offset - 3)
                    notes.add("loss", partition=_TRUNCATED, below=0, start=_start_of_batch(log, end))
                    log.truncate(end)
                else:
                    store.tick()
            say_ready()
            time.sleep(rng.uniform(0, 0.05))


def _start_of_batch(log: pylog.Log, offset: int) -> int:
    """Returns the first offset of the batch that has an offset: a truncation inside a batch deletes the whole batch."""
    found = next(good_batches(engine_of(log).snapshot(), OffsetRange(offset, offset + 1)), None)
    return offset if found is None else min(offset, int(found.table[BASE_OFFSET, 0]))


# ---- rounds ------------------------------------------------------------------------------------------------------------------


def run(seed: int, seconds: float | None = None, *, rounds: int | None = None, events: int = _EVENTS) -> dict[str, Any]:
    """Judges rounds until the time is over, or so many are done.

    Args:
        seed: decides everything except the scheduling of processes. Round n of seed s is round 0 of seed s + n.
        seconds, rounds: how long; one of them at least.
        events: of a round: a process is killed and replaced, or stopped for a while.

    Returns:
        How often what happened.

    Raises:
        CampaignError: an anomaly was found; the directory, with what the processes noted, is kept.
    """
    return in_fresh_process(campaign, seed, seconds, rounds, events, environment=COMPILED)


def campaign(seed: int, seconds: float | None, rounds: int | None, events: int) -> dict[str, Any]:
    """`run`, in this process: it must have no other threads."""
    _warm_up()
    done: Counter[str] = Counter()
    began = time.monotonic()
    for number in until(rounds, seconds):
        root = new_directory("histories")
        try:
            done += _sound(*_Round(root, seed + number).play(events))
        except CampaignError as error:
            raise CampaignError(f"histories with seed {seed + number}, in {root}: {error}") from error
        shutil.rmtree(root)
    return {"seed": seed, **done, "seconds": round(time.monotonic() - began, 1)}


def _sound(counts: Counter[str], found: list[str]) -> Counter[str]:
    if found:
        raise CampaignError("\n".join(found[:20]))
    return counts


def run_planted(seed: int, _seconds: float | None = None, names: Iterable[str] = FAULTS) -> dict[str, Any]:
    """Plants each fault in turn, and lets the checker find it.

    Args:
        seed: as for `run`.
        names: of faults in `transaction_planted`.

    Returns:
        For each fault the number of the round in which it was found.

    Raises:
        CampaignError: so many rounds have not shown one of them.
    """
    return {"seed": seed, **{name: in_fresh_process(rounds_to_find, seed, name, environment=COMPILED) for name in names}}


def rounds_to_find(seed: int, fault: str) -> int:
    """Returns the round in which a fault is found, counted from 1. This process must have no other threads."""
    _warm_up()
    found: set[str] = set()
    with planted(fault):
        for number in range(_ROUNDS_TO_FIND):
            root = new_directory("histories")
            _, told = _Round(root, seed + number, fault).play(_EVENTS)
            shutil.rmtree(root)
            found |= {each.partition(":")[0] for each in told}
            if found & FAULTS[fault].kinds:
                return number + 1
    raise CampaignError(
        f"{_ROUNDS_TO_FIND} rounds from seed {seed} on have not shown {fault!r}, but {sorted(found) or 'nothing'}"
    )


class _Round:
    """One store, from its first transaction to the verdict."""

    def __init__(self, root: Path, seed: int, fault: str = "") -> None:
        self._root = root
        self._fault = fault
        self._rng = seeded(seed)
        self._store = root / "store"
        self._started = 0
        self._notes: dict[Path, int] = {}  # of each process, and when it was killed
        self._journal = Journal(64)
        _create(self._store)

    def play(self, events: int) -> tuple[Counter[str], list[str]]:
        """Starts everybody, lets things happen, ends everybody, judges.

        Returns:
            How often what happened, and what is wrong, each with its kind.
        """
        children = dict[str, Child]()
        try:
            for process in (*WRITERS, *READERS, KEEPER):
                children[process] = self._start(process)
            for child in children.values():
                child.wait_ready(10)
            for _ in range(events):
                time.sleep(self._rng.uniform(*_BETWEEN_SECONDS))
                self._rng.choice((self._replace, self._pause))(children, self._rng.choice(list(children)))
            for process, child in children.items():
                self._bury(process, child)
        finally:
            for child in children.values():
                child.__exit__()
        return self._judge()

    def _start(self, process: str) -> Child:
        self._started += 1
        path = self._root / f"{process} {self._started}.notes"
        notes, rng = Notes(path), random.Random(self._rng.random())
        self._notes[path] = NEVER
        if process in WRITERS:
            place = list(WRITERS).index(process)
            work = lambda say_ready: write(self._store, notes, process, place, rng, say_ready, self._fault)  # noqa: E731
        elif process in READERS:
            work = lambda say_ready: read(self._store, notes, process, rng, say_ready)  # noqa: E731
        else:
            work = lambda say_ready: keep(self._store, notes, rng, say_ready)  # noqa: E731
        child = Child(process, work, self._journal)
        notes.close()  # the child has its own
        return child

    def _bury(self, process: str, child: Child) -> None:
        """Kills a process. Its transaction may have been open until the moment before."""
        path = next(path for path in reversed(self._notes) if path.stem.rpartition(" ")[0] == process)
        self._notes[path] = time.monotonic_ns()
        child.kill()
        child.wait()

    def _replace(self, children: dict[str, Child], process: str) -> None:
        """One dies, and another one takes its place."""
        self._bury(process, children[process])
        children[process] = self._start(process)

    def _pause(self, children: dict[str, Child], process: str) -> None:
        """One stands still for a while, wherever it is."""
        os.kill(children[process].pid, signal.SIGSTOP)
        time.sleep(self._rng.uniform(*_STOPPED_SECONDS))
        os.kill(children[process].pid, signal.SIGCONT)

    def _judge(self) -> tuple[Counter[str], list[str]]:
        path = self._root / "inspector 0.notes"
        inspector = Notes(path)
        self._notes[path] = NEVER
        with opened(self._store, self._rng) as store:
            logs = [store.log(*each) for each in PARTITIONS]
            waiting = [log.partition for log in logs if log.stable_offset != log.end_offset]
            note_cut(store, inspector)
            for number in range(len(PARTITIONS)):
                _noted_read(store, inspector, number, logs[number].start_offset, "read_uncommitted")
            report = store.check()
        inspector.close()
        history = self._operations()
        found = [f"{anomaly.kind}: {anomaly.message}" for anomaly in check(history)]
        if waiting:
            found.append(f"open: transactions are open in {waiting} after the store was opened")
        if not report.ok:
            found.append(f"check: {report}")
        return _summary(history), found

    def _operations(self) -> list[Operation]:
        return [each for path, died in self._notes.items() for each in operations_of(path, path.stem.rpartition(" ")[0], died)]


def _summary(history: list[Operation]) -> Counter[str]:
    kinds = Counter(type(each).__name__.lower() + "s" for each in history)
    outcomes = {True: "committed", False: "aborted", None: "unknown"}
    kinds += Counter(outcomes[each.is_committed] for each in history if isinstance(each, Transaction))
    return kinds + Counter(rounds=1, interleaved=interleaved(history))


def _create(path: Path) -> None:
    with pylog.open(path, durability="os", **_OPTIONS) as store:
        store.create_topic("in")
        store.log("in").append(b"1")
        store.create_topic("kept", 2)
        store.create_topic("deleted", segment_bytes=4_000)
        store.create_topic("compacted", cleanup_policy="compact", segment_bytes=4_000)


def _warm_up() -> None:
    """Runs a few transactions in this process, so that its children find everything loaded and compiled."""
    root = new_directory("histories-warm")
    _create(root / "store")
    rng, notes = random.Random(1), Notes(root / "notes")
    with opened(root / "store", rng) as store:
        for _ in range(5):
            _Attempt(store, notes, "writer b", 0, rng).run()
        _read_all(store, notes, 0)
        note_cut(store, notes)
        store.compact("compacted")
    notes.close()
    shutil.rmtree(root)
