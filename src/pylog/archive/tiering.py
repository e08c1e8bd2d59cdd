"""What `Store.tick` does for a tiered partition: uploads sealed segments, and deletes local ones that are in the archive.

The steps, and what a crash after each of them leaves:

0. the manifest of the store names the topic, so that a restore finds what is uploaded
1. a sealed, durable segment before the last stable offset gets its objects, under a new id: orphans
2. the next manifest names it: it is archived
3. the manifest is copied to the partition's directory: readers know where the segment is
4. later, by `local_retention_*`: the newest manifest, read now, names the segment, and its `.log` has the right size. The segment
   is deleted locally, as retention does it, under the partition's lock: until then it is in both tiers
5. by `retention_*` or `delete_records`: a manifest with a later start, then the local log start
6. `remote_delete_delay_ms` after that: the objects of segments that no manifest names

A lock of uploads is held for one segment at a time, so that two processes do not upload the same. The lock of the archive is held
for a few requests, by whatever changes the manifest. Appends take neither.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import Final

import msgspec

from pylog import trace
from pylog.archive.archiving import commit_topics
from pylog.archive.local_segments import known_digest
from pylog.archive.tiers import PartitionTier, with_start
from pylog.archive.uploader import Candidate, Content, content_of, delete_objects, upload
from pylog.config import TopicConfig
from pylog.errors import CorruptionError, IllegalStateError, ObjectStoreError
from pylog.log.maintenance.retention_policy import Reason, RetainedSegment, deletable
from pylog.log.maintenance.trimming import Retirement
from pylog.log.partition_log import PartitionLog
from pylog.log.reading.both_tiers import archivable
from pylog.log.state import LogState
from pylog.log_manager import LogManager
from pylog.objects.layout import LOG, SEGMENT_OBJECTS, segment_key
from pylog.objects.manifest import Manifest, RemoteSegment
from pylog.segment.age import is_older
from pylog.segment.segment import LogSegment
from pylog.text import counted

_REASONS: Final = {Reason.SIZE: "local_retention_bytes", Reason.TIME: "local_retention_ms"}


def local_state(state: LogState) -> LogState:
    """Returns the state of the local tier."""
    return state.local or state


class TieredPartition:
    """The steps for one partition.

    Args:
        manager: the store.
        log: the partition's log.
        tier: its archive.
        config: its topic's options.
    """

    def __init__(self, manager: LogManager, log: PartitionLog, tier: PartitionTier, config: TopicConfig) -> None:
        self._manager = manager
        self._log = log
        self._tier = tier
        self._config = config

    def tick(self, now_ms: int) -> int:
        """Does what is due. Returns how many local segments were deleted. A failed request is counted, logged and tried again."""
        try:
            self._agree_on_start()
            if self._config.remote_storage_enable:
                if not self._config.remote_log_copy_disable:
                    self.upload()
            elif self._config.remote_log_delete_on_disable:
                self._leave_archive()
            if self._tier.takes_catalogue():  # for readers of the URL, at most once a minute
                commit_topics(self._manager, self._tier.objects, [self._log.partition.topic])
                self._tier.note_catalogue()
            retired = self._retire(now_ms)
            self._delete_objects(now_ms)
        except (ObjectStoreError, CorruptionError, IllegalStateError) as error:
            self._tier.note_failure(error)
            return 0
        self._tier.note_success()
        return retired

    # ---- uploads -------------------------------------------------------------------------------------------------------------

    def upload(self) -> int:
        """Uploads what is missing, one segment after the other. Returns how many. Leaves it to another process that does so.

        Raises:
            ObjectStoreError: a request failed. CorruptionError: a segment is damaged.
            IllegalStateError: the archive has other records: it belongs to another store, or to a copy of this one.
        """
        done = 0
        known = self._log.snapshot()
        if known.active is not None and known.durable_offset < known.active.base_offset:
            self._log.flush()  # after a crash it is not known that the sealed segments are synced
        while archivable(self._log.snapshot(committed=True), self._archived_end()):
            if self._tier.takes_name():
                commit_topics(self._manager, self._tier.objects, [self._log.partition.topic])
                self._tier.note_named()
            with self._tier.uploading().if_free() as free:
                if not free or not self._upload_next():
                    break
            done += 1
        if done:
            self._tier.note_changed()
        return done

    def _archived_end(self) -> int:
        end = self._tier.archived_end()
        return -1 if end is None else end

    def _upload_next(self) -> bool:
        """Uploads the first missing segment and commits it. Under the lock of uploads."""
        with self._tier.locked().entered():
            manifest, taken = self._tier.owned()
        state = self._log.snapshot(committed=True, wait=True)
        self._check_same(local_state(state), manifest)
        if manifest is not None:
            self._tier.note(manifest)
        found = [Candidate(*each) for each in archivable(state, self._archived_end())]
        if not found:
            return False
        content = content_of(self._manager.fs, found[0])
        if not isinstance(content, Content):
            path = found[0].segment.path
            message = f"{path} is not archived: at position {content.position} the batch {content.why}; run pylog verify"
            raise CorruptionError(message, path=path, position=content.position, offset=content.offset)
        upload(self._tier.objects, self._tier.partition(), content, self._manager.clock.now_ms())
        if not self._commit(content.segment, state, taken):
            delete_objects(self._tier.objects, self._tier.partition(), content.segment)
            return True  # the log was truncated or the archive swept meanwhile, or another process was faster: go on
        self._tier.uploaded_segments += 1
        self._tier.uploaded_bytes += content.segment.size
        facts = {"first": content.segment.base_offset, "end": content.segment.end_offset, "bytes": content.segment.size}
        trace.line(trace.SEGMENT_ARCHIVED, self._tier.key, **facts, url=self._tier.objects.url)
        return True

    def _commit(self, segment: RemoteSegment, before: LogState, version: int) -> bool:
        """Commits a segment, unless the log was truncated or the archive was swept since. Returns whether the archive has it."""
        with self._tier.locked().entered():
            now = self._log.snapshot(wait=True)
            if now.truncated_to(before.truncation_count) < segment.end_offset:
                return False
            add = partial(_with_segment, segment=segment, start=now.start_offset, log_end=now.end_offset, since=version)
            return segment in self._tier.commit(add).segments

    def _check_same(self, local: LogState, manifest: Manifest | None) -> None:
        """Refuses an archive whose segments differ from the local ones: a copy of the directory has continued it.

        Logs that differ go on differing, so of the segments in both only the last one's content is compared, by its digest.
        """
        shared = [each for each in (manifest.segments if manifest is not None else ()) if each.end_offset > local.start_offset]
        for segment in shared:
            mine = _counterpart(local, segment)
            if mine is None or (local.end_of(mine), mine.size) != (segment.end_offset, segment.size):
                raise self._diverged(segment)
        if shared:
            self._check_content(local, shared[-1])

    def _check_content(self, local: LogState, segment: RemoteSegment) -> None:
        """Refuses an archived segment whose records are not those of the local one, if there is one."""
        mine = _counterpart(local, segment)
        if mine is not None and known_digest(mine) not in (None, segment.digest):  # None: damage hides it
            raise self._diverged(segment)

    def _diverged(self, segment: RemoteSegment) -> IllegalStateError:
        message = (
            f"{self._tier.objects.url} was archived by another copy of this store: {self._tier.key.topic}-"
            f"{self._tier.key.partition} has other records there from offset {segment.base_offset} on"
        )
        return IllegalStateError(f"{message}; give this copy another URL", path=self._tier.directory)

    # ---- the local tier ------------------------------------------------------------------------------------------------------

    def _retire(self, now_ms: int) -> int:
        manifest = self._tier.copy()
        if manifest is None or not self._config.remote_storage_enable:
            return 0
        plan = partial(retirements, manifest=manifest, config=self._config, now_ms=now_ms)
        if not plan(local_state(self._log.snapshot())):
            return 0
        with self._tier.locked().if_free() as free:
            if not free:
                return 0
            newest, _ = self._tier.owned()
            if newest is None:
                return 0
            planned = sum(each.segments for each in plan(local_state(self._log.snapshot())))
            checked = self._checked(newest, planned)
            self._tier.note(newest)
            last = partial(retirements, manifest=checked, config=self._config, now_ms=now_ms)
            count = self._log.tiers.retire(last)
            self._tier.retired_segments += count
            return count

    def _checked(self, manifest: Manifest, count: int) -> Manifest:
        """Returns a manifest with the first segments whose objects are there, in full size: others are not deleted locally.

        Raises:
            CorruptionError: an object is not there, or not whole. IllegalStateError: it has other records than the local segment.
        """
        local = local_state(self._log.snapshot())
        sound: list[RemoteSegment] = []
        for segment in manifest.segments:
            if segment.end_offset <= local.start_offset and _counterpart(local, segment) is None:
                continue
            if len(sound) == count:
                break
            self._check_content(local, segment)
            archived = segment_key(self._tier.partition(), segment.base_offset, segment.segment_id, LOG)
            found = self._tier.objects.head(archived)
            if found is None or found.size != segment.size:
                size = "missing" if found is None else f"{counted(found.size, 'byte')} long"
                message = f"{self._tier.objects.url}/{archived} is {size}, but its manifest has {counted(segment.size, 'byte')}"
                raise CorruptionError(f"{message}; its segment stays on the disk", path=archived, offset=segment.base_offset)
            sound.append(segment)
        return msgspec.structs.replace(manifest, segments=tuple(sound))

    # ---- the log start -------------------------------------------------------------------------------------------------------

    def _agree_on_start(self) -> None:
        """Finishes a deletion that one of the tiers did not get to: the later log start counts."""
        manifest = self._tier.copy()
        if manifest is None:
            return
        start = self._log.snapshot().start_offset
        if manifest.start_offset < start:
            with self._tier.raising_start(start):
                pass
        elif manifest.start_offset > start and manifest.start_offset <= self._log.end_offset:
            self._log.delete_records(manifest.start_offset)

    def _leave_archive(self) -> None:
        """Deletes the records that are only in the archive, and all that the archive has."""
        manifest = self._tier.copy()
        if manifest is None or not manifest.segments:
            return
        self._tier.owned()
        self._log.delete_records(local_state(self._log.snapshot()).start_offset)
        with self._tier.truncating(0):
            pass

    def _delete_objects(self, now_ms: int) -> None:
        """Deletes the objects of segments that ceased to be named long enough ago."""
        manifest, delay = self._tier.copy(), self._config.remote_delete_delay_ms
        if manifest is None or not any(each.at_ms + delay <= now_ms for each in manifest.retired):
            return
        with self._tier.locked().if_free() as free:
            newest = self._tier.owned()[0] if free else None
            if newest is None:
                return
            due = [each for each in newest.retired if each.at_ms + delay <= now_ms]
            archived = self._tier.partition()
            keys = [
                segment_key(archived, each.base_offset, each.segment_id, suffix) for each in due for suffix in SEGMENT_OBJECTS
            ]
            self._tier.objects.delete(keys)
            ids = {each.segment_id for each in due}
            self._tier.commit(lambda found: _without_retired(found, ids))
        for each in due:
            trace.line(trace.OBJECTS_DELETED, self._tier.key, first=each.base_offset, bytes=each.size, segment=each.segment_id)


def retirements(state: LogState, manifest: Manifest, config: TopicConfig, now_ms: int) -> list[Retirement]:
    """Returns the local segments that can be deleted because they are archived and `local_retention_*` is reached.

    Args:
        state: the state of the local tier.
        manifest: names the archived segments.
        config: the topic's config.
        now_ms: the wall clock, in milliseconds.
    """
    covered = _covered_end(state, manifest)
    local_ms, local_bytes = config.local_retention
    wanted = TopicConfig(retention_ms=local_ms, retention_bytes=local_bytes)
    sizes = [(segment, state.size_of(segment)) for _, segment in state.segments]
    facts = [RetainedSegment(segment.base_offset, size, partial(is_older, segment, size)) for segment, size in sizes]
    ends = {"start_offset": 0, "end_offset": state.end_offset, "high_watermark": covered}
    reasons = deletable(facts, wanted, **ends, now_ms=now_ms).reasons[: len(facts) - 1]
    values = {"local_retention_ms": local_ms, "local_retention_bytes": local_bytes}
    grouped = ((_REASONS[reason], len(list(members))) for reason, members in groupby(reasons))
    return [Retirement(count, name, values[name]) for name, count in grouped]


def _covered_end(state: LogState, manifest: Manifest) -> int:
    """Returns the end of the first local segments that are archived as they are."""
    archived = {segment.base_offset: segment for segment in manifest.segments}
    end = 0
    for base, segment in state.segments:
        found = archived.get(base)
        if segment is state.active or found is None or (found.end_offset, found.size) != (state.end_of(segment), segment.size):
            break
        end = found.end_offset
    return end


def _counterpart(state: LogState, segment: RemoteSegment) -> LogSegment | None:
    found = state.segments.floor(segment.base_offset)
    return found[1] if found is not None and found[0] == segment.base_offset else None


def _with_segment(manifest: Manifest, segment: RemoteSegment, start: int, log_end: int, since: int) -> Manifest:
    """Returns a manifest with one more segment, at its end; its objects were created after version `since` was read."""
    if manifest.end_offset > segment.base_offset and manifest.segments:
        return manifest  # another process has archived it meanwhile
    if manifest.swept > since:
        return manifest  # a sweep may have taken its objects for those of a dead process
    raised = with_start(manifest, start, manifest.written_ms)
    return msgspec.structs.replace(raised, segments=(*raised.segments, segment), log_end_offset=log_end)


def _without_retired(manifest: Manifest, ids: set[str]) -> Manifest:
    kept = tuple(each for each in manifest.retired if each.segment_id not in ids)
    return manifest if len(kept) == len(manifest.retired) else msgspec.structs.replace(manifest, retired=kept)
