"""`Store.archive`: uploads the sealed segments that an archive lacks, and commits them with the next manifest.

The manifest of the store names the topics first. The steps of each partition, and what a crash after each of them leaves:

1. candidates: sealed, durable, before the last stable offset, and not in the newest manifest: nothing
2. the `.log`, the `.indexes` and the `.rsm-manifest` are created under a new id, and checked: orphans
3. the next manifest is created: the segments are archived
4. the hint and the topic's catalogue are written: both are derived

The manifests of internal topics are committed after all others, but their segments are sealed first. So a committed offset in
the archive is never ahead of the archived records of its partition, as long as all are sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeVar

from pylog import trace
from pylog.archive.claiming import (
    ATTEMPTS,
    Claim,
    PartitionToArchive,
    contended,
    locked,
    newest_manifest,
    partitions_of,
    topic_id_of,
)
from pylog.archive.local_segments import empty_to, local_segments, still
from pylog.archive.opened import own_settings
from pylog.archive.plan import Plan, plan_of, whole_until
from pylog.archive.report import ArchivedPartitionReport, ArchiveReport
from pylog.archive.settings import ArchiveSettings, read_settings
from pylog.archive.uploader import Candidate, Content, content_of, delete_objects, upload
from pylog.arguments import check_callable, items_of
from pylog.directory.topic_names import INTERNAL_TOPICS
from pylog.errors import (
    IllegalStateError,
    InvalidArgumentError,
    ObjectStoreError,
    StorageFailedError,
    UnknownTopicOrPartitionError,
)
from pylog.log.checking.verification import Progress
from pylog.log.maintenance import trimmer
from pylog.log.recovery.findings import Finding
from pylog.log.state import LogState
from pylog.log_manager import LogManager
from pylog.objects.layout import ArchivedPartition
from pylog.objects.manifest import ArchivedTopic, Manifest, RemoteSegment, Retired, encode
from pylog.objects.objects import ObjectStore
from pylog.objects.partition_manifests import manifests_of
from pylog.objects.segment_catalogue import catalogue_of, catalogues_of, encode_catalogue
from pylog.objects.versions import Newest, store_manifests
from pylog.segment.batch_walk import Damage
from pylog.segment.segment import LogSegment
from pylog.topics.topic import Topic

_COMMIT_BYTES: Final = 256 << 20  # uploaded between two manifests: a crash repeats no more than these
T = TypeVar("T")


class ArchiveOptions(NamedTuple):
    """How to archive; see `Store.archive`."""

    topics: Iterable[str] | None = None
    include_active: bool = False
    verify_uploads: bool = False
    rate_limit: float | None = None
    progress: Progress | None = None
    take_over: bool = False


def url_to_use(manager: LogManager, url: str | None) -> str:
    """Returns a given URL, or the one of the store's settings."""
    if url is not None:
        return url
    known = read_settings(manager.fs, manager.path)
    if known is None or not known.url:
        raise InvalidArgumentError(f"{manager.path} has no archive yet; give the URL of one", path=manager.path)
    return known.url


def archive_store(manager: LogManager, objects: ObjectStore, options: ArchiveOptions) -> ArchiveReport:
    """Archives a store. As `Store.archive`."""
    check_callable("progress", options.progress)
    rate = options.rate_limit
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0):
        raise InvalidArgumentError(f"rate_limit={rate!r} is not a positive number of bytes a second")
    manager.check_writable()
    topics = _chosen(manager, options.topics)
    run = _Run(manager, objects, own_settings(manager, objects.url), options, topics)
    return run.done()


def commit_topics(manager: LogManager, objects: ObjectStore, names: Iterable[str], *, kept: bool | None = None) -> None:
    """Writes the catalogues of topics whose manifests are newer, and names the topics in the manifest of the store.

    Args:
        manager, objects: the store and its archive.
        names: the topics.
        kept: true to name them also after their deletion, false not to; None leaves that as it is.

    Raises:
        ArchiveFencedError: it belongs to another directory of this store.
        IllegalStateError: the archive belongs to another store, or a copy of this one has continued it.
        ObjectStoreError: a request failed.
    """
    run = _Run(manager, objects, own_settings(manager, objects.url), ArchiveOptions(), _chosen(manager, names))
    run.claim()
    run.commit_store(kept=kept)


