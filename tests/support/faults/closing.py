"""Another thread closes the store at a line of a call that a number says, for each call of the interface."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pyarrow as pa

import pylog
from pylog import Durability, TopicPartition, aio
from pylog.fs import door, gate

PLACE: Final = TopicPartition("t", 0)
SOURCE: Final = os.path.dirname(pylog.__file__)
WAITED_S: Final = 20.0  # for what takes milliseconds
PAUSE_S: Final = 0.005  # for a close that waits for the call


def _sent(store: pylog.Store) -> None:
    with store.producer() as producer:
        producer.partitions_for_topic("t")
        producer.send("t", b"acknowledged", partition=0).result(WAITED_S)
        producer.flush(WAITED_S)
        producer.close()


def _transacted(store: pylog.Store) -> None:
    with store.transaction("closed") as transaction:
        transaction.append("t", b"acknowledged", partition=0)
        transaction.append_many("other", [b"more"] * 3, partition=0)
        transaction.append_arrow("other", pa.table({"value": [b"more"]}), partition=0)
        transaction.send_offsets("transacted", {PLACE: 5})
        transaction.flush()


def _aborted(store: pylog.Store) -> None:
    transaction = store.transaction("closed")
    transaction.append("t", b"aborted", partition=0)
    transaction.abort()


def _committed(store: pylog.Store) -> None:
    transaction = store.transaction("closed")
    transaction.append("t", b"acknowledged", partition=0)
    transaction.commit()
    assert transaction.outcome == "committed"


def _settled(store: pylog.Store) -> None:
    """Leaves a transaction open, so that the administration meets one in a partition."""
    admin, transaction = store.transactions, store.transaction("left")
    transaction.append("t", b"aborted", partition=0)
    admin.list(), admin.known(), admin.describe("left"), admin.find_open()
    admin.find_hanging(), admin.end_hanging()
    admin.settle()
    admin.abort("left")


def _sent_arrow(store: pylog.Store) -> None:
    with store.producer() as producer:
        producer.send_arrow("t", pa.table({"value": [b"acknowledged"], "partition": pa.array([0], pa.int32())}))


def _sent_async(store: pylog.Store) -> None:
    async def work(below: pylog.Producer) -> None:
        producer = aio.AsyncProducer(below)
        await producer.send_and_wait("t", b"acknowledged", partition=0)
        await producer.send_arrow("t", pa.table({"value": [b"x"]}))
        await producer.send_and_wait("t", b"x")
        batch = producer.create_batch()
        batch.append(value=b"x")
        await (await producer.send_batch(batch, "t", partition=0))
        await producer.partitions_for("t")
        await producer.flush()
        await producer.stop()

    with store.producer() as below:
        asyncio.run(work(below))


def _produced_in_transactions(store: pylog.Store) -> None:
    with store.producer(transactional_id="a") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({PLACE: 5}, "transacted")
        future = producer.send("t", b"acknowledged", partition=0)
        producer.commit_transaction()
        future.result(WAITED_S)
        producer.begin_transaction()
        producer.send("t", b"aborted")
        producer.flush()
        producer.abort_transaction()


def _consumed(store: pylog.Store) -> None:
    with store.consumer(group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        consumer.poll(10, max_records=5)
        consumer.poll_arrow(10, max_records=5)
        next(iter(consumer))
        consumer.commit()
        consumer.commit_async().result(WAITED_S)
        consumer.committed(PLACE)
        consumer.assignment(), consumer.subscription(), consumer.topics(), consumer.paused(), consumer.partitions_for_topic("t")
        consumer.group_metadata()
        consumer.unsubscribe()
        consumer.close()


def _assigned(store: pylog.Store) -> None:
    with store.consumer() as consumer:
        consumer.assign([PLACE])
        consumer.pause(PLACE)
        consumer.resume(PLACE)
        consumer.seek_to_end()
        consumer.seek_to_beginning()
        consumer.seek(PLACE, 3)
        consumer.position(PLACE)
        consumer.beginning_offsets([PLACE]), consumer.end_offsets([PLACE]), consumer.offsets_for_times({PLACE: 0})
        consumer.wakeup()
        consumer.close()


def _consumed_async(store: pylog.Store) -> None:
    async def work(below: pylog.Consumer) -> None:
        consumer = aio.AsyncConsumer(below)
        await consumer.poll(5, max_records=5)
        await consumer.poll_arrow(5, max_records=5)
        await consumer.run(pylog.Consumer.topics)
        await consumer.getone()
        await consumer.getmany(timeout_ms=5, max_records=5)
        await consumer.seek_to_committed()
        consumer.highwater(PLACE), consumer.last_stable_offset(PLACE), consumer.last_poll_timestamp(PLACE)
        consumer.partitions_for_topic("t")
        await consumer.stop()

    with store.consumer("t", group_id="async", auto_offset_reset="earliest") as below:
        asyncio.run(work(below))


def _administered(store: pylog.Store) -> None:
    group = store.group("known")
    group.describe()
    group.lag()
    group.health()
    group.reset("earliest", scope=["t"])
    group.export(f"{store.path}.csv")
    group.delete_offsets(["t"])


def _offsets(store: pylog.Store) -> None:
    offsets = store.offsets
    offsets.groups(), offsets.known_groups(), offsets.pending("known"), offsets.position("known", PLACE)
    assert offsets.skipped_records() == {}


def _exclusively(store: pylog.Store) -> None:
    log = store.log("t")
    with log.exclusively():
        log.append(b"acknowledged")


Call = Callable[[pylog.Store], object]
CALLS: Final[dict[str, Call]] = {
    "append": lambda store: store.log("t").append(b"acknowledged"),
    "append_synced": lambda store: store.log("t").append(b"acknowledged", durability=Durability.SYNC),
    "append_many": lambda store: store.log("t").append_many([b"acknowledged"] * 3),
    "append_arrow": lambda store: store.log("t").append_arrow(pa.table({"value": [b"acknowledged"] * 3})),
    "append_batch": lambda store: store.log("t").append_batch([b"acknowledged"], producer=pylog.ProducerBatch(1, 0, 0)),
    "exclusively": _exclusively,
    "transaction": _transacted,
    "abort_transaction": _aborted,
    "commit_transaction": _committed,
    "settle": _settled,
    "flush": lambda store: store.log("t").flush(),
    "delete_records": lambda store: store.log("t").delete_records(12),
    "truncate": lambda store: store.log("t").truncate(38),
    "read": lambda store: store.log("t").read(3),
    "records": lambda store: list(store.log("t").records(0, 9)),
    "scan": lambda store: list(store.log("t").scan(columns=["offset", "value"])),
    "committed": lambda store: list(store.log("t").scan(isolation_level="read_committed")),
    "at_snapshot": lambda store: store.read_table("t", 0, end=40, snapshot=store.snapshot()),
    "follow": lambda store: next(iter(store.log("t").follow(20, timeout_ms=1000))),
    "facts": lambda store: (store.log("t").durable_offset, store.log("t").config, store.log("t").recovery_report),
    "remote_offsets": lambda store: store.log("t").remote_offsets,
    "tiers": lambda store: (store.log("t").local_start_offset, store.log("t").archived_end_offset),
    "start_and_end_offsets": lambda store: (store.start_and_end_offsets([PLACE]), store.recovery_report),
    "read_many": lambda store: store.log("t").read_many([39, 0, *range(10, 30)]),
    "offset_for_timestamp": lambda store: store.log("t").offset_for_timestamp(0),
    "split_offsets": lambda store: store.log("t").split_offsets(0, 40, 500),
    "size_between": lambda store: store.log("t").size_between(0, 40),
    "wait_for": lambda store: store.log("t").wait_for(40, 1),
    "ends": lambda store: (store.log("t").start_offset, store.log("t").end_offset, store.log("t").stable_offset),
    "segments": lambda store: store.log("t").segments,
    "topics": lambda store: (store.topics(), store.topic("t")),
    "create_topic": lambda store: store.create_topic("new"),
    "add_partitions": lambda store: store.add_partitions("t", 3),
    "alter_topic": lambda store: store.alter_topic("t", segment_bytes=700),
    "delete_topic": lambda store: store.delete_topic("other"),
    "compact": lambda store: store.compact("compacted"),
    "tick": lambda store: store.tick(),
    "retain": lambda store: store.retain("t"),
    "flush_all": lambda store: store.flush(),
    "metrics": lambda store: store.metrics(),
    "serve_metrics": lambda store: store.serve_metrics(0).close(),
    "serve_ui": lambda store: store.serve_ui(0).close(),
    "check": lambda store: store.check(),
    "verify": lambda store: store.verify(),
    "archive": lambda store: store.archive(f"{store.path}.archive", topics=["t"]),
    "groups": lambda store: store.groups(),
    "commit": lambda store: store.offsets.commit("known", {PLACE: 5}),
    "fetch": lambda store: store.offsets.fetch("known"),
    "expire": lambda store: store.offsets.expire(),
    "delete_group": lambda store: store.offsets.delete("known"),
    "offsets": _offsets,
    "send": _sent,
    "send_arrow": _sent_arrow,
    "send_async": _sent_async,
    "transact": _produced_in_transactions,
    "consume": _consumed,
    "assign": _assigned,
    "consume_async": _consumed_async,
    "administer": _administered,
}


def make(path: Path) -> None:
    """A store with some segments, a compacted topic and a group."""
    with pylog.open(path, durability=Durability.OS) as store:
        store.create_topic("t", segment_bytes=1500, retention_bytes=3000)
        store.create_topic("other")
        store.create_topic("compacted", cleanup_policy="compact", segment_bytes=500, min_cleanable_dirty_ratio=0.01)
        for number in range(40):
            store.log("t").append(b"%d" % number, headers=[("h", b"x" * 60)])
            store.log("compacted").append(b"%d" % number, key=b"k%d" % (number % 3))
        store.log("other").append(b"x")
        store.offsets.commit("known", {PLACE: 4})


class Closing:
    """Closes a store from another thread, at a line of a call.

    Args:
        store: the store.
        line: the number of the line, of those in pylog's own files, in the thread of the call.

    Attributes:
        came: whether the call has come to that line.
    """

    def __init__(self, store: pylog.Store, line: int) -> None:
        self._store = store
        self._left = line
        self.came = False
        self.wrong: list[BaseException] = []
        self._thread = threading.Thread(target=self._close, daemon=True)

    def _close(self) -> None:
        try:
            self._store.close()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is a finding
            self.wrong.append(error)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCE) or self.came:
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self.came = True
                self._thread.start()
                self._thread.join(PAUSE_S)
        return self._trace

    def run(self, call: Call) -> BaseException | None:
        """Makes the call. Returns what it raised."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            call(self._store)
        except BaseException as error:  # noqa: BLE001 - the caller judges it
            return error
        finally:
            sys.settrace(before)
        return None

    def ended(self) -> None:
        """Waits for the close; the store is closed in any case."""
        if self.came:
            self._thread.join(WAITED_S)
            assert not self._thread.is_alive(), "close does not come to an end"
        self._store.close()


