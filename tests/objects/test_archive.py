"""`Store.archive` and `pylog.restore`: what comes back, what is refused, and what a crash or a fault leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import OffsetsConfig, TopicPartition
from pylog.archive.verifying import verify_archive
from pylog.clock import ManualClock
from pylog.objects import open_objects
from pylog.objects.directory_objects import DirectoryObjects
from support.objects import AFTER, BEFORE, MemoryObjects, every_url

NOW = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)
FEW = OffsetsConfig(topic_num_partitions=1)


def opened(path: Path, mode: str = "rw", **options: Any) -> pylog.Store:
    return pylog.open(
        path, mode, durability=pylog.Durability.OS, offsets=FEW, clock=options.pop("clock", ManualClock(NOW)), **options
    )


def filled(path: Path, count: int = 30, **config: Any) -> None:
    """A directory with records in several segments, a group's offset, and a topic's options."""
    with opened(path) as store:
        store.create_topic("orders", 2, **{"segment_bytes": 1000, "retention_ms": -1, **config})
        for number in range(count):
            store.log("orders").append(b"value %d" % number + b"x" * 80, key=b"%d" % number, timestamp=NOW + number)
        store.offsets.commit("billing", {ORDERS: 7})


def rows(path: Path, partition: int = 0) -> list[tuple[int, bytes | None, bytes | None, int]]:
    with opened(path, "r") as store:
        return [(r.offset, r.key, r.value, r.timestamp) for r in store.log("orders", partition).records()]


def logs_of(path: Path) -> dict[str, bytes]:
    """All `.log` files with records, by their names under the directory."""
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*.log") if each.stat().st_size}


@pytest.fixture
def memory() -> Iterator[MemoryObjects]:
    """An archive in memory, for any URL."""
    with every_url(MemoryObjects()) as objects:
        yield objects


# ---- what comes back -----------------------------------------------------------------------------------------------------


@pytest.mark.pair("truncation", "compaction")
@pytest.mark.parametrize("archived", ["the others", "all", "all, cut twice"])
@pytest.mark.parametrize("kept", [0, 20])
def test_the_log_end_comes_back_where_a_truncation_has_left_no_record_before_it(tmp_path: Path, kept: int, archived: str) -> None:
    """Else the restored log gives offsets a second time, and the offsets of groups are beyond its end."""
    with opened(tmp_path / "shop") as store:
        store.create_topic("orders")
        log = store.log("orders")
        for number in range(kept):
            log.append(b"%d" % number)
        if archived == "the others":
            store.archive(f"file://{tmp_path}/archive", include_active=True)
        log.append_many([b"a", b"b", b"c", b"d"])
        store.archive(f"file://{tmp_path}/archive", include_active=archived != "the others")
        for end in (3, 2) if archived == "all, cut twice" else (2,):
            log.truncate(kept + end)  # cuts the batch of four
            store.archive(include_active=True)
        end = log.end_offset
    pylog.restore(f"file://{tmp_path}/archive", tmp_path / "back")
    with opened(tmp_path / "back") as store:
        back = store.log("orders")
        assert back.end_offset == end == kept + 2
        assert back.append(b"next") == end
        assert [record.value for record in back.records()] == [*(b"%d" % each for each in range(kept)), b"next"]
        assert store.verify().ok


def test_a_restored_directory_has_the_same_records_offsets_and_options(tmp_path: Path) -> None:
    filled(tmp_path / "shop")
    with opened(tmp_path / "shop") as store:
        topic_id = store.topic("orders").id
        report = store.archive(str(tmp_path / "archive"), include_active=True)
    assert report.ok
    assert report.not_archived == 0
    restored = pylog.restore(str(tmp_path / "archive"), tmp_path / "copy", old=tmp_path / "shop")
    assert restored.lost == 0
    assert rows(tmp_path / "copy") == rows(tmp_path / "shop")
    assert logs_of(tmp_path / "copy") == logs_of(tmp_path / "shop")
    with opened(tmp_path / "copy") as store:
        assert store.topic("orders").id == topic_id
        assert store.topic("orders").config.segment_bytes == 1000
        assert store.topic("orders").partition_ids == (0, 1)
        assert store.offsets.position("billing", ORDERS) == 7
        assert store.verify().ok
        assert store.check().ok
        assert store.log("orders").append(b"next") == 30


def test_only_new_segments_are_uploaded(tmp_path: Path, memory: MemoryObjects) -> None:
    filled(tmp_path)
    with opened(tmp_path) as store:
        first = store.archive("s3://any")
        assert first.segments > 2
        assert first.not_archived > 0
        assert store.archive().segments == 0
        store.log("orders").append_many([b"y" * 100] * 20)
        second = store.archive()
    assert 0 < second.segments < first.segments
    assert verify_archive(memory, deep=True, orphans=True) == verify_archive(memory, deep=True, orphans=True)
    assert verify_archive(memory, deep=True, orphans=True).ok
    assert verify_archive(memory, orphans=True).orphans == ()


def test_restore_says_exactly_which_offsets_were_not_archived(tmp_path: Path) -> None:
    filled(tmp_path / "shop")
    archive = str(tmp_path / "archive")
    with opened(tmp_path / "shop") as store:
        report = store.archive(archive)
        archived = next(each for each in report.partitions if each.partition == ORDERS)
        assert archived.not_archived == 30 - archived.archived_end_offset > 0
    without_old = pylog.restore(archive, tmp_path / "one")
    assert without_old.lost == archived.not_archived
    with opened(tmp_path / "shop") as store:
        store.log("orders").append_many([b"later"] * 5)
    with_old = pylog.restore(archive, tmp_path / "two", old=tmp_path / "shop")
    assert with_old.lost == archived.not_archived + 5
    assert rows(tmp_path / "two") == rows(tmp_path / "shop")[: archived.archived_end_offset]


def test_a_committed_offset_ahead_of_the_archive_is_lowered_and_reported(tmp_path: Path) -> None:
    filled(tmp_path / "shop")
    with opened(tmp_path / "shop") as store:
        store.offsets.commit("fast", {ORDERS: 30})
        store.archive(str(tmp_path / "archive"))
    report = pylog.restore(str(tmp_path / "archive"), tmp_path / "copy")
    assert [(each.group, each.partition, each.committed) for each in report.lowered] == [("fast", ORDERS, 30)]
    with opened(tmp_path / "copy", "r") as store:
        assert store.offsets.position("fast", ORDERS) == store.log("orders").end_offset < 30
        assert store.offsets.position("billing", ORDERS) == 7


def test_deleted_records_are_not_restored(tmp_path: Path) -> None:
    filled(tmp_path / "shop")
    with opened(tmp_path / "shop") as store:
        store.archive(str(tmp_path / "archive"), include_active=True)
        store.log("orders").delete_records(25)
        store.archive()
    pylog.restore(str(tmp_path / "archive"), tmp_path / "copy")
    with opened(tmp_path / "copy", "r") as store:
        assert store.log("orders").start_offset == 25
        with pytest.raises(pylog.OffsetOutOfRangeError):
            store.log("orders").read(24)
    assert [row[0] for row in rows(tmp_path / "copy")] == list(range(25, 30))


def test_a_log_whose_records_are_all_deleted_keeps_its_end(tmp_path: Path) -> None:
    filled(tmp_path / "shop")
    with opened(tmp_path / "shop") as store:
        store.log("orders").delete_records(30)
        store.archive(str(tmp_path / "archive"), include_active=True)
    pylog.restore(str(tmp_path / "archive"), tmp_path / "copy")
    with opened(tmp_path / "copy") as store:
        assert (store.log("orders").start_offset, store.log("orders").end_offset) == (30, 30)
        assert store.log("orders").append(b"next") == 30


def test_truncated_and_compacted_segments_are_replaced(tmp_path: Path) -> None:
    filled(tmp_path / "shop", cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0.0)
    archive = str(tmp_path / "archive")
    with opened(tmp_path / "shop") as store:
        store.archive(archive, include_active=True)
        store.log("orders").truncate(20)
        for _ in range(15):
            store.log("orders").append(b"other" * 20, key=b"0")
        store.archive(include_active=True)
        store.compact("orders")
        store.archive(include_active=True)
    pylog.restore(archive, tmp_path / "copy")
    assert rows(tmp_path / "copy") == rows(tmp_path / "shop")
    assert verify_archive(open_objects(archive), deep=True, orphans=True).orphans == ()


def test_records_of_an_open_transaction_are_not_archived(tmp_path: Path) -> None:
    filled(tmp_path / "shop")
    with opened(tmp_path / "shop") as store:
        with store.transaction("t", buffer_bytes=1) as transaction:
            transaction.append("orders", b"open" * 100, partition=0)
            report = store.archive(str(tmp_path / "archive"), include_active=True)
            assert store.log("orders").end_offset == 31
        assert [each.archived_end_offset for each in report.partitions if each.partition == ORDERS] == [
            store.log("orders").segments[-2].base_offset
        ]
        store.archive(include_active=True)
    pylog.restore(str(tmp_path / "archive"), tmp_path / "copy")
    assert rows(tmp_path / "copy") == rows(tmp_path / "shop")


def test_a_moment_of_the_past_can_be_restored(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    filled(tmp_path / "shop")
    archive = str(tmp_path / "archive")
    with opened(tmp_path / "shop", clock=clock) as store:
        store.archive(archive, include_active=True)
        clock.advance(10_000)
        store.create_topic("later")
        store.log("orders").append(b"later")
        store.log("orders").delete_records(5)
        store.archive(include_active=True)
    pylog.restore(archive, tmp_path / "then", as_of=NOW + 5_000)
    assert [row[0] for row in rows(tmp_path / "then")] == list(range(30))
    with opened(tmp_path / "then", "r") as store:
        assert "later" not in store.topics()
    pylog.restore(archive, tmp_path / "now")
    assert [row[0] for row in rows(tmp_path / "now")] == list(range(5, 31))
    with pytest.raises(pylog.InvalidArgumentError, match="by that time"):
        pylog.restore(archive, tmp_path / "before", as_of=NOW - 1)


def test_chosen_topics_only(tmp_path: Path) -> None:
    filled(tmp_path / "shop")
    archive = str(tmp_path / "archive")
    with opened(tmp_path / "shop") as store:
        store.create_topic("other")
        store.log("other").append(b"1")
        store.archive(archive, topics=["other"], include_active=True)
        with pytest.raises(pylog.UnknownTopicOrPartitionError):
            store.archive(topics=["nothing"])
        assert [each.partition.topic for each in pylog.restore(archive, tmp_path / "one").partitions] == ["other"]
        store.archive(include_active=True)
    pylog.restore(archive, tmp_path / "two", topics=["orders"])
    with opened(tmp_path / "two", "r") as store:
        assert list(store.topics()) == ["orders"]
    with pytest.raises(pylog.UnknownTopicOrPartitionError, match=r"it has: .*orders"):
        pylog.restore(archive, tmp_path / "three", topics=["nothing"])


# ---- whose archive it is -------------------------------------------------------------------------------------------------


def test_a_prefix_has_one_store(tmp_path: Path) -> None:
    filled(tmp_path / "shop")
    filled(tmp_path / "other")
    with opened(tmp_path / "shop") as store:
        store.archive(str(tmp_path / "archive"))
    before = sorted(each.key for each in open_objects(str(tmp_path / "archive")).list(""))
    with opened(tmp_path / "other") as store, pytest.raises(pylog.IllegalStateError, match="archive of another store"):
        store.archive(str(tmp_path / "archive"))
    assert sorted(each.key for each in open_objects(str(tmp_path / "archive")).list("")) == before


def test_a_copy_that_went_on_by_itself_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "shop")
    with opened(tmp_path / "shop") as store:
        store.archive(str(tmp_path / "archive"), include_active=True)
    shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    for name in ("shop", "copy"):
        with opened(tmp_path / name) as store:
            store.log("orders").append(name.encode())
    with opened(tmp_path / "copy") as store:
        store.archive(include_active=True)  # it was moved, as far as anybody can see
    with opened(tmp_path / "shop") as store, pytest.raises(pylog.IllegalStateError, match="another copy of this store"):
        store.archive(include_active=True)
    pylog.restore(str(tmp_path / "archive"), tmp_path / "restored")
    assert rows(tmp_path / "restored") == rows(tmp_path / "copy")


def test_a_restored_directory_continues_the_archive(tmp_path: Path) -> None:
    filled(tmp_path / "shop")
    with opened(tmp_path / "shop") as store:
        store.archive(str(tmp_path / "archive"), include_active=True)
    pylog.restore(str(tmp_path / "archive"), tmp_path / "copy")
    with opened(tmp_path / "copy") as store:
        store.log("orders").append(b"next")
        report = store.archive(include_active=True)
    assert [each.segments for each in report.partitions if each.partition == ORDERS] == [1]
    pylog.restore(str(tmp_path / "archive"), tmp_path / "again")
    assert rows(tmp_path / "again") == rows(tmp_path / "copy")


def test_an_old_copy_does_not_shorten_the_archive(tmp_path: Path) -> None:
    filled(tmp_path / "shop")
    with opened(tmp_path / "shop") as store:
        store.archive(str(tmp_path / "archive"), include_active=True)
    shutil.copytree(tmp_path / "shop", tmp_path / "old")
    with opened(tmp_path / "shop") as store:
        store.log("orders").append(b"next")
        store.archive(include_active=True)
    with opened(tmp_path / "old") as store, pytest.raises(pylog.IllegalStateError, match="another copy"):
        store.archive(include_active=True)


# ---- damage --------------------------------------------------------------------------------------------------------------


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_damaged_segment_is_reported_and_not_archived(tmp_path: Path, memory: MemoryObjects) -> None:
    filled(tmp_path / "shop")
    logs = sorted((tmp_path / "shop" / "orders-0").glob("*.log"))
    logs[1].write_bytes(flip(logs[1].read_bytes(), 300))
    with opened(tmp_path / "shop") as store:
        report = store.archive("s3://any")
    assert not report.ok
    assert [finding.path for finding in report.findings] == [str(logs[1])]
    base = int(logs[1].name[:20])
    assert next(each for each in report.partitions if each.partition == ORDERS).archived_end_offset == base
    assert not [key for key in memory.objects if f"{base:020d}-" in key and "orders" in key]
    assert [finding.kind for finding in verify_archive(memory).findings] == ["missing"]


def test_a_damaged_object_is_named_and_never_restored(tmp_path: Path, memory: MemoryObjects) -> None:
    filled(tmp_path / "shop")
    with opened(tmp_path / "shop") as store:
        store.archive("s3://any", include_active=True)
    key = sorted(key for key in memory.objects if key.endswith(".log") and key.startswith("orders"))[1]
    sound = memory.objects[key]
    memory.objects[key] = flip(sound, 200)
    assert [finding.path for finding in verify_archive(memory, deep=True).findings] == [f"{memory.url}/{key}"]
    with pytest.raises(pylog.CorruptionError, match="is damaged") as caught:
        pylog.restore("s3://any", tmp_path / "copy")
    assert (caught.value.path, caught.value.offset) == (f"{memory.url}/{key}", int(key.split("/")[2][:20]))
    with pytest.raises(pylog.IllegalStateError, match="unfinished restore"):
        opened(tmp_path / "copy")
    memory.objects[key] = sound
    pylog.restore("s3://any", tmp_path / "copy")
    assert rows(tmp_path / "copy") == rows(tmp_path / "shop")


def test_damaged_small_files_are_created_again(tmp_path: Path, memory: MemoryObjects) -> None:
    filled(tmp_path / "shop")
    with opened(tmp_path / "shop") as store:
        store.archive("s3://any", include_active=True)
    for key in [key for key in memory.objects if key.endswith(".indexes")]:
        memory.objects[key] = flip(memory.objects[key], 5) if len(key) % 2 else memory.objects[key][:-1]
    assert not verify_archive(memory, deep=True).ok
    pylog.restore("s3://any", tmp_path / "copy")
    assert rows(tmp_path / "copy") == rows(tmp_path / "shop")
    with opened(tmp_path / "copy") as store:
        assert store.verify().ok
        assert store.log("orders").offset_for_timestamp(NOW + 12).offset == 12  # type: ignore[union-attr]


def test_a_missing_object_is_found_without_reading(tmp_path: Path, memory: MemoryObjects) -> None:
    filled(tmp_path / "shop")
    with opened(tmp_path / "shop") as store:
        store.archive("s3://any")
    key = next(key for key in memory.objects if key.endswith(".log"))
    del memory.objects[key]
    assert [finding.message for finding in verify_archive(memory).findings] == [f"{memory.url}/{key} is missing"]


# ---- faults and crashes --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [BEFORE, AFTER])
def test_a_fault_at_each_request_leaves_an_archive_that_the_next_call_finishes(
    tmp_path: Path, memory: MemoryObjects, kind: str
) -> None:
    filled(tmp_path / "shop", 12)
    at = 0
    while True:
        at += 1
        memory.objects.clear()
        memory.requests.clear()
        count = iter(range(1, 10**6))
        memory.fault = lambda request, key, count=count, at=at: kind if next(count) == at else None  # type: ignore[misc]
        with opened(tmp_path / "shop") as store:
            try:
                report = store.archive("s3://any")
            except pylog.ObjectStoreError:
                report = None
            reached = len(memory.requests) >= at
            memory.fault = lambda request, key: None
            if report is None and any(key.startswith("pylog/store/0") for key in memory.objects):
                assert verify_archive(memory, deep=True).ok, at
            assert store.archive("s3://any").ok
        assert verify_archive(memory, deep=True).ok, at
        if not reached:
            break
    assert at > 10
    pylog.restore("s3://any", tmp_path / "copy")
    assert rows(tmp_path / "copy") == rows(tmp_path / "shop")[: len(rows(tmp_path / "copy"))]


def test_two_processes_of_a_store_archive_at_the_same_time(tmp_path: Path, memory: MemoryObjects) -> None:
    filled(tmp_path / "shop")
    began = []

    def other_is_faster(request: str, key: str) -> None:
        if request == "put_new" and "/partitions/orders" in key and not began:
            began.append(key)
            store.archive("s3://any")

    with opened(tmp_path / "shop") as store:
        store.archive("s3://any", topics=[])
        memory.fault = other_is_faster  # type: ignore[assignment]
        store.archive("s3://any")
    memory.fault = lambda request, key: None
    assert began
    found = verify_archive(memory, deep=True, orphans=True)
    assert found.ok
    assert found.orphans == ()
    pylog.restore("s3://any", tmp_path / "copy")
    assert len(rows(tmp_path / "copy")) > 20


@pytest.mark.parametrize("change", ["delete_records", "truncate", "compact"])
def test_a_change_of_the_log_during_an_upload_is_archived_as_it_is_afterwards(
    tmp_path: Path, memory: MemoryObjects, change: str
) -> None:
    filled(tmp_path / "shop", 40, cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0.0)
    done = []

    def changes(request: str, key: str) -> None:
        if request == "put_new" and key.startswith("orders") and key.endswith(".rsm-manifest") and not done:
            done.append(key)
            log = store.log("orders")
            {"delete_records": lambda: log.delete_records(22), "truncate": lambda: log.truncate(3)}.get(
                change, lambda: store.compact("orders")
            )()

    with opened(tmp_path / "shop") as store:
        for number in range(40):
            store.log("orders").append(b"again" * 16, key=b"%d" % number)
        memory.fault = changes  # type: ignore[assignment]
        assert store.archive("s3://any", include_active=True).ok
    memory.fault = lambda request, key: None
    assert done
    found = verify_archive(memory, deep=True, orphans=True)
    assert found.ok
    assert found.orphans == ()
    pylog.restore("s3://any", tmp_path / "copy")
    restored = rows(tmp_path / "copy")
    assert restored == rows(tmp_path / "shop")[: len(restored)]


def _dying_at(count: int, *, after: bool) -> Callable[..., Any]:
    """Kills the process at the request with a number, before or after it is carried out."""
    calls = iter(range(1, 10**6))

    def dying(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            number = next(calls)
            if number == count and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return method(*arguments)
            finally:
                if number == count:
                    os.kill(os.getpid(), signal.SIGKILL)

        return call

    return dying


def _killed(path: Path, archive: str, count: int, *, after: bool) -> bool:
    """Archives in a child that is killed at a request. Returns whether it was."""
    child = os.fork()
    if child == 0:
        dying = _dying_at(count, after=after)
        DirectoryObjects.put_new = dying(DirectoryObjects.put_new)  # type: ignore[method-assign]
        DirectoryObjects.put_if = dying(DirectoryObjects.put_if)  # type: ignore[method-assign]
        with opened(path) as store:
            store.archive(archive, topics=["orders"])
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("after", [False, True])
def test_kill_9_at_each_write_leaves_an_archive_that_the_next_call_finishes(tmp_path: Path, after: bool) -> None:
    filled(tmp_path / "shop", 12)
    archive, count = str(tmp_path / "archive"), 0
    while True:
        count += 1
        shutil.rmtree(tmp_path / "archive", ignore_errors=True)
        (tmp_path / "shop" / "pylog-archive.json").unlink(missing_ok=True)
        killed = _killed(tmp_path / "shop", archive, count, after=after)
        objects = open_objects(archive)
        if any("pylog/store/0" in each.key for each in objects.list("pylog/")):
            assert verify_archive(objects, deep=True).ok, count
        if not killed:
            break
    assert count > 8
    with opened(tmp_path / "shop") as store:
        assert store.archive(archive).ok
    pylog.restore(archive, tmp_path / "copy")
    assert verify_archive(open_objects(archive), deep=True).ok


def test_a_restore_continues_after_a_failure_at_each_request(tmp_path: Path, memory: MemoryObjects) -> None:
    filled(tmp_path / "shop", 12)
    with opened(tmp_path / "shop") as store:
        store.archive("s3://any", include_active=True)
    expected, at, failed = logs_of(tmp_path / "shop"), 0, True
    while failed:
        at += 1
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        count = iter(range(1, 10**6))
        memory.fault = lambda request, key, count=count, at=at: BEFORE if next(count) == at else None  # type: ignore[misc]
        failed = False
        try:
            pylog.restore("s3://any", tmp_path / "copy")
        except pylog.ObjectStoreError:
            failed = True
        memory.fault = lambda request, key: None
        if at % 4 == 1 or not failed:
            if failed:
                pylog.restore("s3://any", tmp_path / "copy")
            assert logs_of(tmp_path / "copy").items() >= {k: v for k, v in expected.items() if k.startswith("orders")}.items()
    assert at > 8


# ---- the directory of a restore ------------------------------------------------------------------------------------------


def test_a_directory_with_files_is_not_restored_into(tmp_path: Path, memory: MemoryObjects) -> None:
    filled(tmp_path / "shop")
    with opened(tmp_path / "shop") as store:
        store.archive("s3://any", include_active=True)
    with pytest.raises(pylog.InvalidArgumentError, match="not empty"):
        pylog.restore("s3://any", tmp_path / "shop")
    (tmp_path / "empty").mkdir()
    pylog.restore("s3://any", tmp_path / "empty")
    assert rows(tmp_path / "empty") == rows(tmp_path / "shop")


def test_an_unfinished_restore_of_something_else_is_not_continued(tmp_path: Path, memory: MemoryObjects) -> None:
    filled(tmp_path / "shop")
    with opened(tmp_path / "shop") as store:
        store.archive("s3://any", include_active=True)
    memory.fault = lambda request, key: BEFORE if request == "get_range" else None
    with pytest.raises(pylog.ObjectStoreError):
        pylog.restore("s3://any", tmp_path / "copy")
    memory.fault = lambda request, key: None
    with pytest.raises(pylog.InvalidArgumentError, match="other arguments"):
        pylog.restore("s3://any", tmp_path / "copy", topics=["orders"])
    pylog.restore("s3://any", tmp_path / "copy")


@pytest.mark.slow
def test_the_settings_have_the_url_and_no_credentials(
    tmp_path: Path, s3_url: str, s3_options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    secret = s3_options["credentials"]()["secret_access_key"]
    filled(tmp_path / "shop", 12)
    with opened(tmp_path / "shop") as store, caplog.at_level("DEBUG", logger="pylog"):
        assert store.archive(s3_url, include_active=True, **s3_options).ok
        report = pylog.restore(s3_url, tmp_path / "copy", **s3_options)
        assert secret not in repr(report)
    assert rows(tmp_path / "copy") == rows(tmp_path / "shop")
    settings = json.loads((tmp_path / "shop" / "pylog-archive.json").read_text())
    assert settings["url"] == s3_url
    every = [each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()]
    assert not [data for data in every if secret.encode() in data or b"tester" in data]
    assert secret not in caplog.text


def test_without_a_url_the_first_one_is_used(tmp_path: Path) -> None:
    filled(tmp_path / "shop", 12)
    with opened(tmp_path / "shop") as store:
        with pytest.raises(pylog.InvalidArgumentError, match="has no archive yet"):
            store.archive()
        first = store.archive(str(tmp_path / "one"))
        assert store.archive(str(tmp_path / "two")).segments == first.segments
        assert store.archive().url == first.url
    with opened(tmp_path / "shop", "r") as store, pytest.raises(pylog.ReadOnlyError):
        store.archive()


def test_progress_and_rate_limit(tmp_path: Path, memory: MemoryObjects) -> None:
    filled(tmp_path / "shop")
    clock, seen = ManualClock(NOW), []
    with opened(tmp_path / "shop", clock=clock) as store:
        report = store.archive("s3://any", rate_limit=1000, progress=lambda *given: seen.append(given))
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert seen[-1][0] == seen[-1][1] == report.bytes
    assert report.seconds >= report.bytes / 1000 - 0.1
