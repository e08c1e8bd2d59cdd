"""Compaction from end to end: what stays, what Kafka's cleaner would have left, and what readers and writers see of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pylog
from pylog import Durability
from pylog.clock import ManualClock
from pylog.directory.checkpoints import CLEANER, parse_offsets
from pylog.log.maintenance import cleaner
from pylog.record.format import ATTRIBUTES, BASE_OFFSET, COUNT, LAST_OFFSET, MAX_TIMESTAMP, POSITION, PRODUCER_ID, SIZE
from pylog.record.types import TopicPartition
from pylog.segment.names import CLEANED, LOG, SWAP
from pylog.store import Store
from support.engines import engine_of, segments_of
from support.reference.compacting import Entry

NOW = 1_700_000_000_000
RETENTION_MS = 1000
COMPACTED: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_bytes": 600,
    "index_interval_bytes": 100,
    "delete_retention_ms": RETENTION_MS,
    "min_cleanable_dirty_ratio": 0.0,
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def store(path: Path, clock: ManualClock) -> Iterator[Store]:
    with pylog.open(path, clock=clock, durability=Durability.OS) as opened:
        opened.create_topic("t", **COMPACTED)
        yield opened


def put(log: pylog.Log, keys: str, first: int = 0) -> None:
    """Appends a record for each letter, its value telling its place; a capital letter is a tombstone."""
    for number, key in enumerate(keys, first):
        value = None if key.isupper() else b"%d" % number + b"." * 60
        log.append_many([(key.lower().encode(), value, (), NOW + number)])


def entries(log: pylog.Log, isolation: str = "read_uncommitted") -> list[Entry]:
    return [(record.offset, record.key, record.value) for record in log.records(isolation_level=isolation)]


def kept(log: pylog.Log) -> str:
    """The keys of what is left below the active segment, capitals for tombstones."""
    end = log.segments[-1].base_offset
    return "".join(
        (key or b"").decode() if value else (key or b"").decode().upper() for at, key, value in entries(log) if at < end
    )


def batches(log: pylog.Log) -> list[tuple[int, ...]]:
    """The headers of all batches, but for sizes, with their segment's base."""
    fields = (BASE_OFFSET, LAST_OFFSET, COUNT, MAX_TIMESTAMP, ATTRIBUTES, PRODUCER_ID)
    tables = [(segment.base_offset, region.table) for segment in segments_of(log) for region in segment.regions(0)]
    return [(base, *(int(table[row, at]) for row in fields)) for base, table in tables for at in range(table.shape[1])]


# ---- what stays ----------------------------------------------------------------------------------------------------------------


def test_the_last_record_of_each_key_stays_at_its_offset(store: Store, log: pylog.Log) -> None:
    put(log, "abcabcabxabcabcdef" * 3)
    before = entries(log)
    end = log.segments[-1].base_offset
    (done,) = store.compact("t")
    last = {key: at for at, key, _ in before if at < end}
    expected = [entry for entry in before if entry[0] >= end or last[entry[1]] == entry[0]]
    assert entries(log) == expected
    assert (done.first_dirty, done.end, done.rounds) == (0, end, 1)
    assert (done.records, done.kept) == (end, len(last))
    assert done.written < done.read
    assert log.end_offset == len(before)


def test_remaining_records_are_there_when_the_store_is_opened_again(path: Path, store: Store, log: pylog.Log) -> None:
    put(log, "abcde" * 8)
    store.compact("t")
    expected = entries(log)
    assert store.verify(records=True).ok
    store.close()
    with pylog.open(path) as again:
        assert entries(again.log("t")) == expected
        assert again.log("t").recovery_report == ()
        assert again.verify(records=True).ok


@pytest.mark.slow
def test_segments_that_became_small_are_merged_by_the_next_compaction(store: Store, log: pylog.Log) -> None:
    put(log, "abcde" * 20)
    many = len(log.segments)
    store.compact("t")
    store.compact("t")
    assert len(log.segments) < many
    names = {segment.log_name for segment in segments_of(log)}
    assert {file.name for file in Path(segments_of(log)[0].directory).iterdir() if file.suffix == LOG} == names
    put(log, "f", 100)
    assert log.read(100).key == b"f"


