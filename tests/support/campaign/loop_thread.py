"""File access in the thread of an event loop, by each public call of the classes of `pylog.aio`, at its first call too.

Each case runs in a forked process that has imported pylog and called nothing. An audit hook sees opened, listed, renamed and
removed files. Functions of `os` that Python does not audit are replaced.

    python -m support.campaign.loop_thread        prints a JSON list of what each case touched
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import pylog
from pylog import Consumer, TopicPartition
from pylog.aio import AsyncConsumer, AsyncIteration, AsyncLog, AsyncProducer, AsyncStore

EVENTS: Final = ("open", "os.", "fcntl.", "mmap.", "shutil.", "tempfile.", "glob.", "import", "subprocess.", "ctypes.dlopen")
UNAUDITED: Final = (
    "stat lstat fstat read pread readv preadv write pwrite writev pwritev fsync fdatasync close readlink lseek sendfile "
    "copy_file_range posix_fallocate posix_fadvise statvfs fstatvfs dup access"
)
T0: Final = TopicPartition("t", 0)
Case = Callable[[pylog.Store], Awaitable[object]]


class Watch:
    """What the watched thread has touched."""

    def __init__(self) -> None:
        self.thread: int | None = None
        self.touched: list[str] = []
        sys.addaudithook(self._audited)
        for name in UNAUDITED.split():
            if hasattr(os, name):
                setattr(os, name, self._replaced(name, getattr(os, name)))

    def _audited(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.thread == threading.get_ident() and event.startswith(EVENTS):
            self._note(f"{event} {arguments[:1]!r}")

    def _replaced(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            if self.thread == threading.get_ident():
                self._note(f"os.{name} {arguments[:1]!r}")
            return call(*arguments, **options)

        return watched

    def _note(self, what: str) -> None:
        thread, self.thread = self.thread, None
        frames = [each for each in traceback.extract_stack() if f"{os.sep}pylog{os.sep}" in each.filename]
        where = " < ".join(f"{Path(each.filename).stem}:{each.lineno}" for each in frames[:-6:-1])
        self.touched.append(f"{what} at {where}")
        self.thread = thread

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches this thread."""
        self.thread = threading.get_ident()
        try:
            yield
        finally:
            self.thread = None


# ---- the cases: each begins with its own store, whose calls outside of the event loop are not watched -------------------------


@contextmanager
def unwatched(watch: Watch) -> Iterator[None]:
    """What the case does itself, as a program's own call of a plain method."""
    thread, watch.thread = watch.thread, None
    try:
        yield
    finally:
        watch.thread = thread


WATCH: list[Watch] = []


async def _sent(store: pylog.Store, *calls: tuple[tuple[Any, ...], dict[str, Any]], between: Any = None, **options: Any) -> None:
    """Sends records one after the other, the same ones twice, with another call of the store in between."""
    with unwatched(WATCH[0]):
        producer = AsyncProducer(store.producer(**options))
    for number in range(2):
        for arguments, more in calls:
            with suppress(pylog.PylogError, ZeroDivisionError):
                await producer.send_and_wait(*arguments, **more)
        if not number and between is not None:
            with unwatched(WATCH[0]):
                between(store)
    await producer.flush()
    await producer.close()


