"""Every public method that changes something, and a judge of its answer, for threads that call them next to a change of a log.

A record's value is a text that is used once, with its CRC. What was acknowledged is read back: at its offset is that record, as
long as nobody has truncated the log or deleted the topic since. `beside_together` calls them.
"""

from __future__ import annotations

import inspect
import itertools
import os
import random
import re
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import pylog
from pylog import TopicPartition, aio
from support.campaign.beside import CONSUMER, LOG, STORE
from support.campaign.beside_admin import OF_ADMINISTRATORS, OF_OFFSETS, administer_transactions
from support.campaign.beside_async import ALSO_ASYNC, consume_async, produce_async, read_async
from support.campaign.beside_changes import FREE, Changer, Eras, check_value, new_value

PLACE: Final = TopicPartition("t", 0)
LONGEST_SECONDS: Final = 9.0  # of one call: no lock may be waited for until somebody's patience ends
MOST_PARTITIONS: Final = 6


# ---- the calls -----------------------------------------------------------------------------------------------------------------


class Caller:
    """A thread that calls methods, and judges what they answer."""

    def __init__(self, changer: Changer, eras: Eras, number: int, seed: int) -> None:
        self.changer = changer
        self.eras = eras
        self.number = number
        self.rng = random.Random(seed)
        self.acknowledged: list[tuple[tuple[int, ...], int, bytes]] = []
        self.group_id = f"g{number}"
        self.begin()

    def begin(self) -> None:
        """Before each call."""
        self.store = self.changer.store
        self.began = self.eras.now()

    @property
    def log(self) -> pylog.Log:
        return self.store.log("t")

    def note(self, offset: int, value: bytes) -> None:
        """A record was acknowledged. It is there now, unless a change has begun since the call did."""
        if self.eras.lasts(self.began):
            self.acknowledged.append((self.began, offset, value))
        log = self.log
        try:
            found = log.read(offset)
        except pylog.OffsetOutOfRangeError:
            assert not self.eras.lasts(self.began) or offset < log.start_offset, f"offset {offset} was acknowledged and is gone"
            return
        check_value(found.value)
        if self.eras.lasts(self.began) and offset >= log.start_offset:
            assert (found.offset, found.value) == (offset, value), f"{found} where {value!r} was acknowledged at {offset}"


def append(caller: Caller) -> None:
    value = new_value()
    caller.note(caller.log.append(value, key=value), value)


def append_many(caller: Caller) -> None:
    values = [new_value() for _ in range(caller.rng.randint(1, 20))]
    found = caller.log.append_many([(value, value) for value in values])
    assert len(found) == len(values)
    caller.note(found[-1], values[-1])


def append_arrow(caller: Caller) -> None:
    values = [new_value() for _ in range(5)]
    found = caller.log.append_arrow(pa.table({"key": values, "value": values}))
    caller.note(found[2], values[2])


def append_batch(caller: Caller) -> None:
    value = new_value()
    numbers = pylog.ProducerBatch(caller.rng.randrange(1 << 40), 0, 0)
    found = caller.log.append_batch([(value, value)], producer=numbers)
    caller.note(found.offsets[0], value)
    if caller.eras.lasts(caller.began):
        again = caller.log.append_batch([(value, value)], producer=numbers)
        assert not caller.eras.lasts(caller.began) or (again.duplicate and again.offsets == found.offsets), again


def exclusively(caller: Caller) -> None:
    """The record's value is its own offset."""
    log = caller.log
    with log.exclusively():
        own = b"%d" % log.end_offset
        value = b"%s/%d" % (own, zlib.crc32(own))
        found = log.append(value, key=new_value())
        assert found == int(own), f"offset {found} in place of {own!r}, which was the end under the lock"
    caller.note(found, value)


def delete_records(caller: Caller) -> None:
    log = caller.log
    before = min(log.end_offset, log.start_offset + 5)
    assert log.delete_records(before) >= min(before, log.start_offset)


def truncate(caller: Caller) -> None:
    log = caller.log
    with caller.eras.change():
        log.truncate(max(log.start_offset, log.end_offset - 3))


def flush(caller: Caller) -> None:
    caller.log.flush()
    caller.store.flush()


def topics(caller: Caller) -> None:
    """Other topics, which only this thread knows."""
    name = f"own-{caller.number}-{os.getpid()}"
    with suppress(pylog.TopicAlreadyExistsError):  # of a call that ended early
        caller.store.create_topic(name, partition_count=2)
    value = new_value()
    assert caller.store.log(name, 1).append(value) >= 0
    caller.store.delete_topic(name)
    assert name not in caller.store.topics()