def test_a_tombstone_stays_for_its_time_after_the_first_compaction_and_then_goes(
    store: Store, log: pylog.Log, clock: ManualClock
) -> None:
    put(log, "abcdAxxxxxxxxxxxx")
    store.compact("t")
    assert kept(log).startswith("bcdA")
    clock.advance(RETENTION_MS - 1)
    store.compact("t")
    assert kept(log).startswith("bcdA")
    clock.advance(1)
    store.compact("t")
    assert kept(log).startswith("bcd")
    assert "A" not in kept(log)


def test_a_tombstone_removes_its_key_at_once(store: Store, log: pylog.Log) -> None:
    put(log, "aAxxxxxxxxxxxxx")
    store.compact("t")
    assert "a" not in kept(log)


def test_records_without_a_key_from_before_a_topic_was_compacted_are_dropped(path: Path, clock: ManualClock) -> None:
    with pylog.open(path, clock=clock) as store:
        store.create_topic("later", **COMPACTED | {"cleanup_policy": "delete"})
        for number in range(10):
            store.log("later").append(b"%d" % number + b"." * 60, key=b"k" if number % 2 else None)
        store.alter_topic("later", cleanup_policy="compact")
    with pylog.open(path, clock=clock) as store:
        log = store.log("later")
        end = log.segments[-1].base_offset
        store.compact("later")
        assert [key for at, key, _ in entries(log) if at < end] == [b"k"]


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize(
    "append",
    [
        lambda log: log.append(b"v"),
        lambda log: log.append_many([(b"k", b"v"), (None, b"v")]),
        lambda log: log.append_many([b"v"] * 1000),
        lambda log: log.append_many([(b"k", b"v")] * 1000 + [(None, b"v")]),
        lambda log: log.append_arrow(pa.table({"value": [b"v"]})),
        lambda log: log.append_arrow(pa.table({"key": [b"k"] * 99 + [None], "value": [b"v"] * 100})),
        lambda log: log.append_arrow(pa.table({"key": [None, b"k"], "value": [b"v"] * 2}).slice(0, 1)),
        lambda log: log.append_batch([b"v"], producer=pylog.ProducerBatch(1 << 48, 0, 0)),
    ],
    ids=["one", "few", "many", "one of many", "table", "a row of a table", "a slice of a table", "a producer"],
)
def test_a_compacted_topic_refuses_a_record_without_a_key_which_compaction_would_lose(
    store: Store, policy: str, append: Callable[[pylog.Log], object]
) -> None:
    store.create_topic("c", cleanup_policy=policy)
    log = store.log("c")
    with pytest.raises(pylog.InvalidRecordError, match="has no key, and the topic is compacted"):
        append(log)
    assert log.end_offset == 0
    log.append_arrow(pa.table({"key": [None, b"k", b"l"], "value": [b"v"] * 3}).slice(1))
    log.append_many([(b"", b"v")] * 1000)  # an empty key is one
    assert log.end_offset == 1002


@pytest.mark.sampled(3)
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_lose_records_and_keep_their_codec(store: Store, codec: str) -> None:
    store.create_topic(codec, **COMPACTED, compression_type=codec)
    log = store.log(codec)
    for number in range(60):
        log.append_many([(b"%d" % (number % 7), b"old" * 9), (b"only %d" % number, b"new")])
    codecs = {attributes & 7 for *_, attributes, _ in batches(log)}
    store.compact(codec)
    kept = [key for _, key, _ in entries(log)]
    assert len(kept) < 120
    assert {b"only %d" % number for number in range(60)} <= set(kept)
    assert {attributes & 7 for *_, attributes, _ in batches(log)} == codecs


def test_a_batch_that_loses_nothing_is_copied_byte_for_byte(store: Store, log: pylog.Log) -> None:
    put(log, "abcdefghij")
    log.append_many([(b"a", b"x" * 400)])
    put(log, "klmnopqrstuvw", 11)
    before = {bytes(log_bytes(log, base)) for base in range(1, 10)}
    store.compact("t")
    assert {bytes(log_bytes(log, base)) for base in range(1, 10)} == before


def log_bytes(log: pylog.Log, offset: int) -> Any:
    """The bytes of the batch that begins at an offset."""
    for segment in segments_of(log):
        for region in segment.regions(0):
            for at in range(region.table.shape[1]):
                if region.table[BASE_OFFSET, at] == offset:
                    start = int(region.table[POSITION, at])
                    return region.buffer[start : start + int(region.table[SIZE, at])]
    return b""


