"""The table of growth: every public operation, repeated and measured.

Memory, objects, descriptors, maps, threads, locks, files and the time of a call must not grow with the number of calls. The
operations come from `tests/api.txt`. A property, or a method without required parameters, joins by itself. Every other one has an
entry in `OPERATIONS`, and `missing` names those that have none.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import random
import re
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

import pylog
from pylog.aio import AsyncConsumer, AsyncLog, AsyncProducer, AsyncStore
from pylog.directory.locks import ByteLock
from support.campaign import growth_async
from support.campaign.growth_scene import Scene, T

API: Final = Path(__file__).parents[2] / "api.txt"
_ENTRY: Final = re.compile(r"(pylog(?:\.aio)?)\.(?:([A-Z]\w+)\.)?(\w+)(\(|:)")
_OF_STORES: Final = {
    *("Store", "Transaction", "TransactionAdmin", "Log", "Producer", "Consumer", "Group", "OffsetStore", "FutureRecordMetadata")
}
_ASYNC: Final = {kind.__name__: kind for kind in (AsyncConsumer, AsyncLog, AsyncProducer, AsyncStore)}
_CLASSES: Final = _OF_STORES | set(_ASYNC) | {"ConsumerRebalanceListener"}
NO_OPERATIONS: Final = {  # a program implements them; `Consumer.subscribe` calls them
    "ConsumerRebalanceListener.on_partitions_assigned",
    "ConsumerRebalanceListener.on_partitions_lost",
    "ConsumerRebalanceListener.on_partitions_revoked",
}
TABLE: Final = pa.table({"value": [b"x" * 100] * 50})
PER_CALL_BYTES: Final = 48  # of traced memory, in both halves of a measurement; the interpreter's free lists take some
LEAST_BYTES: Final = 16 << 10
RESIDENT_BYTES: Final = 4 << 20
SLOWER: Final = 4.0


class Listener(pylog.ConsumerRebalanceListener):
    """Does nothing."""

    def on_partitions_assigned(self, assigned: set[pylog.TopicPartition]) -> None:
        """Does nothing."""

    def on_partitions_revoked(self, revoked: set[pylog.TopicPartition]) -> None:
        """Does nothing."""


def _topic_that_comes_and_goes(s: Scene) -> None:
    name = s.name()
    s.store.create_topic(name)
    s.store.log(name).append(b"x")
    s.producer.send(name, b"y").result()
    s.consumer.end_offsets([pylog.TopicPartition(name, 0)])
    s.store.offsets.commit("g", {(name, 0): 1})
    s.store.delete_topic(name)


def _partitions_are_added(s: Scene) -> None:
    name = s.name()
    s.store.create_topic(name)
    s.store.add_partitions(name, 3)
    s.store.delete_topic(name)


def _member(s: Scene) -> None:
    with s.store.consumer(group_id="members") as consumer:
        consumer.subscribe(["t"], listener=Listener())
        consumer.poll()


def _group_that_comes_and_goes(s: Scene) -> None:
    name = s.name()
    s.store.offsets.commit(name, {T: 1})
    s.store.group(name).describe()
    s.store.group(name).delete()


def _store_that_closes(s: Scene) -> None:
    with pylog.open(os.path.join(s.root, "other"), durability=pylog.Durability.OS) as store:
        if "t" not in store.topics():
            store.create_topic("t", segment_bytes=5_000, retention_bytes=5_000)
        store.log("t").append(b"x" * 100)
        store.tick()


def _woken(s: Scene) -> None:
    s.consumer.wakeup()
    with suppress(pylog.WakeupError):
        s.consumer.poll()


def _woken_async(s: Scene) -> None:
    s.reading.wakeup()
    with suppress(pylog.WakeupError):
        s.run(s.reading.poll())


def _poll(s: Scene, poll: Callable[..., object]) -> None:
    s.consumer.seek_to_beginning(T)
    poll(100, 50)


def _poll_async(s: Scene, poll: Callable[..., Any]) -> None:
    s.run(s.reading.run(pylog.Consumer.seek_to_beginning, T))
    s.run(poll(100, 50))


def _producer_that_closes(s: Scene) -> None:
    with s.store.producer() as producer:
        producer.send("t", b"x")


def _exclusively(s: Scene) -> None:
    with s.log.exclusively():
        s.log.append(b"x")


def _truncated(s: Scene) -> None:
    s.log.append_many([b"x" * 100] * 3)
    s.log.truncate(s.log.end_offset - 2)


def _deleted_records(s: Scene) -> None:
    s.log.append_many([b"x" * 100] * 3)
    s.log.delete_records(s.log.end_offset - 200)


def _exported(s: Scene) -> None:
    pylog.export_offsets(s.store, s.file, ["g"])


def _imported(s: Scene) -> None:
    _exported(s)
    pylog.import_offsets(s.store, s.file)


def _archived(s: Scene) -> None:
    with tempfile.TemporaryDirectory() as directory:
        s.store.archive(f"{directory}/archive", topics=["t"])
        pylog.restore(f"{directory}/archive", f"{directory}/copy")
        pylog.sweep(f"{directory}/archive")


def _callback(*_: object) -> None:
    """Does nothing."""


def _async_client_that_closes(s: Scene) -> None:
    async def use() -> None:
        async with AsyncProducer(s.store.producer()) as producer:
            await producer.send_and_wait("t", b"x")

    asyncio.run(use())


async def _sent(producer: AsyncProducer) -> None:
    await (await producer.send("t", b"x"))


async def _sent_batch(producer: AsyncProducer) -> None:
    batch = producer.create_batch()
    batch.append(value=b"x")
    await (await producer.send_batch(batch, "t", partition=0))


def _async_consumer_that_closes(s: Scene) -> None:
    async def use() -> None:
        async with AsyncConsumer(s.store.consumer("t", auto_offset_reset="earliest")) as consumer:
            await consumer.poll(100, 5)

    asyncio.run(use())


_OF_ITS_OWN: Final = [
    "last_poll_timestamp",
    "last_stable_offset",
    "partitions_for_topic",
    "assign",
    "committed",
    "getmany",
    "getone",
    "highwater",
    "seek_to_committed",
    "start",
    "stop",
    "subscribe",
    "unsubscribe",
]


def _without_a_read(s: Scene) -> None:
    """Changes that wait for a read, which does not come."""
    s.reading.seek(T, 0)
    s.reading.pause(T)
    s.reading.resume(T)


def _async_subscription(s: Scene) -> None:
    """A consumer of its own, because what it reads is changed and taken away."""

    async def use() -> None:
        consumer = AsyncConsumer(s.store.consumer(auto_offset_reset="earliest", group_id="async"))
        await consumer.start()
        consumer.subscribe(["t"])
        await consumer.getmany(timeout_ms=100, max_records=5)
        consumer.unsubscribe()
        await consumer.stop()
        consumer = AsyncConsumer(s.store.consumer(auto_offset_reset="earliest", group_id="async"))
        consumer.assign([T])
        await consumer.committed(T)
        await consumer.seek_to_committed(T)
        consumer.seek(T, 0)
        await consumer.getone()
        consumer.highwater(T), consumer.last_stable_offset(T), consumer.last_poll_timestamp(T), consumer.partitions_for_topic("t")
        await consumer.stop()

    asyncio.run(use())


def _async_producer_of_its_own(s: Scene) -> None:
    async def use() -> None:
        producer = AsyncProducer(s.store.producer())
        await producer.start()
        await producer.send_and_wait("t", b"x")
        await producer.stop()

    asyncio.run(use())


_OF_TRANSACTIONS: Final = ("append", "append_arrow", "append_many", "commit", "flush", "offsets", "outcome", "send_offsets")


def _transacted(s: Scene, transactional_id: str | None) -> None:
    with s.store.transaction(transactional_id) as transaction:
        transaction.append("t", b"x" * 100)
        transaction.append_many("t", [b"x" * 100] * 5)
        transaction.append_arrow("t", TABLE)
        transaction.flush()
        transaction.send_offsets("transacted", {T: s.log.start_offset})


_OF_PRODUCERS: Final = (
    *("init_transactions", "begin_transaction", "send_offsets_to_transaction", "commit_transaction", "abort_transaction"),
)


def _transacted_by_a_producer(s: Scene) -> None:
    with s.store.producer(transactional_id="produced") as producer:
        producer.init_transactions()
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.send("t", b"x" * 100)
            producer.send_offsets_to_transaction({T: s.log.start_offset}, "transacted")
            end()


def _transacted_by_coroutines(s: Scene) -> None:
    async def use() -> None:
        async with AsyncProducer(s.store.producer(transactional_id="produced")) as producer:
            await producer.start()
            async with producer.transaction():
                await producer.send_and_wait("t", b"x")
                await producer.send_offsets_to_transaction({T: s.log.start_offset}, "transacted")
            await producer.begin_transaction()
            await producer.abort_transaction()

    asyncio.run(use())


def _start(s: Scene) -> int:
    return s.log.start_offset


OPERATIONS: Final[dict[str, Callable[[Scene], object]]] = {
    "open": _store_that_closes,
    "read_batches": lambda s: list(pylog.read_batches(s.path, "t")),
    "read_table": lambda s: pylog.read_table(s.path, "t"),
    "export_offsets": _exported,
    "restore": _archived,
    "sweep": _archived,
    "Store.archive": _archived,
    "import_offsets": _imported,
    "Store.add_partitions": _partitions_are_added,
    "Store.alter_topic": lambda s: s.store.alter_topic("t", retention_bytes=100_000 + s.number % 2),
    "Store.close": _store_that_closes,
    "Store.compact": lambda s: (s.store.log("c").append(b"x" * 100, key=b"%d" % (s.number % 7)), s.store.compact("c")),
    "Store.consumer": _member,
    "Store.create_topic": _topic_that_comes_and_goes,
    "Store.delete_topic": _topic_that_comes_and_goes,
    "Store.group": _group_that_comes_and_goes,
    "Store.log": lambda s: s.store.log("t"),
    "Store.producer": _producer_that_closes,
    "Store.serve_metrics": lambda s: s.store.serve_metrics(0).close(),
    "Store.serve_ui": lambda s: s.store.serve_ui(0).close(),
    "Store.start_and_end_offsets": lambda s: s.store.start_and_end_offsets([T]),
    "Store.read_table": lambda s: s.store.read_table("t"),
    "Store.snapshot": lambda s: s.store.snapshot(),
    "Store.transaction": lambda s: _transacted(s, "transactional"),
    **dict.fromkeys((f"Transaction.{name}" for name in _OF_TRANSACTIONS), lambda s: _transacted(s, None)),
    "Transaction.abort": lambda s: s.store.transaction("aborted").abort(),
    "TransactionAdmin.abort": lambda s: (_transacted(s, "administered"), s.store.transactions.abort("administered")),
    "TransactionAdmin.describe": lambda s: (_transacted(s, "administered"), s.store.transactions.describe("administered")),
    "Store.topic": lambda s: s.store.topic("t"),
    "Log.append": lambda s: s.log.append(b"x" * 100),
    "Log.append_arrow": lambda s: s.log.append_arrow(TABLE),
    "Log.append_batch": lambda s: s.log.append_batch([b"x"] * 5, atomic=True),
    "Log.append_many": lambda s: s.log.append_many([b"x" * 100] * 50),
    "Log.delete_records": _deleted_records,
    "Log.exclusively": _exclusively,
    "Log.follow": lambda s: list(s.log.follow(_start(s), timeout_ms=1)),
    "Log.offset_for_timestamp": lambda s: s.log.offset_for_timestamp(s.number),
    "Log.read": lambda s: s.log.read(_start(s)),
    "Log.read_many": lambda s: s.log.read_many([_start(s)] * 40),
    "Log.records": lambda s: list(s.log.records()),
    "Log.scan": lambda s: list(s.log.scan()),
    "Log.size_between": lambda s: s.log.size_between(_start(s), s.log.end_offset),
    "Log.split_offsets": lambda s: s.log.split_offsets(_start(s), s.log.end_offset, 1000),
    "Log.truncate": _truncated,
    "Log.wait_for": lambda s: s.log.wait_for(s.log.end_offset + 1, timeout_ms=1),
    "Producer.close": _producer_that_closes,
    **dict.fromkeys([f"Producer.{name}" for name in _OF_PRODUCERS], _transacted_by_a_producer),
    **dict.fromkeys([f"AsyncProducer.{name}" for name in (*_OF_PRODUCERS, "transaction")], _transacted_by_coroutines),
    "AsyncConsumer.group_metadata": lambda s: s.run(s.reading.run(pylog.Consumer.topics)),  # it has no group
    "Producer.partitions_for_topic": lambda s: s.producer.partitions_for_topic("t"),
    "Producer.send": lambda s: [s.producer.send("t", b"x" * 100) for _ in range(20)][-1].result(),
    "Producer.send_arrow": lambda s: s.producer.send_arrow("t", TABLE),
    "Consumer.assign": lambda s: s.consumer.assign([T]),
    "Consumer.beginning_offsets": lambda s: s.consumer.beginning_offsets([T]),
    "Consumer.close": _member,
    "Consumer.commit": lambda s: s.consumer.commit({T: s.log.end_offset}),
    "Consumer.commit_async": lambda s: (s.consumer.commit_async({T: s.log.end_offset}, _callback).result(), s.consumer.poll(0)),
    "Consumer.committed": lambda s: s.consumer.committed(T),
    "Consumer.end_offsets": lambda s: s.consumer.end_offsets([T]),
    "Consumer.offsets_for_times": lambda s: s.consumer.offsets_for_times({T: s.number}),
    "Consumer.partitions_for_topic": lambda s: s.consumer.partitions_for_topic(s.name()),
    "Consumer.poll": lambda s: _poll(s, s.consumer.poll),
    "Consumer.poll_arrow": lambda s: _poll(s, s.consumer.poll_arrow),
    "Consumer.position": lambda s: s.consumer.position(T),
    "Consumer.seek": lambda s: s.consumer.seek(T, _start(s)),
    "Consumer.subscribe": _member,
    "Consumer.unsubscribe": lambda s: (s.consumer.unsubscribe(), s.consumer.assign([T])),
    "Consumer.wakeup": _woken,
    "Group.delete": _group_that_comes_and_goes,
    "Group.delete_offsets": lambda s: (s.store.offsets.commit("g", {("t", 0): 1}), s.store.group("g").delete_offsets([T])),
    "Group.export": lambda s: s.store.group("g").export(s.file),
    "Group.reset": lambda s: s.store.group("g").reset("earliest", scope=["t"]),
    "OffsetStore.commit": lambda s: s.store.offsets.commit("g", {T: s.log.end_offset}),
    "OffsetStore.delete": _group_that_comes_and_goes,
    "OffsetStore.fetch": lambda s: s.store.offsets.fetch("g"),
    "OffsetStore.pending": lambda s: s.store.offsets.pending(s.name()),
    "OffsetStore.position": lambda s: s.store.offsets.position(s.name(), T),
    "FutureRecordMetadata.add_callback": lambda s: s.producer.send("t", b"x").add_callback(_callback).result(),
    "FutureRecordMetadata.add_errback": lambda s: s.producer.send("t", b"x").add_errback(_callback).result(),
    "FutureRecordMetadata.when_done": lambda s: s.producer.send("t", b"x").when_done(_callback).result(),
    "AsyncConsumer.close": _async_consumer_that_closes,
    "AsyncConsumer.poll": lambda s: _poll_async(s, s.reading.poll),
    "AsyncConsumer.poll_arrow": lambda s: _poll_async(s, s.reading.poll_arrow),
    **dict.fromkeys(
        [f"AsyncConsumer.{name}" for name in _OF_ITS_OWN],
        _async_subscription,
    ),
    **dict.fromkeys([f"AsyncProducer.{name}" for name in ("send_and_wait", "start", "stop")], _async_producer_of_its_own),
    "AsyncConsumer.beginning_offsets": lambda s: s.run(s.reading.beginning_offsets([T])),
    "AsyncConsumer.end_offsets": lambda s: s.run(s.reading.end_offsets([T])),
    "AsyncConsumer.offsets_for_times": lambda s: s.run(s.reading.offsets_for_times({T: 0})),
    "AsyncConsumer.position": lambda s: s.run(s.reading.position(T)),
    **dict.fromkeys([f"AsyncConsumer.{name}" for name in ("seek", "pause", "resume")], _without_a_read),
    "AsyncProducer.partitions_for": lambda s: s.run(s.sending.partitions_for("t")),
    "AsyncConsumer.commit": lambda s: s.run(s.reading.run(pylog.Consumer.end_offsets, [T])),
    "AsyncConsumer.run": lambda s: s.run(s.reading.run(pylog.Consumer.position, T)),
    "AsyncConsumer.wakeup": _woken_async,
    "AsyncProducer.close": _async_client_that_closes,
    "AsyncProducer.send": lambda s: s.run(_sent(s.sending)),
    **growth_async.OPERATIONS,
    **dict.fromkeys(("AsyncProducer.create_batch", "AsyncProducer.send_batch"), lambda s: s.run(_sent_batch(s.sending))),
    "AsyncProducer.send_arrow": lambda s: s.run(s.sending.send_arrow("t", TABLE)),
}


# ---- which operations there are ----------------------------------------------------------------------------------------------


def public_operations() -> list[str]:
    """The names of all public operations: methods and properties as "Class.name", functions as "name"."""
    found = []
    for line in API.read_text().splitlines():
        match = _ENTRY.match(line)
        if match is None:
            continue
        _, kind, name, _ = match.groups()
        if kind is None and name[0].islower() and not hasattr(getattr(pylog, name, None), "__path__"):
            found.append(name)
        elif kind in _CLASSES:
            found.append(f"{kind}.{name}")
    return [name for name in found if name not in NO_OPERATIONS]


def operation(name: str) -> Callable[[Scene], object] | None:
    """What calls an operation once; None if the table has no entry and the operation has required parameters."""
    if name in OPERATIONS:
        return OPERATIONS[name]
    kind, _, member = name.rpartition(".")
    owner = _ASYNC.get(kind) or getattr(pylog, kind, None)
    found = inspect.getattr_static(owner, member, None)
    if not inspect.isfunction(found):
        return None if owner is None else lambda scene: getattr(scene.of(kind), member)
    parameters = list(inspect.signature(found).parameters.values())[1:]
    if any(each.default is each.empty and each.kind is not each.VAR_POSITIONAL for each in parameters):
        return None
    if inspect.iscoroutinefunction(found):
        return lambda scene: scene.run(getattr(scene.of(kind), member)())
    return lambda scene: getattr(scene.of(kind), member)()


def missing() -> list[str]:
    """The operations that the table must get an entry for, and its entries that are no operations any more."""
    there = public_operations()
    return [name for name in there if operation(name) is None] + sorted(set(OPERATIONS) - set(there))


# ---- measuring ---------------------------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """What the process and the directory hold at a moment."""

    memory: int
    resident: int
    objects: int
    locks: int
    descriptors: int
    maps: int
    threads: int
    files: int


def sample(scene: Scene) -> Sample:
    """Takes a sample, when everything is at rest."""
    scene.rest()
    objects = gc.get_objects()
    locks = sum(type(each) is ByteLock for each in objects)
    proc = Path("/proc/self")
    there = proc.exists()
    return Sample(
        memory=tracemalloc.get_traced_memory()[0],
        resident=int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") if there else 0,
        objects=len(objects),
        locks=locks,
        descriptors=len(os.listdir("/proc/self/fd" if there else "/dev/fd")),
        maps=(proc / "maps").read_text().count("\n") if there else 0,
        threads=threading.active_count(),
        files=sum(len(files) for _, _, files in os.walk(scene.root)),
    )


def _repeated(call: Callable[[Scene], object], scene: Scene, count: int) -> float:
    """Makes calls. Returns the processor time of the fastest tenth of them, per call."""
    fastest = float("inf")
    part = max(1, count // 10)
    for first in range(0, count, part):
        began = time.process_time()
        for _ in range(part):
            scene.number += 1
            call(scene)
        fastest = min(fastest, (time.process_time() - began) / part)
        if first % (3 * part) == 0:
            scene.store.tick()
    return fastest


def growth(call: Callable[[Scene], object], scene: Scene, seconds: float) -> list[str]:
    """Repeats an operation for about some seconds. Returns what grows; measures again, longer, before it says so."""
    for attempt in range(3):
        found = _growth(call, scene, seconds * 3**attempt)
        if not found:
            return []
    return found


def _growth(call: Callable[[Scene], object], scene: Scene, seconds: float) -> list[str]:
    began = time.perf_counter()
    for _ in range(3):
        call(scene)
    each = (time.perf_counter() - began) / 3
    count = max(10, min(20_000, int(seconds / 3 / each)))
    first_time = _repeated(call, scene, count)
    samples = [sample(scene)]
    last_time = 0.0
    for _ in range(2):
        last_time = _repeated(call, scene, count)
        samples.append(sample(scene))
    return [*_differences(samples, count), *_slower(first_time, last_time)]


def _differences(samples: list[Sample], count: int) -> list[str]:
    found = []
    limits = Sample(
        memory=max(LEAST_BYTES, PER_CALL_BYTES * count),
        resident=max(RESIDENT_BYTES, 1000 * count),
        objects=max(100, count // 2),
        locks=max(3, count // 4),
        descriptors=max(3, count // 4),
        maps=max(6, count // 4),
        threads=max(2, count // 4),
        files=max(6, count // 4),
    )
    for kind, limit, *values in zip(Sample._fields, limits, *samples, strict=True):
        if all(after - before >= limit for before, after in pairwise(values)):
            found.append(f"{kind} grows: {', '.join(map(str, values))} at the start, after {count} and {2 * count} calls")
    return found


def _slower(first: float, last: float) -> list[str]:
    if last > SLOWER * first and last - first > 0.0005:
        return [f"the time of a call grows: from {first * 1e6:.0f} to {last * 1e6:.0f} µs"]
    return []


def table(names: list[str], seconds: float, *, until: float = float("inf")) -> dict[str, list[str]]:
    """Measures operations in turn, each for some seconds, until a moment of the monotonic clock; returns what grows by name.

    Operations that share an entry of the table are measured together, once.
    """
    traced = tracemalloc.is_tracing()
    tracemalloc.start()
    done: dict[str, list[str]] = {}
    measured: dict[Callable[[Scene], object], list[str]] = {}
    try:
        with Scene() as scene:
            gc.collect()
            gc.freeze()  # what is there already does not grow, and each sample would walk through all of it
            for name in names:
                if time.monotonic() > until:
                    break
                call = operation(name)
                assert call is not None, f"{name} has no entry in the table of growth"
                if call not in measured:
                    measured[call] = _growth_or_error(call, scene, seconds)
                done[name] = [f"{name}: {each}" for each in measured[call]]
    finally:
        if not traced:
            tracemalloc.stop()
    return done


def _growth_or_error(call: Callable[[Scene], object], scene: Scene, seconds: float) -> list[str]:
    try:
        return growth(call, scene, seconds)
    except Exception as error:  # noqa: BLE001 - one finding, and the others are measured too
        return [f"raises {error!r}"]


def run(seed: int, seconds: float) -> dict[str, Any]:
    """The long form: operations in the seed's order, each for a twelfth of the time."""
    names = public_operations()
    random.Random(seed).shuffle(names)
    done = table(names, seconds / 12 / 1.5, until=time.monotonic() + seconds)
    return {
        "seed": seed,
        "operations": len(done),
        "names": list(done),
        "violations": [each for found in done.values() for each in found],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(table(sys.argv[2:] or public_operations(), float(sys.argv[1]))))
