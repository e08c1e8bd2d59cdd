"""After `close` nothing works on, and nothing touches a file: no method, no iterator that was begun, no thread."""

from __future__ import annotations

import inspect
import os
import re
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pylog
from pylog import ClosedError, Durability, Store, TopicPartition, UnknownTopicOrPartitionError
from pylog.clock import ManualClock
from pylog.testing import MemoryFileSystem
from support import warm
from support.engines import engine_of

PLACE = TopicPartition("t", 0)
API = Path(__file__).parent / "api.txt"


class _Watched:
    """An object that notes which of its methods are called once `closed` is set."""

    def __init__(self, base: Any, notes: list[str], closed: threading.Event) -> None:
        self._base, self._notes, self._closed = base, notes, closed

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._base, name)
        if not callable(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            if self._closed.is_set() and name not in ("close", "boot_id", "identity"):  # which open, map and read nothing
                self._notes.append(f"{name} {given}")
            result = found(*given, **named)
            return _Watched(result, self._notes, self._closed) if name in ("open", "create") else result

        return call


class Watch:
    """A file system in memory that notes what is asked of it after `end`."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._closed = threading.Event()
        self.fs: Any = _Watched(MemoryFileSystem(), self.notes, self._closed)

    def end(self) -> None:
        """From now on nothing may be asked."""
        self._closed.set()


@pytest.fixture
def watch() -> Watch:
    return Watch()


def opened(watch: Watch, **options: Any) -> Store:
    """A store with 12 records of some size in small segments, and a group with an offset."""
    store = pylog.open("/s", fs=watch.fs, durability=Durability.OS, **options)
    store.create_topic("t", segment_bytes=600, cleanup_policy="compact,delete")
    for number in range(12):
        store.log("t").append(b"x" * 100, key=b"%d" % number, timestamp=number)
    store.offsets.commit("g", {PLACE: 1})
    return store


# ---- every method ------------------------------------------------------------------------------------------------------------

ARGUMENTS: dict[str, Any] = {  # of methods that require some, by name
    "action": lambda view: view,
    "before": 3,
    "buffer_size": 1 << 20,
    "committed": None,
    "data": None,
    "decide": lambda view: [],
    "end": 5,
    "epoch": 0,
    "found": [],
    "group_id": "g",
    "items": [(b"k", b"x")],
    "max_bytes": 100,
    "name": "t",
    "now_ms": 0,
    "offset": 1,
    "offsets": {PLACE: 1},
    "partition": PLACE,
    "partitions": [PLACE],
    "parts": [],
    "path": "/nowhere/x",
    "producer_id": 1,
    "query": "q",
    "quiet": False,
    "scope": "topic",
    "start": 0,
    "throttle": None,
    "timeout_ms": 0,
    "timestamp": 1,
    "timestamps": {PLACE: 1},
    "topic": "t",
    "transactional_id": "x",
    "value": b"x",
    "view": None,
}
OTHER_ARGUMENTS: dict[str, dict[str, Any]] = {
    "Store.add_partitions": {"partition_count": 2},
    "OffsetStore.delete": {"partitions": None},
    "OffsetStore.fetch": {"partitions": None},
    "Producer.send_arrow": {"table": None},
    "Group.delete_offsets": {"scope": "t"},
    "Consumer.assign": {"partitions": [PLACE]},
    "Log.append": {"key": b"k"},
    "Log.append_arrow": {"data": pa.table({"key": [b"k"], "value": [b"x"]})},
}
OPENS_NOTHING = {  # what these give is in memory; they need not raise, and may not ask for a file either
    "Consumer.wakeup",  # from another thread, at any time
    "Group.reset",  # refused for its arguments first
    "Group.delete_offsets",
    "Log.recovery_report",
    "OffsetStore.skipped_records",
    "Producer.partitions_for_topic",
    "Producer.flush",
    "Producer.send_arrow",
    "Store.group",
    "Store.offsets",
    "Store.recovery_report",
    "Store.transactions",
}


def members() -> list[str]:
    """`Class.member` of all that is public of a store and what comes from it."""
    found = re.findall(
        r"^pylog\.((?:Store|Log|Consumer|Producer|OffsetStore|Group|TransactionAdmin)\.\w+)", API.read_text("utf-8"), re.MULTILINE
    )
    return [name for name in dict.fromkeys(found) if not name.endswith((".close", ".refuse_members"))]


def use(target: Any, name: str) -> object:
    """Calls a method with arguments that it takes, or reads a property; an iterator is asked for one item."""
    member = name.split(".")[1]
    kind = inspect.getattr_static(type(target), member)
    if isinstance(kind, property):
        return getattr(target, member)
    given = {
        each.name: ARGUMENTS.get(each.name)
        for each in inspect.signature(getattr(target, member)).parameters.values()
        if each.default is each.empty and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    found = getattr(target, member)(**given | OTHER_ARGUMENTS.get(name, {}))
    if isinstance(found, Iterator):
        return next(found)
    if hasattr(found, "__enter__") and not isinstance(found, pylog.Consumer | pylog.Producer):
        with found:
            return None
    return found


@pytest.mark.sampled(3)
@pytest.mark.damaged("no: all is closed when the test ends")
@pytest.mark.parametrize(
    ("mode", "name"),
    [("rw", name) for name in members()] + [("r", name) for name in members() if not name.startswith("Producer.")],
)
def test_every_public_method_says_that_it_is_closed_and_asks_for_no_file(watch: Watch, name: str, mode: str) -> None:
    store = opened(watch)
    if mode == "r":
        store.close()
        store = pylog.open("/s", fs=watch.fs, mode="r")
    targets: dict[str, Any] = {"Store": store, "Log": store.log("t"), "OffsetStore": store.offsets, "Group": store.group("g")}
    targets["TransactionAdmin"] = store.transactions
    targets["Consumer"] = store.consumer("t", auto_offset_reset="earliest")
    if mode == "rw":
        targets["Producer"] = store.producer()
    store.close()
    watch.end()
    target = targets[name.split(".", maxsplit=1)[0]]
    if name in OPENS_NOTHING:
        with suppress(pylog.PylogError):
            use(target, name)
    else:
        with pytest.raises(ClosedError):
            use(target, name)
    assert watch.notes == []


# ---- iterators ---------------------------------------------------------------------------------------------------------------

ITERATORS: dict[str, Callable[[Store], Iterator[Any]]] = {
    "scan": lambda store: store.log("t").scan(max_rows=1),
    "scan committed": lambda store: store.log("t").scan(max_rows=1, isolation_level="read_committed"),
    "records": lambda store: store.log("t").records(),
    "follow": lambda store: store.log("t").follow(0, max_rows=1),
    "follow at the end": lambda store: store.log("t").follow(11, max_rows=1),
    "consumer": lambda store: iter(store.consumer("t", auto_offset_reset="earliest")),
}
ENDS: dict[str, Callable[[Store], object]] = {
    "Store.close": lambda store: store.close(),
    "PartitionLog.close": lambda store: engine_of(store.log("t")).close(),
    "delete_topic": lambda store: store.delete_topic("t"),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(  # a consumer of a deleted topic goes on with others
    ("kind", "end"), [(kind, end) for kind in ITERATORS for end in ENDS if kind != "consumer" or end == "Store.close"]
)
@pytest.mark.parametrize("mapped", [True, False], ids=["sealed", "active"])
@pytest.mark.pair("close", "scan and follow")
@pytest.mark.damaged("no: all is closed when the test ends")
def test_an_iterator_begun_before_the_end_says_so_at_its_next_step(watch: Watch, kind: str, end: str, mapped: bool) -> None:
    store = opened(watch)
    if not mapped:
        store.log("t").append_many([(b"k", b"x" * 10)] * 20)
    iterator = ITERATORS[kind](store)
    next(iterator)
    ENDS[end](store)
    if end == "Store.close":
        watch.end()
    told = UnknownTopicOrPartitionError if end == "delete_topic" else ClosedError
    with pytest.raises(told):
        next(iterator)
    with pytest.raises((told, StopIteration)):
        next(iterator)
    assert watch.notes == []
    store.close()


@pytest.mark.damaged("no: all is closed when the test ends")
def test_records_returned_before_close_stay_readable(tmp_path: Path) -> None:
    store = pylog.open(tmp_path, durability=Durability.OS)
    store.create_topic("t", segment_bytes=40_000)
    for number in range(5):
        store.log("t").append_many([b"%d" % number * 1000] * 30)
    frames = [frame for frame, _ in zip(store.log("t").scan(max_rows=50), range(3), strict=False)]
    record = store.log("t").read(0)
    store.close()
    values = [value for frame in frames for value in frame.column("value").to_pylist()]
    assert values == [b"%d" % (number // 30) * 1000 for number in range(len(values))]
    assert len(values) > 60
    assert record.value == b"0" * 1000


def test_arrow_readers_and_verification_that_are_under_way_end_with_closed_error(watch: Watch) -> None:
    store = opened(watch)

    def progress(*_: object) -> None:
        store.close()
        watch.end()

    with pytest.raises(ClosedError):
        store.verify(progress=progress)
    assert watch.notes == []


# ---- threads -----------------------------------------------------------------------------------------------------------------


def used(client: Any, use: Callable[[Any], object]) -> None:
    """Uses a consumer or producer again and again until its store is closed, and then closes it, which does nothing."""
    try:
        while True:
            use(client)
    except ClosedError:
        client.close()
        raise


CALLS: dict[str, Callable[[Store, pylog.Log], object]] = {
    "read": lambda _, log: log.read(log.end_offset - 1),
    "records": lambda _, log: list(log.records()),
    "append": lambda _, log: log.append(b"x", key=b"k"),
    "time search": lambda _, log: log.offset_for_timestamp(3),
    "split_offsets": lambda _, log: log.split_offsets(0, 10, 100),
    "wait_for": lambda _, log: log.wait_for(1 << 40, 1),
    "check": lambda store, _: store.check(),
    "verify": lambda store, _: store.verify(),
    "metrics": lambda store, _: store.metrics(),
    "clean": lambda store, _: store.compact("t"),
    "tick": lambda store, _: store.tick(),
    "fetch": lambda store, _: store.offsets.fetch("g"),
    "commit": lambda store, _: store.offsets.commit("g", {PLACE: 2}),
    "lag": lambda store, _: store.group("g").lag(),
    "groups": lambda store, _: store.groups(),
    "retain": lambda store, _: store.retain(),
    "flush": lambda store, _: store.flush(),
    "poll": lambda store, _: used(store.consumer("t", group_id="h"), lambda consumer: consumer.poll(5)),
    "send": lambda store, _: used(store.producer(), lambda producer: producer.send("t", b"x", key=b"k").result(30)),
}


@pytest.mark.slow
@pytest.mark.pair("close", "scan and follow")
@pytest.mark.damaged("no: all is closed when the test ends")
def test_calls_of_other_threads_beside_close_end_with_closed_error_and_nothing_else() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for attempt in range(8):
            watch = Watch()
            store = opened(watch)
            log, wrong = store.log("t"), list[str]()

            def work(name: str, store: Store = store, log: pylog.Log = log, wrong: list[str] = wrong) -> None:
                try:
                    while True:
                        CALLS[name](store, log)
                except ClosedError:
                    return
                except BaseException as error:  # noqa: BLE001 - each of them is what the test looks for
                    wrong.append(f"{name}: {error!r}")

            threads = [threading.Thread(target=work, args=(name,)) for name in CALLS]
            for thread in threads:
                thread.start()
            time.sleep(0.005 * attempt)
            store.close()
            watch.end()
            for thread in threads:
                thread.join(30)
            assert not any(thread.is_alive() for thread in threads)
            assert (wrong, watch.notes) == ([], [])
    finally:
        sys.setswitchinterval(before)


class _ClosingClock(ManualClock):
    """A clock during one of whose readings another thread closes a store."""

    def __init__(self, reading: int) -> None:
        super().__init__()
        self.reading = reading
        self.close: Callable[[], object] | None = None

    def monotonic(self) -> float:
        if self.close is not None:
            self.reading -= 1
            if self.reading < 0:
                closing, self.close = threading.Thread(target=self.close), None
                closing.start()
                closing.join(0.2)  # where a lock is held, it waits for this call
        return super().monotonic()


@pytest.mark.pair("close", "groups")
@pytest.mark.damaged("no: all is closed when the test ends")
@pytest.mark.parametrize("is_first", [False, True])
def test_a_poll_that_is_under_way_when_another_thread_closes_the_store_writes_nothing_later(is_first: bool) -> None:
    for reading in range(8):
        watch, clock = Watch(), _ClosingClock(reading)
        store = opened(watch, clock=clock)
        consumer = store.consumer("t", group_id="h")
        if not is_first:
            consumer.poll(5)
            clock.advance(10_000)  # a heartbeat is due

        def close(store: Store = store, watch: Watch = watch) -> None:
            store.close()
            watch.end()

        clock.close = close
        with suppress(ClosedError):
            consumer.poll(0)
        assert watch.notes == []
        consumer.close()


# ---- processes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.pair("close", "truncation")
def test_files_that_are_cut_after_close_end_no_process(tmp_path: Path) -> None:
    code = """
        import glob, os, sys, pylog
        store = pylog.open(sys.argv[1], durability=pylog.Durability.OS)
        store.create_topic("t", segment_bytes=1 << 20)
        log = store.log("t")
        for _ in range(4):
            log.append_many([os.urandom(1000) for _ in range(1000)])
        consumer = store.consumer("t", auto_offset_reset="earliest")
        iterators = [log.scan(max_rows=100), log.records(), log.follow(0, max_rows=100), iter(consumer)]
        for each in iterators:
            next(each)
        store.close()
        for path in glob.glob(sys.argv[1] + "/t-0/*.log"):
            os.truncate(path, 4096)
        for each in iterators:
            try:
                next(each)
            except pylog.ClosedError:
                continue
            sys.exit(1)
        if os.path.exists("/proc/self/fd"):
            held = [os.readlink(path) for path in glob.glob("/proc/self/fd/*") if os.path.exists(path)]
            assert not [path for path in held if "/t-0/" in path], held
            assert "/t-0/" not in open("/proc/self/maps").read()
        sys.exit(7)
    """
    assert warm.run(["-c", textwrap.dedent(code), tmp_path / "s"]).returncode == 7


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_iterators_begun_before_a_fork_say_closed_error_in_the_child(tmp_path: Path) -> None:
    code = """
        import os, sys, pylog
        store = pylog.open(sys.argv[1], durability=pylog.Durability.OS)
        store.create_topic("t", segment_bytes=2000)
        log = store.log("t")
        for _ in range(40):
            log.append(b"x" * 200)
        consumer = store.consumer("t", auto_offset_reset="earliest")
        iterators = [log.scan(max_rows=1), log.records(), log.follow(0, max_rows=1), iter(consumer)]
        for each in iterators:
            next(each)
        child = os.fork()
        if child == 0:
            wrong = 0
            for each in iterators:
                try:
                    next(each)
                    wrong += 1
                except pylog.ClosedError as error:
                    wrong += "fork" not in str(error)
            os._exit(7 + wrong)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert len([*iterators[1]]) == 39  # the parent goes on
        sys.exit(code)
    """
    command = ["-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code), tmp_path / "s"]
    assert warm.run(command).returncode == 7
