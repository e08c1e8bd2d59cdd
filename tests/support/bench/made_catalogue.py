"""An archive that has documents and no segments: a store's manifest, and the catalogue of a topic with many of them.

What a plan reads is there. A million segments take a few seconds and some 10 MB, and not 100 TB.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final

from pylog.objects import open_objects
from pylog.objects.layout import DOCUMENT, STORE, new_segment_id, version_key
from pylog.objects.manifest import ArchivedTopic, Manifest, RemoteSegment, StoreManifest, encode
from pylog.objects.objects import ObjectStore
from pylog.objects.segment_catalogue import catalogue_of, catalogues_of, encode_catalogue

RECORDS: Final = 100_000  # of a segment
SEGMENT_BYTES: Final = 100_000_000


def make_catalogue(directory: Path, *, partitions: int, segments: int) -> ObjectStore:
    """Makes an archive with the topic `events` in a directory.

    Args:
        directory: of the archive.
        partitions: of the topic.
        segments: of each partition.
    """
    objects = open_objects(str(directory))
    topic_id = new_segment_id()
    store = StoreManifest(
        store_id="0" * 32,
        writer="1" * 32,
        version=1,
        written_ms=0,
        topics={"events": ArchivedTopic(topic_id, tuple(range(partitions)))},
    )
    objects.put_new(version_key(STORE, 1, DOCUMENT), encode(store))
    found = catalogue_of(_manifest(topic_id, number, segments) for number in range(partitions))
    versions = catalogues_of(objects, "events", topic_id)
    versions.commit(1, encode_catalogue(found))
    versions.hint(1)
    return objects


def _manifest(topic_id: str, partition: int, segments: int) -> Manifest:
    return Manifest(
        store_id="0" * 32,
        writer="1" * 32,
        version=7,
        written_ms=0,
        topic="events",
        topic_id=topic_id,
        partition=partition,
        segments=tuple(_segment(partition, number) for number in range(segments)),
    )


def _segment(partition: int, number: int) -> RemoteSegment:
    raw = b"%06d%010d" % (partition, number)
    return RemoteSegment(
        base_offset=number * RECORDS,
        end_offset=(number + 1) * RECORDS,
        segment_id=base64.urlsafe_b64encode(raw).decode().rstrip("="),
        size=SEGMENT_BYTES + number,
        log_crc32c=number,
        indexes_crc32c=number,
        indexes_size=20_000,
    )
