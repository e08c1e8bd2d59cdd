"""Plans the repair of a partition: which bytes stay and which offsets are lost. Writes nothing.

There are three policies:

* `skip` removes damaged bytes and keeps everything that can be read.
* `truncate` ends the log at the first damage.
* `quarantine` removes whole damaged segments.

Records keep their offsets. An empty batch replaces removed records, as Kafka's cleaner does: consumers skip it, and no offset is
used twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from pylog import limits
from pylog.clock import Clock
from pylog.errors import InvalidArgumentError
from pylog.fs import FILES, FileSystem, base_name, join
from pylog.log.checking.report import BEHIND, HARMLESS, Partition
from pylog.record.format import LAST_OFFSET, LEADER_EPOCH, POSITION, SIZE
from pylog.segment import names
from pylog.segment.batch_walk import Damage, WalkedRange, walk
from pylog.segment.segment import LogSegment
from pylog.tools.lost_markers import LostEnd, lost_ends
from pylog.tools.partitions import PartitionDirectory, partition_reader, sizes_of
from pylog.tools.pieces import ContentPart, EmptyBatch, EndMarker, KeptBytes, SegmentPlan, has_place
from pylog.tools.verify import Affected, is_in_archive, verify

POLICIES: Final = ("truncate", "skip", "quarantine")
OUTCOMES: Final = ("commit", "abort")
_HURT: Final = frozenset({"corrupt", "torn", BEHIND})  # bytes of a `.log` file that are not batches


class LostOffsets(NamedTuple):
    """Offsets that the repair removes from the log.

    Attributes:
        first_offset, last_offset: inclusive; the last is None if the extent of the damage is unknown.
        readable: True if their records can be read before the repair.
    """

    first_offset: int
    last_offset: int | None
    readable: bool


@dataclass(frozen=True)
class PartitionPlan:
    """The repair of one partition.

    Attributes:
        target: the partition.
        policy: one of `POLICIES`.
        affected: the findings.
        segments: the `.log` files that change.
        created: base offset of a new, empty segment; None without one.
        unindexed: base offsets of other segments whose indexes are rebuilt.
        from_offset: producers, transactions and snapshots are rebuilt from this offset.
        forget_header: True if pylog's `durable-point` is removed because it becomes wrong.
        end_offset, new_end_offset: end offset of the log before and after.
        lost: offsets that are lost.
        remote: offsets before the local log that are in a broker's remote tier, or in the archive; they stay there.
        has_archive: whether that is the archive.
        lost_ends: transactions whose markers are removed, and how `read_committed` readers see them.
        markers: what ends these transactions.
    """

    target: PartitionDirectory
    policy: str
    affected: tuple[Affected, ...]
    segments: tuple[SegmentPlan, ...] = ()
    created: int | None = None
    unindexed: tuple[int, ...] = ()
    from_offset: int = 0
    forget_header: bool = False
    end_offset: int = 0
    new_end_offset: int = 0
    lost: tuple[LostOffsets, ...] = ()
    remote: range = range(0)
    has_archive: bool = False
    lost_ends: tuple[LostEnd, ...] = ()
    markers: tuple[EndMarker, ...] = ()

    def sentences(self) -> Iterator[str]:
        """Yields sentences on what the repair does and which offsets are lost."""
        yield from map(str, self.segments)
        if self.created is not None:
            yield f"create a new segment at offset {self.created}"
        yield "rebuild indexes, producer snapshots and leader epochs"
        if self.new_end_offset != self.end_offset:
            message = f"the log will end at offset {self.new_end_offset} instead of {self.end_offset}"
            yield f"{message}; new records reuse the offsets after it"
        for lost in self.lost:
            upto = "to the end of the damage" if lost.last_offset is None else f"to {lost.last_offset}"
            could = "are lost, ALTHOUGH THEY CAN BE READ NOW" if lost.readable else "are lost; they cannot be read now"
            yield f"offsets {lost.first_offset} {upto} {could}"
        if not self.lost:
            yield "no record is lost"
        if self.remote:
            where = "the archive" if self.has_archive else "a broker's remote tier"
            offsets = f"{self.remote.start} to {self.remote.stop - 1}"
            yield f"offsets {offsets} stay in {where}, with the leader epochs that lead to them"
        yield from map(str, self.markers or self.lost_ends)


def plan_partition(
    fs: FileSystem,
    target: PartitionDirectory,
    policy: str,
    clock: Clock,
    *,
    whole: bool = False,
    lost_markers: str | None = None,
    alone: bool = False,
) -> PartitionPlan | None:
    """Plans the repair of one partition.

    Args:
        fs, target: the partition.
        policy: one of `POLICIES`.
        clock: the clock of the engine.
        whole: with "quarantine", remove all records, not only damaged segments.
        lost_markers: one of `OUTCOMES`, for transactions whose marker cannot be read; None to end none of those that lose theirs.
        alone: True if the caller excludes other writers.

    Returns:
        The plan, or None if there is no damage.

    Raises:
        InvalidArgumentError: the policy does not fit the damage, a compaction must be completed first, or the log would end
            earlier although its first part is in a broker's remote tier.
        PylogError: the partition cannot be opened.

    Cost: reads the partition twice, and damaged segments three times.
    """
    found = verify(target.directory, alone=alone, fs=fs, clock=clock)
    harmful = [each for each in found.affected if each.finding.kind not in HARMLESS - _HURT]
    affected = tuple(each for each in harmful if not is_in_archive(each))
    if not affected and not whole:
        if harmful:
            raise InvalidArgumentError(f"{harmful[0].finding.message}; {harmful[0].advice}")
        return None
    unreadable = next((each for each in affected if each.finding.kind == "unreadable"), None)
    if unreadable is not None:
        raise InvalidArgumentError(f"{unreadable.finding.message}; an unreadable file cannot be repaired: {unreadable.advice}")
    if any(name.endswith(names.SWAP) for name in sizes_of(fs, target)):  # of an unfinished compaction: segments exist twice
        message = f"{target.directory} has an unfinished compaction, which is not damage"
        raise InvalidArgumentError(f"{message}: open the partition for writing once to complete it, then repair the rest")
    readable = found.readable[0].ranges if found.readable else ()
    planner = _Planner(fs, target, policy, partition_reader(fs, target, clock)(), affected, readable)
    made = planner.plan(whole=whole)
    return made if lost_markers is None else planner.with_markers(made, is_committed=lost_markers == "commit")


class _Planner:
    """Computes the plan of one partition."""

    def __init__(
        self,
        fs: FileSystem,
        target: PartitionDirectory,
        policy: str,
        partition: Partition,
        affected: tuple[Affected, ...],
        readable: Iterable[tuple[int, int]],
    ) -> None:
        self._target = target
        self._policy = policy
        self._affected = affected
        self._state = partition.state
        self._end = partition.state.end_offset
        self._readable = list(readable) or ([(self._state.start_offset, self._end - 1)] if self._end else [])
        self._has_archive = fs.exists(join(target.directory, names.ARCHIVED))
        self._segments = segments_of(fs, target)
        self._hurt = {each.finding.path for each in affected if each.finding.kind in _HURT}

    def plan(self, *, whole: bool) -> PartitionPlan:
        made = replace(self._planned(whole=whole), remote=self._state.remote_offsets, has_archive=self._has_archive)
        if made.remote and (made.new_end_offset < made.end_offset or whole):
            self._refuse_to_cut(made.remote)
        kept = {segment.path: segment.pieces or () for segment in made.segments}

        def stays(segment: LogSegment, start: int, end: int) -> bool:
            pieces = kept.get(segment.path, (KeptBytes(0, segment.size),))
            return any(isinstance(piece, KeptBytes) and piece.start <= start and end <= piece.end for piece in pieces)

        return replace(made, lost_ends=tuple(lost_ends(self._segments, stays)))

    def with_markers(self, plan: PartitionPlan, *, is_committed: bool) -> PartitionPlan:
        """Returns a plan that also ends the transactions that lose their markers: in their places, or after the end.

        Args:
            plan: the plan.
            is_committed: the outcome of those whose marker cannot be read.
        """
        ends = [lost.marker(is_committed=is_committed) for lost in plan.lost_ends]
        plan = self._with_places(plan, [marker.offset for marker in ends if marker.offset < self._end])
        inside = [marker for marker in ends if has_place(marker, plan.segments)]
        end, epoch = plan.new_end_offset, self._epoch_before(len(self._segments))
        after = [marker for marker in ends if marker not in inside]
        added = [each._replace(offset=end + number, leader_epoch=epoch) for number, each in enumerate(after)]
        changed = {segment.base_offset: segment.with_markers(inside) for segment in plan.segments}
        if added:
            last = self._last_that_stays(changed)
            changed[last.base_offset] = last._replace(pieces=(*(last.pieces or ()), *added))
        return replace(
            plan,
            segments=tuple(changed[base] for base in sorted(changed)),
            from_offset=min([plan.from_offset, *changed]),
            forget_header=plan.forget_header or bool(added),
            new_end_offset=end + len(added),
            markers=(*inside, *added),
        )

    def _with_places(self, plan: PartitionPlan, offsets: list[int]) -> PartitionPlan:
        """Returns a plan that has empty batches up to the last of some offsets, in the segments that have them now.

        So each marker is replaced together with its own segment: a crash between two segments parts no transaction from its end.
        """
        last, changed = max(offsets, default=-1), {segment.base_offset: segment for segment in plan.segments}
        if last < plan.new_end_offset:
            return plan
        for number, (segment, following) in enumerate(self._segments):
            first = max(segment.base_offset, plan.new_end_offset)
            upto = last if following is None else min(last, following - 1)
            if segment.base_offset in changed and first <= upto:
                kept = changed[segment.base_offset].pieces or ()
                changed[segment.base_offset] = _plan_of(segment, [*kept, EmptyBatch(first, upto, self._epoch_before(number + 1))])
        return replace(plan, segments=tuple(changed.values()), new_end_offset=last + 1)

    def _last_that_stays(self, changed: Mapping[int, SegmentPlan]) -> SegmentPlan:
        for segment, _ in reversed(self._segments):
            plan = changed.get(segment.base_offset) or _plan_of(segment, [KeptBytes(0, segment.size)])
            if plan.pieces is not None:
                return plan
        raise AssertionError("records of a transaction stay in a segment")

    def _refuse_to_cut(self, remote: range) -> None:
        text = f"offsets {remote.start} to {remote.stop - 1} of {self._target.directory} are in"
        if self._has_archive:
            raise InvalidArgumentError(f"{text} the archive, which may have later ones too; use skip, or restore the store")
        raise InvalidArgumentError(
            f"{text} a broker's remote tier, and the broker may have copied later ones too; without them here it would serve "
            "others than pylog: use skip, or have the broker delete the records"
        )

    def _planned(self, *, whole: bool) -> PartitionPlan:
        if self._policy == "quarantine" and whole:
            return self._everything_out()
        changed, end = {"skip": self._skip, "truncate": self._truncate, "quarantine": self._quarantine}[self._policy]()
        bases = [segment.base_offset for segment in changed]
        last = self._segments[-1][0].base_offset if self._segments else 0
        unindexed = tuple(sorted(self._derived() - set(bases)))
        touched = [*bases, *unindexed]
        lost = tuple(self._lost(changed, end))
        return PartitionPlan(
            self._target,
            self._policy,
            self._affected,
            tuple(changed),
            None,
            unindexed,
            min(touched, default=last),
            self._header_lies(changed, last),
            self._end,
            end,
            lost,
        )

    # ---- the policies --------------------------------------------------------------------------------------------------------

    def _skip(self) -> tuple[list[SegmentPlan], int]:
        changed, end = [], self._end
        holes = self._holes()
        for number, (segment, following) in enumerate(self._segments):
            hole = holes.get(segment.base_offset)
            if segment.path in self._hurt or hole is not None:
                content = _NewContent(segment, following)
                content.take_all()
                epoch = content.epoch if content.pieces else self._epoch_before(number)
                pieces = content.pieces if hole is None else [*content.pieces, EmptyBatch(*hole, epoch)]
                changed.append(_plan_of(segment, pieces))
                end = end if following is not None else content.next_offset
        return changed, end

    def _truncate(self) -> tuple[list[SegmentPlan], int]:
        first = min((hurt for hurt in map(self._position_of, self._affected) if hurt is not None), default=None)
        if first is None:
            return [], self._end
        number, position = first
        segment, following = self._segments[number]
        content = _NewContent(segment, following)
        content.take_until(position)
        if content.next_offset < self._state.start_offset:
            message = f"the damage in {segment.path} is before the log start offset {self._state.start_offset}"
            raise InvalidArgumentError(f"{message}, so truncate would keep no record; use skip")
        changed = [_plan_of(segment, content.pieces)]
        changed += [_plan_of(later, None) for later, _ in self._segments[number + 1 :]]
        return self._without_empty_end(number, changed, content.next_offset)

    def _quarantine(self) -> tuple[list[SegmentPlan], int]:
        changed, end, holes = [], self._end, self._holes()
        for number, (segment, following) in enumerate(self._segments):
            hole = holes.get(segment.base_offset)
            if segment.path in self._hurt and following is not None:
                changed.append(_plan_of(segment, [EmptyBatch(segment.base_offset, following - 1, self._epoch_before(number))]))
            elif segment.path in self._hurt:
                kept, end = self._without_empty_end(number, [_plan_of(segment, [])], segment.base_offset)
                changed += kept
            elif hole is not None:
                changed.append(_plan_of(segment, [KeptBytes(0, segment.size), EmptyBatch(*hole, self._epoch_before(number + 1))]))
        return changed, end

    def _everything_out(self) -> PartitionPlan:
        removed = tuple(_plan_of(segment, None) for segment, _ in self._segments if segment.base_offset != self._end)
        empty = [_plan_of(segment, []) for segment, _ in self._segments if segment.base_offset == self._end]
        created = None if empty else self._end
        lost = tuple(self._lost([*removed, *empty], self._end, all_of_them=True))
        settled = (self._end, True, self._end, self._end, lost)
        return PartitionPlan(self._target, self._policy, self._affected, (*removed, *empty), created, (), *settled)

    # ---- helpers of the policies ---------------------------------------------------------------------------------------------

    def _position_of(self, each: Affected) -> tuple[int, int] | None:
        """Returns the number of the segment with a finding, and the position in it; None if it is not in the log."""
        finding = each.finding
        for number, (segment, _) in enumerate(self._segments):
            if finding.path == segment.path and finding.kind in _HURT:
                return number, finding.position
        if finding.kind == "missing" and each.first_offset is not None and each.last_offset is not None:
            before = self._number_before(each.first_offset)
            return None if before is None else (before, self._segments[before][0].size)
        return None

    def _holes(self) -> dict[int, tuple[int, int]]:
        """Returns the first and last missing offset after a segment, by the base offset of that segment."""
        found = {}
        for each in self._affected:
            if each.finding.kind == "missing" and each.first_offset is not None and each.last_offset is not None:
                before = self._number_before(each.first_offset)
                if before is not None:
                    found[self._segments[before][0].base_offset] = (each.first_offset, each.last_offset)
        return found

    def _number_before(self, offset: int) -> int | None:
        """Returns the number of the segment for an offset, even if that segment lost all of its records."""
        numbers = [number for number, (segment, _) in enumerate(self._segments) if segment.base_offset <= offset]
        return numbers[-1] if numbers else None

    def _without_empty_end(self, number: int, changed: list[SegmentPlan], end: int) -> tuple[list[SegmentPlan], int]:
        """Removes an empty last segment unless it starts at the end of the previous one: a gap there would stop consumers."""
        first, *later = changed
        if first.pieces or number == 0:
            return changed, end
        content = _NewContent(self._segments[number - 1][0], first.base_offset)
        content.take_all()
        if content.next_offset == first.base_offset:
            return changed, end
        return [first._replace(pieces=None), *later], content.next_offset

    def _epoch_before(self, number: int) -> int:
        """Returns the leader epoch of the last batch before a segment; -1 without a batch. Compaction may empty segments."""
        for segment, following in reversed(self._segments[:number]):
            content = _NewContent(segment, following)
            content.take_all()
            if content.epoch >= 0:
                return content.epoch
        return -1

    def _derived(self) -> set[int]:
        """Returns the base offsets of segments with wrong derived files."""
        bases = {segment.base_offset for segment, _ in self._segments}
        found = (names.parse(base_name(each.finding.path)) for each in self._affected if each.finding.kind == "derived")
        return {name.offset for name in found if name is not None and name.offset in bases}

    def _header_lies(self, changed: list[SegmentPlan], last: int) -> bool:
        """Returns True if pylog's header refers to a segment that changes, or to missing data."""
        if any(segment.base_offset == last for segment in changed):
            return True
        return any(each.finding.kind in _HURT | {"missing"} and self._position_of(each) is None for each in self._affected)

    def _lost(self, changed: list[SegmentPlan], end: int, *, all_of_them: bool = False) -> Iterator[LostOffsets]:
        for each in self._affected:
            if each.first_offset is not None and each.finding.kind not in HARMLESS:
                yield LostOffsets(each.first_offset, each.last_offset, False)
        removed = self._emptied(changed, end) if self._policy != "skip" else []
        if all_of_them:
            removed = [(self._state.start_offset, self._end - 1)]
        for first, last in removed:
            for readable_first, readable_last in self._readable:
                both = max(first, readable_first), min(last, readable_last)
                if both[0] <= both[1]:
                    yield LostOffsets(*both, True)

    def _emptied(self, changed: list[SegmentPlan], end: int) -> list[tuple[int, int]]:
        """Returns the offsets that the policy removes, damaged or not."""
        if self._policy == "truncate":
            return [(end, self._end - 1)] if end < self._end else []
        bases = {segment.base_offset for segment in changed if segment.path in self._hurt}
        ends = {segment.base_offset: following for segment, following in self._segments}
        return [(base, (ends[base] or self._end) - 1) for base in bases]


