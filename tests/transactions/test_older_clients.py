"""Open transactions of a broker's clients before and since KIP-890: which of them hang, and the marker that ends them.

The markers of clients before it (transaction versions 0 and 1) have the epoch of the data, and those since it the next one.
"""

from __future__ import annotations

import pytest

from pylog.config import Durability
from pylog.record.types import TopicPartition
from pylog.store import manager_of
from pylog.testing import MemoryFileSystem
from pylog.transactions.metadata import TransactionMetadata, TransactionState
from support.left_open import BROKERS_PRODUCER, leave_hanging
from support.transactional import committed, coordinator_of, count_open, new_store

OUT = TopicPartition("out", 0)
DATA = 3  # epoch of the data that is open in the partition
OLD, NEW = 0, 2
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARED = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize(
    ("version", "state", "epoch", "hangs"),
    [
        *((version, ONGOING, DATA, False) for version in (OLD, NEW)),
        *((OLD, state, DATA, False) for state in PREPARED),
        *((NEW, state, DATA + 1, False) for state in PREPARED),
        *((NEW, state, DATA, True) for state in PREPARED),  # of the transaction before
        *((OLD, state, DATA, True) for state in COMPLETE),  # a batch that came after the marker (KIP-664)
        *((NEW, state, DATA + 1, True) for state in COMPLETE),
        *((version, EMPTY, DATA, True) for version in (OLD, NEW)),
        *((version, ONGOING, DATA + 1, True) for version in (OLD, NEW)),
    ],
)
@pytest.mark.pair("aborted transactions", "broker's directory")
def test_a_brokers_transaction_hangs_unless_its_id_has_it_open_or_prepared(
    version: int, state: TransactionState, epoch: int, hangs: bool
) -> None:
    store = new_store(MemoryFileSystem())
    leave_hanging(store, epoch=DATA)
    now_ms = manager_of(store).clock.now_ms()
    partitions = () if state in (EMPTY, *COMPLETE) else (OUT,)
    known = TransactionMetadata(
        "jvm", BROKERS_PRODUCER, epoch, 60_000, state, partitions, now_ms, now_ms, client_transaction_version=version
    )
    coordinator_of(store).topic.change("jvm", lambda _: known, Durability.OS)
    store.tick()  # which leaves a broker's open transactions alone, and finishes none of an owner that it cannot ask
    assert [each.producer_epoch for each in store.transactions.find_hanging()] == ([DATA] if hangs else [])
    if hangs:
        assert [each.producer_epoch for each in store.transactions.end_hanging()] == [DATA]
        assert (count_open(store, "out"), committed(store, "out")) == (0, [])
        assert store.transactions.describe("jvm").state == state.kafka_name
    store.close()


@pytest.mark.parametrize("state", PREPARED)
@pytest.mark.parametrize(("version", "epoch"), [(OLD, DATA), (NEW, DATA + 1)])
def test_an_instance_of_pylog_finishes_what_a_brokers_client_has_prepared_and_takes_a_later_epoch(
    version: int, epoch: int, state: TransactionState
) -> None:
    store = new_store(MemoryFileSystem())
    leave_hanging(store, epoch=DATA)
    now_ms = manager_of(store).clock.now_ms()
    known = TransactionMetadata(
        "jvm", BROKERS_PRODUCER, epoch, 60_000, state, (OUT,), now_ms, now_ms, client_transaction_version=version
    )
    coordinator_of(store).topic.change("jvm", lambda _: known, Durability.OS)
    with store.transaction("jvm") as transaction:
        transaction.append("out", b"of pylog", partition=0)
    assert committed(store, "out") == [*([b"hanging"] if state is TransactionState.PREPARE_COMMIT else []), b"of pylog"]
    (producer,) = manager_of(store).log("out").writer().writer.producers.producers  # type: ignore[union-attr]
    assert (producer.producer_id, producer.epoch > epoch) == (BROKERS_PRODUCER, True)
    assert not store.verify(records=True).findings
    store.close()
