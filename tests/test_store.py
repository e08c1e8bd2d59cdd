"""A store: its topics, what it leaves alone, what a crash between two steps leaves, who may open it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog.fs import OsFileSystem
from pylog.store import manager_of
from pylog.topics.catalog import CATALOG, read_catalog
from support import warm
from support.faults.closing import without_patience
from support.faults.faulty_fs import Faults, FaultyFileSystem
from support.faults.neighbours import values
from support.golden.data import case
from support.refusals import refused_in_a_child


def test_topics_come_back_with_their_configuration_and_id(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "s") as store:
        made = store.create_topic("orders", partition_count=3, retention_ms=-1, compression_type="zstd")
        store.create_topic("a.b-c_d")
    with pylog.open(tmp_path / "s", mode="r") as store:
        assert list(store.topics()) == ["a.b-c_d", "orders"]
        assert store.topics()["orders"] == made
        assert (made.partition_count, made.partition_ids) == (3, (0, 1, 2))
        assert made.config == pylog.TopicConfig(retention_ms=-1, compression_type="zstd")
    for number in range(3):
        text = (tmp_path / "s" / f"orders-{number}" / "partition.metadata").read_text()
        assert text == f"version: 0\ntopic_id: {made.id}"


def test_partitions_can_be_added_and_never_taken_away(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        first = store.create_topic("t", partition_count=2)
        store.log("t", 1).append(b"kept")
        grown = store.add_partitions("t", 5)
        assert (grown.partition_count, grown.id) == (5, first.id)
        assert store.log("t", 4).append(b"new") == 0
        assert store.log("t", 1).read(0).value == b"kept"
        with pytest.raises(pylog.InvalidArgumentError):
            store.add_partitions("t", 5)
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            store.add_partitions("unknown", 5)


def test_an_internal_topic_that_a_program_makes_is_compacted_as_kafkas_is(tmp_path: Path) -> None:
    """With the defaults of other topics, committed offsets would be deleted after a week."""
    with pylog.open(tmp_path) as store:
        for name in ("__consumer_offsets", "__transaction_state"):
            assert store.create_topic(name, retention_ms=5).config.cleanup_policy == "compact"
        assert store.topic("__consumer_offsets").config.retention_ms == 5


def test_a_deleted_topic_is_gone_and_its_name_is_free(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        old = store.create_topic("t", partition_count=2)
        store.log("t", 0).append(b"old")
        store.delete_topic("t")
        assert store.topics() == {}
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            store.log("t", 0)
        assert store.create_topic("t").id != old.id
        assert store.log("t").append(b"new") == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["t-0"]


def test_a_topics_configuration_is_altered_for_logs_that_are_open_too(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        made = store.create_topic("t", partition_count=2, retention_ms=5, durability="os")
        log = store.log("t")
        altered = store.alter_topic("t", segment_bytes=1000, durability=None)
        assert (altered.id, altered.partition_count) == (made.id, 2)
        assert altered.config.changed() == {"retention_ms": 5, "segment_bytes": 1000}
        assert log.config.segment_bytes == 1000
    with pylog.open(tmp_path) as store:
        assert store.log("t").config.changed() == {"retention_ms": 5, "segment_bytes": 1000}


def test_a_brokers_topic_is_altered_and_still_kept_indefinitely(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").touch()
    with pylog.open(tmp_path) as store:
        assert store.alter_topic("t", segment_ms=9).config.changed() == {"segment_ms": 9, "retention_ms": -1}
        assert store.alter_topic("t", retention_ms=None).config.changed() == {"segment_ms": 9}
    (tmp_path / "s-3").mkdir()
    with pylog.open(tmp_path) as store, pytest.raises(pylog.InvalidArgumentError, match="only partitions 3 of topic"):
        store.alter_topic("s", segment_ms=9)


@pytest.mark.parametrize("options", [{"segment_ms": 0}, {"nothing": 1}, {"nothing": None}])
def test_a_configuration_that_cannot_be_leaves_the_topic_as_it_was(tmp_path: Path, options: dict[str, int | None]) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t", retention_ms=5)
        with pytest.raises(pylog.InvalidArgumentError):
            store.alter_topic("t", **options)
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            store.alter_topic("u", retention_ms=6)
        assert store.topic("t").config.changed() == {"retention_ms": 5}
    with pylog.open(tmp_path, mode="r") as store, pytest.raises(pylog.ReadOnlyError):
        store.alter_topic("t", retention_ms=6)


def test_a_deleted_topics_log_refuses_appends(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        log = store.log("t")
        log.append(b"x")
        store.delete_topic("t")
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            log.append(b"y")


def fails(call: Callable[[], object], fs: FaultyFileSystem, store: pylog.Store) -> bool:
    """Whether a call fails; then the store is closed without further faults."""
    try:
        call()
        failed = False
    except pylog.StorageFailedError:
        failed = True
    fs.faults = Faults()
    store.close()
    return failed


@pytest.mark.parametrize("call", ["write", "sync", "create", "rename", "sync_directory"])
def test_a_topic_whose_creation_failed_half_way_is_whole_or_absent_when_opened_again(tmp_path: Path, call: str) -> None:
    for number in range(1, 40):
        fs, directory = FaultyFileSystem(), tmp_path / f"{number}"
        store = pylog.open(directory, fs=fs)
        fs.faults = Faults({call: {number}})
        failed = fails(lambda store=store: store.create_topic("t", partition_count=3, segment_bytes=1000), fs, store)
        with pylog.open(directory) as again:
            if "t" in again.topics():
                assert again.topics()["t"].partition_count == 3
                assert again.topics()["t"].config.segment_bytes == 1000
                assert [again.log("t", partition).append(b"x") for partition in range(3)] == [0, 0, 0]
            else:
                again.create_topic("t", partition_count=3)
        if not failed:
            break
    else:
        pytest.fail("the calls never came to an end")


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2, 1000], ids=["once", "twice", "from then on"])
@pytest.mark.parametrize("call", ["write", "sync", "create", "rename", "sync_directory"])
def test_a_topic_whose_deletion_failed_half_way_is_whole_or_gone_when_opened_again(tmp_path: Path, call: str, times: int) -> None:
    for number in range(1, 40):
        fs, directory = FaultyFileSystem(), tmp_path / f"{number}"
        store = pylog.open(directory, fs=fs)
        store.create_topic("t", partition_count=2)
        for partition in range(2):
            store.log("t", partition).append(b"x")
        faults = fs.faults = Faults({call: set(range(number, number + times))})
        failed = fails(lambda store=store: store.delete_topic("t"), fs, store)
        with pylog.open(directory) as again:
            assert failed or "t" not in again.topics()
            if "t" in again.topics():
                assert [again.log("t", partition).end_offset for partition in range(2)] == [1, 1]
            assert read_catalog(OsFileSystem(), str(directory)).deleting == {}
        assert not [path.name for path in directory.iterdir() if path.name.endswith("-delete")]
        if faults.counts.get(call, 0) < number:  # it came to its end before
            break
    else:
        pytest.fail("the calls never came to an end")


class OfferedRoom(FaultyFileSystem):
    """Something happens when a store gives its reserve back to a full disk."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__()
        self.then = then

    def open_locks(self, path: str) -> Any:
        file = super().open_locks(path)
        give_room = file.give_room

        def given(size: int) -> None:
            give_room(size)
            self.then()

        file.give_room = given  # type: ignore[method-assign]
        return file


