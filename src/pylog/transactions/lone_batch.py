"""`LoneBatch`: the only batch of a transaction, on its way to its log."""

from __future__ import annotations

from pylog.config import Durability
from pylog.record.few import Piece
from pylog.record.types import ProducerBatch, TopicPartition
from pylog.transactions.incarnation import Incarnation
from pylog.transactions.metadata import ProducerIdAndEpoch, TransactionMetadata


class LoneBatch:
    """The only batch of a transaction: begin, append, and then complete it, or give it up if the append has refused it.

    Args:
        incarnation: the use of the transactional id.
        partition, rows: the batch.
        compression, level: the options of the transaction.
    """

    def __init__(
        self, incarnation: Incarnation, partition: TopicPartition, rows: Piece, compression: str | None, level: Durability
    ) -> None:
        self._incarnation = incarnation
        self._partition = partition
        self._rows = rows
        self._compression = compression
        self._level = level
        self._begun: TransactionMetadata | None = None

    def begin(self) -> ProducerIdAndEpoch | None:
        """Makes the transaction known. Returns its numbers; None without an id, where nothing need be known."""
        if self._incarnation.is_anonymous:
            return None
        self._begun = self._incarnation.begin([self._partition], self._level, is_single=True)
        return self._begun.identity

    def append(self) -> range:
        """Appends the batch, which commits the transaction. Returns its offsets."""
        given = self._rows, self._compression, self._level
        if self._begun is None:
            return self._incarnation.append_alone(self._partition, *given)
        return self._incarnation.append(self._partition, ProducerBatch(*self._begun.identity, 0), *given)

    def complete(self) -> None:
        """Notes that the transaction is complete."""
        if self._begun is not None:
            self._incarnation.complete_single(self._begun)

    def give_up(self) -> None:
        """Ends the transaction, whose batch was refused, so that another one can have its records."""
        if self._begun is not None:
            self._incarnation.abort(self._begun.identity)
