"""The bank: transfers by processes that are killed at any moment, and snapshots that always have the same total."""

from __future__ import annotations

from pathlib import Path

import pylog
from support.campaign import bank
from support.campaign.processes import new_seed


def test_each_snapshot_has_the_same_total_whatever_writers_are_killed() -> None:
    done = bank.run(new_seed(), rounds=1)
    assert done["snapshots"] > 1  # after each opening, and beside the writers as often as the machine allows
    assert done["records"] > 0


def test_readers_of_ends_taken_one_by_one_or_of_uncommitted_records_see_another_total(tmp_path: Path) -> None:
    """The planted faults: what the bank would notice."""
    bank.create(tmp_path)
    with bank.opened(tmp_path) as store:
        first = store.log(bank.TOPIC, 0).end_offset
        bank.transfer(store, "one", 0, 1, 5, aborts=False)
        ends = {0: first, 1: store.log(bank.TOPIC, 1).end_offset}
        one_by_one = [record for number, end in ends.items() for record in store.log(bank.TOPIC, number).records(end=end)]
        assert sum(int(record.value or b"") for record in one_by_one) == 5
        undecided = store.transaction("two")
        undecided.append(bank.TOPIC, b"7", partition=2)
        undecided.flush()
        uncommitted = store.read_table(bank.TOPIC, columns=["value"])["value"].to_pylist()
        assert sum(map(int, uncommitted)) == 7
        assert bank.total(store, store.snapshot()) == 0
        assert isinstance(store.snapshot(), pylog.Snapshot)


def test_stable_offsets_are_no_snapshot(tmp_path: Path) -> None:
    """A transaction that is open in one partition hides the half of a later transfer there, and not the other half."""
    bank.create(tmp_path)
    with bank.opened(tmp_path) as store:
        older = store.transaction("older")
        older.append(bank.TOPIC, b"0", partition=0)
        older.flush()
        bank.transfer(store, "one", 0, 1, 5, aborts=False)
        logs = [store.log(bank.TOPIC, number) for number in range(bank.PARTITIONS)]
        stable = [record for log in logs for record in log.records(end=log.stable_offset, isolation_level="read_committed")]
        assert sum(int(record.value or b"") for record in stable) == 5
        snapshot = store.snapshot()
        assert bank.total(store, snapshot) == 0
        assert store.read_table(bank.TOPIC, snapshot=snapshot).num_rows == 2  # the transfer is whole, not left out
        older.abort()
