"""Metrics: what they say is what happened, and their text is what monitoring systems read."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import pylog
from pylog import Durability, OffsetsConfig, Store
from pylog.metrics import METRICS, Sample, exposition
from pylog.testing import MemoryFileSystem

VALUE = b"x" * 100
OF_ARCHIVES = {
    name for name in METRICS if name.startswith(("archive_", "log_archived", "log_local", "log_upload", "log_retired"))
}
OF_MEMBERS = {"group_topic_members", "group_assigned_partitions"}  # of groups that have members


def values(store: Store, topic: str = "t", partition: int = 0) -> dict[str, float]:
    place = {"topic": topic, "partition": str(partition)}
    return {sample.name: sample.value for sample in store.metrics() if sample.labels == place}


def test_a_logs_metrics_are_its_offsets_and_sizes(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s", durability=Durability.OS) as store:
        store.create_topic("t", segment_bytes=2_000)
        for _ in range(30):
            store.log("t").append(VALUE)
        store.log("t").flush()
        store.log("t").append(VALUE)
        store.log("t").delete_records(before=13)
        found = values(store)
        files = list((tmp_path / "s" / "t-0").glob("*.log"))
    assert (found["log_start_offset"], found["log_durable_offset"], found["log_end_offset"]) == (13, 30, 31)
    assert found["log_segments"] == len(files) == 2
    assert found["log_size_bytes"] == sum(file.stat().st_size for file in files)


def test_writes_of_this_process_are_counted_and_those_of_others_are_not(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store, pylog.open(tmp_path / "s") as other:
        store.create_topic("t")
        other.log("t").append_many([VALUE] * 5)
        log = store.log("t")
        log.append(VALUE, durability=Durability.SYNC)
        log.append(VALUE, durability=Durability.OS)
        log.append_many([VALUE] * 1_000, durability=Durability.SYNC)
        found, of_other = values(store), values(other)
        file = tmp_path / "s" / "t-0" / "00000000000000000000.log"
        assert found["log_appended_bytes"] + of_other["log_appended_bytes"] == file.stat().st_size
    assert (found["log_appended_records"], found["log_commits"], found["log_syncs"]) == (1_002, 3, 2)
    assert found["log_sync_seconds"] > 0
    assert of_other["log_appended_records"] == 5


def test_counting_goes_on_when_another_process_has_changed_the_log(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store, pylog.open(tmp_path / "s") as other:
        store.create_topic("t")
        store.log("t").append_many([VALUE] * 5)
        other.log("t").truncate(3)  # so that the first one has to load it again
        store.log("t").append(VALUE)
        assert values(store)["log_appended_records"] == 6


def test_a_refused_append_is_not_counted() -> None:
    with pylog.open("/s", fs=MemoryFileSystem()) as store:
        store.create_topic("t", segment_bytes=1_000, max_message_bytes=10_000)
        with pytest.raises(pylog.RecordTooLargeError):
            store.log("t").append(b"x" * 2_000)
        found = values(store)
        assert (found["log_appended_records"], found["log_commits"]) == (0, 0)


def test_the_lag_of_a_group_is_what_it_has_still_to_read() -> None:
    with pylog.open("/s", fs=MemoryFileSystem(), offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t", partition_count=2)
        for number in range(2):
            store.log("t", number).append_many([VALUE] * 10)
        store.offsets.commit("billing", {("t", 0): 4, ("t", 1): 10})
        store.offsets.commit("audit", {("t", 1): 9})
        lags = {tuple(each.labels.values()): each.value for each in store.metrics() if each.name == "group_lag"}
    assert lags == {("billing", "t", "0"): 6, ("billing", "t", "1"): 0, ("audit", "t", "1"): 1}


def test_a_group_with_an_offset_of_a_topic_that_is_gone_has_no_lag_there() -> None:
    with pylog.open("/s", fs=MemoryFileSystem(), offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t")
        store.create_topic("u")
        store.offsets.commit("g", {("t", 0): 0, ("u", 0): 0})
        store.delete_topic("t")
        assert [each.labels["topic"] for each in store.metrics() if each.name == "group_lag"] == ["u"]


class DeletedMeanwhile(MemoryFileSystem):
    """A store deletes the topic `t` just before another one opens a partition of it."""

    deleting: Store | None = None

    def check_directory(self, path: str, *, write: bool, follow: bool = True) -> None:
        if path == "/s/t-0" and self.deleting is not None:
            store, self.deleting = self.deleting, None
            store.delete_topic("t")
        super().check_directory(path, write=write, follow=follow)


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_topic_that_another_store_deletes_while_samples_are_taken_has_none(mode: str) -> None:
    fs = DeletedMeanwhile()
    with pylog.open("/s", fs=fs) as other:
        other.create_topic("t", partition_count=2)
        other.create_topic("u")
        with pylog.open("/s", fs=fs, mode=mode) as store:
            fs.deleting = other
            samples = store.metrics()
        assert fs.deleting is None
    assert {(each.labels["topic"], each.labels["partition"]) for each in samples if "topic" in each.labels} == {("u", "0")}


def test_a_store_that_only_reads_has_metrics_of_all_partitions() -> None:
    fs = MemoryFileSystem()
    with pylog.open("/s", fs=fs) as store:
        store.create_topic("t", partition_count=3)
        store.log("t", 2).append(VALUE)
    with pylog.open("/s", fs=fs, mode="r") as reader:
        ends = [values(reader, "t", number)["log_end_offset"] for number in range(3)]
        assert ends == [0, 0, 1]
        of_groups = {name for name in METRICS if name.startswith("group_")}
        of_others = {"log_dirty_ratio", "log_last_append_timestamp_seconds"}  # of compacted topics and of writers
        no_records = {"log_newest_timestamp_seconds", "store_free_bytes"}  # and no disk
        assert {sample.name for sample in reader.metrics()} | no_records | of_others == set(METRICS) - of_groups - OF_ARCHIVES
    with pytest.raises(pylog.ClosedError):
        reader.metrics()


def test_the_text_is_openmetrics_with_every_metrics_kind_unit_and_help() -> None:
    with pylog.open("/s", fs=MemoryFileSystem(), offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t", partition_count=2)
        store.log("t").append(VALUE)
        store.offsets.commit('a "b"\\\n', {("t", 0): 0})
        samples = store.metrics()
    families = {family.name.removeprefix("pylog_"): family for family in text_string_to_metric_families(exposition(samples))}
    known = {
        name: metric for name, metric in METRICS.items() if name not in OF_ARCHIVES | OF_MEMBERS | {"store_free_bytes"}
    }  # it is in memory
    assert {name: (each.type, each.unit, each.documentation) for name, each in families.items()} == known
    read = [
        Sample(name, each.labels, each.value)
        for name, family in families.items()
        for each in family.samples
        if each.name in (f"pylog_{name}", f"pylog_{name}_total")
    ]
    assert sorted(read, key=str) == sorted([each._replace(value=float(each.value)) for each in samples], key=str)


@pytest.mark.parametrize("damage", ["a link instead of a segment", "a directory instead of a header", "flipped bytes"])
def test_a_log_that_cannot_be_opened_hides_nothing_of_the_others(tmp_path: Path, damage: str) -> None:
    with pylog.open(tmp_path, offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        for name in "abc":
            store.create_topic(name)
            store.log(name).append_many([VALUE] * 10)
            store.offsets.commit("g", {(name, 0): 1})
    file = tmp_path / "b-0" / f"{0:020d}.log"
    if damage.startswith("a link"):
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    elif damage.startswith("a directory"):
        file.unlink()
        (tmp_path / "b-0" / "durable-point").write_bytes(b"PYLG\x09\x00" + bytes(250))
        (tmp_path / "b-0" / f"{0:020d}.log").symlink_to("nowhere")
    else:
        file.write_bytes(b"\x77" * len(file.read_bytes()))
    with pylog.open(tmp_path, mode="r") as store:
        found = {sample.labels["topic"]: sample.value for sample in store.metrics() if sample.name == "log_unreadable"}
        lags = {sample.labels["topic"]: sample.value for sample in store.metrics() if sample.name == "group_lag"}
    assert found == {"a": 0, "b": 1, "c": 0, "__consumer_offsets": 0}
    assert lags["a"] == lags["c"] == 9


def test_what_consumers_of_this_process_fetch_is_counted() -> None:
    with pylog.open("/s", fs=MemoryFileSystem(), offsets=OffsetsConfig(topic_num_partitions=1)) as store:
        store.create_topic("t")
        store.log("t").append_many([VALUE] * 10)
        with store.consumer("t", auto_offset_reset="earliest") as consumer:
            assert len(consumer.poll(1_000)) == 1
        list(store.log("t").scan())  # no consumer
        found = values(store)
    assert found["log_fetched_records"] == 10
    assert found["log_fetched_bytes"] >= 10 * len(VALUE)


def test_deleted_segments_are_counted_by_the_process_that_deletes_them(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store, pylog.open(tmp_path / "s") as other:
        store.create_topic("t", segment_bytes=200, retention_bytes=200)
        for _ in range(8):
            store.log("t").append(VALUE)
        before = values(store)
        store.log("t").delete_records(2)
        deleted = sum(each.segments for each in store.retain())
        found = values(store)
        assert deleted > 0
        assert found["log_deleted_segments"] == 2 + deleted == before["log_segments"] - found["log_segments"]
        assert found["log_deleted_bytes"] == before["log_size_bytes"] - found["log_size_bytes"]
        assert values(other)["log_deleted_segments"] == 0


def test_compactions_are_counted_and_the_dirty_ratio_is_that_of_the_log(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t", cleanup_policy="compact", segment_bytes=200)
        store.create_topic("plain")
        for _ in range(5):
            store.log("t").append(VALUE, key=b"k")
        assert values(store)["log_dirty_ratio"] == 1
        assert "log_dirty_ratio" not in values(store, "plain")
        done = store.compact("t")
        found = values(store)
    assert (found["log_compactions"], found["log_compacted_records"]) == (1, sum(each.records - each.kept for each in done))
    assert found["log_compacted_records"] > 0
    assert found["log_dirty_ratio"] == 0


def test_the_stable_offset_stops_at_an_open_transaction(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t")
        store.log("t").append(VALUE)
        with store.transaction("billing") as transaction:
            transaction.append("t", VALUE)
            transaction.flush()
            found = values(store)
            assert (found["log_stable_offset"], found["log_end_offset"]) == (1, 2)
        found = values(store)
        assert found["log_stable_offset"] == found["log_end_offset"] == 3


def test_a_check_of_the_logs_end_is_counted(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        store.create_topic("t")
        store.log("t").append(VALUE)
        assert values(store)["log_recoveries"] == 0
        shutil.copytree(tmp_path / "s", tmp_path / "crashed")
    with pylog.open(tmp_path / "crashed") as store:
        found = values(store)
    assert found["log_recoveries"] == 1
    assert found["log_recovered_bytes"] == found["log_size_bytes"]


def test_the_times_of_the_last_append_and_of_the_last_commit_are_there(tmp_path: Path) -> None:
    before = time.time() - 1
    with pylog.open(tmp_path / "s", offsets=OffsetsConfig(topic_num_partitions=1)) as store, pylog.open(tmp_path / "s") as other:
        store.create_topic("t")
        assert "log_last_append_timestamp_seconds" not in values(store)
        store.log("t").append(VALUE)
        store.offsets.commit("billing", {("t", 0): 1})
        assert before < values(store)["log_last_append_timestamp_seconds"] < time.time() + 1
        assert "log_last_append_timestamp_seconds" not in values(other)
        for one in (store, other):
            (commit,) = [each for each in one.metrics() if each.name == "group_last_commit_timestamp_seconds"]
            assert commit.labels == {"group": "billing"}
            assert before < commit.value < time.time() + 1
