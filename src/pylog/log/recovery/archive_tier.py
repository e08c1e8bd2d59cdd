"""`Tier`: the archive of a partition, as its log uses it. Here is only the seam; `pylog.archive` has the archive.

A tiered log deletes local segments once they are in the archive. The state that its writer and its follower publish is the local
log, with the log start offset in `remote_start`. Readers get the state of both tiers, in which the archived segments come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from pylog.config import TopicConfig
from pylog.errors import IllegalStateError
from pylog.objects.manifest import Manifest
from pylog.record.types import TopicPartition
from pylog.segment.segment import LogSegment
from pylog.text import counted


def no_tier() -> Tier | None:
    """Returns None: for a partition of a store without an archive."""
    return None


class TierFacts(NamedTuple):
    """Facts about a partition's archive that need no request.

    Attributes:
        archived_end: the offset after the last archived record.
        archived_bytes: the size of the archived segments.
        uploaded_segments, uploaded_bytes, retired_segments, failures: counted by this process's ticks.
        failure: the reason why the last tick could not finish; None if it did.
    """

    archived_end: int
    archived_bytes: int
    uploaded_segments: int
    uploaded_bytes: int
    retired_segments: int
    failures: int
    failure: str | None


class ArchiveNotes(NamedTuple):
    """Deletions of topics that are not finished in a store's archive.

    Attributes:
        unfinished: topics whose deletion with `keep_archive` has begun and did not finish: they still exist.
        waiting: partitions of deleted topics whose objects are still in the archive.
        failures: how often a tick of this process could not delete such objects.
        failure: the reason why the last one could not; None if it could.
    """

    unfinished: tuple[str, ...]
    waiting: int
    failures: int
    failure: str | None

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yields what a person needs to know: a fact, and what to do. Yields nothing if no deletion is unfinished or waits."""
        for name in self.unfinished:
            yield (
                f"the deletion of topic {name!r} that keeps its archive did not finish: the topic still exists",
                "delete it again",
            )
        if self.waiting:
            advice = "a store that ticks deletes them once remote_delete_delay_ms is over"
            partitions = counted(self.waiting, "partition")
            yield f"the archive still has the objects of {partitions} of deleted topics", self.failure or advice


class Tier(Protocol):
    """The archive of one partition. Every method may be called from any thread."""

    def facts(self) -> TierFacts | None:
        """Returns what is known without a request; None if nothing was archived. Cost: one small read."""
        ...

    def log_start(self, local: int, first_base: int) -> int | None:
        """Returns the log start offset if records before the first local segment are in the archive; None if there are none.

        Args:
            local: the log start offset by the local files.
            first_base: base offset of the first local segment.
        """
        ...

    def segments(self, start: int, end: int) -> Sequence[LogSegment]:
        """Returns the archived segments with records from `start` to before `end`, in order. Cost: no request."""
        ...

    def note(self, manifest: Manifest) -> None:
        """Copies a new manifest to the partition's directory. Under the archive's lock."""
        ...

    def copy(self) -> Manifest | None:
        """Returns the newest manifest that this directory knows; None if nothing was archived. Cost: one small read."""
        ...

    def archived_end(self) -> int | None:
        """Returns the offset after the last archived record; None if nothing was archived. Cost: one small read."""
        ...

    def raising_start(self, before: int) -> AbstractContextManager[None]:
        """Raises the log start in the archive first, and keeps other changes of the archive out until the context ends."""
        ...

    def truncating(self, end: int) -> AbstractContextManager[None]:
        """Takes the segments with records from `end` on out of the archive first, as `raising_start`."""
        ...


class StoreTiers(Protocol):
    """The archive of a store."""

    def tier(self, key: TopicPartition) -> Tier | None:
        """Returns the archive of a partition; None in a store without one."""
        ...

    def check(self, config: TopicConfig) -> None:
        """Refuses options that need an archive in a store without one."""
        ...

    def deleting(self, topic: str, topic_id: str | None, partitions: Sequence[int], config: TopicConfig) -> None:
        """Notes, durably, that the archive of a topic must be deleted: the topic is about to be deleted."""
        ...

    def keeping(self, topic: str) -> AbstractContextManager[None]:
        """Has the archive keep what it has of a topic, which is deleted before the context ends.

        Raises:
            IllegalStateError: there is no archive of the topic, or it has other records. ObjectStoreError: a request failed.
        """
        ...

    def not_keeping(self, topic: str) -> None:
        """Has the archive not keep a topic, which is about to be deleted, if an earlier deletion that keeps it has failed.

        Raises:
            IllegalStateError, ObjectStoreError: as `keeping`. Only then: otherwise no request is sent.
        """
        ...

    def requests(self) -> Mapping[str, int]:
        """Returns how many requests were sent, by kind; `sent` and `received` are bytes."""
        ...

    def notes(self) -> ArchiveNotes | None:
        """Returns what is noted of deletions; None in a store without an archive. Sends no request. Cost: one small read.

        Raises:
            CorruptionError: the note is damaged.
        """
        ...


class NoTiers:
    """The archive of a store that has none. See `StoreTiers`."""

    def tier(self, key: TopicPartition) -> Tier | None:  # noqa: ARG002
        """Returns None."""
        return None

    def check(self, config: TopicConfig) -> None:
        """Accepts all options."""

    def deleting(self, topic: str, topic_id: str | None, partitions: Sequence[int], config: TopicConfig) -> None:
        """Notes nothing."""

    def keeping(self, topic: str) -> AbstractContextManager[None]:
        """Raises IllegalStateError."""
        raise IllegalStateError(f"topic {topic!r} has no archive to keep; delete it without keep_archive")

    def not_keeping(self, topic: str) -> None:
        """Has nothing to do."""

    def requests(self) -> Mapping[str, int]:
        """Returns none."""
        return {}

    def notes(self) -> ArchiveNotes | None:
        """Returns None."""
        return None
