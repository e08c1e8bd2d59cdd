"""Kafka's internal topics are written through their own interfaces only, and a group has no offsets while they are being made."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pylog
from pylog import OffsetsConfig, TopicPartition
from pylog.directory.topic_names import INTERNAL_TOPICS
from pylog.log.partition_log import PartitionLog
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from support.cli import call
from support.engines import engine_of

T0 = TopicPartition("t", 0)
OFFSETS = "__consumer_offsets"
FEW = OffsetsConfig(topic_num_partitions=2)

WRITES: dict[str, Callable[[pylog.Log], object]] = {
    "append": lambda log: log.append(b"v", key=b"k"),
    "append_many": lambda log: log.append_many([(b"k", b"v")]),
    "append nothing": lambda log: log.append_many([]),
    "append_arrow": lambda log: log.append_arrow(pa.table({"value": [b"v"]})),
    "append_batch": lambda log: log.append_batch([(b"k", b"v")]),
    "append_batches": lambda log: engine_of(log).append_batches([]),
    "delete_records": lambda log: log.delete_records(1),
    "truncate": lambda log: log.truncate(0),
}


@pytest.fixture
def store() -> Any:
    with pylog.open("/s", fs=MemoryFileSystem(), offsets=OffsetsConfig(topic_num_partitions=1)) as opened:
        opened.create_topic("t")
        opened.log("t").append_many([b"x"] * 10)
        opened.offsets.commit("g", {T0: 3})
        yield opened


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS - {"__cluster_metadata"}))
def test_an_internal_topic_takes_no_writes_of_a_caller(store: Store, name: str, topic: str) -> None:
    if topic != OFFSETS:
        store.create_topic(topic, cleanup_policy="delete")
    log = store.log(topic)
    before = log.end_offset
    with pytest.raises(pylog.InvalidTopicError, match="internal topics"):
        WRITES[name](log)
    assert (log.start_offset, log.end_offset, store.offsets.position("g", T0)) == (0, before, 3)


def test_every_method_of_a_log_that_changes_records_is_refused_for_internal_topics() -> None:
    """A new method of `PartitionLog` that changes records must be refused too, or be named here."""
    harmless = {
        "flush",
        "flush_in_background",
        "exclusively",
        "at_rest",
        "retain",
        "cleaning",
        "next_sequence",
        "commit",
        "close",
        "writer",
    }
    for name, method in inspect.getmembers(PartitionLog, inspect.isfunction):
        source = inspect.getsource(method)
        if (
            ("self.writer()" in source or "self.commit(" in source)
            and not name.startswith("_")
            and name not in {*harmless, "writer"}
        ):
            assert "self._is_internal" in source, name


def test_producers_are_refused_internal_topics(store: Store) -> None:
    with store.producer() as producer, pytest.raises(pylog.InvalidTopicError, match="internal topics"):
        producer.send(OFFSETS, key=b"k", value=b"v").result(10)
    assert store.offsets.fetch("g")[T0].offset == 3


def test_produce_refuses_internal_topics(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s", offsets=FEW) as store:
        store.create_topic("t")
        store.offsets.commit("g", {T0: 0})
    done = call("produce", tmp_path / "s", OFFSETS, "-k", ":", stdin=b"k:v\n")
    assert done.code == 1
    assert "internal topics" in done.complaints
    assert call("groups", "list", tmp_path / "s").lines == ["g"]


def test_an_internal_topic_gets_no_more_partitions(store: Store) -> None:
    with pytest.raises(pylog.InvalidTopicError, match="number of partitions, 1, stays"):
        store.add_partitions(OFFSETS, 5)
    assert store.topic(OFFSETS).partition_count == 1


def test_internal_topics_are_read_and_compacted_and_deleted_as_others(store: Store) -> None:
    assert [record.offset for record in store.log(OFFSETS).records()] == [0]
    store.compact(OFFSETS)
    store.tick()
    assert store.verify().ok
    store.delete_topic(OFFSETS)
    assert store.groups() == []


# ---- while the topic is being made -------------------------------------------------------------------------------------------


class StoppedError(Exception):
    """Ends the making of a topic."""


class Stopping(MemoryFileSystem):
    """A process that dies when it has made some directories."""

    left: int | None = None

    def make_directory(self, path: str) -> None:
        if self.left is not None and OFFSETS in path:
            if not self.left:
                raise StoppedError
            self.left -= 1
        super().make_directory(path)


@pytest.mark.parametrize("made", range(6))
def test_groups_are_empty_while_the_topic_is_half_made(made: int) -> None:
    fs = Stopping()
    five = OffsetsConfig(topic_num_partitions=5)
    with pylog.open("/s", fs=fs) as store:
        store.create_topic("t")
        store.log("t").append(b"x")
    store = pylog.open("/s", fs=fs, offsets=five)
    fs.left = made
    try:
        store.offsets.commit("g", {T0: 0})
    except StoppedError:
        fs.left = None
        fs.kill()
        fs = fs.process()
        with pylog.open("/s", fs=fs, mode="r", offsets=five) as reading:
            _check_empty(reading)
            with pylog.open("/s", fs=fs, offsets=five) as writing:
                names = [f"g{number}" for number in range(10)]
                for name in names:
                    writing.offsets.commit(name, {T0: 1})
            assert reading.groups() == names
            assert [reading.offsets.position(name, T0) for name in names] == [1] * 10
    else:
        assert made == 5


def _check_empty(store: Store) -> None:
    """Every question about groups is answered as for groups without offsets."""
    for name in ("g", "h", "i", "j"):
        assert (store.offsets.fetch(name), store.offsets.position(name, T0), store.offsets.pending(name)) == ({}, None, set())
        with pytest.raises(pylog.GroupIdNotFoundError):
            store.group(name).describe()
    assert (store.groups(), store.offsets.skipped_records()) == ([], {})
    assert {sample.labels.get("topic") for sample in store.metrics()} >= {"t"}
    consumer: Any = store.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([T0])
    assert (consumer.committed(T0), [record.value for found in consumer.poll().values() for record in found]) == (None, [b"x"])
    consumer.close()


@pytest.mark.slow
def test_no_question_about_groups_fails_while_another_process_makes_the_topic(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    ended = threading.Event()

    def look() -> None:
        with pylog.open(tmp_path, mode="r") as reading:
            while not ended.is_set():
                try:
                    reading.groups(), reading.offsets.fetch("g"), reading.metrics()
                except pylog.PylogError as error:
                    errors.append(error)

    with pylog.open(tmp_path, durability=pylog.Durability.OS) as store:
        store.create_topic("t")
        thread = threading.Thread(target=look)
        thread.start()
        store.offsets.commit("g", {T0: 0})
        ended.set()
        thread.join()
    assert errors == []
