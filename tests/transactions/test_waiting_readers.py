"""A consumer that waits for the transaction of a dead process finishes it: no tick and no opening is needed (rule 16)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pylog
from pylog import Consumer, Store
from pylog.offsets.store import offset_manager_of
from pylog.testing import MemoryFileSystem
from pylog.transactions.coordinator import TransactionCoordinator
from support.transactional import count_open, new_store, opened

ONE = {"transactions": pylog.TransactionsConfig(topic_num_partitions=1)}
OPTIONS = {"auto_offset_reset": "earliest", "enable_auto_commit": False}


class Two:
    """Two processes with one directory: one has an open transaction, the other one has a consumer."""

    def __init__(self) -> None:
        self.dying = MemoryFileSystem()
        self.clock = self.dying.clock
        first = new_store(self.dying, **ONE)
        first.log("out").append(b"before")
        first.offsets.commit("group", {("out", 0): 0})
        self.store: Store = opened(self.dying.process(), **ONE)
        self.transaction = first.transaction("billing")
        self.transaction.append("out", b"never seen", partition=0)
        self.transaction.send_offsets("group", {("out", 0): 1})
        self.transaction.flush()
        self.store.log("out").append(b"after")

    def read(self, consumer: Consumer, polls: int = 10) -> list[bytes]:
        """The values that some polls return, half a second apart."""
        found: list[bytes] = []
        for _ in range(polls):
            found += [record.value for records in consumer.poll(0).values() for record in records]
            self.clock.advance(500)
        return found


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two()
    yield made
    made.store.close()


def test_a_reader_of_committed_records_gets_those_after_a_dead_processs_transaction(two: Two) -> None:
    with two.store.consumer("out", isolation_level="read_committed", **OPTIONS) as consumer:
        assert two.read(consumer) == [b"before"]
        assert count_open(two.store, "out") == 1  # its owner lives
        two.dying.kill()
        assert two.read(consumer) == [b"after"]
        assert count_open(two.store, "out") == 0


def test_a_member_gets_a_partition_whose_offset_a_dead_process_had_not_committed_yet(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        two.dying.kill()
        raise KeyboardInterrupt

    assert offset_manager_of(two.store.offsets).pending("group") == set()  # its log is open: opening it would finish, too
    with two.store.consumer("out", group_id="group", **OPTIONS) as consumer, monkeypatch.context() as patch:
        patch.setattr(TransactionCoordinator, "prepare_commit", die)  # the offsets are written, and nothing is decided
        with pytest.raises(KeyboardInterrupt):
            two.transaction.commit()
        assert offset_manager_of(two.store.offsets).pending("group") == {("out", 0)}
        assert two.read(consumer) == [b"before", b"never seen", b"after"]  # by default, aborted records too
        assert offset_manager_of(two.store.offsets).pending("group") == set()


def test_a_consumer_of_a_store_that_only_reads_writes_nothing(two: Two) -> None:
    fs = two.dying.process()
    two.dying.kill()
    with (
        pylog.open("/data", mode="r", fs=fs, clock=two.clock) as store,
        store.consumer("out", isolation_level="read_committed", **OPTIONS) as consumer,
    ):
        assert two.read(consumer, 4) == [b"before"]