@pytest.mark.parametrize("call", ["rename", "sync_directory"])
def test_a_deletion_that_goes_on_after_a_full_disk_leaves_a_topic_alone_that_was_made_meanwhile(
    tmp_path: Path, call: str
) -> None:
    made: set[Path] = set()
    for number in range(1, 40):

        def make_again(directory: Path = tmp_path / f"{number}") -> None:
            with pylog.open(directory) as other:
                if "t" not in other.topics():
                    other.create_topic("t", partition_count=2)
                    other.log("t").append(b"new")
                    made.add(directory)

        fs = OfferedRoom(make_again)
        with pylog.open(tmp_path / f"{number}", fs=fs) as store:
            store.create_topic("t", partition_count=2)
            store.log("t").append(b"old")
            faults = fs.faults = Faults({call: {number}})
            with contextlib.suppress(pylog.StorageFailedError):  # the log could not be closed
                store.delete_topic("t")
            fs.faults = Faults()
        with pylog.open(tmp_path / f"{number}") as again:
            if tmp_path / f"{number}" in made:
                assert [record.value for record in again.log("t").records()] == [b"new"]
                assert again.log("t").append(b"more") == 1
                assert again.verify().ok
        if faults.counts.get(call, 0) < number:
            break
    else:
        pytest.fail("the calls never came to an end")
    assert made