def _chosen(manager: LogManager, names: Iterable[str] | None) -> list[Topic]:
    """Returns the topics to archive: internal ones last."""
    every = manager.current_topics()
    chosen = list(every) if names is None else [*items_of("topics", names, "names")]
    found = [every.get(name) or manager.topic(name) for name in dict.fromkeys(chosen)]  # of which the second raises
    return sorted(found, key=lambda topic: (topic.name in INTERNAL_TOPICS, topic.name))


class LogChanged(Exception):  # noqa: N818 - never leaves this module
    """A segment was deleted or replaced while it was read: its log must be refreshed."""


class _Run:
    """One run of `archive`."""

    def __init__(
        self, manager: LogManager, objects: ObjectStore, settings: ArchiveSettings, options: ArchiveOptions, topics: list[Topic]
    ) -> None:
        self._manager = manager
        self._objects = objects
        self._settings = settings
        self._options = options
        self._topics = topics
        self._stores = store_manifests(objects)
        self._claim = Claim(manager, objects, settings, take_over=options.take_over)
        self._began = manager.clock.monotonic()
        self._uploaded = self._total = 0

    # ---- partitions ----------------------------------------------------------------------------------------------------------

    def claim(self) -> None:
        """See `Claim`."""
        self._claim.make()

    def done(self) -> ArchiveReport:
        """Archives all partitions, and returns what was done."""
        self.claim()
        found = [self._existing(topic, partial(partitions_of, self._manager, topic)) for topic in self._topics]
        works = [work for some in found if some is not None for work in some]
        for work in reversed(works):  # internal topics first: what they say of others is not ahead of them
            if self._options.include_active or work.key.topic in INTERNAL_TOPICS:
                self._existing(work.topic, partial(_roll, work))
        self._name_topics()  # first, so that a restore finds whatever a run that dies has archived
        self._total = sum(self._existing(work.topic, partial(self._missing_bytes, work)) or 0 for work in works)
        done = [self._existing(work.topic, partial(self._archive, work)) for work in works]
        self.commit_store()
        reports = tuple(report for report in done if report is not None)
        return ArchiveReport(self._objects.url, reports, self._manager.clock.monotonic() - self._began)

    def _existing(self, topic: Topic, step: Callable[[], T]) -> T | None:
        """Does a step for a topic. Returns None if it was deleted meanwhile, unless it was named in the call."""
        try:
            return step()
        except (UnknownTopicOrPartitionError, StorageFailedError):
            now = self._manager.current_topics().get(topic.name)
            if self._options.topics is not None or (now is not None and now.id == topic.id):
                raise
            return None

    def _missing_bytes(self, work: PartitionToArchive) -> int:
        state = work.log.snapshot(committed=True, wait=True)
        newest = newest_manifest(self._manager, self._objects, self._settings, work)
        return sum(each.size for each in self._plan(state, newest).missing)

    def _plan(self, state: LogState, newest: Newest[Manifest]) -> Plan:
        """Returns what is missing.

        Raises:
            ArchiveFencedError: another directory of the store has taken the archive over since this run began.
        """
        manifest = newest.document
        self._claim.check(manifest)
        limit = min(state.stable_offset, state.durable_offset)
        return plan_of(manifest, local_segments(state, manifest), state.start_offset, limit)

    def _archive(self, work: PartitionToArchive) -> ArchivedPartitionReport:
        """Uploads what is missing of a partition, and commits it in parts."""
        findings: list[Finding] = []
        segments = size = lost = 0
        while lost < ATTEMPTS:
            state = work.log.snapshot(committed=True, wait=True)
            newest = newest_manifest(self._manager, self._objects, self._settings, work)
            plan = self._plan(state, newest)
            contents, deleted = list[Content](), set[int]()
            manifest = self._archive_some(work, newest, state, plan, findings, contents, deleted)
            if manifest is None:
                lost += 1
                continue
            segments += len(contents)
            size += sum(content.segment.size for content in contents)
            if len(contents) + len(findings) + len(deleted) >= len(plan.missing):
                end = whole_until(manifest)
                if segments:
                    facts = {"url": self._objects.url, "segments": segments, "bytes": size, "end": end}
                    trace.line(trace.ARCHIVED, work.key, **facts)
                done = segments, size, tuple(findings)
                return ArchivedPartitionReport(work.key, state.start_offset, end, state.end_offset, *done)
        raise contended(self._manager, self._objects)

    def _archive_some(
        self,
        work: PartitionToArchive,
        newest: Newest[Manifest],
        state: LogState,
        plan: Plan,
        findings: list[Finding],
        contents: list[Content],
        deleted: set[int],
    ) -> Manifest | None:
        """Uploads some segments, as `_upload_some`, and commits them. Returns the manifest that has them.

        None if the log has changed, or another process of this store was faster, which may have archived the same segments. The
        uploaded objects are then deleted.
        """
        manifest = None
        with suppress(LogChanged):
            try:
                self._upload_some(work, state, plan, findings, contents, deleted)
            except ObjectStoreError:  # no room, or no network: keep what came before
                if contents:
                    self._commit(work, newest, state, plan, contents)
                raise
            manifest = self._commit(work, newest, state, plan, contents)
        if manifest is None:
            for content in contents:
                delete_objects(self._objects, work.archived, content.segment)
        return manifest

    def _upload_some(
        self,
        work: PartitionToArchive,
        state: LogState,
        plan: Plan,
        findings: list[Finding],
        contents: list[Content],
        deleted: set[int],
    ) -> None:
        """Uploads missing segments, up to some size, and adds them to `contents`. A damaged one is left out, and reported once.

        Base offsets of segments whose records are deleted meanwhile are added to `deleted`.

        Raises:
            LogChanged: a segment was deleted or replaced while it was read.
        """
        found: dict[int, LogSegment] = dict(state.segments)
        known = {finding.path for finding in findings}
        for local in plan.missing:
            segment = found[local.base_offset]
            if segment.path in known:
                continue
            content = self._content(work, state, Candidate(segment, local.end_offset))
            if content is None:
                deleted.add(local.base_offset)
                continue
            if not isinstance(content, Content):
                findings.append(self._refused(work, segment, content.position, content.end, content.offset, content.why))
                continue
            now_ms = self._manager.clock.now_ms()
            upload(self._objects, work.archived, content, now_ms, reads_back=self._options.verify_uploads)
            contents.append(content)
            self._passed(segment)
            if sum(each.segment.size for each in contents) >= _COMMIT_BYTES:
                break

    def _content(self, work: PartitionToArchive, state: LogState, candidate: Candidate) -> Content | Damage | None:
        """Returns what is uploaded; None if all of its records were deleted meanwhile."""
        segment = candidate.segment
        fs = self._manager.fs if segment.vouched is None else segment.fs  # of a tiered topic that gets a second archive
        try:
            content = content_of(fs, candidate)
        except StorageFailedError as error:
            now = work.log.snapshot(wait=True)
            if candidate.end_offset <= now.start_offset:
                return None
            if now.version == state.version:
                raise
            raise LogChanged from error  # a truncation or a compaction has deleted its file
        if isinstance(content, Damage) and work.log.snapshot(wait=True).version != state.version:
            raise LogChanged  # it may have replaced the file
        return content

    def _refused(self, work: PartitionToArchive, segment: LogSegment, position: int, end: int, offset: int, why: str) -> Finding:
        message = f"{segment.path} was not archived: at position {position} the batch {why}; run pylog verify"
        trace.line(trace.ARCHIVE_REFUSED, work.key, path=segment.path, position=position, offset=offset, why=why)
        return Finding("corrupt", segment.path, position, end - position, offset, None, message)

    def _passed(self, segment: LogSegment) -> None:
        """Reports progress, and waits as the rate requires."""
        self._uploaded += segment.size
        if self._options.progress is not None:
            self._options.progress(self._uploaded, max(self._total, self._uploaded), segment.path)
        if self._options.rate_limit is not None:
            clock = self._manager.clock
            early = self._began + self._uploaded / self._options.rate_limit - clock.monotonic()
            if early > 0:
                clock.sleep(early)

    # ---- commits -------------------------------------------------------------------------------------------------------------

    def _commit(
        self, work: PartitionToArchive, newest: Newest[Manifest], before: LogState, plan: Plan, contents: list[Content]
    ) -> Manifest | None:
        """Creates the next manifest. Returns None if another process was faster, or the log has changed meanwhile."""
        with locked(self._manager, work):
            return self._commit_alone(work, newest, before, plan, contents)

    def _commit_alone(
        self, work: PartitionToArchive, newest: Newest[Manifest], before: LogState, plan: Plan, contents: list[Content]
    ) -> Manifest | None:
        known = newest.document
        state = work.log.snapshot(wait=True) if contents else before
        if state.version != before.version and not still(state, before, contents):
            return None
        found = sorted((*plan.kept, *(each.segment for each in contents)), key=lambda each: each.base_offset)
        manifest = self._next_manifest(work, newest, plan, found, before, state.start_offset)
        if known is not None and _same(known, manifest):
            return known
        if known is None and not manifest.end_offset:
            return manifest  # an empty partition needs no manifest
        if not manifests_of(self._objects, work.archived).create(manifest, known):
            return None
        tier = self._manager.tiers.tier(work.key) if self._objects.url == self._settings.url else None
        if tier is not None:
            tier.note(manifest)
        return manifest

    def _next_manifest(
        self,
        work: PartitionToArchive,
        newest: Newest[Manifest],
        plan: Plan,
        found: Sequence[RemoteSegment],
        before: LogState,
        start: int,
    ) -> Manifest:
        """Returns the next manifest of a partition.

        Args:
            work, newest, plan: the partition, its newest manifest, and what was planned by that.
            found: the segments that the archive has now, in order.
            before: the log as it was planned.
            start: the log start now. Segments below it are retired.
        """
        known, now_ms = newest.document, self._manager.clock.now_ms()
        segments = tuple(each for each in found if each.end_offset > start)
        deleted = (*plan.retired, *(each for each in found if each.end_offset <= start))
        retired = tuple(Retired(each.base_offset, each.segment_id, now_ms, each.size) for each in deleted)
        return Manifest(
            store_id=self._settings.store_id,
            writer=self._settings.writer,
            version=newest.taken + 1,
            written_ms=now_ms,
            topic=work.key.topic,
            topic_id=work.archived.topic_id,
            partition=work.key.partition,
            log_end_offset=before.end_offset,
            start_offset=start,
            segments=segments,
            retired=(*(() if known is None else known.retired), *retired),
            empty_to=empty_to(before, segments),
            swept=0 if known is None else known.swept,
            retired_parts=() if known is None else known.retired_parts,
        )

    def commit_store(self, *, kept: bool | None = None) -> None:
        """Commits the topics and their configurations, and writes the catalogues of topics whose segments changed."""
        for topic in self._topics:
            self._write_catalogue(topic)
        self._name_topics(kept=kept)

    def _name_topics(self, *, kept: bool | None = None) -> None:
        """Commits the topics and their configurations, if they are new."""
        existing = self._manager.current_topics()
        for _ in range(ATTEMPTS):
            newest = self._stores.newest()
            known = {} if newest.document is None else newest.document.topics
            self._claim.check(newest.document)
            chosen = [existing[topic.name] for topic in self._topics if topic.name in existing]
            mine = {topic.name: _entry(topic, _is_kept(known, topic) if kept is None else kept) for topic in chosen}
            topics = {name: entry for name, entry in known.items() if name in existing or entry.kept} | mine
            if newest.document is not None and topics == known:
                return
            if self._stores.commit(newest.taken + 1, encode(self._claim.document(newest.taken + 1, topics))):
                self._stores.hint(newest.taken + 1)
                return
        raise IllegalStateError(
            f"{self._objects.url} cannot be changed: other processes keep changing it; try again", path=self._manager.path
        )

    def _write_catalogue(self, topic: Topic) -> None:
        """Writes the catalogue of a topic, if its manifests are newer than the last one."""
        partitions = [ArchivedPartition(topic.name, topic_id_of(topic), number) for number in topic.partition_ids]
        manifests = [manifests_of(self._objects, archived).newest().document for archived in partitions]
        catalogue = catalogue_of(manifest for manifest in manifests if manifest is not None)
        versions = catalogues_of(self._objects, topic.name, topic_id_of(topic))
        newest = versions.newest()
        if catalogue.partitions == (() if newest.document is None else newest.document.partitions):
            return
        if versions.commit(newest.taken + 1, encode_catalogue(catalogue)):
            versions.hint(newest.taken + 1)


def _roll(work: PartitionToArchive) -> None:
    trimmer.roll(work.log.writer())


def _entry(topic: Topic, kept: bool) -> ArchivedTopic:
    return ArchivedTopic(topic_id_of(topic), topic.partition_ids, topic.config.changed(), kept)


def _is_kept(known: Mapping[str, ArchivedTopic], topic: Topic) -> bool:
    """Returns whether a deletion has begun that keeps the archive: another process must not undo that before it is done."""
    entry = known.get(topic.name)
    return entry is not None and entry.kept and entry.topic_id == topic_id_of(topic)


def _same(known: Manifest, other: Manifest) -> bool:
    """Returns whether a manifest has nothing new: then it is not written."""
    ends = other.end_offset <= known.end_offset <= other.log_end_offset  # else a truncation has left another end
    return ends and (known.writer, known.segments, known.start_offset) == (other.writer, other.segments, other.start_offset)
