"""The numbers that let a log append each batch of a producer once: producer id, epoch, and a sequence for each partition."""

from __future__ import annotations

from pylog import limits
from pylog.record.types import ProducerBatch
from pylog.transactions.producer_ids import new_producer_id


class Numbering:
    """The numbers of one producer's batches for one partition (groups-and-transactions 5.1, 5.2).

    >>> numbering = Numbering(1 << 48)
    >>> numbering.advance(10)
    >>> numbering.next_batch()
    ProducerBatch(producer_id=281474976710656, epoch=0, sequence=10)
    >>> numbering.restart()
    >>> numbering.next_batch()
    ProducerBatch(producer_id=281474976710656, epoch=1, sequence=0)
    """

    def __init__(self, producer_id: int) -> None:
        self._producer_id = producer_id
        self._epoch = 0
        self._sequence = 0

    def next_batch(self) -> ProducerBatch:
        """Returns the numbers of the next batch; the same again until `advance` or `restart`."""
        return ProducerBatch(self._producer_id, self._epoch, self._sequence)

    def advance(self, count: int) -> None:
        """Moves past a batch of `count` records that was appended."""
        self._sequence = (self._sequence + count) & limits.INT32_MAX

    def restart(self) -> None:
        """Starts a new epoch after a batch was abandoned. The batch may be in the log, so its numbers must not be used again."""
        self._sequence = 0
        if self._epoch < limits.MAX_PRODUCER_EPOCH:
            self._epoch += 1
        else:
            self._producer_id, self._epoch = new_producer_id(), 0
