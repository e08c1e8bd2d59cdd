"""A topic's options as they stand count for all that is open: appends, retention, compaction, here and in other processes."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pylog
from pylog import Durability, InvalidRecordError, RecordTooLargeError, Store
from pylog.testing import MemoryFileSystem
from pylog.topics import changes

OLD = 1_000_000_000_000


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def store(fs: MemoryFileSystem) -> Iterator[Store]:
    with pylog.open("/d", fs=fs, durability=Durability.OS) as store:
        yield store


@pytest.fixture
def other(store: Store, fs: MemoryFileSystem) -> Iterator[Store]:
    with pylog.open("/d", fs=fs, durability=Durability.OS) as other:
        yield other


def fill(store: Store, count: int = 10, **record: object) -> None:
    for _ in range(count):
        store.log("t").append(b"x" * 60, **record)  # type: ignore[arg-type]


# ---- appends -----------------------------------------------------------------------------------------------------------------


@pytest.mark.pair("option change", "compaction", "second process")
@pytest.mark.parametrize("alterer", ["the same store", "another one"])
@pytest.mark.parametrize("is_open", [True, False])
def test_a_topic_made_compacted_refuses_keyless_records_at_once_in_every_store(
    store: Store, other: Store, alterer: str, is_open: bool
) -> None:
    store.create_topic("t", segment_bytes=200)
    if is_open:
        fill(store)
        fill(other)
    (store if alterer == "the same store" else other).alter_topic("t", cleanup_policy="compact")
    for each in (store, other):
        with pytest.raises(InvalidRecordError):
            each.log("t").append(b"no key")
        with pytest.raises(InvalidRecordError):
            each.log("t").append_many([(b"k", b"v"), (None, b"v")])
        with pytest.raises(InvalidRecordError), each.producer() as producer:
            producer.send("t", b"no key").get()
        each.log("t").append(b"v", key=b"k")


@pytest.mark.pair("option change", "second process")
def test_a_topic_that_is_compacted_no_more_takes_keyless_records(store: Store, other: Store) -> None:
    store.create_topic("t", cleanup_policy="compact")
    with store.producer() as producer, other.producer() as others:
        for each in (producer, others):
            each.send("t", b"v", key=b"k").get()
        store.alter_topic("t", cleanup_policy="delete")
        for one in (store, other):
            one.log("t").append(b"no key")
        for each in (producer, others):
            assert each.send("t", b"no key").get().offset >= 0


@pytest.mark.pair("option change", "second process")
def test_a_raised_and_a_lowered_maximum_count_at_the_next_append(store: Store, other: Store) -> None:
    store.create_topic("t", max_message_bytes=1000)
    with store.producer() as producer, other.producer() as others:
        for _ in range(2):
            for one in (store, other):
                with pytest.raises(RecordTooLargeError, match="max_message_bytes=1000"):
                    one.log("t").append(bytes(2000))
            for each in (producer, others):
                with pytest.raises(RecordTooLargeError):
                    each.send("t", bytes(2000)).get()
            other.alter_topic("t", max_message_bytes=10_000)
            for one in (other, store):
                one.log("t").append(bytes(2000))
            for each in (producer, others):
                each.send("t", bytes(2000)).get()
            store.alter_topic("t", max_message_bytes=1000)


@pytest.mark.pair("option change", "roll", "LogAppendTime")
def test_every_option_of_appends_counts_at_the_next_one(store: Store, other: Store) -> None:
    store.create_topic("t")
    log, theirs = store.log("t"), other.log("t")
    log.append(bytes(100), timestamp=OLD)
    theirs.append(bytes(100), timestamp=OLD)
    other.alter_topic("t", segment_bytes=200, message_timestamp_type="LogAppendTime", compression_type="zstd", durability="sync")
    acks = [each.append_batch([(None, b"y" * 100, (), OLD)] * 3) for each in (log, theirs)]
    assert [ack.durability for ack in acks] == [Durability.SYNC] * 2
    assert len(log.segments) > 1
    assert all(record.timestamp > OLD for record in log.records(2))
    assert {stamp for frame in log.scan(2, columns=("timestamp_type",)) for stamp in frame.column(0).to_pylist()} == {1}


def test_an_altered_interval_is_flushed_in_the_background(tmp_path: Path) -> None:
    with pylog.open(tmp_path, durability=Durability.OS) as store, pylog.open(tmp_path) as other:
        store.create_topic("t")
        log = store.log("t")
        log.append(b"0")
        other.alter_topic("t", durability="interval:5")
        log.append(b"1")
        end = time.monotonic() + 10
        while log.durable_offset < 2 and time.monotonic() < end:
            time.sleep(0.01)
        assert log.durable_offset == 2


def test_the_alterer_of_an_exclusive_store_meets_its_own_options() -> None:
    with pylog.open("/d", fs=MemoryFileSystem(), exclusive=True) as store:
        store.create_topic("t")
        fill(store)
        store.alter_topic("t", cleanup_policy="compact")
        with pytest.raises(InvalidRecordError):
            store.log("t").append(b"no key")


@pytest.mark.pair("option change", "compaction")
def test_no_keyless_record_is_acknowledged_after_alter_topic_returned_whatever_threads_are_appending(store: Store) -> None:
    """Requests of a group commit were made under the old options, and wait for their turn."""
    store.create_topic("t", segment_bytes=10_000)
    altered, late = threading.Event(), []
    interval = sys.getswitchinterval()

    def append() -> None:
        log = store.log("t")
        while True:
            was_altered = altered.is_set()
            try:
                offset = log.append(b"no key")
            except InvalidRecordError:
                return
            if was_altered:
                late.append(offset)

    threads = [threading.Thread(target=append) for _ in range(6)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        store.alter_topic("t", cleanup_policy="compact")
        altered.set()
        for thread in threads:
            thread.join(30)
    finally:
        sys.setswitchinterval(interval)
    assert not late
    assert not any(thread.is_alive() for thread in threads)


APPENDER = """
import sys, pylog
with pylog.open(sys.argv[1], durability=pylog.Durability.OS) as store:
    log = store.log("t")
    log.append(b"no key")
    print("ready", flush=True)
    while True:
        try:
            print(log.append(b"no key"), flush=True)
        except pylog.InvalidRecordError:
            print("refused", flush=True)
            break