def test_a_compaction_that_would_change_nothing_leaves_the_files_alone(path: Path, store: Store, log: pylog.Log) -> None:
    put(log, "abcdefghijklmnopqrstuvwxyz")
    store.compact("t")
    inodes = {file.name: file.stat().st_ino for file in (path / "t-0").iterdir()}
    epoch = engine_of(log).snapshot().epoch
    (done,) = store.compact("t")
    assert {file.name: file.stat().st_ino for file in (path / "t-0").iterdir()} == inodes
    assert (done.records, engine_of(log).snapshot().epoch) == (done.kept, epoch)


@pytest.mark.slow
def test_memory_that_does_not_hold_all_keys_takes_more_rounds_and_ends_the_same(path: Path, clock: ManualClock) -> None:
    with pylog.open(path, clock=clock, cleaner_dedupe_buffer_size=64, durability=Durability.OS) as store:
        store.create_topic("t", **COMPACTED)
        log = store.log("t")
        put(log, "abcdefghabcdefghAbCdxyzxyzqqqqqqqqq" * 2)
        before, end = entries(log), log.segments[-1].base_offset
        (done,) = store.compact("t")
        last = {key: at for at, key, _ in before if at < end}
        assert done.rounds > 3
        assert entries(log) == [entry for entry in before if entry[0] >= end or last[entry[1]] == entry[0]]


def test_the_checkpoint_says_how_far_it_got_and_a_truncation_takes_it_back(path: Path, store: Store, log: pylog.Log) -> None:
    put(log, "abcdefgh" * 5)
    (done,) = store.compact("t")
    assert parse_offsets((path / CLEANER).read_bytes(), "x") == {TopicPartition("t", 0): done.end}
    log.truncate(done.end - 3)
    assert parse_offsets((path / CLEANER).read_bytes(), "x") == {TopicPartition("t", 0): done.end - 3}
    store.delete_topic("t")
    assert parse_offsets((path / CLEANER).read_bytes(), "x") == {}


def test_an_unreadable_checkpoint_is_reported_and_the_log_is_compacted_from_its_start(path: Path, store: Store) -> None:
    put(store.log("t"), "abcdefgh" * 5)
    store.compact("t")
    store.close()
    (path / CLEANER).write_bytes(b"nonsense")
    with pylog.open(path) as again:
        assert [finding.kind for finding in again.recovery_report] == ["rebuilt"]
        (done,) = again.compact("t")
        assert done.first_dirty == 0
        assert parse_offsets((path / CLEANER).read_bytes(), "x") == {TopicPartition("t", 0): done.end}


def test_only_compacted_topics_are_compacted(store: Store) -> None:
    store.create_topic("kept")
    with pytest.raises(pylog.InvalidArgumentError, match="cleanup_policy='delete'"):
        store.compact("kept")
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        store.compact("nowhere")
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        store.compact("t", 7)


def test_a_store_that_is_open_for_reading_does_not_compact(path: Path, store: Store) -> None:
    with pylog.open(path, mode="r") as reading, pytest.raises(pylog.ReadOnlyError):
        reading.compact("t")


def test_searches_by_time_and_single_reads_know_what_was_dropped(store: Store, log: pylog.Log) -> None:
    put(log, "abcdefgh" * 5)
    end = log.segments[-1].base_offset
    assert log.offset_for_timestamp(NOW) == (0, NOW)
    store.compact("t")
    first = entries(log)[0][0]
    assert first > 0
    found = log.offset_for_timestamp(NOW)
    assert found is not None
    assert found.offset == first
    assert log.read(0).offset == first
    assert log.read(end).offset == end


@pytest.mark.damaged("a bit was flipped")
def test_a_damaged_segment_is_refused_and_left_as_it_is(path: Path, store: Store, log: pylog.Log) -> None:
    put(log, "abcdefgh" * 5)
    victim = path / "t-0" / segments_of(log)[1].log_name
    data = bytearray(victim.read_bytes())
    data[80] ^= 1
    store.close()
    victim.write_bytes(data)
    with pylog.open(path) as again:
        with pytest.raises(pylog.CorruptionError) as found:
            again.compact("t")
        assert found.value.path == str(victim)
        assert victim.read_bytes() == data
        assert not [name for name in (path / "t-0").iterdir() if name.suffix in (CLEANED, SWAP)]
        with pytest.raises(pylog.CorruptionError):
            again.tick()
        assert again.tick() == 0  # it is not tried again and again
        again.delete_topic("t")
        again.create_topic("t", **COMPACTED)
        put(again.log("t"), "abcdefgh" * 5)
        again.tick()
        assert len(entries(again.log("t"))) < 20  # another log


