"""The archives of deleted topics: those that are kept, and what is left to delete of others, in `pylog-archive-leaving.json`.

The note is written before the topic is deleted, so that no crash leaves objects that nobody deletes. A topic of the note that
still exists is left alone: its deletion did not come about.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from pylog import limits, trace
from pylog.archive.archiving import commit_topics
from pylog.directory.documents import Count, Offset, decoded
from pylog.directory.topic_names import is_topic_name
from pylog.errors import CorruptionError, IllegalStateError
from pylog.fs import FileKind, at_most, join, write_atomically
from pylog.log_manager import LogManager
from pylog.objects.layout import NO_TOPIC_ID, SEGMENT_OBJECTS, ArchivedPartition, is_id, segment_key
from pylog.objects.manifest import Manifest, Retired
from pylog.objects.objects import ObjectStore
from pylog.objects.partition_manifests import manifests_of
from pylog.record.types import TopicPartition

LEAVING: Final = "pylog-archive-leaving.json"


class Leaving(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The archive of a partition whose topic was deleted.

    Attributes:
        topic, topic_id, partition: the partition.
        delay_ms: how long its objects stay.
    """

    topic: str
    topic_id: str
    partition: Count
    delay_ms: Offset


_DECODER: Final = msgspec.json.Decoder(tuple[Leaving, ...])


def _parse(data: bytes, path: str) -> tuple[Leaving, ...]:
    found = decoded(_DECODER, data, partial(_damaged, path))
    if not all(is_topic_name(each.topic) and is_id(each.topic_id) for each in found):
        raise _damaged(path, "it names an impossible topic")
    return found


def _damaged(path: str, why: str) -> CorruptionError:
    return CorruptionError(
        f"{path} is damaged ({why}); remove it, and run pylog sweep to find objects of deleted topics", path=path
    )


NOTES: Final = FileKind("a note of deleted archives", _parse, at_most(limits.MAX_CHECKPOINT_BYTES), "remove it")


def read_leaving(manager: LogManager) -> tuple[Leaving, ...]:
    """Returns what is left to delete."""
    path = join(manager.path, LEAVING)
    data = NOTES.fetch(manager.fs, path)
    return () if data is None else NOTES.parsed(data, path)


def _write(manager: LogManager, found: Sequence[Leaving]) -> None:
    write_atomically(manager.fs, manager.path, LEAVING, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


def add_leaving(manager: LogManager, partitions: Sequence[ArchivedPartition], delay_ms: int) -> None:
    """Notes archives that must be deleted, durably."""
    if partitions:
        with manager.root.lock():
            _write(manager, [*read_leaving(manager), *(Leaving(*each, delay_ms) for each in partitions)])


def keep_topic(manager: LogManager, objects: ObjectStore, name: str) -> None:
    """Has the manifest of the store name a topic also after its deletion, which is about to begin.

    Raises:
        IllegalStateError: the archive has nothing of the topic, or is another store's.
        ObjectStoreError: a request failed.
    """
    topic = manager.topic(name)
    every = [ArchivedPartition(name, topic.id or NO_TOPIC_ID, number) for number in topic.partition_ids]
    found = [manifests_of(objects, archived).newest().document for archived in every]
    ends = {manifest.partition: manifest.end_offset for manifest in found if manifest is not None}
    if not ends:
        message = f"{objects.url} has no records of topic {name!r}; archive it first, or delete it without keep_archive"
        raise IllegalStateError(message, path=manager.path)
    commit_topics(manager, objects, [name], kept=True)
    trace.line(trace.ARCHIVE_KEPT, topic=name, url=objects.url, ends=ends)


def delete_leaving(manager: LogManager, objects: ObjectStore, writer: str, now_ms: int) -> None:
    """Has the manifests of deleted topics name nothing, and deletes their objects once the delay is over.

    Args:
        manager: the store.
        objects: its archive.
        writer: the id of the directory in manifests.
        now_ms: the wall clock, in milliseconds.

    Raises:
        ObjectStoreError: a request failed; the next call goes on.
    """
    noted = read_leaving(manager)
    if not noted:
        return
    existing = manager.topics()
    done = []
    for each in noted:
        topic = existing.get(each.topic)
        if (topic is not None and (topic.id or each.topic_id) == each.topic_id) or _delete(objects, each, writer, now_ms):
            done.append(each)
    if done:
        with manager.root.lock():
            _write(manager, [each for each in read_leaving(manager) if each not in done])


def _delete(objects: ObjectStore, leaving: Leaving, writer: str, now_ms: int) -> bool:
    """Goes on with one partition. Returns whether nothing is left of it but its last manifest."""
    archived = ArchivedPartition(leaving.topic, leaving.topic_id, leaving.partition)
    versions = manifests_of(objects, archived)
    newest, taken = versions.newest()
    if newest is None:
        return True
    if newest.segments:
        before, newest = newest, _emptied(newest, taken + 1, writer, now_ms)
        if not versions.create(newest, before):
            return False  # another process was faster
    if any(now_ms < each.at_ms + leaving.delay_ms for each in newest.retired):
        return False
    objects.delete(
        segment_key(archived, each.base_offset, each.segment_id, suffix) for each in newest.retired for suffix in SEGMENT_OBJECTS
    )
    size = sum(each.size for each in newest.retired)
    trace.line(trace.ARCHIVE_DELETED, TopicPartition(archived.topic, archived.partition), id=archived.topic_id, bytes=size)
    return True


def _emptied(manifest: Manifest, version: int, writer: str, now_ms: int) -> Manifest:
    retired = tuple(Retired(each.base_offset, each.segment_id, now_ms, each.size) for each in manifest.segments)
    end = manifest.end_offset
    return msgspec.structs.replace(
        manifest,
        version=version,
        writer=writer,
        written_ms=now_ms,
        start_offset=end,
        segments=(),
        retired=manifest.retired + retired,
    )
