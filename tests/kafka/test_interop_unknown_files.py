"""What lies in a log directory and is neither Kafka's nor pylog's is left as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

import pylog
from support.golden import data as golden_data
from support.kafka.interop_data import files, rows_of

UNKNOWN_IN_PARTITION = (  # names that a broker leaves alone too
    "foo.txt",
    "notes.tmp",
    "orphan.bin",
    "foo.checkpoint",
    "00000000000000000000",
    "5.bloom",
    "00000000000000000000.bloom",
    "00000000000000000000.stamp",
    "00000000000000000000.log.bak",
    "00000000000000000007.columns.parquet",
    "00000000000000000000.snapshot.bak",
    "x/anything",
    "foo.log/anything",
    "foo.deleted/anything",
    "00000000000000000099.log/anything",
)
UNKNOWN_IN_ROOT = (
    "foo.txt",
    ".hidden",
    "notes-0",  # a file named like a partition
    "x/anything",
    "lost+found/anything",
    "remote-log-index-cache/00000000000000000000_x.index",
    f"gone-0.{'0' * 32}-delete/00000000000000000000.log",
    f"stray-0.{'1' * 32}-stray/00000000000000000000.log",
    f"moving-0.{'2' * 32}-future/00000000000000000000.log",
)


def scatter(directory: Path, names: tuple[str, ...]) -> dict[Path, tuple[bytes, int, int]]:
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 20)
    link = directory / "dangling"
    link.symlink_to("nowhere")
    return {path: state(path) for name in (*names, "dangling") if (path := directory / name)}


def state(path: Path) -> tuple[bytes, int, int]:
    stat = path.lstat()
    return (b"" if path.is_symlink() else path.read_bytes()), stat.st_ino, stat.st_mtime_ns


def append_and_read(store: pylog.Store, topic: str, partition: int) -> None:
    log = store.log(topic, partition)
    before = log.end_offset
    log.append_many(rows_of(50))
    assert len(list(log.records(before))) == 50


def test_unknown_names_survive_appending_rolling_and_closing(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with pylog.open(directory) as store:
        store.create_topic("kept", partition_count=2, segment_bytes=2000)
        store.create_topic("dropped")
        append_and_read(store, "kept", 0)
    unknown = scatter(directory, UNKNOWN_IN_ROOT)
    for partition in ("kept-0", "kept-1"):
        unknown |= scatter(directory / partition, UNKNOWN_IN_PARTITION)

    with pylog.open(directory, mode="r") as store:
        assert set(store.topics()) == {"kept", "dropped"}
    for _ in range(2):
        with pylog.open(directory) as store:
            for partition in (0, 1):
                for _ in range(5):
                    append_and_read(store, "kept", partition)
                assert len(store.log("kept", partition).segments) > 2
            assert store.recovery_report == ()
            if "dropped" in store.topics():
                store.delete_topic("dropped")
            store.add_partitions("kept", store.topic("kept").partition_count + 1)

    assert {path: state(path) for path in unknown} == unknown


@pytest.mark.parametrize("version", golden_data.VERSIONS)
def test_appending_to_a_brokers_directory_changes_nothing_beside_the_partition(version: str, tmp_path: Path) -> None:
    directory = golden_data.case(version, "txn").copy(tmp_path / "data")
    with pylog.open(directory, mode="r") as store:
        topic = next(name for name in store.topics() if not name.startswith("__"))
    unknown = scatter(directory, UNKNOWN_IN_ROOT) | scatter(directory / f"{topic}-0", UNKNOWN_IN_PARTITION)
    before = files(directory)

    with pylog.open(directory) as store:
        append_and_read(store, topic, 0)

    assert {path: state(path) for path in unknown} == unknown
    after = files(directory)
    changed = {path for path in before if after.get(path) != before[path]} | (set(after) - set(before))
    assert {path for path in changed if not path.startswith(f"{topic}-0/")} <= {
        ".lock",
        "pylog.lock",
        "recovery-point-offset-checkpoint",
    }
    assert set(before) <= set(after), "nothing is removed"