class NamesInOrder(FaultyFileSystem):
    """Notes the changes of names that succeeded, and the directories that were synced, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.done.append(os.path.basename(target))

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.done.append(path)


def test_a_deletion_that_is_tried_again_is_decided_on_the_disk_before_a_partition_loses_its_name(tmp_path: Path) -> None:
    tried_again = 0
    for number in range(1, 40):
        fs, directory = NamesInOrder(), tmp_path / f"{number}"
        with pylog.open(directory, fs=fs) as store:
            store.create_topic("t")
            store.log("t").append(b"x")
            faults = fs.faults = Faults({"sync_directory": {number}})
            fs.done.clear()
            with contextlib.suppress(pylog.StorageFailedError):  # the log could not be closed
                store.delete_topic("t")
            done = list(fs.done)
            fs.faults = Faults()
        renamed = [at for at, name in enumerate(done) if name.endswith("-delete")]
        if renamed:
            decided = done.index(CATALOG)
            assert str(directory) in done[decided : renamed[0]], done
            tried_again += faults.counts["sync_directory"] >= number
        if faults.counts.get("sync_directory", 0) < number:
            break
    else:
        pytest.fail("the calls never came to an end")
    assert tried_again


def test_an_exclusive_writer_refuses_a_second_one_and_no_reader(tmp_path: Path) -> None:
    with pylog.open(tmp_path, exclusive=True) as store:
        store.create_topic("t")
        store.log("t").append(b"x")
        with pytest.raises(pylog.StoreLockedError, match="exclusive=True"):
            pylog.open(tmp_path)
        with pylog.open(tmp_path, mode="r") as reader:
            assert reader.log("t").read(0).value == b"x"
            store.log("t").append(b"y")
            assert reader.log("t").end_offset == 2
    with pylog.open(tmp_path) as store:
        assert store.log("t").append(b"z") == 2
        with pytest.raises(pylog.StoreLockedError, match="another pylog process or store"):
            pylog.open(tmp_path, exclusive=True)


OTHER = """
import sys, pylog
try:
    with pylog.open(sys.argv[1], exclusive="exclusive" in sys.argv) as store:
        print(store.log("t").append(b"theirs"))
except pylog.StoreLockedError:
    print("locked")
