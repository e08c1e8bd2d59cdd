"""Runs with transactions, step by step, on a disk in memory that records each call; and what is known after each step.

Random numbers and times are the same in every run, so a state of the disk that two runs share is one state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import pylog
from pylog.clock import Clock
from pylog.config import Durability
from pylog.fs import FileSystem
from pylog.store import Store
from pylog.testing.memory import MemoryFileSystem
from pylog.testing.recording import Recording, RecordingFileSystem, Without
from support.campaign.crashing import bury
from support.campaign.workloads import clock, drawn_from

ROOT: Final = "/data"
ID: Final = "billing"
GROUP: Final = "g"
INPUT: Final = ("in", 0)
_FEW: Final[dict[str, Any]] = {
    "transactions": pylog.TransactionsConfig(topic_num_partitions=1, topic_segment_bytes=700),
    "offsets": pylog.OffsetsConfig(topic_num_partitions=1),
}
LARGE: Final = 1 << 20  # segments that never roll here
SMALL: Final = 250  # segments of a few batches


class Written(NamedTuple):
    """A transaction of a run: its number, which is its records' value, and how many partitions it writes to."""

    number: int
    partitions: int
    offsets: bool


class Known(NamedTuple):
    """What is known of a run: the transactions whose commit was answered, one that may be committed, and a reader's positions.

    The reader is at the end of each partition after a step. All of a run is appended with durability SYNC.
    """

    answered: tuple[Written, ...] = ()
    in_doubt: Written | None = None
    positions: tuple[int, ...] = ()


class Run:
    """One run, step by step.

    Args:
        partitions: of the topic that transactions write to.
        segment_bytes: of that topic.
        without: as for `RecordingFileSystem`.
    """

    def __init__(self, partitions: int, segment_bytes: int, without: Without | None = None) -> None:
        self.fs = RecordingFileSystem(clock=clock(), without=without)
        self.known = Known()
        self.number = 0
        self.partitions = partitions
        self.store = opened(self.fs)
        self.store.create_topic("in")
        self.store.create_topic("out", partitions, segment_bytes=segment_bytes)
        self.store.log("in").append_many([b"%d" % number for number in range(100)])
        self.store.flush()
        self.fs.recording.mark(self.known)

    def transaction(self, count: int, *, commits: bool, offsets: bool = False, flushes: bool = False) -> None:
        """Writes to so many partitions, and commits or aborts."""
        self.number += 1
        value = b"%d" % self.number if commits else b"bad"
        transaction = self.store.transaction(ID)
        for partition in range(count):
            transaction.append("out", value, partition=partition)
            if flushes:
                transaction.flush()
        if offsets:
            transaction.send_offsets(GROUP, {INPUT: self.number})
        if commits:
            written = Written(self.number, count, offsets)
            self._mark(self.known._replace(in_doubt=written))
            transaction.commit()
            self._mark(self.known._replace(answered=(*self.known.answered, written), in_doubt=None))
        else:
            transaction.abort()

    def open_one(self) -> None:
        """Writes in a transaction and does not end it."""
        transaction = self.store.transaction(ID)
        transaction.append("out", b"bad", partition=1)
        transaction.flush()

    def left_open(self) -> None:
        """Closes the store with an open transaction."""
        self.open_one()
        self.reopen()

    def killed(self) -> None:
        """The process dies with an open transaction, and another one opens the store."""
        self.open_one()
        dead, self.fs = self.fs, self.fs.process()
        dead.kill()
        bury(self.store)
        self.store = opened(self.fs)

    def taken_over(self) -> None:
        """Another process takes the id from one that has a transaction open, and commits."""
        self.open_one()
        fenced, self.fs = self.store, self.fs.process()
        self.store = opened(self.fs)
        self.transaction(2, commits=True)
        fenced.close()

    def plain(self) -> None:
        """Appends outside any transaction."""
        for partition in range(self.partitions):
            self.store.log("out", partition).append(b"plain")

    def compact(self) -> None:
        """Compacts the states of transactions and the committed offsets."""
        for topic in ("__transaction_state", "__consumer_offsets"):
            if topic in self.store.topics():
                self.store.compact(topic)

    def reopen(self) -> None:
        """Closes the store and opens it again."""
        self.store.close()
        self.store = opened(self.fs)

    def read(self) -> None:
        """A reader reads all partitions to their ends."""
        ends = tuple(self.store.log("out", partition).end_offset for partition in range(self.partitions))
        self._mark(self.known._replace(positions=ends))

    def _mark(self, known: Known) -> None:
        self.known = known
        self.fs.recording.mark(known)


STEPS: Final[dict[str, Callable[[Run], None]]] = {
    "commit 1": lambda run: run.transaction(1, commits=True),
    "commit 1 piecemeal": lambda run: run.transaction(1, commits=True, flushes=True),
    "commit 2": lambda run: run.transaction(2, commits=True),
    "commit 3": lambda run: run.transaction(3, commits=True),
    "commit 2 piecemeal": lambda run: run.transaction(2, commits=True, flushes=True),
    "commit 2 with offsets": lambda run: run.transaction(2, commits=True, offsets=True),
    "abort 2": lambda run: run.transaction(2, commits=False, flushes=True),
    "left open": Run.left_open,
    "killed": Run.killed,
    "taken over": Run.taken_over,
    "plain": Run.plain,
    "compact": Run.compact,
    "reopen": Run.reopen,
}


def opened(fs: FileSystem, time: Clock | None = None) -> Store:
    """Opens the store of a run.

    Args:
        fs: with the disk.
        time: the clock of the store; by default that of `fs`, which is a `MemoryFileSystem` then.
    """
    known = fs.clock if isinstance(fs, MemoryFileSystem) else None
    return pylog.open(ROOT, fs=fs, clock=time or known, durability=Durability.SYNC, **_FEW)


def recorded(steps: Sequence[str], segment_bytes: int = LARGE, without: Without | None = None) -> tuple[Recording, int]:
    """Returns the recording of a run, and where its last step begins: the ones before it are runs of their own."""
    with drawn_from("transactions"):
        run = Run(3 if "commit 3" in steps else 2, segment_bytes, without)
        start = len(run.fs.recording)
        for step in steps:
            start = len(run.fs.recording)
            STEPS[step](run)
            run.read()
        run.fs.kill()
        bury(run.store)
    return run.fs.recording, start
