"""What the campaign does to a store, in every order: the operations, and what is known of the store after each of them.

Workloads begin with the same store, closed cleanly: topic `t` with two small segments, topic `u` with one record, topic `w`
with none, and topic `k`, which is compacted, with segments that compaction has emptied and dirty ones. Those that begin with
`new` find an empty disk. Times, values and file contents are the same in every run, so a state that two workloads share is one
state.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

import pylog
from pylog import limits
from pylog.clock import ManualClock
from pylog.directory.checkpoints import CLEAN_SHUTDOWN
from pylog.fs import WRITERS
from pylog.log.producer_state import Producer, ProducerStateManager
from pylog.log.recovery.producer_snapshots import encode_snapshot
from pylog.segment.names import CLEANED, LOG, SNAPSHOT, SWAP, file_name
from pylog.testing import FaultyFileSystem, MemoryFileSystem
from pylog.testing.disk import Image
from pylog.testing.models import GAP, LogModel, Promise
from support.engines import engine_of, segments_of

ROOT = "/store"
NOW = 1_700_000_000_000
TINY = {"segment_bytes": 512, "max_message_bytes": 512, "index_interval_bytes": 100, "retention_bytes": 300}
KEYED = {"segment_bytes": 700, "cleanup_policy": "compact", "min_cleanable_dirty_ratio": 1.0, "delete_retention_ms": 10**12}
ROOMY = {"segment_bytes": 4096, "max_message_bytes": 130}  # many batches of one small record in a segment
NEVER_MS = 10**9
PRODUCER = 1 << 48

Item = tuple[bytes, int]  # a record as it is compared: value and timestamp


class Tail(NamedTuple):
    """Bytes at the end of a file that recovery takes for a torn write: nobody may lose them."""

    path: str
    position: int
    data: bytes


class TopicKnown(NamedTuple):
    """What is known of a topic.

    Attributes:
        may_exist, may_lack: whether it may be there, and whether it may not.
        log: what its log holds, if it is there.
        tails: what must be somewhere, in its log or beside it.
        short: a broker left word of records that are not there: opening it may tell of a loss, until somebody has appended.
    """

    may_exist: bool
    may_lack: bool
    log: Promise
    tails: tuple[Tail, ...] = ()
    short: bool = False


Known = dict[str, TopicKnown]
THERE, GONE = (True, False), (False, True)


def clock() -> ManualClock:
    return ManualClock(NOW)


@contextlib.contextmanager
def drawn_from(seed: str) -> Iterator[None]:
    """What the engine draws at random, ids and names of what is deleted, is the same in every run."""
    rng = random.Random(seed)
    with patch.multiple(
        secrets, token_bytes=rng.randbytes, token_hex=lambda size: rng.randbytes(size).hex(), randbelow=rng.randrange
    ):
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The engine warns of every torn tail and every failed sync, and there are thousands."""
    logger = logging.getLogger("pylog")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


