"""Any number is a possible argument of a public call: the answer is right, or an error of pylog, at once and in little memory."""

from __future__ import annotations

import inspect
import itertools
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import pylog
from pylog import TopicPartition

T0: Final = TopicPartition("t", 0)
NUMBERS: Final = (
    *(-1, 0, 1 << 31, (1 << 63) - 1, 1 << 63, 10**30, -(10**30), 10**6, True),
    *(float("nan"), float("inf"), -float("inf"), 1e308, 1.5, "9", None, b"9"),
)
WAITS: Final = ("timeout_ms", "timeout")  # for so long, as they say
SECONDS: Final = 0.5  # of the processor
BYTES: Final = 128 << 20
FEW: Final[dict[str, Any]] = {
    "offsets": pylog.OffsetsConfig(topic_num_partitions=1),
    "transactions": pylog.TransactionsConfig(topic_num_partitions=1),
}
Calls = dict[str, Callable[[Any], object]]


class Given:
    """A store, and the objects whose methods are called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = pylog.open(root, durability=pylog.Durability.OS, **FEW)
        self.store.create_topic("t", partition_count=2)
        self.log = self.store.log("t")
        self.log.append_many([b"%d" % number for number in range(50)])
        self.consumer = self.store.consumer("t", group_id="g", auto_offset_reset="earliest")
        self.consumer.poll()
        self.producer = self.store.producer()
        self.number = itertools.count()

    def opened(self, **options: Any) -> None:
        pylog.open(self.root.parent / "other", **options).close()

    def ended(self, timeout: Any) -> None:
        with self.store.producer() as producer:
            producer.close(timeout)

    def closed(self, made: Any) -> None:
        made.close()


def transacted(store: pylog.Store, call: Callable[[pylog.Transaction], object]) -> None:
    with store.transaction() as transaction:
        call(transaction)


def few(made: Iterator[Any]) -> list[Any]:
    return list(itertools.islice(made, 2))


def calls_of(given: Given) -> Calls:
    """A call for each number, by class or function, method and parameter."""
    store, log, consumer, producer, root = given.store, given.log, given.consumer, given.producer, given.root
    group = store.group("left")
    with store.consumer("t", group_id="left", auto_offset_reset="earliest") as left:
        left.poll()
    options = {
        f"{kind.__name__}.__init__.{name}": lambda value, kind=kind, name=name: kind(**{name: value})
        for kind in (pylog.TopicConfig, pylog.OffsetsConfig, pylog.TransactionsConfig, pylog.ProducerConfig)
        for name in numbers_of(kind.__init__)
    }
    altered = {
        f"TopicConfig.{name}": lambda value, name=name: store.alter_topic("t", **{name: value})
        for name in numbers_of(pylog.TopicConfig.__init__)
    }
    produced = {
        f"ProducerConfig.{name}": lambda value, name=name: given.closed(store.producer(**{name: value}))
        for name in numbers_of(pylog.ProducerConfig.__init__)
    }
    consumed = {
        f"consumer.{name}": lambda value, name=name: given.closed(store.consumer("t", group_id="h", **{name: value}))
        for name in CONSUMER
    }
    return (
        options
        | altered
        | produced
        | consumed
        | {
            "Consumer.poll.timeout_ms": consumer.poll,
            "Consumer.poll.max_records": lambda value: consumer.poll(0, value),
            "Consumer.poll_arrow.timeout_ms": consumer.poll_arrow,
            "Consumer.poll_arrow.max_records": lambda value: consumer.poll_arrow(0, value),
            "Consumer.seek.offset": lambda value: consumer.seek(T0, value),
            "Consumer.commit": lambda value: consumer.commit({T0: value}),
            "Consumer.offsets_for_times": lambda value: consumer.offsets_for_times({T0: value}),
            "Durability.__init__.interval_ms": lambda value: pylog.Durability("INTERVAL", value),
            "Durability.INTERVAL": pylog.Durability.INTERVAL,
            "FutureRecordMetadata.result.timeout": lambda value: producer.send("t", b"x").result(value),
            "FutureRecordMetadata.get.timeout": lambda value: producer.send("t", b"x").get(value),
            "FutureRecordMetadata.exception.timeout": lambda value: producer.send("t", b"x").exception(value),
            "Group.reset.to": lambda value: group.reset(to=value),
            "Group.reset.shift_by": lambda value: group.reset(shift_by=value),
            "Log.append.timestamp": lambda value: log.append(b"x", timestamp=value),
            "Log.append_many": lambda value: log.append_many([(b"k", b"v", (), value)] * 20),
            "Log.append_batch.producer": lambda value: log.append_batch([b"x"], producer=pylog.ProducerBatch(value, 0, 0)),
            "Log.append_batch.epoch": lambda value: log.append_batch([b"x"], producer=pylog.ProducerBatch(5, value, 0)),
            "Log.append_batch.sequence": lambda value: log.append_batch([b"x"], producer=pylog.ProducerBatch(6, 0, value)),
            "Log.delete_records.before": log.delete_records,
            "Log.truncate.end": lambda value: log.truncate(value) if value else None,
            "Log.read.offset": log.read,
            "Log.read_many.offsets": lambda value: log.read_many([value]),
            "Log.scan.start": lambda value: few(log.scan(value)),
            "Log.scan.end": lambda value: few(log.scan(end=value)),
            "Log.scan.max_rows": lambda value: few(log.scan(max_rows=value)),
            "Log.records.start": lambda value: few(log.records(value)),
            "Log.records.end": lambda value: few(log.records(end=value)),
            "Log.offset_for_timestamp.timestamp": log.offset_for_timestamp,
            "Log.wait_for.offset": lambda value: log.wait_for(value, 0),
            "Log.wait_for.timeout_ms": lambda value: log.wait_for(0, value),
            "Log.follow.start": lambda value: few(log.follow(value, timeout_ms=0)),
            "Log.follow.max_rows": lambda value: few(log.follow(0, max_rows=value, timeout_ms=0)),
            "Log.follow.timeout_ms": lambda value: next(log.follow(log.start_offset, timeout_ms=value), None),
            "Log.size_between.start": lambda value: log.size_between(value, 10),
            "Log.size_between.end": lambda value: log.size_between(0, value),
            "Log.split_offsets.start": lambda value: log.split_offsets(value, 10, 100),
            "Log.split_offsets.end": lambda value: log.split_offsets(0, value, 100),
            "Log.split_offsets.max_bytes": lambda value: log.split_offsets(0, 10, value),
            "OffsetStore.commit.offsets": lambda value: store.offsets.commit("o", {T0: value}),
            "OffsetStore.commit.partition": lambda value: store.offsets.commit("o", {("t", value): 1}),
            "OffsetStore.expire.now_ms": store.offsets.expire,
            "Producer.send.partition": lambda value: producer.send("t", b"x", partition=value),
            "Producer.send.timestamp": lambda value: producer.send("t", b"x", timestamp=value),
            "Producer.flush.timeout": producer.flush,
            "Producer.close.timeout": given.ended,
            "Store.create_topic.partition_count": lambda value: store.create_topic(f"n{next(given.number)}", value),
            "Store.add_partitions.partition_count": lambda value: store.add_partitions("t", value),
            "Store.log.partition": lambda value: store.log("t", value),
            "Store.start_and_end_offsets": lambda value: store.start_and_end_offsets([("t", value)]),
            "Store.tick.now_ms": store.tick,
            "Store.retain.partition": lambda value: store.retain("t", value, dry_run=True),
            "Store.retain.now_ms": lambda value: store.retain(now_ms=value, dry_run=True),
            "Store.compact.partition": lambda value: store.compact("t", value),
            "Store.transaction.timeout_ms": lambda value: store.transaction("x", timeout_ms=value).abort(),
            "Store.transaction.buffer_bytes": lambda value: store.transaction("x", buffer_bytes=value).abort(),
            "TransactionAdmin.find_hanging.idle_ms": lambda value: store.transactions.find_hanging(idle_ms=value),
            "TransactionAdmin.find_hanging.partition": lambda value: store.transactions.find_hanging("t", value),
            "TransactionAdmin.find_open.partition": lambda value: store.transactions.find_open("t", value),
            "Transaction.append.partition": lambda value: transacted(store, lambda made: made.append("t", b"x", partition=value)),
            "Transaction.append.timestamp": lambda value: transacted(
                store, lambda made: made.append("t", b"x", timestamp=value, partition=0)
            ),
            "Transaction.append_many.partition": lambda value: transacted(
                store, lambda made: made.append_many("t", [b"x"], partition=value)
            ),
            "Transaction.append_arrow.partition": lambda value: transacted(
                store, lambda made: made.append_arrow("t", pa.table({"value": [b"x"]}), partition=value)
            ),
            "Transaction.send_offsets.offsets": lambda value: transacted(store, lambda made: made.send_offsets("o", {T0: value})),
            "Snapshot.__init__.taken_ms": lambda value: pylog.Snapshot(value, {}),
            "Store.read_table.partition": lambda value: store.read_table("t", partition=value),
            "Store.read_table.start": lambda value: store.read_table("t", partition=0, start=value),
            "Store.read_table.end": lambda value: store.read_table("t", partition=0, end=value),
            "Store.archive.rate_limit": lambda value: store.archive(f"{root}.archive", rate_limit=value),
            "restore.as_of": lambda value: pylog.restore(f"{root}.archive", f"{root}.copy", as_of=value),
            "sweep.grace_ms": lambda value: pylog.sweep(f"{root}.archive", dry_run=True, grace_ms=value),
            "sweep.history_ms": lambda value: pylog.sweep(f"{root}.archive", dry_run=True, history_ms=value),
            "Store.verify.rate_limit": lambda value: store.verify(rate_limit=value),
            "open.lock_timeout_ms": lambda value: given.opened(lock_timeout_ms=value),
            "open.tick_interval_ms": lambda value: given.opened(tick_interval_ms=value),
            "open.cleaner_dedupe_buffer_size": lambda value: given.opened(cleaner_dedupe_buffer_size=value),
            "open.cleaner_io_max_bytes_per_second": lambda value: given.opened(cleaner_io_max_bytes_per_second=value),
            "read_batches.partition": lambda value: few(pylog.read_batches(root, "t", partition=value)),
            "read_batches.start": lambda value: few(pylog.read_batches(root, "t", partition=0, start=value)),
            "read_batches.end": lambda value: few(pylog.read_batches(root, "t", partition=0, end=value)),
            "read_table.partition": lambda value: pylog.read_table(root, "t", partition=value),
            "read_table.start": lambda value: pylog.read_table(root, "t", partition=0, start=value),
            "read_table.end": lambda value: pylog.read_table(root, "t", partition=0, end=value),
        }
    )


CONSUMER: Final = (
    "max_poll_records",
    "session_timeout_ms",
    "max_poll_interval_ms",
    "auto_commit_interval_ms",
    "consumer_timeout_ms",
    "heartbeat_interval_ms",
)


def numbers_of(call: Any) -> list[str]:
    """The parameters of a call whose type is a number."""
    given = inspect.signature(call).parameters.values()
    return [each.name for each in given if {"int", "float"} & set(str(each.annotation).replace("|", " ").split())]


def public_numbers() -> set[str]:
    """The numbers of all public calls; errors are made by pylog alone."""
    found = set()
    for name in pylog.__all__:
        kind = getattr(pylog, name)
        if not inspect.isclass(kind):
            found |= {f"{name}.{each}" for each in numbers_of(kind)} if inspect.isfunction(kind) else set()
        elif not issubclass(kind, Exception):
            methods = {
                key: value
                for key, value in vars(kind).items()
                if inspect.isfunction(value) and (key[0] != "_" or key == "__init__")
            }
            found |= {f"{name}.{key}.{each}" for key, value in methods.items() for each in numbers_of(value)}
    return found


@pytest.fixture
def given(tmp_path: Path) -> Iterator[Given]:
    made = Given(tmp_path / "s")
    yield made
    made.store.close()


def test_each_number_of_a_public_call_is_tried(given: Given) -> None:
    """A new parameter joins here."""
    assert public_numbers() <= set(calls_of(given))


def tried(call: Callable[[Any], object], number: Any) -> str | None:
    """Makes a call, and returns what is wrong with it: another error, or its cost."""
    before, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        call(number)
    except pylog.PylogError:
        pass
    except Exception as error:  # noqa: BLE001 - the finding
        return repr(error)
    spent = time.process_time() - before
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) << 10
    return f"{spent:.1f} s, {more >> 20} MiB" if spent > SECONDS or more > BYTES else None


def is_waited_for(name: str, number: Any) -> bool:
    """Whether a call takes as long as its number says."""
    if not isinstance(number, int | float):
        return False
    return (name.endswith(WAITS) and number > 1) or (name.endswith("rate_limit") and 0 < number < 2)


@pytest.mark.slow
def test_any_number_gives_an_answer_or_an_error_of_pylog_at_once(given: Given) -> None:
    found = []
    for name, call in calls_of(given).items():
        for number in NUMBERS:
            if not is_waited_for(name, number) and tried(call, number):
                wrong = tried(call, number)  # the first call may have loaded kernels
                found += [(name, number, wrong)] if wrong else []
    assert not found, "\n".join(map(str, found))
