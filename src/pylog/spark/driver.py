"""The half of a streaming read that stays on the driver: where it begins, where a micro-batch ends, and what that reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pylog.clock import Clock
from pylog.record.types import TopicPartition
from pylog.spark import rates
from pylog.spark.bounds import PartitionBounds, is_by_time, report_data_loss
from pylog.spark.microbatch import Loss, begins, is_news, ranges, summary
from pylog.spark.options import StreamOptions
from pylog.spark.partitions import check_all_named, matching
from pylog.spark.planner import LogSlice, extent_between, slices
from pylog.spark.rates import PartitionPositions
from pylog.spark.steady import steadily
from pylog.spark.stream_offset import StreamOffset
from pylog.spark.watch import PartitionsSeen, PartitionTracker

if TYPE_CHECKING:
    from pylog.spark.group import GroupCommits

JsonObject = dict[str, Any]


class Driver:
    """The half of a streaming read that stays on the driver.

    Args:
        options: the read's options.
        clock: for `maxTriggerDelay`.
    """

    def __init__(self, options: StreamOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._watch = PartitionTracker(options, clock)
        self._group = _group_of(options)
        self._initial: StreamOffset | None = None
        self._first = True  # no micro-batch has been planned, except the first one
        self._last: PartitionsSeen | None = None  # the basis of the last micro-batch's end
        self._target: PartitionsSeen | None = None  # where the query must end, if it ends
        self._last_batch_ms: int | None = None  # the first micro-batch is not delayed
        self._committed: JsonObject | None = None  # for the group

    # ---- where it begins -----------------------------------------------------------------------------------------------------

    def initial(self) -> JsonObject:
        """Returns where the stream begins, by the options. Later calls return the same.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition is not there.
            OffsetOutOfRangeError: offsets were deleted or do not exist yet, unless `failOnDataLoss` is false.
            InvalidArgumentError: offsets do not name exactly the partitions that are read.
        """
        if self._initial is None:
            self._initial = steadily(self._begin)
        return self._initial.to_json()

    def _begin(self) -> StreamOffset:
        self._open_group()
        now = self._watch.refresh(strict=True)
        seen = self._target or now
        check_all_named(self._options.start, seen.log_dirs, "startingOffsets")
        return StreamOffset(
            {partition: self._start_of(partition, seen) for partition in seen.log_dirs if partition in now.log_dirs}, seen.ids
        )

    def _start_of(self, partition: TopicPartition, seen: PartitionsSeen) -> int:
        bounds = PartitionBounds(seen.log_dirs[partition], partition, seen.starts[partition], seen.ends[partition], self._options)
        log = self._watch.log(partition) if is_by_time(self._options.start) else None
        return bounds.within(bounds.resolve(self._options.start, log, "starting"), "starting")

    # ---- where a micro-batch ends --------------------------------------------------------------------------------------------

    def end_here(self) -> None:
        """Takes where the topics end now as the end of the query."""
        self._target = self._watch.refresh()

    def next_end(self, start: JsonObject, *, limited: bool) -> JsonObject:
        """Returns the end of the next micro-batch; `start` itself if it must wait.

        Args:
            start: where it begins.
            limited: whether the options' limits count.
        """
        self._open_group()
        first = self._first = self._first and self._initial is not None and start == self._initial.to_json()
        if not first:
            self.commit(start)  # the previous micro-batch is complete: Spark reports that only when it begins the next one
        at = StreamOffset.from_json(start)
        seen, ends = steadily(lambda: self._next_ends(at, limited=limited))
        self._last = seen
        if (limited and self._is_delayed(at, seen)) or not (first or is_news(ends, at, seen.ids)):
            return start
        return StreamOffset(ends, seen.ids, at.positions if first else None).to_json()

    def _next_ends(self, start: StreamOffset, *, limited: bool) -> tuple[PartitionsSeen, PartitionPositions]:
        seen = self._target or self._watch.refresh()
        return seen, self._limited(start, seen) if limited else seen.ends

    def _is_delayed(self, start: StreamOffset, seen: PartitionsSeen) -> bool:
        """Returns whether to wait for more records. A query that ends does not wait."""
        limits, now_ms = self._options.limits, self._clock.now_ms()
        if limits.min_offsets is None or self._target is not None:
            return False
        waited = self._last_batch_ms is None or now_ms - self._last_batch_ms >= limits.max_delay_ms
        if not waited and rates.is_too_little(limits.min_offsets, begins(start, seen), seen.ends):
            return True
        self._last_batch_ms = now_ms
        return False

    def _limited(self, start: StreamOffset, seen: PartitionsSeen) -> PartitionPositions:
        limits, froms, ends = self._options.limits, begins(start, seen), seen.ends
        if limits.max_offsets is not None:
            ends = rates.at_most(limits.max_offsets, froms, ends)
        return ends if limits.max_bytes is None else self._within_bytes(limits.max_bytes, froms, ends, seen)

    def _within_bytes(
        self, limit: int, froms: PartitionPositions, ends: PartitionPositions, seen: PartitionsSeen
    ) -> PartitionPositions:
        """Returns an end after about `max_bytes` bytes, at batch boundaries."""
        spans = {partition: (max(froms[partition], seen.starts[partition]), end) for partition, end in ends.items()}
        sizes = {partition: max(1, self._watch.size(partition, *span)) for partition, span in spans.items() if span[0] < span[1]}
        shares = rates.prorated(limit, sizes)
        cuts = {partition: self._watch.first_cut(partition, *spans[partition], shares[partition]) for partition in sizes}
        return {**ends, **cuts}

    def latest(self) -> JsonObject | None:
        """Returns the ends of the topics at the last refresh."""
        return None if self._last is None else StreamOffset(self._last.ends, self._last.ids).to_json()

    # ---- reading -------------------------------------------------------------------------------------------------------------

    def plan(self, start: JsonObject, end: JsonObject) -> list[LogSlice]:
        """Cuts a micro-batch into slices.

        Args:
            start, end: the start and end of the micro-batch.

        Raises:
            OffsetOutOfRangeError: records of it were deleted, unless `failOnDataLoss` is false.
        """
        if start == end:
            return []
        since, until = StreamOffset.from_json(start), StreamOffset.from_json(end)
        if until.origin is not None and until.origin != since.positions:
            since = StreamOffset(until.origin)  # Spark has asked for the beginning again, after a restart
        return steadily(lambda: self._plan(since, until))

    def _plan(self, start: StreamOffset, end: StreamOffset) -> list[LogSlice]:
        seen = self._watch.refresh()
        read_before = start.positions.keys() | end.positions.keys()
        dropped = read_before - matching(read_before, self._options.subscription)
        found, losses = ranges(start, end, seen, dropped)
        self._report(losses, seen)
        outlines = {partition: self._watch.outline(partition) for partition in found}
        extents = [
            extent_between(outlines[partition], seen.log_dirs[partition], partition, *span, self._options)
            for partition, span in found.items()
        ]
        parts = slices(lambda _, partition: outlines[partition], extents, self._options, seen.ids)
        for part in parts:
            self._watch.pin(part)
        return parts

    def _report(self, losses: Sequence[Loss], seen: PartitionsSeen) -> None:
        if losses:
            path = seen.log_dirs.get(losses[0].partition, ", ".join(self._options.paths))
            fail = self._options.scan.fail_on_data_loss
            report_data_loss(summary(losses), path=path, offset=losses[0].offset, fail=fail)

    # ---- when it is done -----------------------------------------------------------------------------------------------------

    def commit(self, end: JsonObject) -> None:
        """Commits the end of a micro-batch for the group, if there is one, except for partitions deleted since.

        Args:
            end: the end of a micro-batch that is done.

        Raises:
            PylogError: the store cannot be written.
        """
        if self._group is None or end == self._committed:
            return
        at, seen = StreamOffset.from_json(end), self._watch.refresh()
        deleted = at.recreated(seen.ids)
        known = {partition: offset for partition, offset in at.positions.items() if partition.topic not in deleted}
        remaining = {partition: offset for partition, offset in known.items() if offset <= seen.ends.get(partition, -1)}
        self._group.commit(remaining, {topic: at.ids[topic] for topic in {each.topic for each in remaining} & at.ids.keys()})
        self._committed = end

    def _open_group(self) -> None:
        if self._group is not None:
            self._group.open()

    def close(self) -> None:
        """Closes everything."""
        self._watch.close()
        if self._group is not None:
            self._group.close()


def _group_of(options: StreamOptions) -> GroupCommits | None:
    if options.group is None:
        return None
    from pylog.spark.group import GroupCommits  # with the engine, which a stream without a group may not need

    return GroupCommits(options.paths[0], options.group)
