"""Scenes for the events of archives; see `support.scenes`."""

from __future__ import annotations

from pathlib import Path

import pylog
from pylog.objects import open_objects
from pylog.objects.layout import DOCUMENT, ArchivedPartition, version_key
from pylog.objects.versions import manifests_of
from support.kafka_tiers import metadata_free_directory, unpacked_tiers
from support.scenes import scene


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
