"""The archives of deleted topics: those that are kept, and what is left to delete of others, in `pylog-archive-leaving.json`.

The note is written before the topic is deleted, so that no crash leaves objects that nobody deletes. A topic of the note that
still exists is left alone: its deletion did not come about.

An archive is kept in four steps. A crash or a failure after each of them leaves this:

1. a note that the topic's archive is kept: the topic, and a note that changes nothing
2. the manifest of the store has the topic as kept: the same, until the topic is deleted. A deletion that does not keep the
   archive finds the note, and changes the manifest first: it would name the deleted topic from then on
3. the topic is deleted: its archive is kept, and the next tick removes the note
4. the note is removed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from pylog import limits, trace
from pylog.archive.archiving import commit_topics
from pylog.archive.owner import check_owner
from pylog.directory.documents import Count, Offset, decoded
from pylog.directory.topic_names import is_topic_name
from pylog.errors import ArchiveFencedError, CorruptionError, IllegalStateError
from pylog.fs import FileKind, at_most, join, write_atomically
from pylog.log.recovery.archive_tier import ArchiveNotes
from pylog.log_manager import LogManager
from pylog.objects.layout import NO_TOPIC_ID, SEGMENT_OBJECTS, ArchivedPartition, is_id, segment_key
from pylog.objects.manifest import Manifest, Retired
from pylog.objects.objects import ObjectStore
from pylog.objects.partition_manifests import manifests_of
from pylog.record.types import TopicPartition
from pylog.topics.topic import Topic

LEAVING: Final = "pylog-archive-leaving.json"


class Leaving(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The archive of a partition whose topic was deleted.

    Attributes:
        topic, topic_id, partition: the partition.
        delay_ms: how long its objects stay.
        kept: the archive stays, and the topic is about to be deleted.
    """

    topic: str
    topic_id: str
    partition: Count
    delay_ms: Offset
    kept: bool = False


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


def noted(manager: LogManager) -> ArchiveNotes:
    """Returns what is left to do of deletions. Raises CorruptionError if the note is damaged. Cost: one small read."""
    notes = read_leaving(manager)
    existing = manager.topics() if notes else {}
    unfinished = dict.fromkeys(each.topic for each in notes if each.kept and _exists(existing, each))
    waiting = sum(not each.kept and not _exists(existing, each) for each in notes)
    return ArchiveNotes(tuple(unfinished), waiting, 0, None)


def _exists(existing: Mapping[str, Topic], leaving: Leaving) -> bool:
    topic = existing.get(leaving.topic)
    return topic is not None and (topic.id or leaving.topic_id) == leaving.topic_id


def _write(manager: LogManager, found: Sequence[Leaving]) -> None:
    """Replaces the note. Without entries it is removed: if a crash brings it back, the next tick finds nothing left to do."""
    if not found and manager.fs.exists(join(manager.path, LEAVING)):
        manager.fs.remove(join(manager.path, LEAVING))
    if not found:
        return
    write_atomically(manager.fs, manager.path, LEAVING, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


def add_leaving(manager: LogManager, partitions: Sequence[ArchivedPartition], delay_ms: int) -> None:
    """Notes archives that must be deleted, durably."""
    if partitions:
        with manager.root.lock():
            _write(manager, [*read_leaving(manager), *(Leaving(*each, delay_ms) for each in partitions)])


def keep_topic(manager: LogManager, objects: ObjectStore, name: str) -> list[Leaving]:
    """Has the manifest of the store name a topic also after its deletion, which is about to begin.

    Returns:
        The notes of it, for `forget_kept`.

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
    notes = [Leaving(*each, 0, kept=True) for each in every]
    with manager.root.lock():  # without what an earlier deletion, which has failed, has left to delete
        others = [each for each in read_leaving(manager) if (each.topic, each.topic_id) != (name, every[0].topic_id)]
        _write(manager, [*others, *notes])
    commit_topics(manager, objects, [name], kept=True)
    trace.line(trace.ARCHIVE_KEPT, topic=name, url=objects.url, ends=ends)
    return notes


def unkeep_topic(manager: LogManager, objects: ObjectStore, name: str) -> None:
    """Has the manifest of the store no longer keep a topic whose deletion failed, if that is noted.

    Raises:
        IllegalStateError: the archive is another store's. ObjectStoreError: a request failed.
    """
    topic = manager.topic(name)
    noted = [each for each in read_leaving(manager) if each.kept and each.topic == name]
    if any(each.topic_id == (topic.id or NO_TOPIC_ID) for each in noted):
        try:
            commit_topics(manager, objects, [name], kept=False)
        except ArchiveFencedError as error:  # a copy of the directory has the note, too
            trace.line(trace.ARCHIVE_FAILED, topic=name, reason=str(error), then="the archive keeps the topic")
    forget_kept(manager, noted)


def forget_kept(manager: LogManager, notes: Iterable[Leaving]) -> None:
    """Removes notes: nothing is left to do for them."""
    done = set(notes)
    if done:
        with manager.root.lock():
            _write(manager, [each for each in read_leaving(manager) if each not in done])


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
        exists = _exists(existing, each)
        if each.kept and exists:
            continue  # its deletion has failed, and the next one needs the note
        if each.kept or exists or _delete(manager, objects, each, writer, now_ms):
            done.append(each)
    forget_kept(manager, done)


def _delete(manager: LogManager, objects: ObjectStore, leaving: Leaving, writer: str, now_ms: int) -> bool:
    """Deletes the objects of one partition once their delay is over. Returns whether only its last manifest is left to keep."""
    archived = ArchivedPartition(leaving.topic, leaving.topic_id, leaving.partition)
    versions = manifests_of(objects, archived)
    newest, taken = versions.newest()
    if newest is None or not _is_own(manager, objects, archived, newest, writer):
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


def _is_own(manager: LogManager, objects: ObjectStore, archived: ArchivedPartition, newest: Manifest, writer: str) -> bool:
    """Returns whether this directory may change an archive. If not, it logs that the archive keeps the deleted topic."""
    try:
        check_owner(newest, writer, objects.url, manager.path)
    except ArchiveFencedError as error:
        key = TopicPartition(archived.topic, archived.partition)
        trace.line(trace.ARCHIVE_FAILED, key, reason=str(error), then="the archive keeps the deleted topic")
        return False
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