def _call(*arguments: Any, **options: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return arguments, options


async def _told(*_: object) -> None:
    await asyncio.sleep(0)


def _failing(*_: object) -> bytes:
    raise ZeroDivisionError


SENDS: Final[dict[str, Case]] = {
    "plain": lambda store: _sent(store, _call("t", b"v")),
    "with all": lambda store: _sent(
        store, _call("t", b"v", key=b"k", headers=[("h", b"1")], partition=1, timestamp=5, on_delivery=_told)
    ),
    "headers of a generator": lambda store: _sent(store, _call("t", b"v", headers=(each for each in [("h", b"1")]))),
    "large": lambda store: _sent(store, _call("t", bytes(5000)), _call("t", bytes(1 << 22))),
    "large headers": lambda store: _sent(store, _call("t", b"", headers=[("h", bytes(1 << 22))])),
    "an odd partition": lambda store: _sent(
        store, _call("t", b"v"), *(_call("t", b"v", partition=each) for each in (9, -1, "0", 1.5, [], True))
    ),
    "wrong types": lambda store: _sent(
        store,
        _call("t", b"v"),
        _call("t", "v"),
        _call("t", b"", key=5),
        _call(7, b""),
        _call("t", b"", headers=9),
        _call("t", b"", headers=[b"xy"]),
        _call("t", b"", timestamp="x"),
    ),
    "no such topic": lambda store: _sent(store, _call("nowhere", b"v"), _call("../t", b"v")),
    "without a key to a compacted topic": lambda store: _sent(
        store, _call("c", b"v", key=b"k"), _call("c", b"v"), _call("c", None)
    ),
    "serializers": lambda store: _sent(store, _call("c", b"v", key=b"k"), value_serializer=bytes, key_serializer=lambda _: None),
    "large by a serializer": lambda store: _sent(store, _call("t", b"v"), value_serializer=lambda _: bytes(1 << 22)),
    "a serializer that raises": lambda store: _sent(store, _call("t", b"v"), value_serializer=_failing),
    "a partitioner": lambda store: _sent(store, _call("t", b"v", key=b"k"), partitioner=lambda key, every, available: 9),
    "topics changed": lambda store: _sent(
        store, _call("t", b"v", key=b"k", headers=[("h", None)]), between=lambda each: each.add_partitions("t", 5)
    ),
    "topic deleted": lambda store: _sent(
        store, _call("t", b"v", key=b"k", headers=[("h", None)]), between=lambda each: each.delete_topic("t")
    ),
    "options changed": lambda store: _sent(
        store,
        _call("t", bytes(3000), key=b"k", headers=[("h", None)]),
        between=lambda each: each.alter_topic("t", max_message_bytes=1000),
    ),
    "old metadata": lambda store: _sent(store, _call("t", b"v", timestamp=5), metadata_max_age_ms=0),
    "timestamps": lambda store: _sent(store, *(_call("t", b"v", timestamp=each) for each in (0, -1, 1 << 62, 1 << 70))),
    "store closed": lambda store: _sent(store, _call("t", b"v", headers=[]), between=lambda each: each.close()),
}


def _producer(store: pylog.Store) -> AsyncProducer:
    with unwatched(WATCH[0]):
        return AsyncProducer(store.producer())


async def _table(store: pylog.Store) -> None:
    with unwatched(WATCH[0]):
        table = pa.table({"value": [b"v"]})
    async with _producer(store) as producer:
        for _ in range(2):
            await producer.send_arrow("t", table)
            with suppress(pylog.PylogError):
                await producer.send_arrow("nowhere", table)
            batch = producer.create_batch()
            batch.append(value=b"v")
            await (await producer.send_batch(batch, "t", partition=0))


async def _dropped_producer(store: pylog.Store) -> None:
    producer = _producer(store)
    await producer.send_and_wait("t", b"v")
    del producer
    gc.collect()


class Listener(pylog.ConsumerRebalanceListener):
    """Coroutines, which commit."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self.consumer = consumer

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await self.consumer.run(Consumer.position, T0)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self.consumer.commit()


def _of(store: pylog.Store, *topics: str, **options: Any) -> AsyncConsumer:
    with unwatched(WATCH[0]):
        given = {"group_id": "g", "auto_offset_reset": "earliest", "consumer_timeout_ms": 1} | options
        return AsyncConsumer(store.consumer(*topics, **given))


def _reading(work: Callable[[AsyncConsumer], Awaitable[object]], **options: Any) -> Case:
    async def case(store: pylog.Store) -> None:
        async with _of(store, "t", **options) as consumer:
            for _ in range(2):
                with suppress(pylog.PylogError, StopAsyncIteration):
                    await work(consumer)

    return case


async def _iterated(consumer: AsyncConsumer) -> None:
    async for _ in consumer:
        await asyncio.sleep(0.002)


async def _listened(store: pylog.Store) -> None:
    async with _of(store) as consumer:
        await consumer.run(Consumer.subscribe, ["t"], listener=Listener(consumer))
        await consumer.poll(10)
        await consumer.run(Consumer.seek, T0, 0)
        await consumer.run(Consumer.commit_async, {T0: 1}, _told)
        await consumer.poll(10)
        await consumer.run(Consumer.unsubscribe)


async def _cancelled(store: pylog.Store) -> None:
    async with _of(store, "t") as consumer:
        for call in (consumer.poll, consumer.poll_arrow, consumer.commit, consumer.__anext__):
            task = asyncio.ensure_future(call())
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _woken(store: pylog.Store) -> None:
    async with _of(store, "t") as consumer:
        for _ in range(2):
            consumer.wakeup()
            with suppress(pylog.WakeupError):
                await consumer.poll()


async def _left_by_an_error(store: pylog.Store) -> None:
    with suppress(ZeroDivisionError):
        async with _of(store, "t") as consumer:
            await consumer.poll()
            raise ZeroDivisionError


async def _dropped_consumer(store: pylog.Store) -> None:
    consumer = _of(store, "t")
    await consumer.poll()
    del consumer
    gc.collect()


def _changing(name: str, *given: Any) -> Case:
    """A plain call before the first read, and another one before the second."""

    async def work(consumer: AsyncConsumer) -> None:
        getattr(consumer, name)(*given)
        await consumer.getmany()

    return _reading(work)


async def _sent_without_waiting(store: pylog.Store) -> None:
    """Sends more records than the buffer has room for; their futures are awaited at the end."""
    with unwatched(WATCH[0]):
        producer = AsyncProducer(store.producer(buffer_memory=4096, max_request_size=1000))
    sent = [await producer.send("t", b"%d" % number * 100) for number in range(100)]
    await asyncio.gather(*sent)
    await producer.close()


async def _transacted(store: pylog.Store) -> None:
    with unwatched(WATCH[0]):
        producer = AsyncProducer(store.producer(transactional_id="a"))
    await producer.start()
    for failing in (False, True):
        with suppress(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait("t", b"v")
                await (await producer.send("t", b"v", on_delivery=_told))
                await producer.send_offsets_to_transaction({T0: 1}, "transacted")
                if failing:
                    raise ZeroDivisionError
    await producer.close()


PRODUCER: Final[dict[str, dict[str, Case]]] = {
    "send": {"first": _sent_without_waiting},
    "send_arrow": {"a table": _table},
    "send_batch": {},  # in that case, too
    "create_batch": {},
    "flush": {"first": lambda store: _producer(store).flush()},
    "start": {"first": lambda store: _producer(store).start()},
    "stop": {"first": lambda store: _producer(store).stop()},
    "send_and_wait": SENDS,
    "partitions_for": {"first": lambda store: _producer(store).partitions_for("t")},
    "close": {"first": lambda store: _producer(store).close(), "dropped": _dropped_producer},
    "transaction": {"all calls": _transacted},
    "init_transactions": {},  # in that case, as the next ones
    "begin_transaction": {},
    "send_offsets_to_transaction": {},
    "commit_transaction": {},
    "abort_transaction": {},
    "__aenter__": {},  # in the cases above, like `__aexit__`
    "__aexit__": {},
}
CONSUMER: Final[dict[str, dict[str, Case]]] = {
    "poll": {
        "plain": _reading(lambda consumer: consumer.poll(1, 2)),
        "without a group": _reading(AsyncConsumer.poll, group_id=None),
        "deserializers": _reading(AsyncConsumer.poll, value_deserializer=_failing),
        "commits": _reading(lambda consumer: consumer.poll(5), auto_commit_interval_ms=1),
        "listeners": _listened,
        "cancelled": _cancelled,
    },
    "poll_arrow": {"plain": _reading(AsyncConsumer.poll_arrow)},
    "__aiter__": {"plain": _reading(_iterated), "commits": _reading(_iterated, auto_commit_interval_ms=1)},
    "__anext__": {"plain": _reading(AsyncConsumer.__anext__)},
    "commit": {"first": _reading(AsyncConsumer.commit), "given": _reading(lambda consumer: consumer.commit({T0: 1}))},
    "run": {
        name: _reading(lambda consumer, name=name, given=given: consumer.run(getattr(Consumer, name), *given))
        for name, given in {
            "seek": (T0, 3),
            "position": (T0,),
            "committed": (T0,),
            "assignment": (),
            "pause": (T0,),
            "beginning_offsets": ([T0],),
            "end_offsets": ([T0],),
            "commit_async": ({T0: 1},),
            "topics": (),
            "unsubscribe": (),
            "poll": (),
            "__next__": (),
        }.items()
    },
    **{
        name: {"first": _reading(lambda consumer, name=name, given=given: getattr(consumer, name)(*given))}
        for name, given in {
            "start": (),
            "stop": (),
            "getone": (),
            "getmany": (T0,),
            "position": (T0,),
            "committed": (T0,),
            "group_metadata": (),
            "beginning_offsets": ([T0],),
            "end_offsets": ([T0],),
            "offsets_for_times": ({T0: 0},),
            "topics": (),
            "seek_to_beginning": (),
            "seek_to_end": (T0,),
            "seek_to_committed": (),
        }.items()
    },
    **{
        name: {"first": _changing(name, *given)}
        for name, given in {
            "subscribe": (["t"],),
            "assign": ([T0],),
            "unsubscribe": (),
            "seek": (T0, 3),
            "pause": (T0,),
            "resume": (T0,),
            "assignment": (),
            "subscription": (),
            "paused": (),
            "highwater": (T0,),
            "last_stable_offset": (T0,),
            "last_poll_timestamp": (T0,),
            "partitions_for_topic": ("t",),
        }.items()
    },
    "wakeup": {"first": _woken},
    "close": {"dropped": _dropped_consumer, "by an error": _left_by_an_error},
    "__aenter__": {},
    "__aexit__": {},
}


def _administering(name: str, *given: Any) -> Case:
    """Calls a method of the store twice, the second time in vain perhaps."""

    async def case(store: pylog.Store) -> None:
        administered = AsyncStore(store)
        for _ in range(2):
            with suppress(pylog.PylogError):
                made = await getattr(administered, name)(*given)
                if hasattr(made, "close"):
                    await made.close()

    return case


def _in_log(name: str, *given: Any, **options: Any) -> Case:
    async def case(store: pylog.Store) -> None:
        log = await AsyncStore(store).log("t")
        for _ in range(2):
            with suppress(pylog.PylogError):
                made = getattr(log, name)(*given, **options)
                if isinstance(made, AsyncIteration):
                    async with made:
                        await anext(made)
                    assert [each async for each in getattr(log, name)(*given, **options)]
                else:
                    await made

    return case


async def _opened(store: pylog.Store) -> None:
    path = store.path
    with unwatched(WATCH[0]):
        store.close()
    async with pylog.aio.open(path, durability="os") as opened:
        await opened.topics()
    opened = await pylog.aio.open(path, mode="r")
    await (await opened.log("t")).read(0)
    await opened.close()
    with suppress(pylog.PylogError):
        await pylog.aio.open(path, mode="nothing")


async def _dropped_iteration(store: pylog.Store) -> None:
    log = await AsyncStore(store).log("t")
    reading = log.records()
    await anext(reading)
    del reading
    followed = log.follow(timeout_ms=50)
    with suppress(TimeoutError):
        await asyncio.wait_for(anext(followed), 0.001)
    del followed
    gc.collect()


STORE: Final[dict[str, dict[str, Case]]] = {
    **{
        name: {"first": _administering(name, *given)}
        for name, given in {
            "topics": (),
            "topic": ("t",),
            "create_topic": ("new",),
            "add_partitions": ("t", 3),
            "alter_topic": ("t",),
            "delete_topic": ("c",),
            "start_and_end_offsets": ([T0],),
            "groups": (),
            "flush": (),
            "tick": (),
            "retain": (),
            "compact": ("c",),
            "check": (),
            "verify": (),
            "metrics": (),
            "log": ("t",),
            "run": (pylog.Store.groups,),
            "producer": (),
            "consumer": ("t",),
        }.items()
    },
    "close": {"first": _administering("close"), "opened": _opened},
    "__aenter__": {},
    "__aexit__": {},
}
LOG: Final[dict[str, dict[str, Case]]] = {
    "append": {"first": _in_log("append", b"v", b"k"), "wrong": _in_log("append", "v")},
    "append_many": {"first": _in_log("append_many", [b"v"])},
    "append_arrow": {"first": _in_log("append_arrow", pa.table({"value": [b"v"]}))},
    "flush": {"first": _in_log("flush")},
    "delete_records": {"first": _in_log("delete_records", 2)},
    "truncate": {"first": _in_log("truncate", 8)},
    "read": {"first": _in_log("read", 3), "beyond": _in_log("read", 99)},
    "read_many": {"first": _in_log("read_many", [3, 1]), "beyond": _in_log("read_many", [99])},
    "offset_for_timestamp": {"first": _in_log("offset_for_timestamp", 0)},
    "start_offset": {"first": _in_log("start_offset")},
    "end_offset": {"first": _in_log("end_offset")},
    "run": {"first": _in_log("run", pylog.Log.flush)},
    "records": {"first": _in_log("records"), "beyond": _in_log("records", 99), "dropped": _dropped_iteration},
    "scan": {"first": _in_log("scan")},
    "follow": {"first": _in_log("follow", 0, timeout_ms=1)},
}
ITERATION: Final[dict[str, dict[str, Case]]] = {  # in the cases above
    name: {} for name in ("aclose", "__aiter__", "__anext__", "__aenter__", "__aexit__")
}
FIRST: Final = ("send", "send_arrow", "poll", "__anext__")  # these load most: kernels, modules, topics
CALLS: Final = {
    AsyncProducer: PRODUCER,
    AsyncConsumer: CONSUMER,
    AsyncStore: STORE,
    AsyncLog: LOG,
    AsyncIteration: ITERATION,
}
SPECIAL: Final = ("__aenter__", "__aexit__", "__aiter__", "__anext__", "__await__", "__call__", "__del__")


def public(kind: type) -> set[str]:
    """The names of a class that a program calls."""
    own = [each for each in kind.__mro__ if each.__module__.startswith("pylog.aio")]  # with the names of aiokafka
    names = {name for each in own for name in vars(each)}
    return {name for name in names if (not name.startswith("_") or name in SPECIAL) and callable(getattr(kind, name))}


def cases() -> dict[str, Case]:
    return {
        f"{kind.__name__}.{name}: {how}": case
        for kind, calls in CALLS.items()
        for name, some in calls.items()
        for how, case in some.items()
    }


def touched(some: dict[str, Case], directory: Path) -> dict[str, list[str]]:
    """Runs cases in a fork of this process; returns the files that the thread of the event loop touched in each."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        watch = Watch()
        WATCH.append(watch)
        warnings.simplefilter("ignore", ResourceWarning)
        logging.disable(logging.CRITICAL)
        with open(writing, "w") as told:
            json.dump(
                {name: _in_child(case, directory / f"s{number}", watch) for number, (name, case) in enumerate(some.items())}, told
            )
        os._exit(0)
    os.close(writing)
    with open(reading) as file:
        told = file.read()
    os.waitpid(child, 0)
    return dict(json.loads(told)) if told else {name: ["the process died"] for name in some}


def _in_child(case: Case, root: Path, watch: Watch) -> list[str]:
    for thread in threading.enumerate():
        with suppress(RuntimeError, AssertionError):  # this thread, and one that Python did not start
            thread.join(1)  # a thread of the case before may hold its store
    gc.collect()
    watch.touched = []

    async def main(store: pylog.Store) -> None:
        with watch.watching():
            await asyncio.wait_for(case(store), 30)

    try:
        with pylog.open(root, durability=pylog.Durability.OS) as store:
            asyncio.run(main(store))
    except BaseException:  # noqa: BLE001 - told to the parent
        watch.touched.append(traceback.format_exc()[-2000:])
    return watch.touched[:20]


def lay(directory: Path, count: int) -> None:
    """Writes the stores of some cases, in a process of its own: this one has called nothing."""
    child = os.fork()
    if not child:
        one = pylog.OffsetsConfig(topic_num_partitions=1)
        for number in range(count):
            with pylog.open(directory / f"s{number}", durability=pylog.Durability.OS, offsets=one) as store:
                store.create_topic("t", partition_count=2)
                store.create_topic("c", cleanup_policy="compact")
                store.log("t").append_many([b"%d" % row for row in range(10)])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def findings(of: Callable[[str], bool] = lambda _: True) -> dict[str, list[str]]:
    """Returns what each case touched. The first case of some methods is the first call of its process."""
    some = {name: case for name, case in cases().items() if of(name)}
    firsts = {name.partition(":")[0]: name for name in reversed(some)}
    groups = [{name: some.pop(name)} for call, name in firsts.items() if call.partition(".")[2] in FIRST]
    found: dict[str, list[str]] = {}
    for group in [*groups, some]:
        with tempfile.TemporaryDirectory(prefix="pylog-loop-") as directory:
            lay(Path(directory), len(group))
            found |= touched(group, Path(directory))
    return found


if __name__ == "__main__":
    json.dump(findings(lambda name: all(each in name for each in sys.argv[1:])), sys.stdout)