class Session:
    """Somebody who uses a store, and tells the file system after each step what is known.

    Args:
        fs: a file system, with a store in it or without one.
        known: what is known of that store.
        mark: is told what is known, whenever that changes.
    """

    def __init__(self, fs: Any, known: Known, mark: Callable[[Known], None] = lambda known: None) -> None:
        self.fs = fs
        self.clock = clock()
        self.known = dict(known)
        self._other: pylog.Store | None = None  # of another process
        self._starts = [0, 1, 2, 3]  # where the appends to `t` began
        self._truncations = self._refused = 0
        self._mark = mark
        self._mark(dict(self.known))
        self._faulty = FaultyFileSystem(fs)
        self.store = self._open()

    def _open(self) -> pylog.Store:
        return pylog.open(ROOT, fs=self._faulty, clock=self.clock)

    # ---- what is known -------------------------------------------------------------------------------------------------------

    def model(self, topic: str) -> LogModel:
        return LogModel(self.known[topic].log)

    def learn(
        self, topic: str, model: LogModel | None = None, there: tuple[bool, bool] | None = None, *, short: bool | None = None
    ) -> None:
        """Takes what is known now of one topic."""
        old = self.known.get(topic, TopicKnown(*GONE, Promise()))
        log = old.log if model is None else model.promise
        may_exist, may_lack = there or old[:2]
        self.known[topic] = TopicKnown(may_exist, may_lack, log, short=old.short if short is None else short)
        self._mark(dict(self.known))

    # ---- operations ----------------------------------------------------------------------------------------------------------

    def run(self, names: Sequence[str]) -> None:
        for name in names:
            OPERATIONS[name](self)

    def append(
        self,
        sizes: Sequence[int],
        durability: pylog.Durability,
        topic: str = "t",
        *,
        store: pylog.Store | None = None,
        idempotent: bool = False,
    ) -> None:
        """Appends records of these sizes in one call."""
        log, model = (store or self.store).log(topic), self.model(topic)
        first = model.end
        sequence = next_sequence(model.promise.records) if idempotent else None
        new = [item(topic, offset, size, self._truncations, sequence) for offset, size in enumerate(sizes, first)]
        model.append(new)
        self.learn(topic, model)
        done = log.append_batch(rows(new), durability=durability, producer=numbered(sequence))
        assert done.offsets == range(first, model.end)
        assert not done.duplicate
        model.acknowledge(durable=durability == pylog.Durability.SYNC)
        model.flushed(log.durable_offset)  # what a log says of itself is a promise too
        self.learn(topic, model, short=False)
        if topic == "t":
            self._starts.append(first)

    def append_twice(self) -> None:
        """Two unsynced batches in one segment: the disk may have the second one only."""
        for _ in range(2):
            self.append([30], pylog.Durability.OS)

    def append_released(self) -> None:
        """Between two appends the writers of idle logs are closed, as they are when other logs need their descriptors."""
        self.append([30], pylog.Durability.OS)
        WRITERS.release()
        self.append([30], pylog.Durability.OS)

    def append_amid_zeros(self) -> None:
        """Zeros are written behind the first of two batches, and the second one over them; what follows finds the rest."""
        with patch.multiple(limits, PREALLOCATE_AFTER=1):
            for _ in range(2):
                self.append([20], pylog.Durability.SYNC)

    def append_elsewhere(self) -> None:
        """Another process appends, between two appends of this one."""
        if self._other is None:
            self._other = pylog.open(ROOT, fs=self.fs.process(), clock=self.clock)
        self.append([30], pylog.Durability.SYNC, store=self._other)

    def append_interval(self) -> None:
        """An append that somebody else flushes later: what the background thread does, which has no clock to wake it here."""
        self.append([30], pylog.Durability.INTERVAL(NEVER_MS))
        log, model = self.store.log("t"), self.model("t")
        engine_of(log).flush_in_background()
        model.flushed(log.durable_offset)
        self.learn("t", model)

    def append_refused(self) -> None:
        """A write of four batches fails behind the second one, and is cut off again; then a batch as large as the first is kept.

        If the cut could be lost and that batch not, the second one would stand behind it, whole, at its old offset.
        """
        model = self.model("w")
        first = model.end
        new = [item("w", offset, 30, self._refused) for offset in range(first, first + 4)]
        self._refused += 1
        model.append(new)
        self.learn("w", model)
        self._refuse("short write ENOSPC", LOG, lambda: self.store.log("w").append_batch(rows(new), durability=OS))
        model.refused(first)
        self.learn("w", model)
        self.append([30], OS, "w")

    def roll_refused(self) -> None:
        """There is no room for a new segment, so an append whose second batch needs one is refused whole."""
        model = self.model("t")
        first = model.end
        new = [item("t", first, 60, self._refused), item("t", first + 1, 401, self._refused)]
        self._refused += 1
        model.append(new)
        self.learn("t", model)
        self._refuse("create ENOSPC", LOG, lambda: self.store.log("t").append_batch(rows(new), durability=SYNC))
        model.refused(first)
        self.learn("t", model)

    def _refuse(self, kind: str, path: str, call: Callable[[], object]) -> None:
        """Makes a call that meets a fault, and is refused for it."""
        self._faulty.fail(kind, of=path)
        with contextlib.suppress(pylog.StorageFailedError):
            call()
        assert self._faulty.fired == 1
        self._faulty.heal()

    def flush(self) -> None:
        log, model = self.store.log("t"), self.model("t")
        log.flush()
        model.flushed(model.end)
        self.learn("t", model)

    def truncate(self, call: int) -> None:
        """Cuts off what an append wrote, and all behind it."""
        log, model = self.store.log("t"), self.model("t")
        starts = self._starts or [model.end]
        end = max(starts[min(call, len(starts) - 1)], log.start_offset)
        self._starts = [start for start in starts if start < end]
        self._truncations += 1
        model.truncate(end)
        self.learn("t", model)
        log.truncate(end)
        model.truncated(end)
        self.learn("t", model)

    def delete_records(self, *, everything: bool) -> None:
        log, model = self.store.log("t"), self.model("t")
        before = model.end if everything else (log.start_offset + model.end) // 2
        model.delete(before)
        self.learn("t", model)
        log.delete_records(before)
        model.deleted(before)
        self.learn("t", model)

    def tick(self) -> None:
        """Retention, which may delete whole segments of every topic."""
        for topic in self.topics():
            model = self.model(topic)
            model.delete(model.end)
            self.learn(topic, model)
        self.store.tick()
        for topic in self.topics():
            model = self.model(topic)
            model.deleted(self.store.log(topic).start_offset)
            self.learn(topic, model)

    def reopen(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Closes, lets somebody else do something, and opens again."""
        if self._other is not None:
            self._other.close()
            self._other = None
        self.store.close()
        for topic in self.topics():
            model = self.model(topic)
            model.flushed(model.end)
            self.learn(topic, model)
        meanwhile()
        self.store = self._open()

    def append_keyed(self) -> None:
        """Fills a segment of the compacted topic, if it is there."""
        for _ in range(3 * ("k" in self.topics())):
            self.append([150], OS, "k")

    def clean(self) -> None:
        """Compacts topic `k`, if it is there: of each key the last record stays."""
        if "k" not in self.topics():
            return
        model = self.model("k")
        end = self.store.log("k").segments[-1].base_offset
        keys = [key_of(record) for record in model.promise.records[:end]]
        model.compact(offset for offset, key in enumerate(keys) if key in keys[offset + 1 :])
        self.learn("k", model)
        (done,) = self.store.compact("k")
        assert done.end == end

    def swap(self) -> None:
        """A broker has compacted a segment, and died before it gave the new file its name; then somebody opens the store."""
        segments = segments_of(self.store.log("t"))
        self.reopen()
        if len(segments) > 1:
            old = segments[0].path
            new = self.fs.create(old + CLEANED)
            new.write(memoryview(self.fs.read(old, 1 << 20)), 0)
            new.sync()
            self.fs.sync_directory(f"{ROOT}/t-0")
            self.fs.rename(old + CLEANED, old + SWAP)
            self.fs.sync_directory(f"{ROOT}/t-0")
        self.store.log("t")

    def broker_loses(self) -> None:
        """A broker appends a producer's record, rolls, loses the power: the record is lost, and the snapshot that has it is not.

        Brokers sync the one before the other. Then somebody opens the store. Should the snapshot come back when the log has got
        to its offset, the producer's next record would pass for one that is there.
        """
        end = self.model("t").end
        sequence = next_sequence(self.model("t").promise.records)
        lost = ProducerStateManager([Producer(PRODUCER, 0, sequence, end, 0, NOW + end)], end + 1)
        self.learn("t", short=True)
        self.reopen(meanwhile=lambda: self._leave_snapshot(lost))
        self.store.log("t")

    def _leave_snapshot(self, state: ProducerStateManager) -> None:
        self.fs.remove(f"{ROOT}/{CLEAN_SHUTDOWN}")
        self.fs.sync_directory(ROOT)
        path = f"{ROOT}/t-0/{file_name(state.end_offset, SNAPSHOT)}"
        if not self.fs.exists(path):
            data = encode_snapshot(state)
            snapshot = self.fs.create(path)
            snapshot.write(memoryview(data), 0)
            snapshot.sync()
            self.fs.sync_directory(f"{ROOT}/t-0")

    def end(self) -> None:
        """Dies, and lets go of what belongs to the process that runs the test."""
        self.fs.kill()
        for store in (self.store, self._other):
            if store is not None:
                with contextlib.suppress(pylog.PylogError):
                    store.close()

    def topics(self) -> list[str]:
        return [name for name, known in self.known.items() if not known.may_lack]

    def begin(self) -> None:
        """Makes topics `t` and `w` in an empty store."""
        self._starts = []
        self.create("t")
        self.create("w", **ROOMY)

    def create_topic(self) -> None:
        """Makes topic `u`, or `v` when that is there, and appends its first record."""
        name = "v" if "u" in self.topics() else "u"
        if name not in self.topics():
            self.create(name)
            self.append([30], SYNC, name)

    def replace_topic(self) -> None:
        """Somebody decides to delete topic `u`, and does not get to it; then it is created again, and is empty."""
        if "u" in self.topics():
            self.learn("u", LogModel(Promise(self.known["u"].log.records)), (True, True))
            self._refuse("rename EIO", "/u-0", lambda: self.store.delete_topic("u"))
            self.store.create_topic("u", **TINY)
            self.learn("u", LogModel(), THERE)

    def create(self, name: str, **config: int) -> None:
        self.learn(name, LogModel(), (True, True))
        self.store.create_topic(name, **{**TINY, **config})
        self.learn(name, there=THERE)

    def delete_topic(self) -> None:
        name = next((name for name in ("v", "u") if name in self.topics()), None)
        if name is None:
            return
        self.learn(name, there=(True, True))
        self.store.delete_topic(name)
        self.learn(name, there=GONE)


def item(topic: str, offset: int, size: int, truncations: int = 0, sequence: int | None = None) -> Item:
    """The record that a workload appends there: a value of so many bytes that no other record has, and its timestamp."""
    text = b"%s %d %d %d %d." % (topic.encode(), offset, size, truncations, -1 if sequence is None else sequence)
    return (text * (size // len(text) + 1))[:size], NOW + offset


def rows(items: Sequence[Item]) -> list[tuple[bytes | None, bytes, tuple[()], int]]:
    """Records as a log takes them."""
    return [(key_of(item), value, (), timestamp) for item in items for value, timestamp in [item]]


def key_of(record: Any) -> bytes | None:
    """A record's key in topic `k`, where every third one has a key of its own and the others share two; none in others."""
    topic, offset = record[0].split()[0], int(record[0].split()[1])
    if topic != b"k":
        return None
    return b"own %d" % offset if offset % 3 == 1 else b"%d" % (offset % 2)


def sequence_of(record: Any) -> int:
    """The number that the producer gave a record, -1 if it came without, or if there is none."""
    return int(record[0].partition(b".")[0].split()[-1]) if record is not GAP else -1


def next_sequence(records: Sequence[Any]) -> int:
    return max(map(sequence_of, records), default=-1) + 1


def numbered(sequence: int | None) -> pylog.ProducerBatch | None:
    return None if sequence is None else pylog.ProducerBatch(PRODUCER, 0, sequence)


SYNC, OS = pylog.Durability.SYNC, pylog.Durability.OS
OPERATIONS: dict[str, Callable[[Session], None]] = {
    "new": Session.begin,
    "append": lambda session: session.append([30], SYNC),
    "append_os": Session.append_twice,
    "append_idempotent": lambda session: session.append([30], OS, idempotent=True),
    "append_interval": Session.append_interval,
    "append_released": Session.append_released,
    "append_amid_zeros": Session.append_amid_zeros,
    "append_elsewhere": Session.append_elsewhere,
    "append_many": lambda session: session.append([200] * 4, SYNC),
    "append_many_os": lambda session: session.append([60] * 9, OS),
    "append_refused": Session.append_refused,
    "roll_refused": Session.roll_refused,
    "flush": Session.flush,
    "roll": lambda session: session.append([400], SYNC),
    "truncate": lambda session: session.truncate(-1),
    "truncate_deep": lambda session: session.truncate(1),
    "delete_records": lambda session: session.delete_records(everything=False),
    "delete_all": lambda session: session.delete_records(everything=True),
    "tick": Session.tick,
    "clean": Session.clean,
    "reopen": Session.reopen,
    "swap": Session.swap,
    "broker_loses": Session.broker_loses,
    "create_topic": Session.create_topic,
    "delete_topic": Session.delete_topic,
    "replace_topic": Session.replace_topic,
}


def workloads(length: int) -> list[tuple[str, ...]]:
    """All sequences of up to so many operations, short ones first; `new` is a beginning only."""
    sizes = range(1, length + 1)
    return [names for size in sizes for names in itertools.product(OPERATIONS, repeat=size) if "new" not in names[1:]]


NOTHING: tuple[Image, Known] = (MemoryFileSystem().image(), {})


@functools.cache
def base() -> tuple[Image, Known]:
    """The store that all workloads begin with, and what is known of it."""
    fs = MemoryFileSystem(clock=clock())
    with drawn_from("base"):
        session = Session(fs, {})
        session.begin()
        session.create_topic()
        session.learn("k", LogModel(), (True, True))
        session.store.create_topic("k", **KEYED)
        session.learn("k", there=THERE)
    for compacted in (False, False, True, True, False):  # the first segments are small then: the next compaction merges them
        session.append_keyed()
        if compacted:
            session.clean()
    for size in (150, 150, 150, 30):
        session.append([size], SYNC, idempotent=size == 30)
    session.store.close()
    return fs.image(), session.known
