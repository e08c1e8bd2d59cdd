"""`LogState`: an immutable snapshot of a log for readers. A writer publishes a new one by assigning a reference; no locks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import ge
from typing import NamedTuple, final

import msgspec

from pylog import limits
from pylog.errors import InvalidArgumentError
from pylog.index.skiplist import SkipList
from pylog.log.durable_point import FAILED, Truncations
from pylog.log.recovery.loaded import Loaded
from pylog.log.recovery.tier import in_tier
from pylog.record.types import OpenTransaction, TopicPartition
from pylog.segment.segment import LogSegment

Item = tuple[int, LogSegment]


class SegmentInfo(NamedTuple):
    """One segment of a log, in numbers. Taken at one moment; it opens no file.

    Attributes:
        base_offset: the first offset that the segment may hold. It is also the name of the segment's files.
        end_offset: the offset after the segment's last record; the next segment's base offset, except in the last segment.
        size: bytes of the `.log` file that can be read.
        path: the `.log` file.
    """

    base_offset: int
    end_offset: int
    size: int
    path: str


@final
class SegmentView:
    """An immutable, sorted sequence of (base offset, segment).

    Views of one log share the writer's skip list, which only grows at its end. Each view keeps the items that belong to it, so
    segments added later are never part of it. A lookup is a binary search in the view: 0.2 µs, where the list takes 1 µs.

    Args:
        items: the segments in rising order of their base offsets.

    Raises:
        InvalidArgumentError: the base offsets do not rise.

    >>> view = SegmentView([(0, "first"), (100, "second")])
    >>> grown = view.with_added(250, "third")
    >>> len(view), view.floor(300), view.higher(100), grown.floor(300)
    (2, (100, 'second'), None, (250, 'third'))
    """

    __slots__ = ("_bases", "_items", "_list", "last")

    _bases: tuple[int, ...]
    _items: tuple[Item, ...]
    _list: SkipList[LogSegment] | None
    last: Item | None  # the item with the largest base offset: of the active segment

    def __init__(self, items: Iterable[Item] = ()) -> None:
        found = tuple(items)
        bases = tuple(base for base, _ in found)
        if any(map(ge, bases, bases[1:])):
            raise InvalidArgumentError("the segments of a view must be given in rising order of their base offsets")
        self._fill(found, bases, None)

    def _fill(self, items: tuple[Item, ...], bases: tuple[int, ...], shared: SkipList[LogSegment] | None) -> None:
        put = object.__setattr__
        put(self, "_items", items)
        put(self, "_bases", bases)
        put(self, "_list", shared)
        put(self, "last", items[-1] if items else None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a view of segments is immutable; {name} cannot be set")

    def __len__(self) -> int:
        return len(self._bases)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def values(self) -> list[LogSegment]:
        """Returns the segments, oldest first. Cost: O(n)."""
        return [segment for _, segment in self._items]

    @property
    def first(self) -> Item | None:
        """The item with the smallest base offset, or None."""
        return self._items[0] if self._items else None

    def floor(self, offset: int) -> Item | None:
        """Returns the item with the largest base offset that is at most `offset`, or None. Cost: O(log n), 0.2 µs."""
        at = bisect_right(self._bases, offset)
        return self._items[at - 1] if at else None

    def higher(self, offset: int) -> Item | None:
        """Returns the item with the smallest base offset above `offset`, or None. Cost: O(log n)."""
        at = bisect_right(self._bases, offset)
        return self._items[at] if at < len(self._items) else None

    def with_added(self, base_offset: int, segment: LogSegment) -> SegmentView:
        """Returns a view with one more segment at its end. This view stays as it is.

        Cost: O(log n) in the skip list, and a copy of 16 bytes a segment.

        Raises:
            InvalidArgumentError: the base offset is not above all others.
        """
        item, shared = (base_offset, segment), self._shared_list()
        if shared.last != self.last or not self._items:  # of a state that was given up; a log's first segment needs no list
            return SegmentView([*self._items, item])
        shared.insert(base_offset, segment)
        view = object.__new__(SegmentView)
        view._fill((*self._items, item), (*self._bases, base_offset), shared)
        return view

    def check(self) -> None:
        """Checks the invariants of the skip list, and that this view is a part of it. For `Store.check` and tests. Cost: O(n)."""
        shared = self._shared_list()
        shared.check()
        assert tuple(islice(shared, len(self))) == self._items, "the view is not a part of the writer's list"

    def _shared_list(self) -> SkipList[LogSegment]:
        """Returns the writer's skip list. It is made when a segment is added first: most logs are opened without adding any."""
        shared = self._list
        if shared is None:
            shared = SkipList(self._items)
            object.__setattr__(self, "_list", shared)
        return shared


