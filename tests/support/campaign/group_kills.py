"""Members of a group copy a topic in transactions, and are killed at any moment: each record is copied exactly once (KIP-447).

Several processes read a topic as members of one group. Each writes what it has read to another topic and commits its offsets in
the same transaction, with a transactional id of its own, some with a producer and some with `store.transaction`. The parent kills
them. Or it stops one, starts another process, and lets the first one continue: if the other one has its id, it is fenced; if not,
the group has removed it meanwhile, and it must not commit for partitions that others have. At the end each input record is in the
output once, as `read_committed` readers see it, the group has reached the end, and no transaction is open.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pylog
from pylog import Durability
from support.campaign.processes import HANG_SECONDS, CampaignError, Child, Journal, in_fresh_process, new_directory, seeded, until

GROUP: Final = "copiers"
IN: Final = "in"
OUT: Final = "out"
PARTITIONS: Final = 4
MEMBERS: Final = 3
OPTIONS: Final[dict[str, Any]] = {
    "offsets": pylog.OffsetsConfig(topic_num_partitions=2),
    "transactions": pylog.TransactionsConfig(topic_num_partitions=3),
}
_EVENTS: Final = ("commits", "aborts", "lost", "fenced", "opened")
_LIFE_SECONDS: Final = (-2.3, -0.3)  # powers of ten: how long after a member is ready it is killed
_ZOMBIES: Final = 0.2  # how often a member is not killed but stopped, replaced, and continued
_POLL_MS: Final = 600  # a member that is stopped for longer is removed from its group
_SESSION_MS: Final = 400
_HEARTBEAT_MS: Final = 100
_STOPPED_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 2.0  # for a member that starts
_END_SECONDS: Final = 150.0  # for the members that are left at the end
_DEATHS_OF_A_LIFE: Final = 40


def run(seed: int, seconds: float | None = None, *, deaths: int | None = None) -> dict[str, Any]:
    """Kills members until the time is over, or a number of them are dead.

    Args:
        seed: decides everything except the scheduling of processes.
        seconds, deaths: how long; one of them at least.

    Returns:
        How often what happened.

    Raises:
        CampaignError: a record was copied twice or never, or something waits forever; the directory is kept.
    """
    return in_fresh_process(campaign, seed, seconds, deaths)


def campaign(seed: int, seconds: float | None, deaths: int | None) -> dict[str, Any]:
    """`run`, in this process: it must have no other threads."""
    _warm_up()
    root = new_directory("group-kills")
    total: Counter[str] = Counter()
    began = time.monotonic()
    lives = None if deaths is None else -(-deaths // _DEATHS_OF_A_LIFE)
    for number in until(lives, seconds):
        path = root / str(number)
        try:
            total += _Life(path, seeded(seed, number), min(deaths or _DEATHS_OF_A_LIFE, _DEATHS_OF_A_LIFE)).live()
        except (CampaignError, pylog.PylogError) as error:
            raise CampaignError(f"seed {seed}, life {number}, in {path}: {error!r}") from error
        shutil.rmtree(path)
    shutil.rmtree(root)
    return {"seed": seed, **total, "seconds": round(time.monotonic() - began, 1)}


# ---- a member ----------------------------------------------------------------------------------------------------------------


class Shared:
    """Numbers that the members and their parent share: what happened, and whether the members must end."""

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, 4096)).cast("q")

    @property
    def is_over(self) -> bool:
        return bool(self._words[0])

    def end(self) -> None:
        self._words[0] = 1

    def count(self, member: int, event: str) -> None:
        """Counts an event. Each member has words of its own."""
        self._words[1 + member * len(_EVENTS) + _EVENTS.index(event)] += 1

    def counts(self) -> Counter[str]:
        words = self._words[1 : 1 + 2 * MEMBERS * len(_EVENTS)].tolist()
        return Counter({event: sum(words[number :: len(_EVENTS)]) for number, event in enumerate(_EVENTS)})


class Member:
    """One process of the group: it copies until the end, and forgets what it has read whenever a transaction fails."""

    def __init__(self, path: Path, number: int, seed: str, shared: Shared, *, name: str, by_producer: bool) -> None:
        self.path = path
        self._number = number
        self._name = name
        self._rng = random.Random(seed)
        self._shared = shared
        self._copy = self._copy_by_producer if by_producer else self._copy_by_transaction
        self._by_producer = by_producer
        self._producer: pylog.Producer[Any, Any] | None = None

    def live(self, say_ready: Callable[[], None]) -> None:
        """Copies until the group has nothing left to read and the parent says that this is the end."""
        level = self._rng.choice((Durability.OS, Durability.SYNC))
        with pylog.open(self.path, durability=level, **OPTIONS) as store:
            self._shared.count(self._number, "opened")
            with contextlib.suppress(pylog.ProducerFencedError), self._consumer(store) as consumer:
                self._begin(store)
                say_ready()
                while not self._shared.is_over or left(store):
                    self._turn(store, consumer)
                return
            self._shared.count(self._number, "fenced")

    def _consumer(self, store: pylog.Store) -> pylog.Consumer[Any, Any]:
        return store.consumer(
            IN,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            max_poll_interval_ms=_POLL_MS,
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
        )

    def _begin(self, store: pylog.Store) -> None:
        if self._by_producer:
            self._producer = store.producer(transactional_id=self._name)
            self._producer.init_transactions()

    def _turn(self, store: pylog.Store, consumer: pylog.Consumer[Any, Any]) -> None:
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)  # of each turn, not of the process
        found = consumer.poll(20, max_records=self._rng.randint(1, 25))
        if not found:
            return
        try:
            self._copy(store, consumer, found)
        except (pylog.FencedMemberError, pylog.TransactionAbortedError, pylog.StoreLockedError):
            self._shared.count(self._number, "lost")
            rewind(consumer)
        except _GivenUpError:
            self._shared.count(self._number, "aborts")
            rewind(consumer)
        else:
            self._shared.count(self._number, "commits")

    def _copy_by_producer(self, _: pylog.Store, consumer: pylog.Consumer[Any, Any], found: dict[Any, list[Any]]) -> None:
        producer = self._producer
        assert producer is not None
        producer.begin_transaction()
        try:
            for record in self._each(found):
                producer.send(OUT, record.value, key=record.value)
            ends = {partition: records[-1].offset + 1 for partition, records in found.items()}
            producer.send_offsets_to_transaction(ends, consumer.group_metadata())
            self._give_up_at_times()
            producer.commit_transaction()
        except pylog.ProducerFencedError:
            raise
        except Exception:
            producer.abort_transaction()
            raise

    def _copy_by_transaction(self, store: pylog.Store, consumer: pylog.Consumer[Any, Any], found: dict[Any, list[Any]]) -> None:
        with store.transaction(self._name) as transaction:
            for record in self._each(found):
                transaction.append(OUT, record.value, key=record.value)
                if self._rng.random() < 0.2:
                    transaction.flush()
            transaction.send_offsets(consumer)
            self._give_up_at_times()

    def _each(self, found: dict[Any, list[Any]]) -> Iterator[Any]:
        for records in found.values():
            yield from records

    def _give_up_at_times(self) -> None:
        if self._rng.random() < 0.1:
            raise _GivenUpError


class _GivenUpError(Exception):
    """The program has changed its mind, and aborts."""


def rewind(consumer: pylog.Consumer[Any, Any]) -> None:
    """Goes back to the group's committed offsets: the records after them were not copied."""
    for partition in consumer.assignment():
        with contextlib.suppress(pylog.IllegalStateError):  # it was lost meanwhile
            offset = consumer.committed(partition)
            if offset is None:
                consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, offset)  # type: ignore[arg-type]  # without metadata it is a number


