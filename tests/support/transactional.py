"""Stores for tests of transactions: two partitions of each internal topic, and what readers see."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import pylog
from pylog.store import Store, manager_of
from pylog.testing import MemoryFileSystem
from pylog.transactions.coordinator import TransactionCoordinator, open_transactions

FEW: Final[dict[str, Any]] = {
    "transactions": pylog.TransactionsConfig(topic_num_partitions=2),
    "offsets": pylog.OffsetsConfig(topic_num_partitions=2),
}


def opened(fs: MemoryFileSystem, **options: Any) -> Store:
    """Opens the store."""
    return pylog.open("/data", fs=fs, clock=fs.clock, **{**FEW, **options})


def new_store(fs: MemoryFileSystem, **options: Any) -> Store:
    """Opens a new store with the topics `in`, which has ten records, and `out`, which has three partitions."""
    store = opened(fs, **options)
    store.create_topic("in")
    store.create_topic("out", partition_count=3)
    store.log("in").append_many([b"%d" % number for number in range(10)])
    return store


def committed(store: Store, topic: str) -> list[bytes]:
    """Returns the values that a `read_committed` reader of a topic sees, sorted."""
    logs = [store.log(topic, number) for number in store.topic(topic).partition_ids]
    return sorted(record.value or b"" for log in logs for record in log.records(isolation_level="read_committed"))


def count_open(store: Store, topic: str) -> int:
    """Returns how many transactions are open in the partitions of a topic."""
    partitions = store.topic(topic).partition_ids
    return sum(len(open_transactions(manager_of(store).log(topic, number))) for number in partitions)


def coordinator_of(store: Store) -> TransactionCoordinator:
    """Returns the steps of the protocol, as the store uses them."""
    return store._clients.transactions.coordinator


FEW_TRANSACTIONS: Final = pylog.TransactionsConfig(topic_num_partitions=1)


def left_open(path: Path) -> None:
    """A transaction that its process leaves open, as if it was killed."""
    with pylog.open(path, transactions=FEW_TRANSACTIONS) as store:
        store.create_topic("orders")
        transaction = store.transaction("billing")
        transaction.append("orders", b"x")
        transaction.flush()
        transaction.append("orders", b"x")
        transaction.flush()
        killed = shutil.copytree(path, path.with_name(f"{path.name}-killed"))
    shutil.rmtree(path)
    killed.rename(path)
