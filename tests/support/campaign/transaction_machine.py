"""A state machine of transactions: two processes with open transactions, next to everything else that changes a store.

The model is what is committed: the values of each partition of the topic `kept`, and the offset of each group. A snapshot of any
process has exactly that after each step, whatever is open, and whoever was killed. A third process only reads: it has its logs
open for long, and asks now and then.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import pylog
from pylog import OffsetAndMetadata
from pylog.testing import MemoryFileSystem
from pylog.transactions.transaction import Transaction
from support.campaign.crashing import NOW, WallClock, bury

ROOT: Final = "/data"
PARTITIONS: Final = 2
INPUT: Final = ("in", 0)
IDS: Final = ("first", "second", None)
_OPTIONS: Final[dict[str, Any]] = {
    "transactions": pylog.TransactionsConfig(topic_num_partitions=1, topic_segment_bytes=600),
    "offsets": pylog.OffsetsConfig(topic_num_partitions=1),
    "durability": "sync",
}
_SIDE: Final[dict[str, Any]] = {"segment_bytes": 300, "retention_bytes": 600}
_ENDED: Final = (pylog.ProducerFencedError, pylog.TransactionAbortedError, pylog.InvalidTransactionStateError)

processes = st.integers(0, 1)


class Open(NamedTuple):
    """An open transaction of a process, and what it has of the model."""

    who: int
    name: str | None
    transaction: Transaction
    values: list[Counter[bytes]]
    offsets: list[int]


class TransactionMachine(RuleBasedStateMachine):
    """Two processes, their stores and open transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = WallClock(NOW)
        self.fs = MemoryFileSystem(clock=self.clock)
        self.systems = [self.fs.process(), self.fs.process()]
        self.committed: list[Counter[bytes]] = [Counter() for _ in range(PARTITIONS)]
        self.groups: dict[str, int] = {}
        self.open: list[Open] = []
        self.serial = 0
        self.stores: list[pylog.Store | None] = [None, None]
        self.reader: pylog.Store | None = None
        self.reading: list[pylog.Log] = []
        self.store(0).create_topic("in")
        self.store(0).log("in").append(b"1")
        self.store(0).create_topic("kept", PARTITIONS, segment_bytes=400)
        self.store(0).create_topic("side", **_SIDE)

    def teardown(self) -> None:
        for store in (*self.stores, self.reader):
            if store is not None:
                bury(store)

    def store(self, who: int) -> pylog.Store:
        """The store of a process; it is opened if it is not open."""
        found = self.stores[who]
        if found is None:
            found = self.stores[who] = pylog.open(ROOT, fs=self.systems[who], clock=self.clock, **_OPTIONS)
        return found

    def number(self) -> int:
        self.serial += 1
        return self.serial

    # ---- transactions --------------------------------------------------------------------------------------------------------

    @rule(who=processes, name=st.sampled_from(IDS))
    def begin(self, who: int, name: str | None) -> None:
        if name is not None and any(each.who == who and each.name == name for each in self.open):
            return
        with contextlib.suppress(*_ENDED):  # another process has the id, and this store notices it first now
            transaction = self.store(who).transaction(name)
            self.open.append(Open(who, name, transaction, [Counter() for _ in range(PARTITIONS)], []))

    @precondition(lambda self: self.open)
    @rule(part=st.integers(0, 9), partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 3), flushes=st.booleans())
    def append(self, part: int, partition: int, count: int, flushes: bool) -> None:
        one, value = self.open[part % len(self.open)], b"%d" % self.number()
        one.values[partition][value] += count
        self._on(one, lambda: one.transaction.append_many("kept", [value] * count, partition=partition))
        if flushes and one in self.open:
            self._on(one, one.transaction.flush)
            self.read_committed()

    @precondition(lambda self: self.open)
    @rule(part=st.integers(0, 9), flushes=st.booleans())
    def append_elsewhere(self, part: int, flushes: bool) -> None:
        one = self.open[part % len(self.open)]
        self._on(one, lambda: one.transaction.append("side", b"side"))
        if flushes and one in self.open:
            self._on(one, one.transaction.flush)

    @precondition(lambda self: self.open)
    @rule(part=st.integers(0, 9))
    def send_offsets(self, part: int) -> None:
        one, number = self.open[part % len(self.open)], self.number()
        one.offsets.append(number)
        offsets = {INPUT: OffsetAndMetadata(1, str(number))}
        self._on(one, lambda: one.transaction.send_offsets(one.name or "none", offsets))

    def _on(self, one: Open, call: Callable[[], object]) -> None:
        """A call of a transaction. One that another process has ended, or whose topic is gone, is aborted."""
        try:
            call()
        except (*_ENDED, pylog.UnknownTopicOrPartitionError):
            self.open.remove(one)
            with contextlib.suppress(*_ENDED):
                one.transaction.abort()
            assert one.transaction.outcome != "committed"

    @precondition(lambda self: self.open)
    @rule(part=st.integers(0, 9))
    def commit(self, part: int) -> None:
        one = self.open[part % len(self.open)]
        self._on(one, one.transaction.commit)
        if one in self.open:
            self.open.remove(one)
            for values, more in zip(self.committed, one.values, strict=True):
                values.update(more)
            if one.offsets:
                self.groups[one.name or "none"] = one.offsets[-1]

    @precondition(lambda self: self.open)
    @rule(part=st.integers(0, 9))
    def abort(self, part: int) -> None:
        one = self.open.pop(part % len(self.open))
        with contextlib.suppress(*_ENDED):
            one.transaction.abort()

    # ---- everything else -----------------------------------------------------------------------------------------------------

    @rule(who=processes, partition=st.integers(0, PARTITIONS - 1))
    def append_plainly(self, who: int, partition: int) -> None:
        value = b"%d" % self.number()
        self.store(who).log("kept", partition).append(value)
        self.committed[partition][value] += 1

    def roll(self, who: int, partition: int) -> None:
        """Appends until a new segment begins, which then has only a plain record."""
        log = self.store(who).log("kept", partition)
        before = len(log.segments)
        while len(log.segments) == before:
            self.append_plainly(who, partition)

    @rule(who=processes, change=st.sampled_from(("delete_records", "truncate", "remake", "alter")), less=st.integers(0, 3))
    def change_side(self, who: int, change: str, less: int) -> None:
        """Changes the topic next to the one that is kept. Changes that would part a transaction are refused.

        The first call of a log whose topic another process has made again raises an error that says so.
        """
        store = self.store(who)
        with contextlib.suppress(pylog.InvalidTransactionStateError, pylog.UnknownTopicOrPartitionError):
            log = store.log("side")
            end = max(log.start_offset, log.end_offset - less)
            if change == "delete_records":
                log.delete_records(end)
            elif change == "truncate":
                log.truncate(end)
            elif change == "alter":
                store.alter_topic("side", segment_bytes=200 + 100 * less)
            else:
                store.delete_topic("side")
                store.create_topic("side", **_SIDE)

    @rule(who=processes, topic=st.sampled_from(("__transaction_state", "__consumer_offsets")))
    def compact(self, who: int, topic: str) -> None:
        if topic in self.store(who).topics():
            self.store(who).compact(topic)

    @rule(who=processes, ms=st.sampled_from((0, 50, 5_000, 70_000)))
    def tick(self, who: int, ms: int) -> None:
        self.clock.advance(ms)
        self.store(who).tick()

    @rule(who=processes, is_killed=st.booleans())
    def end(self, who: int, is_killed: bool) -> None:
        """A process closes its store, or dies. Its transactions are aborted, by itself or by the next one that looks."""
        if is_killed:
            self.systems[who].kill()
            self.systems[who] = self.fs.process()
        store, self.stores[who] = self.stores[who], None
        if store is not None:
            bury(store)
        self.open = [each for each in self.open if each.who != who]

    @rule()
    def lose_power(self) -> None:
        """All of it was appended with durability SYNC."""
        after = self.fs.crash()
        self.teardown()
        self.fs, self.stores, self.open = after, [None, None], []
        self.reader, self.reading = None, []
        self.systems = [self.fs.process(), self.fs.process()]

    # ---- the reader ----------------------------------------------------------------------------------------------------------

    @rule(after_a_roll=st.booleans())
    def open_for_reading(self, after_a_roll: bool) -> None:
        for partition in range(PARTITIONS) if after_a_roll else ():
            self.roll(0, partition)
        if self.reader is not None:
            bury(self.reader)
        self.reader = pylog.open(ROOT, mode="r", fs=self.fs.process(), clock=self.clock)
        self.reading = [self.reader.log("kept", partition) for partition in range(PARTITIONS)]

    @precondition(lambda self: self.reading)
    @rule(partition=st.integers(0, PARTITIONS - 1))
    def look(self, partition: int) -> None:
        """Refreshes a log without a question about transactions."""
        assert self.reading[partition].end_offset == self.store(0).log("kept", partition).end_offset

    @rule()
    def read_committed(self) -> None:
        """Reads what is committed: all of it, unless a transaction is open there."""
        for partition, log in enumerate(self.reading):
            writing = self.store(0).log("kept", partition)
            assert log.stable_offset == writing.stable_offset
            found = Counter(record.value or b"" for record in log.records(isolation_level="read_committed"))
            more = found - self.committed[partition]
            assert not more, f"{more} is not committed"
            assert writing.stable_offset < writing.end_offset or found == self.committed[partition]

    # ---- what holds ----------------------------------------------------------------------------------------------------------

    @invariant()
    def snapshots_have_what_is_committed(self) -> None:
        for who in range(2):
            store = self.store(who)
            snapshot = store.snapshot(["kept"])
            for partition, values in enumerate(self.committed):
                found = Counter(record.value or b"" for record in store.log("kept", partition).records(snapshot=snapshot))
                assert found == values, (who, partition, found - values, values - found)
            groups = {name: store.offsets.fetch(name) for name in ("first", "second", "none")}
            offsets = {name: int(next(iter(found.values())).metadata) for name, found in groups.items() if found}
            assert offsets == self.groups, (offsets, self.groups)

    @rule(who=processes)
    def check(self, who: int) -> None:
        report = self.store(who).check()
        assert report.ok, str(report)
