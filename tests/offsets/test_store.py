"""Committing, fetching, deleting: what callers are promised, and what is refused."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pylog
from pylog import Durability, OffsetAndMetadata, OffsetsConfig, TopicPartition
from pylog.fs import DirectoryEntry
from pylog.log.maintenance import trimmer
from pylog.offsets.schema import (
    OFFSETS_TOPIC,
    format_offset,
    format_partition_key,
    group_key,
    offset_key,
    parse_offset,
)
from pylog.offsets.store import offset_manager_of
from pylog.record.batch import scan_batches
from pylog.record.format import BASE_OFFSET, LAST_OFFSET
from pylog.store import Store
from pylog.testing import MemoryFileSystem
from support import offsets
from support.engines import append_as_another_program, engine_of, writer_of
from support.faults.neighbours import Neighbour
from support.golden import data as golden_data
from support.offsets import FEW, NOW, T0, T1, damage, offsets_log, opened, planted

fs = pytest.fixture(offsets.fs)
store = pytest.fixture(offsets.store)


def test_committed_offsets_are_fetched(store: Store) -> None:
    store.offsets.commit("g", {T0: 3, ("t", 1): OffsetAndMetadata(10, "ünd 😀", 5)})
    store.offsets.commit("other", {T0: 1})
    assert store.offsets.fetch("g") == {T0: OffsetAndMetadata(3, "", None, NOW), T1: OffsetAndMetadata(10, "ünd 😀", 5, NOW)}
    assert store.offsets.fetch("g", [T1]) == {T1: OffsetAndMetadata(10, "ünd 😀", 5, NOW)}
    assert store.offsets.position("g", T0) == 3
    assert store.offsets.groups() == ["g", "other"]


def test_the_last_commit_counts_also_when_it_goes_back(store: Store) -> None:
    for offset in (3, 9, 2):
        store.offsets.commit("g", {T0: offset})
        assert store.offsets.position("g", T0) == offset


def test_a_group_that_has_not_committed_has_no_offsets(store: Store) -> None:
    assert store.offsets.fetch("g") == {}
    assert store.offsets.position("g", T0) is None
    assert store.offsets.pending("g") == set()
    assert store.offsets.delete("g") == set()
    assert store.offsets.groups() == []
    assert store.offsets.expire() == 0
    assert OFFSETS_TOPIC not in store.topics()


def test_an_empty_commit_writes_nothing(store: Store) -> None:
    store.offsets.commit("g", {})
    assert OFFSETS_TOPIC not in store.topics()


def test_the_result_of_fetch_is_the_callers_own(store: Store) -> None:
    store.offsets.commit("g", {T0: 3})
    store.offsets.fetch("g").clear()
    assert store.offsets.position("g", T0) == 3


def test_the_topic_is_made_as_kafka_makes_it() -> None:
    with pylog.open("/s", fs=MemoryFileSystem()) as store:
        store.create_topic("t")
        store.offsets.commit("g", {T0: 0})
        topic = store.topic(OFFSETS_TOPIC)
        assert (topic.partition_count, topic.config.cleanup_policy, topic.config.segment_bytes) == (50, "compact", 104_857_600)


@pytest.mark.slow
def test_the_records_are_kafkas_and_a_commit_is_one_batch(store: Store, fs: MemoryFileSystem) -> None:
    store.create_topic("many", partition_count=40)
    places = [TopicPartition("many", number) for number in range(40)]
    store.offsets.commit("g", {place: OffsetAndMetadata(0, "m" * 4096) for place in places})  # more than batches usually hold
    log = offsets_log(store, "g")
    assert [(record.key, record.value, record.timestamp) for record in log.records()] == [
        (offset_key(b"g", format_partition_key(place)), format_offset(0, b"m" * 4096, None, NOW), NOW) for place in places
    ]
    data = np.frombuffer(fs.read(log.segments[0].path, 1 << 30) or b"", np.uint8)
    assert scan_batches(data).table[[BASE_OFFSET, LAST_OFFSET]].T.tolist() == [[0, 39]]


@pytest.mark.slow
def test_a_commit_too_large_for_one_batch_is_refused_as_a_whole(store: Store) -> None:
    store.create_topic("many", partition_count=300)
    with pytest.raises(pylog.RecordTooLargeError, match="an atomic batch"):
        store.offsets.commit("g", {("many", number): OffsetAndMetadata(0, "m" * 4096) for number in range(300)})
    assert store.offsets.fetch("g") == {}


def test_a_commit_is_as_durable_as_asked_for(store: Store, fs: MemoryFileSystem) -> None:
    store.offsets.commit("g", {T0: 1, T1: 2}, durability=Durability.SYNC)
    store.offsets.commit("g", {T0: 3, T1: 4}, durability=Durability.OS)
    assert store.offsets.position("g", T0) == 3
    with opened(MemoryFileSystem(image=fs.image(durable=True), boots=2)) as after:
        assert [after.offsets.position("g", place) for place in (T0, T1)] == [1, 2]


# ---- what is refused ---------------------------------------------------------------------------------------------------------

BAD: list[tuple[Any, Any, type[pylog.PylogError], str]] = [
    ("", {T0: 1}, pylog.InvalidArgumentError, "name is empty"),
    ("g" * 32_768, {T0: 1}, pylog.InvalidArgumentError, "32768 bytes"),
    ("\ud800", {T0: 1}, pylog.InvalidArgumentError, "surrogate"),
    (None, {T0: 1}, pylog.InvalidArgumentError, "not a group's name"),
    ("g", {T0: -1}, pylog.InvalidArgumentError, "offset=-1"),
    ("g", {T0: True}, pylog.InvalidArgumentError, "offset=True"),
    ("g", {T0: "1"}, pylog.InvalidArgumentError, "offset='1'"),
    ("g", {T0: 11}, pylog.OffsetOutOfRangeError, "past the end of t-0, which is 10"),
    ("g", {T0: OffsetAndMetadata(1, "m" * 4097)}, pylog.InvalidArgumentError, "4096 UTF-16"),
    ("g", {T0: OffsetAndMetadata(1, "😀" * 2049)}, pylog.InvalidArgumentError, "4096 UTF-16"),
    ("g", {T0: OffsetAndMetadata(1, "\udc00")}, pylog.InvalidArgumentError, "surrogate"),
    ("g", {T0: OffsetAndMetadata(1, b"m")}, pylog.InvalidArgumentError, "not text"),  # type: ignore[arg-type]
    ("g", {T0: OffsetAndMetadata(1, "", -2)}, pylog.InvalidArgumentError, "leader_epoch=-2"),
    ("g", {("t", 2): 1}, pylog.UnknownTopicOrPartitionError, "partition 2 of"),
    ("g", {("u", 0): 1}, pylog.UnknownTopicOrPartitionError, "no topic 'u'"),
    ("g", {"t-0": 1}, pylog.InvalidArgumentError, "not a partition"),
]


@pytest.mark.parametrize(("group", "offsets", "error", "message"), BAD)
def test_a_bad_commit_is_refused_and_nothing_of_it_is_written(
    store: Store, group: Any, offsets: Any, error: type[pylog.PylogError], message: str
) -> None:
    store.offsets.commit("g", {T1: 7})
    before = [store.log(OFFSETS_TOPIC, number).end_offset for number in range(2)]
    with pytest.raises(error, match=message):
        store.offsets.commit(group, {T1: 8, **offsets})
    assert [store.log(OFFSETS_TOPIC, number).end_offset for number in range(2)] == before
    assert store.offsets.fetch("g") == {T1: OffsetAndMetadata(7, "", None, NOW)}


def test_the_largest_things_that_fit_are_kept(store: Store) -> None:
    group = "g" * 32_767
    commit = OffsetAndMetadata(10, "中" * 4096, 2**31 - 1)
    store.offsets.commit(group, {T0: commit})
    assert store.offsets.fetch(group) == {T0: commit._replace(commit_timestamp=NOW)}


def test_a_store_open_for_reading_commits_and_deletes_nothing(store: Store, fs: MemoryFileSystem) -> None:
    store.offsets.commit("g", {T0: 3})
    with opened(fs.process(), mode="r") as reading:
        assert reading.offsets.position("g", T0) == 3
        for change in (lambda: reading.offsets.commit("g", {T0: 4}), lambda: reading.offsets.delete("g")):
            with pytest.raises(pylog.ReadOnlyError):
                change()


def test_a_closed_store_has_no_offsets(fs: MemoryFileSystem) -> None:
    with opened(fs) as store:
        offsets = store.offsets
    with pytest.raises(pylog.ClosedError):
        offsets.fetch("g")


# ---- delete ------------------------------------------------------------------------------------------------------------------


def test_null_metadata_and_an_epoch_of_minus_one_mean_none_as_in_kafka(store: Store) -> None:
    store.offsets.commit("g", {T0: OffsetAndMetadata(1, None, -1)})  # type: ignore[arg-type]
    found = store.offsets.fetch("g")[T0]
    assert (found.offset, found.metadata, found.leader_epoch) == (1, "", None)


def test_groups_that_were_deleted_take_no_memory(store: Store) -> None:
    for number in range(50):
        store.offsets.commit(f"g{number}", {T0: 1})
        store.offsets.delete(f"g{number}")
    assert store.offsets.groups() == []
    kept = [name for there in offset_manager_of(store.offsets)._topic.all_partitions() for name in there._image.groups]
    assert kept == []
    store.offsets.commit("g7", {T0: 2})
    assert store.offsets.position("g7", T0) == 2


def test_a_deleted_group_is_gone_with_tombstones_that_kafka_writes(store: Store) -> None:
    store.offsets.commit("g", {T0: 1, T1: 2})
    assert store.offsets.delete("g") == {T0, T1}
    assert (store.offsets.fetch("g"), store.offsets.groups()) == ({}, [])
    tombstones = [(record.key, record.value) for record in offsets_log(store, "g").records(2)]
    expected = [*(offset_key(b"g", format_partition_key(place)) for place in (T0, T1)), group_key(b"g")]
    assert tombstones == [(key, None) for key in expected]
    assert store.offsets.delete("g") == set()
    assert offsets_log(store, "g").end_offset == 5


def test_offsets_of_some_partitions_are_deleted_and_the_group_stays(store: Store) -> None:
    store.offsets.commit("g", {T0: 1, T1: 2})
    assert store.offsets.delete("g", [T0, ("t", 9)]) == {T0}
    assert set(store.offsets.fetch("g")) == {T1}
    assert store.offsets.delete("g", [T1]) == {T1}
    assert store.offsets.groups() == ["g"]


def test_offsets_with_keys_of_the_old_version_get_tombstones_of_both(store: Store) -> None:
    store.offsets.commit("g", {T1: 1})
    old = offset_key(b"g", format_partition_key(T0), 0)
    planted(store, "g", (old, format_offset(5, b"", None, NOW)))
    assert store.offsets.position("g", T0) == 5
    store.offsets.commit("g", {T0: 6})
    store.offsets.delete("g", [T0])
    tombstones = [record.key for record in offsets_log(store, "g").records() if record.value is None]
    assert sorted(key for key in tombstones if key) == [old, offset_key(b"g", format_partition_key(T0))]


# ---- several processes and threads -------------------------------------------------------------------------------------------


def test_commits_and_deletions_of_another_process_are_seen_at_once(store: Store, fs: MemoryFileSystem) -> None:
    with opened(fs.process()) as other, opened(fs.process(), mode="r") as reading:
        assert reading.offsets.fetch("g") == {}
        for offset in range(10):
            (store, other)[offset % 2].offsets.commit("g", {T0: offset})
            assert [each.offsets.position("g", T0) for each in (store, other, reading)] == [offset] * 3
        other.offsets.delete("g")
        assert [each.offsets.fetch("g") for each in (store, other, reading)] == [{}] * 3
        assert [each.offsets.groups() for each in (store, other, reading)] == [[]] * 3


@pytest.mark.slow
def test_rolled_and_truncated_offsets_are_replayed(fs: MemoryFileSystem) -> None:
    tiny = OffsetsConfig(topic_num_partitions=1, topic_segment_bytes=300)
    with (
        opened(fs, offsets=tiny) as store,
        opened(fs.process()) as other,
        opened(fs.process(), mode="r") as reading,
    ):
        store.create_topic("t")
        store.log("t").append_many([b"x"] * 50)
        for offset in range(20):
            (store, other)[offset // 7 % 2].offsets.commit("g", {T0: offset})
            assert [each.offsets.position("g", T0) for each in (store, other, reading)] == [offset] * 3
        log = store.log(OFFSETS_TOPIC)
        assert len(log.segments) > 3
        trimmer.truncate(writer_of(log), 5)
        append_as_another_program(log, (b"\0\x09", None))  # as long as before, or longer
        assert [each.offsets.position("g", T0) for each in (store, other, reading)] == [4] * 3


def test_nothing_is_committed_for_a_log_that_another_process_has_deleted_or_cut(store: Store, fs: MemoryFileSystem) -> None:
    engine_of(store.log("t", 0)).snapshot()
    with pylog.open(store.path, fs=fs) as other:
        other.log("t", 0).append_many([b"x"] * 9)
        store.offsets.commit("g", {T0: 9})
        other.log("t", 0).truncate(4)
        with pytest.raises(pylog.OffsetOutOfRangeError, match="offset 9 is past the end of t-0, which is 4"):
            store.offsets.commit("g", {T0: 9})
        other.delete_topic("t")
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            store.offsets.commit("g", {T0: 4})
        other.create_topic("t")
        with pytest.raises(pylog.OffsetOutOfRangeError, match="which is 0"):
            store.offsets.commit("g", {T0: 4})
        store.offsets.commit("g", {T0: 0})
        assert other.offsets.position("g", T0) == 0


def test_a_topic_that_another_process_deletes_starts_without_offsets(
    store: Store, fs: MemoryFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(fs.process()) as other:
        store.offsets.commit("g", {T0: 3})
        assert other.offsets.position("g", T0) == 3
        store.delete_topic(OFFSETS_TOPIC)
        assert other.offsets.fetch("g") == {}
        other.offsets.commit("g", {T0: 4})
        assert store.offsets.position("g", T0) == 4
    assert caplog.text == ""


def test_offsets_committed_for_a_topic_are_deleted_with_it_and_nothing_else(store: Store, fs: MemoryFileSystem) -> None:
    """Else a group would go on in the next topic of this name where it was in the old one, and never read what comes before."""
    store.create_topic("tt", partition_count=2)
    store.offsets.commit("g", {T0: 3, T1: 5, ("tt", 0): 0})
    store.offsets.commit("h", {T1: 7})
    store.delete_topic("t")
    store.create_topic("t", partition_count=2)
    with opened(fs.process(), mode="r") as elsewhere:
        for each in (store, elsewhere):
            assert set(each.offsets.fetch("g")) == {TopicPartition("tt", 0)}
            assert each.offsets.fetch("h") == {}
    end = offsets_log(store, "g").end_offset
    store.delete_topic("t")
    assert offsets_log(store, "g").end_offset == end  # there was nothing more to be deleted


def test_offsets_committed_for_a_topic_that_was_created_again_meanwhile_stay(store: Store, fs: MemoryFileSystem) -> None:
    store.offsets.commit("g", {T0: 3, T1: 4})
    with opened(fs.process()) as other:
        forget = offset_manager_of(store.offsets).forgetting("t")
        other.delete_topic("t")
        other.create_topic("t")
        other.log("t").append(b"x")
        other.offsets.commit("g", {T0: 1})
        forget()
        assert {place: each.offset for place, each in other.offsets.fetch("g").items()} == {T0: 1}


def test_damaged_offsets_do_not_prevent_the_deletion_of_a_topic(
    store: Store, fs: MemoryFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    store.offsets.commit("g", {T0: 3})
    store.offsets.commit("g", {T0: 4})
    damage(fs, offsets_log(store, "g").segments[0].path, 70)
    store.delete_topic("t")
    assert "t" not in store.topics()
    assert "could not be deleted: topic=t" in caplog.text


def test_a_process_that_opens_the_topic_while_another_creates_it_finds_all_partitions(fs: MemoryFileSystem) -> None:
    """A part of them would be believed for good: a group's offsets would be looked for where nobody writes them."""

    class StoppedError(Exception):
        pass

    def make_one(path: str) -> None:
        made.append(path)
        MemoryFileSystem.make_directory(making, path)
        raise StoppedError

    def list_late(path: str, *, sizes: str = "") -> list[DirectoryEntry]:
        if path == "/s" and not made:
            with pytest.raises(StoppedError):
                other.create_topic(OFFSETS_TOPIC, partition_count=50, cleanup_policy="compact")
        return MemoryFileSystem.list(looking, path, sizes=sizes)

    made: list[str] = []
    with opened(fs) as store:
        store.create_topic("t")
        store.log("t").append_many([b"x"] * 10)
    making, looking = fs.process(), fs.process()
    with opened(making) as other, opened(looking) as reading:
        making.make_directory = make_one
        looking.list = list_late
        assert reading.offsets.position("g", T0) is None
        assert made == [f"/s/{OFFSETS_TOPIC}-0"]
        assert reading.topic(OFFSETS_TOPIC).partition_count == 50
        del making.make_directory
        other.offsets.commit("g", {T0: 3})
        assert reading.offsets.position("g", T0) == 3