def delete_the_topic(caller: Caller) -> None:
    with caller.eras.change():
        try:
            with suppress(pylog.UnknownTopicOrPartitionError):
                caller.store.delete_topic("t")
        finally:
            _make_again(caller)


def _make_again(caller: Caller) -> None:
    """Creates the topic, also if the store is closed meanwhile: all other rows need it."""
    while True:
        with suppress(pylog.TopicAlreadyExistsError):
            try:
                caller.changer.store.create_topic("t", **FREE)
            except pylog.ClosedError:
                time.sleep(0.001)
                continue
        return


def add_partitions(caller: Caller) -> None:
    count = caller.store.topic("t").partition_count
    if count < MOST_PARTITIONS:
        with suppress(pylog.InvalidArgumentError):  # another thread was faster
            assert caller.store.add_partitions("t", count + 1).partition_count >= count


def alter_topic(caller: Caller) -> None:
    caller.store.alter_topic("t", index_interval_bytes=caller.rng.choice([200, 400]))


def compact(caller: Caller) -> None:
    caller.store.compact("t")


def upkeep(caller: Caller) -> None:
    caller.store.tick()
    caller.store.retain("t", dry_run=True)
    caller.store.retain("t")


def judge_reports(caller: Caller) -> None:
    for report in (caller.store.check(), caller.store.verify()):
        assert report.ok, str(report)


def produce(caller: Caller) -> None:
    with _closing(caller.store.producer()) as producer:
        assert 0 in producer.partitions_for_topic("t")
        value = new_value()
        sent = producer.send("t", value, key=b"k", partition=0)
        producer.flush(LONGEST_SECONDS)
        assert sent.done()
        caller.note(sent.get(LONGEST_SECONDS).offset, value)


def produce_arrow(caller: Caller) -> None:
    with _closing(caller.store.producer()) as producer:
        value = new_value()
        (found,) = producer.send_arrow("t", pa.table({"key": [value], "value": [value], "partition": pa.array([0], pa.int32())}))
        caller.note(found.offsets[0], value)


def transact(caller: Caller) -> None:
    """Commits one transaction and aborts another one. A change may stop either: then the block aborts it."""
    value = new_value()
    with caller.store.transaction() as transaction:
        transaction.append("t", value, key=b"k", partition=0)
        transaction.append_many("t", [(value, value)], partition=0)
        transaction.append_arrow("t", pa.table({"key": [value], "value": [value]}), partition=0)
        transaction.flush()
    assert transaction.outcome == "committed"
    caller.note(transaction.offsets[pylog.TopicPartition("t", 0)][0].start, value)
    given_up = caller.store.transaction()
    given_up.append("t", value, partition=0)
    given_up.send_offsets("transact", {("t", 0): 0})
    given_up.abort()
    assert given_up.outcome == "aborted"


