"""Topics of a broker's directory: its own metadata says which there are; pylog's settings are those of the topic they are for."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

import pylog
from pylog import OffsetsConfig, TopicPartition
from pylog.directory.partition_metadata import format_partition_metadata
from pylog.errors import IllegalStateError, StorageFailedError
from pylog.offsets.schema import partition_of_group
from pylog.segment.names import PARTITION_METADATA
from pylog.testing import FaultyFileSystem, MemoryFileSystem
from pylog.topics.signs import META_PROPERTIES
from support.golden.data import case

T = TopicPartition("t", 0)
ANOTHER_ID = "A" * 22
BROKERS_MARKER = b'{"version":0,"brokerEpoch":7}'


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return case("4.3.0", "txn").copy(tmp_path / "broker")


def ends(store: pylog.Store, topic: str) -> list[tuple[int, int]]:
    return [
        (log.start_offset, log.end_offset) for log in (store.log(topic, number) for number in store.topic(topic).partition_ids)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("stopped_cleanly", [True, False])
def test_settings_of_a_topic_that_the_broker_deleted_are_not_those_of_one_it_made_again(
    directory: Path, stopped_cleanly: bool
) -> None:
    """A short retention of the old one would delete the new one's records."""
    with pylog.open(directory) as store:
        before = ends(store, "txn")
        store.alter_topic("txn", retention_ms=1, segment_bytes=1000)
        assert store.topic("txn").config.retention_ms == 1
    for number in range(2):
        (directory / f"txn-{number}" / PARTITION_METADATA).write_bytes(format_partition_metadata(ANOTHER_ID))
    marker = directory / ".kafka_cleanshutdown"
    if stopped_cleanly:
        marker.write_bytes(BROKERS_MARKER)
    else:
        marker.unlink(missing_ok=True)
    for mode in ("r", "rw", "r", "rw"):
        with pylog.open(directory, mode=mode) as store:
            assert (store.topic("txn").id, store.topic("txn").config.retention_ms) == (ANOTHER_ID, -1)
            if mode == "rw":
                store.tick()
            assert ends(store, "txn") == before
            assert store.check().ok, str(store.check())
    with pylog.open(directory) as store:
        store.alter_topic("txn", retention_ms=3_600_000)
    with pylog.open(directory, mode="r") as store:
        assert (store.topic("txn").id, store.topic("txn").config.retention_ms) == (ANOTHER_ID, 3_600_000)


def test_a_topic_that_a_broker_would_set_aside_is_not_created_in_its_directory(directory: Path) -> None:
    """It would be acknowledged, and lost when the broker starts."""
    with pylog.open(directory) as store:
        store.alter_topic("txn", retention_ms=-1)
        made = {path.name for path in directory.iterdir() if path.is_dir()}
        for refused in (lambda: store.create_topic("new"), lambda: store.add_partitions("txn", 3)):
            with pytest.raises(IllegalStateError, match="belongs to a Kafka broker"):
                refused()
        assert {path.name for path in directory.iterdir() if path.is_dir()} == made
    (directory / META_PROPERTIES).unlink()
    with pylog.open(directory) as store:
        assert store.create_topic("new").partition_count == 1
        assert store.add_partitions("txn", 3).partition_count == 3