# ---- when --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_tick_compacts_the_logs_that_are_due_dirtiest_first(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = {"clean": 1.0, "half": 0.4, "dirty": 0.0}
    for topic, ratio in ratios.items():
        store.create_topic(topic, **{**COMPACTED, "min_cleanable_dirty_ratio": ratio})
        put(store.log(topic), "abcdefgh" * 4)
    store.compact("half")
    put(store.log("half"), "abcdefgh" * 4, 32)
    order: list[str] = []
    before = cleaner._clean
    monkeypatch.setattr(cleaner, "_clean", lambda task: (order.append(task.source.partition.topic), before(task))[1])
    store.tick()
    assert order == ["dirty", "half"]
    order.clear()
    store.tick()
    assert order == []


def test_young_records_wait_for_the_least_lag(store: Store, clock: ManualClock) -> None:
    store.create_topic("slow", **COMPACTED, min_compaction_lag_ms=10_000)
    log = store.log("slow")
    put(log, "abcdefgh" * 4)
    assert store.compact("slow")[0].end == 0
    clock.advance(10_100)
    assert store.compact("slow")[0].end == log.segments[-1].base_offset


def test_a_topic_that_is_compacted_and_deleted_from_loses_old_segments_too(store: Store, clock: ManualClock) -> None:
    store.create_topic("both", **{**COMPACTED, "cleanup_policy": "compact,delete", "retention_ms": 1000})
    log = store.log("both")
    put(log, "abcdefgh" * 4)
    clock.advance(50)
    store.tick()
    assert log.start_offset == 0
    clock.advance(5000)
    assert store.tick() > 0
    assert log.start_offset == 32


def test_a_throttle_waits_as_long_as_the_bytes_should_take(path: Path, clock: ManualClock) -> None:
    with pylog.open(path, clock=clock, durability=Durability.OS, cleaner_io_max_bytes_per_second=1000) as store:
        store.create_topic("t", **COMPACTED)
        put(store.log("t"), "abcdefgh" * 5)
        begun = clock.monotonic()
        (done,) = store.compact("t")
        passed = clock.monotonic() - begun
        assert 2 * done.read + done.written <= 1000 * passed + 1 <= 2 * done.read + done.written + 200


def test_closing_a_store_ends_a_compaction_in_the_background(path: Path, clock: ManualClock) -> None:
    """At a byte a second it would take all day."""
    store = pylog.open(path, durability=Durability.OS, cleaner_io_max_bytes_per_second=1, tick_interval_ms=1)
    store.create_topic("t", **COMPACTED)
    put(store.log("t"), "abcdefgh" * 5)
    store.close()
    with pylog.open(path) as again:
        assert len(entries(again.log("t"))) == 40


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("cleaner_dedupe_buffer_size", 63),
        ("cleaner_dedupe_buffer_size", "1"),
        ("cleaner_io_max_bytes_per_second", 0),
        ("cleaner_io_max_bytes_per_second", float("nan")),
        ("cleaner_io_max_bytes_per_second", True),
    ],
)
def test_wrong_options_are_refused_when_the_store_is_opened(path: Path, option: str, value: Any) -> None:
    with pytest.raises(pylog.InvalidArgumentError, match=option):
        pylog.open(path, **{option: value})


@pytest.mark.parametrize(
    "config",
    [
        {"min_cleanable_dirty_ratio": 1.5},
        {"min_cleanable_dirty_ratio": "0.5"},
        {"delete_retention_ms": -1},
        {"max_compaction_lag_ms": 0},
        {"min_compaction_lag_ms": 10, "max_compaction_lag_ms": 9},
    ],
)
def test_wrong_options_of_a_topic_are_refused(store: Store, config: dict[str, Any]) -> None:
    with pytest.raises(pylog.InvalidArgumentError, match=next(iter(config))):
        store.create_topic("u", **config)