def produce_transactions(caller: Caller) -> None:
    """Commits one transaction of a producer, and leaves another one open, which the end of the producer aborts."""
    with _closing(caller.store.producer(transactional_id=f"produced-{os.getpid()}-{id(caller)}")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        value = new_value()
        future = producer.send("t", value, key=value, partition=0)
        producer.send_offsets_to_transaction({("t", 0): 0}, "produced")
        producer.commit_transaction()
        caller.note(future.result().offset, value)
        for end in (producer.abort_transaction, producer.flush):
            producer.begin_transaction()
            producer.send("t", value, key=value, partition=0)
            end()


def consume(caller: Caller) -> None:
    """All that a consumer does and the rows that read have not: commits, subscriptions, pauses."""
    with _closing(caller.store.consumer(group_id=caller.group_id, auto_offset_reset="earliest")) as consumer:
        consumer.subscribe(["t"])
        for record in itertools.chain.from_iterable(consumer.poll(5, max_records=20).values()):
            check_value(record.value)
        for place in consumer.assignment():
            consumer.pause(place)
            consumer.resume(place)
        consumer.commit()
        consumer.commit_async().result(LONGEST_SECONDS)
        consumer.committed(PLACE)
        consumer.unsubscribe()
        consumer.wakeup()


def commit(caller: Caller) -> None:
    """Each thread has a group. What it commits is what it gets."""
    offsets, group = caller.store.offsets, f"own-{caller.group_id}"
    offset = caller.rng.randint(0, caller.log.end_offset)
    offsets.commit(group, {PLACE: offset})
    found = offsets.fetch(group).get(PLACE)
    if caller.eras.lasts(caller.began):
        assert found is not None
        assert found.offset == offset == offsets.position(group, PLACE)
    assert offsets.pending(group) == set()
    assert group in offsets.groups() or not caller.eras.lasts(caller.began)
    assert offsets.known_groups()[1] == {}
    assert offsets.skipped_records() == {}
    offsets.expire()
    offsets.delete(group)
    assert offsets.fetch(group) == {}


def administer(caller: Caller) -> None:
    name = f"ruled-{caller.group_id}"
    caller.store.offsets.commit(name, {PLACE: 1})
    group = caller.store.group(name)
    with suppress(pylog.GroupIdNotFoundError):  # a topic's deletion deletes its commits
        group.describe()
        group.lag()
        group.health()
        group.reset("earliest", scope=["t"])
        with tempfile.TemporaryDirectory() as directory:
            group.export(Path(directory) / "plan.csv")
            pylog.export_offsets(caller.store, Path(directory) / "all.csv", [name])
            pylog.import_offsets(caller.store, Path(directory) / "all.csv")
        group.delete_offsets(["t"])
        group.delete()


def archive_and_restore(caller: Caller) -> None:
    """An archive of the directory as it changes, swept, and a directory from it."""
    with tempfile.TemporaryDirectory() as directory:
        caller.store.archive(f"{directory}/archive", topics=["t"])
        pylog.sweep(f"{directory}/archive")
        pylog.restore(f"{directory}/archive", f"{directory}/copy")
        with pylog.open(f"{directory}/copy", mode="r") as copy:
            for record in copy.log("t").records():
                check_value(record.value)


def by_path(caller: Caller) -> None:
    """Reads that open the store themselves, by its path."""
    path = caller.store.path
    for value in pylog.read_table(path, "t", 0, columns=["value"])["value"].to_pylist():
        check_value(value)
    for frame in pylog.read_batches(path, "t", 0, columns=["value"]):
        for value in frame["value"].to_pylist():
            check_value(value)
    with pylog.open(path, mode="r") as store:
        assert store.log("t").end_offset >= 0


@contextmanager
def _closing(client: Any) -> Iterator[Any]:
    """Closes a client; what it says of the records that it could not send is not asked for twice."""
    try:
        yield client
    except Exception:
        with suppress(pylog.PylogError):
            client.close()
        raise
    client.close()


Call = Callable[[Caller], None]
NOT_CHANGING: Final = "reads: the rows of `support.campaign.beside` have it"
OF_CONSUMERS: Final = "the consumer's own method, which `run` calls in its thread"
ENDS: Final = "a change next to which all others run"

# Each public class: its methods, each with the row that calls it, or why it is called nowhere.
TRANSACTIONAL: Final = (
    *("init_transactions", "begin_transaction", "send_offsets_to_transaction", "commit_transaction", "abort_transaction"),
)
ROWS: Final[dict[type, dict[str, Call | str]]] = {
    pylog.Log: {
        **{name: NOT_CHANGING for name, row in LOG.items() if callable(row)},
        "append": append,
        "append_many": append_many,
        "append_arrow": append_arrow,
        "append_batch": append_batch,
        "exclusively": exclusively,
        "delete_records": delete_records,
        "truncate": truncate,
        "flush": flush,
        "config": "gives another object, which reads the catalog: the rows of `alter_topic` read it",
        "remote_offsets": "of a broker's remote tier: tests/test_tiered.py",
        **dict.fromkeys(("archived_end_offset", "local_start_offset"), "of an archive: tests/objects"),
    },
    pylog.Store: {
        **{name: NOT_CHANGING for name, row in STORE.items() if callable(row)},
        "add_partitions": add_partitions,
        "alter_topic": alter_topic,
        "create_topic": topics,
        "delete_topic": delete_the_topic,
        "compact": compact,
        **dict.fromkeys(("tick", "retain"), upkeep),
        **dict.fromkeys(("check", "verify"), judge_reports),
        "flush": flush,
        "producer": produce,
        "transaction": transact,
        "consumer": consume,
        "serve_metrics": "serves the text of `metrics`: tests/monitoring",
        "serve_ui": "serves pages: tests/ui",
        "group": administer,
        "offsets": commit,
        "transactions": administer_transactions,
        "archive": archive_and_restore,
        "close": ENDS,
    },
    pylog.Consumer: {
        **{name: NOT_CHANGING for name, row in CONSUMER.items() if callable(row)},
        **dict.fromkeys(("commit", "commit_async", "committed", "group_metadata", "subscribe", "unsubscribe"), consume),
        **dict.fromkeys(("pause", "resume", "wakeup", "close"), consume),
    },
    pylog.Producer: {
        **dict.fromkeys(("send", "flush", "close", "partitions_for_topic"), produce),
        "send_arrow": produce_arrow,
        **dict.fromkeys(TRANSACTIONAL, produce_transactions),
    },
    pylog.Transaction: dict.fromkeys(
        ("abort", "append", "append_arrow", "append_many", "commit", "flush", "offsets", "outcome", "send_offsets"), transact
    ),
    pylog.TransactionAdmin: dict.fromkeys(OF_ADMINISTRATORS, administer_transactions),
    pylog.FutureRecordMetadata: {
        **dict.fromkeys(("done", "get"), produce),
        **dict.fromkeys(("result", "exception", "failed", "succeeded"), "as `get` and `done`"),
        **dict.fromkeys(("add_callback", "add_errback", "when_done"), "calls a function of the program's"),
    },
    pylog.OffsetStore: dict.fromkeys(OF_OFFSETS, commit),
    pylog.Group: dict.fromkeys(("delete", "delete_offsets", "describe", "export", "health", "lag", "reset"), administer),
    aio.AsyncProducer: {
        **dict.fromkeys(
            ("send_and_wait", "send_arrow", "create_batch", "send_batch", "flush", "close", "partitions_for"), produce_async
        ),
        **dict.fromkeys(("start", "stop", "send"), "as `send_and_wait` and `close`"),
        **dict.fromkeys((*TRANSACTIONAL, "transaction"), "as those of `Producer`"),
    },
    aio.AsyncConsumer: {
        **dict.fromkeys(("poll", "poll_arrow", "getmany", "run", "wakeup", "close"), consume_async),
        **dict.fromkeys(("start", "stop", "getone"), "as `getmany` and `close`"),
        **dict.fromkeys(("assign", "assignment", "subscribe", "subscription", "unsubscribe", "topics"), OF_CONSUMERS),
        **dict.fromkeys(
            ("beginning_offsets", "end_offsets", "offsets_for_times", "position", "committed", "commit", "group_metadata"),
            OF_CONSUMERS,
        ),
        **dict.fromkeys(
            ("highwater", "pause", "paused", "resume", "seek", "seek_to_beginning", "seek_to_committed", "seek_to_end"),
            OF_CONSUMERS,
        ),
        **dict.fromkeys(("last_poll_timestamp", "last_stable_offset", "partitions_for_topic"), OF_CONSUMERS),
    },
    aio.AsyncStore: {
        **dict.fromkeys(("run", "topics", "topic", "log", "start_and_end_offsets"), read_async),
        **dict.fromkeys(ALSO_ASYNC["AsyncStore"], "as the method of `Store`, which it calls in a thread"),
    },
    aio.AsyncLog: {
        **dict.fromkeys(("run", "records", "scan", "follow", "start_offset", "end_offset"), read_async),
        **dict.fromkeys(ALSO_ASYNC["AsyncLog"], "as the method of `Log`, which it calls in a thread"),
    },
    aio.AsyncIteration: {"aclose": read_async},
}
FUNCTIONS: Final[dict[str, Call]] = {
    **dict.fromkeys(("export_offsets", "import_offsets"), administer),
    **dict.fromkeys(("open", "read_batches", "read_table"), by_path),
    "restore": archive_and_restore,
    "sweep": archive_and_restore,
}
EACH_ROW: Final = (*(row for table in ROWS.values() for row in table.values()), *FUNCTIONS.values())
CALLS: Final = tuple(dict.fromkeys(row for row in EACH_ROW if callable(row)))
# By which errors of their own, besides those of a change, three of the same call may be in each other's way.
AMONG_THEMSELVES: Final[dict[Call, tuple[type[Exception], ...]]] = {
    delete_records: (pylog.OffsetOutOfRangeError,),
    truncate: (pylog.OffsetOutOfRangeError, pylog.InvalidTransactionStateError),
    add_partitions: (pylog.UnknownTopicOrPartitionError,),
    delete_the_topic: (pylog.UnknownTopicOrPartitionError, pylog.InvalidTransactionStateError),
}


def documented(row: Call) -> set[str]:
    """The names of the errors in the docstrings of a row's methods, of their classes and of what they are obtained from."""
    texts = [pylog.Store.__doc__, pylog.Log.__doc__, pylog.Store.log.__doc__, pylog.OffsetStore.commit.__doc__]
    for of, table in ROWS.items():
        names = [name for name, called in table.items() if called is row]
        texts += [of.__doc__] * bool(names) + [inspect.getdoc(getattr(of, name)) for name in names]
    texts += [inspect.getdoc(getattr(pylog, name)) for name, called in FUNCTIONS.items() if called is row]
    return set(re.findall(r"\b\w+Error\b", "\n".join(filter(None, texts))))
