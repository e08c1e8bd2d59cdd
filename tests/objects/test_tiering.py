"""Tiering: sealed segments go to the archive and then from the disk, and no reader can tell."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import ProducerBatch
from pylog.clock import ManualClock
from pylog.errors import (
    IllegalStateError,
    InvalidArgumentError,
    ObjectStoreError,
    ObjectStoreUnavailableError,
    OffsetOutOfRangeError,
)
from pylog.testing import MemoryFileSystem
from pylog.tools.compare import compare
from pylog.tools.graduate import plan_graduation
from support.cli import call
from support.objects import AFTER, BEFORE, MemoryObjects

DAY_MS = 86_400_000
TIERED: dict[str, Any] = {"remote_storage_enable": True, "local_retention_bytes": 0, "retention_ms": -1, "segment_bytes": 1000}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def cloud() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def fs(clock: ManualClock) -> MemoryFileSystem:
    return MemoryFileSystem(clock=clock)


Open = Callable[..., pylog.Store]


@pytest.fixture
def opened(fs: MemoryFileSystem, cloud: MemoryObjects, clock: ManualClock) -> Iterator[Open]:
    """Opens the store of the test. Closes all that were opened."""
    stores = []

    def call(mode: str = "rw", **options: Any) -> pylog.Store:
        stores.append(pylog.open("/shop", mode, **{"archive": cloud, "fs": fs, "clock": clock, **options}))
        return stores[-1]

    yield call
    for store in stores:
        store.close()


def fill(log: pylog.Log, count: int, size: int = 90) -> None:
    for _ in range(count):
        log.append(b"%d" % log.end_offset + b"x" * size)


def tiered(opened: Open, count: int = 60, **options: Any) -> tuple[pylog.Store, pylog.Log]:
    store = opened()
    store.create_topic("t", **TIERED | options)
    log = store.log("t")
    fill(log, count)
    store.tick()
    return store, log


def offsets(log: pylog.Log, *bounds: int, **options: Any) -> list[int]:
    return [record.offset for record in log.records(*bounds, **options)]


# ---- reading -----------------------------------------------------------------------------------------------------------------


@pytest.mark.pair("scan and follow", "time search", "retention by size")
def test_a_tiered_log_reads_as_one_that_was_never_tiered(opened: Open, fs: MemoryFileSystem, clock: ManualClock) -> None:
    with pylog.open("/plain", fs=fs, clock=clock) as plain:
        plain.create_topic("t", retention_ms=-1, segment_bytes=1000)
        store = opened()
        store.create_topic("t", **TIERED)
        for number in range(60):
            clock.advance(1)
            for each in (plain, store):
                each.log("t").append(b"%d" % number + b"x" * (number % 90), key=b"k%d" % (number % 3), headers=[("h", b"1")])
            if number % 20 == 0:
                store.tick()
        store.tick()
        log, other = store.log("t"), plain.log("t")
        assert 0 < log.local_start_offset < log.end_offset
        assert (log.start_offset, log.archived_end_offset) == (0, log.local_start_offset)
        with pylog.open("/plain", "r", fs=fs, clock=clock) as left, opened("r") as right:
            (found,) = compare(left, right, topics=["t"]).topics[0].partitions
            assert (found.equal, found.differing, found.ends) == (60, 0, ((0, 60), (0, 60)))
        for number in range(60):
            assert log.read(number) == other.read(number)
            stamp = other.read(number).timestamp
            assert log.offset_for_timestamp(stamp) == other.offset_for_timestamp(stamp)
        middle = log.local_start_offset
        assert offsets(log, middle - 3, middle + 3) == list(range(middle - 3, middle + 3))
        assert [batch.num_rows for batch in log.scan(5, 55)] == [50]


@pytest.mark.pair("aborted transactions", "scan and follow")
def test_aborted_transactions_are_hidden_although_their_markers_are_in_the_other_tier(opened: Open) -> None:
    store, log = tiered(opened, 0, segment_bytes=400)
    sent = {}
    for number in range(12):
        transaction = store.transaction("id")
        transaction.append("t", b"%d" % number + b"x" * 200)
        if number % 3:
            transaction.commit()
            sent[number] = log.end_offset - 2
        else:
            transaction.abort()
    store.tick()
    assert log.local_start_offset > 0
    assert [int(record.value[:2].strip(b"x") or 0) for record in log.records(isolation_level="read_committed")] == list(sent)
    with opened("r") as reader:
        assert len(list(reader.log("t").records(isolation_level="read_committed"))) == len(sent)


@pytest.mark.pair("idempotence", "crash")
@pytest.mark.parametrize("after", ["kill", "repair"])
def test_a_producer_is_known_although_its_last_batch_has_left_the_disk(tmp_path: Path, after: str) -> None:
    url = f"file://{tmp_path}/cloud"
    with pylog.open(tmp_path / "shop", archive=url) as store:
        store.create_topic("t", **TIERED)
        sent = [store.log("t").append_batch([b"x" * 90], producer=ProducerBatch(7, 0, number)) for number in range(3)]
        fill(store.log("t"), 20)
        store.tick()
        assert store.log("t").local_start_offset > sent[-1].offsets.stop
        left = shutil.copytree(tmp_path / "shop", tmp_path / "left")  # without the snapshot that `close` writes
    if after == "repair":
        last = max((left / "t-0").glob("*.log"))
        data = last.read_bytes()
        last.write_bytes(data[:100] + b"?" + data[101:])  # the first of several batches
        assert call("repair", "skip", str(left), "--execute").code == 0
    with pylog.open(left, archive=url) as store:
        assert store.log("t").append_batch([b"x" * 90], producer=ProducerBatch(7, 0, 2)) == sent[-1]._replace(duplicate=True)
        assert store.verify().ok


@pytest.mark.pair("aborted transactions", "crash")
def test_an_aborted_transaction_begins_where_it_began_although_its_beginning_has_left_the_disk(
    opened: Open, fs: MemoryFileSystem
) -> None:
    store, log = tiered(opened, 0, segment_bytes=400)
    transaction = store.transaction("id")
    for _ in range(2):
        transaction.append("t", b"x" * 250)
        transaction.flush()
    transaction.abort()
    store.tick()
    assert log.local_start_offset == 1
    with opened(fs=MemoryFileSystem(image=fs.image())) as again:  # replays the rest of the transaction
        again.log("t").append(b"y" * 90)
        assert again.verify(records=True).findings == ()


def test_an_open_transaction_keeps_its_segment_out_of_the_archive(opened: Open) -> None:
    store, log = tiered(opened, 20)
    before = log.archived_end_offset
    with store.producer(transactional_id="id") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"open")
        producer.flush()
        first_open = log.end_offset - 1
        fill(log, 30)
        store.tick()
        assert before is not None
        assert before <= (log.archived_end_offset or 0) <= first_open
        producer.commit_transaction()
    store.tick()
    assert (log.archived_end_offset or 0) > first_open


def test_a_consumer_reads_across_the_border(opened: Open) -> None:
    store, log = tiered(opened)
    assert log.local_start_offset > 0
    seen: list[int] = []
    with store.consumer("t", group_id="g", auto_offset_reset="earliest") as consumer:
        while len(seen) < 60:
            seen += [record.offset for records in consumer.poll(timeout_ms=100).values() for record in records]
    assert seen == list(range(60))


@pytest.mark.pair("second process", "scan and follow")
def test_a_reader_that_was_open_follows_a_retirement_by_another_process(opened: Open, fs: MemoryFileSystem) -> None:
    store = opened()
    store.create_topic("t", **TIERED)
    fill(store.log("t"), 60)
    reader, beside = opened("r", fs=fs.process()).log("t"), opened(fs=fs.process()).log("t")
    half = reader.records()
    assert [next(half).offset for _ in range(5)] == list(range(5))
    store.tick()
    assert [record.offset for record in half] == list(range(5, 60))
    for log in (reader, beside):
        assert log.local_start_offset > 0
        assert offsets(log) == list(range(60))
    beside.append(b"more")
    assert offsets(reader) == offsets(store.log("t")) == list(range(61))


@pytest.mark.pair("close", "second process")
def test_an_append_after_reopening_keeps_the_log_start_of_the_archive(opened: Open) -> None:
    store, _ = tiered(opened)
    store.close()
    again = opened()
    again.log("t").append(b"more")
    with opened("r") as reader:
        assert (reader.log("t").start_offset, offsets(reader.log("t"))) == (0, list(range(61)))
    again.close()
    with opened("r") as reader:
        assert offsets(reader.log("t")) == list(range(61))


def test_without_the_archive_local_records_are_read_and_others_raise_one_error_with_offset_and_url(
    opened: Open, cloud: MemoryObjects
) -> None:
    store, log = tiered(opened)
    cloud.fault = lambda request, key: BEFORE
    with opened("r") as reader:
        for each in (log, reader.log("t")):
            start = each.local_start_offset
            assert each.start_offset == 0
            assert offsets(each, start, 60) == list(range(start, 60))
            for read in (lambda each=each: each.read(3), lambda each=each: list(each.scan())):
                with pytest.raises(ObjectStoreUnavailableError, match=r"offsets 0 to \d+ of t-0.*memory://archive"):
                    read()
    log.append(b"goes on")
    store.tick()


def test_without_its_copy_of_the_manifest_a_log_asks_the_archive_and_never_starts_later(
    opened: Open, cloud: MemoryObjects, fs: MemoryFileSystem
) -> None:
    store, _ = tiered(opened)
    store.close()
    fs.remove("/shop/t-0/archived-segments")
    cloud.fault = lambda request, key: BEFORE
    with opened() as cut_off:
        assert cut_off.log("t").start_offset == 0
        with pytest.raises(ObjectStoreError, match="only in the archive"):
            cut_off.log("t").read(0)
    cloud.fault = lambda request, key: None
    with opened() as again:
        assert offsets(again.log("t")) == list(range(60))


# ---- uploads and retirement ------------------------------------------------------------------------------------------------


def test_a_failed_upload_is_logged_once_counted_and_tried_again(
    opened: Open, cloud: MemoryObjects, caplog: pytest.LogCaptureFixture
) -> None:
    store, log = tiered(opened, 0)
    fill(log, 30)
    cloud.fault = lambda request, key: BEFORE if request == "put_new" else None
    with caplog.at_level(logging.INFO, "pylog.archive"):
        store.tick()
        store.tick()
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    assert log.local_start_offset == 0
    cloud.fault = lambda request, key: None
    store.tick()
    assert log.local_start_offset > 0
    values = {sample.name: sample.value for sample in store.metrics() if sample.labels.get("topic") == "t"}
    assert values["log_upload_failures"] == 2
    assert values["log_upload_lag_bytes"] == 0


def test_a_local_segment_stays_if_its_object_is_missing_or_short(opened: Open, cloud: MemoryObjects) -> None:
    store, log = tiered(opened, 40, local_retention_bytes=-1)
    assert log.local_start_offset == 0
    key = min(key for key in cloud.objects if key.endswith(".log"))
    store.alter_topic("t", local_retention_bytes=0)
    for damaged in (cloud.objects[key][:-1], None):
        whole = cloud.objects.pop(key)
        if damaged is not None:
            cloud.objects[key] = damaged
        store.tick()
        assert log.local_start_offset == 0
        cloud.objects[key] = whole
    store.tick()
    assert log.local_start_offset > 0


def test_a_local_segment_stays_if_the_newest_manifest_does_not_name_it(opened: Open, cloud: MemoryObjects) -> None:
    store, log = tiered(opened, 40, local_retention_bytes=-1)
    for key in [key for key in cloud.objects if "/partitions/" in key]:
        del cloud.objects[key]  # all versions: the copy in the directory is all that names the segments
    store.alter_topic("t", local_retention_bytes=0)
    store.tick()
    assert offsets(log) == list(range(40))
    assert log.local_start_offset == 0 or any("/partitions/" in key for key in cloud.objects)


def test_a_damaged_segment_is_not_archived(opened: Open, cloud: MemoryObjects, fs: MemoryFileSystem) -> None:
    store, log = tiered(opened, 0)
    fill(log, 30)
    first = log.segments[0]
    file = fs.open(first.path, write=True)
    file.write(memoryview(b"\xff"), first.size - 5)
    file.close()
    store.tick()
    assert not [key for key in cloud.objects if key.endswith(".log")]
    assert log.local_start_offset == 0


@pytest.mark.pair("retention by time", "timestamps")
def test_local_retention_by_time_keeps_young_segments(opened: Open, clock: ManualClock) -> None:
    store, log = tiered(opened, 30, local_retention_bytes=-2, local_retention_ms=DAY_MS)
    assert (log.local_start_offset, log.archived_end_offset) == (0, log.segments[-1].base_offset)
    clock.advance(2 * DAY_MS)
    fill(log, 30)
    store.tick()
    assert 0 < log.local_start_offset <= 30
    assert offsets(log) == list(range(60))


@pytest.mark.pair("second process", "close")
def test_two_processes_that_tick_archive_each_segment_once(opened: Open, cloud: MemoryObjects, fs: MemoryFileSystem) -> None:
    store, log = tiered(opened, 20)
    other = opened(fs=fs.process())
    for _ in range(4):
        fill(log, 10)
        other.tick()
        store.tick()
    assert offsets(log) == offsets(other.log("t")) == list(range(60))
    bases = [key.rpartition("/")[2][:20] for key in cloud.objects if key.endswith(".log")]
    assert len(bases) == len(set(bases))


# ---- deleting ----------------------------------------------------------------------------------------------------------------


@pytest.mark.pair("delete_records", "close")
def test_delete_records_below_the_border_holds_after_reopening_and_frees_the_archive_after_the_delay(
    opened: Open, cloud: MemoryObjects, clock: ManualClock
) -> None:
    store, log = tiered(opened)
    logs = sum(key.endswith(".log") for key in cloud.objects)
    assert log.delete_records(25) == 25
    store.close()
    with opened() as again:
        log = again.log("t")
        assert (log.start_offset, offsets(log)) == (25, list(range(25, 60)))
        with pytest.raises(OffsetOutOfRangeError):
            log.read(24)
        again.tick()
        assert sum(key.endswith(".log") for key in cloud.objects) == logs
        clock.advance(DAY_MS + 1)
        again.tick()
        assert sum(key.endswith(".log") for key in cloud.objects) < logs
        assert offsets(log) == list(range(25, 60))


def test_delete_records_changes_nothing_if_the_archive_cannot_be_reached(opened: Open, cloud: MemoryObjects) -> None:
    _, log = tiered(opened)
    cloud.fault = lambda request, key: BEFORE
    with pytest.raises(ObjectStoreError):
        log.delete_records(25)
    assert log.start_offset == 0


@pytest.mark.pair("retention by size", "option change")
def test_retention_counts_both_tiers(opened: Open, cloud: MemoryObjects, clock: ManualClock) -> None:
    store, log = tiered(opened)
    assert log.local_start_offset > 30
    store.alter_topic("t", retention_bytes=3000)
    store.tick()
    kept = sum(segment.size for segment in log.segments)
    assert 3000 <= kept < 4000
    assert offsets(log) == list(range(log.start_offset, 60))
    clock.advance(DAY_MS + 1)
    store.tick()
    assert sum(len(data) for key, data in cloud.objects.items() if key.endswith(".log")) <= kept


@pytest.mark.pair("retention by time", "delete_records")
def test_retention_by_time_deletes_archived_segments(opened: Open, clock: ManualClock) -> None:
    store, log = tiered(opened, 30, retention_ms=3 * DAY_MS, local_retention_ms=0)
    clock.advance(2 * DAY_MS)
    fill(log, 30)
    store.tick()
    assert log.start_offset == 0
    clock.advance(2 * DAY_MS)
    store.tick()
    assert 18 < log.start_offset <= 30
    assert offsets(log) == list(range(log.start_offset, 60))


@pytest.mark.pair("truncation", "retention by size")
def test_truncation_takes_what_it_deletes_out_of_the_archive_first(opened: Open, cloud: MemoryObjects) -> None:
    store, log = tiered(opened, 60, local_retention_bytes=2500)
    end = log.local_start_offset + 3
    assert end < (log.archived_end_offset or 0)
    log.truncate(end)
    assert (log.archived_end_offset or 0) <= end
    fill(log, 40, size=80)
    store.tick()
    assert offsets(log) == list(range(end + 40))
    assert all(record.value.endswith(b"x" * 80) for record in log.records(end))


def test_truncation_below_the_border_is_refused(opened: Open) -> None:
    _, log = tiered(opened)
    with pytest.raises(OffsetOutOfRangeError):
        log.truncate(log.local_start_offset - 1)


def test_a_deleted_topic_leaves_the_archive_after_the_delay(opened: Open, cloud: MemoryObjects, clock: ManualClock) -> None:
    store, log = tiered(opened)
    store.delete_topic("t")
    store.create_topic("t", **TIERED)
    log = store.log("t")
    fill(log, 30)
    store.tick()
    assert offsets(log) == list(range(30))
    count = sum(key.endswith(".log") for key in cloud.objects)
    clock.advance(DAY_MS + 1)
    store.tick()
    assert sum(key.endswith(".log") for key in cloud.objects) < count
    assert offsets(log) == list(range(30))


# ---- options -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cleanup_policy": "compact"}, "cleanup_policy"),
        ({"retention_ms": 5, "local_retention_ms": 6}, "local_retention_ms=6"),
        ({"retention_bytes": 5, "local_retention_bytes": -1}, "local_retention_bytes=-1"),
        ({"local_retention_ms": -3}, "local_retention_ms"),
        ({"remote_storage_enable": 1}, "remote_storage_enable"),
    ],
)
def test_contradicting_options_are_refused(opened: Open, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        opened().create_topic("t", **{"remote_storage_enable": True, "retention_ms": -1} | options)


def test_a_tiered_topic_cannot_become_compacted_or_leave_its_records_in_the_archive(opened: Open) -> None:
    store, log = tiered(opened)
    with pytest.raises(InvalidArgumentError, match="compact"):
        store.alter_topic("t", cleanup_policy="compact")
    with pytest.raises(InvalidArgumentError, match="remote_log_delete_on_disable"):
        store.alter_topic("t", remote_storage_enable=False)
    start = log.local_start_offset
    store.alter_topic("t", remote_storage_enable=False, remote_log_delete_on_disable=True)
    store.tick()
    assert (log.start_offset, offsets(log)) == (start, list(range(start, 60)))
    store.close()
    with opened() as again:
        assert offsets(again.log("t")) == list(range(start, 60))


def test_with_copying_disabled_nothing_is_uploaded_and_the_archive_is_read_and_retained(
    opened: Open, cloud: MemoryObjects, clock: ManualClock
) -> None:
    store, log = tiered(opened, remote_delete_delay_ms=0)
    archived, local = log.archived_end_offset, log.local_start_offset
    with pytest.raises(InvalidArgumentError, match="local_retention_bytes=0 and retention_bytes=-1"):
        store.alter_topic("t", remote_log_copy_disable=True)
    store.alter_topic("t", remote_log_copy_disable=True, local_retention_bytes=-2)
    fill(log, 60)
    before = set(cloud.objects)
    store.tick()
    assert set(cloud.objects) == before
    assert (log.archived_end_offset, log.local_start_offset) == (archived, local)
    assert offsets(log) == [*range(120)]
    store.alter_topic("t", retention_bytes=9000)
    store.tick()
    clock.advance(1)
    store.tick()
    assert log.start_offset > local
    assert not [key for key in cloud.objects if key.endswith(".log")]
    store.alter_topic("t", retention_bytes=-1, remote_log_copy_disable=False)
    store.tick()
    assert log.archived_end_offset == log.segments[-1].base_offset


def test_a_store_without_an_archive_refuses_a_tiered_topic(fs: MemoryFileSystem) -> None:
    with pylog.open("/other", fs=fs) as store, pytest.raises(InvalidArgumentError, match="archive="):
        store.create_topic("t", remote_storage_enable=True)


def test_the_url_is_kept_and_another_one_is_refused(tmp_path: Path) -> None:
    with pylog.open(tmp_path / "shop", archive=str(tmp_path / "cloud")) as store:
        store.create_topic("t", **TIERED)
        fill(store.log("t"), 30)
        store.tick()
    with pytest.raises(IllegalStateError, match="cloud"):
        pylog.open(tmp_path / "shop", archive=str(tmp_path / "elsewhere"))
    for mode in ("rw", "r"):
        with pylog.open(tmp_path / "shop", mode) as store:
            assert store.log("t").local_start_offset > 0
            assert offsets(store.log("t")) == list(range(30))


def test_an_answer_that_was_lost_archives_a_segment_once(opened: Open, cloud: MemoryObjects) -> None:
    store, log = tiered(opened, 0)
    fill(log, 30)
    cloud.fault = lambda request, key: AFTER if request.startswith("put") else None
    for _ in range(6):
        store.tick()
    cloud.fault = lambda request, key: None
    store.tick()
    assert offsets(log) == list(range(30))
    assert store.verify().ok


def test_the_catalogue_of_a_topic_is_written_at_most_once_a_minute(
    opened: Open, cloud: MemoryObjects, clock: ManualClock
) -> None:
    store, log = tiered(opened)

    def written() -> int:
        return sum("/catalogue/" in key and key.endswith(".parquet") for key in cloud.objects)

    for _ in range(3):
        fill(log, 10)
        store.tick()
    assert written() == 1
    clock.advance(61_000)
    store.tick()
    assert written() == 2
    before = len(cloud.requests)
    store.tick()
    assert len(cloud.requests) == before  # nothing was due


def test_a_brokers_directory_is_not_tiered_and_a_tiered_one_does_not_become_a_brokers(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    with pylog.open(root, archive=str(tmp_path / "cloud")) as store:
        store.create_topic("t", **TIERED)
        store.create_topic("u")
        fill(store.log("t"), 30)
        store.tick()
    with pytest.raises(IllegalStateError, match="only in the archive"):
        plan_graduation(root)
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=8SSgzKVaS0qTG9g3Uu47gg\n")
    with pylog.open(root) as store, pytest.raises(InvalidArgumentError, match="broker"):
        store.alter_topic("u", remote_storage_enable=True)


# ---- commands and the other ways into an archive ------------------------------------------------------------------------------


def test_commands_show_and_check_both_tiers(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    with pylog.open(root, archive=str(tmp_path / "cloud")) as store:
        store.create_topic("t", **TIERED)
        fill(store.log("t"), 30)
        store.tick()
        local = store.log("t").local_start_offset
    shown = json.loads(call("describe", root, "t", "--json").text)["partitions"][0]
    assert (shown["local_start_offset"], shown["archived_end_offset"], shown["not_archived_bytes"]) == (local, local, 0)
    assert shown["bytes"] == shown["local_bytes"] + shown["archived_bytes"]
    assert [part["state"] for part in shown["segments"]] == ["archived"] * (len(shown["segments"]) - 1) + ["active"]
    assert "remote.storage.enable=true" in call("describe", root, "t").text
    assert call("verify", root).code == 0
    counted = json.loads(call("stats", root, "t", "--json").text)["topics"][0]
    assert (counted["records"], counted["bytes"]) == (30, shown["bytes"])
    assert call("cat", root, "t").text.count("\n") == 30


def test_a_run_of_archive_keeps_what_only_the_archive_has(tmp_path: Path) -> None:
    root, cloud = tmp_path / "shop", str(tmp_path / "cloud")
    with pylog.open(root, archive=cloud) as store:
        store.create_topic("t", **TIERED)
        log = store.log("t")
        fill(log, 30)
        store.tick()
        assert log.local_start_offset > 0
        assert store.archive(include_active=True).not_archived == 0
        assert store.archive(str(tmp_path / "second")).not_archived == 0
        store.tick()
        assert (log.local_start_offset, offsets(log)) == (30, list(range(30)))
    for number, url in enumerate((cloud, str(tmp_path / "second"))):
        pylog.restore(url, tmp_path / f"copy-{number}")
        with pylog.open(tmp_path / f"copy-{number}", "r") as copy:
            assert offsets(copy.log("t")) == list(range(30))
