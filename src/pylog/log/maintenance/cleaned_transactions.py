"""Tells which markers and which empty batches compaction keeps: those that transactions and producers still need."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pylog.index.transaction_index import AbortedTransaction
from pylog.log.producer_state import Producer
from pylog.record.batch import Bytes, Table
from pylog.record.control_batch import control_record
from pylog.record.format import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_ABORT,
    CONTROL_BIT,
    LAST_OFFSET,
    MAGIC,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
)


def last_batches(table: Table, producers: dict[int, Producer]) -> NDArray[np.bool_]:
    """Marks each producer's last batch, which is kept, even if empty, to preserve its sequence (storage-format 7.6.6)."""
    found = np.zeros(table.shape[1], np.bool_)
    for batch in np.flatnonzero(table[PRODUCER_ID] >= 0).tolist() if producers else ():
        producer = producers.get(int(table[PRODUCER_ID, batch]))
        if producer is not None and producer.last_offset >= 0:
            found[batch] = producer.last_offset == int(table[LAST_OFFSET, batch])
        elif producer is not None:  # it has only markers: the last one has its epoch
            marker = bool(table[ATTRIBUTES, batch] & CONTROL_BIT)
            found[batch] = marker and producer.epoch == int(table[PRODUCER_EPOCH, batch])
    return found


class CleanedTransactions:
    """Finds markers that are no longer needed: those of transactions without batches (storage-format 7.7).

    Attributes:
        aborted: the aborted transactions that still have batches, until they are taken.
    """

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # producer → first offset of its transaction, if batches of it are left
        self.aborted: list[AbortedTransaction] = []

    def removable(self, buffer: Bytes, table: Table) -> NDArray[np.bool_]:
        """Returns which control batches are not needed. Tables must be passed in log order."""
        found = np.zeros(table.shape[1], np.bool_)
        for batch in np.flatnonzero((table[ATTRIBUTES] & (CONTROL_BIT | TRANSACTIONAL_BIT)) != 0).tolist():
            if table[MAGIC, batch] < 2:
                continue
            if table[ATTRIBUTES, batch] & CONTROL_BIT:
                found[batch] = self._ends_nothing(buffer, table, batch)
            else:
                self._open.setdefault(int(table[PRODUCER_ID, batch]), int(table[BASE_OFFSET, batch]))
        return found

    def _ends_nothing(self, buffer: Bytes, table: Table, batch: int) -> bool:
        marker = control_record(buffer, table, batch)
        if marker is None:
            return True  # compaction emptied it
        if not marker.ends_transaction:
            return False
        producer_id, offset = int(table[PRODUCER_ID, batch]), int(table[LAST_OFFSET, batch])
        first = self._open.pop(producer_id, None)
        if first is not None and marker.type == CONTROL_ABORT:
            stable = min(self._open.values(), default=offset + 1)
            self.aborted.append(AbortedTransaction(producer_id, first, offset, stable))
        return first is None
