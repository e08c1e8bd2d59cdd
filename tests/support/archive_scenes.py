"""Scenes for the events of archives; see `support.scenes`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pylog
from pylog.clock import ManualClock
from pylog.objects import open_objects
from pylog.objects.layout import DOCUMENT, LOG, ArchivedPartition, new_segment_id, segment_key, version_key
from pylog.objects.partition_manifests import manifests_of
from pylog.restoring import restore
from support.kafka_tiers import metadata_free_directory, unpacked_tiers
from support.scenes import NOW, fill, opened, orders_of, scene


@scene("MANIFEST_DAMAGED")
def a_manifest_is_damaged(path: Path) -> None:
    objects = open_objects(str(path / "archive"))
    partition = ArchivedPartition("orders", "8SSgzKVaS0qTG9g3Uu47gg", 0)
    objects.put_new(version_key(partition.manifests, 1, DOCUMENT), b"damaged")
    manifests_of(objects, partition).newest()


@scene("TIER_LISTED")
def a_tier_is_listed(path: Path) -> None:
    tiers = unpacked_tiers(path / "tiers")
    tier = pylog.KafkaTier(str(tiers / "aiven-zstd" / "tier"))
    with pylog.open(metadata_free_directory(tiers, path / "data"), mode="r", archive=tier) as store:
        store.log("t")


@scene("TIER_EPOCHS_WRONG", "TIER_LEFT_OUT")
def a_checkpoint_in_a_tier_and_one_of_the_broker_are_wrong(path: Path) -> None:
    tiers = unpacked_tiers(path / "tiers")
    root, remote = metadata_free_directory(tiers, path / "data"), tiers / "ktier" / "remote" / "kafka-tiered-storage"
    for checkpoint in (max(remote.rglob("t-0-*/*.leader_epoch_checkpoint")), root / "t-0" / "leader-epoch-checkpoint"):
        checkpoint.write_text("0\n1\n3 0\n")
    with pylog.open(root, mode="r", archive=pylog.KafkaTier(str(remote), layout="local")) as store:
        store.log("t")


@scene("ARCHIVED", "ARCHIVE_TAKEN_OVER", "RESTORED")
def an_archive_is_continued_by_a_restored_directory(path: Path) -> None:
    with opened(path / "shop") as store:
        fill(orders_of(store))
        store.archive(str(path / "archive"), include_active=True)
    restore(str(path / "archive"), path / "copy", clock=ManualClock(NOW))
    with opened(path / "copy") as store:
        store.archive()


@scene("ARCHIVE_REFUSED")
def a_damaged_segment_is_not_archived(path: Path) -> None:
    with opened(path / "shop") as store:
        store.create_topic("orders", segment_bytes=500)
        fill(store.log("orders"))
    first = path / "shop" / "orders-0" / f"{0:020}.log"
    first.write_bytes(first.read_bytes()[:100] + b"?" + first.read_bytes()[101:])
    with opened(path / "shop") as store:
        store.archive(str(path / "archive"))


def _tiered(path: Path, **options: Any) -> pylog.Store:
    """Returns a store with a tiered topic whose sealed segments are in its archive, and partly no longer on the disk."""
    store = pylog.open(path / "store", archive=str(path / "archive"), clock=ManualClock(1_700_000_000_000))
    tiered = {"remote_storage_enable": True, "local_retention_bytes": 0, "retention_ms": -1, "segment_bytes": 200}
    store.create_topic("orders", **tiered | {"remote_delete_delay_ms": 0} | options)
    for _ in range(9):
        store.log("orders").append(b"x" * 60)
    store.tick()
    return store


@scene("SEGMENT_ARCHIVED", "SEGMENT_RETIRED", "OBJECTS_DELETED")
def a_topic_is_tiered(path: Path) -> None:
    with _tiered(path) as store:
        store.log("orders").delete_records(5)
        store.tick()


@scene("ARCHIVE_DELETED")
def a_tiered_topic_is_deleted(path: Path) -> None:
    with _tiered(path) as store:
        store.delete_topic("orders")
        store.tick()


@scene("ARCHIVE_KEPT")
def a_topic_is_deleted_and_its_archive_kept(path: Path) -> None:
    with _tiered(path) as store:
        store.delete_topic("orders", keep_archive=True)


@scene("SWEPT")
def an_archive_is_swept(path: Path) -> None:
    with _tiered(path) as store:
        archived = ArchivedPartition("orders", store.topic("orders").id or "", 0)
    key = segment_key(archived, 0, new_segment_id(), LOG)
    open_objects(str(path / "archive")).put_new(key, b"of an upload that was cut off")
    os.utime(path / "archive" / key, (0, 0))
    pylog.sweep(str(path / "archive"))


@scene("ARCHIVE_FAILED")
def an_archive_cannot_be_written(path: Path) -> None:
    (path / "archive").write_bytes(b"a file, and not a directory")
    with _tiered(path):
        pass
