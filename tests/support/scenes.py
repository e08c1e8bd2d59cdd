"""Scenes: for each event of `pylog.trace`, something that produces it."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import pylog
from pylog import Durability, OffsetsConfig, TopicPartition
from pylog.clock import ManualClock
from pylog.fs import OsFileSystem, parent_process
from pylog.spark.commit import CommitOptions, StoreAccess, commit_batch, commit_job
from pylog.staging.intents import Intent, PartitionIntent, write_intent
from pylog.staging.names import StagingName
from pylog.testing import MemoryFileSystem
from pylog.tools.graduate import carry_out, plan_graduation, take_back
from pylog.tools.repair import repair
from support.faults.faulty_fs import Faults, FaultyFileSystem
from support.faults.repairs import variant
from support.spark.staged import QUERY, stage
from support.transactional import FEW_TRANSACTIONS, left_open

NOW = 1_700_000_000_000

Scene = Callable[[Path], None]

SCENES: dict[str, Scene] = {}


def scene(*names: str) -> Callable[[Scene], Scene]:
    """What produces some events, by the names that they have in `pylog.trace`."""

    def note(function: Scene) -> Scene:
        SCENES.update(dict.fromkeys(names, function))
        return function

    return note


def opened(path: Path, **options: Any) -> pylog.Store:
    few = OffsetsConfig(topic_num_partitions=1)
    return pylog.open(path, clock=options.pop("clock", ManualClock(NOW)), durability=Durability.OS, offsets=few, **options)


def orders_of(store: pylog.Store) -> pylog.Log:
    """The log of a new topic."""
    store.create_topic("orders")
    return store.log("orders")


def fill(log: pylog.Log, count: int = 10, **given: Any) -> None:
    for _ in range(count):
        log.append(b"x" * 100, **given)


@scene("STORE_OPENED", "STORE_CLOSED", "TOPIC_CREATED", "TOPIC_ALTERED", "PARTITIONS_ADDED", "PARTITION_DELETED", "TOPIC_DELETED")
def a_topic_lives(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", partition_count=2, retention_ms=1000)
        fill(store.log("orders"))
        store.alter_topic("orders", retention_ms=None, segment_bytes=5000)
        store.add_partitions("orders", 3)
        store.delete_topic("orders")


@scene("STORE_UNCLEAN", "TORN", "TORN_KEPT", "RECOVERED")
def a_write_is_cut_off(path: Path) -> None:
    with opened(path) as store:
        fill(orders_of(store))
    (path / ".kafka_cleanshutdown").unlink()
    with (path / "orders-0" / f"{0:020}.log").open("ab") as file:
        file.write((10).to_bytes(8, "big") + b"garbage")
    with opened(path) as store:
        fill(store.log("orders"), 1)


@scene("TOPIC_COMPACTED")
def a_topic_becomes_compact(path: Path) -> None:
    with opened(path) as store:
        fill(orders_of(store))
        store.alter_topic("orders", cleanup_policy="compact")


@scene("PARTITION_COMPLETED")
def a_partition_is_completed(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", partition_count=2)
    (path / "orders-1" / "partition.metadata").unlink()
    (path / "orders-1").rmdir()
    opened(path).close()


@scene("PARTITION_CREATED_AGAIN", "BEGUN_AGAIN")
def a_partition_is_removed(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        fill(store.log("orders"))
    shutil.rmtree(path / "orders-0")
    with opened(path) as store:
        fill(store.log("orders"))


@scene("DELETION_FINISHED")
def a_deletion_is_finished(path: Path) -> None:
    _stop_in_deletion(path)
    opened(path).close()


def _stop_in_deletion(path: Path) -> None:
    class Stopping(OsFileSystem):
        def remove_tree(self, path: str) -> None:
            raise pylog.StorageFailedError(f"{path}: stopped", path=path, errno=5)

    store = opened(path, fs=Stopping())
    store.create_topic("orders")
    fill(store.log("orders"))
    with pytest.raises(pylog.StorageFailedError):
        store.delete_topic("orders")
    store.close()


@scene("DELETION_DELAYED")
def a_deletion_is_delayed(path: Path) -> None:
    _stop_in_deletion(path)

    class Stopping(OsFileSystem):
        def remove_tree(self, path: str) -> None:
            raise pylog.StorageFailedError(f"{path}: stopped", path=path, errno=5)

    opened(path, fs=Stopping()).close()


@scene("CHANGES_DELAYED")
def the_disk_is_full_at_an_opening(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", partition_count=2)
    for file in (path / "orders-1").iterdir():
        file.unlink()
    (path / "orders-1").rmdir()

    class Full(OsFileSystem):
        def make_directory(self, path: str) -> None:
            raise pylog.StorageFailedError(f"{path}: the disk is full", path=path, errno=28)

    opened(path, fs=Full()).close()


@scene("EPOCHS_LEFT_OUT")
def the_disk_is_full_during_a_retention(path: Path) -> None:
    class Full(OsFileSystem):
        def create(self, path: str) -> Any:
            if "leader-epoch" in path and full:
                raise pylog.StorageFailedError(f"{path}: the disk is full", path=path, errno=28)
            return super().create(path)

    full = False
    with opened(path, fs=Full()) as store:
        store.create_topic("orders", segment_bytes=500)
        fill(store.log("orders"))
        full = True
        store.log("orders").delete_records(before=store.log("orders").end_offset)


@scene("TOPICS_DROPPED")
def a_broker_has_deleted_a_topic(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
    (path / "orders-0" / "partition.metadata").unlink()
    (path / "orders-0").rmdir()
    (path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
    opened(path).close()


@scene("LEFTOVERS_REMOVED")
def a_leftover_is_removed(path: Path) -> None:
    opened(path).close()
    (path / "recovery-point-offset-checkpoint.tmp").write_text("0\n")
    opened(path).close()


@scene("START_RAISED", "SEGMENTS_DELETED")
def retention_deletes(path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(path, clock=clock) as store:
        store.create_topic("orders", segment_bytes=200, retention_ms=1000, retention_bytes=1000)
        fill(store.log("orders"))
        store.log("orders").delete_records(2)
        store.tick()
        clock.advance(60_000)
        store.tick()


@scene("GROUP_AWAITED", "GROUP_AWAITED_NO_MORE")
def retention_waits_for_a_group(path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(path, clock=clock) as store:
        store.create_topic("orders", segment_bytes=200, retention_ms=1000, retention_group="billing")
        fill(store.log("orders"))
        clock.advance(60_000)
        store.tick()
        store.offsets.commit("billing", {("orders", 0): store.log("orders").end_offset})
        store.tick()


@scene("CLEANED")
def compaction_cleans(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("prices", segment_bytes=200, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
        fill(store.log("prices"), key=b"k")
        store.tick()


@scene("CLEANING_ENDED", "UNCLEANABLE")
def compaction_meets_damage(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("prices", segment_bytes=200, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0)
        fill(store.log("prices"), key=b"k")
    file = path / "prices-0" / f"{0:020}.log"
    file.write_bytes(file.read_bytes()[:-20] + b"?" * 20)
    store = opened(path)
    with pytest.raises(pylog.CorruptionError):
        store.tick()
    store.close()


@scene("TRUNCATED", "CHECKPOINT_LOWERED", "FILES_REMOVED", "SNAPSHOTS_REMOVED")
def a_log_is_truncated(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", segment_bytes=200)
        fill(store.log("orders"))
    with opened(path) as store:
        store.log("orders").truncate(3)


@scene("EPOCHS_CUT")
def a_log_is_truncated_below_its_epoch(path: Path) -> None:
    with opened(path) as store:
        fill(orders_of(store))
    (path / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 5\n")
    with opened(path) as store:
        store.log("orders").truncate(3)


@scene("WRITING_FAILED")
def a_sync_fails(path: Path) -> None:
    fs = FaultyFileSystem()
    store = pylog.open(path, fs=fs, clock=ManualClock(NOW))
    store.create_topic("orders")
    store.log("orders").append(b"x")
    fs.faults = Faults({"sync": {1}})
    with pytest.raises(pylog.StorageFailedError):
        store.log("orders").append(b"x")
    store.close()


@scene("DIRECTORY_REPLACED")
def a_directory_is_removed(path: Path) -> None:
    clock = ManualClock(NOW)
    store = opened(path, clock=clock)
    store.create_topic("orders")
    store.log("orders").append(b"x")
    shutil.rmtree(path / "orders-0")
    clock.advance(1)  # the names are checked once a millisecond
    with pytest.raises(pylog.DirectoryReplacedError):
        store.log("orders").append(b"x")
    store.close()


@scene("TRANSACTION_ABORTED")
def dead_transactions_are_aborted(path: Path) -> None:
    left_open(path)
    opened(path).close()


@scene("ORPHAN_ABORTED")
def orphans_are_aborted(path: Path) -> None:
    left_open(path)
    with pylog.open(path, "r") as store:
        assert store.log("__transaction_state").end_offset == 2
    for file in (path / "__transaction_state-0").iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    (path / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for checkpoint in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        (path / checkpoint).unlink(missing_ok=True)
    with opened(path, transactions=FEW_TRANSACTIONS) as store:
        store.log("orders")


@scene("PRODUCER_ID_RENEWED")
def states_are_older_than_the_log(path: Path) -> None:
    states, backup = path / "__transaction_state-0", path.parent / "backup"
    for _ in range(3):
        with opened(path, transactions=FEW_TRANSACTIONS) as store, suppress(pylog.TransactionAbortedError):
            store.create_topic("orders", exist_ok=True)
            with store.transaction("billing") as transaction:
                transaction.append("orders", b"x")
        if backup.exists():
            shutil.rmtree(states)
        shutil.copytree(*((backup, states) if backup.exists() else (states, backup)))


@scene("TRANSACTIONAL_IDS_EXPIRED")
def ids_are_unused_for_a_week(path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(path, clock=clock, transactions=FEW_TRANSACTIONS) as store:
        store.create_topic("orders")
        with store.transaction("billing") as transaction:
            transaction.append("orders", b"x")
        for days in (0, 8):
            store.tick(NOW + days * 86_400_000)


@scene("TRANSACTION_INCOMPLETE")
def markers_cannot_be_written(path: Path) -> None:
    left_open(path)
    file = path / "orders-0" / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[30] ^= 1
    file.write_bytes(data)
    (path / ".kafka_cleanshutdown").unlink(missing_ok=True)
    opened(path).close()


@scene("TRANSACTIONS_LEFT")
@scene("TRANSACTIONS_UNREADABLE")
def states_cannot_be_read(path: Path) -> None:
    left_open(path)
    file = path / "__transaction_state-0" / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    with opened(path) as store:
        store.log("orders")


@scene("PRODUCERS_EXPIRED")
def producers_expire(path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(path, clock=clock) as store:
        store.create_topic("orders", producer_id_expiration_ms=1000)
        store.log("orders").append_batch([b"x"], producer=pylog.ProducerBatch(7, 0, 0))
        clock.advance(60_000)
        store.tick()


@scene("CORRUPT")
def damage_is_found(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        for _ in range(3):
            store.log("orders").append(b"x" * 100, durability=Durability.SYNC)
    (path / ".kafka_cleanshutdown").unlink()
    file = path / "orders-0" / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[8:12] = b"\0\0\0\0"
    file.write_bytes(data)
    (path / "orders-0" / "pylog-durable-point").unlink(missing_ok=True)
    for entry in (path / "orders-0").glob("*"):
        if entry.suffix in (".index", ".timeindex", ".snapshot", ".seal"):
            entry.unlink()
    store = opened(path)
    with pytest.raises(pylog.CorruptionError):
        store.log("orders").append(b"x")
    store.close()


@scene("MISSING")
def records_are_missing(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", segment_bytes=200)
        fill(store.log("orders"))
    last = max((path / "orders-0").glob("*.log"))
    for entry in list((path / "orders-0").iterdir()):
        if entry.name.startswith(last.stem) and not entry.name.endswith("snapshot"):
            entry.unlink()
    with opened(path) as store:
        store.log("orders")


@scene("REBUILT")
def a_derived_file_is_rebuilt(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", segment_bytes=200)
        fill(store.log("orders"))
    (path / "orders-0" / "leader-epoch-checkpoint").write_text("no checkpoint")
    with opened(path) as store:
        store.log("orders")


@scene("IGNORED")
def a_marker_cannot_be_used(path: Path) -> None:
    opened(path).close()
    (path / ".kafka_cleanshutdown").write_bytes(bytes(70_000))
    opened(path).close()


@scene("CHECKPOINT_UNREADABLE")
def a_checkpoint_cannot_be_read(path: Path) -> None:
    opened(path).close()
    (path / "recovery-point-offset-checkpoint").write_text("no checkpoint")
    opened(path).close()


@scene("CHANGE_FINISHED")
def a_truncation_is_finished(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("prices", segment_bytes=200, cleanup_policy="compact")
        fill(store.log("prices"), key=b"k")
        store.compact("prices")
    first = path / "prices-0" / f"{0:020}.index"
    first.rename(first.with_name(first.name + ".swap"))
    seal = path / "prices-0" / f"{0:020}.seal"
    seal.rename(seal.with_name(seal.name + ".swap"))
    log = path / "prices-0" / f"{0:020}.log"
    log.rename(log.with_name(log.name + ".swap"))
    with opened(path) as store:
        store.log("prices")


@scene("BACKED_UP", "REPAIRED")
def a_partition_is_repaired(path: Path) -> None:
    root = variant("flip-payload-middle").copy(path / "root")
    repair(str(root), "skip", execute=True, backup=str(path / "copies"))


@scene("STAGING_REMOVED")
def staging_files_are_removed(path: Path) -> None:
    opened(path).close()
    dead = parent_process(OsFileSystem().boot_id())._replace(started=1)
    (path / StagingName("ab-1", 0, dead).new()).write_bytes(b"")
    opened(path).close()


@scene("STAGING_KEPT")
def staging_files_are_kept(path: Path) -> None:
    staging_files_are_removed(path)
    dead = parent_process(OsFileSystem().boot_id())._replace(started=1)
    (path / StagingName("ab-1", 0, dead).new()).write_bytes(b"")
    (path / "pylog-query.ab-1.json").write_bytes(b"\xff")
    opened(path).close()


@scene("HANDED_OVER", "TAKEN_BACK")
def a_store_is_handed_over(path: Path) -> None:
    with opened(path) as store:
        fill(orders_of(store))
    carry_out(plan_graduation(str(path)))
    take_back(str(path))


@scene("STATIC_MEMBER_CLOSED")
def a_static_member_closes(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        with store.consumer("orders", group_id="billing", group_instance_id="one", session_timeout_ms=45_000) as consumer:
            consumer.poll()


@scene("MEMBER_JOINED", "MEMBER_LEFT", "REBALANCED", "ASSIGNED", "REVOKED")
def members_share_a_topic(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", partition_count=2)
        with store.consumer(group_id="billing") as one:
            one.subscribe(["orders"])
            one.poll()
            with store.consumer(group_id="billing") as two:
                two.subscribe(["orders"])
                for _ in range(3):
                    two.poll()
                    one.poll()
                assert len(one.assignment()) == len(two.assignment()) == 1


@scene("MEMBER_EXPELLED", "MEMBER_FENCED", "LOST")
def a_member_does_not_poll(path: Path) -> None:
    clock = ManualClock(NOW)
    with opened(path, clock=clock) as store:
        store.create_topic("orders", partition_count=2)
        options: dict[str, Any] = {"group_id": "billing", "max_poll_interval_ms": 10_000, "session_timeout_ms": 45_000}
        with store.consumer(**options) as one, store.consumer(**options) as two:
            one.subscribe(["orders"])
            one.poll()
            two.subscribe(["orders"])
            two.poll()
            one.poll()
            for _ in range(40):
                clock.advance(1000)
                two.poll()
            one.poll()


@scene("OFFSETS_RESET", "OFFSETS_DELETED", "GROUP_DELETED")
def an_administrator_works(path: Path) -> None:
    with opened(path) as store:
        fill(orders_of(store))
        store.offsets.commit("billing", {("orders", 0): 7})
        store.group("billing").reset("earliest")
        store.group("billing").delete_offsets("orders")
        store.offsets.commit("billing", {("orders", 0): 7})
        store.group("billing").delete()


@scene("OFFSETS_LEFT")
def offsets_cannot_be_deleted(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        store.offsets.commit("billing", {("orders", 0): 0})
        store.offsets.commit("billing", {("orders", 0): 0})
    file = path / "__consumer_offsets-0" / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    with opened(path) as store:
        store.delete_topic("orders")


@scene("DAMAGED_KEPT")
def a_damaged_checkpoint_is_replaced(path: Path) -> None:
    (path / "log-start-offset-checkpoint").write_text("no checkpoint")
    with opened(path) as store:
        fill(orders_of(store))
        store.log("orders").delete_records(1)


@scene("CHECKPOINT_REFUSED")
def a_checkpoint_of_a_later_version_stays(path: Path) -> None:
    with opened(path) as store:
        fill(orders_of(store))
        (path / "recovery-point-offset-checkpoint").write_text("9\n0\n")


@scene("MEMBERS_DISMISSED")
def a_group_without_processes_is_reset(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        with store.consumer(group_id="billing", group_instance_id="worker") as consumer:
            consumer.subscribe(["orders"])
            consumer.poll()
        store.group("billing").reset("earliest", scope="orders")


@scene("SPARK_COMMITTED")
def a_spark_job_commits(path: Path) -> None:
    fs, clock = MemoryFileSystem(), ManualClock(NOW)
    with pylog.open("/shop", fs=fs, clock=clock) as store:
        store.create_topic("copy", partition_count=2)
        commit_job(StoreAccess(store, fs, clock), "ab-1", stage(fs, [{0: [b"a"], 1: [b"b"]}], job="ab-1"), CommitOptions())


@scene("SPARK_RESUMED")
def a_micro_batch_is_resumed(path: Path) -> None:
    fs, clock = MemoryFileSystem(), ManualClock(NOW)
    with pylog.open("/shop", fs=fs, clock=clock) as store:
        store.create_topic("copy", partition_count=2)
        files = stage(fs, [{0: [b"a"]}])
        write_intent(fs, "/shop", Intent(QUERY, 0, tuple(files), (PartitionIntent("copy", 0, 0),)))
        commit_batch(StoreAccess(store, fs, clock), QUERY, 0, stage(fs, [{0: [b"a"]}]), CommitOptions())


@scene("NEW_PARTITIONS")
def a_group_meets_new_partitions(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders")
        with store.consumer(group_id="billing", auto_offset_reset="latest") as consumer:
            consumer.subscribe(["orders"])
            consumer.poll()
            store.add_partitions("orders", 2)
            for _ in range(5):
                consumer.poll(timeout_ms=20)


@scene("IN_TIER")
def a_log_begins_in_a_remote_tier(path: Path) -> None:
    with tarfile.open(Path(__file__).resolve().parents[1] / "golden-tier" / "ktier-data.tar.xz") as archive:
        archive.extractall(path, filter="data")
    with pylog.open(path / "data", "r") as store:
        store.log("t")


@scene("POSITION_RESET")
def a_position_is_reset(path: Path) -> None:
    with opened(path) as store:
        store.create_topic("orders", segment_bytes=200)
        fill(store.log("orders"))
        with store.consumer(group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            consumer.poll()
            store.log("orders").delete_records(10)
            consumer.seek(TopicPartition("orders", 0), 1)
            consumer.poll()
