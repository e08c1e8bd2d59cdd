"""Topics that several stores make and delete at the same time: each one is whole, new, and keeps what was acknowledged.

Two stores of one process keep each other out as two processes do.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import pylog
from pylog import Durability
from pylog.directory.checkpoints import CLEANER, LOG_START, RECOVERY_POINT, parse_offsets
from pylog.directory.partition_metadata import format_partition_metadata
from pylog.fs import OsFileSystem
from pylog.log.durable_point import mark_deleted
from pylog.record.types import TopicPartition
from pylog.store import Store, manager_of
from pylog.topics import changes
from pylog.topics.catalog import CATALOG, CatalogTopic, read_catalog, write_topic
from support.faults.neighbours import values

PATIENCE = 20.0  # seconds that a test waits for what takes milliseconds
HEX = "0123456789abcdef" * 2
ANOTHER = CatalogTopic("A" * 22, 1)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Store]:
    with pylog.open(tmp_path) as store:
        yield store


@pytest.fixture
def two(one: Store, tmp_path: Path) -> Iterator[Store]:
    with pylog.open(tmp_path) as store:
        yield store


def deletions(path: Path) -> list[str]:
    return [entry.name for entry in path.iterdir() if entry.name.endswith("-delete")]


def just_before_the_roots_lock(store: Store, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Does something once, when a store is about to take the lock: to decide something, if nothing is to be done before."""
    manager_of(store).root.leave_clean_state()
    locks = manager_of(store).locks
    assert locks is not None
    lock, done = locks.root, []

    entered = lock.entered

    def first_this() -> contextlib.AbstractContextManager[None]:
        if not done:
            done.append(True)
            action()
        return entered()

    monkeypatch.setattr(lock, "entered", first_this)


