"""Copiers of a group in random courses: each reads, writes what it read and commits its offsets in one transaction (KIP-447).

Meanwhile the input has records without timestamps, of the past and the future, and of transactions that are aborted; the clock
jumps and goes back; segments roll; retention, `delete_records`, truncation and compaction remove what they may; topics are
created again; options change; another process writes. Copiers join, leave, stand still, die in the middle of a commit, and are
fenced. A course may begin with the directory of a broker.

The model is which input records are copied. A record that nothing has removed is copied once, and no record twice.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pylog
from pylog import Consumer, Record, TopicPartition
from pylog.testing import MemoryFileSystem
from pylog.transactions.incarnation import Incarnation
from pylog.transactions.transaction import Transaction
from support.campaign.crashing import NOW, WallClock, bury

ROOT: Final = "/data"
HOUR: Final = 3_600_000
_AFTER_THE_BROKER: Final = 1_900_000_000_000  # so that what it has left open has timed out
GROUP: Final = "copiers"
IDS: Final = ("one", "two", "three")
COPY: Final = b"copy "
_OPTIONS: Final[dict[str, Any]] = {
    "transactions": pylog.TransactionsConfig(topic_num_partitions=2, topic_segment_bytes=700),
    "offsets": pylog.OffsetsConfig(topic_num_partitions=2),
}
_INPUT: Final[dict[str, Any]] = {"segment_bytes": 300, "min_cleanable_dirty_ratio": 0.0}
_ALTERED: Final[dict[str, list[Any]]] = {
    "retention_ms": [-1, HOUR, 50 * HOUR],
    "retention_bytes": [-1, 900, 5_000],
    "segment_bytes": [250, 700],
    "cleanup_policy": ["delete", "compact", "compact,delete"],
    "message_timestamp_type": ["CreateTime", "LogAppendTime"],
}
_STEPS_OF_A_COMMIT: Final = ("begin", "append", "append_offsets", "prepare_commit", "complete")
_PUT_OUT: Final = (pylog.FencedMemberError, pylog.TransactionAbortedError, pylog.InvalidTransactionStateError)
_REFUSED: Final = (
    *_PUT_OUT,
    pylog.UnknownTopicOrPartitionError,  # the topic was made again after it was read
    pylog.OffsetOutOfRangeError,
    pylog.InvalidTimestampError,  # the clock was set back meanwhile
)


class _KilledError(BaseException):
    """Ends a call where its process is killed."""


class Copier:
    """A member of the group.

    Attributes:
        who: the number of its process.
        name: its transactional id.
        transaction: the one that is open; None if none is.
        held: the numbers of the records that are in it.
    """

    def __init__(self, who: int, name: str, consumer: Consumer[Any, Any]) -> None:
        self.who = who
        self.name = name
        self.consumer = consumer
        self.transaction: Transaction | None = None
        self.held: list[int] = []

    def rewind(self) -> None:
        """Goes back to what the group has committed: nothing after it is copied."""
        self.transaction, self.held = None, []
        for place in self.consumer.assignment():
            with contextlib.suppress(pylog.IllegalStateError):  # it was lost meanwhile
                offset = self.consumer.committed(place)
                if offset is None:
                    self.consumer.seek_to_beginning(place)
                else:
                    self.consumer.seek(place, offset)  # type: ignore[arg-type]  # without metadata it is a number


class Topics:
    """The names of the topics of a course.

    Args:
        source: the one that is copied.
        kept: the one that has each copy.
        side: another one that gets each copy too, and that anything may happen to; None for none.
    """

    def __init__(self, source: str = "in", kept: str = "out", side: str | None = "side") -> None:
        self.source = source
        self.kept = kept
        self.side = side


class Course:
    """Two processes of a directory, their copiers, and the model.

    Args:
        rng: decides everything.
        brokers: the directory of a broker to begin with; None for a new directory.
        topics: their names. Those of a broker's directory are not created.

    Attributes:
        sent: by partition, the numbers of the records in the input by offset. Each record has a number of its own.
        gone: the numbers of records that were removed, copied or not.
        copied: the numbers of those that were copied.
        done: how often what happened.
    """

    def __init__(self, rng: random.Random, brokers: Path | None = None, topics: Topics | None = None) -> None:
        self.rng, self.topics = rng, topics or Topics()
        self.clock = WallClock(NOW if brokers is None else _AFTER_THE_BROKER)
        self.fs = MemoryFileSystem(clock=self.clock)
        self.systems = [self.fs.process(), self.fs.process()]
        self.stores: list[pylog.Store | None] = [None, None]
        self.copiers: list[Copier] = []
        self.serial = 0
        self.sent: dict[TopicPartition, dict[int, int]] = {}
        self.gone: set[int] = set()
        self.copied: set[int] = set()
        self.done: Counter[str] = Counter()
        self.is_brokers = brokers is not None  # its records share keys
        if brokers is not None:
            copy_into(self.fs, brokers)
            self._take_a_brokers()
        else:
            self._make_source(self.store(0))
            self.store(0).create_topic(self.topics.kept, 2, segment_bytes=500)
            self.store(0).create_topic("side", segment_bytes=300)

    def _make_source(self, store: pylog.Store) -> None:
        store.create_topic(self.topics.source, 2, **_INPUT)
        self.sent = {place: {} for place in self._places()}

    def _take_a_brokers(self) -> None:
        self.sent = {place: {} for place in self._places()}
        admin = self.store(0).transactions
        for each in admin.list(["Ongoing"]):  # what the broker has left open is for its clients, or for an administrator
            admin.abort(each.transactional_id)
        admin.end_hanging()
        for place, known in self.sent.items():
            for record in self.store(0).log(*place).records(isolation_level="read_committed"):
                known[record.offset] = self._number()

    def _places(self) -> list[TopicPartition]:
        topic = self.store(0).topic(self.topics.source)
        return [TopicPartition(topic.name, number) for number in topic.partition_ids]

    def _number(self) -> int:
        self.serial += 1
        return self.serial

    def store(self, who: int) -> pylog.Store:
        """The store of a process; it is opened if it is not open."""
        found = self.stores[who]
        if found is None:
            level = self.rng.choice(("os", "sync"))
            opened = pylog.open(ROOT, fs=self.systems[who], clock=self.clock, durability=level, **_OPTIONS)
            found = self.stores[who] = opened
        return found

    def any_store(self) -> pylog.Store:
        return self.store(self.rng.randrange(2))

    def step(self) -> None:
        chosen = self.rng.choice(STEPS)
        chosen(self)
        self.done[chosen.__name__] += 1
        self._note_removed()

    def _note_removed(self) -> None:
        for place, known in self.sent.items():
            log = self.store(0).log(*place)
            with contextlib.suppress(pylog.UnknownTopicOrPartitionError):  # the log of a topic that another process made again
                log.flush()
            start = self.store(0).log(*place).start_offset
            self.gone.update(number for offset, number in known.items() if offset < start)

    # ---- the input -----------------------------------------------------------------------------------------------------------

    def _row(self, place: TopicPartition) -> tuple[bytes, bytes, tuple[()], int]:
        now = self.clock.now_ms()
        timestamp = self.rng.choice((-1, -1, now, now - 60 * HOUR, now + HOUR // 2))
        return b"k%d" % self.serial, b"%s %d" % (place.topic.encode(), self._number()), (), timestamp

    def feed(self) -> None:
        place = self.rng.choice(list(self.sent))
        rows = [self._row(place) for _ in range(self.rng.randint(1, 3))]
        first = self.serial - len(rows) + 1
        offsets = self.any_store().log(*place).append_many(rows)
        self.sent[place].update(zip(offsets, range(first, self.serial + 1), strict=True))

    def feed_in_a_transaction(self) -> None:
        """Some of them are aborted: their records are never copied."""
        place, who = self.rng.choice(list(self.sent)), self.rng.randrange(2)
        rows = [self._row(place) for _ in range(self.rng.randint(1, 3))]
        first = self.serial - len(rows) + 1
        transaction = self.store(who).transaction(f"feeder {who}")
        try:
            transaction.append_many(place.topic, rows, partition=place.partition)
            transaction.flush()
        except pylog.UnknownTopicOrPartitionError:  # the other process has made the topic again
            transaction.abort()
        if transaction.outcome == "aborted" or self.rng.random() < 0.4:
            transaction.abort()
            return
        transaction.commit()
        offsets = (offset for part in transaction.offsets[place] for offset in part)
        self.sent[place].update(zip(offsets, range(first, self.serial + 1), strict=True))

    # ---- copiers -------------------------------------------------------------------------------------------------------------

    def join(self) -> None:
        """A copier with an id that is free, or one that fences another copier."""
        if len(self.copiers) < 3:
            who = self.rng.randrange(2)
            taken = {each.name for each in self.copiers if each.who == who}
            self._join(who, self.rng.choice([each for each in IDS if each not in taken]), self.rng.choice((1, 3, 500)))

    def _join(self, who: int, name: str, most: int) -> None:
        options: dict[str, Any] = {"group_id": GROUP, "isolation_level": "read_committed", "max_poll_records": most}
        options |= {"auto_offset_reset": "earliest", "enable_auto_commit": False, "consumer_timeout_ms": 0}
        consumer = self.store(who).consumer(self.topics.source, **options)
        self.copiers.append(Copier(who, name, consumer))

    def leave(self) -> None:
        if self.copiers:
            copier = self.copiers.pop(self.rng.randrange(len(self.copiers)))
            self._give_up(copier)
            copier.consumer.close()

    def read(self) -> None:
        """A copier without an open transaction reads, and writes the copies into a new one. A poll may take partitions away."""
        if self.copiers:
            copier = self.rng.choice(self.copiers)
            if copier.transaction is None:
                self._read(copier)

    def _read(self, copier: Copier) -> None:
        try:
            found = copier.consumer.poll()
            for place, records in found.items():
                for record in records:
                    self._copy(copier, place, record)
            if copier.transaction is not None and self.rng.random() < 0.4:
                copier.transaction.flush()
        except _REFUSED:
            self._give_up(copier)
        except pylog.ProducerFencedError:
            self._end_fenced(copier)

    def _copy(self, copier: Copier, place: TopicPartition, record: Record[Any, Any]) -> None:
        number = self.sent[place].get(record.offset)
        assert number is not None, f"{place} has no committed record at offset {record.offset}"
        if copier.transaction is None:
            copier.transaction = self.store(copier.who).transaction(copier.name)
        timestamp = self.rng.choice((None, -1, min(record.timestamp, self.clock.now_ms())))
        row = b"k%d" % number, COPY + b"%d" % number, (), timestamp
        copier.transaction.append_many(self.topics.kept, [row])
        if self.topics.side is not None:
            copier.transaction.append_many(self.topics.side, [row])
        copier.held.append(number)

    def commit(self) -> None:
        if self.copiers:
            self._commit(self.rng.choice(self.copiers))

    def _commit(self, copier: Copier) -> None:
        transaction = copier.transaction
        if transaction is None:
            return
        try:
            transaction.send_offsets(copier.consumer)
            transaction.commit()
        except _REFUSED:
            self._give_up(copier)
        except pylog.ProducerFencedError:
            self._end_fenced(copier)
        else:
            self._note_copied(copier.held)
            copier.transaction, copier.held = None, []
            self.done["committed"] += 1

    def _note_copied(self, numbers: list[int]) -> None:
        twice = self.copied.intersection(numbers)
        assert not twice, f"copied twice: {sorted(twice)}"
        self.copied.update(numbers)

    def abort(self) -> None:
        if self.copiers:
            self._give_up(self.rng.choice(self.copiers))

    def _give_up(self, copier: Copier) -> None:
        self.done["given up"] += copier.transaction is not None
        if copier.transaction is not None:
            with contextlib.suppress(*_PUT_OUT, pylog.ProducerFencedError):
                copier.transaction.abort()
            assert copier.transaction.outcome != "committed"
        copier.rewind()

    def _end_fenced(self, copier: Copier) -> None:
        self.done["fenced"] += 1
        self.copiers.remove(copier)
        assert copier.transaction is None or copier.transaction.outcome != "committed"
        copier.consumer.close()

    # ---- processes -----------------------------------------------------------------------------------------------------------

    def die_in_a_commit(self) -> None:
        """The process of a copier is killed before or after a step of the commit: all of the transaction is there, or nothing."""
        ready = [each for each in self.copiers if each.transaction is not None]
        if not ready:
            return
        copier, before = self.rng.choice(ready), self._offsets()
        with self._killing(self.rng.choice(_STEPS_OF_A_COMMIT), after=self.rng.random() < 0.5), contextlib.suppress(_KilledError):
            self._commit(copier)
        self._kill(copier.who)
        if copier.held and self._offsets() != before:  # the next opening has finished what was decided
            self._note_copied(copier.held)
            self.done["committed by others"] += 1

    def _offsets(self) -> list[int | None]:
        return [self.store(who).offsets.position(GROUP, place) for who in range(2) for place in self.sent]

    @contextlib.contextmanager
    def _killing(self, step: str, *, after: bool) -> Iterator[None]:
        real = getattr(Incarnation, step)

        def killed(*given: Any, **named: Any) -> None:
            if after:
                real(*given, **named)
            raise _KilledError

        with patch.object(Incarnation, step, killed):
            yield

    def die(self) -> None:
        self._kill(self.rng.randrange(2))

    def _kill(self, who: int) -> None:
        self.systems[who].kill()
        self.systems[who] = self.fs.process()
        self._forget(who)

    def reopen(self) -> None:
        who = self.rng.randrange(2)
        if (store := self.stores[who]) is not None:
            store.close()
        self._forget(who)

    def _forget(self, who: int) -> None:
        store, self.stores[who] = self.stores[who], None
        if store is not None:
            bury(store)
        self.copiers = [each for each in self.copiers if each.who != who]

    # ---- what happens to the topics ------------------------------------------------------------------------------------------

    def move_clock(self) -> None:
        self.clock.advance(self.rng.choice((0, 1, 4_000, 40_000, 70_000, HOUR)))

    def set_clock_back(self) -> None:
        self.clock.set_back(self.rng.choice((1, HOUR)))

    def tick(self) -> None:
        self.any_store().tick()

    def alter(self) -> None:
        name = self.rng.choice(sorted(_ALTERED.keys() - {"cleanup_policy"} if self.is_brokers else _ALTERED))
        self.any_store().alter_topic(self.topics.source, **{name: self.rng.choice(_ALTERED[name])})

    def alter_the_copies(self) -> None:
        """The copies are kept: each has a key of its own, so that compaction removes none."""
        policy = {"cleanup_policy": self.rng.choice(("delete", "compact")), "segment_bytes": self.rng.choice((250, 700))}
        self.any_store().alter_topic(self.topics.kept, **policy, retention_ms=-1, retention_bytes=-1)

    def compact(self) -> None:
        store = self.any_store()
        for name in (self.topics.source, self.topics.kept, "__transaction_state", "__consumer_offsets"):
            if name in store.topics() and "compact" in store.topic(name).config.cleanup_policy:
                store.compact(name)

    def delete_records(self) -> None:
        store, place = self.any_store(), self.rng.choice(list(self.sent))
        log = store.log(*place)
        if "delete" in store.topic(place.topic).config.cleanup_policy:
            log.delete_records(self.rng.randint(log.start_offset, log.end_offset))

    def truncate(self) -> None:
        """Cuts off records that no copier has got to."""
        store, place = self.any_store(), self.rng.choice(list(self.sent))
        positions = [each.consumer.position(place) or 0 for each in self.copiers if place in each.consumer.assignment()]
        log = store.log(*place)
        least = max(log.start_offset, store.offsets.position(GROUP, place) or 0, *positions, 0)
        if least < log.end_offset and not any(each.held for each in self.copiers):
            with contextlib.suppress(pylog.InvalidTransactionStateError):  # it would part a transaction
                log.truncate(self.rng.randint(least, log.end_offset))
                left = {record.offset for record in log.records()}  # without a batch that was cut in two
                self.gone.update(number for offset, number in self.sent[place].items() if offset not in left)
                self.sent[place] = {offset: number for offset, number in self.sent[place].items() if offset in left}

    def change_side(self) -> None:
        """Anything may happen to the other topic that transactions write to."""
        if self.topics.side is None:
            return
        store = self.any_store()
        with contextlib.suppress(pylog.InvalidTransactionStateError, pylog.UnknownTopicOrPartitionError):
            log = store.log("side")
            change = self.rng.choice((log.delete_records, log.truncate, self._make_side_again))
            change(self.rng.randint(log.start_offset, log.end_offset))

    def _make_side_again(self, _: int) -> None:
        store = self.any_store()
        store.delete_topic("side", force=self.rng.random() < 0.5)
        store.create_topic("side", segment_bytes=300)

    def make_source_again(self) -> None:
        if self.is_brokers:
            return  # its topics cannot be created again
        store = self.any_store()
        for known in self.sent.values():
            self.gone.update(known.values())
        store.delete_topic(self.topics.source, force=True)
        self._make_source(store)

    # ---- what must be true ---------------------------------------------------------------------------------------------------

    def _in_the_output(self) -> Counter[int]:
        """The numbers of the committed copies, as a reader sees them."""
        store = self.store(0)
        logs = [store.log(self.topics.kept, number) for number in store.topic(self.topics.kept).partition_ids]
        values = [record.value or b"" for log in logs for record in log.records(isolation_level="read_committed")]
        return Counter(int(value.removeprefix(COPY)) for value in values if value.startswith(COPY))

    def check(self) -> None:
        """No copy is there twice or without its offset. A reader may not see some yet: open transactions are before them."""
        found = self._in_the_output()
        assert max(found.values(), default=1) == 1, f"in the output twice: {[each for each, n in found.items() if n > 1]}"
        assert found.keys() <= self.copied, f"not committed: {found.keys() - self.copied}"
        for place, known in self.sent.items():
            at = self.store(0).offsets.position(GROUP, place) or 0
            skipped = {number for offset, number in known.items() if offset < at} - self.copied - self.gone
            assert not skipped, f"the group is at {at} in {place}, and records before that were not copied: {skipped}"
            early = {number for offset, number in known.items() if offset >= at} & self.copied
            assert not early, f"the group is at {at} in {place}, and copies of later records are there: {early}"

    def settle(self) -> None:
        """A last copier alone copies what is left. Then each record that nothing has removed is there once."""
        for copier in self.copiers:
            self._give_up(copier)
            copier.consumer.close()
        self.copiers.clear()
        self.feed()
        self._join(0, "last", 500)  # no other process has fenced this id
        (last,) = self.copiers
        for _ in range(30):
            self._read(last)
            self._commit(last)
            self.clock.advance(3_000)
            self._note_removed()
        assert self.copiers == [last]
        self.clock.advance(HOUR)
        self.store(last.who).tick()
        found = self._in_the_output()
        assert found == Counter(self.copied), f"too many: {found - Counter(self.copied)}, missing: {self.copied - found.keys()}"
        every = {number for known in self.sent.values() for number in known.values()}
        assert every - self.gone <= self.copied, f"never copied: {every - self.gone - self.copied}"
        report = self.store(last.who).check()
        assert report.ok, str(report)

    def close(self) -> None:
        for store in self.stores:
            if store is not None:
                bury(store)


def copy_into(fs: MemoryFileSystem, directory: Path) -> None:
    """Copies the files of a directory into one in memory."""
    fs.make_directory(ROOT)
    for path in sorted(directory.rglob("*")):
        target = f"{ROOT}/{path.relative_to(directory)}"
        if path.is_dir():
            fs.make_directory(target)
        else:
            file = fs.create(target)
            file.write(memoryview(path.read_bytes()), 0)
            file.close()


STEPS: Final[list[Callable[[Course], None]]] = [
    *[Course.feed, Course.read, Course.commit] * 7,
    *[Course.feed_in_a_transaction, Course.join] * 3,
    *[Course.move_clock] * 2,
    *[Course.abort, Course.leave, Course.die, Course.die_in_a_commit, Course.reopen],
    *[Course.set_clock_back, Course.tick, Course.alter, Course.alter_the_copies, Course.compact],
    *[Course.delete_records, Course.truncate, Course.change_side, Course.make_source_again],
]
