"""The golden corpus is whole: what the other tests iterate over is all there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from support.golden import data as golden_data


def test_there_are_217_partitions_from_three_brokers():
    counts = Counter(partition.version for partition in golden_data.partitions())
    assert counts == {"2.8.2": 74, "3.9.1": 59, "4.3.0": 84}
    assert len({partition.id for partition in golden_data.partitions()}) == 217


@pytest.mark.slow
def test_the_manifests_hold_every_record_that_the_index_counts():
    expected = committed = 0
    for partition in golden_data.partitions():
        records, visible = len(partition.expected()), len(partition.expected_committed())
        assert records == partition.entry["records"], partition.id
        assert visible == partition.entry.get("recordsCommitted", records), partition.id
        expected, committed = expected + records, committed + visible
    assert (expected, committed) == (55_093, 53_216)


@pytest.mark.slow
def test_every_partition_directory_has_the_files_and_times_that_were_captured():
    for partition in golden_data.partitions():
        files = {path.name: path.stat().st_size for path in partition.directory.iterdir()}
        assert files == partition.entry["files"], partition.id
        times = {path.name: path.stat().st_mtime_ns // 1_000_000 for path in partition.directory.glob("*.log")}
        assert times == partition.entry.get("logMtimes", times), partition.id


@pytest.mark.slow
def test_log_directories_hold_the_broker_s_checkpoints_and_nothing_of_ours():
    for partition in golden_data.partitions():
        names = {path.name for path in partition.log_directory.iterdir()}
        captured = {path.name for path in partition.of.directory.glob("*-checkpoint")}
        assert partition.tp in names
        assert captured <= names
        assert not any(name.endswith((".json", ".jsonl", ".xz")) for name in names), partition.id


@pytest.mark.slow
def test_meta_agrees_with_the_index():
    for partition in golden_data.partitions():
        for name in ("logStartOffset", "logEndOffset", "lastStableOffset"):
            assert partition.meta[name] == partition.entry[name], partition.id


@pytest.mark.slow
def test_kafkas_consumer_stopped_in_one_partition_of_the_newest_broker():
    stopped = [partition.tp for partition in golden_data.partitions("4.3.0") if "readError" in partition.meta]
    assert stopped == ["u-flip-below-0"]  # the tests of consumers leave it out


def test_topics_with_a_dash_keep_it():
    partition = next(partition for partition in golden_data.partitions() if partition.tp == "txn-open-0")
    assert (partition.topic, partition.partition) == ("txn-open", 0)


@pytest.mark.slow
def test_there_are_114_damaged_copies_each_beside_its_pristine_partition():
    variants = golden_data.corrupt_variants()
    assert len({variant.id for variant in variants}) == 114
    for variant in variants:
        assert variant.directory.is_dir(), variant.id
        assert variant.pristine.directory.is_dir(), variant.id
        assert contents(variant.directory) != contents(variant.pristine.directory), variant.id


@pytest.mark.slow
def test_unclean_directories_are_fresh_for_each_test(tmp_path: Path):
    (unclean,) = golden_data.unclean_cases()
    first = unclean.crashed(tmp_path / "first")
    (first / "u-cut-0" / f"{0:020d}.log").write_bytes(b"")
    second = unclean.crashed(tmp_path / "second")
    assert (second / "u-cut-0" / f"{0:020d}.log").stat().st_size > 0
    assert not (second / ".kafka_cleanshutdown").exists()
    changed = unclean.mutations["changedAfterTheKill"]
    assert len(changed) == 9
    assert {partition.tp for partition in unclean.after.partitions} >= set(changed)
    assert all((second / tp).is_dir() for tp in changed)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["txn", "groups"])
def test_whole_log_directories_keep_their_hidden_files_and_manifests(name: str):
    case = golden_data.case("4.3.0", name)
    assert (case.log_directory / ".kafka_cleanshutdown").exists()
    assert (case.log_directory / "meta.properties").exists()
    assert case.json(case.entry["groups"])


def test_copies_may_be_changed_without_changing_the_corpus(tmp_path: Path):
    partition = golden_data.case("4.3.0", "mixed-codecs").partitions[0]
    log_directory = partition.copy(tmp_path / "mine")
    copied = log_directory / partition.tp
    assert contents(copied) == contents(partition.directory)
    assert [path.stat().st_mtime_ns for path in sorted(copied.glob("*.log"))] == [
        path.stat().st_mtime_ns for path in sorted(partition.directory.glob("*.log"))
    ]
    next(copied.glob("*.log")).write_bytes(b"")
    assert contents(copied) != contents(partition.directory)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}