"""


def other_process(path: Path, *arguments: str) -> str:
    return warm.run(["-c", OTHER, path, *arguments], check=True).stdout.strip()


@pytest.mark.slow
def test_another_process_may_append_in_turn_unless_one_of_both_wants_to_be_alone(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        log = store.log("t")
        log.append(b"ours")
        assert other_process(tmp_path, "exclusive") == "locked"
        assert other_process(tmp_path) == "1"
        assert log.end_offset == 2
        assert log.append(b"ours again") == 2
        assert [record.value for record in log.records()] == [b"ours", b"theirs", b"ours again"]
    with pylog.open(tmp_path, exclusive=True):
        assert other_process(tmp_path) == "locked"
    assert other_process(tmp_path, "exclusive") == "3"


@pytest.mark.slow
def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    program = """
import os, sys, pylog
store = pylog.open(sys.argv[1])
store.create_topic("t")
store.log("t").append(b"x")
os.kill(os.getpid(), 9)
"""
    assert warm.run(["-c", program, tmp_path]).returncode == -9
    with pylog.open(tmp_path) as store:
        assert store.log("t").read(0).value == b"x"


def test_a_forked_child_may_not_use_the_store_and_does_not_let_go_of_its_lock(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        log = store.log("t")
        log.append(b"x")
        calls = lambda: log.append(b"y"), lambda: log.read(0), store.topics
        assert refused_in_a_child(*calls, last=store.close) == 3
        with pytest.raises(pylog.StoreLockedError):
            pylog.open(tmp_path, exclusive=True)
        assert log.append(b"y") == 1


def test_reading_writes_nothing(tmp_path: Path) -> None:
    directory = case("4.3.0", "txn").copy(tmp_path / "broker")
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    with pylog.open(directory, mode="r") as store:
        for name, topic in store.topics().items():
            for number in topic.partition_ids:
                list(store.log(name, number).scan(isolation_level="read_committed"))
        with pytest.raises(pylog.ReadOnlyError):
            store.create_topic("new")
        with pytest.raises(pylog.ReadOnlyError):
            store.log("txn", 0).append(b"x")
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*")} == before


def test_a_store_stays_where_it_is_when_the_process_goes_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another store may be there under the same name, and nobody has its locks."""
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        with pylog.open(tmp_path / place / "shop") as made:
            made.create_topic("t", segment_bytes=300)
            made.log("t").append(place.encode())
    monkeypatch.chdir(tmp_path / "a")
    store = pylog.open("shop")
    log = store.log("t")
    monkeypatch.chdir(tmp_path / "b")
    assert [log.append(b"a" * 70) for _ in range(12)] == list(range(1, 13))
    store.close()
    for place, count in (("a", 13), ("b", 1)):
        with pylog.open(tmp_path / place / "shop") as store:
            assert set(b"".join(values(store.log("t")))) == set(place.encode())
            assert store.log("t").end_offset == count
            assert store.check().ok


CLOSED = """
import os, sys
import pylog
for standard in range(3):
    os.close(standard)
with pylog.open(sys.argv[1]) as store:
    store.create_topic("t")
    store.log("t").append(b"x")
    taken = []
    for standard in range(3):
        try:
            taken.append(os.write(standard, b"printed"))
        except OSError:
            pass
    store.log("t").append(b"taken" if taken else b"free")
"""


@pytest.mark.slow
def test_standard_descriptors_that_are_closed_never_lead_into_a_log(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CLOSED, tmp_path / "s"], check=True)
    with pylog.open(tmp_path / "s") as store:
        assert values(store.log("t")) == [b"x", b"free"]