def segments_of(
    fs: FileSystem, target: PartitionDirectory, interval_bytes: int = limits.DEFAULT_INDEX_INTERVAL_BYTES
) -> list[tuple[LogSegment, int | None]]:
    """Returns all `.log` files of a partition as segments, each with the base offset of the next one.

    Args:
        fs, target: the partition.
        interval_bytes: bytes between two entries of a rebuilt index.
    """
    sizes = {found.offset: (name, size) for name, size in sizes_of(fs, target).items() if (found := _plain_log(name))}
    bases = sorted(sizes)
    following = dict(zip(bases, [*bases[1:], None], strict=False))
    return [
        (
            LogSegment(
                fs,
                target.directory,
                base,
                size=sizes[base][1],
                mtime_ms=0,
                open_files=FILES,
                sealed=following[base] is not None,
                interval_bytes=interval_bytes,
                log_name=sizes[base][0],
            ),
            following[base],
        )
        for base in bases
    ]


def _plain_log(name: str) -> names.NumberedName | None:
    found = names.parse(name)
    return found if found is not None and found.suffix == names.LOG and not found.state else None


def _plan_of(segment: LogSegment, pieces: Iterable[ContentPart] | None) -> SegmentPlan:
    return SegmentPlan(segment.base_offset, segment.path, segment.size, None if pieces is None else tuple(pieces))


