"""One partition of a consumer: its position, and what was read ahead of it.

The position alone says what comes next. What was read and does not begin there (somebody sought elsewhere, or left an iteration
half way) is dropped when records are next asked for, and read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import CoroutineType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pylog import limits
from pylog.awaitables import refuse_awaitable
from pylog.consumer.options import Deserializer
from pylog.consumer.reading import PartitionReader, Piece
from pylog.errors import PylogError, RecordDeserializationError
from pylog.record.decoder import RECORD_COLUMNS, records_of
from pylog.record.types import Record, TopicPartition


class Taken(NamedTuple):
    """Records that may be handed out, in offset order, and what is so once they have been.

    Attributes:
        records: objects, or an Arrow batch; none when only the position moves.
        position: the offset behind them, and behind control records and gaps that follow.
        leader_epoch: of the last one's batch; None where the format has none.
    """

    records: Any
    position: int
    leader_epoch: int | None


class Deserializers(NamedTuple):
    """What makes objects of keys and values."""

    key: Deserializer | None
    value: Deserializer | None

    def apply(self, records: list[Record]) -> list[Record]:
        """The same records with objects; at the first that cannot be read the list ends.

        Raises:
            RecordDeserializationError: the first one cannot.
        """
        if self.key is None and self.value is None:
            return records
        done: list[Record] = []
        try:
            for record in records:
                key, value = _object(self.key, record.key), _object(self.value, record.value)
                done.append(Record(record.topic, record.partition, record.offset, record.timestamp, key, value, record.headers))
        except Exception as error:
            if not done:
                raise _undeserializable(records[0], error) from error
        return done


def _object(make: Deserializer | None, data: bytes | None) -> Any:
    if make is None or data is None:
        return data
    made = make(data)
    if type(made) is CoroutineType:
        refuse_awaitable(made)
    return made


def _undeserializable(record: Record, error: Exception) -> RecordDeserializationError:
    place = f"{record.topic}-{record.partition}"
    return RecordDeserializationError(
        f"a deserializer raised {type(error).__name__} for offset {record.offset} of {place}; seek past it to go on",
        offset=record.offset,
    )


class Buffer:
    """Records of a partition that were read and not taken yet, from `offset` on.

    Attributes:
        offset: of the next record to be taken, or of a gap before it.
        reader: gives more.
    """

    def __init__(self, partition: TopicPartition, reader: PartitionReader, deserializers: Deserializers) -> None:
        self.offset = reader.offset
        self.reader = reader
        self._partition = partition
        self._deserializers = deserializers
        self._pieces: deque[Piece] = deque()
        self._row = 0  # of the first piece: the next to be taken
        self._epochs: NDArray[np.int32] = np.empty(0, np.int32)  # of the first piece
        self._chunk: list[Record] = []  # rows of the first piece as objects, up to `_chunk_end`
        self._chunk_end = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    @property
    def size(self) -> int:
        """About how many bytes are left."""
        if not self._pieces:
            return 0
        frame, _, size = self._pieces[0]
        done = 0 if frame is None else size * self._row // frame.num_rows
        return sum(piece.size for piece in self._pieces) - done

    def add(self, piece: Piece) -> None:
        """Takes in what was read."""
        self._pieces.append(piece)
        if len(self._pieces) == 1:
            self._begin_piece()

    def _begin_piece(self) -> None:
        """Prepares the first piece; one without records is only a step."""
        self._row = self._chunk_end = 0
        self._chunk = []
        frame = self._pieces[0].frame if self._pieces else None
        if frame is not None:
            self._epochs = frame.column(len(RECORD_COLUMNS)).to_numpy()

    def frame(self, count: int) -> Taken:
        """At most so many of the records as one Arrow batch. There is a piece."""
        frame, end, _ = self._pieces[0]
        if frame is None:
            return self._step(end)
        rows = frame.slice(self._row, count).select(list(RECORD_COLUMNS))
        self._chunk_end = 0
        return self._passed(rows.num_rows, rows)

    def records(self, count: int) -> Taken:
        """At most so many of the records as objects, of one leader epoch. There is a piece.

        Raises:
            RecordDeserializationError: of the first of them.
        """
        taken = self._of_chunk(count)
        while len(taken.records) < count and self._goes_on(taken):
            try:
                more = self._of_chunk(count - len(taken.records))
            except RecordDeserializationError:
                break  # it comes again, once these are handed out
            taken = more._replace(records=[*taken.records, *more.records])
        return taken

    def _goes_on(self, taken: Taken) -> bool:
        """Whether there are more records of the same leader epoch."""
        if not self._pieces or self._pieces[0].frame is None:
            return False
        epoch = self._epochs[self._row]
        return bool(taken.leader_epoch == (None if epoch < 0 else epoch))

    def _of_chunk(self, count: int) -> Taken:
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
        """Makes objects of rows, of one leader epoch."""
        epochs = self._epochs[self._row : self._row + limits.RECORD_CHUNK_ROWS]
        rows = len(epochs) if epochs[0] == epochs[-1] else int(np.argmax(epochs != epochs[0]))
        plain = records_of(frame.slice(self._row, rows).select(list(RECORD_COLUMNS)), *self._partition)
        self._chunk = self._deserializers.apply(plain)
        self._chunk_end = self._row + len(self._chunk)

    def _step(self, end: int) -> Taken:
        self._pieces.popleft()
        self._begin_piece()
        self.offset = end
        return Taken((), end, None)

    def _passed(self, rows: int, records: Any) -> Taken:
        """Goes on behind rows of the first piece, and behind what follows without records."""
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
        return Taken(records, self.offset, None if epoch < 0 else epoch)


class AssignedPartition:
    """What a consumer knows of a partition that is its own.

    Args:
        partition: which.
        read_from: makes a reader that begins at an offset.
        deserializers: for its records.

    Attributes:
        position: the offset of the next record to be handed out; None as long as it is not known.
        leader_epoch: of the batch of the last record handed out, None where that is not known.
        paused: nothing is handed out.
        owned: false once it is another consumer's.
        buffer: what was read, up to now from wherever.
        failure: why the position could not be found out; None otherwise.
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
        self.buffer: Buffer | None = None
        self.failure: PylogError | None = None

    @property
    def is_fetchable(self) -> bool:
        """Whether records of it may be handed out."""
        return self.owned and not self.paused and self.position is not None

    @property
    def has_turn(self) -> bool:
        """Whether it has something to say: records, maybe, or an error."""
        return self.is_fetchable or (self.owned and self.failure is not None)

    def goes_on(self, position: int | None) -> bool:
        """Whether records that begin at a position are still what is to be handed out."""
        return self.position == position and self.owned and not self.paused

    def buffer_at_position(self) -> Buffer:
        """What was read from the position on. The position is known."""
        assert self.position is not None
        if self.buffer is None or self.buffer.offset != self.position:
            self.buffer = Buffer(self.partition, self._read_from(self.position), self._deserializers)
        return self.buffer

    def seek(self, position: int | None, leader_epoch: int | None = None) -> None:
        """Goes to an offset; None: to where it has to be found out."""
        self.position = position
        self.leader_epoch = leader_epoch
        self.buffer = self.failure = None

    def forget_what_was_read(self) -> None:
        """Reads again from the position on."""
        self.buffer = None

    def hand_out(self, taken: Taken) -> None:
        """Moves the position behind what was taken."""
        self.position = taken.position
        if taken.leader_epoch is not None:
            self.leader_epoch = taken.leader_epoch