@pytest.mark.parametrize("broker", [True, False])
def test_a_topic_that_a_broker_deleted_does_not_come_back(tmp_path: Path, broker: bool) -> None:
    with pylog.open(tmp_path) as store:
        for name in ("gone", "half", "stays"):
            store.create_topic(name, partition_count=2)
    for name in ("gone-0", "gone-1", "half-1"):
        shutil.rmtree(tmp_path / name)
    if broker:  # one that has closed the directory; else a process of pylog may have died while it made them
        (tmp_path / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":7}')
    for _ in range(2):
        with pylog.open(tmp_path) as store:
            assert set(store.topics()) == ({"half", "stays"} if broker else {"gone", "half", "stays"})
            assert store.log("half", 1).end_offset == 0
            assert store.check().ok
    with pylog.open(tmp_path) as store:
        if broker:
            store.create_topic("gone", partition_count=3)  # the name is free
        assert store.log("gone", 1).append(b"again") == 0


def test_a_brokers_topics_are_found_without_a_catalog_and_its_controllers_log_is_not_one(tmp_path: Path) -> None:
    directory = case("4.3.0", "txn").copy(tmp_path / "broker")
    assert (directory / "__cluster_metadata-0").is_dir()
    with pylog.open(directory) as store:
        assert {"txn", "txn-open", "__consumer_offsets", "__transaction_state"} <= set(store.topics())
        assert "__cluster_metadata" not in store.topics()
        assert store.topics()["txn"].partition_count == 2
        with pytest.raises(pylog.ReadOnlyError):
            store.log("__cluster_metadata", 0)
    assert not (directory / CATALOG).exists()


def test_a_damaged_catalog_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
    (tmp_path / CATALOG).write_text("{")
    with pytest.raises(pylog.CorruptionError, match=CATALOG):
        pylog.open(tmp_path)
    (tmp_path / CATALOG).write_text('{"version": 99}')
    with pytest.raises(pylog.UnsupportedFormatError, match="99"):
        pylog.open(tmp_path)


@pytest.mark.damaged("it was damaged on purpose")
def test_damaged_checkpoints_of_the_root_cost_nothing_but_time(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        store.log("t").append(b"x")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("garbage")
    (tmp_path / "log-start-offset-checkpoint").write_bytes(b"\xff\xfe")
    with pylog.open(tmp_path) as store:
        assert [finding.kind for finding in store.recovery_report] == ["rebuilt", "rebuilt"]
        assert store.log("t").append(b"y") == 1


@pytest.mark.slow
def test_everything_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    """A child appends and says so; it is killed in the middle; what it said is there."""
    program = """
import sys, pylog
log = pylog.open(sys.argv[1]).log("t")
for number in range(10**9):
    offset = log.append(b"value %d" % number) if number % 3 else log.append_many([b"value %d" % number])[0]
    print(offset, number, flush=True)
"""
    with pylog.open(tmp_path) as store:
        store.create_topic("t", segment_bytes=2_000)
    said: dict[int, int] = {}
    for round_ in range(5):
        child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(20 + 7 * round_):
            offset, number = map(int, child.stdout.readline().split())
            said[offset] = number
        child.kill()
        for line in child.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                offset, number = map(int, line.split())
                said[offset] = number
        child.wait()
        child.stdout.close()
    with pylog.open(tmp_path) as store:
        found = {record.offset: record.value for record in store.log("t").records()}
    assert {offset: found[offset] for offset in said} == {offset: b"value %d" % number for offset, number in said.items()}
    assert sorted(found) == list(range(len(found)))


def test_a_reader_is_told_of_a_partition_whose_maker_did_not_get_to_it(tmp_path: Path) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t", partition_count=2)
    shutil.rmtree(tmp_path / "t-1")
    with pylog.open(tmp_path, mode="r") as store:
        assert store.topic("t").partition_count == 2
        with pytest.raises(pylog.UnknownTopicOrPartitionError, match="t-1 is incomplete"):
            store.log("t", 1)
    with pylog.open(tmp_path) as store:
        assert store.log("t", 1).append(b"x") == 0


@pytest.mark.parametrize("change", ["create", "alter"])
def test_a_store_that_is_closed_while_a_thread_waits_to_change_topics_changes_nothing(tmp_path: Path, change: str) -> None:
    """Somebody else may have the directory by then."""
    store = pylog.open(tmp_path, exclusive=True)
    store.create_topic("t")
    catalog = (tmp_path / CATALOG).read_bytes()
    refused = threading.Event()

    def work() -> None:
        with pytest.raises(pylog.ClosedError):
            store.create_topic("late") if change == "create" else store.alter_topic("t", retention_ms=1)
        refused.set()

    thread = threading.Thread(target=work)
    with manager_of(store)._guard:
        thread.start()
        time.sleep(0.1)
        with without_patience():
            store.close()
    thread.join(20)
    assert refused.is_set()
    assert (tmp_path / CATALOG).read_bytes() == catalog
    assert not (tmp_path / "late-0").exists()