class _NewContent:
    """Collects the content of a segment's new file in a pass over the old one.

    Attributes:
        pieces: the content so far.
        next_offset: the offset after the content.
        epoch: the leader epoch of the last batch; -1 before the first.
    """

    def __init__(self, segment: LogSegment, following: int | None) -> None:
        self._segment = segment
        self._following = following
        self.pieces: list[ContentPart] = []
        self.next_offset = segment.base_offset
        self.epoch = -1

    def take_all(self) -> None:
        """Keeps all good batches, and puts empty batches between them."""
        for walked in walk(self._segment, 0, self._segment.size, self._following, verify=True):
            self._keep(walked)
            if walked.damage is not None:
                self._fill(walked.damage)

    def take_until(self, position: int) -> None:
        """Keeps the good batches before a position."""
        for walked in walk(self._segment, 0, self._segment.size, self._following, verify=True):
            inside = int(np.searchsorted(walked.table[POSITION] + walked.shift, position))
            self._keep(walked._replace(table=walked.table[:, :inside]))
            if inside < walked.table.shape[1] or walked.damage is not None:
                return

    def _keep(self, walked: WalkedRange) -> None:
        table = walked.table
        if not table.shape[1]:
            return
        start, end = (int(number) + walked.shift for number in (table[POSITION, 0], table[POSITION, -1] + table[SIZE, -1]))
        before = self.pieces[-1] if self.pieces else None
        if isinstance(before, KeptBytes) and before.end == start:
            self.pieces[-1] = KeptBytes(before.start, end)
        else:
            if isinstance(before, EmptyBatch) and len(self.pieces) == 1:  # no earlier batch gives its epoch
                self.pieces[-1] = before._replace(leader_epoch=int(table[LEADER_EPOCH, 0]))
            self.pieces.append(KeptBytes(start, end))
        self.next_offset, self.epoch = int(table[LAST_OFFSET, -1]) + 1, int(table[LEADER_EPOCH, -1])

    def _fill(self, damage: Damage) -> None:
        """Adds an empty batch in place of lost records, if their offsets are known."""
        following = self._following if damage.next_offset is None else damage.next_offset
        if following is not None and self.next_offset < following <= self._segment.base_offset + limits.MAX_RELATIVE_OFFSET:
            self.pieces.append(EmptyBatch(self.next_offset, following - 1, self.epoch))
            self.next_offset = following
