"""Producers go on when somebody alters a topic, deletes it, or makes it again while they send to it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import pylog
from pylog import Durability
from pylog.errors import InvalidRecordError, RecordTooLargeError, UnknownTopicOrPartitionError
from pylog.log.partition_log import PartitionLog
from pylog.partitioner import hashes, murmur2
from pylog.producer.future import FutureRecordMetadata
from pylog.store import Store
from support.faults.neighbours import HookedFileSystem

PATIENCE = 60.0  # seconds that a test waits for what takes milliseconds
KEYS = [b"%d" % number for number in range(40)]


def values(store: Store, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in store.log(topic, partition).records()]


def elsewhere(store: Store) -> Store:
    """The same directory, open once more."""
    return pylog.open(store.path, durability=Durability.OS)


def made_again(store: Store, partitions: int, before: int) -> None:
    """Deletes the topic "n" of so many partitions through this store, and makes it again."""
    assert store.topic("n").partition_count == before
    store.delete_topic("n")
    store.create_topic("n", partition_count=partitions)


# ---- topics that are compacted -------------------------------------------------------------------------------------------


def test_a_record_without_a_key_is_refused_alone_for_a_compacted_topic(store: Store) -> None:
    store.create_topic("n", cleanup_policy="compact")
    with store.producer() as producer:
        for number in range(100):
            producer.send("n", b"%d" % number, key=b"k")
            with pytest.raises(pylog.InvalidRecordError, match="has no key, and the topic is compacted"):
                producer.send("n", b"lost")
        producer.send("n", None, key=b"k")
        with pytest.raises(pylog.InvalidRecordError, match="a row of the table has no key"):
            producer.send_arrow("n", pa.table({"key": [b"k", None], "value": [b"v"] * 2}))
        producer.flush(PATIENCE)
    assert values(store, "n") == [*(b"%d" % number for number in range(100)), None]


# ---- limits that change ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["max_message_bytes", "segment_bytes"])
def test_batches_are_cut_for_the_log_as_it_was_opened_after_its_topics_limit_was_raised(store: Store, option: str) -> None:
    store.create_topic("n", **{option: 1000})
    store.log("n").append(b"first")
    with store.producer(linger_ms=10**9, metadata_max_age_ms=0) as producer:
        producer.send("n", b"look").add_errback(pytest.fail)
        store.alter_topic("n", **{option: 1_000_000})
        for number in range(100):
            producer.send("n", b"%d" % number * 30)
        producer.flush(PATIENCE)
        sent = producer.send_arrow("n", pa.table({"value": [b"row" * 30] * 100}))
    assert values(store, "n")[2:102] == [b"%d" % number * 30 for number in range(100)]
    assert sum(len(done.offsets) for done in sent) == 100


def test_a_record_that_a_topic_takes_no_more_is_refused_alone(store: Store) -> None:
    store.create_topic("n", max_message_bytes=100_000)
    store.log("n").append(b"first")
    with store.producer(linger_ms=10**9) as producer, elsewhere(store) as other:
        before, large, behind = (producer.send("n", value) for value in (b"before", b"x" * 5000, b"behind"))
        other.alter_topic("n", max_message_bytes=1000)
        producer.flush(PATIENCE)
        assert (before.result().offset, behind.result().offset) == (1, 2)
        with pytest.raises(RecordTooLargeError, match="max_message_bytes=1000 of the topic"):
            large.result()


def test_a_record_without_a_key_is_refused_alone_when_its_topic_is_compacted_by_its_turn(store: Store) -> None:
    store.create_topic("n")
    with store.producer(linger_ms=10**9) as producer, elsewhere(store) as other:
        for alter in (other.alter_topic, store.alter_topic):
            before, keyless, behind = (producer.send("n", b"x", key=key) for key in (b"a", None, b"b"))
            alter("n", cleanup_policy="compact")
            producer.flush(PATIENCE)
            assert behind.result().offset == before.result().offset + 1
            with pytest.raises(InvalidRecordError):
                keyless.result()
            alter("n", cleanup_policy="delete")


@pytest.mark.pair("option change", "second process")
@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_added_partitions_are_sent_to_at_once_or_within_a_second(store: Store, whose: str) -> None:
    store.create_topic("n")
    with store.producer() as producer, elsewhere(store) as other:
        producer.send("n", b"x", key=b"k").get()
        (store if whose == "ours" else other).add_partitions("n", 8)
        if whose == "theirs":
            time.sleep(1.05)
        placed = {key: producer.send("n", b"x", key=key).get().partition for key in KEYS}
    assert placed == {key: murmur2(key) % (1 << 31) % 8 for key in KEYS}


# ---- topics that are created again -----------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("whose", ["ours", "theirs"])
@pytest.mark.parametrize("partitions", [2, 3])
def test_records_for_a_topic_made_again_with_fewer_partitions_are_all_sent_where_their_keys_belong_in_their_order(
    store: Store, whose: str, partitions: int, idempotent: bool
) -> None:
    store.create_topic("n", partition_count=8)
    with store.producer(linger_ms=10**9, enable_idempotence=idempotent) as producer, elsewhere(store) as other:
        for number in range(8):
            producer.send("n", b"old", partition=number)
        producer.flush(PATIENCE)
        made_again(store if whose == "ours" else other, partitions, 8)
        futures = [producer.send("n", b"%d %s" % (turn, key), key) for turn in range(3) for key in KEYS]
        producer.flush(PATIENCE)
        assert [future.exception() for future in futures] == [None] * len(futures)
    homes = hashes(pa.array(KEYS)) % partitions
    for partition in range(partitions):
        keys = [KEYS[at] for at in np.flatnonzero(homes == partition)]
        assert values(store, "n", partition) == [b"%d %s" % (turn, key) for turn in range(3) for key in keys]


def test_records_that_name_a_partition_that_is_no_more_fail_alone_and_send_knows_it_from_then_on(store: Store) -> None:
    store.create_topic("n", partition_count=4)
    with store.producer(linger_ms=10**9, metadata_max_age_ms=10**9) as producer, elsewhere(store) as other:
        producer.send("n", b"old")
        producer.flush(PATIENCE)
        made_again(other, 2, 4)
        lost, kept = producer.send("n", b"lost", partition=3), producer.send("n", b"kept", partition=1)
        producer.flush(PATIENCE)
        assert isinstance(lost.exception(), UnknownTopicOrPartitionError)
        assert kept.result()[1:3] == (1, 0)
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.send("n", b"late", partition=3)


def test_a_partition_found_missing_in_mid_delivery_is_known_to_be_missing_at_the_next(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_topic("n", partition_count=4)
    append = PartitionLog.append

    def deleting(log: PartitionLog, *given: object, **named: object) -> object:
        done = append(log, *given, **named)  # type: ignore[arg-type]
        if log.partition == ("n", 0) and log.end_offset == 2:
            made_again(other, 1, 4)
        return done

    with elsewhere(store) as other, store.producer(linger_ms=10**9) as producer:
        for number in range(4):
            producer.send("n", b"old", partition=number)
        producer.flush(PATIENCE)
        monkeypatch.setattr(PartitionLog, "append", deleting)
        named = [producer.send("n", b"named", partition=number) for number in range(4)]
        producer.flush(PATIENCE)
        assert [type(future.exception()) for future in named] == [type(None), *[UnknownTopicOrPartitionError] * 3]
        futures = [producer.send("n", key, key) for key in KEYS]
        producer.flush(PATIENCE)
    assert {future.result().partition for future in futures} == {0}
    assert values(store, "n") == KEYS


def test_a_topic_made_again_takes_a_batch_once_though_its_first_log_was_closed_under_the_producer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_topic("n")
    append, left = PartitionLog.append, [1]

    def deleting(log: PartitionLog, *given: object, **named: object) -> object:
        if left and left.pop():
            made_again(store, 1, 1)
        return append(log, *given, **named)  # type: ignore[arg-type]

    with store.producer(linger_ms=10**9) as producer:
        producer.send("n", b"old")
        producer.flush(PATIENCE)
        monkeypatch.setattr(PartitionLog, "append", deleting)
        left.append(1)
        futures = [producer.send("n", key) for key in KEYS]
        producer.flush(PATIENCE)
        assert [future.exception() for future in futures] == [None] * len(futures)
    assert values(store, "n") == KEYS


@pytest.mark.sampled(3)
@pytest.mark.parametrize("foremost", range(4))
@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_a_table_for_a_topic_made_again_with_fewer_partitions_is_sent_whole(store: Store, whose: str, foremost: int) -> None:
    store.create_topic("n", partition_count=4)
    keys = sorted(KEYS, key=lambda key: (murmur2(key) - foremost) % 4)  # a run of each partition, which are taken in that order
    table = pa.table({"key": keys, "value": keys})
    with store.producer() as producer, elsewhere(store) as other:
        producer.send_arrow("n", table)
        made_again(store if whose == "ours" else other, 2, 4)
        sent = producer.send_arrow("n", table)
        assert sum(len(done.offsets) for done in sent) == len(KEYS)
        with pytest.raises(UnknownTopicOrPartitionError, match="column partition has 3"):
            producer.send_arrow("n", pa.table({"value": [b"v"] * 2, "partition": [0, 3]}))
    assert sorted(values(store, "n", 0) + values(store, "n", 1)) == sorted(KEYS)


def test_a_table_may_name_partitions_added_since_the_topic_was_opened(store: Store) -> None:
    with store.producer() as producer:
        producer.send("t", b"look").result(PATIENCE)
        store.add_partitions("t", 2)
        (done,) = producer.send_arrow("t", pa.table({"value": [b"v"], "partition": [1]}))
    assert (done.partition, done.offsets) == (1, range(1))


# ---- topics that go --------------------------------------------------------------------------------------------------------


def test_a_topic_that_another_store_deletes_while_a_partition_is_opened_is_unknown(
    store: Store, fs: HookedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_topic("n", partition_count=2)
    check, left = fs.check_directory, [True]

    def deleting(path: str, **how: bool) -> None:
        if path.endswith("n-1") and left:
            left.clear()
            other.delete_topic("n")
        check(path, **how)

    with elsewhere(store) as other, store.producer() as producer:
        producer.send("n", b"v", partition=0).result(PATIENCE)
        monkeypatch.setattr(fs, "check_directory", deleting)
        future: FutureRecordMetadata = producer.send("n", b"v", partition=1)
        assert isinstance(future.exception(PATIENCE), UnknownTopicOrPartitionError)
    assert not left


def test_a_partition_that_is_no_directory_at_the_second_check_either_is_reported(store: Store) -> None:
    directory = Path(store.path) / "x-0"
    store.create_topic("x")
    shutil.rmtree(directory)
    directory.write_bytes(b"")
    with pytest.raises(pylog.NotALogDirectoryError, match="is not a directory"):
        store.log("x", 0)
    directory.unlink()