def test_a_commit_that_a_broker_would_set_aside_is_refused(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        store.log("t").append(b"x")
    (tmp_path / META_PROPERTIES).write_text("version=1\nnode.id=1\n")
    with pylog.open(tmp_path) as store:
        with pytest.raises(IllegalStateError, match="__consumer_offsets"):
            store.offsets.commit("g", {TopicPartition("t", 0): 1})
        assert set(store.topics()) == {"t"}


@pytest.mark.parametrize("here", [(1, 3), (0, 2, 4), (0, 1)])
def test_groups_are_found_where_their_records_are_if_only_some_partitions_of_the_offsets_are_here(
    tmp_path: Path, here: tuple[int, ...]
) -> None:
    """A broker of several directories, or of several brokers, has the others elsewhere; how many there are nobody says."""
    whole, part = tmp_path / "whole", tmp_path / "part"
    groups = [f"group-{number}" for number in range(12)]
    with pylog.open(whole, offsets=OffsetsConfig(topic_num_partitions=5)) as store:
        store.create_topic("t")
        store.log("t").append_many([b"x"] * 50)
        for number, group in enumerate(groups):
            store.offsets.commit(group, {T: number})
    shutil.copytree(whole, part)
    for number in set(range(5)) - set(here):
        shutil.rmtree(part / f"__consumer_offsets-{number}")
    (part / "pylog.json").unlink()
    (part / META_PROPERTIES).write_text("version=1\nnode.id=1\n")
    with pylog.open(part) as store, pylog.open(part, mode="r") as reading:
        assert set(store.groups()) == {group for group in groups if partition_of_group(group, 5) in here}
        for number, group in enumerate(groups):
            if group in store.groups():
                assert (store.offsets.position(group, T), reading.offsets.position(group, T)) == (number, number)
                store.offsets.commit(group, {T: number + 20})
                assert reading.offsets.position(group, T) == number + 20
            else:  # what it has committed is elsewhere: "nothing" would be wrong
                for asked in (
                    lambda group=group: reading.offsets.fetch(group),
                    lambda group=group: store.offsets.commit(group, {T: 1}),
                ):
                    with pytest.raises(IllegalStateError, match="only some partitions"):
                        asked()


def test_a_new_group_of_a_broker_with_all_partitions_of_the_offsets_has_its_usual_place(tmp_path: Path) -> None:
    directory = case("4.3.0", "groups").copy(tmp_path / "broker")
    with pylog.open(directory) as store:
        topic = next(name for name in store.topics() if not name.startswith("__"))
        count = store.topic("__consumer_offsets").partition_count
        ends = {number: store.log("__consumer_offsets", number).end_offset for number in range(count)}
        assert store.offsets.fetch("new") == {}
        store.offsets.commit("new", {TopicPartition(topic, 0): 0})
        grown = [number for number, end in ends.items() if store.log("__consumer_offsets", number).end_offset > end]
        assert grown == [partition_of_group("new", count)]


@pytest.mark.damaged("the partition is missing")
def test_partitions_that_a_broker_has_not_are_not_made_at_the_next_opening(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t", partition_count=2)
        store.log("t").append(b"x")
    (tmp_path / META_PROPERTIES).write_text("version=1\nnode.id=1\n")
    for file in (tmp_path / "t-1").iterdir():
        file.unlink()
    (tmp_path / "t-1").rmdir()
    with pylog.open(tmp_path) as store:
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            store.log("t", 1)
        assert store.log("t").append(b"y") == 1
    assert not (tmp_path / "t-1").exists()


@pytest.mark.slow
def test_a_topic_that_a_broker_deleted_before_it_died_keeps_no_other_topic_from_being_read(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        for name in ("gone", "there"):
            store.create_topic(name)
            store.log(name).append(b"x")
        store.offsets.commit("g", {TopicPartition("there", 0): 0})
    (tmp_path / META_PROPERTIES).write_text("version=1\nnode.id=1\n")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    shutil.rmtree(tmp_path / "gone-0")
    for mode in ("r", "rw", "r"):
        with pylog.open(tmp_path, mode=mode) as store:
            assert set(store.topics()) == {"there", "__consumer_offsets"}
            assert store.groups() == ["g"]
            with store.consumer(auto_offset_reset="earliest") as consumer:
                consumer.subscribe(pattern=".*e")
                assert sum(map(len, consumer.poll().values())) == 1


@pytest.mark.damaged("a partition that the catalog names is missing")
def test_partitions_that_a_broker_gave_to_another_one_are_asked_for_nothing(tmp_path: Path) -> None:
    with pylog.open(tmp_path, offsets=OffsetsConfig(topic_num_partitions=3)) as store:
        for name in ("t", "u"):
            store.create_topic(name)
            store.log(name).append(b"x")
        store.offsets.commit("g", {T: 1})
    (tmp_path / META_PROPERTIES).write_text("version=1\nnode.id=1\n")
    shutil.rmtree(tmp_path / f"__consumer_offsets-{(partition_of_group('g', 3) + 1) % 3}")
    with pylog.open(tmp_path) as store:
        assert store.groups() == ["g"]
        assert store.metrics()
        assert store.offsets.position("g", T) == 1
        store.delete_topic("u")


@pytest.mark.damaged("it was damaged on purpose")
def test_damage_in_one_partition_of_a_brokers_offsets_is_for_the_groups_that_belong_there(tmp_path: Path) -> None:
    with pylog.open(tmp_path, offsets=OffsetsConfig(topic_num_partitions=2)) as store:
        store.create_topic("t")
        store.log("t").append(b"x")
        groups = {partition_of_group(group, 2): group for group in ("a", "b", "c", "d")}
        others = {partition_of_group(group, 2): group for group in ("e", "f", "g", "h")}
        for _ in range(3):
            store.offsets.commit(groups[0], {T: 1})
    (tmp_path / META_PROPERTIES).write_text("version=1\nnode.id=1\n")
    path = tmp_path / "__consumer_offsets-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    with pylog.open(tmp_path, mode="r") as store:
        assert store.offsets.fetch(others[1]) == {}
        for group in (groups[0], others[0]):
            with pytest.raises(pylog.CorruptionError):
                store.offsets.fetch(group)


def test_a_deletion_that_cannot_be_finished_leaves_the_other_topics_usable(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryFileSystem()
    fs = FaultyFileSystem(memory)
    with pylog.open("/s", fs=fs) as store:
        for topic in ("going", "stays"):
            store.create_topic(topic, partition_count=2)
            store.log(topic).append(b"x")
        fs.fail("remove EIO", forever=True, of="-delete")
        with pytest.raises(StorageFailedError):
            store.delete_topic("going")
    for count in (1, 2):
        with caplog.at_level(logging.WARNING), pylog.open("/s", fs=fs) as store:
            assert set(store.topics()) == {"stays"}
            assert store.log("stays").append(b"y") == count
        assert "Could not finish the deletion of a partition" in caplog.text
        assert "the next opening of the store tries again" in caplog.text
    fs.heal()
    with pylog.open("/s", fs=fs) as store:
        assert not any(entry.name.endswith("-delete") for entry in memory.list("/s"))
        assert store.create_topic("going").partition_count == 1