@contextlib.contextmanager
def halted_deletion(one: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Has a thread decide to delete "t" through a store, and stand still, until this ends, before its directories are renamed."""
    decided, go_on = threading.Event(), threading.Event()
    rename = manager_of(one).root.changes._rename

    def late(*which: str) -> None:
        decided.set()
        assert go_on.wait(PATIENCE)
        rename(*which)

    def delete() -> None:
        thread.start()
        assert decided.wait(PATIENCE)

    monkeypatch.setattr(manager_of(one).root.changes, "_rename", late)
    thread = threading.Thread(target=one.delete_topic, args=("t",))
    yield delete
    go_on.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.fixture
def halted(one: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """The same for a whole test, through its first store."""
    with halted_deletion(one, monkeypatch) as delete:
        yield delete


def test_a_topic_made_beside_its_deletion_is_new_and_keeps_its_records(
    one: Store, two: Store, halted: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion is decided after the maker has found nothing to wait for, and before it has the lock."""
    old = one.create_topic("t", partition_count=3)
    one.log("t").append(b"old")
    just_before_the_roots_lock(two, monkeypatch, halted)
    assert two.create_topic("t", partition_count=2).id != old.id
    assert two.topic("t").partition_ids == (0, 1)
    log = two.log("t")
    assert values(log) == []
    assert log.append(b"new") == 0
    assert values(log) == [b"new"]


def test_records_acknowledged_after_a_race_are_there_when_the_store_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pylog.open(tmp_path) as one, pylog.open(tmp_path) as two:
        one.create_topic("t")
        one.log("t").append(b"old")
        with halted_deletion(one, monkeypatch) as delete:
            just_before_the_roots_lock(two, monkeypatch, delete)
            two.create_topic("t")
            two.log("t").append(b"new")
    with pylog.open(tmp_path) as store:
        assert values(store.log("t")) == [b"new"]
        assert deletions(tmp_path) == []


def test_partitions_are_not_added_to_directories_that_are_being_deleted(
    one: Store, two: Store, halted: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    one.create_topic("t", partition_count=2)
    one.log("t", 1).append(b"old")

    def deleted_and_made_again() -> None:
        halted()
        monkeypatch.undo()
        two.create_topic("t")

    just_before_the_roots_lock(two, monkeypatch, deleted_and_made_again)
    assert two.add_partitions("t", 3).partition_ids == (0, 1, 2)
    assert values(two.log("t", 1)) == []


def test_a_deletion_that_another_store_was_faster_with_deletes_nothing_else(
    one: Store, two: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which partitions go is what the topic has when that is decided, not what it had when it was asked for."""
    one.create_topic("t", partition_count=2)

    def made_again() -> None:
        two.delete_topic("t")
        two.create_topic("t", partition_count=4)

    just_before_the_roots_lock(one, monkeypatch, made_again)
    one.delete_topic("t")
    assert one.topics() == two.topics() == {}
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_dir()] == []


def test_of_two_deletions_of_one_topic_the_later_one_is_told_that_there_is_none(
    one: Store, two: Store, tmp_path: Path, halted: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    one.create_topic("t", partition_count=2)
    two.log("t").append(b"x")
    just_before_the_roots_lock(two, monkeypatch, halted)
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        two.delete_topic("t")
    assert len(read_catalog(OsFileSystem(), str(tmp_path)).deleting) == 2


def test_a_partition_of_a_topic_that_is_deleted_meanwhile_is_not_made_again(
    one: Store, two: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer completes a topic that a dead process has begun; a deleted topic needs no completion."""
    write_topic(OsFileSystem(), str(tmp_path), "t", ANOTHER)
    just_before_the_roots_lock(two, monkeypatch, lambda: one.delete_topic("t"))
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        two.log("t")
    assert two.topics() == {}


@pytest.mark.parametrize(("ending", "step"), [("delete_topic", "_logs.check_names"), ("close", "_close_logs")])
def test_a_stores_first_append_and_an_end_that_begins_meanwhile_wait_for_each_other_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, step: str
) -> None:
    """The append has the log's locks and takes away the clean-shutdown marker; the end has the store's and wants the log's."""
    with pylog.open(tmp_path) as before:
        before.create_topic("t")
    store = pylog.open(tmp_path)
    appending, is_ending = threading.Event(), threading.Event()
    manager = manager_of(store)
    root = manager.root
    leave = root.leave_clean_state
    owner = manager._logs if "." in step else manager
    step = step.rpartition(".")[2]
    steps = getattr(owner, step)

    def leave_late() -> None:
        if threading.current_thread() is threads[0]:
            appending.set()
            is_ending.wait(PATIENCE)
        leave()

    def then(*given: Any) -> Any:
        is_ending.set()
        return steps(*given)

    def append() -> None:
        with contextlib.suppress(pylog.PylogError):
            log.append(b"x")

    def end() -> None:
        assert appending.wait(PATIENCE)
        getattr(store, ending)(*(("t",) if ending == "delete_topic" else ()))

    monkeypatch.setattr(root, "leave_clean_state", leave_late)
    log = store.log("t")
    monkeypatch.setattr(owner, step, then)
    threads = [threading.Thread(target=work, daemon=True) for work in (append, end)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    store.close()


def test_a_log_asked_for_while_the_store_is_closed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = pylog.open(tmp_path)
    store.create_topic("t")
    check = manager_of(store)._partition

    def closed_meanwhile(*which: Any) -> Any:
        monkeypatch.undo()
        key = check(*which)
        store.close()
        return key

    monkeypatch.setattr(manager_of(store), "_partition", closed_meanwhile)
    with pytest.raises(pylog.ClosedError):
        store.log("t")


@pytest.mark.slow
def test_stores_that_make_and_delete_one_name_see_whole_topics_and_leave_nothing(tmp_path: Path) -> None:
    wrong: list[object] = []
    stores = [pylog.open(tmp_path, durability=Durability.OS) for _ in range(3)]

    def work(number: int, store: Store) -> None:
        for turn in range(25):
            try:
                if (turn + number) % 2:
                    store.create_topic("t", partition_count=1 + (turn + number) % 4, retention_ms=12345)
                else:
                    store.delete_topic("t")
            except (pylog.TopicAlreadyExistsError, pylog.UnknownTopicOrPartitionError):
                pass
            except Exception as error:  # noqa: BLE001 - whatever it is, it is wrong
                wrong.append(error)
            seen = store.topics().get("t")
            complete = seen is not None and seen.partition_ids == tuple(range(seen.partition_count))
            if seen is not None and (seen.config.retention_ms != 12345 or not complete):
                wrong.append(seen)

    threads = [threading.Thread(target=work, args=given) for given in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert wrong == []
    assert deletions(tmp_path) == []


# ---- checkpoints -----------------------------------------------------------------------------------------------------------


def lines(path: Path, name: str) -> dict[TopicPartition, int]:
    return parse_offsets((path / name).read_bytes(), name) if (path / name).exists() else {}


def test_the_end_of_a_deletion_takes_no_checkpoint_of_a_topic_that_was_made_meanwhile(
    one: Store, two: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.create_topic("t")
    remove = changes.remove_directories

    def made_again(*given: Any) -> None:
        monkeypatch.undo()
        two.create_topic("t")
        two.log("t").append_many([b"%d" % number for number in range(9)])
        two.log("t").delete_records(5)
        remove(*given)

    monkeypatch.setattr(changes, "remove_directories", made_again)
    one.delete_topic("t")
    assert lines(tmp_path, LOG_START) == {TopicPartition("t", 0): 5}


def test_state_of_a_partition_that_is_being_deleted_does_not_outlive_it(
    one: Store, two: Store, tmp_path: Path, halted: Callable[[], None]
) -> None:
    one.create_topic("t")
    log = two.log("t")
    log.append_many([b"%d" % number for number in range(9)])
    log.delete_records(3)
    halted()
    assert lines(tmp_path, LOG_START) == {}
    log.delete_records(5)  # it has not met the flag yet
    assert lines(tmp_path, LOG_START) == {TopicPartition("t", 0): 5}
    manager_of(two).root.changes.free_names("t")
    assert lines(tmp_path, LOG_START) == {}


def test_a_partition_that_is_added_starts_without_the_checkpoints_of_an_older_one(one: Store, tmp_path: Path) -> None:
    """A process that died in a deletion may have left them."""
    for checkpoint in manager_of(one).root._checkpoints:
        checkpoint.update({TopicPartition("t", 1): 7})
    one.create_topic("t")
    one.add_partitions("t", 2)
    assert [lines(tmp_path, name) for name in (RECOVERY_POINT, LOG_START, CLEANER)] == [{}, {}, {}]
    assert one.log("t", 1).append(b"x") == 0


# ---- leftovers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [True, False], ids=["with-records", "empty"])
def test_a_deleted_partition_that_the_catalog_has_forgotten_is_removed_at_opening(tmp_path: Path, written: bool) -> None:
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        if written:
            store.log("t").append(b"x")
    mark_deleted(OsFileSystem(), str(tmp_path / "t-0"))
    (tmp_path / "t-0").rename(tmp_path / f"t-0.{HEX}-delete")
    (tmp_path / CATALOG).unlink()
    with pylog.open(tmp_path) as store:
        assert deletions(tmp_path) == []
        assert store.topics() == {}


@pytest.mark.damaged("its partition was renamed by hand")
def test_a_directory_that_only_resembles_a_deleted_partition_stays(tmp_path: Path) -> None:
    """A broker removes what it has renamed itself; what a user has is not touched, whatever its name."""
    with pylog.open(tmp_path) as store:
        store.create_topic("t")
        store.log("t").append(b"x")
    (tmp_path / "t-0").rename(tmp_path / f"t-0.{HEX}-delete")  # pylog never said that it is deleted
    (tmp_path / f"u-0.{HEX}-delete").mkdir()
    (tmp_path / f"u-0.{HEX}-delete" / f"{0:020}.log").write_bytes(b"a broker's")
    (tmp_path / f"v-0.{HEX}-delete").write_bytes(b"a file")
    (tmp_path / f"w-0.{HEX}-delete").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "x-0.old-delete").mkdir()
    before = sorted(deletions(tmp_path))
    with pylog.open(tmp_path):
        assert sorted(deletions(tmp_path)) == before


# ---- the background --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_deleted_topics_log_is_not_kept_by_the_background_that_flushed_it(one: Store, two: Store) -> None:
    for name in ("ours", "theirs", "theirs-again"):
        one.create_topic(name)
    kept = [weakref.ref(one.log(name)) for name in ("ours", "theirs", "theirs-again")]
    for log in kept:
        log().append(b"x", durability=Durability.INTERVAL(60_000))  # type: ignore[misc]
    assert len(manager_of(one).background._tasks) == 3
    one.delete_topic("ours")
    for name in ("theirs", "theirs-again"):
        two.delete_topic(name)
    one.create_topic("theirs")
    two.create_topic("theirs-again")
    one.log("theirs-again")
    assert manager_of(one).background._tasks == {}
    gc.collect()
    assert [log() for log in kept] == [None] * 3


@pytest.mark.slow
@pytest.mark.pair("second process", "close")
@pytest.mark.parametrize("by", ["create_topic", "log"])
def test_a_topic_that_another_store_deleted_leaves_no_descriptor_when_it_is_made_again(tmp_path: Path, by: str) -> None:
    gc.collect()
    gc.disable()
    try:
        with pylog.open(tmp_path) as ours, pylog.open(tmp_path) as theirs:
            counts = []
            for _ in range(3):
                (ours if by == "create_topic" else theirs).create_topic("t", segment_bytes=200)
                with contextlib.suppress(pylog.UnknownTopicOrPartitionError):  # of the topic before
                    ours.log("t").append(b"first")
                for number in range(10):
                    ours.log("t").append(b"value %d" % number)
                assert list(ours.log("t").records())
                counts.append(psutil.Process().num_fds())
                theirs.delete_topic("t")
            assert counts[2] <= counts[1]
    finally:
        gc.enable()


@pytest.mark.pair("second process", "scan and follow")
@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize(
    "read",
    [lambda log: log.end_offset, lambda log: list(log.records()), lambda log: list(log.follow(0, timeout_ms=10_000))],
    ids=["end_offset", "records", "follow"],
)
def test_a_log_without_a_header_does_not_read_the_topic_that_was_made_in_its_place(
    two: Store, tmp_path: Path, mode: Any, read: Callable[[pylog.Log], object]
) -> None:
    two.create_topic("t")
    with pylog.open(tmp_path, mode) as one:
        log = one.log("t")
        assert log.end_offset == 0
        two.delete_topic("t")
        two.create_topic("t")
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            read(log)
        two.log("t").append(b"of the other topic")
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            read(log)
        assert values(one.log("t")) == [b"of the other topic"]


@pytest.mark.pair("second process", "option change")
@pytest.mark.parametrize("config", [{}, {"retention_ms": 5}], ids=["the same options", "other options"])
def test_a_log_that_was_never_written_does_not_append_to_the_topic_that_was_made_in_its_place(
    one: Store, two: Store, config: dict[str, int]
) -> None:
    one.create_topic("t")
    log = one.log("t")
    two.delete_topic("t")
    two.create_topic("t", **config)
    with pytest.raises(pylog.UnknownTopicOrPartitionError):
        log.append(b"for the topic that is gone")
    assert values(two.log("t")) == []
    assert one.log("t").append(b"x") == 0
    assert values(two.log("t")) == [b"x"]


@pytest.mark.damaged("the id is that of another topic")
@pytest.mark.parametrize("call", ["look", "write"])
def test_a_header_that_is_equal_to_that_of_the_topic_in_whose_place_it_is_is_not_taken_for_it(
    one: Store, two: Store, tmp_path: Path, call: str
) -> None:
    """A new topic can have as many bytes as the old one, and its files the inodes of the old ones: only its id differs."""
    one.create_topic("t")
    one.log("t").append(b"x")
    known = manager_of(two).log("t", 0)  # loaded, and not looked at: its header is not open
    (tmp_path / "t-0" / "partition.metadata").write_bytes(format_partition_metadata("B" * 22))
    if call == "look":
        assert known.was_deleted()
    else:
        with pytest.raises(pylog.UnknownTopicOrPartitionError, match="deleted"):
            known.next_sequence(99, 0)


@pytest.mark.parametrize("wrote", [False, True], ids=["read", "wrote"])
@pytest.mark.parametrize("call", ["log", "read_table", "consumer"])
def test_the_first_call_after_another_store_made_a_topic_again_has_the_new_one(
    one: Store, two: Store, call: str, wrote: bool
) -> None:
    two.create_topic("t")
    old = one.log("t")
    assert (old.append(b"old") if wrote else old.end_offset) == 0
    two.delete_topic("t")
    two.create_topic("t")
    two.log("t").append(b"new")
    if call == "log":
        assert values(one.log("t")) == [b"new"]
        assert one.log("t") is one.log("t") is not old
    elif call == "read_table":
        assert one.read_table("t")["value"].to_pylist() == [b"new"]
    else:
        with one.consumer("t", auto_offset_reset="earliest") as consumer:
            assert [record.value for records in consumer.poll(1000).values() for record in records] == [b"new"]