@contextlib.contextmanager
def without_patience() -> Any:
    """`close` waits for no call, as if its ten seconds had passed: all is closed under the call."""
    before = gate._LONGEST_WAIT_S, door._LONGEST_WAIT_S
    gate._LONGEST_WAIT_S = door._LONGEST_WAIT_S = 0.0  # type: ignore[misc]
    try:
        yield
    finally:
        gate._LONGEST_WAIT_S, door._LONGEST_WAIT_S = before  # type: ignore[misc]


def _opened(path: Path) -> pylog.Store:
    """The store, with its logs open for writing."""
    store = pylog.open(path, durability=Durability.OS)
    for topic in ("t", "other", "compacted"):
        store.log(topic).append(b"x", key=b"k")
    store.offsets.fetch("known")
    return store


def count_lines(template: Path, path: Path, name: str) -> int:
    """How many lines a call has."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        lines += event == "line"
        return trace

    shutil.copytree(template, path)
    with _opened(path) as store:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            CALLS[name](store)
        finally:
            sys.settrace(before)
    shutil.rmtree(path)
    return lines


def closed_at(template: Path, path: Path, name: str, line: int) -> str | None:
    """Closes a store at a line of a call. Returns what was wrong, if anything.

    The call ends with its answer or with ClosedError. What it acknowledged is there in the store that is opened next, which is
    sound; no lock is left behind.
    """
    shutil.copytree(template, path)
    store = _opened(path)
    closing = Closing(store, line)
    error = closing.run(CALLS[name])
    closing.ended()
    if error is not None and not isinstance(error, pylog.ClosedError):
        return f"{name}, line {line}: {type(error).__name__}: {error}"
    for other in closing.wrong:
        return f"{name}, line {line}: close raised {type(other).__name__}: {other}"
    del store
    with pylog.open(path, durability=Durability.OS, exclusive=True, lock_timeout_ms=0) as again:
        if not (report := again.verify()).ok:
            return f"{name}, line {line}: {report}"
        if error is None and name in ACKNOWLEDGED and b"acknowledged" not in [each.value for each in again.log("t").records()]:
            return f"{name}, line {line}: what was acknowledged is not there"
    shutil.rmtree(path)
    return None


ACKNOWLEDGED: Final = (
    "append",
    "append_synced",
    "append_many",
    "append_arrow",
    "append_batch",
    "exclusively",
    "send",
    "send_arrow",
    "send_async",
    "transaction",
    "commit_transaction",
)
