"""`LogTiers`: the two tiers of one log. What changes both of them changes the archive first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar

from pylog.config import TopicConfig
from pylog.log.maintenance import trimmer
from pylog.log.maintenance.trimming import Retained, Retirement, planned
from pylog.log.reading.both_tiers import BothTiers, archivable
from pylog.log.recovery.archive_tier import TierFacts
from pylog.log.recovery.loaded import Source
from pylog.log.state import LogState
from pylog.log.writing.partition_writer import PartitionWriter
from pylog.log.writing.undecided import OpenProducers, open_from
from pylog.segment.segment import LogSegment

T = TypeVar("T")


class TieredLog(Protocol):
    """`PartitionLog`, as its tiers use it."""

    @property
    def config(self) -> TopicConfig: ...
    @property
    def known(self) -> LogState: ...
    def snapshot(self, *, committed: bool = False, wait: bool = False) -> LogState: ...
    def writer(self) -> PartitionWriter: ...
    def open_producers(self) -> OpenProducers: ...
    def freeing(self, action: Callable[[], T], first: Callable[[], object] | None = None) -> T: ...


class LogTiers:
    """The two tiers of one log: the archive, if there is one, and the disk. Every method may be called from any thread.

    Args:
        source: the partition.
        log: its engine.

    Attributes:
        shown: returns what readers see of a state of the local log.
    """

    def __init__(self, source: Source, log: TieredLog) -> None:
        self._source = source
        self._tier = source.tier
        self._log = log
        self.shown = BothTiers(source.tier).shown

    # ---- facts ---------------------------------------------------------------------------------------------------------------

    def local(self) -> LogState:
        """Returns the current state of the local tier. Cost: one pread."""
        state = self._log.snapshot()
        return state.local or state

    def archived_end(self) -> int | None:
        """Returns the offset after the last archived record, as far as the directory knows; None if nothing was archived."""
        tier = self._tier()
        return None if tier is None else tier.archived_end()

    def facts(self) -> tuple[TierFacts, list[LogSegment]] | None:
        """Returns what is archived, and the segments that wait for it; None if nothing was archived. Sends no request.

        None waits while the topic's uploads are disabled, as with a broker.
        """
        tier = self._tier()
        found = None if tier is None else tier.facts()
        if found is None:
            return None
        config = self._log.config
        if not config.remote_storage_enable or config.remote_log_copy_disable:
            return found, []
        return found, [segment for segment, _ in archivable(self._log.snapshot(committed=True), found.archived_end)]

    # ---- changes -------------------------------------------------------------------------------------------------------------

    @contextmanager
    def raising_start(self, before: int) -> Iterator[None]:
        """Raises the log start in the archive first, and keeps other changes of the archive out until the context ends."""
        tier = self._tier()
        if tier is None or before > self._log.snapshot(wait=True).end_offset:  # the log refuses it
            yield
            return
        with tier.raising_start(before):
            yield

    @contextmanager
    def truncating(self, end: int) -> Iterator[None]:
        """Takes the segments with records from `end` on out of the archive first, as `raising_start`.

        Raises what the log would raise: a truncation that it refuses leaves the archive as it is.
        """
        tier = self._tier()
        if tier is None:
            yield
            return
        trimmer.check_truncation(self._log.writer(), end)
        with tier.truncating(end):
            yield

    def retire(self, plan_of: Callable[[LogState], Sequence[Retirement]]) -> int:
        """Deletes local segments that are in the archive. Returns how many.

        Args:
            plan_of: decides for a state of the local tier, under the partition's lock.
        """
        return self._log.freeing(partial(trimmer.retire, self._log.writer(), plan_of))

    def retain(self, now_ms: int, group: str | None, committed: int | None) -> Retained | None:
        """Applies retention, to both tiers together. As `PartitionLog.retain`."""
        if self.archived_end() is None:
            return self._log.freeing(partial(trimmer.retain, self._log.writer(), now_ms, group, committed))
        writer, config, kept = self._log.writer(), self._log.config, open_from(self._log.open_producers(), now_ms)
        if config.retention_group != group:
            return None
        plan = planned(self._source, self._log.snapshot(committed=True, wait=True), now_ms, committed, config, kept)
        trimmer.expire(writer, now_ms)
        if not plan.segments:
            return plan
        active, start = self._log.known.active, plan.new_start_offset
        if active is not None and start > active.base_offset:
            trimmer.roll(writer)  # all of its records are deleted
        with self.raising_start(start):
            delete = partial(trimmer.delete_records, writer, start, "retention")
            self._log.freeing(delete, partial(trimmer.delete_segments, writer, start))
        return plan