class LogState(msgspec.Struct, frozen=True):
    """A log's ends and segments.

    Attributes:
        segments: the segments of this state, oldest first. They never grow or shrink.
        active: the active segment (in a log opened for reading, the last one); None if there are no segments.
        active_size: published bytes of the active segment.
        start_offset: the log start offset: the smallest offset that may be read.
        end_offset: the offset after the last published record: log end offset and high watermark.
        durable_offset: records below it are synced.
        first_unstable_offset: first offset of the earliest open transaction, or None.
        epoch: the header's epoch at that time. It changes when segments are added, deleted or replaced.
        truncation_count: the number of truncations so far.
        replacements: how often this process has noticed that a program without a header has replaced or deleted files.
        remote_start: the log start offset in a broker's remote storage; None if the log is complete here.
        truncations: the last ones.
        local: the state of the local tier, if this one has both tiers of a tiered log; else None.
        open_transactions: those in the log, by their first offsets; of a log that is open for reading, once they were looked up.
    """

    segments: SegmentView
    active: LogSegment | None
    active_size: int
    start_offset: int
    end_offset: int
    durable_offset: int
    first_unstable_offset: int | None = None
    epoch: int = 0
    truncation_count: int = 0
    remote_start: int | None = None
    replacements: int = 0
    truncations: Truncations = Truncations()
    open_transactions: tuple[OpenTransaction, ...] = ()
    local: LogState | None = None

    @property
    def version(self) -> tuple[int, int]:
        """A value that changes whenever segments are added, deleted or replaced."""
        return self.epoch, self.replacements

    def truncated_to(self, since: int) -> int:
        """Returns the lowest offset that the log was truncated to since an earlier truncation count; 0 if it is not known."""
        if self.truncation_count == since:
            return limits.INT64_MAX
        return self.truncations.lowest(since, self.truncation_count)

    @property
    def whole_start(self) -> int:
        """The log start offset, of local and remote storage together."""
        return self.start_offset if self.remote_start is None else self.remote_start

    @property
    def remote_offsets(self) -> range:
        """The offsets that are only in a broker's remote storage."""
        return range(0) if self.remote_start is None else range(self.remote_start, self.start_offset)

    def earliest(self, partition: TopicPartition) -> int:
        """Returns the offset where reading from the beginning starts.

        Raises:
            OffsetOutOfRangeError: it is in remote storage.
        """
        remote = self.remote_offsets
        if remote:
            raise in_tier(f"{partition.topic}-{partition.partition}", remote, remote.start)
        return self.start_offset

    @property
    def stable_offset(self) -> int:
        """The last stable offset, where `read_committed` reading ends (storage-format 6.7.2)."""
        return self.end_offset if self.first_unstable_offset is None else max(self.start_offset, self.first_unstable_offset)

    def size_of(self, segment: LogSegment) -> int:
        """Returns the number of bytes of a segment that this state may read."""
        return self.active_size if segment is self.active else segment.size

    def from_offset(self, offset: int) -> Iterator[tuple[LogSegment, int]]:
        """Yields the segment that may have `offset`, and later ones, each with the offset after its records. O(log n)."""
        found = self.segments.floor(offset) or self.segments.first
        while found is not None and found[0] < max(self.end_offset, 1):
            following = self.segments.higher(found[0])
            yield found[1], self.end_offset if following is None else following[0]
            found = following

    def end_of(self, segment: LogSegment) -> int:
        """Returns the offset after a segment's records: the next segment's base offset, or the log end."""
        following = self.segments.higher(segment.base_offset)
        return self.end_offset if following is None else following[0]

    def described(self) -> tuple[SegmentInfo, ...]:
        """Returns offsets and sizes of the segments, oldest first. Cost: O(n)."""
        found = self.segments.values()
        ends = [*(segment.base_offset for segment in found[1:]), self.end_offset]
        return tuple(
            SegmentInfo(each.base_offset, end, self.size_of(each), each.path) for each, end in zip(found, ends, strict=False)
        )


def first_state(loaded: Loaded) -> LogState:
    """Returns the state of a log that was just loaded."""
    active = loaded.segments[-1] if loaded.segments else None
    if active is not None:
        active.builder = loaded.builder
    slot = loaded.slot
    end, next_offset = published_ends(loaded)
    return LogState(
        SegmentView(zip(loaded.segments.bases, loaded.segments, strict=True)),
        active,
        end,
        min(loaded.start_offset, next_offset),
        next_offset,
        min(loaded.durable_offset, next_offset),
        None if loaded.producers is None else loaded.producers.first_unstable_offset,
        0 if slot is None else slot.epoch,
        0 if slot is None else slot.truncation_count,
        loaded.remote_start,
        truncations=loaded.truncations,
        open_transactions=() if loaded.producers is None else loaded.producers.open_transactions(),
    )


def published_ends(loaded: Loaded) -> tuple[int, int]:
    """Returns the end that readers may see: unpublished bytes of this boot may be in memory only."""
    slot = loaded.slot
    if slot is None or not loaded.same_boot or slot.active_base != loaded.segments[-1].base_offset:
        return loaded.end, loaded.next_offset
    failed = slot.flags & FAILED
    position, offset = (
        (slot.durable_position, slot.durable_offset) if failed else (slot.published_position, slot.published_offset)
    )
    return (position, offset) if position < loaded.end else (loaded.end, loaded.next_offset)
