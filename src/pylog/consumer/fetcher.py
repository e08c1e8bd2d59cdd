"""Fetches records from a consumer's partitions in turn, and reads ahead in the background while the program processes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from pylog import limits
from pylog.consumer.partition import AssignedPartition, FetchBuffer, FetchedRecords
from pylog.errors import OffsetOutOfRangeError, PylogError
from pylog.record.ahead import Worker
from pylog.record.types import TopicPartition

T = TypeVar("T")
TakeRecords = Callable[[FetchBuffer, int], FetchedRecords]
_THREAD: Final = "pylog-fetcher"
_TRIES: Final = 3  # if the log is truncated during a read


class PartitionRecords(NamedTuple):
    """Records fetched from one partition."""

    assigned: AssignedPartition
    fetched: FetchedRecords


class Fetcher:
    """Reads for one consumer, whose thread calls every method.

    Partitions take turns: one that has returned records goes to the end of the queue. A separate thread reads one piece ahead. If
    that fails, the caller repeats the read when it needs the records. After an interrupt, buffers are dropped and everything is
    read again from the positions, because the interrupt may have stopped any step.

    Args:
        max_bytes, max_partition_bytes: the sizes up to which records are read ahead, of all partitions and of each one.
        out_of_range: resets a partition whose position is not in its log, or raises the error.
    """

    def __init__(
        self,
        max_bytes: int,
        max_partition_bytes: int,
        out_of_range: Callable[[AssignedPartition, OffsetOutOfRangeError], None],
    ) -> None:
        self._max_bytes = max_bytes
        self._max_partition_bytes = max_partition_bytes
        self._out_of_range = out_of_range
        self._turns: list[AssignedPartition] = []
        self._ahead: FetchBuffer | None = None  # the buffer whose next piece is being read
        self._worker = Worker(_THREAD)
        self._broken_off = False

    def set_partitions(self, assigned_partitions: Iterable[AssignedPartition]) -> None:
        """Replaces the partitions. Those that stay keep their turn."""
        wanted = dict.fromkeys(assigned_partitions)
        kept = dict.fromkeys(assigned for assigned in self._turns if assigned in wanted)
        self._turns = list(kept | wanted)

    def _undisturbed(self, read: Callable[..., T], *arguments: Any) -> T:
        """Calls a function that reads. An interrupt inside it makes the next call drop everything that was read."""
        if self._broken_off:
            self._worker.end()
            self._worker, self._ahead = Worker(_THREAD), None
            for assigned in self._turns:
                assigned.forget_what_was_read()
        self._broken_off = True
        try:
            result = read(*arguments)
        except PylogError:
            self._broken_off = False
            raise
        self._broken_off = False
        return result

    # ---- fetching ------------------------------------------------------------------------------------------------------------

    def take(self, count: int, how: TakeRecords, only: Collection[TopicPartition] = ()) -> list[PartitionRecords]:
        """Returns at most `count` records, from the partitions in turn.

        Args:
            count: the largest number of records.
            how: takes records from a buffer.
            only: the partitions to take them from; all of them if empty.

        Raises:
            PylogError: a partition failed before any record was fetched; the error has its `partition`. It is raised again, in
                turn with other partitions, until the position moves.
        """
        return self._undisturbed(self._fetch_in_turn, count, how, only)

    def _fetch_in_turn(self, count: int, how: TakeRecords, only: Collection[TopicPartition]) -> list[PartitionRecords]:
        found: list[PartitionRecords] = []
        is_full = not only and self._is_full()
        for assigned in self._turns:
            if count <= 0:
                break
            if not assigned.has_turn or (is_full and not assigned.buffer):  # return buffered records first
                continue
            if only and assigned.partition not in only:
                continue
            try:
                fetched = self._take(assigned, count, how)
            except PylogError as error:
                if found:
                    break  # raised by the next call, after these records
                assigned.forget_what_was_read()
                self._put_last([assigned])
                error.partition = assigned.partition
                raise
            if fetched is not None:
                found.append(PartitionRecords(assigned, fetched))
                count -= len(fetched.records)
        self._put_last([each.assigned for each in found])
        return found

    def _put_last(self, served: list[AssignedPartition]) -> None:
        if served and served != self._turns[-len(served) :]:
            done = set(served)
            self._turns = [*(assigned for assigned in self._turns if assigned not in done), *served]

    def _is_full(self) -> bool:
        """Returns whether the buffers have reached `max_bytes`, and some of their records can be returned."""
        size = sum([assigned.buffer.size for assigned in self._turns if assigned.buffer is not None])
        return size >= self._max_bytes and any(assigned.buffer and assigned.is_fetchable for assigned in self._turns)

    def _take(self, assigned: AssignedPartition, count: int, how: TakeRecords) -> FetchedRecords | None:
        """Returns records of one partition: buffered ones, else those of the next piece."""
        if assigned.failure is not None:
            raise assigned.failure
        for _ in range(_TRIES):
            try:
                buffer = assigned.buffer_at_position()
                return how(buffer, count) if buffer or self._fill(buffer) else None
            except OffsetOutOfRangeError as error:
                self._out_of_range(assigned, error)
        return None

    def _fill(self, buffer: FetchBuffer) -> bool:
        """Reads a piece, or waits for the one being read ahead. Returns whether the buffer has records."""
        if self._ahead is buffer:
            self._settle()
        piece = None if buffer else buffer.reader.read()
        if piece is not None:
            buffer.add(piece)
        return bool(buffer)

    # ---- reading ahead -------------------------------------------------------------------------------------------------------

    def read_ahead(self) -> None:
        """Starts to read the next piece of the first partition in turn whose buffer is low, if the limits allow it."""
        if self._ahead is None or self._worker.has_result:
            self._undisturbed(self._read_ahead)

    def _read_ahead(self) -> None:
        self._settle()
        first, total = None, 0
        for assigned in self._turns:
            if assigned.is_fetchable:
                buffer = assigned.buffer_at_position() if assigned.buffer is None else assigned.buffer
                size = buffer.size
                total += size
                if first is None and buffer.reader.may_have_more and size < self._max_partition_bytes:
                    first = buffer
        if first is not None and total < self._max_bytes:
            self._ahead = first if self._worker.ask(first.reader.read) else None

    def _settle(self) -> None:
        """Waits for the piece that is read ahead and adds it to its buffer."""
        buffer, self._ahead = self._ahead, None
        if buffer is None:
            return
        try:
            piece = self._worker.result()
        except PylogError:
            return  # the caller reads again, and raises
        if piece is not None:
            buffer.add(piece)

    def close(self) -> None:
        """Ends the thread. Nothing is read after this returns."""
        self._worker.end()
        self._turns.clear()


def as_records(buffer: FetchBuffer, count: int) -> FetchedRecords:
    """Takes `Record` objects."""
    return buffer.records(count)


def as_frame(buffer: FetchBuffer, count: int) -> FetchedRecords:
    """Takes one Arrow batch of at most `count` records."""
    return buffer.frame(count)


def as_whole_frame(buffer: FetchBuffer, _: int) -> FetchedRecords:
    """Takes one whole Arrow batch, as it was read."""
    return buffer.frame(limits.INT64_MAX)
