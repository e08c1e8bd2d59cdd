"""A consumer's state of one assigned partition: its position, and the records read ahead. Also the logs of all its partitions.

The position alone decides which record is returned next. If the buffer does not begin there, after a `seek` or an iteration that
was left early, the next fetch drops the buffer and reads again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import CoroutineType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pylog import limits
from pylog.awaitables import refuse_awaitable
from pylog.consumer.options import ConsumerOptions
from pylog.consumer.reading import CompletedFetch, PartitionReader
from pylog.errors import ClosedError, PylogError, RecordDeserializationError, UnknownTopicOrPartitionError
from pylog.log.partition_log import PartitionLog
from pylog.log.reading.lookup import name
from pylog.log_manager import LogManager
from pylog.record.arrays import numbers_of
from pylog.record.records import RECORD_COLUMNS, RecordColumns, columns_of, records_in
from pylog.record.types import Record, TopicPartition
from pylog.serializers import Conversion, conversion_of
from pylog.topics.kept import IsDeleted


class FetchedRecords(NamedTuple):
    """Records to return, in offset order, and the position after them.

    Attributes:
        records: `Record` objects or an Arrow batch; empty if only the position moves.
        position: the offset after them, and after the control records and gaps that follow.
        leader_epoch: the leader epoch of the last record's batch; None if the format has none.
    """

    records: Any
    position: int
    leader_epoch: int | None


class Deserializers(NamedTuple):
    """The functions that turn keys and values into objects.

    Attributes:
        key, value: functions of the bytes; None if there is none, or if it needs more than the bytes.
        full_key, full_value: the deserializers, if one of them also needs the topic and the headers; else None.
    """

    key: Callable[[bytes], Any] | None
    value: Callable[[bytes], Any] | None
    full_key: Conversion | None = None
    full_value: Conversion | None = None

    def apply(self, records: list[Record]) -> list[Record]:
        """Returns the records with deserialized keys and values, up to the first one that fails.

        Raises:
            RecordDeserializationError: the first record fails.
        """
        needs_more = self.full_key is not None or self.full_value is not None
        if self.key is None and self.value is None and not needs_more:
            return records
        done: list[Record] = []
        try:
            for record in records:
                if needs_more:
                    key, value = (
                        _full_object(self.full_key, record, record.key),
                        _full_object(self.full_value, record, record.value),
                    )
                else:
                    key, value = _object(self.key, record.key), _object(self.value, record.value)
                done.append(Record(record.topic, record.partition, record.offset, record.timestamp, key, value, record.headers))
        except Exception as error:
            if not done:
                raise _undeserializable(records[0], error) from error
        return done


def deserializers_of(options: ConsumerOptions) -> Deserializers:
    """Returns the deserializers of a consumer."""
    key = conversion_of("key_deserializer", options.key_deserializer, "deserialize")
    value = conversion_of("value_deserializer", options.value_deserializer, "deserialize")
    if any(each is not None and each.of_record is not None for each in (key, value)):
        return Deserializers(None, None, key, value)
    return Deserializers(key and key.of_value, value and value.of_value)


def _full_object(conversion: Conversion | None, record: Record, data: bytes | None) -> Any:
    """Returns the object for a key or value, from a deserializer of any form."""
    if conversion is None or conversion.of_record is None:
        return _object(conversion and conversion.of_value, data)
    if data is None and not conversion.takes_null:
        return None
    made = conversion.of_record(record.topic, record.headers, data)
    if type(made) is CoroutineType:
        refuse_awaitable(made)
    return made


def _object(make: Callable[[bytes], Any] | None, data: bytes | None) -> Any:
    if make is None or data is None:
        return data
    made = make(data)
    if type(made) is CoroutineType:
        refuse_awaitable(made)
    return made


def _undeserializable(record: Record, error: Exception) -> RecordDeserializationError:
    partition = f"{record.topic}-{record.partition}"
    return RecordDeserializationError(
        f"a deserializer raised {type(error).__name__} for offset {record.offset} of {partition}; seek past it to continue",
        offset=record.offset,
    )


class FetchBuffer:
    """Records of a partition that were read ahead, from `offset` on.

    Attributes:
        partition: as given.
        offset: the offset of the next record, or of a gap before it.
        reader: reads more.
    """

    def __init__(self, partition: TopicPartition, reader: PartitionReader, deserializers: Deserializers) -> None:
        self.offset = reader.offset
        self.reader = reader
        self.partition = partition
        self._deserializers = deserializers
        self._pieces: deque[CompletedFetch] = deque()
        self._row = 0  # of the first piece: the next one to return
        self._epochs: NDArray[np.int32] = np.empty(0, np.int32)  # of the first piece
        self._columns: RecordColumns | None = None  # of the first piece, once rows of it were returned as objects
        self._chunk: list[Record] = []  # rows of the first piece as objects, up to row `_chunk_end`
        self._chunk_end = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def size(self) -> int:
        """The approximate number of bytes left."""
        if not self._pieces:
            return 0
        frame, _, size = self._pieces[0]
        done = 0 if frame is None else size * self._row // frame.num_rows
        return sum([piece.size for piece in self._pieces]) - done

    def add(self, piece: CompletedFetch) -> None:
        """Adds a piece that was read."""
        self._pieces.append(piece)
        if len(self._pieces) == 1:
            self._begin_piece()

    def _begin_piece(self) -> None:
        """Prepares the first piece. A piece without records only moves the position."""
        self._row = self._chunk_end = 0
        self._chunk, self._columns = [], None
        frame = self._pieces[0].frame if self._pieces else None
        if frame is not None:
            self._epochs = numbers_of(frame.column(len(RECORD_COLUMNS)), np.int32)

    def frame(self, count: int, columns: Sequence[str] = RECORD_COLUMNS) -> FetchedRecords:
        """Takes at most `count` records as one Arrow batch with some columns. The buffer must not be empty."""
        frame, end, _ = self._pieces[0]
        if frame is None:
            return self._step(end)
        rows = frame.slice(self._row, count).select(list(columns))
        self._chunk_end = 0
        return self._passed(rows.num_rows, rows)

    def records(self, count: int) -> FetchedRecords:
        """Takes at most `count` records of one leader epoch as objects. The buffer must not be empty.

        Raises:
            RecordDeserializationError: the first record cannot be deserialized.
        """
        fetched = self._of_chunk(count)
        while len(fetched.records) < count and self._continues(fetched):
            try:
                more = self._of_chunk(count - len(fetched.records))
            except RecordDeserializationError:
                break  # raised by the next call, after these records
            fetched = more._replace(records=[*fetched.records, *more.records])
        return fetched

    def _continues(self, fetched: FetchedRecords) -> bool:
        """Returns whether more records of the same leader epoch follow."""
        if not self._pieces or self._pieces[0].frame is None:
            return False
        epoch = self._epochs[self._row]
        return bool(fetched.leader_epoch == (None if epoch < 0 else epoch))

    def _of_chunk(self, count: int) -> FetchedRecords:
        frame, end, _ = self._pieces[0]
        if frame is None:
            return self._step(end)
        if self._row >= self._chunk_end:
            self._next_chunk(frame)
        left = self._chunk_end - self._row
        first = len(self._chunk) - left
        part = self._chunk[first : first + count] if count < left or first else self._chunk
        return self._passed(len(part), part)

    def _next_chunk(self, frame: pa.RecordBatch) -> None:
        """Converts the next rows of one leader epoch to objects."""
        epochs = self._epochs[self._row : self._row + limits.RECORD_CHUNK_ROWS]
        rows = len(epochs) if epochs[0] == epochs[-1] else int(np.argmax(epochs != epochs[0]))
        self._columns = self._columns or columns_of(frame)
        plain = records_in(self._columns, self._row, rows, *self.partition)
        self._chunk = self._deserializers.apply(plain)
        self._chunk_end = self._row + len(self._chunk)

    def _step(self, end: int) -> FetchedRecords:
        self._pieces.popleft()
        self._begin_piece()
        self.offset = end
        return FetchedRecords((), end, None)

    def _passed(self, rows: int, records: Any) -> FetchedRecords:
        """Moves past rows of the first piece, and past following pieces without records."""
        frame, end, _ = self._pieces[0]
        assert frame is not None
        self._row += rows
        epoch = int(self._epochs[self._row - 1])
        if self._row < frame.num_rows:
            self.offset = frame.column(0)[self._row - 1].as_py() + 1
        else:
            self._pieces.popleft()
            self.offset = end
            while self._pieces and self._pieces[0].frame is None:
                self.offset = self._pieces.popleft().end
            self._begin_piece()
        return FetchedRecords(records, self.offset, None if epoch < 0 else epoch)


class AssignedPartition:
    """A consumer's state of a partition that is assigned to it.

    Args:
        partition: its topic and number.
        read_from: creates a reader that begins at an offset.
        deserializers: for its records.

    Attributes:
        position: the offset of the next record to return; None if it must still be found.
        leader_epoch: the leader epoch of the batch of the last record returned; None if unknown.
        paused: true if no records are returned.
        owned: false once the partition is no longer assigned to this consumer.
        buffer: the records read ahead; they may begin at another offset than `position`.
        failure: the error that prevented finding the position, or None.
    """

    def __init__(
        self, partition: TopicPartition, read_from: Callable[[int], PartitionReader], deserializers: Deserializers
    ) -> None:
        self.partition = partition
        self.position: int | None = None
        self.leader_epoch: int | None = None
        self.paused = False
        self.owned = True
        self._read_from = read_from
        self._deserializers = deserializers
        self.buffer: FetchBuffer | None = None
        self.failure: PylogError | None = None

    @property
    def is_fetchable(self) -> bool:
        """True if its records may be returned."""
        return self.owned and not self.paused and self.position is not None

    @property
    def has_turn(self) -> bool:
        """True if it may return records, or must raise an error."""
        return self.is_fetchable or (self.owned and self.failure is not None)

    def is_next(self, position: int | None) -> bool:
        """Returns whether records that begin at a position are still the next ones to return."""
        return self.position == position and self.owned and not self.paused

    def buffer_at_position(self) -> FetchBuffer:
        """Returns the buffer that begins at the position, which must be known."""
        assert self.position is not None
        if self.buffer is None or self.buffer.offset != self.position:
            self.buffer = FetchBuffer(self.partition, self._read_from(self.position), self._deserializers)
        return self.buffer

    def seek(self, position: int | None, leader_epoch: int | None = None) -> None:
        """Moves to an offset; None if the position must be found again."""
        self.position = position
        self.leader_epoch = leader_epoch
        self.buffer = self.failure = None

    def forget_what_was_read(self) -> None:
        """Drops the buffer: the next fetch reads again from the position."""
        self.buffer = None

    def move_past(self, fetched: FetchedRecords) -> None:
        """Moves the position past the records taken."""
        self.position = fetched.position
        if fetched.leader_epoch is not None:
            self.leader_epoch = fetched.leader_epoch


class Logs:
    """The logs of one consumer. Each is opened when it is first used.

    A partition that was deleted and created again has a new log, with other records at the same offsets, so positions in the old
    one do not apply to it.

    Args:
        manager: opens them.
    """

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._known: dict[TopicPartition, PartitionLog] = {}

    def of(self, partition: TopicPartition) -> PartitionLog:
        """Returns the log of a partition. May be called from any thread.

        Raises:
            UnknownTopicOrPartitionError: the log was deleted.
        """
        known = self._known.get(partition)
        if known is None:
            known = self._known[partition] = self._manager.log(*partition)
        elif known.is_deleted or (self._manager.mode == "rw" and self._manager.known_log(partition) is not known):
            raise UnknownTopicOrPartitionError(
                f"{name(partition)} was deleted and created again; seek to a position in the new one"
            )
        return known

    def known(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLog]:
        """Returns the logs of partitions that were used, as they were opened."""
        return {partition: self._known[partition] for partition in partitions if partition in self._known}

    def forget_deleted(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forgets deleted logs and returns their partitions. Cost: one refresh of each log."""
        deleted = [
            partition
            for partition in partitions
            if (known := self._known.get(partition)) is not None and not self._exists(partition, known)
        ]
        for partition in deleted:
            self._known.pop(partition, None)  # another thread may have forgotten its topic
        return deleted

    def forget_topics(self, is_deleted: IsDeleted, is_assigned: Callable[[TopicPartition], bool]) -> None:
        """Forgets the logs of deleted topics, except those of assigned partitions: `forget_deleted` must still report these."""
        for partition in list(self._known):
            if is_deleted(partition.topic) and not is_assigned(partition):
                known = self._known.pop(partition, None)
                if known is not None and self._manager.mode == "r":  # no other part has this object
                    known.close(deleted=True)

    def _exists(self, partition: TopicPartition, known: PartitionLog) -> bool:
        with suppress(UnknownTopicOrPartitionError, ClosedError):  # ClosedError: this process deleted the topic
            known.snapshot()
        if self._manager.mode == "r":
            return not known.is_deleted
        try:
            return self._manager.known_log(partition) is known
        except UnknownTopicOrPartitionError:
            return False
