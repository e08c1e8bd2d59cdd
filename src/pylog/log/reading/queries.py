"""`Queries`: reads, scans, searches by time, following and planning of one partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from threading import get_ident
from typing import Any, Protocol

import pyarrow as pa

from pylog import limits
from pylog.clock import Clock
from pylog.directory.partition_metadata import read_topic_id
from pylog.fs import DirectoryEntry, Gate
from pylog.log.arguments import check_scan, is_committed, offset_given
from pylog.log.reading import following, lookup, many_offsets, planning, reader
from pylog.log.reading.following import Ends
from pylog.log.reading.lookup import Answer, TimeSearch
from pylog.log.reading.outline import outline_of
from pylog.log.recovery.loaded import Source
from pylog.log.recovery.loader import listing
from pylog.log.state import LogState
from pylog.record.decoder import DEFAULT_COLUMNS
from pylog.record.records import RECORD_COLUMNS, record_chunks
from pylog.record.types import OffsetAndTimestamp, Record, TopicPartition
from pylog.segment.names import LOG, file_name
from pylog.snapshot import OffsetsNow, PartitionCut, SegmentFile, Snapshot, cut_given


class LogStates(Protocol):
    """`PartitionLog`, as its queries use it."""

    @property
    def known(self) -> LogState: ...
    def may_have_changed(self) -> bool: ...
    def snapshot(self, *, committed: bool = False, wait: bool = False) -> LogState: ...


class Queries:
    """Reads, scans, searches by time, following and planning of one partition. Every method may be called from any thread.

    Args:
        partition: the partition, for records and messages.
        clock: for waiting.
        gate: the log's; a call after `close` raises.
        states: the log's states.
        source: the partition's files.
    """

    def __init__(self, partition: TopicPartition, clock: Clock, gate: Gate, states: LogStates, source: Source) -> None:
        self._source = source
        self._partition = partition
        self._clock = clock
        self._gate = gate
        self._states = states
        self._snapshot = states.snapshot
        self._times = TimeSearch()

    def _current(self) -> LogState:
        """Returns the state now, as a snapshot; refreshed only if another process may have changed the log.

        Cost: one pread, 1 µs. Where no header of pylog counts, as in a broker's directory, the log is refreshed every 50 ms.
        """
        return self._snapshot() if self._states.may_have_changed() else self._states.known

    def read(self, offset: int) -> Record:
        """Returns the record at an offset, or the next one. `offset` is not negative. Raises as `Log.read`."""
        inside, me, states = self._gate.inside, get_ident(), self._states
        inside.append(me)  # what `with self._gate` does, in half the time
        try:
            if self._gate.is_shut:
                raise self._gate.error()  # noqa: TRY301 - this call takes microseconds, and `check` is one more
            is_known = offset < states.known.end_offset and not states.may_have_changed()
            state = states.known if is_known else self._snapshot()  # the known one after the check, which may publish one
            try:
                return lookup.read_one(state, self._partition, offset)
            except lookup.MAY_PASS:
                return lookup.of_live(self._snapshot, state, partial(lookup.read_one, partition=self._partition, offset=offset))
        except Exception as error:
            self._gate.explain(error)
            raise
        finally:
            inside.remove(me)

    def answer(self, question: Callable[[LogState], Answer], *, committed: bool = False) -> Answer:
        """Returns the answer to a question about the log now. Asks again if another thread or process changes segments meanwhile.

        Args:
            question: reads segments of the state that it is given.
            committed: the state has the open transactions.

        Raises:
            What the question raises, if the log has not changed since.
        """
        with self._gate:
            return lookup.of_live(partial(self._snapshot, committed=committed), self._snapshot(committed=committed), question)

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        isolation_level: str = "read_uncommitted",
        max_rows: int = limits.SCAN_ROWS,
        verify: bool = True,
        snapshot: Snapshot | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the records of a range as Arrow batches. Arguments and errors as for `Log.scan`."""
        self._gate.check()
        committed = check_scan(columns, isolation_level, max_rows)
        cut, refresh = None, partial(self._snapshot, committed=committed)
        if snapshot is not None:
            committed, cut = True, cut_given(snapshot, self._partition)
            refresh = partial(self._with_all_of, cut)
        state = refresh()
        last = cut.end_offset if cut is not None else state.stable_offset if committed else state.end_offset
        wanted = lookup.wanted(state, self._partition, start, end, last)
        renew = partial(following.refreshed_after, partial(refresh, wait=True))
        check = following.Continuity(self._current, state).check
        left_out = None if cut is None else cut.is_left_out
        frames = reader.scan(
            state,
            wanted,
            columns,
            committed=committed,
            max_rows=max_rows,
            verify=verify,
            renew=renew,
            check=check,
            is_left_out=left_out,
        )
        return self._gate.steps(frames)

    def _with_all_of(self, cut: PartitionCut, *, wait: bool = False) -> LogState:
        """Returns the state now. Raises if it lacks records of a snapshot."""
        state = self._snapshot(committed=True, wait=wait)
        truncated_to = state.truncated_to(cut.truncation_count)
        topic_id = read_topic_id(self._source.fs, self._source.directory)
        compacted_to = self._source.cleaned.offsets().get(self._partition, 0)
        ends = state.start_offset, state.end_offset
        is_compacted = self._source.options.read().is_compacted
        now = OffsetsNow(topic_id, *ends, truncated_to, compacted_to, self._is_rewritten(cut), is_compacted)
        cut.check(self._partition, now)
        return state

    def _is_rewritten(self, cut: PartitionCut) -> bool:
        """Returns whether compaction has replaced a segment of a snapshot. Cost: 2 µs a segment of a compacted topic."""
        if not cut.files:
            return False
        entries = {entry.name: entry for entry in listing(self._source)}
        bases = [base for base, file in cut.files.items() if file.inode and base < cut.end_offset]
        found = {base: entries.get(file_name(base, LOG)) for base in bases}
        first = min((base for base, entry in found.items() if entry is not None), default=cut.end_offset)
        return any(_is_replaced(cut.files[base], entry) for base, entry in found.items() if base >= first)

    def records(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        isolation_level: str = "read_uncommitted",
        verify: bool = True,
        snapshot: Snapshot | None = None,
    ) -> Iterator[Record]:
        """Yields the records of a range as `Record` objects."""
        frames = self.scan(start, end, columns=RECORD_COLUMNS, isolation_level=isolation_level, verify=verify, snapshot=snapshot)
        return chain.from_iterable(self._gate.chunks(record_chunks(frames, *self._partition)))

    def read_many(
        self, offsets: Any, *, columns: Sequence[str] = DEFAULT_COLUMNS, isolation_level: str = "read_uncommitted"
    ) -> pa.Table:
        """Returns the records at some offsets, as `Log.read_many`."""
        self._gate.check()
        committed = check_scan(columns, isolation_level, 1)
        wanted = many_offsets.offsets_of(offsets)

        def question(state: LogState) -> pa.Table:
            return many_offsets.read_many(state, self._partition, wanted, columns, committed=committed)

        return self.answer(question, committed=committed)

    def offset_for_timestamp(
        self, timestamp: int | datetime, *, isolation_level: str = "read_uncommitted"
    ) -> OffsetAndTimestamp | None:
        """Returns the first record at or after a timestamp. Arguments and errors as for `Log.offset_for_timestamp`."""
        wanted, committed = offset_given("timestamp", timestamp), is_committed(isolation_level)
        with self._gate:
            state = self._snapshot(committed=committed)
            try:
                return self._times.find(state, wanted, committed=committed)
            except lookup.MAY_PASS:
                find = partial(self._times.find, timestamp=wanted, committed=committed)
                return lookup.of_live(partial(self._snapshot, committed=committed), state, find)

    def wait_for(self, offset: int, timeout_ms: int | None = None, *, durable: bool = False) -> int:
        """Waits until the log has a record at `offset`, and returns the log end. As `Log.wait_for`."""
        self._gate.check()
        ends = Ends(durable=durable)
        return ends.of(following.wait(self._snapshot, self._clock, offset_given("offset", offset), ends, timeout_ms))

    def follow(
        self,
        start: int | None = None,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        isolation_level: str = "read_uncommitted",
        max_rows: int = limits.SCAN_ROWS,
        timeout_ms: int | None = None,
        durable: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yields Arrow batches from `start` on, including later appends. As `Log.follow`."""
        followed = self._followed(start, columns, isolation_level, max_rows, durable=durable)
        return self._gate.explained(following.follow(*followed, timeout_ms))

    def follow_in_slices(
        self,
        slice_ms: float,
        start: int | None = None,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        isolation_level: str = "read_uncommitted",
        max_rows: int = limits.SCAN_ROWS,
        durable: bool = False,
    ) -> Iterator[pa.RecordBatch | None]:
        """Yields as `follow`, without end, and None whenever no record has arrived for `slice_ms`."""
        followed = self._followed(start, columns, isolation_level, max_rows, durable=durable)
        return self._gate.explained(following.follow_in_slices(*followed, slice_ms))

    def _followed(
        self, start: int | None, columns: Sequence[str], isolation_level: str, max_rows: int, *, durable: bool
    ) -> tuple[Callable[[], LogState], Callable[[int, int], Iterator[pa.RecordBatch]], Clock, int, Ends]:
        """Returns what `following.follow` needs."""
        self._gate.check()
        check_scan(columns, isolation_level, max_rows)  # without reading: another thread or process may truncate in between
        ends = Ends(durable, isolation_level == "read_committed")
        offset = self._snapshot().end_offset if start is None else self._offset_within(offset_given("start", start))
        scan = partial(self.scan, columns=columns, isolation_level=isolation_level, max_rows=max_rows)
        return partial(self._snapshot, committed=ends.committed), scan, self._clock, offset, ends

    def _offset_within(self, offset: int) -> int:
        state = self._snapshot()
        if offset > state.end_offset:
            state = self._snapshot(wait=True)
        return lookup.wanted(state, self._partition, offset, None, state.end_offset).start

    def size_between(self, start: int, end: int) -> int:
        """Returns the approximate size of the records from `start` up to `end`, in bytes."""
        return self._planned(lambda state: planning.size_between(outline_of(state), start, end))

    def split_offsets(self, start: int, end: int, max_bytes: int) -> list[int]:
        """Returns offsets that split a range of records into parts of about `max_bytes`."""
        return self._planned(lambda state: planning.split_offsets(outline_of(state), start, end, max_bytes))

    def _planned(self, plan: Callable[[LogState], Answer]) -> Answer:
        with self._gate:
            return lookup.of_live(self._snapshot, self._current(), plan)


def _is_replaced(then: SegmentFile, now: DirectoryEntry | None) -> bool:
    """Returns whether a segment's file is another one than it was; compaction may also have merged it with the one before."""
    return now is None or now.inode != then.inode or now.size < then.size
