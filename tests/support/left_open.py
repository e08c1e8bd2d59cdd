"""Transactions as others leave them: open, prepared, aborted, and hanging ones of a broker's producers."""

from __future__ import annotations

from contextlib import suppress
from unittest.mock import patch

import pylog
from pylog.config import Durability
from pylog.record.few import few_rows
from pylog.record.types import TransactionalBatch
from pylog.store import Store, manager_of
from pylog.transactions.coordinator import TransactionCoordinator
from pylog.transactions.metadata import ProducerIdAndEpoch, TransactionMetadata, TransactionState
from support.transactional import coordinator_of

BROKERS_PRODUCER = 17  # a producer id that a broker's controller assigns


def leave_open(store: Store, transactional_id: str, *, topic: str = "out", partition: int = 0) -> pylog.Transaction:
    """Leaves a transaction open, with one record. Its object is returned, so that it lives."""
    transaction = store.transaction(transactional_id)
    transaction.append(topic, b"open", partition=partition)
    transaction.flush()
    return transaction


def leave_decided(store: Store, transactional_id: str, *, topic: str = "out", partition: int = 0) -> None:
    """Leaves a transaction that is decided to be committed, and has no marker."""
    killed = pylog.StorageFailedError("the process is killed here")
    with patch.object(TransactionCoordinator, "write_markers", side_effect=killed), suppress(pylog.StorageFailedError):
        transaction = store.transaction(transactional_id)
        transaction.append(topic, b"decided", partition=partition)
        transaction.flush()
        transaction.commit()


def leave_hanging(
    store: Store,
    *,
    producer_id: int = BROKERS_PRODUCER,
    epoch: int = 3,
    topic: str = "out",
    partition: int = 0,
    age_ms: int = 0,
) -> int:
    """Appends one record of a producer's transaction that no transactional id has. Returns its offset."""
    log, now_ms = manager_of(store).log(topic, partition), manager_of(store).clock.now_ms() - age_ms
    rows = [few_rows([(now_ms, None, b"hanging", ())])]
    batch = TransactionalBatch(producer_id, epoch, 0)
    return log.append(now_ms, rows, durability=Durability.OS, producer=batch, atomic=True).offsets.start


def leave_a_brokers(
    store: Store, transactional_id: str, identity: ProducerIdAndEpoch, state: TransactionState, *partitions: pylog.TopicPartition
) -> None:
    """Writes the state of a broker's transactional id: without an owner, of clients before Kafka 4.0."""
    now_ms = manager_of(store).clock.now_ms()
    made = TransactionMetadata(
        transactional_id, *identity, 60_000, state, partitions, now_ms, now_ms, client_transaction_version=0
    )
    coordinator_of(store).topic.change(transactional_id, lambda _: made, Durability.OS)
