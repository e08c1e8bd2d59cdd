"""The numbers that let a log take a producer's batches once: an id, an epoch, and a sequence for each partition.

A broker's controller hands out producer ids from one counter. Processes that share a directory have no controller, and a counter
in a file would be lost with it, or copied with it: two producers would have one id, and a log would take the batches of one for
those of the other, and drop them (groups-and-transactions T-12). So an id is drawn at random, from 2^48, where no broker's
counter gets to (reliability 10), to 2^62: of a million producers that a partition remembers, two are the same with a chance of
one in 8 million.
"""

from __future__ import annotations

import secrets

from pylog import limits
from pylog.record.types import ProducerBatch


def new_producer_id() -> int:
    """An id that no other producer has.

    >>> 1 << 48 <= new_producer_id() < 1 << 62
    True
    """
    first, end = limits.PRODUCER_IDS
    return first + secrets.randbelow(end - first)


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
        """The numbers of the next batch, or of the last one again, if it was not acknowledged."""
        return ProducerBatch(self._producer_id, self._epoch, self._sequence)

    def advance(self, count: int) -> None:
        """A batch of so many records is in the log."""
        self._sequence = (self._sequence + count) & limits.INT32_MAX

    def restart(self) -> None:
        """A batch was given up. Whether it is in the log may not be known, so the next one must not have its numbers."""
        self._sequence = 0
        if self._epoch < limits.MAX_PRODUCER_EPOCH:
            self._epoch += 1
        else:
            self._producer_id, self._epoch = new_producer_id(), 0
