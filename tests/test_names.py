"""One thing has one name: earlier names are refused with today's, and NumPy's integers are integers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pylog
from pylog.offsets.store import offset_manager_of
from pylog.testing import MemoryFileSystem

Call = Callable[[pylog.Store], object]
RENAMED: dict[str, tuple[Call, str]] = {
    "a consumer's group": (lambda store: store.consumer("t", group="g"), "use group_id"),
    "a consumer's isolation": (lambda store: store.consumer("t", isolation="read_committed"), "use isolation_level"),
    "a topic's partitions": (lambda store: store.create_topic("new", partitions=2), "use partition_count"),
    "Kafka's word for them": (lambda store: store.create_topic("new", num_partitions=2), "use partition_count"),
}
FIVE = np.int64(5)


def sent(store: pylog.Store, **options: Any) -> None:
    with store.producer(**options) as producer:
        producer.send("t", b"x", partition=np.int64(0), timestamp=FIVE).result(np.int64(60))


def polled(store: pylog.Store, **options: Any) -> None:
    with store.consumer("t", **options) as consumer:
        consumer.poll(np.int64(0), FIVE)
        consumer.seek(("t", np.int64(0)), FIVE)


WITH_NUMPY: dict[str, Call] = {
    "open": lambda store: pylog.open(
        store.path, "r", fs=offset_manager_of(store.offsets).fs, lock_timeout_ms=FIVE, cleaner_dedupe_buffer_size=FIVE * 100
    ),
    "create_topic": lambda store: store.create_topic("new", FIVE, retention_ms=FIVE, segment_bytes=np.int32(1000)),
    "add_partitions": lambda store: store.add_partitions("t", FIVE),
    "alter_topic": lambda store: store.alter_topic("t", retention_ms=FIVE),
    "log": lambda store: store.log("t", np.uint8(0)),
    "append": lambda store: store.log("t").append(b"x", timestamp=FIVE),
    "append_many": lambda store: store.log("t").append_many([(b"k", b"v", (), FIVE)]),
    "append_batch": lambda store: store.log("t").append_batch(
        [b"x"], producer=pylog.ProducerBatch(FIVE, np.int16(0), np.int32(0))
    ),
    "read": lambda store: store.log("t").read(np.uint32(3)),
    "scan": lambda store: list(store.log("t").scan(np.int64(1), FIVE, max_rows=np.int64(2))),
    "records": lambda store: list(store.log("t").records(np.int64(1), FIVE)),
    "offset_for_timestamp": lambda store: store.log("t").offset_for_timestamp(FIVE),
    "follow": lambda store: list(store.log("t").follow(FIVE, timeout_ms=np.int64(0))),
    "wait_for": lambda store: store.log("t").wait_for(FIVE, timeout_ms=np.int64(0)),
    "size_between": lambda store: store.log("t").size_between(np.int64(0), FIVE),
    "split_offsets": lambda store: store.log("t").split_offsets(np.int64(0), FIVE, FIVE),
    "delete_records": lambda store: store.log("t").delete_records(FIVE),
    "truncate": lambda store: store.log("t").truncate(FIVE),
    "tick": lambda store: store.tick(np.int64(10**12)),
    "retain": lambda store: store.retain("t", np.int64(0), now_ms=np.int64(10**12)),
    "send": lambda store: sent(store, batch_size=np.int64(100)),
    "commit": lambda store: store.offsets.commit("g", {("t", np.int64(0)): FIVE}),
    "fetch": lambda store: store.offsets.fetch("g", [("t", np.int64(0))]),
    "expire": lambda store: store.offsets.expire(np.int64(10**12)),
    "consumer": lambda store: polled(store, max_poll_records=FIVE, session_timeout_ms=np.int64(10_000)),
    "reset": lambda store: store.group("g").reset(FIVE, scope="t"),
    "a level": lambda _: pylog.Durability.INTERVAL(FIVE),
    "offsets' options": lambda _: pylog.OffsetsConfig(retention_minutes=FIVE),
}


@pytest.fixture
def store() -> Iterator[pylog.Store]:
    offsets = pylog.OffsetsConfig(topic_num_partitions=1)
    with pylog.open("/data", fs=MemoryFileSystem(), offsets=offsets, durability=pylog.Durability.OS) as opened:
        opened.create_topic("t", 2)
        opened.log("t").append_many([b"%d" % number for number in range(10)])
        yield opened


@pytest.mark.parametrize("name", RENAMED)
def test_an_earlier_name_of_an_option_is_refused_with_todays(store: pylog.Store, name: str) -> None:
    call, today = RENAMED[name]
    with pytest.raises(pylog.InvalidArgumentError, match=today):
        call(store)


@pytest.mark.parametrize("name", WITH_NUMPY)
def test_a_call_takes_numpys_integers_as_integers(store: pylog.Store, name: str) -> None:
    WITH_NUMPY[name](store)


def test_numpys_integers_are_plain_ints_in_files_and_results(store: pylog.Store) -> None:
    topic = store.create_topic("new", np.int64(2), retention_ms=FIVE)
    stamped = store.log("new").append(b"x", timestamp=np.int64(10**12))
    assert {type(value) for value in (topic.partition_count, topic.config.retention_ms, stamped)} == {int}
    assert type(store.log("new").read(np.int64(0)).timestamp) is int
    assert type(store.log("new", np.int64(1)).append_batch([b"x"]).offsets.stop) is int


def test_no_bool_is_an_integer(store: pylog.Store) -> None:
    calls: list[Callable[[Any], object]] = [
        lambda value: store.log("t", value),
        lambda value: store.create_topic("new", value),
        lambda value: store.log("t").append(b"x", timestamp=value),
    ]
    for call in calls:
        for value in (True, np.True_):
            with pytest.raises(pylog.InvalidArgumentError):
                call(value)


def test_a_topic_has_as_many_partitions_as_ids(store: pylog.Store) -> None:
    topic = store.topic("t")
    assert (topic.partition_count, topic.partition_ids) == (2, (0, 1))


@pytest.mark.parametrize(
    "kind", [pylog.Store, pylog.Consumer, pylog.Producer, pylog.Group, pylog.OffsetStore], ids=lambda kind: kind.__name__
)
def test_a_call_of_a_class_that_has_a_factory_names_the_factory(kind: type) -> None:
    with pytest.raises(TypeError, match=r"use (pylog\.open|Store\.\w+)$"):
        kind("/data")