def left(store: pylog.Store) -> int:
    """Returns how many records the group has not committed."""
    partitions = [(IN, number) for number in store.topic(IN).partition_ids]
    return sum(store.log(*each).end_offset - (store.offsets.position(GROUP, each) or 0) for each in partitions)


# ---- the parent --------------------------------------------------------------------------------------------------------------


class _Life:
    """One directory, from its first record to the verdict."""

    def __init__(self, path: Path, rng: random.Random, deaths: int) -> None:
        self.path = path
        self._rng = rng
        self._deaths = deaths
        self._shared = Shared()
        self._values: set[bytes] = set()
        self._started = 0

    def live(self) -> Counter[str]:
        done: Counter[str] = Counter()
        with pylog.open(self.path, durability=Durability.OS, **OPTIONS) as store:
            store.create_topic(IN, PARTITIONS)
            store.create_topic(OUT, PARTITIONS - 1)
            self.feed(store, 100)
        with contextlib.ExitStack() as stack:
            members = {number: self._start(stack, number) for number in range(MEMBERS)}
            for _ in range(self._deaths):
                number = self._rng.randrange(MEMBERS)
                victim = members[number]
                victim.wait_ready(_PATIENCE_SECONDS)
                time.sleep(10 ** self._rng.uniform(*_LIFE_SECONDS))
                if self._rng.random() < _ZOMBIES:
                    done["zombies"] += 1
                    members[number] = self._replace(stack, number, victim)
                else:
                    done["killed"] += 1
                    victim.kill()
                    victim.wait()
                    members[number] = self._start(stack, number)
                if self._rng.random() < 0.5:
                    self._feed_more()
            self._shared.end()
            self._wait_for(members)
        self.judge()
        return done + self._shared.counts() + Counter(records=len(self._values))

    def _start(self, stack: contextlib.ExitStack, number: int, name: str | None = None) -> Child:
        self._started += 1
        by_producer = self._rng.random() < 0.5
        name = name or f"copier-{number}"
        work = Member(self.path, number, str(self._rng.random()), self._shared, name=name, by_producer=by_producer)
        return stack.enter_context(Child(f"member {number}, start {self._started}", work.live, Journal(64)))

    def _replace(self, stack: contextlib.ExitStack, number: int, victim: Child) -> Child:
        """Stops a process, starts another one, and lets the first one continue for a while."""
        os.kill(victim.pid, signal.SIGSTOP)
        name = f"copier-{number}-{self._started}" if self._rng.random() < 0.7 else None
        other = self._start(stack, number, name)
        if name is None:
            other.wait_ready(_STOPPED_SECONDS)
        else:
            time.sleep(_STOPPED_SECONDS)
        os.kill(victim.pid, signal.SIGCONT)
        time.sleep(10 ** self._rng.uniform(*_LIFE_SECONDS))
        victim.kill()
        victim.wait()
        return other

    def feed(self, store: pylog.Store, count: int) -> None:
        for _ in range(count // 10):
            values = [b"%d" % (len(self._values) + number) for number in range(10)]
            store.log(IN, self._rng.randrange(PARTITIONS)).append_many(values)
            self._values.update(values)

    def _feed_more(self) -> None:
        with pylog.open(self.path, durability=Durability.OS, **OPTIONS) as store:
            self.feed(store, 50)

    def _wait_for(self, members: dict[int, Child]) -> None:
        deadline = time.monotonic() + _END_SECONDS
        left = dict(members)
        while left:
            for number, member in list(left.items()):
                if os.waitid(os.P_PID, member.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    left.pop(number).wait()
            if time.monotonic() > deadline:
                raise CampaignError(f"members {sorted(left)} have not copied everything after {_END_SECONDS:.0f} s")
            time.sleep(0.01)

    def judge(self) -> None:
        with pylog.open(self.path, **OPTIONS) as store:
            logs = [store.log(OUT, number) for number in store.topic(OUT).partition_ids]
            found = Counter(record.value for log in logs for record in log.records(isolation_level="read_committed"))
            doubled = sorted(value for value, count in found.items() if count > 1)
            lost, strange = sorted(self._values - found.keys()), sorted(found.keys() - self._values)
            if doubled or lost or strange:
                raise CampaignError(f"copied twice: {doubled[:20]}, never: {lost[:20]}, never written: {strange[:20]}")
            waiting = [log.partition for log in logs if log.stable_offset != log.end_offset]
            if waiting:
                raise CampaignError(f"transactions are open in {waiting}")
            if left(store):
                raise CampaignError(f"the group has not committed {left(store)} records")
            report = store.check()
            if not report.ok:
                raise CampaignError(str(report))


def _warm_up() -> None:
    """Copies a few records in this process, so that its children find everything loaded and compiled."""
    root = new_directory("group-kills-warm")
    for by_producer in (True, False):
        life = _Life(root / str(by_producer), random.Random(1), 0)
        shared = Shared()
        shared.end()
        with pylog.open(life.path, **OPTIONS) as store:
            store.create_topic(IN, PARTITIONS)
            store.create_topic(OUT, PARTITIONS - 1)
            life.feed(store, 20)
        Member(life.path, 0, "1", shared, name="copier-0", by_producer=by_producer).live(lambda: None)
        life.judge()
    faulthandler.cancel_dump_traceback_later()  # its thread does not exist in a forked process
    shutil.rmtree(root)