"""


@pytest.mark.slow
@pytest.mark.pair("option change", "second process")
def test_no_other_process_acknowledges_a_keyless_record_after_alter_topic_returned(tmp_path: Path) -> None:
    with pylog.open(tmp_path, durability=Durability.OS) as store:
        store.create_topic("t", segment_bytes=100_000)
        process = subprocess.Popen([sys.executable, "-c", APPENDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        store.alter_topic("t", cleanup_policy="compact")
        end = store.log("t").end_offset
        acknowledged = [int(line) for line in process.stdout.read().split() if line.isdigit()]
        process.stdout.close()
        process.wait(60)
        assert acknowledged == list(range(1, end))


# ---- a killed alteration -----------------------------------------------------------------------------------------------------


@pytest.mark.pair("option change", "crash", "compaction")
@pytest.mark.parametrize("act", [Store.tick, lambda store: store.compact("t")], ids=["tick", "clean"])
def test_a_killed_alteration_never_leaves_appends_and_the_cleaner_with_two_versions(
    store: Store, other: Store, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, act: Callable[[Store], object]
) -> None:
    store.create_topic("t", segment_bytes=200, min_cleanable_dirty_ratio=0.0)
    fill(store)  # its writer is open, and its header carries the old options
    with monkeypatch.context() as patch, pylog.open("/d", fs=fs) as killed:
        patch.setattr(changes.TopicChanges, "announce", lambda *_: None)
        killed.alter_topic("t", cleanup_policy="compact")
    before = store.log("t").end_offset
    act(other)
    with pytest.raises(InvalidRecordError):
        store.log("t").append(b"no key")
    assert store.log("t").end_offset == before


@pytest.mark.pair("option change", "crash")
def test_a_writer_made_after_a_killed_alteration_makes_all_others_follow_it(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_topic("t", segment_bytes=200)
    fill(store)
    with monkeypatch.context() as patch:
        patch.setattr(changes.TopicChanges, "announce", lambda *_: None)
        other.alter_topic("t", cleanup_policy="compact")
    other.log("t").append(b"v", key=b"k")
    with pytest.raises(InvalidRecordError):
        store.log("t").append(b"no key")


# ---- retention and compaction ------------------------------------------------------------------------------------------------


@pytest.mark.pair("option change", "retention by size", "retention by time")
@pytest.mark.parametrize("alterer", ["the same store", "another one"])
def test_the_next_tick_follows_raised_and_lowered_retention(store: Store, other: Store, alterer: str) -> None:
    alter = (store if alterer == "the same store" else other).alter_topic
    store.create_topic("t", segment_bytes=200, retention_ms=1000)
    fill(store, timestamp=OLD)
    alter("t", retention_ms=-1)
    assert store.tick() == 0
    alter("t", retention_bytes=300)
    assert store.tick() > 0
    assert store.log("t").start_offset > 0
    alter("t", retention_ms=1000)
    store.tick()
    assert store.log("t").start_offset == store.log("t").end_offset


@pytest.mark.pair("option change", "retention by time")
@pytest.mark.slow
def test_a_background_tick_follows_raised_retention(tmp_path: Path) -> None:
    with pylog.open(tmp_path, tick_interval_ms=10, durability=Durability.OS) as store, pylog.open(tmp_path) as other:
        store.create_topic("t", segment_bytes=200, retention_ms=1500)
        fill(store)
        other.alter_topic("t", retention_ms=-1)
        time.sleep(1.8)
        assert store.log("t").start_offset == 0


@pytest.mark.pair("option change", "delete_records")
def test_delete_records_goes_by_the_policy_as_it_stands(store: Store, other: Store) -> None:
    store.create_topic("t")
    fill(store, key=b"k")
    other.alter_topic("t", cleanup_policy="compact")
    with pytest.raises(pylog.InvalidArgumentError):
        store.log("t").delete_records(5)
    other.alter_topic("t", cleanup_policy=None)
    assert store.log("t").delete_records(5) == 5


@pytest.mark.pair("option change", "compaction")
def test_a_compaction_under_way_ends_when_the_topic_is_compacted_no_more(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pylog.log.maintenance.segment_swap import CleanedSegment

    store.create_topic("t", cleanup_policy="compact", segment_bytes=200)
    fill(store, key=b"k")
    finish = CleanedSegment.finish

    def alter_first(self: CleanedSegment, aborted: object) -> None:
        other.alter_topic("t", cleanup_policy="delete")
        finish(self, aborted)  # type: ignore[arg-type]

    monkeypatch.setattr(CleanedSegment, "finish", alter_first)
    store.compact("t")
    assert len(list(store.log("t").records())) == 10


# ---- what is said ------------------------------------------------------------------------------------------------------------


def test_alter_topic_says_what_changed_and_what_becomes_of_keyless_records(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.create_topic("t")
    store.create_topic("empty")
    fill(store)
    with caplog.at_level(logging.INFO, "pylog.topics"):
        store.alter_topic("t", retention_ms=5, cleanup_policy="compact")
        store.alter_topic("empty", cleanup_policy="compact")
    text = [record.getMessage() for record in caplog.records]
    assert any("retention_ms" in line and "604800000" in line and "new=5" in line for line in text)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "topic=t" in warnings[0]
    assert "without a key" in warnings[0]


@pytest.mark.parametrize(
    ("config", "named"), [({"segment_bytes": 100}, "segment_bytes=100"), ({"max_message_bytes": 100}, "max_message_bytes=100")]
)
def test_a_record_that_is_too_large_names_the_option_that_is_the_limit(store: Store, config: dict[str, int], named: str) -> None:
    store.create_topic("t", **config)
    with pytest.raises(RecordTooLargeError, match=named):
        store.log("t").append(bytes(200))
    with pytest.raises(RecordTooLargeError, match=named):
        store.log("t").append_batch([bytes(30)] * 20, atomic=True)
    with store.producer() as producer, pytest.raises(RecordTooLargeError, match=named):
        producer.send("t", bytes(200)).get()


def test_a_record_that_is_too_large_for_its_producer_names_max_request_size(store: Store) -> None:
    store.create_topic("t")
    with store.producer(max_request_size=1000) as producer, pytest.raises(RecordTooLargeError, match="max_request_size=1000"):
        producer.send("t", bytes(2000)).get()


# ---- `retain` ----------------------------------------------------------------------------------------------------------------


@pytest.mark.pair("retention by size", "groups")
def test_retain_and_its_plan_and_tick_are_one_rule(store: Store, fs: MemoryFileSystem) -> None:
    store.create_topic("t", segment_bytes=200, retention_ms=1000, retention_group="g")
    fill(store, timestamp=OLD)
    log = store.log("t")
    store.offsets.commit("g", {("t", 0): 10})
    log.truncate(0)
    fill(store, 4, timestamp=OLD)  # the group has committed beyond the end of what is a new log
    assert store.retain() == store.retain("t", 0, dry_run=True) == []
    store.offsets.commit("g", {("t", 0): 4})
    with pylog.open("/d", mode="r", fs=fs) as reader:
        plan = reader.retain(dry_run=True)
        with pytest.raises(pylog.ReadOnlyError):
            reader.retain()
    assert plan == store.retain("t", dry_run=True)
    assert [(each.partition, each.start_offset, each.new_start_offset) for each in plan] == [(("t", 0), 0, 4)]
    assert store.retain("t") == plan
    assert log.start_offset == 4
    assert store.retain("t") == []


def test_retain_of_a_partition_that_is_not_there_is_an_error(store: Store) -> None:
    store.create_topic("t")
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        store.retain("t", 7)
    with pytest.raises(pylog.InvalidArgumentError):
        store.retain(partition=0)


# ---- options that are not followed -------------------------------------------------------------------------------------------


def test_an_option_that_would_have_no_effect_is_refused_in_words(store: Store) -> None:
    with pytest.raises(pylog.InvalidArgumentError, match="has no effect"):
        store.create_topic("t", file_delete_delay_ms=5)
    store.create_topic("t", file_delete_delay_ms=0)
    with pytest.raises(pylog.InvalidArgumentError, match="has no effect"):
        store.alter_topic("t", file_delete_delay_ms=5)
    store.alter_topic("t", file_delete_delay_ms=None)