def test_threads_commit_for_the_same_group_and_the_last_record_counts(store: Store) -> None:
    def commit(number: int) -> None:
        for offset in range(11):
            store.offsets.commit("g", {TopicPartition("t", number % 2): OffsetAndMetadata(offset, str(number))})
            assert store.offsets.fetch("g")

    threads = [threading.Thread(target=commit, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = {record.key: record.value for record in offsets_log(store, "g").records()}
    found = store.offsets.fetch("g")
    assert {
        place: parse_offset(last[offset_key(b"g", format_partition_key(place))] or b"").committed for place in (T0, T1)
    } == found


@pytest.mark.slow
def test_a_process_killed_while_it_commits_leaves_all_of_a_commit_or_none(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s", offsets=FEW) as store:
        store.create_topic("t", partition_count=2)
        for number in range(2):
            store.log("t", number).append_many([b"x"] * 100_000)
        with Neighbour() as other:
            other.run("store = pylog.open(path, durability=pylog.Durability.OS)", path=str(tmp_path / "s"))
            other.begin("for n in range(100_000): store.offsets.commit('g', {('t', 0): n, ('t', 1): n})")
            end = time.monotonic() + 120
            while (store.offsets.position("g", T0) or 0) < 50:
                assert time.monotonic() < end, "what another process commits is not seen"
            other.kill()
        found = store.offsets.fetch("g")
        assert found[T0].offset == found[T1].offset >= 50
        store.offsets.commit("g", {T0: 1})
        assert store.offsets.position("g", T0) == 1


# ---- retention ---------------------------------------------------------------------------------------------------------------


def test_retention_waits_for_the_group_that_a_topic_names(fs: MemoryFileSystem) -> None:
    with opened(fs) as store:
        store.create_topic("t", segment_bytes=200, retention_ms=1000, retention_group="g")
        log = store.log("t")
        for _ in range(20):
            log.append_many([(None, b"x" * 50, (), NOW)])
        assert store.tick(NOW + 5000) == 0
        store.offsets.commit("g", {T0: 10})
        assert store.tick(NOW + 5000) > 0
        assert 8 <= log.start_offset <= 10
        assert store.tick(NOW + 5000) == 0


@pytest.mark.slow
def test_retention_deletes_nothing_while_the_offsets_are_damaged(fs: MemoryFileSystem) -> None:
    with opened(fs) as store:
        store.create_topic("t", segment_bytes=200, retention_ms=1000, retention_group="g")
        for _ in range(20):
            store.log("t").append_many([(None, b"x" * 50, (), NOW)])
        store.offsets.commit("g", {T0: 20})
        store.offsets.commit("g", {T0: 20})
        path = offsets_log(store, "g").segments[0].path
    damage(fs, path, 70)
    with opened(fs) as store:
        with pytest.raises(pylog.CorruptionError):
            store.tick(NOW + 5000)
        assert store.log("t").start_offset == 0


def test_offsets_that_a_broker_wrote_are_not_deleted_by_age(tmp_path: Path) -> None:
    path = golden_data.case("4.3.0", "groups").copy(tmp_path / "copy")
    with pylog.open(path) as store:
        assert store.topic(OFFSETS_TOPIC).config.cleanup_policy == "compact"
        before = store.offsets.groups()
        store.tick(NOW * 2)
        assert store.offsets.groups() == before
