"""A hollow restore: a partition of the directory gets its manifest and its end, and its segments stay in the archive.

Tiering leaves the same files of a partition whose sealed segments have all left the disk, and the topic is a tiered one then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pylog.archive.copied_manifest import CopiedManifest
from pylog.config import topic_config
from pylog.directory.topic_names import INTERNAL_TOPICS
from pylog.errors import InvalidArgumentError
from pylog.fs import FileSystem, write_atomically
from pylog.objects.layout import NO_TOPIC_ID
from pylog.objects.manifest import PRODUCER_SNAPSHOT, ArchivedTopic, Manifest
from pylog.segment import names

TIERED: Final = "remote_storage_enable"  # the option of a topic whose records may be in the archive only


def is_catalogued(topic: ArchivedTopic) -> bool:
    """Returns whether the catalog of a restored directory has the topic, and with it its options."""
    return topic.topic_id != NO_TOPIC_ID and len(topic.partitions) == max(topic.partitions, default=-1) + 1


def can_be_tiered(name: str, topic: ArchivedTopic) -> bool:
    """Returns whether the records of a topic may be in the archive only: if it is not internal, and its options permit it."""
    if name in INTERNAL_TOPICS or not is_catalogued(topic):
        return False
    try:
        topic_config(tiered(topic.config))
    except InvalidArgumentError:  # it is compacted, or has options for an archive that do not fit together
        return False
    return True


def tiered(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a topic whose records may be in the archive only."""
    return {**config, TIERED: True}


def is_in_one_piece(manifest: Manifest) -> bool:
    """Returns whether a manifest has segments, and all offsets up to its end: readers of both tiers expect no gap."""
    ends = [segment.end_offset for segment in manifest.segments]
    starts = [segment.base_offset for segment in manifest.segments[1:]]
    return bool(ends) and [*starts, manifest.end_offset] == ends


def write_hollow(fs: FileSystem, directory: str, manifest: Manifest, bundle: bytes | None) -> bool:
    """Writes which segments are in the archive, and the state of producers after them.

    Args:
        fs, directory: the partition.
        manifest: names the segments.
        bundle: the small files of the last one; None if they cannot be read.

    Returns:
        False if that state is not known: then nothing is written, and only the segments themselves have it.
    """
    snapshot = None if bundle is None else manifest.segments[-1].piece(PRODUCER_SNAPSHOT, bundle)
    if snapshot is None:
        return False
    write_atomically(fs, directory, names.file_name(manifest.end_offset, names.SNAPSHOT), snapshot)
    CopiedManifest(fs, directory).write(manifest)
    return True
